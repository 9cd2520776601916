"""Group STR: one stream of one request, from the prepared call to its last chunk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import anyio
import pytest

from lifecycle import AgentOptions, CallConfig, CancelSignal, Failure, Hooks, PreparedCall, Retry, tool
from lifecycle.errors import InvalidPreparedCallError, ModelError
from lifecycle.services.frames import StreamChunk, StreamEnd, StreamStart
from lifecycle.services.model import BoundCall
from lifecycle.services.points import LlmStreamPayload, StreamPayload
from lifecycle.testing import Gate, Reply
from lifecycle.vocabulary.chunks import BlockEnd, Chunk, Finish, FinishKind, TextDelta, ToolCallDelta
from lifecycle.vocabulary.events import AssistantAttempt, AssistantMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, MAX_TOKENS, USER_CANCEL, Aborted, Errored, FailureCode
from lifecycle.vocabulary.messages import TextBlock, text_of
from lifecycle.vocabulary.requests import Request

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

Next = Callable[[], Awaitable[AsyncIterator[Chunk]]]
Frame = StreamStart | StreamChunk | StreamEnd
STREAM = "agent/assistant-stream"


class Frames:
    """The frames that a listener gets."""

    def __init__(self, hooks: Hooks) -> None:
        self.all: list[Frame] = []
        hooks.listen(STREAM, self._hear)

    def _hear(self, payload: StreamPayload) -> None:
        self.all.append(payload.frame)

    @property
    def chunks(self) -> list[Chunk]:
        return [frame.chunk for frame in self.all if isinstance(frame, StreamChunk)]


def embedded(data: AssistantMessageEvent | AssistantAttempt) -> list[Chunk]:
    return [chunk for chunk, _ in data.stream.chunks()]


def only_failure(s: Scene) -> Failure:
    (reason,) = s.reasons
    assert isinstance(reason, Errored)
    return reason.error


async def test_str_01_a_wrapper_of_the_stream_adds_a_chunk_and_delays_another() -> None:
    hooks, gate = Hooks(), Gate("wrapper")
    frames = Frames(hooks)

    @hooks.on("llm/stream")
    async def wrap(payload: LlmStreamPayload, next: Next) -> AsyncIterator[Chunk]:
        inner = await next()

        async def chunks() -> AsyncGenerator[Chunk]:
            yield TextDelta(0, "first, ")
            await gate.go()
            async for chunk in inner:
                yield chunk

        return chunks()

    async with scene(Reply(text="last"), hooks=hooks) as s:
        s.agent.followup("go")
        await gate.reached()
        assert s.model.requests == []  # the adapter's stream is made lazily
        assert frames.chunks == [TextDelta(0, "first, ")]
        gate.open()
        await s.idle()

        (answer,) = s.data(AssistantMessageEvent)
        said: list[Chunk] = [TextDelta(0, "first, "), TextDelta(0, "last"), Finish()]
        assert frames.chunks == embedded(answer) == said
        assert text_of(answer.message) == "first, last"
        assert s.model.streaming == 0


async def test_str_01_a_replacement_serves_the_request_and_the_adapter_is_not_called() -> None:
    hooks = Hooks()

    @hooks.on("llm/stream")
    async def replace(payload: LlmStreamPayload, next: Next) -> AsyncGenerator[Chunk]:
        yield TextDelta(0, f"to {text_of(payload.request.messages[-1])}")
        yield Finish()

    async with scene(hooks=hooks) as s:
        await s.say("go")

        assert text_of(s.data(AssistantMessageEvent)[0].message) == "to go"
        assert (s.model.prepared, s.model.requests) == (1, [])


async def test_str_02_each_chunk_is_one_live_frame_and_no_record() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    async with scene(Reply(text=["a", "b", "c", "d"]), hooks=hooks) as s:
        await s.say("go")

        start, *chunks, end = frames.all
        settled = s.event("assistant/message")
        assert start == StreamStart("1.1.1", 1, turn=1, step=1)
        assert [(f.index, f.revision, f.attempt_id) for f in chunks if isinstance(f, StreamChunk)] == [
            (n, 1, "1.1.1") for n in range(5)
        ]
        assert frames.chunks == [*(TextDelta(0, text) for text in "abcd"), Finish()]
        assert end == StreamEnd("1.1.1", 1, 5, "committed", "assistant/message", settled.seq)
        assert s.durable[-5:] == ["request/header", "request/context", "assistant/message", "step/end", "turn/end"]


async def test_str_02_a_frame_has_the_time_that_the_record_has() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    async with scene(Reply(text=["a", "b"]), hooks=hooks) as s:
        ticks = iter(range(100, 1000, 7))
        s.session.clock = lambda: next(ticks)
        await s.say("go")

        told = [(f.chunk, f.time) for f in frames.all if isinstance(f, StreamChunk)]
        assert told == list(s.data(AssistantMessageEvent)[0].stream.chunks())


async def test_str_02_every_attempt_of_a_step_has_a_revision_counted_from_one() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    hooks.listen("agent/request-error", lambda payload, next: Retry())
    async with scene(Reply.failure("OVERLOADED"), Reply(text="ok"), hooks=hooks) as s:
        await s.say("go")

        assert [(f.type, f.revision) for f in frames.all] == [
            *(("start", 1), ("chunk", 1), ("end", 1)),
            *(("start", 2), ("chunk", 2), ("chunk", 2), ("end", 2)),
        ]
        assert len({frame.attempt_id for frame in frames.all}) == 2


class Deaf:
    """A stream that takes no notice of a cancellation: its second chunk comes although it was cancelled."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __call__(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        return self._stream()

    async def _stream(self) -> AsyncGenerator[Chunk]:
        yield TextDelta(0, "before")
        with anyio.CancelScope(shield=True):
            await self._gate.go()
        yield TextDelta(0, " after")
        yield Finish()


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
async def test_str_03_a_chunk_that_comes_after_the_abort_is_dropped_everywhere(wrapped: bool) -> None:
    hooks, gate = Hooks(), Gate()
    frames = Frames(hooks)
    if wrapped:
        hooks.listen("llm/stream", lambda payload, next: next())
    async with scene(Deaf(gate), hooks=hooks) as s:
        s.agent.followup("go")
        await gate.reached()
        s.agent.cancel()
        gate.open()
        await s.idle()

        (answer,) = s.data(AssistantMessageEvent)
        assert frames.chunks == embedded(answer) == [TextDelta(0, "before")]
        assert text_of(answer.message) == "before"
        assert s.reasons == [Aborted(reason=USER_CANCEL)]


async def test_str_03_a_cancel_by_the_listener_of_a_frame_makes_it_the_last_one() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    async with scene(Reply(text=["a", "b", "c"]), hooks=hooks) as s:

        @hooks.on(STREAM)
        def cancel(payload: StreamPayload) -> None:
            if isinstance(payload.frame, StreamChunk):
                s.agent.cancel()

        await s.say("go")

        assert frames.chunks == embedded(s.data(AssistantMessageEvent)[0]) == [TextDelta(0, "a")]
        assert isinstance(frames.all[-1], StreamEnd)


async def test_str_03_a_cancel_by_the_listener_of_the_start_calls_no_adapter() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    async with scene(hooks=hooks) as s:
        hooks.listen(STREAM, lambda payload: s.agent.cancel())
        await s.say("go")

        assert s.model.requests == []
        assert [frame.type for frame in frames.all] == ["start", "end"]
        assert [embedded(attempt) for attempt in s.data(AssistantAttempt)] == [[]]


async def test_str_03_a_wrapper_is_awaited_to_its_end_while_the_adapter_is_cancelled() -> None:
    hooks, held, adapter, cleaned = Hooks(), Gate("wrapper"), Gate("adapter"), list[str]()

    @hooks.on("llm/stream")
    async def wrap(payload: LlmStreamPayload, next: Next) -> AsyncGenerator[Chunk]:
        async for chunk in await next():
            yield chunk
        await held.go()
        cleaned.append("to its end")

    async with scene([TextDelta(0, "a"), adapter, Finish()], hooks=hooks) as s:
        s.agent.followup("go")
        await adapter.reached()
        s.agent.cancel()
        await held.reached()
        assert s.agent.status == "running"
        held.open()
        await s.idle()

        assert cleaned == ["to its end"]
        assert (s.model.streaming, adapter.passed) == (0, 0)


# -- failures of the adapter ----------------------------------------------------------------------------------------


class NoChunk:
    """What fails when its first chunk is asked for."""

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        raise OSError("no chunk")


class NoIterator(NoChunk):
    """What cannot even be iterated."""

    def __aiter__(self) -> AsyncIterator[Chunk]:
        raise OSError("no iterator")


def refuse_dispatch(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
    raise OSError("no dispatch")


def not_iterable(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
    return NoIterator()


def chunkless(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
    return NoChunk()


def coded(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
    raise ModelError(Failure(message="given up", code=FailureCode.ABORTED.value))


def firing(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
    signal.fire(USER_CANCEL)
    raise OSError("cut off")


async def unreadable(request: Request, signal: CancelSignal) -> AsyncGenerator[Chunk]:
    yield Finish(replay=(float("nan"),))


Open = Callable[[Request, CancelSignal], AsyncIterator[Chunk]]


@pytest.mark.parametrize(
    ("open", "kind", "message"),
    [
        (refuse_dispatch, FinishKind.ERROR, "OSError: no dispatch"),
        (not_iterable, FinishKind.ERROR, "OSError: no iterator"),
        (chunkless, FinishKind.ERROR, "OSError: no chunk"),
        (unreadable, FinishKind.ERROR, "NotJsonError: replay: [0] is nan, which JSON cannot carry"),
        (coded, FinishKind.ABORTED, "given up"),
        (firing, FinishKind.ABORTED, "OSError: cut off"),
    ],
    ids=["dispatch", "iterator", "iteration", "no JSON", "code ABORTED", "signal fired"],
)
async def test_str_04_what_an_adapter_raises_is_one_terminal_chunk(open: Open, kind: FinishKind, message: str) -> None:
    config = CallConfig(provider="p", model="m")
    call = BoundCall(PreparedCall(config, open))

    chunks = [chunk async for chunk in call.stream(Request((), (), config, 1, 1, 1), CancelSignal())]

    (finish,) = chunks
    assert isinstance(finish, Finish)
    assert finish.kind is kind
    assert finish.failure is not None
    assert finish.failure.message == message
    with pytest.raises(InvalidPreparedCallError):
        call.stream(Request((), (), config, 1, 1, 1), CancelSignal())


async def test_str_04_an_adapter_that_was_not_found_fails_in_band() -> None:
    async with scene() as s:
        s.agent.models.unregister("scripted")
        await s.say("go")

        (attempt,) = s.data(AssistantAttempt)
        (finish,) = embedded(attempt)
        assert isinstance(finish, Finish)
        assert finish.kind is FinishKind.ERROR
        assert only_failure(s).code == FailureCode.NO_ADAPTER
        assert "agent/request-error" in s.trace.names("L")


async def test_str_04_a_failure_in_mid_stream_keeps_what_came_before_and_is_offered_for_recovery() -> None:
    async with scene([TextDelta(0, "a"), OSError("reset")]) as s:
        await s.say("go")

        (attempt,) = s.data(AssistantAttempt)
        first, last = embedded(attempt)
        assert first == TextDelta(0, "a")
        assert last == Finish(FinishKind.ERROR, Failure(message="OSError: reset"))
        assert s.trace.names("L").count("agent/request-error") == 1


class NotClosing:
    """A stream whose connection cannot be closed."""

    def __init__(self) -> None:
        self._chunks: Iterator[Chunk] = iter([TextDelta(0, "all"), Finish()])

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        return next(self._chunks)

    async def aclose(self) -> None:
        raise OSError("cannot close")


async def test_str_04_an_answer_stands_whose_stream_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(lambda request, signal: NotClosing()) as s:
        await s.say("go")

        assert s.reasons == [COMPLETED]
        assert "could not be closed" in caplog.text


# -- failures of hooks, and aborted finishes --------------------------------------------------------------------------


async def raise_at_once(payload: LlmStreamPayload, next: Next) -> AsyncIterator[Chunk]:
    raise OSError("wrapper")


async def raise_after_all(payload: LlmStreamPayload, next: Next) -> AsyncGenerator[Chunk]:
    async for chunk in await next():
        yield chunk
        raise OSError("wrapper")


async def return_nothing(payload: LlmStreamPayload, next: Next) -> AsyncIterator[Chunk]:
    return cast("AsyncIterator[Chunk]", None)


@pytest.mark.parametrize(
    ("wrap", "name"),
    [(raise_at_once, "OSError"), (raise_after_all, "OSError"), (return_nothing, "IllegalVerdictError")],
)
async def test_str_05_what_a_wrapper_raises_fails_the_turn_without_recovery(
    wrap: Callable[..., Any], name: str
) -> None:
    async with scene(Reply(text=["a", "b"])) as s:
        s.hooks.listen("llm/stream", wrap)
        await s.say("go")

        assert only_failure(s).message.startswith(name)
        assert only_failure(s).code == FailureCode.UNKNOWN
        assert "agent/request-error" not in s.trace.names("L")
        assert s.durable[-3:] == ["assistant/attempt", "step/end", "turn/end"]
        assert s.model.streaming == 0


async def test_str_05_a_raising_listener_of_frames_is_no_wrapper() -> None:
    async with scene(Reply(text="a")) as s:
        s.hooks.listen(STREAM, lambda payload: 1 / 0)
        await s.say("go")

        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("failure", [None, Failure(message="the provider hung up", code="ABORTED")])
async def test_str_06_an_aborted_finish_without_a_cancel_is_a_failed_request(failure: Failure | None) -> None:
    async with scene([TextDelta(0, "a"), Finish(FinishKind.ABORTED, failure)]) as s:
        await s.say("go")

        assert only_failure(s).code == FailureCode.ABORTED
        assert s.durable[-3:] == ["assistant/attempt", "step/end", "turn/end"]
        assert s.trace.names("L").count("agent/request-error") == 1


# -- what a stream amounts to -----------------------------------------------------------------------------------------

ran: list[str] = []


@tool
def act(what: str = "all") -> str:
    """Act."""
    ran.append(what)
    return "done"


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        ([TextDelta(0, "a"), BlockEnd(0, TextBlock(text="whole")), TextDelta(0, "x"), Finish()], "whole", []),
        ([BlockEnd(0, TextBlock(text="1")), BlockEnd(0, TextBlock(text="2")), Finish()], "1", []),
        ([TextDelta(0, "no finish")], "no finish", []),
        ([TextDelta(0, "no reason"), Finish(FinishKind.UNKNOWN)], "no reason", []),
        ([ToolCallDelta(3, None, "act", '{"what": "b"}'), Finish(FinishKind.TOOL_CALLS)], "", ["call-3"]),
        ([TextDelta(0, "cut"), ToolCallDelta(1, "c", "act", "")], "cut", []),
        ([TextDelta(0, "cut"), ToolCallDelta(1, "c", "act", ""), Finish(FinishKind.UNKNOWN)], "cut", []),
    ],
    ids=["end wins", "first end wins", "missing finish", "unknown", "call without id", "incomplete", "incomplete too"],
)
async def test_str_07_a_stream_is_assembled_into_blocks(said: list[Chunk], text: str, calls: list[str]) -> None:
    ran.clear()
    async with scene(said, Reply(text="ok"), tools=[act]) as s:
        await s.say("go")

        answer = s.data(AssistantMessageEvent)[0]
        assert text_of(answer.message) == text
        assert [block.id for block in answer.message.content if block.type == "tool-call"] == calls
        assert s.durable.count("tool/call") == len(ran) == len(calls)
        assert embedded(answer) == said
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize(("replay", "kept"), [(("r0",), ("r0",)), (("r0", "r1"), None)])
async def test_str_07_replay_state_is_kept_only_if_it_lines_up(
    replay: tuple[str, ...], kept: tuple[str, ...] | None
) -> None:
    async with scene(Reply(text="a", replay=replay)) as s:
        await s.say("go")

        assert s.data(AssistantMessageEvent)[0].message.replay == kept


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FinishKind.MAX_TOKENS, MAX_TOKENS), (FinishKind.REFUSAL, COMPLETED), (FinishKind.CONTENT_FILTER, COMPLETED)],
)
@pytest.mark.parametrize("text", ["partly", ""])
async def test_str_08_an_answer_cut_off_or_withheld_runs_no_call(kind: FinishKind, reason: Any, text: str) -> None:
    ran.clear()
    cut = Reply(text=text, calls=[("act", {}), ("act", '{"what": "trunc')], finish=kind)
    async with scene(cut, tools=[act]) as s:
        await s.say("go")

        (answer,) = s.data(AssistantMessageEvent)
        assert answer.finish is kind
        assert [block.type for block in answer.message.content] == (["text"] if text else [])
        assert ran == []
        assert s.durable[-3:] == ["assistant/message", "step/end", "turn/end"]
        assert s.reasons == [reason]


async def test_str_08_replay_entries_of_dropped_calls_go_with_them() -> None:
    cut = Reply(text="a", calls=[("act", {})], finish=FinishKind.MAX_TOKENS, replay=("r0", "r1"))
    async with scene(cut, tools=[act]) as s:
        await s.say("go")

        assert s.data(AssistantMessageEvent)[0].message.replay == ("r0",)


async def test_str_07_a_pausing_provider_is_asked_again_eight_times_in_a_row_at_most() -> None:
    pause = Reply(text="hold on", finish=FinishKind.PAUSE)
    async with scene(*[pause] * 20) as s:
        await s.say("go")

        assert len(s.model.requests) == 9
        assert s.reasons == [COMPLETED]
        assert [data.finish for data in s.data(AssistantMessageEvent)] == [FinishKind.PAUSE] * 9


async def test_str_07_pauses_are_counted_in_a_row() -> None:
    pause, ask = Reply(text="hold on", finish=FinishKind.PAUSE), Reply(calls=[("act", {})])
    script = [pause, pause, ask, pause, pause, ask, Reply(text="ok")]
    async with scene(*script, tools=[act], options=AgentOptions(max_pauses=2)) as s:
        await s.say("go")

        assert len(s.model.requests) == len(script)


async def test_str_07_text_of_a_model_is_mended_before_it_is_kept() -> None:
    hooks = Hooks()
    frames = Frames(hooks)
    async with scene([TextDelta(0, "a\ud800"), BlockEnd(1, TextBlock(text="\udc00b")), Finish()], hooks=hooks) as s:
        await s.say("go")

        (answer,) = s.data(AssistantMessageEvent)
        assert text_of(answer.message) == "a\ufffd\ufffdb"
        assert frames.chunks == embedded(answer)


async def test_str_06_words_of_a_failure_never_keep_the_turn_from_ending() -> None:
    async with scene(Reply.failure("X\ud800", "\udfff went wrong")) as s:
        await s.say("go")

        assert only_failure(s).message == "\ufffd went wrong"
