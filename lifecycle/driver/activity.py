"""The activity of an agent: what it does from a wake to the next rest, in a task of the nursery that it works in."""

from __future__ import annotations

import anyio

from lifecycle.services.cancellation import this_task

from .runs import AgentRun
from .walk import Drive, perform_now


class Activity:
    """Takes arrows of the agent's lifecycle from outside, and performs what they wake. One at a time is going on."""

    __slots__ = ("_rested", "_run")

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._rested: anyio.Event | None = None
        """Made only where somebody waits for the rest."""

    @property
    def resting(self) -> bool:
        """Whether nothing is going on."""
        return self._run.drive is None and self._run.phase not in ("maintenance", "maintenance_latched")

    async def wait(self) -> None:
        """Wait until nothing is going on."""
        while not self.resting:
            if self._rested is None:
                self._rested = anyio.Event()
            await self._rested.wait()

    def take(self, event: str) -> None:
        """Take an arrow from outside, and start an activity if it wakes.

        Whoever listens to the arrow's effects may ask for another one. The activity starts when the first one is
        over, so that all listeners hear everything in one order.
        """
        run, outermost = self._run, not self._run.taking
        run.taking = True
        try:
            perform_now(run.program, run, event)
        finally:
            run.taking = not outermost
        if outermost:
            self._pump()

    def _pump(self) -> None:
        """Start an activity if a wake asks for one and none is going on."""
        run = self._run
        if not run.woken or run.drive is not None:
            return
        assert run.tasks is not None
        run.woken = False
        drive = run.drive = Drive(run.program, run)
        try:
            drive.start()
        finally:
            if drive.ended is None:
                run.tasks.start_soon(self.perform, drive)
            else:
                self._end()
            self._pass_on()

    async def perform(self, drive: Drive) -> None:
        """Perform the activity that has begun, unless somebody else does."""
        if drive.live:  # whoever left the context before this task began has done its work
            return
        workers, task = self._run.workers, this_task()
        workers.add(task)
        try:
            await drive.run(scopes=self._run.scopes)
        finally:
            workers.discard(task)
            self._end()
        self._pass_on()

    def _pass_on(self) -> None:
        """Raise what a listener has raised to end the process, now that what is owed is performed, or will be."""
        escaped, self._run.escaped = self._run.escaped, None
        if escaped is not None:
            raise escaped

    def _end(self) -> None:
        run = self._run
        run.drive = None
        run.woken = False
        self.rest()

    def rest(self) -> None:
        """Tell who waits, if nothing is going on any more."""
        if self._run.drive is None:
            self._run.disposing = self._run.leaving
            self._run.unwatch()
            if self._rested is not None:
                self._rested.set()
                self._rested = None

    def watch(self) -> None:
        """Have it told if the turn that was just cancelled outlasts its grace period. The watch ends with the turn."""
        run = self._run
        if run.watch is None and run.drive is not None and run.signal.fired and run.tasks is not None:
            run.watch = anyio.CancelScope(shield=True)
            run.tasks.start_soon(self._outlast, run.watch)

    async def _outlast(self, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(self._run.options.grace_seconds)
            self.take("outlast")
