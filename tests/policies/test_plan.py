"""Plan mode: tools are withheld by their kind, and an approved plan gives them back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lifecycle import AgentOptions, Allow, Deny, Hooks, Session, tool
from lifecycle.errors import PolicyError
from lifecycle.policies.compaction import CompactionOptions, compact
from lifecycle.policies.plan import EXIT, PlanMode
from lifecycle.services.points import CallPayload, PostCallPayload
from lifecycle.testing import Reply, ScriptedModel, check_hooks
from lifecycle.vocabulary.events import ToolCallEvent, ToolResultEvent, UserMessageEvent
from lifecycle.vocabulary.messages import TextBlock, ToolResultBlock, text_of
from lifecycle.vocabulary.values import FrozenDict

from ..conformance.kit import Next, Scene, scene
from .kit import BACKENDS

pytestmark = pytest.mark.anyio

DONE: list[str] = []


@tool(kind="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(kind="write")
def change() -> str:
    """Change."""
    DONE.append("changed")
    return "changed"


@tool
def anything() -> str:
    """Do anything."""
    DONE.append("anything")
    return "done"


TOOLS = (look, change, anything)
OK = Reply(text="ok")
APPROVES = AgentOptions(approve=lambda payload, reason: True)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def offered(s: Scene) -> list[list[str]]:
    return [[one.name for one in request.tools] for request in s.model.requests]


def told(s: Scene) -> list[str]:
    """What the model was told of the mode, as its first words."""
    messages = [data.message for data in s.data(UserMessageEvent)]
    return [text_of(m).partition(".")[0] for m in messages if m.source["kind"] == "plan-mode"]


def results(s: Scene) -> list[str]:
    blocks = [block for data in s.data(ToolResultEvent) for block in data.message.content]
    found = [block.content for block in blocks if isinstance(block, ToolResultBlock)]
    return ["".join(part.text for part in content if isinstance(part, TextBlock)) for content in found]


async def test_stb_03_the_mode_holds_from_the_boundary_on_and_is_told_once_each_way() -> None:
    plan = PlanMode()
    async with scene(tools=[*TOOLS, plan.tool], hooks=plan.hooks) as s:
        await s.say("one")
        plan.enter()
        assert not plan.active
        await s.say("two", "three")
        plan.leave()
        await s.say("four")

        everything = ["anything", "change", "look"]
        assert offered(s) == [everything, [EXIT, "look"], [EXIT, "look"], everything]
        assert told(s) == ["Plan mode is on", "Plan mode is off"]


async def test_a_withheld_tool_is_refused_also_where_the_model_calls_it_unasked() -> None:
    plan = PlanMode(active=True)
    calls = Reply(calls=[("change", {}), ("anything", {}), ("look", {})])
    async with scene(calls, OK, tools=[*TOOLS, plan.tool], hooks=plan.hooks) as s:
        await s.say("one")

        assert DONE == []
        assert results(s) == [
            f"There is no tool 'change'. There are: {EXIT}, look",
            f"There is no tool 'anything'. There are: {EXIT}, look",
            "seen",
        ]


@pytest.mark.parametrize("approves", [True, False, None])
async def test_the_mode_is_left_by_an_approved_plan_and_by_no_other(approves: bool | None) -> None:
    asked: list[str] = []

    def approve(payload: CallPayload, reason: str) -> bool:
        asked.append(reason)
        return bool(approves)

    plan = PlanMode(active=True)
    options = AgentOptions(approve=None if approves is None else approve)
    script = (Reply(calls=[(EXIT, {"plan": "1. change it"})]), Reply(calls=[("change", {})]), OK)
    async with scene(*script, tools=[*TOOLS, plan.tool], hooks=plan.hooks, options=options) as s:
        await s.say("one")

        assert asked == ([] if approves is None else ["Leave plan mode and carry out this plan?\n\n1. change it"])
        assert plan.active == (not approves)
        assert (["changed"] if approves else []) == DONE
        assert told(s) == (["Plan mode is on", "Plan mode is off"] if approves else ["Plan mode is on"])
        first = results(s)[0]
        assert first.startswith("The plan is approved" if approves else "This call needs an approval, which was not")
        assert offered(s)[1] == (["anything", "change", "look"] if approves else [EXIT, "look"])


async def test_a_call_that_another_hook_denies_is_not_put_before_the_approver() -> None:
    plan, behind = PlanMode(active=True), Hooks()

    @behind.on("tools/pre-execute")
    def deny(payload: Any, next: Any) -> Any:
        return Deny("not today")

    def approve(payload: CallPayload, reason: str) -> bool:
        DONE.append("asked")
        return True

    options = AgentOptions(approve=approve)
    script = (Reply(calls=[(EXIT, {"plan": "p"})]), OK)
    async with scene(*script, tools=[plan.tool], hooks=plan.hooks + behind, options=options) as s:
        await s.say("one")
        assert (DONE, plan.active) == ([], True)


async def test_c145_what_the_approver_is_shown_is_what_runs_also_behind_a_hook_that_rewrites() -> None:
    plan, rewriting, shown = PlanMode(active=True), Hooks(), list[str]()

    @rewriting.on("tools/pre-execute")
    async def rewrite(payload: CallPayload, next: Next[Any]) -> Any:
        return Allow(FrozenDict(plan="burn it")) if payload.call.name == EXIT else await next()

    def approve(payload: CallPayload, reason: str) -> bool:
        shown.append(reason)
        return True

    script = [Reply(calls=[(EXIT, {"plan": "paint it"})]), Reply(text="ok")]
    options = AgentOptions(approve=approve)
    async with scene(*script, tools=[plan.tool], hooks=plan.hooks + rewriting, options=options) as s:
        ran: list[Any] = []
        s.hooks.listen("tools/post-execute", partial(_noting, ran))
        await s.say("one")

        (reason,) = shown
        assert "paint it" in reason
        assert [dict(given) for given in ran] == [{"plan": "paint it"}]
        assert [data.arguments for data in s.data(ToolCallEvent)] == ['{"plan": "paint it"}']


async def _noting(ran: list[Any], payload: PostCallPayload, next: Next[Any]) -> Any:
    ran.append(payload.arguments)
    return await next()


async def test_a_plan_that_is_no_plan_leaves_nothing() -> None:
    plan = PlanMode(active=True)
    script = (Reply(calls=[(EXIT, "{"), (EXIT, {"plan": 3})]), OK)
    options = AgentOptions(approve=lambda payload, reason: True)
    async with scene(*script, tools=[plan.tool], hooks=plan.hooks, options=options) as s:
        await s.say("one")
        assert plan.active
        assert [data.error.code for data in s.data(ToolResultEvent) if data.error] == ["INVALID_ARGUMENTS"] * 2


@pytest.mark.parametrize("left", [False, True])
async def test_where_a_summary_took_the_place_of_what_was_told_it_is_told_again(left: bool) -> None:
    plan = PlanMode(active=True)
    notes = ScriptedModel(otherwise=Reply(text="the notes"))
    async with scene(hooks=plan.hooks) as s:
        await s.say("one", *["word " * 200] * 5)
        assert told(s) == ["Plan mode is on"]
        await compact(s.agent, CompactionOptions(notes, summary_tokens=100))
        if left:
            plan.leave()
        await s.say("two", "three")
        assert told(s) == ["Plan mode is on", "Plan mode is off" if left else "Plan mode is on"]
        await s.say(*["word " * 200] * 5)
        await compact(s.agent, CompactionOptions(notes, summary_tokens=100))
        await s.say("four")
        assert len(told(s)) == (2 if left else 3)


@pytest.mark.parametrize("left", [False, True])
async def test_a_resumed_session_goes_on_as_its_log_says(left: bool) -> None:
    plan = PlanMode(active=True)
    script = [Reply(calls=[(EXIT, {"plan": "go"})])] if left else [OK]
    async with scene(*script, tools=[*TOOLS, plan.tool], hooks=plan.hooks, options=APPROVES) as s:
        s.session.observe(lambda event: s.agent.cancel() if event.type == "tool/result" else None)
        await s.say("one")
        events = s.session.events

    again = PlanMode()
    async with scene(
        OK, tools=[*TOOLS, again.tool], hooks=again.hooks, session=Session.seeded(events, "again"), options=APPROVES
    ) as s:
        assert again.active
        await s.say("two")
        assert again.active != left
        assert ("change" in offered(s)[0]) == left
        assert told(s) == ["Plan mode is on", *["Plan mode is off"] * left]


async def test_what_a_host_says_counts_more_than_the_log() -> None:
    plan = PlanMode(active=True)
    async with scene(OK, hooks=plan.hooks) as s:
        await s.say("one")
        events = s.session.events
    again = PlanMode()
    again.leave()
    async with scene(OK, hooks=again.hooks, session=Session.seeded(events, "again")) as s:
        await s.say("two")
        assert told(s) == ["Plan mode is on", "Plan mode is off"]


async def test_the_kind_of_a_tool_is_recorded_and_other_kinds_may_be_allowed() -> None:
    plan = PlanMode(allowed={"read", "write"}, active=True)
    async with scene(tools=[*TOOLS, plan.tool], hooks=plan.hooks) as s:
        await s.say("one")
        assert offered(s) == [["change", EXIT, "look"]]
        assert [one.kind for one in s.model.requests[0].tools] == ["write", "plan", "read"]


async def test_no_kind_at_all_is_refused() -> None:
    with pytest.raises(PolicyError, match="no kind of tool is allowed"):
        PlanMode(allowed=())


def build_planning() -> Hooks:
    """For the check of hooks: the mode changes with every turn, and in the middle of steps."""
    plan = PlanMode(allowed=("read",))

    @plan.hooks.on("session/event")
    def switch(payload: Any) -> None:
        if payload.event.type in ("turn/start", "assistant/message"):
            plan.enter() if payload.event.seq % 3 else plan.leave()

    return plan.hooks


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    report = check_hooks(build_planning, examples=80, seed=7, backends=BACKENDS)
    report.coverage.require(
        verdicts=[
            ("tools/pre-execute", "Allow"),
            ("agent/pre-step", "Enter"),
            ("system-prompt/assemble", "PromptAssembly"),
        ]
    )
