"""Group TLS: which calls of an answer run when, and in which order their results are committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lifecycle import Accept, AgentOptions, Allow, Hooks, PromptAssembly, Session, Tool, ToolContext, tool
from lifecycle.services.listeners import Next
from lifecycle.services.points import AssemblePayload, CallPayload, EventPayload, PostCallPayload
from lifecycle.services.tools import Parallel
from lifecycle.testing import Call, GatedTool, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import Event, ToolCallEvent, ToolResultEvent
from lifecycle.vocabulary.failures import Errored
from lifecycle.vocabulary.messages import text, text_of
from lifecycle.vocabulary.values import FrozenDict

from .calls import DONE, answered, asks, calls_and_results, quiet, told
from .kit import scene

pytestmark = pytest.mark.anyio


# -- TLS-01 to TLS-03: when, with what, and how ---------------------------------------------------------------------


async def test_tls_01_calls_run_after_the_message_and_its_live_end_and_before_the_step_ends() -> None:
    async with scene(asks("a", "b"), DONE, tools=[GatedTool(parallel=False, free=True)]) as s:
        await s.say("go")

        begin = s.trace.names().index("assistant/message")
        assert s.trace.names()[begin : s.trace.names().index("step/end") + 1] == [
            "assistant/message",
            "agent/assistant-stream end",
            *["tool/call", "tools/pre-execute", "tools/guard", "tools/execute"],
            *["tools/post-execute", "tools/result", "tool/result"],
            *["tool/call", "tools/pre-execute", "tools/guard", "tools/execute"],
            *["tools/post-execute", "tools/result", "tool/result"],
            "step/end",
        ]


async def test_tls_01_a_token_ceiling_runs_no_calls_and_an_answer_without_calls_schedules_nothing() -> None:
    work = GatedTool(free=True)
    cut = Reply(text="I would", calls=[("work", {}, "a")], finish=FinishKind.MAX_TOKENS)
    async with scene(cut, DONE, tools=[work]) as s:
        await s.say("one", "two")

        assert work.calls == []
        assert calls_and_results(s.session) == []
        assert not [name for name in s.trace.names() if name.startswith("tools/")]


@pytest.mark.parametrize("finish", [FinishKind.STOP, FinishKind.PAUSE])
async def test_tls_01_calls_run_whatever_other_finish_the_answer_has(finish: FinishKind) -> None:
    answer = Reply(calls=[("work", {}, "a")], finish=finish)
    async with scene(answer, DONE, tools=[GatedTool(free=True)]) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a"]
        assert len(s.model.requests) == 2


@pytest.mark.parametrize(
    ("raw", "seen", "error"),
    [
        ("", {}, None),
        ('{"path": "a", "lines": [1, 2]}', {"path": "a", "lines": (1, 2)}, None),
        ('{"path": ', '{"path": ', "INVALID_ARGUMENTS"),
    ],
)
async def test_tls_02_arguments_are_parsed_and_the_record_keeps_the_raw_text(
    raw: str, seen: object, error: str | None
) -> None:
    work, hooks, given = GatedTool(free=True), Hooks(), list[object]()

    @hooks.on("tools/pre-execute")
    async def look(payload: CallPayload, next: Next[Any]) -> Any:
        given.append(payload.arguments)
        return await next()

    async with scene(Reply(calls=[("work", raw, "a")]), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert given == [seen]
        assert s.data(ToolCallEvent)[0].arguments == raw
        assert calls_and_results(s.session) == ["call a", "result a" if error is None else f"result a {error}"]
        assert len(work.calls) == (error is None)


async def test_tls_02_a_hook_may_mend_what_was_no_json() -> None:
    work, hooks = GatedTool(free=True), Hooks()
    hooks.listen("tools/pre-execute", lambda payload, next: Allow(FrozenDict(path="mended")))
    async with scene(Reply(calls=[("work", "{", "a")]), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert work.calls == [("a", {"path": "mended"})]
        assert s.data(ToolCallEvent)[0].arguments == "{"


def says(answer: object) -> Callable[[FrozenDict], object]:
    """A classifier that says the same of every call; it raises an exception."""

    def classify(_: FrozenDict) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return classify


SAFE: Parallel = lambda arguments: arguments["safe"]  # noqa: E731


@pytest.mark.parametrize(
    ("parallel", "raw", "overlaps"),
    [
        (True, "{}", True),
        (SAFE, '{"safe": true}', True),
        (SAFE, '{"safe": false}', False),
        (SAFE, "{}", False),  # a KeyError
        (says(True), '{"unfinished', False),
        (True, "[1]", False),
        (False, "{}", False),
        (says(1), "{}", False),
        (says("yes"), "{}", False),
        (says(None), "{}", False),
        (says(ValueError("no idea")), "{}", False),
    ],
)
async def test_tls_03_a_call_is_parallel_only_if_its_classifier_says_exactly_true(
    parallel: Parallel, raw: str, overlaps: bool
) -> None:
    slow = GatedTool("slow", parallel=True)
    asked = GatedTool("asked", parallel=parallel, free=True)
    calls: list[Call] = [("slow", {}, "a"), ("asked", raw, "b")]
    async with scene(Reply(calls=calls), DONE, tools=[slow, asked]) as s:
        s.agent.followup("go")
        await slow.started("a")
        await quiet()

        assert [call.call_id for call in s.data(ToolCallEvent)] == (["a", "b"] if overlaps else ["a"])
        slow.release_all()
        await s.idle()


async def test_tls_03_an_unknown_tool_is_exclusive() -> None:
    slow = GatedTool("slow")
    calls: list[Call] = [("slow", {}, "a"), ("nobody", {}, "b"), ("slow", {}, "c")]
    async with scene(Reply(calls=calls), DONE, tools=[slow]) as s:
        s.agent.followup("go")
        await slow.started("a")
        await quiet()
        assert calls_and_results(s.session) == ["call a"]

        slow.release_all()
        await s.idle()
        assert calls_and_results(s.session) == [
            "call a",
            "result a",
            "call b",
            "result b UNKNOWN_TOOL",
            "call c",
            "result c",
        ]


# -- TLS-04 to TLS-09: barriers, the pool, and the order of what is committed ---------------------------------------


async def test_tls_04_an_exclusive_call_runs_alone_between_what_is_committed_and_what_has_not_started() -> None:
    near, alone = GatedTool("near"), GatedTool("alone", parallel=False)
    order = [("near", "a"), ("near", "b"), ("alone", "x"), ("near", "c"), ("near", "d")]
    async with scene(Reply(calls=[(name, {}, id) for name, id in order]), DONE, tools=[near, alone]) as s:
        s.agent.followup("go")
        await near.started("a", "b")
        near.release("b")  # settled, and waiting for its turn to be committed
        await near.finished("b")
        await quiet()
        assert calls_and_results(s.session) == ["call a", "call b"]

        near.release("a")
        await alone.started("x")
        await quiet()
        assert calls_and_results(s.session) == ["call a", "call b", "result a", "result b", "call x"]
        assert near.running == 0

        alone.release("x")
        await near.started("c", "d")
        assert calls_and_results(s.session)[5:] == ["result x", "call c", "call d"]
        near.release_all()
        await s.idle()
        assert calls_and_results(s.session)[8:] == ["result c", "result d"]


async def test_tls_04_two_exclusive_calls_run_one_after_the_other() -> None:
    alone = GatedTool(parallel=False)
    async with scene(asks("x", "y"), DONE, tools=[alone]) as s:
        s.agent.followup("go")
        await alone.started("x")
        await quiet()
        assert calls_and_results(s.session) == ["call x"]

        alone.release_all()
        await s.idle()
        assert calls_and_results(s.session) == ["call x", "result x", "call y", "result y"]
        assert alone.most == 1


async def test_tls_05_a_settled_call_makes_room_for_the_next_without_waiting_for_the_others() -> None:
    work = GatedTool()
    async with scene(asks(*"abcde"), DONE, tools=[work], options=AgentOptions(max_parallel_tools=2)) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        await quiet()
        assert calls_and_results(s.session) == ["call a", "call b"]

        for settling, next in (("b", "c"), ("c", "d"), ("d", "e")):  # `a` runs all the while
            work.release(settling)
            await work.started(next)
            await quiet()
            assert calls_and_results(s.session)[-1] == f"call {next}"
            assert work.running == 2
        work.release_all()
        await s.idle()
        assert work.most == 2


async def test_tls_05_the_cap_is_ten_if_nothing_is_said_and_one_is_serial() -> None:
    work = GatedTool()
    async with scene(asks(*"abcdefghijkl"), DONE, tools=[work]) as s:
        s.agent.followup("go")
        await work.started("j")
        await quiet()
        assert work.running == 10
        work.release_all()
        await s.idle()

    serial = GatedTool(free=True)
    async with scene(asks(*"abc"), DONE, tools=[serial], options=AgentOptions(max_parallel_tools=1)) as s:
        await s.say("go")
        assert serial.most == 1
        assert calls_and_results(s.session) == ["call a", "result a", "call b", "result b", "call c", "result c"]


async def test_tls_05_the_cap_is_read_whenever_a_call_could_start() -> None:
    work, cap = GatedTool(), [1]
    async with scene(asks(*"abcd"), DONE, tools=[work], options=AgentOptions(max_parallel_tools=lambda _: cap[0])) as s:
        s.agent.followup("go")
        await work.started("a")
        await quiet()
        assert work.running == 1

        cap[0] = 3
        work.release("a")
        await work.started("b", "c", "d")
        assert work.running == 3
        work.release_all()
        await s.idle()


async def test_tls_06_a_call_that_turned_exclusive_drains_the_pool_and_becomes_the_next_barrier() -> None:
    exclusive, hooks = set[object](), Hooks()
    work = GatedTool(parallel=lambda arguments: arguments["n"] not in exclusive)
    hooks.listen("tools/result", lambda payload: exclusive.add(3) if payload.call.id == "a" else None)
    calls: list[Call] = [("work", {"n": n}, id) for n, id in enumerate("abcd", 1)]
    async with scene(
        Reply(calls=calls), DONE, tools=[work], hooks=hooks, options=AgentOptions(max_parallel_tools=2)
    ) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        work.release("a")  # its result makes `c` exclusive, which would have taken its place
        await quiet()
        assert calls_and_results(s.session) == ["call a", "call b", "result a"]

        work.release("b")
        await work.started("c")
        await quiet()
        assert calls_and_results(s.session)[3:] == ["result b", "call c"]
        assert work.running == 1

        work.release("c")
        await work.started("d")
        assert calls_and_results(s.session)[5:] == ["result c", "call d"]
        work.release_all()
        await s.idle()


async def test_tls_06_a_call_that_turned_parallel_joins_the_pool() -> None:
    exclusive, hooks = {2}, Hooks()
    work = GatedTool(parallel=lambda arguments: arguments["n"] not in exclusive)
    hooks.listen("tools/result", lambda _: exclusive.clear())
    calls: list[Call] = [("work", {"n": n}, id) for n, id in enumerate("abc", 1)]
    async with scene(Reply(calls=calls), DONE, tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await work.started("a")
        await quiet()
        assert calls_and_results(s.session) == ["call a"]

        work.release("a")
        await work.started("b", "c")
        assert work.running == 2
        work.release_all()
        await s.idle()


async def test_tls_06_a_call_starts_as_what_it_was_classified_as_right_before() -> None:
    asked = list[object]()

    def classify(arguments: FrozenDict) -> bool:
        if arguments["n"] == 2:
            asked.append(arguments)
        return len(asked) <= 1

    work = GatedTool(parallel=classify)
    calls: list[Call] = [("work", {"n": n}, id) for n, id in enumerate("abc", 1)]
    async with scene(Reply(calls=calls), DONE, tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a", "b", "c")  # a second question about `b` would have made it a barrier beside `a`

        work.release_all()
        await s.idle()
        assert len(asked) == 1


async def test_tls_07_a_call_is_recorded_when_it_starts_and_interleaves_with_earlier_results() -> None:
    work = GatedTool()
    async with scene(asks(*"abc"), DONE, tools=[work], options=AgentOptions(max_parallel_tools=2)) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        work.release("a")
        await work.started("c")
        work.release_all()
        await s.idle()

        assert calls_and_results(s.session) == ["call a", "call b", "result a", "call c", "result b", "result c"]


async def test_tls_07_the_record_precedes_the_pre_phase() -> None:
    hooks, seen = Hooks(), list[list[str]]()

    @hooks.on("tools/pre-execute")
    async def look(payload: CallPayload, next: Next[Any]) -> Any:
        log = [event.data for event in payload.agent.session.events]
        seen.append([data.call_id for data in log if isinstance(data, ToolCallEvent)])
        return await next()

    async with scene(asks("a", "b"), DONE, tools=[GatedTool(free=True)], hooks=hooks) as s:
        await s.say("go")

        assert seen == [["a"], ["a", "b"]]


async def test_tls_08_results_posts_and_contexts_come_in_model_order_whatever_settles_first() -> None:
    work, hooks, posts = GatedTool(), Hooks(), list[str]()

    @hooks.on("tools/post-execute")
    async def post(payload: PostCallPayload, next: Next[Any]) -> Any:
        posts.append(f"post {payload.call.id}")
        try:
            await anyio.lowlevel.checkpoint()
            return await next()
        finally:
            posts.append(f"posted {payload.call.id}")

    async with scene(asks(*"abc"), DONE, tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await work.started(*"abc")
        for id in "cba":
            work.release(id)
            await work.finished(id)
            await quiet()
            assert calls_and_results(s.session)[3:] == ([] if id != "a" else ["result a", "result b", "result c"])
        await s.idle()
        assert posts == ["post a", "posted a", "post b", "posted b", "post c", "posted c"]


async def test_tls_08_pre_phases_come_one_at_a_time_and_a_waiting_one_delays_later_starts() -> None:
    work, hooks, gate, pres = GatedTool(), Hooks(), anyio.Event(), list[str]()

    @hooks.on("tools/pre-execute")
    async def pre(payload: CallPayload, next: Next[Any]) -> Any:
        pres.append(payload.call.id)
        if payload.call.id == "b":
            await gate.wait()
        return await next()

    async with scene(asks(*"abc"), DONE, tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await work.started("a")
        await quiet()
        assert pres == ["a", "b"]
        assert calls_and_results(s.session) == ["call a", "call b"]  # `a` runs, `b` is being asked about, `c` waits

        gate.set()
        await work.started("b", "c")
        assert pres == ["a", "b", "c"]
        assert work.running == 3
        work.release_all()
        await s.idle()


async def test_tls_09_each_result_cites_its_own_call_and_keeps_the_models_id() -> None:
    work, hooks = GatedTool(), Hooks()

    @hooks.on("tools/post-execute")
    async def reword(payload: PostCallPayload, next: Next[Any]) -> Any:
        return Accept(content=text(f"reworded {payload.call.id}"))

    async with scene(asks(*"abc"), DONE, tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await work.started(*"abc")
        for id in "bca":
            work.release(id)
        await s.idle()

        log = s.session.events
        starts = {event.data.call_id: event.seq for event in log if isinstance(event.data, ToolCallEvent)}
        cited = {answered(event.data): event.sources for event in log if isinstance(event.data, ToolResultEvent)}
        assert cited == {id: (seq,) for id, seq in starts.items()}
        assert [told(data) for data in s.data(ToolResultEvent)] == [f"reworded {id}" for id in "abc"]


# -- TLS-10 and TLS-11: cancelled, and failed -----------------------------------------------------------------------


async def test_tls_10_a_cancel_drains_what_has_started_and_gives_the_rest_an_error_pair() -> None:
    work = GatedTool()
    options = AgentOptions(max_parallel_tools=2)
    async with scene(asks(*"abcd"), DONE, tools=[work], options=options, only=["tools/pre-execute"]) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        s.trace.clear()
        s.agent.cancel()
        await s.idle()

        assert s.trace.lines() == [
            "D tool/result {turn:1, step:1, message:r1, error:{code:ABORTED}}",
            "D tool/result {turn:1, step:1, message:r2, error:{code:ABORTED}}",
            "D tool/call {turn:1, step:1, callId:c, name:work, arguments:{}}",
            "D tool/result {turn:1, step:1, message:r3, error:{code:ABORTED_BEFORE_DISPATCH}}",
            "D tool/call {turn:1, step:1, callId:d, name:work, arguments:{}}",
            "D tool/result {turn:1, step:1, message:r4, error:{code:ABORTED_BEFORE_DISPATCH}}",
            "D step/end {turn:1, step:1}",
            "D turn/end {turn:1, reason:{kind:aborted, reason:{kind:user}}}",
        ]
        assert calls_and_results(s.session)[2:4] == ["result a ABORTED", "result b ABORTED"]
        assert sorted(id for id, _ in work.calls) == ["a", "b"]
        assert len(s.model.requests) == 1


async def test_tls_10_started_bodies_are_awaited_and_committed_in_order_whenever_they_end() -> None:
    gates = {"a": anyio.Event(), "b": anyio.Event()}

    @tool(parallel=True)
    async def stubborn(context: ToolContext) -> str:
        with anyio.CancelScope(shield=True):
            await gates[context.call.id].wait()
        raise ValueError("this one has failed on its own")

    async with scene(asks("a", "b", tool="stubborn"), tools=[stubborn]) as s:
        s.agent.followup("go")
        await quiet()
        s.agent.cancel()
        gates["b"].set()
        await quiet()
        early = calls_and_results(s.session)
        gates["a"].set()
        await s.idle()

        assert early == ["call a", "call b"]
        assert calls_and_results(s.session)[2:] == ["result a TOOL_FAILED", "result b TOOL_FAILED"]


async def test_tls_10_contexts_of_drained_calls_stay_pending() -> None:
    started = anyio.Event()

    @tool
    async def deferring(context: ToolContext) -> None:
        context.defer("remember me")
        started.set()
        await context.signal.wait()

    async with scene(asks("a", tool="deferring"), DONE, tools=[deferring]) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await s.idle()

        assert calls_and_results(s.session) == ["call a", "result a ABORTED"]
        assert [text_of(message) for message in s.agent.inbox.next_step] == ["remember me"]


async def test_tls_10_a_cancelled_host_scope_drains_in_the_same_order() -> None:
    """The posts too: a call that was cut off by the host waits for its turn like any other."""
    hooks, posts, over, session = Hooks(), list[str](), anyio.Event(), Session.memory()

    @tool(parallel=True)
    async def work(context: ToolContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if context.call.id == "b":
                over.set()
            with anyio.CancelScope(shield=True):
                await over.wait()  # `a` ends after `b`

    @hooks.on("tools/post-execute")
    async def post(payload: PostCallPayload, next: Next[Any]) -> Any:
        posts.append(payload.call.id)
        return await next()

    with anyio.CancelScope() as host:
        options = AgentOptions(max_parallel_tools=2)
        async with scene(asks(*"abc"), tools=[work], hooks=hooks, options=options, session=session) as s:
            s.agent.followup("go")
            await quiet()
            host.cancel()
            await s.idle()
    assert calls_and_results(session) == [
        *["call a", "call b", "result a ABORTED", "result b ABORTED"],
        *["call c", "result c ABORTED_BEFORE_DISPATCH"],
    ]
    assert posts == ["a", "b"]
    assert [event.type for event in session.events][-2:] == ["step/end", "turn/end"]


@pytest.mark.parametrize("refused", ["tool/call", "tool/result"])
async def test_tls_11_an_internal_failure_drains_and_fails_the_turn_and_invents_nothing(refused: str) -> None:
    work, hooks, seen = GatedTool(), Hooks(), list[EventPayload]()

    @hooks.on("session/append")
    def veto(payload: EventPayload) -> None:
        if payload.event.type == refused:
            seen.append(payload)
            if len(seen) == (3 if refused == "tool/call" else 1):
                raise OSError("the disk is full")

    options = AgentOptions(max_parallel_tools=3 if refused == "tool/call" else 2)
    async with scene(asks(*"abcd"), DONE, tools=[work], hooks=hooks, options=options) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        if refused == "tool/result":
            work.release("a")
        await quiet()
        assert s.agent.status == "running"  # a body still runs
        assert calls_and_results(s.session) == ["call a", "call b"]

        work.release_all()
        await s.idle()
        assert calls_and_results(s.session) == ["call a", "call b"]
        assert s.durable[-2:] == ["step/end", "turn/end"]
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.message == "OSError: the disk is full"
        assert [line for line in s.trace.lines("L") if "agent/error" in line] == [
            "L agent/error {turn:1, step:1, error:OSError}"
        ]


async def test_tls_11_a_failure_while_draining_still_waits_for_every_body() -> None:
    gate, hooks, began = anyio.Event(), Hooks(), list[str]()

    @tool(parallel=True)
    async def stubborn(context: ToolContext) -> None:
        began.append(context.call.id)
        if context.call.id == "b":
            with anyio.CancelScope(shield=True):
                await gate.wait()
            began.remove("b")
        else:
            await context.signal.wait()

    @hooks.on("session/append")
    def veto(payload: EventPayload) -> None:
        if payload.event.type == "tool/result":
            raise OSError("the disk is full")

    async with scene(asks("a", "b", tool="stubborn"), tools=[stubborn], hooks=hooks) as s:
        s.agent.followup("go")
        await quiet()
        s.agent.cancel()
        await quiet()
        still, log = "b" in began, s.durable[-2:]
        gate.set()
        await s.idle()
        assert still
        assert log == ["tool/call", "tool/call"]
        assert s.durable[-2:] == ["step/end", "turn/end"]
        assert s.reasons[0].kind == "aborted"


# -- TLS-12 and TLS-13: what results ask for ------------------------------------------------------------------------


@tool
async def conclude(context: ToolContext, how: str = "well") -> str:
    """Ask to end the turn."""
    context.conclude()
    if how == "badly":
        raise ValueError("this one failed")
    return "concluded"


async def test_tls_12_a_concluding_result_needs_no_further_request() -> None:
    async with scene(
        Reply(calls=[("conclude", {}, "a"), ("work", {}, "b")]), DONE, tools=[conclude, GatedTool(free=True)]
    ) as s:
        await s.say("go")

        assert len(s.model.requests) == 1
        assert calls_and_results(s.session) == ["call a", "result a", "call b", "result b"]
        assert s.trace.names()[-3:] == ["agent/turn-stopping", "turn/end", "agent/status"]
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_tls_12_pending_next_step_input_goes_on_all_the_same() -> None:
    hooks = Hooks()
    hooks.listen("tools/result", lambda payload: payload.agent.steer("not yet"))
    async with scene(asks("a", tool="conclude"), DONE, tools=[conclude], hooks=hooks) as s:
        await s.say("go")

        assert len(s.model.requests) == 2
        assert text_of(s.model.requests[1].messages[-1]) == "not yet"
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_tls_12_a_failed_result_does_not_conclude() -> None:
    async with scene(asks("a", tool="conclude", how="badly"), DONE, tools=[conclude]) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a TOOL_FAILED"]
        assert len(s.model.requests) == 2


async def test_tls_13_contexts_are_staged_with_their_result_and_admitted_after_all_results() -> None:
    gates = {"a": anyio.Event(), "b": anyio.Event()}

    @tool(parallel=True)
    async def noting(context: ToolContext) -> str:
        id = context.call.id
        await gates[id].wait()
        context.defer(f"first of {id}")
        context.defer(f"second of {id}")
        return "done"

    async with scene(asks("a", "b", tool="noting"), DONE, tools=[noting], only=[]) as s:
        s.agent.followup("go")
        await quiet()
        gates["b"].set()
        await quiet()
        assert s.agent.inbox.next_step == ()  # `b` has settled, but is not committed
        gates["a"].set()
        await s.idle()

        begin = s.durable.index("tool/result")
        assert s.durable[begin : begin + 14] == [
            *["tool/result", "agent/inbox/spliced", "agent/inbox/spliced"],
            *["tool/result", "agent/inbox/spliced", "agent/inbox/spliced"],
            *["step/end", "agent/inbox/spliced", "step/start"],
            *["user/message"] * 4,
            "assistant/message",
        ]
        said = [text_of(message) for message in s.model.requests[1].messages[-4:]]
        assert said == ["first of a", "second of a", "first of b", "second of b"]


async def test_tls_13_a_context_that_is_pending_already_is_not_staged_twice_and_fails_nothing() -> None:
    @tool
    async def stutter(context: ToolContext) -> str:
        context.defer("once")
        context.defer(context.deferred[0])
        return "done"

    async with scene(asks("a", tool="stutter"), DONE, tools=[stutter]) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a"]
        assert [reason.kind for reason in s.reasons] == ["completed"]
        assert text_of(s.model.requests[1].messages[-1]) == "once"


# -- TLS-14 and TLS-15: the tool set of the step --------------------------------------------------------------------


async def test_tls_14_a_tool_that_is_unregistered_meanwhile_runs_as_it_was() -> None:
    hooks = Hooks()
    work = GatedTool(free=True)
    async with scene(asks("a"), asks("b"), DONE, tools=[work], hooks=hooks) as s:
        s.session.observe(lambda event: s.agent.tools.unregister("work") if event.type == "assistant/message" else None)
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a", "call b", "result b UNKNOWN_TOOL"]
        assert [[spec.name for spec in request.tools] for request in s.model.requests] == [["work"], [], []]
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_tls_14_definitions_stay_live_and_what_the_step_was_not_offered_does_not_run() -> None:
    hooks, ran = Hooks(), list[str]()

    def made(name: str, says: str) -> Tool:
        @tool(name=name)
        async def body() -> None:
            ran.append(says)

        return body

    async with scene(
        Reply(calls=[("old", {}, "a"), ("new", {}, "b")]), DONE, tools=[made("old", "old as it was")], hooks=hooks
    ) as s:

        def change(event: Event) -> None:
            if event.type == "assistant/message" and not ran:
                s.agent.tools.unregister("old")
                s.agent.tools.register(made("old", "old as it is"))
                s.agent.tools.register(made("new", "new"))

        s.session.observe(change)
        await s.say("go")

        assert ran == ["old as it is"]
        assert calls_and_results(s.session) == ["call a", "result a", "call b", "result b UNKNOWN_TOOL"]


async def test_tls_14_a_tool_that_the_assembly_hid_does_not_run() -> None:
    hooks, work = Hooks(), GatedTool(free=True)

    @hooks.on("system-prompt/assemble")
    async def hide(payload: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
        return replace(await next(), tools=())

    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        await s.say("go")

        assert calls_and_results(s.session) == ["call a", "result a UNKNOWN_TOOL"]
        assert work.calls == []


def _raise(*_: object) -> Any:
    raise RuntimeError("on purpose")


def _failing(point: str) -> Hooks:
    hooks = Hooks()
    hooks.listen(point, _raise)
    return hooks


def _cancelling(point: str) -> Hooks:
    hooks = Hooks()

    async def cancel(payload: Any, next: Next[Any]) -> Any:
        payload.agent.cancel()
        return await next()

    hooks.listen(point, cancel)
    return hooks


EXITS: dict[str, tuple[Hooks, list[Line]]] = {
    "success": (Hooks(), [asks("a"), DONE]),
    "assembly fails": (_failing("system-prompt/assemble"), [DONE]),
    "shaping fails": (_failing("agent/request"), [DONE]),
    "the stream is refused": (_failing("llm/stream"), [DONE]),
    "the request fails": (Hooks(), [Reply.failure()]),
    "the stream raises": (Hooks(), [[OSError("gone")]]),
    "cancelled in the assembly": (_cancelling("system-prompt/assemble"), [DONE]),
    "cancelled in the request": (_cancelling("agent/request"), [DONE]),
    "cancelled in a tool": (_cancelling("tools/execute"), [asks("a", "b"), DONE]),
    "a tool's hook fails": (_failing("tools/execute"), [asks("a"), DONE]),
}


@pytest.mark.parametrize("exit", EXITS)
async def test_tls_15_the_set_is_disposed_once_after_the_last_result_and_before_the_step_ends(exit: str) -> None:
    hooks, script = EXITS[exit]
    async with scene(*script, tools=[GatedTool(free=True)], hooks=hooks) as s:
        held: list[tuple[str, int]] = []
        s.session.observe(lambda event: held.append((event.type, s.agent.tools.open_sets)))
        await s.say("go")

        ends = [open for type, open in held if type == "step/end"]
        assert ends == [0] * s.durable.count("step/start") != []
        assert all(open == 1 for type, open in held if type in ("tool/call", "tool/result", "assistant/message"))
        assert s.agent.tools.open_sets == 0


async def test_tls_15_a_set_is_disposed_although_preparing_the_call_raised() -> None:
    async with scene(model=ScriptedModel(DONE, preparing=[OSError("no route")])) as s:
        await s.say("go")

        assert s.durable[-2:] == ["step/end", "turn/end"]
        assert s.agent.tools.open_sets == 0
        assert [reason.kind for reason in s.reasons] == ["error"]


async def test_tls_15_a_refused_step_end_does_not_dispose_twice() -> None:
    hooks = Hooks()
    hooks.listen("session/append", lambda payload: _raise() if payload.event.type == "step/end" else None)
    async with scene(asks("a"), tools=[GatedTool(free=True)], hooks=hooks) as s:
        await s.say("go")

        assert s.agent.tools.open_sets == 0
        assert [reason.kind for reason in s.reasons] == ["error"]
