"""A store that lives as long as its process. It keeps what it is given at once, so `flush` has nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from lifecycle.errors import (
    SessionExistsError,
    SessionHasChildrenError,
    SessionLockedError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.vocabulary.events import Event
from lifecycle.vocabulary.messages import new_id

from .fork import Lineage, cut
from .ids import check_id
from .log import Session, epoch_ms
from .store import SessionInfo, Summary, page


@dataclass(slots=True)
class _Kept:
    summary: Summary
    lineage: Lineage | None
    events: list[Event] = field(default_factory=lambda: [])


class _Writer:
    """Keeps the events of one session."""

    __slots__ = ("_id", "_kept", "_store")

    def __init__(self, store: MemoryStore, id: str, kept: _Kept) -> None:
        self._store = store
        self._id = id
        self._kept = kept

    def write(self, event: Event, line: str) -> None:
        if not self._kept.events:
            self._store.kept[self._id] = self._kept
        self._kept.events.append(event)
        self._kept.summary.add(event)

    def barrier(self) -> None:
        pass

    async def flush(self) -> None:
        pass

    async def close(self, *, discard: bool) -> None:
        self._store.opened.pop(self._id, None)


class MemoryStore:
    """Keeps sessions in memory. `async with` closes it at the end."""

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        self._clock = epoch_ms if clock is None else clock
        self._closed = False
        self.kept: dict[str, _Kept] = {}
        self.opened: dict[str, Session] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        id = self._free(id)
        lineage = None if parent is None else Lineage(parent)
        writer = _Writer(self, id, _Kept(Summary(self._clock()), lineage))
        return self._opened(Session(id, lineage=lineage, writer=writer, clock=self._clock))

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        kept = self._find(id)
        if not read_only:
            self._lock(id)
        session = Session.restored(
            tuple(kept.events),
            id,
            lineage=kept.lineage,
            writer=None if read_only else _Writer(self, id, kept),
            read_only=read_only,
            clock=self._clock,
        )
        return session if read_only else self._opened(session)

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        infos = [
            SessionInfo(
                id,
                kept.summary.created_at,
                kept.summary.updated_at,
                len(kept.events),
                kept.summary.turns,
                kept.summary.title,
                kept.lineage,
                id in self.opened,
            )
            for id, kept in self.kept.items()
        ]
        return page(infos, limit, offset)

    async def delete(self, id: str) -> None:
        self._find(id)
        self._lock(id)
        children = [
            child for child, kept in self.kept.items() if kept.lineage is not None and kept.lineage.parent == id
        ]
        if children:
            raise SessionHasChildrenError(id, children)
        del self.kept[id]

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        source = self._find(id)
        child = self._free(new_id)
        events, prefix = cut(source.events, turn, step, id, self._clock())
        lineage = Lineage(id, prefix)
        writer = _Writer(self, child, _Kept(Summary(self._clock()), lineage))
        return self._opened(Session.seeded(events, child, lineage=lineage, writer=writer, clock=self._clock))

    async def close(self) -> None:
        self._closed = True
        for session in tuple(self.opened.values()):
            await session.close()

    def _opened(self, session: Session) -> Session:
        self.opened[session.id] = session
        return session

    def _find(self, id: str) -> _Kept:
        self._check_open()
        kept = self.kept.get(check_id(id))
        if kept is None:
            raise SessionNotFoundError(f"there is no session {id!r} in memory")
        return kept

    def _free(self, id: str | None) -> str:
        """The id of a session that is to be made."""
        self._check_open()
        id = new_id() if id is None else check_id(id)
        if id in self.kept:
            raise SessionExistsError(f"there is a session {id!r} in memory already; open it, or choose another id")
        self._lock(id)
        return id

    def _lock(self, id: str) -> None:
        if id in self.opened:
            raise SessionLockedError(
                f"session {id!r} in memory is already open for writing; close it there, or open it with read_only=True"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")
