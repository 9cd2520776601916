"""The session: an append-only log of typed events, and the folds that it keeps of them.

An append is checked, encoded, offered to the vetoes, committed, folded, announced. It is synchronous and costs the
same whether it is the first or the millionth. Where the lines go is the business of the session's writer, if it has
one; this module knows nothing of files, and of time only what its clock says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from lifecycle.errors import (
    NotJsonError,
    ReentrantAppendError,
    SessionClosedError,
    SessionError,
)
from lifecycle.vocabulary.events import (
    Event,
    EventData,
    InboxSpliced,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCallEvent,
    TurnEnd,
    TurnStart,
    event_of,
)
from lifecycle.vocabulary.requests import Header

from .adopting import adopt, encoded, seed
from .fork import Lineage, cut
from .ids import fresh_id
from .inbox import Inbox
from .loading import without_collections
from .reading import LONGEST_LINE, is_too_long
from .repair import repair
from .surface import AnyMessage, Surface
from .view import View

if TYPE_CHECKING:
    from .writing import Writer

_PLAIN = frozenset({StepStart, StepEnd, ToolCallEvent})
"""The most frequent records of which nothing is kept but themselves."""
_logger = logging.getLogger("lifecycle")
_Callbacks: TypeAlias = "tuple[tuple[Callable[[Event], object]], ...]"
"""Each in a tuple of its own, so that one function registered twice is removed once at a time."""


class Session:
    """One session. Made by `Session.memory()`, `Session.seeded()`, or a store's `create`, `open` and `fork`.

    `async with` closes it at the end.
    """

    __slots__ = (
        "_appending",
        "_closed",
        "_context",
        "_deferred",
        "_events",
        "_header",
        "_last_turn",
        "_observers",
        "_occupant",
        "_open_turn",
        "_vetoes",
        "_view",
        "_writer",
        "clock",
        "id",
        "inbox",
        "lineage",
        "read_only",
        "surface",
    )

    def __init__(
        self,
        id: str | None = None,
        *,
        lineage: Lineage | None = None,
        writer: Writer | None = None,
        read_only: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """For stores. `clock` gives the time in epoch milliseconds."""
        self.id = fresh_id(id)
        self.lineage = lineage
        self.read_only = read_only
        self.clock: Callable[[], int] = epoch_ms if clock is None else clock
        self.surface = Surface()
        self.inbox = Inbox(self.append)
        self._writer = writer
        self._events: list[Event] = []
        self._view = View(self._events)
        self._observers: _Callbacks = ()
        self._vetoes: _Callbacks = ()
        self._deferred: tuple[Callable[[], object], ...] = ()
        self._appending: Event | None = None
        self._last_turn = 0
        self._open_turn: int | None = None
        self._header: Header | None = None
        self._context: RequestContext | None = None
        self._closed = False
        self._occupant: object = None

    @classmethod
    def memory(cls, id: str | None = None, *, clock: Callable[[], int] | None = None) -> Session:
        """A session that no store keeps. Raises SessionError for an id that cannot be one."""
        return cls(id, clock=clock)

    @classmethod
    def restored(
        cls,
        events: Iterable[Event],
        id: str,
        *,
        lineage: Lineage | None = None,
        writer: Writer | None = None,
        read_only: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> Session:
        """For stores: a session that goes on where `events`, which the writer has kept already, end.

        Raises:
            SessionFormatError: if they are no log; it says which event is wrong and why.
        """
        session = cls(id, lineage=lineage, writer=writer, read_only=read_only, clock=clock)
        with without_collections():
            adopt(session, events, session._commit)
        return session

    @classmethod
    def seeded(
        cls,
        events: Iterable[Event],
        id: str | None = None,
        *,
        lineage: Lineage | None = None,
        writer: Writer | None = None,
        clock: Callable[[], int] | None = None,
    ) -> Session:
        """A new session that adopts `events`, closed by one `session/end-seed` unless they end with it (RSM-01).

        Raises:
            SessionFormatError: if they are no log.
            NotJsonError: if one of them cannot be written.
        """
        session = cls(id, lineage=lineage, writer=writer, clock=clock)
        seed(session, events, session._commit, writer)
        return session

    def __repr__(self) -> str:
        return f"<Session {self.id!r} with {len(self._events)} events>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Reading

    @property
    def events(self) -> Sequence[Event]:
        """All events so far. A live view: it grows with the log."""
        return self._view

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets."""
        return len(self._events)

    @property
    def last_turn(self) -> int:
        """The number of the newest turn; 0 before the first."""
        return self._last_turn

    @property
    def open_turn(self) -> int | None:
        """The turn that has started and not ended, if any: it runs, or a crash has left it."""
        return self._open_turn

    @property
    def header(self) -> Header | None:
        """The newest `request/header`."""
        return self._header

    @property
    def context(self) -> RequestContext | None:
        """The newest `request/context`."""
        return self._context

    @property
    def appending(self) -> Event | None:
        """The event that is being appended right now, as vetoes and observers see it."""
        return self._appending

    @property
    def kept(self) -> bool:
        """Whether a store keeps it."""
        return self._writer is not None

    @property
    def closed(self) -> bool:
        return self._closed

    def derive_messages(self) -> Sequence[AnyMessage]:
        """The conversation as of now; never to change. Constant time, except after a replacement (LOG-06)."""
        return self.surface.messages()

    # Appending

    def append(
        self,
        data: EventData,
        *,
        surface: SurfaceOp | None = None,
        sources: Iterable[int] | None = None,
        ignorable: bool = False,
        proven: bool = False,
    ) -> Event:
        """Append one event and return it.

        Args:
            data: What happened.
            surface: What a message-bearing event does to the surface; None for all others.
            sources: The seqs of earlier events that this one is made from; a replacement cites all that it replaces.
            ignorable: Whether a reader that does not know the type may skip the event.
            proven: The caller vouches that it can be written without loss, because all of it was checked where it
                came in. Where nobody keeps lines it is then not encoded at all.

        Raises:
            ReentrantAppendError: from inside an observer or a veto of another append.
            SurfaceError: if a rule of the surface forbids it.
            DuplicateMessageError: if it inserts a message into the inbox that waits there already.
            NotJsonError: if it cannot be written without loss, or is longer than 256 MiB.
            SessionClosedError: if the session is closed or was opened for reading.
            Exception: whatever a veto raises. In all these cases nothing was appended.
        """
        if self._appending is not None:
            raise ReentrantAppendError(data.type, self._appending.type)
        if self._closed or self.read_only:
            raise self._not_writable(data)
        plain = surface is None and sources is None and type(data) in _PLAIN
        cited = None if sources is None else tuple(sources)
        event = event_of((len(self._events), self.clock(), data, surface, cited, ignorable))
        splice: InboxSpliced | None = None
        if not plain:
            if surface is not None or cited is not None or data.on_surface:
                self.surface.check(event)
            if type(data) is InboxSpliced:
                splice = data
                self.inbox.check(splice)
        line = ""
        if (self._writer is not None or not proven) and is_too_long(line := encoded(event)):
            raise NotJsonError(data.type, "", f"is longer than {LONGEST_LINE >> 20} MiB, which no store is to keep")
        self._appending = event
        try:
            for (veto,) in self._vetoes:
                veto(event)
            if plain:
                self._events.append(event)
            else:
                self._commit(event)
            if self._writer is not None:
                self._writer.write(event, line)
            try:
                for (observer,) in self._observers:
                    try:
                        observer(event)
                    except Exception:
                        _logger.exception(
                            "an observer of event %d (%s) of session %r failed", event.seq, event.type, self.id
                        )
            finally:  # a cancellation that passes through an observer must not leave the projection behind the log
                if splice is not None:
                    self.inbox.apply(splice)
        finally:
            self._appending = None
            if self._deferred:
                self._run_deferred()
        return event

    def _not_writable(self, data: EventData) -> SessionClosedError:
        why = "is closed" if self._closed else "was opened for reading only; open it without read_only"
        return SessionClosedError(f"cannot append {data.type!r}: session {self.id!r} {why}")

    def _commit(self, event: Event) -> None:
        self._events.append(event)
        if event.surface is not None:
            self.surface.apply(event)
            return
        match event.data:
            case TurnStart(turn=turn):
                self._last_turn = self._open_turn = turn
            case TurnEnd():
                self._open_turn = None
            case RequestHeader(header=header):
                self._header = header
            case RequestContext():
                self._context = event.data
            case _:
                pass

    def observe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Call `callback` after each commit, in the order of registration; returns what ends that.

        It sees the event in the log already, and may not append. What it raises is logged and contained.
        """
        entry = (callback,)
        self._observers = (*self._observers, entry)
        return partial(self._remove, entry)

    def veto(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Call `callback` before each commit; if it raises, `append` raises that and nothing happens."""
        entry = (callback,)
        self._vetoes = (*self._vetoes, entry)
        return partial(self._remove, entry)

    def _remove(self, entry: tuple[Callable[[Event], object]]) -> None:
        """For what `observe` and `veto` return."""
        self._observers = tuple(known for known in self._observers if known is not entry)
        self._vetoes = tuple(known for known in self._vetoes if known is not entry)

    def occupy(self, occupant: object) -> None:
        """For agents: have the session to oneself. Two that write turns in one log would make it no log.

        Raises:
            SessionError: if somebody else has it.
        """
        if self._occupant not in (None, occupant):
            raise SessionError(
                f"session {self.id!r} is in use by {self._occupant!r}; leave that one first, or work on a fork() of it"
            )
        self._occupant = occupant

    def vacate(self, occupant: object) -> None:
        """Give back what `occupy` took. Does nothing for those who do not have it."""
        if self._occupant is occupant:
            self._occupant = None

    def after_append(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, as soon as the append that runs now is over; at once if none does (CAN-12).

        It may append. What it raises after an append is logged and contained.
        """
        if self._appending is None:
            callback()
        else:
            self._deferred = (*self._deferred, callback)

    def _run_deferred(self) -> None:
        # Taken as a batch: an append within one of them runs what was deferred during it, and not the others of these.
        batch, self._deferred = self._deferred, ()
        for callback in batch:
            try:
                callback()
            except Exception:
                _logger.exception("what was to follow an append to session %r failed", self.id)

    # Forking and keeping

    def fork(self, turn: int | None = None, step: int | None = None, *, id: str | None = None) -> Session:
        """A new memory session with the events up to the end of `turn` (by default the newest that ended).

        With `step`, up to the end of that step; the turn is then closed as interrupted in the new session. Pending
        input is not inherited. To keep a fork, use the store's `fork`.

        Raises:
            ForkError: if the log holds no such end; it names the ends there are.
        """
        events, prefix = cut(self._events, turn, step, self.id, self.clock())
        return Session.seeded(events, id, lineage=Lineage(self.id, prefix), clock=self.clock)

    def repair(self) -> Sequence[Event]:
        """Close what a lost process has left open, as `interrupted`, and return what was appended for it (RSM-03).

        Calls without a result get one that says whether they had started, and that what came of them is unknown; input
        that was claimed and never used waits again. A log at rest is left as it is. An agent does this by itself when
        it is entered, and then also asks tools that can say what came of their calls.

        Raises:
            SessionError: if somebody works on the session: then its turn is not lost, but goes on (RSM-04).
        """
        if self._occupant is not None:
            raise SessionError(
                f"session {self.id!r} is in use by {self._occupant!r}; repair is for what is left behind"
            )
        return repair(self)

    def barrier(self) -> Coroutine[Any, Any, None] | None:
        """Before something happens outside that the log tells of: have the store keep it first (PST-03).

        Returns None if nothing is to be awaited. How well it is kept then is the store's `durability`.

        Raises:
            StoreError: at once, or when it is awaited: it cannot be kept, so what was to follow must not happen.
        """
        return None if self._writer is None else self._writer.barrier()

    async def flush(self) -> None:
        """Return once the store has kept every event so far.

        Raises:
            StoreError: if it cannot; nothing is lost, and another flush tries again.
        """
        if self._writer is not None:
            await self._writer.flush()

    async def close(self, *, discard: bool = False) -> None:
        """Flush, and let other writers have the session. Closing it twice does nothing.

        With `discard`, close even if events cannot be kept; they are lost then.

        Raises:
            StoreError: if events cannot be kept. The session stays open; close it again, or with `discard`.
        """
        if not self._closed:
            if self._writer is not None:
                await self._writer.close(discard=discard)
            self._closed = True


def epoch_ms() -> int:
    """The time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
