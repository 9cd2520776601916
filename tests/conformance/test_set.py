"""Group SET: every dispatched stream settles exactly once, as a message or as an attempt."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given

from lifecycle import Failure, Hooks, Retry, Session, tool
from lifecycle.errors import ModelError
from lifecycle.services.frames import StreamEnd
from lifecycle.services.points import LlmStreamPayload, RequestErrorPayload, StreamPayload
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from lifecycle.vocabulary.events import AssistantAttempt, AssistantMessageEvent, Event, TurnEnd
from lifecycle.vocabulary.failures import COMPLETED, MAX_TOKENS, USER_CANCEL, Aborted, Errored, FailureCode
from lifecycle.vocabulary.messages import ReasoningBlock, TextBlock, text_of
from lifecycle.vocabulary.stream import TimedStream
from lifecycle.vocabulary.values import FrozenDict

from ..vocabulary.strategies import recorded, timed_chunks
from .kit import Scene, scene

pytestmark = pytest.mark.anyio

Next = Callable[[], Awaitable[AsyncIterator[Chunk]]]
STREAM = "agent/assistant-stream"
SETTLED = ("assistant/message", "assistant/attempt")


@tool
def act() -> str:
    """Act."""
    return "done"


def retrying(times: int = 100) -> Hooks:
    """Hooks that ask for another attempt, so many times."""
    hooks, left = Hooks(), [times]

    @hooks.on("agent/request-error")
    def retry(payload: RequestErrorPayload, next: Callable[[], Awaitable[Retry | None]]) -> Retry | None:
        left[0] -= 1
        return Retry() if left[0] >= 0 else None

    return hooks


def embedded(data: AssistantMessageEvent | AssistantAttempt) -> list[Chunk]:
    return [chunk for chunk, _ in data.stream.chunks()]


def settlements(s: Scene) -> list[str]:
    return [name for name in s.durable if name in SETTLED]


def asked(s: Scene, nth: int) -> list[str]:
    """The texts of the messages that a request was made with."""
    return [text_of(message) for message in s.model.requests[nth].messages]


@pytest.mark.parametrize(
    ("reply", "content", "reason"),
    [
        (Reply(text="a", usage=Usage(input_tokens=3)), (TextBlock(text="a"),), COMPLETED),
        (Reply(), (), COMPLETED),
        (Reply(calls=[("act", "{")], finish=FinishKind.MAX_TOKENS), (), MAX_TOKENS),
        (Reply(finish=FinishKind.CONTENT_FILTER), (), COMPLETED),
        (Reply(finish=FinishKind.REFUSAL), (), COMPLETED),
    ],
    ids=["text", "empty", "token ceiling", "content filter", "refusal"],
)
async def test_set_01_a_call_that_finishes_is_one_message(reply: Reply, content: tuple[Any, ...], reason: Any) -> None:
    async with scene(reply, tools=[act]) as s:
        await s.say("go")

        (answer,) = s.data(AssistantMessageEvent)
        assert (answer.turn, answer.step, answer.message.content) == (1, 1, content)
        assert embedded(answer) == list(reply.chunks())
        assert answer.usage == reply.usage
        assert reply.chunks()[-1] == Finish(answer.finish)
        assert answer.interrupted is None
        assert answer.message.source == FrozenDict(kind="model", provider="scripted", model="script-1")
        assert settlements(s) == ["assistant/message"]
        assert s.reasons == [reason]


async def test_set_01_an_empty_answer_that_the_adapter_calls_a_failure_is_an_attempt_that_may_be_retried() -> None:
    empty = Reply.failure(FailureCode.EMPTY_RESPONSE, retryable=True)
    async with scene(empty, Reply(text="ok"), hooks=retrying()) as s:
        await s.say("go")

        assert settlements(s) == ["assistant/attempt", "assistant/message"]
        assert s.reasons == [COMPLETED]


async def test_set_02_a_message_without_content_stays_in_the_log_but_is_no_history() -> None:
    usage = Usage(input_tokens=3, output_tokens=0)
    async with scene(Reply(usage=usage), Reply(text="ok")) as s:
        await s.say("first", "second")

        assert s.data(AssistantMessageEvent)[0].usage == usage
        assert asked(s, 1) == ["first", "second"]
        assert [text_of(message) for message in s.session.derive_messages()] == ["first", "second", "ok"]


async def test_set_03_every_failed_call_is_an_attempt_before_recovery_is_asked() -> None:
    script: list[Line] = [Reply.failure("OVERLOADED", text="pa"), [OSError("reset")], Reply(text="ok")]
    async with scene(*script, hooks=retrying(), only=[STREAM, "agent/request-error"]) as s:
        await s.say("go")

        assert [name for name in s.trace.names() if name in SETTLED or name.startswith("agent/")][2:] == [
            *(f"{STREAM} start", f"{STREAM} chunk", "assistant/attempt", f"{STREAM} end", "agent/request-error"),
            *(f"{STREAM} start", f"{STREAM} chunk", "assistant/attempt", f"{STREAM} end", "agent/request-error"),
            *(f"{STREAM} start", f"{STREAM} chunk", "assistant/message", f"{STREAM} end"),
        ]
        first, second = s.data(AssistantAttempt)
        assert (first.turn, first.step, second.turn, second.step) == (1, 1, 1, 1)
        assert embedded(first)[0] == TextDelta(0, "pa")
        assert embedded(second) == [Finish(FinishKind.ERROR, Failure(message="OSError: reset"))]


async def test_set_03_the_last_failure_is_an_attempt_too() -> None:
    async with scene(Reply.failure("OVERLOADED"), Reply.failure("QUOTA"), hooks=retrying(1)) as s:
        await s.say("go")

        assert settlements(s) == ["assistant/attempt"] * 2
        assert isinstance(s.reasons[0], Errored)


def outcome_of_a_turn(kind: str, gate: Gate) -> Line:
    """A script line for each way in which a stream can end; those that wait at the gate are cancelled there."""
    match kind:
        case "message":
            return Reply(text="a")
        case "attempt":
            return Reply.failure("OVERLOADED", text="a")
        case "interrupted":
            return [TextDelta(0, "a"), gate, Finish()]
        case _:
            return [ToolCallDelta(0, "c", "act"), gate, Finish()]


@pytest.mark.parametrize("kind", ["message", "attempt", "interrupted", "cut"])
async def test_set_04_the_one_end_frame_names_a_record_that_is_in_the_log(kind: str) -> None:
    hooks, gate, ends, found = Hooks(), Gate(), list[StreamEnd](), list[Event]()

    async with scene(outcome_of_a_turn(kind, gate), hooks=hooks) as s:

        @hooks.on(STREAM)
        def look(payload: StreamPayload) -> None:
            if isinstance(payload.frame, StreamEnd):
                ends.append(payload.frame)
                assert payload.frame.seq is not None
                found.append(s.session.events[payload.frame.seq])

        s.agent.followup("go")
        if kind in ("interrupted", "cut"):
            await gate.reached()
            s.agent.cancel()
        await s.idle()

        assert [(end.outcome, end.event_type, end.seq) for end in ends] == [
            ("committed", event.type, event.seq) for event in found
        ]
        assert [event.type for event in found] == settlements(s)
        assert len(found) == 1


@pytest.mark.parametrize(
    ("kind", "reason"), [("message", Errored), ("attempt", Errored), ("interrupted", Aborted), ("cut", Aborted)]
)
async def test_set_04_a_refused_settlement_is_tried_once_and_its_end_is_abandoned(kind: str, reason: type[Any]) -> None:
    hooks, gate, refused, ends = Hooks(), Gate(), list[str](), list[StreamEnd]()

    def refuse(event: Event) -> None:
        if event.type in SETTLED:
            refused.append(event.type)
            raise OSError("refused")

    def hear(payload: StreamPayload) -> None:
        if isinstance(payload.frame, StreamEnd):
            ends.append(payload.frame)

    hooks.listen(STREAM, hear)
    async with scene(outcome_of_a_turn(kind, gate), hooks=hooks) as s:
        s.session.veto(refuse)
        s.agent.followup("go")
        if kind in ("interrupted", "cut"):
            await gate.reached()
            s.agent.cancel()
        await s.idle()

        assert len(refused) == 1
        assert [(end.outcome, end.event_type, end.seq) for end in ends] == [("abandoned", None, None)]
        assert s.durable[-2:] == ["step/end", "turn/end"]
        assert isinstance(s.reasons[0], reason)


@given(timed=timed_chunks)
def test_set_05_the_embedded_stream_gives_back_what_was_accepted(timed: list[tuple[Chunk, int]]) -> None:
    data = AssistantAttempt(turn=1, step=1, stream=recorded(timed))

    assert list(AssistantAttempt.model_validate_json(data.encode()).stream.chunks()) == timed


async def test_set_05_times_boundaries_and_unknown_fields_survive_a_whole_turn() -> None:
    strange = TextDelta(0, "c", FrozenDict({"x-trace": 7}))
    said: list[Chunk] = [TextDelta(0, "a"), TextDelta(0, "b"), strange, ReasoningDelta(1, ""), Finish()]
    times = [5_000, 4_000, 4_001, 9_000, 8_999]
    async with scene(said) as s:
        left = iter([*times, *range(10_000, 10_100)])

        @s.hooks.on("llm/stream")
        def start_the_clock(payload: LlmStreamPayload, next: Next) -> Awaitable[AsyncIterator[Chunk]]:
            s.session.clock = lambda: builtins.next(left)
            return next()

        await s.say("go")

        stream = s.data(AssistantMessageEvent)[0].stream
        assert list(stream.chunks()) == list(zip(said, times, strict=True))
        assert TimedStream.from_json(json.loads(json.dumps(stream.to_json()))) == stream


# -- cancelled while streaming ----------------------------------------------------------------------------------------

USAGE = Usage(input_tokens=3)


async def cut_off(s: Scene, gate: Gate) -> None:
    """Cancel the turn at the gate in its stream."""
    s.agent.followup("go")
    await gate.reached()
    s.agent.cancel()
    await s.idle()


@pytest.mark.parametrize(
    ("said", "content", "usage"),
    [
        ([TextDelta(0, "par")], (TextBlock(text="par"),), None),
        ([BlockEnd(0, TextBlock(text="closed")), UsageReport(USAGE)], (TextBlock(text="closed"),), USAGE),
        (
            [ReasoningDelta(0, "hm"), TextDelta(1, "so"), ToolCallDelta(2, "c", "act", "{}"), BlockStart(3, "strange")],
            (ReasoningBlock(text="hm"), TextBlock(text="so")),
            None,
        ),
        ([TextDelta(0, "\n"), TextDelta(1, "seen")], (TextBlock(text="seen"),), None),
    ],
    ids=["open", "closed, with usage", "call and unknown dropped", "blank dropped"],
)
async def test_set_06_a_visible_prefix_is_kept_as_an_interrupted_message(
    said: list[Chunk], content: tuple[Any, ...], usage: Usage | None
) -> None:
    gate = Gate()
    async with scene([*said, gate, Finish()], Reply(text="ok"), tools=[act]) as s:
        await cut_off(s, gate)

        (answer,) = s.data(AssistantMessageEvent)
        assert answer.interrupted is True
        assert answer.finish is FinishKind.ABORTED
        assert (answer.message.content, answer.usage, embedded(answer)) == (content, usage, said)
        assert s.durable[-3:] == ["assistant/message", "step/end", "turn/end"]
        assert s.reasons == [Aborted(reason=USER_CANCEL)]

        await s.say("on")
        assert s.model.requests[1].messages[1] == answer.message


@pytest.mark.parametrize(
    "said",
    [[], [ToolCallDelta(0, "c", "act")], [TextDelta(0, " \n")], [BlockStart(0, "strange")], [UsageReport(USAGE)]],
    ids=["nothing", "call", "blanks", "unknown", "usage"],
)
async def test_set_07_a_stream_cut_off_with_nothing_visible_is_an_attempt(said: list[Chunk]) -> None:
    gate = Gate()
    async with scene([*said, gate, Finish()], tools=[act]) as s:
        await cut_off(s, gate)

        assert [embedded(attempt) for attempt in s.data(AssistantAttempt)] == [said]
        assert s.data(AssistantMessageEvent) == []
        assert s.durable[-3:] == ["assistant/attempt", "step/end", "turn/end"]
        assert [text_of(message) for message in s.session.derive_messages()] == ["go"]


@pytest.mark.parametrize("point", ["llm/stream", "agent/request", "prepareCall"])
async def test_set_07_a_cancel_before_dispatch_leaves_no_settlement(point: str) -> None:
    hooks, gate = Hooks(), Gate()
    model = ScriptedModel(otherwise=Reply(text="ok"), preparing=[gate] if point == "prepareCall" else ())

    @hooks.on("agent/request")
    async def wait(payload: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        if point == "agent/request":
            await gate.go()
        return await next()

    async with scene(hooks=hooks, model=model) as s:
        if point == "llm/stream":  # the last moment before it: the admission block
            s.session.observe(lambda event: s.agent.cancel() if event.type == "request/context" else None)
            await s.say("go")
        else:
            s.agent.followup("go")
            await gate.reached()
            s.agent.cancel()
            gate.open()
            await s.idle()

        assert settlements(s) == []
        assert not any(name.startswith(STREAM) for name in s.trace.names("L"))
        assert s.model.requests == []


async def test_set_08_a_cancel_during_recovery_settles_nothing_a_second_time() -> None:
    hooks, gate = Hooks(), Gate()

    @hooks.on("agent/request-error")
    async def recover(payload: RequestErrorPayload, next: Any) -> Retry:
        await gate.go()
        return Retry()

    async with scene(Reply.failure("OVERLOADED", text="partly"), hooks=hooks) as s:
        s.agent.followup("go")
        await gate.reached()
        s.agent.cancel()
        gate.open()
        await s.idle()

        assert settlements(s) == ["assistant/attempt"]
        assert s.trace.names("L").count(f"{STREAM} end") == 1
        assert [text_of(message) for message in s.session.derive_messages()] == ["go"]
        assert s.reasons == [Aborted(reason=USER_CANCEL)]


async def test_set_08_a_cancel_at_the_frame_of_the_failure_makes_no_message_of_the_failed_stream() -> None:
    async with scene(Reply.failure("OVERLOADED", text="partly")) as s:

        @s.hooks.on(STREAM)
        def cancel(payload: StreamPayload) -> None:
            if isinstance(getattr(payload.frame, "chunk", None), Finish):
                s.agent.cancel()

        await s.say("go")

        assert settlements(s) == ["assistant/attempt"]
        assert s.reasons == [Aborted(reason=USER_CANCEL)]


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError("wrapper"), "UNKNOWN"), (ModelError(Failure(message="told", code="QUOTA")), "QUOTA")],
)
async def test_set_09_a_stream_whose_wrapper_raises_is_an_attempt_and_the_exception_fails_the_turn(
    error: Exception, code: str
) -> None:
    hooks, heard = Hooks(), list[Any]()

    @hooks.on("llm/stream")
    async def wrap(payload: LlmStreamPayload, next: Next) -> AsyncGenerator[Chunk]:
        seen = 0
        async for chunk in await next():
            if seen == 2:
                raise error
            seen += 1
            yield chunk

    hooks.listen("agent/error", lambda payload: heard.append(payload.error))
    async with scene(Reply(text=["a", "b", "c"]), hooks=hooks) as s:
        await s.say("go")

        assert [embedded(attempt) for attempt in s.data(AssistantAttempt)] == [[TextDelta(0, "a"), TextDelta(0, "b")]]
        assert s.data(AssistantMessageEvent) == []
        assert heard == [error]
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.code == code
        names = s.trace.names()
        assert names[names.index("assistant/attempt") :] == [
            *("assistant/attempt", f"{STREAM} end", "step/end", "agent/error", "turn/end", "agent/status")
        ]


async def test_set_10_a_process_lost_in_mid_stream_leaves_no_trace_of_the_stream() -> None:
    gate = Gate()
    async with scene([TextDelta(0, "a"), gate, Finish()]) as s:
        s.agent.followup("go")
        await gate.reached()

        kept = [Event(*event) for event in s.session.events]
        gate.open()
        await s.idle()

    lost = Session.restored(kept, "lost")
    assert [event.type for event in kept][-3:] == ["user/message", "request/header", "request/context"]
    assert lost.open_turn == 1
    assert not [event for event in lost.events if event.type in (*SETTLED, TurnEnd.type, "step/end")]
    assert [text_of(message) for message in lost.derive_messages()] == ["go"]


async def test_set_10_who_resumes_it_finds_the_step_open_and_asks_again_without_the_stream() -> None:
    gate = Gate()
    async with scene([TextDelta(0, "a"), gate, Finish()]) as s:
        s.agent.followup("go")
        await gate.reached()
        lost = Session.restored(tuple(s.session.events), "lost")
        gate.open()
    assert [event.type for event in lost.events if event.type.startswith("step/")] == ["step/start"]

    async with scene(session=lost) as again:
        assert again.durable[-2:] == ["step/end", "turn/end"]
        await again.say("go on")

        assert [text_of(message) for message in again.model.requests[0].messages] == ["go", "go on"]
        assert again.durable.count("assistant/attempt") == 0


async def test_set_11_attempts_never_enter_the_derived_messages() -> None:
    script = [Reply.failure("OVERLOADED", text="failed"), Reply(text="ok"), Reply(text="again")]
    async with scene(*script, hooks=retrying()) as s, scene(*script[1:]) as t:
        await s.say("one", "two")
        await t.say("one", "two")

        assert asked(s, 1) == ["one"]
        assert [text_of(m) for m in s.session.derive_messages()] == [text_of(m) for m in t.session.derive_messages()]
        before, after = s.model.requests[1].messages, s.model.requests[2].messages
        assert all(old is new for old, new in zip(before, after, strict=False))
        assert s.session.surface.generation == 0
