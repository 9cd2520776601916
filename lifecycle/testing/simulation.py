"""Simulated runs: a scenario performed by a real agent in virtual time, and all that can be seen of the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from math import inf
from typing import Literal, cast

import anyio

from lifecycle import Agent, AgentOptions, Hooks, Prompt, Section
from lifecycle.driver.feed import Durable, Live, Occurrence
from lifecycle.proof.invariants import Broken, first_broken
from lifecycle.proof.simulation import Backend, Clockwork, Simulation, run_virtually
from lifecycle.services.points import StatusPayload
from lifecycle.vocabulary.events import Event, TurnEnd
from lifecycle.vocabulary.failures import TurnEndReason
from lifecycle.vocabulary.messages import UserMessage, identities

from .actors import EndlessError, Refusal, SimulatedModel, Stage, gates, scripted_hooks, tool_of
from .scenario import HookScript, Move, Scenario
from .trace import Trace
from .witness import Seen, Witness, WitnessedAgent, WitnessedSession

EPOCH = 1_700_000_000_000
"""When a simulated session begins, in epoch milliseconds."""

End = Literal["idle", "stuck", "endless", "failed"]


@dataclass
class Simulated:
    """What a simulated run was, to be looked at by invariants. Nothing of it changes any more."""

    scenario: Scenario
    backend: Backend
    end: End = "failed"
    """How it ended.

    `idle`: everything was done, and the agent rested. `stuck`: nothing could move any more, and the agent did not
    rest. `endless`: it had not ended after the most moves, or one move never ended. `failed`: `error` came out of the
    agent's context.
    """
    error: BaseException | None = None
    """What came out of the agent's context, or of the simulation."""
    events: tuple[Event, ...] = ()
    """The durable log."""
    happened: tuple[Occurrence, ...] = ()
    """The durable log and what live listeners were told, in one order."""
    story: tuple[Seen, ...] = ()
    """What the invariants judge; empty if nobody was to witness the run."""
    moves: tuple[str, ...] = ()
    """What was released or done, in order, by name."""
    choices_used: int = 0
    """How many of the scenario's choices were used up."""
    pending: tuple[tuple[UserMessage, ...], tuple[UserMessage, ...]] = ((), ())
    """What was left in the inbox when the run rested: next-step and next-turn."""
    phase: str = ""
    """The agent's phase when nothing was left to do; `disposed` if the scenario disposed of it."""
    waiting: tuple[str, ...] = ()
    """What still waited then, by name."""
    seconds: float = 0.0
    """How much virtual time has passed."""
    leaked: tuple[str, ...] = ()
    """The names of the tasks that were still there when the agent's context was left."""
    streaming: int = 0
    """The model's streams that were not closed when the agent had rested."""
    bodies: int = 0
    """The tool bodies that had not ended then."""
    open_sets: int = 0
    """The steps' tool sets that were not disposed of then."""
    published: bool = False
    """`agent.step` was not None then."""
    outlived: tuple[int, ...] = ()
    """The seqs of steps' ends that came while a body or a stream of the step was still open."""
    refusals: tuple[Refusal, ...] = ()
    """What the agent refused of what it was asked for, by raising."""
    vetoed: tuple[str, ...] = ()
    """The types of the events that a scripted veto prevented."""
    struck: tuple[HookScript, ...] = ()
    """The scripted hooks that did what they do, in order."""
    logged: tuple[logging.LogRecord, ...] = ()
    """What the package has logged, for example the failures that it contained."""
    trace: Trace | None = None
    """All hook points and the log, if it was asked for."""
    agent: Agent | None = field(default=None, repr=False)
    """The agent, which is disposed by now."""

    @cached_property
    def broken(self) -> tuple[int, Broken] | None:
        """The first invariant of the lifecycle that the story breaks, and the seq that was next at that moment."""
        found = first_broken(one.happening for one in self.story)
        return None if found is None else (self.story[found[0]].seq, found[1])

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The durable log, one line of JSON an event."""
        return tuple(event.encode() for event in self.events)

    @cached_property
    def reasons(self) -> tuple[TurnEndReason, ...]:
        """How the turns ended, in order."""
        return tuple(event.data.reason for event in self.events if isinstance(event.data, TurnEnd))

    @cached_property
    def statuses(self) -> tuple[str, ...]:
        """What was told as `agent/status`, in order."""
        told = (one.payload for one in self.live("agent/status"))
        return tuple(payload.status for payload in told if isinstance(payload, StatusPayload))

    def live(self, name: str) -> Iterator[Live]:
        """What live listeners were told under one name, in order."""
        return (one for one in self.happened if isinstance(one, Live) and one.name == name)

    def durable(self, name: str) -> Iterator[Event]:
        """The events of one type, in order."""
        return (one.event for one in self.happened if isinstance(one, Durable) and one.name == name)

    def __str__(self) -> str:
        return f"{self.end} after {len(self.moves)} moves and {len(self.events)} events on {self.backend}"


def simulate(
    scenario: Scenario,
    hooks: Callable[[], Hooks] | None = None,
    *,
    backend: Backend = "asyncio",
    trace: bool = False,
    witnessed: bool = True,
    most_moves: int = 1_000,
    before: Callable[[Agent], object] | None = None,
) -> Simulated:
    """Perform a scenario with a real agent, and return what was seen of the run.

    The same scenario gives the same log, byte for byte, each time and on both backends, as long as the hooks wait for
    nothing but virtual time (`anyio.sleep` and deadlines) and for what the lifecycle hands them. A scenario with an
    `interleaving` gives the same log each time on one backend. What they hand to a worker thread runs on the spot;
    sockets and processes are outside of virtual time, and refused with a `SimulationError`.

    Args:
        hooks: Makes the listeners under test, afresh for each run. The scripted ones of the scenario stand behind them.
        trace: Also record every hook point. It listens everywhere, so that no dispatch is skipped.
        witnessed: Keep the `story`, for which somebody listens at most points. Without, most invariants see nothing.
        most_moves: When a run counts as endless; a moment that passes is a tenth of a move.
        before: Called with the agent right before its context is entered.

    Raises:
        Exception: what `hooks` or `before` raises. What comes out of the agent is in the result.
    """
    run = _Run(scenario, backend, Hooks() if hooks is None else hooks(), trace, witnessed, most_moves, before)
    ids = count(1)
    token = identities.set(lambda: f"x{next(ids)}")
    try:
        with _captured_logs() as records:
            try:
                run_virtually(run.main, backend=backend, interleaving=scenario.interleaving)
            except BaseException as error:
                if _has(error, KeyboardInterrupt):  # somebody has pressed Ctrl-C; that is no result
                    raise
                run.fail(error)
    finally:
        identities.reset(token)
    run.seen.logged = tuple(records)
    return run.seen


class _Run:
    """One performance of a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        hooks: Hooks,
        trace: bool,
        witnessed: bool,
        most_moves: int,
        before: Callable[[Agent], object] | None,
    ) -> None:
        self.seen = Simulated(scenario, backend)
        self._sim = Simulation(scenario.choices)
        self._stage = Stage(scenario, self._sim)
        self._most_moves = most_moves
        listening = hooks + scripted_hooks(self._stage, hooks) if scenario.hooks else hooks
        if listening.listeners("tools/execute"):
            begin, end = gates(self._stage, hooks)
            listening = begin + listening + end
        self._trace = Trace() if trace else None
        if self._trace is not None:
            listening = Hooks(points=hooks.points) + listening
            self._trace.listen(listening)
        self._witness = Witness()
        if witnessed:
            listening = Hooks(points=hooks.points) + listening
            self._witness.listen(listening)
        self._agent = self._stage.agent = _agent_of(scenario, self._stage, listening, self._clock, self._witness)
        if witnessed:
            self._witness.attend(self._agent)
        self._agent.session.observe(self._stage.look_at)
        self._rested = False
        if before is not None:
            before(self._agent)

    def _clock(self) -> int:
        """Moves and virtual milliseconds."""
        return EPOCH + len(self._sim.moves) + round(1_000 * anyio.current_time())

    def fail(self, error: BaseException) -> None:
        """Keep what came out of the run."""
        self.seen.end, self.seen.error = "endless" if _has(error, EndlessError) else "failed", error
        self._look()

    async def main(self, clockwork: Clockwork) -> None:
        """Conduct the run from beginning to end."""
        sim, known = self._sim, {task.id for task in anyio.get_running_tasks()}
        async with anyio.create_task_group() as above:
            above.start_soon(self._conduct, clockwork)
            async with anyio.create_task_group() as crew:
                self._leave, self._host = anyio.Event(), anyio.CancelScope()
                for move in self.seen.scenario.moves:
                    sim.act(move.at, str(move), self._performer(move, crew))
                sim.act(inf, "the host leaves", self._rest)
                sim.act(inf, "the host is cancelled", self._give_up)
                crew.start_soon(self._live)
            sim.over = True
        self.seen.leaked = tuple(task.name or "a task" for task in anyio.get_running_tasks() if task.id not in known)
        self.seen.seconds = anyio.current_time()
        self._look()

    async def _conduct(self, clockwork: Clockwork) -> None:
        await self._sim.conduct(clockwork, self._most_moves)

    async def _live(self) -> None:
        agent, feed = self._agent, None
        try:
            with self._host:
                async with agent:
                    feed = agent.events(until="disposed")
                    if self._trace is not None:
                        self._trace.follow(agent.session)
                    await self._leave.wait()
        except Exception as error:
            self.seen.error = error
        if self.seen.error is None and not self._rested:
            self._at_rest()
        if feed is not None:
            self.seen.happened = tuple([one async for one in feed])

    def _performer(self, move: Move, crew: anyio.abc.TaskGroup) -> Callable[[], object]:
        match move.verb:
            case "dispose":
                return self._leave.set
            case "abandon":
                return self._host.cancel
            case "maintain":
                return lambda: crew.start_soon(self._stage.maintain, move)
            case _:

                def act() -> None:
                    self._stage.perform(move)
                    crew.start_soon(self._agent.when_idle)  # a host waits; if that never returns, the run is stuck

                return act

    def _rest(self) -> None:
        """Nothing is left to do. Look at what is there, then let the host leave the agent's context."""
        self._at_rest()
        self._leave.set()

    def _give_up(self) -> None:
        """Nothing can move, and somebody still waits."""
        if self.seen.end == "idle":
            self.seen.end = "stuck"
        self._host.cancel()

    def _at_rest(self) -> None:
        """The run rests, or cannot go on; unless the scenario disposes of it, the agent is still to be left."""
        seen, agent, stage = self.seen, self._agent, self._stage
        self._rested = True
        resting = agent.phase in ("idle", "disposed")
        if resting:
            self._witness.tell("rest")
        if seen.error is None:
            seen.end = "idle" if resting else "endless" if self._sim.spent >= self._most_moves else "stuck"
        seen.phase, seen.waiting = agent.phase, self._sim.waiting
        seen.pending = agent.inbox.next_step, agent.inbox.next_turn
        seen.streaming, seen.bodies = stage.streaming, stage.bodies
        seen.open_sets, seen.published = agent.tools.open_sets, agent.step is not None

    def _look(self) -> None:
        seen, stage = self.seen, self._stage
        seen.agent, seen.trace = self._agent, self._trace
        seen.events = tuple(self._agent.session.events)
        seen.moves, seen.choices_used = tuple(self._sim.moves), self._sim.choices_used
        seen.refusals, seen.vetoed, seen.struck = tuple(stage.refusals), tuple(stage.vetoed), tuple(stage.struck)
        seen.outlived, seen.story = tuple(stage.outlived), tuple(self._witness.story)


def _agent_of(
    scenario: Scenario, stage: Stage, hooks: Hooks, clock: Callable[[], int], witness: Witness
) -> WitnessedAgent:
    contexts = [Section("scene", scenario.context)] if scenario.context is not None else []
    sections = [Section("who", scenario.system)] if scenario.system is not None else []
    return WitnessedAgent(
        witness,
        SimulatedModel(stage),
        tools=[tool_of(script, stage) for script in scenario.tools],
        hooks=hooks,
        session=WitnessedSession(witness, "simulated", clock=clock),
        options=AgentOptions(
            system=Prompt(sections, contexts=contexts),
            max_parallel_tools=scenario.max_parallel_tools,
            approve=lambda payload, reason: scenario.approves,
        ),
    )


def _has(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether it is one of that kind, or a group in which there is one."""
    if isinstance(error, BaseExceptionGroup):
        return any(_has(one, kind) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, kind)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _captured_logs() -> Generator[list[logging.LogRecord]]:
    """Keep what the package logs, and let nobody else hear it: contained failures are no news in a search."""
    log, handler = logging.getLogger("lifecycle"), _Records()
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield handler.records
    finally:
        log.removeHandler(handler)
        log.propagate = before
