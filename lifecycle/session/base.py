"""What every store does alike: it makes, opens, forks, deletes and closes sessions, over a few verbs of its own.

A store says which slot an id has (`_slot`), lists what is kept (`_infos`), and may get ready before it writes
(`_ready`) and let go of things in the end (`_shut`). A slot is where one session is kept, or is to be: somebody becomes
its writer, and it is read, written, emptied and let go of. Nothing else is known here of where that is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

import anyio
import anyio.to_thread

from lifecycle.errors import (
    SessionError,
    SessionExistsError,
    SessionFormatError,
    SessionLockedError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.vocabulary.events import Event

from .fork import Lineage, cut
from .ids import check_id, fresh_id
from .log import Session, epoch_ms
from .store import SessionInfo, Summary
from .writing import BatchWriter, Durability, Hands, Sink, Writer, check_durability

T = TypeVar("T")


class Kept(NamedTuple):
    """What is kept of one session."""

    lineage: Lineage | None
    summary: Summary
    events: Sequence[Event]


class Slot(Protocol):
    """Where one session is kept, or is to be. Called from any thread, but by one at a time."""

    id: str

    @property
    def quick(self) -> bool:
        """Whether to reserve, acquire and let go of it takes less time than to ask a thread."""
        ...

    def reserve(self) -> None:
        """Become the writer of a new session. Raises SessionExistsError, SessionLockedError and StoreError."""
        ...

    def acquire(self) -> None:
        """Become the writer of the session. Raises SessionNotFoundError, SessionLockedError and StoreError."""
        ...

    def load(self) -> Kept:
        """Read the session. Raises SessionNotFoundError, SessionFormatError and StoreError."""
        ...

    def lines(self) -> Iterator[bytes]:
        """The lines of the session as they are kept, whatever they say. Raises as `load`, where it cannot go on."""
        ...

    def writer(self, kept: Kept, *, held: bool = False) -> Writer:
        """For who reserved or acquired it: what goes on behind `kept`; with `held`, not before it is flushed."""
        ...

    def remove(self) -> None:
        """For who acquired it: forget the session. Raises SessionHasChildrenError and StoreError."""
        ...

    def let_go(self) -> None:
        """Let others become the writer. Never raises."""
        ...


class StoreBase:
    """The store protocol over slots. `async with` closes the store at the end.

    Args:
        where: Names the store in errors.
        durability: See `lifecycle.session.writing`.
        clock: Gives the time in epoch milliseconds.
    """

    def __init__(self, where: str, *, durability: Durability, clock: Callable[[], int] | None) -> None:
        self.where = where
        self.durability: Durability = check_durability(durability)
        self.hands = Hands()
        self.opened: dict[str, Session] = {}
        """The sessions that are open for writing."""
        self._clock = epoch_ms if clock is None else clock
        self._closed = False
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.where}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What each store does its own way

    def _slot(self, id: str) -> Slot:
        """Where the session `id` is kept, or is to be."""
        raise NotImplementedError

    def _infos(self, limit: int | None, offset: int) -> Sequence[SessionInfo]:
        """What `list` returns. Runs in a worker thread."""
        raise NotImplementedError

    async def _ready(self, *, make: bool) -> None:
        """Be ready to reserve a slot, with `make`, or to acquire one."""

    async def _shut(self) -> None:
        """Let go of everything: all sessions are closed."""

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        """Do what may take long."""
        return await anyio.to_thread.run_sync(work, *arguments)

    # The protocol

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        slot = self._slot(fresh_id(id))
        await self._reserve(slot)
        new = Kept(None if parent is None else Lineage(parent), Summary(self._clock()), ())
        return self._add(Session(slot.id, lineage=new.lineage, writer=slot.writer(new), clock=self._clock))

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        slot = self._slot(check_id(id))
        if read_only:
            self._check()
            kept = await self._run(slot.load)
            return Session.restored(kept.events, id, lineage=kept.lineage, read_only=True, clock=self._clock)
        await self._acquire(slot)
        try:
            kept = await self._run(slot.load)
            writer = slot.writer(kept)
            return self._add(Session.restored(kept.events, id, lineage=kept.lineage, writer=writer, clock=self._clock))
        except BaseException:
            await self._let_go(slot)
            raise

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        self._check()
        return await self._run(self._infos, limit, offset)

    async def delete(self, id: str) -> None:
        slot = self._slot(check_id(id))
        await self._acquire(slot)
        try:
            await self._run(slot.remove)
        finally:
            await self._let_go(slot)

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        source, slot = self._slot(check_id(id)), self._slot(fresh_id(new_id))
        self._check()
        if id in self.opened:
            await self.opened[id].flush()
        kept = await self._run(source.load)
        await self._reserve(slot)
        try:
            events, prefix = cut(kept.events, turn, step, id, self._clock())
            new = Kept(Lineage(id, prefix), Summary(self._clock()), ())
            writer = slot.writer(new, held=True)
            session = Session.seeded(events, slot.id, lineage=new.lineage, writer=writer, clock=self._clock)
            await session.flush()
        except BaseException:
            await self._let_go(slot)
            raise
        return self._add(session)

    async def raw(self, id: str) -> tuple[Sequence[bytes], SessionError | None]:
        """The lines of a session as they are kept, up to where they can be read, and why they cannot be from there on.

        For who looks at a session that is damaged; `open` refuses it as a whole.

        Raises:
            SessionNotFoundError: if there is none.
            SessionFormatError: if not even the first line can be read.
            StoreError: likewise.
        """
        self._check()
        return await self._run(_raw, self._slot(check_id(id)))

    async def close(self) -> None:
        failure: Exception | None = None
        for session in () if self._closed else tuple(self.opened.values()):
            try:
                await session.close()
            except (StoreError, SessionFormatError, SessionLockedError) as failed:
                failure = failure or failed
                await session.close(discard=True)
        self._closed = True
        self.hands.close()
        with anyio.CancelScope(shield=True):
            await self._shut()
        if failure is not None:
            raise failure

    # For its slots

    def check_process(self) -> None:
        """Raises SessionLockedError in a process forked from the one that made the store: the locks stayed there."""
        if os.getpid() != self._process:
            raise SessionLockedError(
                f"the store {self.where} belongs to process {self._process}, from which this one was forked; "
                "make a store of its own here"
            )

    def batches(self, sink: Sink, id: str, kept: Kept, *, held: bool) -> BatchWriter:
        """What writes to `sink` in batches, as the store's durability says."""
        return BatchWriter(
            sink, id, kept.summary, len(kept.events), hands=self.hands, durability=self.durability, held=held
        )

    def not_found(self, id: str) -> SessionNotFoundError:
        return SessionNotFoundError(f"{self.where} holds no session {id!r}")

    def exists(self, id: str) -> SessionExistsError:
        return SessionExistsError(f"{self.where} holds a session {id!r} already; open it, or choose another id")

    # Within

    def _check(self) -> None:
        self.check_process()
        if self._closed:
            raise StoreError(f"the store {self.where} is closed")

    def _add(self, session: Session) -> Session:
        self.opened[session.id] = session
        return session

    async def _reserve(self, slot: Slot) -> None:
        self._check()
        await self._ready(make=True)
        await self._promptly(slot, slot.reserve)

    async def _acquire(self, slot: Slot) -> None:
        self._check()
        await self._ready(make=False)
        await self._promptly(slot, slot.acquire)

    async def _let_go(self, slot: Slot) -> None:
        with anyio.CancelScope(shield=True):
            await self._promptly(slot, slot.let_go)

    async def _promptly(self, slot: Slot, work: Callable[[], None]) -> None:
        if slot.quick:
            work()
        else:
            await self._run(work)


def _raw(slot: Slot) -> tuple[Sequence[bytes], SessionError | None]:
    lines: list[bytes] = []
    try:
        for line in slot.lines():
            lines.append(line)  # one by one: those before a failure are what is asked for
    except (SessionFormatError, StoreError) as failure:
        if not lines:
            raise
        return lines, failure
    return lines, None
