"""What a table of sessions has in its columns, in whatever database."""

from __future__ import annotations

from typing import NamedTuple

from .fork import Lineage
from .store import Summary

COLUMNS = "key, id, parent, prefix, created_at, updated_at, events, turns, title"


class Row(NamedTuple):
    """A row of it, in the order of `COLUMNS`."""

    key: int
    id: str
    parent: str | None
    prefix: int
    created_at: int
    updated_at: int
    events: int
    turns: int
    title: str

    @property
    def lineage(self) -> Lineage | None:
        return None if self.parent is None else Lineage(self.parent, self.prefix)

    def summary(self) -> Summary:
        return Summary(self.created_at, self.updated_at, self.turns, self.title)
