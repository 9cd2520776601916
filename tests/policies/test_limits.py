"""Limits: turns that would never end, and the rules of the lifecycle."""

from __future__ import annotations

import pytest

from lifecycle import HookCancel, Hooks
from lifecycle.errors import PolicyError
from lifecycle.policies.limits import LimitOptions, limiting
from lifecycle.services.points import TurnPayload
from lifecycle.testing import Call, GatedTool, Reply, ScriptedModel, check_hooks
from lifecycle.vocabulary.events import StepStart, ToolResultEvent, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Aborted
from lifecycle.vocabulary.messages import text_of

from ..conformance.kit import Scene, scene
from .kit import BACKENDS

pytestmark = pytest.mark.anyio
SAME: Call = ("read", {"path": "x", "line": 1})


def over(steps: int) -> Aborted:
    return Aborted(reason=HookCancel(reason=f"the turn has taken {steps} steps, which is its limit"))


def codes(s: Scene) -> list[str | None]:
    return [None if one.error is None else one.error.code for one in s.data(ToolResultEvent)]


async def test_c167_a_model_that_calls_for_ever_ends_at_the_limit_with_every_call_answered() -> None:
    read = GatedTool("read", free=True)
    model = ScriptedModel(otherwise=Reply(calls=[SAME]))
    async with scene(model=model, tools=[read], hooks=limiting(LimitOptions(max_steps=7))) as s:
        await s.say("go")
        assert s.reasons == [over(7)]
        assert len(s.data(StepStart)) == len(read.calls) == len(s.data(ToolResultEvent)) == 7
        await s.say("and again")  # a turn of its own, with steps of its own
        assert s.reasons == [over(7)] * 2
        assert len(read.calls) == 14


async def test_a_turn_that_stops_at_its_limit_has_stopped_by_itself() -> None:
    script = Reply(calls=[SAME]), Reply(text="ok")
    async with scene(*script, tools=[GatedTool("read", free=True)], hooks=limiting(LimitOptions(max_steps=2))) as s:
        await s.say("go")
        assert s.reasons == [COMPLETED]


async def test_c140_a_stop_hook_that_always_says_go_on_comes_to_the_limit_and_to_no_success() -> None:
    hooks = Hooks()

    @hooks.on("agent/turn-stopping")
    async def go_on(payload: TurnPayload) -> None:
        payload.agent.steer("go on")

    async with scene(hooks=hooks + limiting(LimitOptions(max_steps=3))) as s:
        await s.say("go")
        assert s.reasons == [over(3)]


async def test_what_was_said_for_the_step_too_many_waits_for_the_next_turn() -> None:
    read = GatedTool("read")
    script = Reply(calls=[("read", {}, "a")]), Reply(text="ok"), Reply(text="ok")
    async with scene(*script, tools=[read], hooks=limiting(LimitOptions(max_steps=1))) as s:
        s.agent.followup("go")
        await read.started("a")
        s.agent.steer("use tabs")
        s.agent.followup("then this")
        read.release("a")
        await s.idle()
        assert s.reasons == [over(1)]
        await s.say("last")
        assert [text_of(one.message) for one in s.data(UserMessageEvent)] == ["go", "use tabs", "then this", "last"]


@pytest.mark.parametrize("alternating", [False, True])
async def test_c167_the_same_call_is_denied_once_there_were_enough_in_whatever_order_its_arguments_stand(
    alternating: bool,
) -> None:
    read = GatedTool("read", free=True)
    turned: Call = ("read", '{"line": 1, "path": "x"}')
    between: list[Call] = [("read", {"path": "y"})] if alternating else []
    script = [Reply(calls=[call, *between]) for call in (SAME, turned, SAME, turned)]
    hooks = limiting(LimitOptions(same_calls=2))
    async with scene(*script, Reply(text="ok"), Reply(calls=[SAME]), Reply(text="ok"), tools=[read], hooks=hooks) as s:
        await s.say("go")
        once = [None, None] if alternating else [None]
        assert codes(s) == once * 2 + ["DENIED"] * len(once) * 2
        await s.say("in another turn it is asked afresh")
        assert codes(s)[-1] is None


@pytest.mark.parametrize("made", [{"max_steps": 0}, {"same_calls": 0}])
def test_a_limit_of_nothing_is_refused(made: dict[str, int]) -> None:
    with pytest.raises(PolicyError, match="give it at least 1"):
        LimitOptions(**made)


def build_limits() -> Hooks:
    return limiting(LimitOptions(max_steps=2, same_calls=1))


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    report = check_hooks(build_limits, examples=80, seed=7, backends=BACKENDS)
    report.coverage.require(verdicts=[("tools/pre-execute", "Deny"), ("agent/pre-step", "Reject")])
