"""Recovery: an agent takes over the log of a lost process, and pays what it owes before it does anything else.

Most of that is said in the log itself (session/repair.py). What only tools can say is asked here: a call that was
running is run again if its author said that this is safe, or is looked into by the tool's `recover`. Either goes the
whole way of a call, hooks and guards included. What is not allowed any more, fails to begin or cannot be said stays
unknown. Until all is known nothing is recorded; so a process that is lost in here leaves what it found.
"""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, parse_arguments
from lifecycle.session.repair import Dangling, repair, torn
from lifecycle.vocabulary.events import ToolResultEvent
from lifecycle.vocabulary.messages import UserMessage

from .performers.call import result_event
from .performers.tooling import COMMIT
from .runs import AgentRun, StepRun, ToolCallRun, TurnRun
from .walk import Drive


async def recover(agent: AgentRun) -> tuple[UserMessage, ...]:
    """Repair the session of an agent that is being entered; what its tools deferred is returned, to be injected."""
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
    return deferred


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
