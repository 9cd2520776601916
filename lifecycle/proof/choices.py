"""Choices: an order as a list of numbers, drawn up front. Past its end the oldest comes first, so that a search that
shortens the list ends at the order that everybody expects. Knows nothing of what is chosen among."""

from __future__ import annotations

from collections.abc import Iterable


class Choices:
    """Chooses among `n` things; one number is used up wherever there is something to choose."""

    __slots__ = ("_numbers", "_used")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._numbers, self._used = tuple(numbers), 0

    @property
    def used(self) -> int:
        """How many numbers were used up."""
        return self._used

    def pick(self, n: int) -> int:
        """The index of the one that comes next, 0 <= index < n."""
        if n < 2 or self._used >= len(self._numbers):
            return 0
        number = self._numbers[self._used]
        self._used += 1
        return number % n
