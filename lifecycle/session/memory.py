"""A store that lives as long as its process. It keeps what it is given at once, so `flush` has nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from lifecycle.errors import SessionHasChildrenError, SessionLockedError
from lifecycle.vocabulary.events import Event

from .base import Kept, StoreBase
from .store import SessionInfo, page

T = TypeVar("T")


class MemoryStore(StoreBase):
    """Keeps sessions in memory. `async with` closes it at the end.

    Args:
        clock: Gives the time in epoch milliseconds.
    """

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        super().__init__("memory", durability="none", clock=clock)
        self.kept: dict[str, Kept] = {}

    def _slot(self, id: str) -> _Slot:
        return _Slot(self, id)

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        return work(*arguments)

    def _infos(self, limit: int | None, offset: int) -> Sequence[SessionInfo]:
        infos = (
            kept.summary.info(id, len(kept.events), kept.lineage, locked=id in self.opened)
            for id, kept in self.kept.items()
        )
        return page(infos, limit, offset)


class _Slot:
    """An entry of the dictionary, and its writer."""

    __slots__ = ("_events", "_kept", "_store", "id")
    quick = True

    def __init__(self, store: MemoryStore, id: str) -> None:
        self._store, self.id = store, id

    def reserve(self) -> None:
        if self.id in self._store.kept:
            raise self._store.exists(self.id)
        self._lock()

    def acquire(self) -> None:
        self.load()
        self._lock()

    def _lock(self) -> None:
        if self.id in self._store.opened:
            raise SessionLockedError(
                f"session {self.id!r} in memory is already open for writing; close it there, or open it with "
                "read_only=True"
            )

    def load(self) -> Kept:
        kept = self._store.kept.get(self.id)
        if kept is None:
            raise self._store.not_found(self.id)
        return kept._replace(events=tuple(kept.events))

    def lines(self) -> Iterator[bytes]:
        return (f"{event.encode()}\n".encode() for event in self.load().events)

    def writer(self, kept: Kept, *, held: bool = False) -> _Slot:
        self._events = list(kept.events)
        self._kept = kept._replace(events=self._events)
        return self

    def remove(self) -> None:
        kept = self._store.kept
        if children := [id for id, other in kept.items() if other.lineage and other.lineage.parent == self.id]:
            raise SessionHasChildrenError(self.id, children)
        del kept[self.id]

    def let_go(self) -> None:
        self._store.opened.pop(self.id, None)

    # As a writer

    def write(self, event: Event, line: str) -> None:
        self._store.kept[self.id] = self._kept
        self._events.append(event)
        self._kept.summary.add(event)

    def barrier(self) -> None:
        pass

    async def flush(self) -> None:
        pass

    async def close(self, *, discard: bool) -> None:
        self.let_go()
