"""Public failures of other agent loops, of cancelling: each as it was met there, with what is right."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from lifecycle import Agent, AgentOptions, Hooks, ToolContext, tool
from lifecycle.services.points import POINTS, Mode, OverduePayload
from lifecycle.testing import Beat, Call, Gate, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Finish, ReasoningDelta, TextDelta, ToolCallDelta
from lifecycle.vocabulary.events import AssistantMessageEvent, ToolResultEvent, TurnEnd, TurnStart
from lifecycle.vocabulary.failures import COMPLETED, DISPOSED_CANCEL, PARENT_CANCEL, USER_CANCEL, Aborted
from lifecycle.vocabulary.messages import ReasoningBlock, TextBlock, text_of

from ..conformance.kit import Scene, scene

pytestmark = pytest.mark.anyio
ABORTED = Aborted(reason=USER_CANCEL)


def shape(s: Scene) -> list[object]:
    """The log without what tells one run from another."""
    found: list[object] = [event.type for event in s.session.events]
    for result in s.data(ToolResultEvent):
        found.append((result.message.source["callId"], None if result.error is None else result.error.code))
    return found


async def test_c118_a_cancel_leaves_the_same_log_whether_tools_are_async_or_not() -> None:
    begun, let_go = threading.Event(), threading.Event()
    started = anyio.Event()

    @tool(name="work")
    async def asynchronous() -> str:
        """Work."""
        started.set()
        await anyio.sleep_forever()
        return "never"

    @tool(name="work")
    def plain() -> str:
        """Work."""
        begun.set()
        let_go.wait(10)
        return "done all the same"

    script = Reply(calls=[("work", {}, "a"), ("work", {}, "b")])
    async with scene(script, tools=[asynchronous]) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await s.idle()
        first = shape(s)
    async with scene(script, tools=[plain]) as s:
        s.agent.followup("go")
        await anyio.to_thread.run_sync(begun.wait, 10)
        s.agent.cancel()
        let_go.set()
        await s.idle()
        second = shape(s)

    assert first == second
    assert first[-2:] == [("a", "ABORTED"), ("b", "ABORTED_BEFORE_DISPATCH")]


async def test_c119_a_cancelled_run_is_over_only_once_its_tool_is() -> None:
    lines, started = list[str](), anyio.Event()

    @tool
    async def work() -> str:
        """Write lines."""
        try:
            started.set()
            while True:
                lines.append("line")
                await anyio.lowlevel.checkpoint()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                lines.append("cleaned up")

    async with scene(Reply(calls=[("work", {})]), tools=[work]) as s:
        s.session.observe(lambda event: lines.append("end") if isinstance(event.data, TurnEnd) else None)
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await s.idle()
        await anyio.wait_all_tasks_blocked()

    assert lines[-2:] == ["cleaned up", "end"]
    assert s.reasons == [ABORTED]


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "in a thread"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
async def test_c119_a_tool_that_ignores_a_cancel_is_named_after_the_grace_period(
    threaded: bool, beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    started, let_go, release = anyio.Event(), anyio.Event(), threading.Event()
    overdue, told = list[OverduePayload](), anyio.Event()

    @tool(parallel=True)
    async def stubborn() -> str:
        """Go on whatever is asked."""
        with anyio.CancelScope(shield=True):
            started.set()
            await let_go.wait()
        return "at last"

    @tool(name="stubborn", parallel=True)
    def in_a_thread() -> str:
        """Go on whatever is asked."""
        anyio.from_thread.run_sync(started.set)
        release.wait(10)
        return "at last"

    @tool(parallel=True)
    async def docile() -> str:
        """End when asked."""
        await anyio.sleep_forever()
        return "never"

    def hear(payload: OverduePayload) -> None:
        overdue.append(payload)
        told.set()

    hooks = Hooks()
    hooks.listen("agent/overdue", hear)
    calls: list[Any] = [("stubborn", {}, "a"), *([("docile", {}, "b")] if beside else [])]
    tools, options = [in_a_thread if threaded else stubborn, docile], AgentOptions(grace_seconds=0)
    async with scene(Reply(calls=calls), tools=tools, hooks=hooks, options=options) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await told.wait()
        assert s.agent.status == "running"  # it is awaited all the same
        s.agent.cancel()
        release.set()
        let_go.set()
        await s.idle()

    (payload,) = overdue
    assert (payload.turn, payload.step, [call.name for call in payload.calls]) == (1, 1, ["stubborn"])
    assert "waits for the tool 'stubborn' (call 'a')" in caplog.text
    assert s.reasons == [ABORTED]


async def test_c119_a_hook_that_holds_a_cancelled_turn_is_told_by_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    started, told = anyio.Event(), anyio.Event()
    hooks = Hooks()
    hooks.listen("agent/overdue", lambda payload: told.set())

    @hooks.on("agent/turn-stopping")
    async def stop(payload: Any) -> None:
        started.set()
        await told.wait()

    async with scene(Reply(text="ok"), hooks=hooks, options=AgentOptions(grace_seconds=0)) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await s.idle()

    assert "has not ended yet: it is in converging/stopping" in caplog.text


async def test_c119_nothing_is_told_of_a_turn_that_settles_in_time(caplog: pytest.LogCaptureFixture) -> None:
    overdue, gate = list[object](), GatedTool("work")
    hooks = Hooks()
    hooks.listen("agent/overdue", overdue.append)
    async with scene(Reply(calls=[("work", {}, "a")]), tools=[gate], hooks=hooks) as s:
        s.agent.followup("go")
        await gate.started("a")
        s.agent.cancel()
        await s.idle()

    assert (overdue, caplog.text) == ([], "")


async def test_c121_a_turn_has_one_end_which_the_first_cause_decides() -> None:
    gate = Gate()
    async with scene([TextDelta(0, "all"), Finish(), gate], [gate, *Reply(text="ok").chunks()]) as s:
        s.agent.followup("one")
        await s.idle()
        assert not s.agent.cancel()  # nothing to cancel; what has ended stays as it is, and what follows is untouched
        s.agent.followup("two")
        await gate.reached()
        assert s.agent.cancel(USER_CANCEL)
        assert not s.agent.cancel(PARENT_CANCEL)
        await s.idle()

        assert s.reasons == [COMPLETED, ABORTED]
        assert len(s.data(TurnStart)) == 2


async def test_c122_what_was_seen_before_the_cancel_is_in_the_history_and_half_a_call_is_not() -> None:
    gate = Gate()
    seen: list[Beat] = [ReasoningDelta(0, "r"), TextDelta(1, "1. a 2. b"), ToolCallDelta(2, "c", "look", '{"x"'), gate]
    async with scene(seen, [gate, Finish()], Reply(text="ok")) as s:
        s.agent.followup("one")
        await gate.reached()
        s.agent.cancel()
        await s.idle()
        (answer,) = s.data(AssistantMessageEvent)
        assert answer.interrupted
        assert [type(block) for block in answer.message.content] == [ReasoningBlock, TextBlock]
        assert text_of(answer.message) == "1. a 2. b"

        s.agent.followup("two")
        s.agent.cancel()
        await s.idle()
        assert len(s.data(AssistantMessageEvent)) == 1  # nothing was seen, so nothing was said


async def test_c121_a_cancel_says_whether_there_was_anything_to_cancel() -> None:
    gate, maintenance = Gate(), Gate()
    async with scene([gate, Finish()], Reply(text="ok")) as s:
        assert not s.agent.cancel()
        s.agent.inject("pending")
        assert not s.agent.cancel()  # it is discarded all the same
        assert s.agent.session.inbox.pending is False
        s.agent.followup("one")
        await gate.reached()
        assert s.agent.cancel(keep_inbox=True)
        s.agent.followup("late")
        assert not s.agent.cancel()
        await s.idle()
        async with anyio.create_task_group() as group:

            async def maintain(signal: object) -> None:
                await maintenance.go()

            group.start_soon(s.agent.run_maintenance, maintain)
            await maintenance.reached()
            assert s.agent.cancel()
            assert not s.agent.cancel()
            maintenance.open()


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_c124_a_prompt_that_comes_while_a_cancel_unwinds_runs_by_itself(withdrawn: bool) -> None:
    started, unwinding, finish = anyio.Event(), anyio.Event(), anyio.Event()

    @tool
    async def work() -> str:
        """Work, and clean up slowly."""
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                unwinding.set()
                await finish.wait()
        return "never"

    async with scene(Reply(calls=[("work", {})]), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup("go")
        await started.wait()
        s.agent.cancel()
        await unwinding.wait()
        late = s.agent.followup("next")
        if withdrawn:
            s.agent.inbox.remove(late.id)
        finish.set()
        await s.idle()

        assert [start.turn for start in s.data(TurnStart)] == ([1] if withdrawn else [1, 2])
        assert s.reasons == ([ABORTED] if withdrawn else [ABORTED, COMPLETED])


IN_TURN = [
    name
    for name, point in POINTS.items()
    if point.mode in (Mode.SERIAL, Mode.WATERFALL) and name not in ("agent/request-error", "tools/guard")
]


@pytest.mark.parametrize("point", IN_TURN)
async def test_c125_a_cancel_reaches_whatever_hook_runs_and_what_was_to_follow_does_not(point: str) -> None:
    hooks, gate, heard = Hooks(), Gate(), list[bool]()
    work = GatedTool("work", free=True)
    waterfall = POINTS[point].mode is Mode.WATERFALL

    async def hook(payload: Any, *rest: Any) -> Any:
        await gate.go()
        signal = getattr(payload, "signal", None)
        heard.append(signal is None or signal.fired)
        return await rest[0]() if waterfall else None

    hooks.listen(point, hook)
    async with scene(Reply(calls=[("work", {})]), Reply(text="ok"), tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await gate.reached()
        before = len(work.calls)
        s.agent.cancel()
        gate.open()
        await s.idle()

        assert s.reasons == [ABORTED]
        assert heard[:1] == [True]
        assert len(work.calls) == before


@pytest.mark.parametrize("swallowing", [False, True])
async def test_c127_the_stream_of_events_ends_after_a_tool_was_cancelled(swallowing: bool) -> None:
    started = anyio.Event()

    @tool(parallel=True)
    async def hang(context: ToolContext) -> str:
        """Hang."""
        started.set()
        await anyio.sleep_forever()
        return "never"

    @tool(parallel=True)
    async def swallow() -> str:
        """Swallow a cancellation."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "what cancellation?"
        return "never"

    calls: list[Call] = [("hang", {}), ("swallow", {})] if swallowing else [("hang", {})]
    told: list[str] = []
    with anyio.fail_after(5):
        async with Agent(ScriptedModel(Reply(calls=calls)), tools=[hang, swallow]) as agent:
            stream = agent.events()
            agent.followup("go")
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await started.wait()
                    agent.cancel()

                group.start_soon(cancel)
                async for occurrence in stream:
                    told.append(occurrence.name)
    assert told[-2:] == ["turn/end", "agent/status"]
    assert told.count("tool/result") == len(calls)


@pytest.mark.parametrize("lent", [False, True])
async def test_c119_an_agent_inside_a_tool_is_settled_before_the_call_that_it_answers(lent: bool) -> None:
    gate, told, inner_logs = Gate(), list[str](), list[list[object]]()
    async with anyio.create_task_group() as group:

        @tool(parallel=True)
        async def delegate() -> str:
            """Ask another agent."""
            inner = Agent(ScriptedModel([gate, Finish()]), task_group=group if lent else None)
            inner.session.observe(lambda event: told.append(event.type))
            try:
                async with inner:
                    inner.followup("look into it")
                    await inner.when_idle()
            finally:
                inner_logs.append(
                    [event.data.reason for event in inner.session.events if isinstance(event.data, TurnEnd)]
                )
            return "never"

        async with scene(Reply(calls=[("delegate", {}), ("delegate", {})]), Reply(text="ok"), tools=[delegate]) as s:
            s.session.observe(lambda event: told.append(f"outer {event.type}"))
            s.agent.followup("go")
            await gate.reached()
            s.agent.cancel()
            await s.idle()
            assert inner_logs == [[Aborted(reason=DISPOSED_CANCEL)]] * 2
            assert max(n for n, name in enumerate(told) if name == "turn/end") < told.index("outer tool/result")
            assert shape(s)[-2:] == [("call-1-1", "ABORTED"), ("call-1-2", "ABORTED")]
            await s.say("more")
            assert s.reasons == [ABORTED, COMPLETED]
