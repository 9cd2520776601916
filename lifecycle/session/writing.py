"""The write side of a session: lines wait here, and go to their store in batches, in order, never with a gap.

Which store that is, its sink knows. A batch is due at the end of a turn, when 64 lines wait, at a barrier and at a
flush. Small ones are kept on the thread of the event loop where the sink is quick (a thread hop costs ten commits of
SQLite), all others in a worker thread; lines that come meanwhile wait behind. Only input under `strict` is kept there,
however large it is: nobody is to hear of it before.

How much may be lost, `durability` says. Whatever is *written* survives the end of the process, however it ends;
what is *synced* survives the loss of power too.

    strict   Written and synced at every barrier; input also before `followup()` returns. A crash loses what came after
             the last barrier, which is the stream that was open; loss of power loses no more.
    turn     The default. Written at every barrier; the sync begins with the end of a turn, and a flush waits for it.
             A crash loses what came after the last barrier, input too; loss of power may lose the turn that was open,
             or that has just ended, from some event on.
    none     Written at the end of a turn, when 64 lines wait, and at a flush; never synced. A crash may lose the turn
             that was open, and with it the record of what its tools have done; loss of power some turns before.

A barrier stands before each proposal of a step, each request and each tool's body (PST-03). What cannot be kept waits;
that is logged once, and fails the next barrier and every flush until it is kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread

from lifecycle.errors import SessionFormatError, SessionLockedError, StoreBusyError, StoreError
from lifecycle.vocabulary.events import Event, InboxSpliced, TurnEnd

from .store import Summary

Durability: TypeAlias = Literal["strict", "turn", "none"]

_logger = logging.getLogger("lifecycle")
_BATCH = 64
_LARGE = 1_000_000
"""What waits and has more characters than this is kept in a worker thread."""
_REFUSALS = (StoreError, SessionFormatError, SessionLockedError)


class Writer(Protocol):
    """What a store gives a session: it takes lines at once and keeps them soon."""

    def write(self, event: Event, line: str) -> None:
        """Take the line of a committed event. Never raises and never waits for long."""
        ...

    def barrier(self) -> Coroutine[Any, Any, None] | None:
        """Have all lines kept as well as is promised before something happens that the log should know of.

        Returns None if that is done, else what is to be awaited. Either raises StoreError; the lines are still queued.
        """
        ...

    async def flush(self) -> None:
        """Return once all lines are kept. Raises StoreError; the lines are then still queued."""
        ...

    async def close(self, *, discard: bool) -> None:
        """Flush and let go of the session. With `discard`, let go even of lines that cannot be kept."""
        ...


class Sink(Protocol):
    """Where the lines of one session are kept. Called from any thread, but by one at a time."""

    @property
    def quick(self) -> bool:
        """Whether to keep a small batch takes less time than to ask a thread."""
        ...

    def keep(self, lines: Sequence[str], first: int, summary: Summary, *, here: bool) -> None:
        """Write lines, which begin at seq `first`: all of them or none.

        If it raised, some may be there all the same (nobody knows how a commit ended whose answer was lost); they are
        told again, and left out then. `here` is the thread of the event loop, where nothing may take long.

        Raises:
            StoreBusyError: if it would take long here.
            StoreError: if they cannot be kept.
        """
        ...

    def sync(self) -> None:
        """Return once all that was written survives a loss of power. Raises StoreError."""
        ...

    def let_go(self) -> None:
        """The session was closed."""
        ...


class Hands:
    """The thread in which a store does what nobody waits for."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def do(self, job: Callable[[], None]) -> None:
        """Have `job` done soon, after those that came before it. It may not raise."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="lifecycle-store")
        self._pool.submit(job)

    def close(self) -> None:
        """Wait for all jobs."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def check_durability(given: Durability) -> Durability:
    """`given`, if there is such a durability. Raises StoreError."""
    if given not in ("strict", "turn", "none"):
        raise StoreError(f"there is no durability {given!r}; it is 'strict', 'turn' or 'none'")
    return given


class BatchWriter:
    """The lines of one session that wait for its store.

    Args:
        held: Whether nothing is kept before the first flush: a fork is kept whole or not at all.
    """

    __slots__ = (
        "_broken",
        "_closed",
        "_due",
        "_durability",
        "_elsewhere",
        "_failing",
        "_hands",
        "_held",
        "_id",
        "_keeping",
        "_queued",
        "_sink",
        "_size",
        "_stored",
        "_summary",
        "_synced",
        "_waiting",
    )

    def __init__(
        self,
        sink: Sink,
        id: str,
        summary: Summary,
        stored: int,
        *,
        hands: Hands,
        durability: Durability,
        held: bool = False,
    ) -> None:
        self._sink, self._id, self._summary = sink, id, summary
        self._hands, self._durability = hands, durability
        self._stored = self._synced = stored
        self._held = held
        self._waiting: list[str] = []
        self._size = 0
        self._due = _BATCH
        self._failing = self._queued = self._closed = False
        self._broken: StoreError | None = None
        """A sync that failed: the system forgets what it could not write, so that no later one proves anything."""
        self._keeping = threading.Lock()
        """One batch is kept at a time, in whatever thread."""
        self._elsewhere: anyio.Event | None = None
        """Set when the worker thread that a flush waits for is done."""

    def write(self, event: Event, line: str) -> None:
        self._summary.add(event)
        self._waiting.append(line)
        self._size += len(line)
        data = event.data
        if self._held:
            return
        if isinstance(data, TurnEnd):
            self._keep_soon(sync=self._durability != "none")
        elif self._durability == "strict" and isinstance(data, InboxSpliced) and data.inserted:
            self._keep_now()
        elif len(self._waiting) >= self._due:
            self._keep_soon(sync=False)

    # -- without waiting -----------------------------------------------------------------------------------------

    def _keep_soon(self, *, sync: bool) -> None:
        """Keep what waits: at once where that is quick, in the store's thread where it is not. Syncs are never."""
        if self._quick():
            self._quietly(self._drain, True)
            if sync:
                self._hands.do(self._sync_quietly)
        elif not self._queued and self._elsewhere is None:  # else whoever waits for that thread keeps these, too
            self._queued = True
            self._hands.do(self._drain_in_background)

    def _quick(self) -> bool:
        """Whether what waits may be kept on the thread of the event loop."""
        return self._sink.quick and self._elsewhere is None and self._size <= _LARGE

    def _keep_now(self) -> None:
        """Input came in: it is kept and synced before anybody hears of it."""
        try:
            self._drain(self._sink.quick)
        except _REFUSALS:  # a thread has more patience; it also says what is wrong
            self._quietly(self._drain, False)
        self._quietly(self._sync)

    def _drain_in_background(self) -> None:
        self._queued = False
        self._quietly(self._drain, False)
        if self._durability != "none":
            self._sync_quietly()

    def _sync_quietly(self) -> None:
        self._quietly(self._sync)

    def _quietly(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except _REFUSALS as failed:
            self._due = len(self._waiting) + _BATCH  # not again at every line
            if not self._failing:
                self._failing = True
                _logger.warning("session %r: %s (its events wait in memory; a flush tries again)", self._id, failed)

    # -- the work, on any thread ---------------------------------------------------------------------------------

    def _drain(self, here: bool) -> None:
        """Keep what waits now."""
        if not self._keeping.acquire(blocking=not here):
            raise StoreBusyError(f"session {self._id!r} is being kept by another thread")
        try:
            batch, first = self._waiting[:], self._stored  # others only append meanwhile
            if batch:
                self._sink.keep(batch, first, self._summary, here=here)
                del self._waiting[: len(batch)]
                self._stored += len(batch)
                self._size = sum(map(len, self._waiting)) if self._waiting else 0
                self._due = _BATCH
                self._failing = self._held = False
        finally:
            self._keeping.release()

    def _sync(self) -> None:
        """Have all that was written survive a loss of power."""
        if self._broken is not None:
            raise self._broken
        written = self._stored
        if self._synced < written:
            try:
                self._sink.sync()
            except StoreError as failed:
                self._broken = failed
                raise
            self._synced = max(self._synced, written)

    # -- waiting -------------------------------------------------------------------------------------------------

    def barrier(self) -> Coroutine[Any, Any, None] | None:
        if self._durability == "none":
            return None
        if self._durability == "strict":
            return self.flush() if self._waiting or self._synced < self._stored or self._broken else None
        if not self._waiting:
            return None
        if self._quick():
            try:
                self._drain(True)
            except StoreBusyError:
                pass
            else:
                return None
        return self._written()

    async def _written(self) -> None:
        """Return once nothing waits."""
        while self._waiting or self._elsewhere is not None:
            if self._elsewhere is not None:
                await self._elsewhere.wait()
            elif self._size > _LARGE or not self._sink.quick:
                await self._in_a_thread()
            else:
                try:
                    self._drain(True)
                except StoreBusyError:
                    await self._in_a_thread()

    async def _in_a_thread(self) -> None:
        self._elsewhere = anyio.Event()
        try:
            await anyio.to_thread.run_sync(self._drain, False)
        finally:
            self._elsewhere.set()
            self._elsewhere = None

    async def flush(self) -> None:
        await self._written()
        if self._durability != "none" and (self._synced < self._stored or self._broken):
            await anyio.to_thread.run_sync(self._sync)

    async def close(self, *, discard: bool) -> None:
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self.flush()
            except _REFUSALS as failed:
                if not discard:
                    raise
                _logger.warning("session %r: %s (%d events are lost)", self._id, failed, len(self._waiting))
        if not self._closed:  # two tasks may have waited for the same flush
            self._closed = True
            if self._sink.quick:
                self._sink.let_go()
            else:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._sink.let_go)
