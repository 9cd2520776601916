"""Group TLP: what happens to one tool call, from its record to its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lifecycle import (
    Accept,
    AgentOptions,
    Allow,
    Ask,
    Block,
    CancelSignal,
    Deny,
    HookCancel,
    Hooks,
    Tool,
    ToolContext,
    ToolOutcome,
    tool,
)
from lifecycle.driver.options import Approver
from lifecycle.errors import ToolError
from lifecycle.services.listeners import Next
from lifecycle.services.points import CallPayload, PostCallPayload, ResultPayload
from lifecycle.testing import GatedTool, Reply
from lifecycle.vocabulary.events import ToolResultEvent
from lifecycle.vocabulary.messages import UserMessage, text, text_of, user_message
from lifecycle.vocabulary.values import FrozenDict

from .calls import DONE, asks, calls_and_results, told
from .kit import Scene, scene

pytestmark = pytest.mark.anyio

STOP = HookCancel(reason="the test says so")


@tool
async def work() -> str:
    """Do some work."""
    return "done"


@tool
async def fail() -> str:
    """Fail."""
    raise ToolError("it did not work", "WORK_FAILED")


def verdict(point: str, answer: Any) -> Hooks:
    """Hooks of which one says `answer` at `point`, without asking any further."""
    hooks = Hooks()
    waterfall = hooks.points[point].mode == "waterfall"
    hooks.listen(point, (lambda payload, next: answer) if waterfall else (lambda payload: answer))  # pyright: ignore[reportUnknownLambdaType]
    return hooks


def phases(s: Scene) -> list[str]:
    """The phases that calls went through, in order."""
    return [name.removeprefix("tools/") for name in s.trace.names() if name.startswith(("tools/", "tool/"))]


def seen(s: Scene) -> list[str]:
    """What the model sees of each call."""
    return [told(data) for data in s.data(ToolResultEvent)]


# -- TLP-01: the order of the phases --------------------------------------------------------------------------------


async def test_tlp_01_a_call_goes_through_its_phases_in_order_and_its_content_is_final_once() -> None:
    hooks, order = Hooks(), list[str]()

    @tool(name="work")
    async def body() -> str:
        order.append("body")
        return "done"

    @hooks.on("tools/execute")
    async def around(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        order.append("before the body")
        try:
            return await next()
        finally:
            order.append("after the body")

    hooks.listen("tools/guard", lambda _: order.append("first guard"))
    hooks.listen("tools/guard", lambda _: order.append("second guard"))
    async with scene(asks("a"), DONE, tools=[body], hooks=hooks) as s:
        await s.say("go")

        assert phases(s) == [
            *["tool/call", "pre-execute", "guard", "execute", "post-execute", "result", "tool/result"],
        ]
        assert order == ["first guard", "second guard", "before the body", "body", "after the body"]


async def test_tlp_01_the_observer_gets_what_the_model_will_see_and_cannot_change_it() -> None:
    hooks, results, refused = verdict("tools/post-execute", Accept(content=text("final"))), list[Any](), list[str]()

    @hooks.on("tools/result")
    def observe(payload: ResultPayload) -> None:
        results.append(payload.result)
        for target, name in ((payload, "result"), (payload.result, "content")):
            try:
                setattr(target, name, None)
            except (FrozenInstanceError, ValueError) as wrong:
                refused.append(type(wrong).__name__)

    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert results == [s.data(ToolResultEvent)[0].message]
        assert seen(s) == ["final"]
        assert refused == ["FrozenInstanceError", "ValidationError"]


async def test_tlp_01_a_structured_value_is_frozen_in_the_record() -> None:
    @tool
    async def measure() -> dict[str, list[int]]:
        return {"sizes": [1, 2]}

    async with scene(asks("a", tool="measure"), DONE, tools=[measure]) as s:
        await s.say("go")

        (data,) = s.data(ToolResultEvent)
        assert data.value == {"sizes": (1, 2)}
        with pytest.raises(TypeError):
            data.value["sizes"] = ()


# -- TLP-02: denied, and asked about --------------------------------------------------------------------------------


async def test_tlp_02_a_denied_call_runs_no_body_and_passes_post_and_its_neighbour_is_untouched() -> None:
    slow, hooks = GatedTool("work", free=True), Hooks()

    @hooks.on("tools/pre-execute")
    async def decide(payload: CallPayload, next: Next[Any]) -> Any:
        return Deny("this path is off limits") if payload.call.id == "a" else await next()

    async with scene(asks("a", "b"), DONE, tools=[slow], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a DENIED", "call b", "result b"]
        assert seen(s) == ["this path is off limits", "done"]
        assert [id for id, _ in slow.calls] == ["b"]
        assert phases(s)[:5] == ["tool/call", "pre-execute", "post-execute", "result", "tool/result"]
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_tlp_02_a_guard_denies_whatever_pre_allowed_and_the_first_denial_ends_the_round() -> None:
    hooks, asked = verdict("tools/pre-execute", Allow()), list[str]()

    @hooks.on("tools/guard")
    async def guard(payload: CallPayload) -> Deny:
        asked.append(payload.call.id)
        return Deny("guarded")

    hooks.listen("tools/guard", lambda _: asked.append("never"))
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a DENIED"]
        assert seen(s) == ["guarded"]
        assert asked == ["a"]
        assert phases(s) == ["tool/call", "pre-execute", "guard", "post-execute", "result", "tool/result"]


async def test_tlp_02_allowing_may_replace_the_arguments_for_guards_and_body() -> None:
    hooks, slow = verdict("tools/pre-execute", Allow(FrozenDict(path="safe"))), GatedTool(free=True)
    guarded: list[object] = []
    hooks.listen("tools/guard", lambda payload: guarded.append(payload.arguments))
    async with scene(asks("a", path="unsafe"), DONE, tools=[slow], hooks=hooks) as s:
        await s.say("go")

        assert guarded == [{"path": "safe"}]
        assert slow.calls == [("a", {"path": "safe"})]


def answering(answer: Any, later: bool = False) -> Approver:
    """An approver that says `answer`, at once or when it is awaited."""

    async def think() -> Any:
        await anyio.lowlevel.checkpoint()
        return answer

    def approve(payload: CallPayload, reason: str, /) -> Any:
        return think() if later else answer

    return approve


@pytest.mark.parametrize(
    ("approve", "runs"),
    [
        (answering(True), True),
        (answering(True, later=True), True),
        (answering(False), False),
        (answering(False, later=True), False),
        (answering(None), False),
        (answering("yes"), False),
        (None, False),
    ],
    ids=["yes", "yes, later", "no", "no, later", "no answer", "no clear answer", "nobody to ask"],
)
async def test_tlp_02_a_call_that_is_asked_about_runs_only_if_the_approver_says_so(
    approve: Approver | None, runs: bool
) -> None:
    hooks = verdict("tools/pre-execute", Ask("it writes to the disk"))
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks, options=AgentOptions(approve=approve)) as s:
        await s.say("go")

        assert calls_and_results(s.session)[1] == ("result a" if runs else "result a DENIED")
        assert seen(s)[0] == "done" if runs else "it writes to the disk" in seen(s)[0]
        assert ("execute" in phases(s)) is runs
        assert ("guard" in phases(s)) is runs
        assert "post-execute" in phases(s)


async def test_tlp_02_the_approver_is_told_what_it_is_about() -> None:
    asked: list[tuple[str, dict[str, object], str]] = []

    def approve(payload: CallPayload, reason: str, /) -> bool:
        assert isinstance(payload.arguments, dict)
        asked.append((payload.call.name, dict(payload.arguments), reason))
        return True

    hooks, slow = verdict("tools/pre-execute", Ask("sure?")), GatedTool(free=True)
    async with scene(asks("a", n=1), DONE, tools=[slow], hooks=hooks, options=AgentOptions(approve=approve)) as s:
        await s.say("go")

        assert asked == [("work", {"n": 1}, "sure?")]
        assert slow.calls == [("a", {"n": 1})]


# -- TLP-03: hooks that raise ---------------------------------------------------------------------------------------


def _raise(*_: object) -> Any:
    raise LookupError("a hook fails")


@pytest.mark.parametrize(
    ("point", "passed"),
    [
        ("tools/pre-execute", ["pre-execute", "result"]),
        ("tools/guard", ["pre-execute", "guard", "post-execute", "result"]),
        ("tools/execute", ["pre-execute", "guard", "execute", "post-execute", "result"]),
        ("tools/post-execute", ["pre-execute", "guard", "execute", "post-execute", "result"]),
    ],
)
async def test_tlp_03_what_a_hook_raises_becomes_the_result_of_its_call(point: str, passed: list[str]) -> None:
    hooks = Hooks()
    hooks.listen(point, _raise)
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert phases(s) == ["tool/call", *passed, "tool/result"]
        (data,) = s.data(ToolResultEvent)
        assert data.error is not None
        assert (data.error.code, data.error.name) == ("HOOK_FAILED", "LookupError")
        assert "a hook fails" in told(data)
        assert [reason.kind for reason in s.reasons] == ["completed"]
        assert len(s.model.requests) == 2


async def test_tlp_03_the_approver_too() -> None:
    hooks = verdict("tools/pre-execute", Ask("may I?"))
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks, options=AgentOptions(approve=_raise)) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a HOOK_FAILED"]
        assert phases(s) == ["tool/call", "pre-execute", "result", "tool/result"]


@pytest.mark.parametrize(
    ("point", "illegal"),
    [
        ("tools/pre-execute", "yes"),
        ("tools/guard", "no"),
        ("tools/execute", "done"),
        ("tools/post-execute", None),
    ],
)
async def test_tlp_03_an_illegal_verdict_is_a_failed_hook(point: str, illegal: object) -> None:
    async with scene(asks("a"), DONE, tools=[work], hooks=verdict(point, illegal)) as s:
        await s.say("go")

        (data,) = s.data(ToolResultEvent)
        assert data.error is not None
        assert (data.error.code, data.error.name) == ("HOOK_FAILED", "IllegalVerdictError")
        assert point in told(data)
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_tlp_03_an_observer_of_the_result_changes_nothing_by_raising() -> None:
    hooks = Hooks()
    hooks.listen("tools/result", _raise)
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a"]


async def test_tlp_03_a_body_and_then_its_post_may_both_fail() -> None:
    hooks = Hooks()
    hooks.listen("tools/execute", _raise)
    hooks.listen("tools/post-execute", _raise)
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a HOOK_FAILED"]
        assert [reason.kind for reason in s.reasons] == ["completed"]


# -- TLP-04: cancelled when, with which outcome ---------------------------------------------------------------------


def _cancelling(point: str, after: bool, answer: Any = None) -> Hooks:
    """Hooks of which one cancels the turn at `point`, before or after the rest, and answers `answer` or the rest's."""
    hooks = Hooks()
    if hooks.points[point].mode == "waterfall":

        async def wrap(payload: CallPayload, next: Callable[[], Awaitable[Any]]) -> Any:
            if not after:
                payload.agent.cancel(STOP)
            said = await next()
            if after:
                payload.agent.cancel(STOP)
            return said if answer is None else answer

        hooks.listen(point, wrap)
    else:

        async def ask(payload: CallPayload) -> Any:
            payload.agent.cancel(STOP)
            return answer

        hooks.listen(point, ask)
    return hooks


@pytest.mark.parametrize(
    ("point", "after", "answer", "tool", "code"),
    [
        ("tools/pre-execute", False, None, work, "ABORTED_BEFORE_DISPATCH"),
        ("tools/pre-execute", True, Deny("no"), work, "DENIED"),
        ("tools/guard", False, None, work, "ABORTED_BEFORE_DISPATCH"),
        ("tools/guard", False, Deny("no"), work, "DENIED"),
        ("tools/execute", False, None, work, "ABORTED_BEFORE_DISPATCH"),  # its body is not called any more
        ("tools/execute", True, None, work, "ABORTED"),
        ("tools/execute", True, ToolOutcome(text("from the wrapper")), work, "ABORTED"),
        ("tools/execute", True, None, fail, "WORK_FAILED"),
        ("tools/post-execute", True, None, fail, "WORK_FAILED"),
        ("tools/post-execute", True, None, work, None),  # it had succeeded before the cancel
    ],
)
async def test_tlp_04_the_code_says_when_the_cancel_came_and_keeps_denials_and_failures(
    point: str, after: bool, answer: Any, tool: Tool, code: str | None
) -> None:
    async with scene(asks("a", tool=tool.name), tools=[tool], hooks=_cancelling(point, after, answer)) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a" if code is None else f"result a {code}"]
        assert [reason.kind for reason in s.reasons] == ["aborted"]
        assert phases(s).count("result") == 1


@pytest.mark.parametrize(("ends", "code"), [("well", "ABORTED"), ("badly", "WORK_FAILED"), ("cut off", "ABORTED")])
async def test_tlp_04_a_body_that_was_cancelled_keeps_only_a_failure_of_its_own(ends: str, code: str) -> None:
    started, hooks = anyio.Event(), Hooks()

    @tool(name="work")
    async def body(context: ToolContext) -> str:
        started.set()
        with anyio.CancelScope(shield=ends != "cut off"):
            await context.signal.wait()
            await anyio.lowlevel.checkpoint()
        if ends == "badly":
            raise ToolError("it did not work", "WORK_FAILED")
        return "done after all"

    async with scene(asks("a"), tools=[body], hooks=hooks) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel(STOP)
        await s.idle()

        assert calls_and_results(s.session) == ["call a", f"result a {code}"]
        assert phases(s)[-3:] == ["post-execute", "result", "tool/result"]
        assert "done after all" not in seen(s)


async def test_tlp_04_a_wrapper_that_answers_for_the_body_has_not_dispatched_it() -> None:
    hooks = Hooks()

    @hooks.on("tools/execute")
    async def answer(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        payload.agent.cancel(STOP)
        return ToolOutcome(text("from a cache"), contexts=(context_of("wrapper"),))

    async with scene(asks("a"), tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a ABORTED_BEFORE_DISPATCH"]
        assert [text_of(message) for message in s.agent.inbox.next_step] == ["context of the wrapper"]


async def test_tlp_04_a_call_that_begins_aborted_skips_all_phases_and_is_published_once() -> None:
    hooks = Hooks()

    async with scene(asks("a", "b"), tools=[work], hooks=hooks) as s:
        s.session.observe(lambda event: s.agent.cancel(STOP) if event.type == "tool/call" else None)
        await s.say("go")

        assert phases(s) == ["tool/call", "result", "tool/result"] * 2
        assert calls_and_results(s.session) == [
            *["call a", "result a ABORTED_BEFORE_DISPATCH", "call b", "result b ABORTED_BEFORE_DISPATCH"]
        ]


# -- TLP-05: signals of wrappers ------------------------------------------------------------------------------------


async def test_tlp_05_a_wrapper_gives_its_inner_part_a_signal_that_the_turn_still_reaches() -> None:
    hooks, started, fresh, signals = Hooks(), anyio.Event(), CancelSignal(), dict[str, CancelSignal]()

    @tool(name="work")
    async def body(context: ToolContext) -> str:
        signals["body"] = context.signal
        started.set()
        await context.signal.wait()
        return "unreachable" if context.signal.cause is None else "told"

    @hooks.on("tools/execute")
    async def with_a_signal(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        signals["turn"] = payload.signal
        return await next(replace(payload, signal=fresh))

    @hooks.on("tools/post-execute")
    async def restored(payload: PostCallPayload, next: Next[Accept | Block]) -> Accept | Block:
        signals["post"] = payload.signal
        return await next()

    async with scene(asks("a"), tools=[body], hooks=hooks) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel(STOP)
        await s.idle()

        assert calls_and_results(s.session) == ["call a", "result a ABORTED"]
        assert signals["body"].cause == STOP
        assert not fresh.fired  # the replacement itself is the wrapper's own
        assert signals["body"] is not signals["turn"]
        assert signals["post"] is signals["turn"]


async def test_tlp_05_the_wrappers_signal_stops_its_inner_part_alone_and_the_body_is_awaited() -> None:
    hooks, started, ended, fresh = Hooks(), anyio.Event(), list[str](), CancelSignal()

    @tool(name="work")
    async def body() -> str:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            ended.append("body")
        return "never"

    @hooks.on("tools/execute")
    async def with_a_signal(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        outcome = await next(replace(payload, signal=fresh))
        ended.append("wrapper")
        assert not payload.signal.fired
        return outcome

    async with scene(asks("a"), DONE, tools=[body], hooks=hooks) as s:
        s.agent.followup("go")
        await started.wait()
        fresh.fire(STOP)
        await s.idle()

        assert ended == ["body", "wrapper"]
        assert calls_and_results(s.session) == ["call a", "result a ABORTED"]
        assert [reason.kind for reason in s.reasons] == ["completed"]


# -- TLP-06: what post decides --------------------------------------------------------------------------------------


def context_of(origin: str) -> UserMessage:
    return user_message(f"context of the {origin}", source={"kind": "test"})


def three_origins(decision: Accept | Block) -> tuple[Tool, Hooks]:
    """A tool and hooks that each add a context: the body, a wrapper of it, and what post decides."""

    @tool(name="work")
    async def body(context: ToolContext) -> dict[str, int]:
        context.defer(context_of("body"))
        return {"lines": 3}

    hooks = verdict("tools/post-execute", decision)

    @hooks.on("tools/execute")
    async def wrap(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        outcome = await next()
        return replace(outcome, contexts=(*outcome.contexts, context_of("wrapper")))

    return body, hooks


@pytest.mark.parametrize(
    ("decision", "told_", "value", "code", "contexts"),
    [
        (Accept(), '{"lines": 3}', {"lines": 3}, None, ["body", "wrapper"]),
        (
            Accept(content=text("three lines"), contexts=(context_of("post"),)),
            *("three lines", {"lines": 3}, None, ["body", "wrapper", "post"]),
        ),
        (
            Accept(value={"lines": 4}, contexts=(context_of("post"),)),
            *('{"lines": 4}', {"lines": 4}, None, ["body", "wrapper", "post"]),
        ),
        (Block("too long", contexts=(context_of("post"),)), "too long", None, "BLOCKED", ["post"]),
        (Block("too long"), "too long", None, "BLOCKED", []),
    ],
    ids=["as it is", "other content", "another value", "blocked with a context", "blocked"],
)
async def test_tlp_06_accepting_may_replace_one_of_two_and_blocking_drops_what_came_before(
    decision: Accept | Block, told_: str, value: object, code: str | None, contexts: list[str]
) -> None:
    body, hooks = three_origins(decision)
    async with scene(asks("a"), DONE, tools=[body], hooks=hooks) as s:
        await s.say("go")

        (data,) = s.data(ToolResultEvent)
        assert (told(data), data.value, data.error and data.error.code) == (told_, value, code)
        sent = [text_of(message) for message in s.model.requests[1].messages if message.source.get("kind") == "test"]
        assert sent == [f"context of the {origin}" for origin in contexts]


async def test_tlp_06_content_and_a_value_together_are_a_failed_hook() -> None:
    body, hooks = three_origins(Accept(content=text("x"), value=1))
    async with scene(asks("a"), DONE, tools=[body], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a HOOK_FAILED"]


@pytest.mark.parametrize("decision", [Accept(content=text("softened")), Block("softened")], ids=["accept", "block"])
async def test_tlp_06_a_failure_keeps_its_code_whatever_post_makes_of_its_words(decision: Accept | Block) -> None:
    async with scene(asks("a", tool="fail"), DONE, tools=[fail], hooks=verdict("tools/post-execute", decision)) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a WORK_FAILED"]
        assert seen(s) == ["softened"]


# -- TLP-07: a tool that is not there -------------------------------------------------------------------------------


async def test_tlp_07_an_unknown_tool_is_an_error_result_and_the_turn_goes_on() -> None:
    async with scene(Reply(calls=[("wrok", {}, "a"), ("work", {}, "b")]), DONE, tools=[work]) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a UNKNOWN_TOOL", "call b", "result b"]
        assert "wrok" in seen(s)[0]
        assert "work" in seen(s)[0]
        assert phases(s)[:4] == ["tool/call", "post-execute", "result", "tool/result"]
        results = [message for message in s.model.requests[1].messages if message.source.get("kind") == "tool"]
        assert [message.id for message in results] == [data.message.id for data in s.data(ToolResultEvent)]
        assert [reason.kind for reason in s.reasons] == ["completed"]
