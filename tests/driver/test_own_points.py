"""Hook points that a user's lifecycle adds to a turn, a step and a tool call, without a performer of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lifecycle import Agent, AgentOptions, Deny, HookPoint, Hooks, tool
from lifecycle.definition.effects import hook
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.step import Step
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn
from lifecycle.errors import DefinitionError, UnknownHookPointError
from lifecycle.services.points import POINTS, CallPayload, Mode, OnFault, StepPayload, TurnPayload
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import ToolResultEvent, TurnEnd
from lifecycle.vocabulary.failures import COMPLETED, Errored


class AskedTurn(Turn):
    settled = Turn.settled.but(hook("mine/asked", "serial"), *Turn.settled.does)


class AskedStep(Step):
    boundary = Step.boundary.but(hook("mine/asked", "serial"), *Step.boundary.does)


class AskedCall(ToolCall):
    guarded = ToolCall.guarded.but(hook("mine/asked", "serial"), *ToolCall.guarded.does)


EACH = pytest.mark.parametrize(
    ("lifecycle", "payload"), [(AskedTurn, TurnPayload), (AskedStep, StepPayload), (AskedCall, CallPayload)]
)


@tool
def look() -> str:
    return "seen"


def agent(lifecycle: type[Lifecycle], *points: HookPoint, listener: Callable[[Any], Any] | None = None) -> Agent:
    hooks = Hooks(points={**POINTS, **{point.name: point for point in points}})
    if listener is not None:
        hooks.listen("mine/asked", listener)
    model = ScriptedModel(Reply(calls=[("look", {})]), Reply(text="done"))
    return Agent(model, tools=[look], hooks=hooks, options=AgentOptions(lifecycle=lifecycle))


async def ran(one: Agent) -> tuple[object, list[str | None]]:
    """How the turn ended, and the code of each result."""
    async with one:
        one.followup("go")
        await one.when_idle()
    events = [event.data for event in one.session.events]
    (end,) = [event for event in events if isinstance(event, TurnEnd)]
    results = [event for event in events if isinstance(event, ToolResultEvent)]
    return end.reason, [None if result.error is None else result.error.code for result in results]


@pytest.mark.anyio
@EACH
async def test_a_listener_gets_the_payload_of_the_lifecycle_that_the_point_stands_in(
    lifecycle: type[Lifecycle], payload: type[Any]
) -> None:
    heard: list[Any] = []

    def listen(given: Any) -> None:
        heard.append(given)

    point = HookPoint("mine/asked", Mode.SERIAL, payload)

    assert await ran(agent(lifecycle, point, listener=listen)) == (COMPLETED, [None])
    assert heard
    assert {type(one) for one in heard} == {payload}
    assert await ran(agent(lifecycle, point)) == (COMPLETED, [None])  # also where nobody listens


@pytest.mark.anyio
@EACH
async def test_what_a_listener_raises_leads_to_what_its_point_says(
    lifecycle: type[Lifecycle], payload: type[Any]
) -> None:
    def fail(_: Any) -> Awaitable[None]:
        raise ValueError("no more")

    call = lifecycle is AskedCall
    point = HookPoint("mine/asked", Mode.SERIAL, payload, on_fault=OnFault.ERROR_RESULT if call else OnFault.FAILS_TURN)
    reason, results = await ran(agent(lifecycle, point, listener=fail))

    if call:
        assert (reason, results) == (COMPLETED, ["HOOK_FAILED"])
    else:
        assert isinstance(reason, Errored)
        assert "no more" in reason.error.message


@EACH
@pytest.mark.parametrize(
    "given",
    [{"mode": Mode.EMIT}, {"mode": Mode.WATERFALL}, {"verdicts": (Deny, None)}, {"payload": dict[str, object]}],
    ids=["emit", "waterfall", "verdicts", "payload"],
)
def test_a_point_that_is_declared_otherwise_than_it_is_dispatched_is_refused_when_the_agent_is_made(
    lifecycle: type[Lifecycle], payload: type[Any], given: dict[str, Any]
) -> None:
    declared: dict[str, Any] = {"mode": Mode.SERIAL, "payload": payload, **given}
    point = HookPoint("mine/asked", **declared)

    says = rf"the hook point 'mine/asked' is declared as .* dispatched as serial with a {payload.__name__} for nothing"
    with pytest.raises(DefinitionError, match=says):
        agent(lifecycle, point)


def test_a_point_that_the_hooks_do_not_know_is_an_error_when_the_agent_is_made() -> None:
    with pytest.raises(UnknownHookPointError, match="'mine/asked'"):
        agent(AskedStep)


@pytest.mark.parametrize(
    ("mode", "usual"),
    [
        (Mode.EMIT, OnFault.CONTAINED),
        (Mode.SERIAL, OnFault.FAILS_TURN),
        (Mode.WATERFALL, OnFault.FAILS_TURN),
        (Mode.PARALLEL, OnFault.RAISED_AFTER_ALL),
        (Mode.VETO, OnFault.APPEND_RAISES),
    ],
)
def test_what_a_fault_leads_to_follows_from_the_mode(mode: Mode, usual: OnFault) -> None:
    assert HookPoint("mine/asked", mode).on_fault is usual
    if mode is not Mode.EMIT:
        with pytest.raises(ValueError, match=f"cannot contain what its listeners raise.*OnFault.{usual.name}"):
            HookPoint("mine/asked", mode, on_fault=OnFault.CONTAINED)
