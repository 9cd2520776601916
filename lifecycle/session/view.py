"""A read-only window on a list that only ever grows. Knows nothing of what the list holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class View(Sequence[T_co]):
    """The first `length` items of `items`; all there are and will be, if `length` is None.

    Made in constant time. A bounded view never changes, because nobody changes or removes an item of the list
    below it. It equals any sequence with equal items; a slice is a tuple.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T_co], length: int | None = None) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return len(self._items) if self._length is None else self._length

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        length = len(self)
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step < 0:
                return tuple(self._items[place] for place in range(start, stop, step))
            return tuple(self._items[start:stop:step])
        if not -length <= index < length:
            raise IndexError(f"there is no item {index}; there are {length}")
        return self._items[index + length if index < 0 else index]

    def __iter__(self) -> Iterator[T_co]:
        # Bounded here too: a list that grows under a live view would otherwise be followed for ever.
        return islice(iter(self._items), len(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (View, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # anything compares

    __hash__ = None  # type: ignore[assignment]  # a live view changes its length, and lists equal to it have no hash

    def __repr__(self) -> str:
        return f"<View of {len(self)} items>"
