"""A flat record of immutable values: what a search copies and compares at the cost of a tuple."""

from __future__ import annotations

from typing import Self


class Flat:
    """The base of dataclasses whose fields are all immutable."""

    def copy(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def key(self) -> tuple[object, ...]:
        """All that tells it from others."""
        return tuple(self.__dict__.values())
