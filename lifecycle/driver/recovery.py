"""Recovery: an agent takes over the log of a lost process, and pays what it owes before it does anything else.

Most of that is said in the log itself (session/repair.py). What only tools can say is asked here: a call that was
running is run again if its author said that this is safe, or is looked into by the tool's `recover`. Either goes the
whole way of a call, hooks and guards included. What is not allowed any more, fails to begin or cannot be said stays
unknown. Until all is known nothing is recorded; so a process that is lost in here leaves what it found.

A parked turn is not closed but taken up: its working records are made once more from the log, and the agent goes on
in them, at the call that somebody was asked about.
"""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, parse_arguments
from lifecycle.session.repair import Dangling, Parked, repair, torn
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import AssistantMessageEvent, ToolResultEvent, TurnStart
from lifecycle.vocabulary.failures import MAX_TOKENS
from lifecycle.vocabulary.messages import UserMessage
from lifecycle.vocabulary.requests import ModelSelection

from .performers.call import result_event
from .performers.tooling import Pool
from .program import COMMIT, Program
from .runs import AgentRun, StepRun, ToolCallRun, TurnRun
from .walk import Drive


async def recover(agent: AgentRun) -> tuple[UserMessage, ...]:
    """Repair the session of an agent that is being entered; what its tools deferred is returned, to be injected.

    A turn that is parked is left for the agent to go on with.
    """
    session = agent.session
    left = torn(session.events)
    if left is None:
        return ()
    results: dict[int, ToolResultEvent] = {}
    deferred: tuple[UserMessage, ...] = ()
    if left.step is not None and any(call.record is not None for call in left.calls):
        step = StepRun(TurnRun(agent, left.turn), left.step, CancelSignal(), (), owed=False)
        tools = {tool.name: tool for tool in agent.tools}
        step.specs = tuple(tool.spec for tool in tools.values())
        for dangling in left.calls:
            call = _call(step, dangling, tools)
            if call is not None:
                await _look_into(call, results)
                deferred += () if call.outcome is None else call.outcome.contexts
    repair(session, results)
    if left.parked is not None and left.step is not None:
        agent.parked = _taken_up(agent, left.turn, left.step, left.parked)
    return deferred


def _taken_up(agent: AgentRun, turn_number: int, number: int, parked: Parked) -> StepRun:
    """The working records of a parked turn, as far as the rest of it needs them.

    Whether one of its results had asked to end the turn is not in the log: it then goes on with another request.
    """
    session, here = agent.session, _places(agent.program)
    turn = TurnRun(agent, turn_number, here[1], steps=number, proposals=number)
    step = StepRun(turn, number, turn.signal, (), owed=False, phase=here[2], opened=True)
    for event in reversed(session.events):
        if isinstance(event.data, TurnStart):
            break
        if isinstance(event.data, AssistantMessageEvent) and event.data.finish is FinishKind.MAX_TOKENS:
            turn.reason = MAX_TOKENS
    config = None if session.header is None else session.header.config
    if config is not None:
        step.selection = ModelSelection(provider=config.provider, model=config.model, effort=config.effort)
        step.published = step.selection
    step.tools = agent.tools.resolve(agent.handle, step.signal)
    offered = {spec.name for spec in (session.header.tools if session.header is not None else None) or ()}
    step.specs = tuple(spec for spec in step.tools.specs if spec.name in offered)
    step.pool = Pool(step, parked.waiting)
    step.pool.park(parked)
    return step


def _places(program: Program) -> list[str]:
    """The phases that an agent, its turn and its step are in while calls run: those that run the next, or a pool."""
    places = list[str]()
    inner: Program | None = program
    while inner is not None:
        phases = inner.table.phases
        places.append(next(name for name, phase in phases.items() if phase.runs is not None or phase.pool is not None))
        inner = inner.stations[places[-1]].nested
    return places


def _call(step: StepRun, dangling: Dangling, tools: Mapping[str, Tool]) -> ToolCallRun | None:
    """The call once more, if it had started and there is somebody to ask."""
    block, record = dangling
    tool = tools.get(block.name)
    if record is None or tool is None or (tool.replay == "never" and tool.recover is None):
        return None
    program = step.agent.call_program
    call = ToolCallRun(step, block, parse_arguments(block.arguments), tool, program.table.initial, step.signal)
    call.drive, call.record, call.lost = Drive(program, call), record, True
    return call


async def _look_into(call: ToolCallRun, results: dict[int, ToolResultEvent]) -> None:
    assert call.drive is not None
    assert call.record is not None
    await call.drive.run(COMMIT)
    if call.invoked and call.outcome is not None:
        results[call.record.seq] = result_event(call, call.outcome)
