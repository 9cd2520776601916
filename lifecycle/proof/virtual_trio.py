"""Virtual time and a chosen order on trio: the one module that leans on how its scheduler works inside.

It leans on, in `trio._core._run`: `_r` is asked once a round, by `shuffle` if `_ALLOW_DETERMINISTIC_SCHEDULING` and by
`random` if not, where less than 0.5 makes a batch first in, first out; `Runner.runq` holds who can run and
`Runner.deadlines` who waits for a moment. A test notices if that changes. Both names are global: runs in two threads at
once would disturb each other. Work for threads is done on the spot; real input and output is refused, but for that by
which trio wakes itself up.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

import trio
import trio.testing
from anyio._backends._trio import TrioBackend
from trio import _path
from trio._core import _run

from lifecycle.errors import SimulationError

from .choices import Choices
from .virtual_threads import inline_threads, real, run_inline

_MOST_TRIES = 100
"""How often a task may go on waiting while it is closed."""
MOST_ROUNDS = 20_000
"""Rounds in a row in which something could run; more than that is a task that turns on the spot."""


class VirtualClock(trio.abc.Clock):
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watched = True
        """Somebody finds something to do once nothing else can run: the simulation, or trio itself at the end."""

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if deadline <= self.now:
            return 0
        if not self.watched:  # trio would wait for ever
            raise SimulationError("every task waits for another one, or for something outside of the simulation")
        return inf


class _Deadlines(_run.Deadlines):
    """Deadlines that expire only when the simulation says so, one at a time, in the order in which they were set.

    One that has passed when it is set expires at once, as ever.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._after, self._before = count(), count(-1, -1)
        self.due = False

    def add(self, deadline: float, cancel_scope: trio.CancelScope) -> None:
        past = deadline <= self._clock.now
        self.due = self.due or past
        heappush(self._heap, (deadline, next(self._before if past else self._after), cancel_scope))
        self._active += 1

    def next_deadline(self) -> float:
        return super().next_deadline() if self.due else inf

    def coming(self) -> float:
        return super().next_deadline()

    def expire(self, now: float) -> bool:
        if not self.due or self.coming() > now:
            self.due = False
            return False
        first = heappop(self._heap)
        rest, self._heap = self._heap, [first]
        try:
            return super().expire(now)
        finally:
            self._heap, left = rest, self._heap
            for entry in left:
                heappush(rest, entry)
            self.due = bool(rest) and rest[0][1] < 0 and rest[0][0] <= now


class _Order:
    """Stands where trio asks for chance."""

    def __init__(self, order: Choices | None) -> None:
        self._order = order
        self._held: list[Any] = []
        self.rounds = 0

    def random(self) -> float:
        self._turn()
        return 0.0

    def shuffle(self, batch: list[Any]) -> None:
        """Leave one task in the batch; the others stay able to run."""
        self._turn()
        assert self._order is not None
        known = set(self._held)
        self._held += [task for task in batch if task not in known]
        if self._held:
            chosen = self._held.pop(self._order.pick(len(self._held)))
            _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(self._held)
            batch[:] = [chosen]

    def _turn(self) -> None:
        self.rounds += 1
        if self.rounds > MOST_ROUNDS:
            raise SimulationError("a task turns on the spot: it runs again and again, and never waits")


class _NoInput:
    """Stands in front of what waits for sockets and pipes."""

    def __init__(self, runner: Any) -> None:
        self._inner, self._waker = runner.io_manager, runner.entry_queue.wakeup.wakeup_sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def wait_readable(self, fd: Any) -> None:
        if fd is not self._waker:
            raise real("wait_readable")
        await self._inner.wait_readable(fd)

    async def wait_writable(self, fd: Any) -> None:
        raise real("wait_writable")


class VirtualTrio:
    """What the simulation asks of a run under trio, from inside of it."""

    def __init__(self, clock: VirtualClock, order: _Order) -> None:
        self._clock, self._order = clock, order
        self._deadlines = _Deadlines(clock)
        self._runner: Any = None

    def begin(self) -> None:
        """To be called once, by the first task of the run, before it waits for anything."""
        runner: Any = _run.GLOBAL_RUN_CONTEXT.runner
        self._runner = runner
        runner.deadlines, runner.io_manager = self._deadlines, _NoInput(runner)
        self._clock.watched = False

    async def settled(self) -> None:
        """Wait until nothing else can run."""
        self._clock.watched = True
        try:
            await trio.testing.wait_all_tasks_blocked()
        finally:
            self._clock.watched = False
        self._order.rounds = 0

    def end(self) -> None:
        """To be called by the first task of the run, last."""
        self._clock.watched = True

    def abandon(self) -> None:
        """Close what a run that broke off has left: nobody awaits it any more, and it would complain when collected."""
        tasks = [] if self._runner is None else [*self._runner.tasks]
        nurseries = [nursery for task in tasks for nursery in (*task.child_nurseries, task.parent_nursery) if nursery]
        usual, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for task in tasks:
                for _ in range(_MOST_TRIES):
                    with suppress(BaseException):  # what it does about that cannot work outside of a run
                        task.coro.close()
                        break
            for nursery in nurseries:
                nursery._children.clear()
            tasks.clear()
            gc.collect()
        finally:
            sys.unraisablehook = usual

    def next_deadline(self) -> float:
        """When the next timer ends; infinity if there is none."""
        return self._deadlines.coming()

    def advance(self) -> None:
        """Let time pass up to the next timer, and end that one; timers of one moment in the order of their start."""
        self._clock.now = max(self._clock.now, self._deadlines.coming())
        self._deadlines.due = True


@contextmanager
def virtual_trio(order: Choices | None) -> Generator[tuple[VirtualTrio, VirtualClock]]:
    """What a run within the block needs: its clockwork, and the clock to run it with."""
    chance = _Order(order)
    before = _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING
    clock = VirtualClock()
    module: Any = _run
    with inline_threads(TrioBackend, lambda: _is_virtual(clock)), _trios_own_inline(clock):
        module._r, module._ALLOW_DETERMINISTIC_SCHEDULING = chance, order is not None
        clockwork = VirtualTrio(clock, chance)
        try:
            yield clockwork, clock
        except BaseException:
            clockwork.abandon()
            raise
        finally:
            module._r, module._ALLOW_DETERMINISTIC_SCHEDULING = before


def _ignore(_: object) -> None:
    pass


def _is_virtual(clock: VirtualClock) -> bool:
    return trio.lowlevel.current_clock() is clock


@contextmanager
def _trios_own_inline(clock: VirtualClock) -> Generator[None]:
    """As `inline_threads`, for those who ask trio itself."""
    places: tuple[Any, ...] = (trio.to_thread, _path)
    usual = trio.to_thread.run_sync

    async def run_sync(
        sync_fn: Callable[..., Any],
        *args: Any,
        thread_name: str | None = None,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> Any:
        if _is_virtual(clock):
            return await run_inline(sync_fn, args, abandon_on_cancel)
        named: dict[str, Any] = {"thread_name": thread_name, "abandon_on_cancel": abandon_on_cancel}
        return await usual(sync_fn, *args, limiter=limiter, **named)

    for place in places:
        place.run_sync = run_sync
    try:
        yield
    finally:
        for place in places:
            place.run_sync = usual
