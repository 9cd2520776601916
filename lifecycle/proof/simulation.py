"""Simulation: runs in virtual time, in which one thing happens at a time and a list of choices says which.

Whatever a run waits for is a *thing* that stands still in `pause` until the schedule releases it, a *timer*, or an
*act* of the outside world. One of them is taken at a time, when nothing else can run: that is a *move*. So the moves
alone decide what happens, and asyncio and trio agree on it. Knows nothing of agents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import anyio

from lifecycle.errors import SimulationError

from .choices import Choices

Backend: TypeAlias = Literal["asyncio", "trio"]

T = TypeVar("T")


class Clockwork(Protocol):
    """What a simulation asks of the event loop below it."""

    async def settled(self) -> None:
        """Wait until nothing else can run."""
        ...

    def next_deadline(self) -> float:
        """When the next timer ends, in virtual seconds; infinity if there is none."""
        ...

    def advance(self) -> None:
        """Let time pass up to the next timer, and end that one."""
        ...


def run_virtually(
    main: Callable[[Clockwork], Awaitable[T]],
    *,
    backend: Backend = "asyncio",
    interleaving: Iterable[int] | None = None,
) -> T:
    """Run `main` to its end on an event loop of its own with virtual time, and return what it returns.

    What is handed to a worker thread runs on the spot. Sockets and processes are refused with a `SimulationError`.

    Args:
        interleaving: Choices of which callback (asyncio) or task (trio) runs next, one at a time, past their end the
            one that has waited longest. Reproducible on each backend, and not equal on both. None leaves the order to
            the loop: first in, first out.

    Raises:
        SimulationError: if it cannot go on; under trio it is the cause of an internal error of trio's.
    """
    order = None if interleaving is None else Choices(interleaving)
    if backend == "asyncio":
        from .virtual_asyncio import VirtualLoop, virtual_asyncio

        loops: list[VirtualLoop] = []

        def make() -> VirtualLoop:
            loops.append(VirtualLoop(order))
            return loops[-1]

        async def on_asyncio() -> T:
            return await main(loops[-1])

        with virtual_asyncio():
            return anyio.run(on_asyncio, backend=backend, backend_options={"loop_factory": make})

    from .virtual_trio import virtual_trio

    with virtual_trio(order) as (clockwork, clock):

        async def on_trio() -> T:
            clockwork.begin()
            try:
                return await main(clockwork)
            finally:
                clockwork.end()

        return anyio.run(on_trio, backend=backend, backend_options={"clock": clock})


def tell_virtually(story: Callable[[], Awaitable[T]], *, backend: Backend = "asyncio") -> T:
    """Run a story in virtual time: whenever nothing else can run, the clock moves on to the next timer.

    Raises:
        SimulationError: if it waits for what never comes.
        Exception: what comes out of the story, in a group.
    """

    async def main(clockwork: Clockwork) -> T:
        told: list[T] = []

        async def tell(scope: anyio.CancelScope) -> None:
            told.append(await story())
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell, tasks.cancel_scope)
            while not told:
                await clockwork.settled()
                if told:
                    break
                if clockwork.next_deadline() == inf:
                    raise SimulationError("the story waits for what never comes: nothing can run, and no timer is set")
                clockwork.advance()
        return told[0]

    return run_virtually(main, backend=backend)


@dataclass(eq=False, slots=True)
class _Thing:
    label: str
    since: int
    released: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, slots=True)
class Act:
    """Something that the outside world does: before the move of this number, or once nothing else is left to do."""

    at: float
    label: str
    perform: Callable[[], object]


class Simulation:
    """The schedule of one run.

    Args:
        choices: Which of the things that wait comes next, one number wherever there are several. They stand in the
            order in which they came, by name where they came in the same move; the next timer is the last of them.
    """

    def __init__(self, choices: Iterable[int] = ()) -> None:
        self.moves: list[str] = []
        """What was released or done, in order, by name."""
        self.spent = 0.0
        """How many moves there were; a moment that passes is a tenth of one, for whoever waits may wait everywhere."""
        self.over = False
        """Set it when there is nothing left to conduct."""
        self._choices = Choices(choices)
        self._waiting: list[_Thing] = []
        self._acts: list[Act] = []

    @property
    def waiting(self) -> tuple[str, ...]:
        """The names of the things that wait now."""
        return tuple(thing.label for thing in self._waiting)

    @property
    def choices_used(self) -> int:
        """How many of the choices were used up: how often there was one."""
        return self._choices.used

    def act(self, at: float, label: str, perform: Callable[[], object]) -> None:
        """Let the outside world do something. Those of one number keep their order; it must not wait."""
        self._acts.append(Act(at, label, perform))
        self._acts.sort(key=lambda act: act.at)

    async def pause(self, label: str) -> None:
        """Wait until the schedule releases this thing. Cancellation is ordinary; the thing is then gone."""
        thing = _Thing(label, len(self.moves))
        self._waiting.append(thing)
        try:
            await thing.released.wait()
        finally:
            if thing in self._waiting:
                self._waiting.remove(thing)

    async def conduct(self, clockwork: Clockwork, most_moves: float = inf) -> None:
        """Make moves until it is `over`.

        When `most_moves` are spent, the outside world does at once what it still has to do.

        Raises:
            SimulationError: if nothing can move any more and it is not over; or when twice as many are spent.
        """
        while True:
            await clockwork.settled()
            if self.over:
                return
            due = self._acts and self._acts[0].at <= len(self.moves)
            timed = clockwork.next_deadline() < inf
            if due or (self._acts and (self.spent >= most_moves or not (self._waiting or timed))):
                act = self._acts.pop(0)
                self._moved(act.label)
                act.perform()
            elif not (self._waiting or timed):
                raise SimulationError(f"nothing can move any more after {len(self.moves)} moves, and it is not over")
            elif self.spent >= 2 * most_moves:
                raise SimulationError(f"it is not over after {len(self.moves)} moves")
            else:
                self._release(clockwork, timed)

    def _release(self, clockwork: Clockwork, timed: bool) -> None:
        things = self._waiting
        if len(things) > 1:
            things.sort(key=lambda thing: (thing.since, thing.label))
        chosen = self._choices.pick(len(things) + timed)
        if chosen == len(things):
            self._moved(f"time passes to {clockwork.next_deadline():g}", 0.1)
            clockwork.advance()
        else:
            thing = things.pop(chosen)
            self._moved(thing.label)
            thing.released.set()

    def _moved(self, label: str, spent: float = 1.0) -> None:
        self.moves.append(label)
        self.spent += spent


Pause: TypeAlias = Callable[[str], Awaitable[Any]]
"""What scripted parts are handed to wait with: `Simulation.pause`."""
