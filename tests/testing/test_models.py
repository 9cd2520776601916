"""Scripted models say what they are told, when they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from lifecycle.errors import ModelError
from lifecycle.services.model import Model, PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.testing import Gate, Reply, ScriptedModel
from lifecycle.vocabulary.assembly import Assembler
from lifecycle.vocabulary.chunks import (
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import TextBlock, ToolCallBlock
from lifecycle.vocabulary.requests import CallConfig, Request

CONFIG = CallConfig(provider="scripted", model="script-1")


def request(config: CallConfig = CONFIG, attempt: int = 1) -> Request:
    return Request(messages=(), tools=(), config=config, turn=1, step=1, attempt=attempt)


def prepared(model: ScriptedModel, config: CallConfig = CONFIG) -> PreparedCall:
    call = model.prepare(config, CancelSignal())
    assert isinstance(call, PreparedCall)
    return call


async def said(model: ScriptedModel) -> list[Chunk]:
    return [chunk async for chunk in prepared(model).open(request(), CancelSignal())]


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel(), Model)


def test_a_reply_spells_reasoning_text_calls_usage_and_finish_in_this_order() -> None:
    usage = Usage(input_tokens=3, output_tokens=2)
    reply = Reply(text=["a", "b"], reasoning="hm", calls=[("read", {"path": "x"}), ("stop", "{", "mine")], usage=usage)

    assert reply.chunks(request=7) == (
        ReasoningDelta(0, "hm"),
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        ToolCallDelta(2, "call-7-1", "read", '{"path": "x"}'),
        ToolCallDelta(3, "mine", "stop", "{"),
        UsageReport(usage),
        Finish(FinishKind.TOOL_CALLS),
    )


def test_a_reply_assembles_to_its_blocks() -> None:
    assembler = Assembler()
    for chunk in Reply(text="hello", calls=[("read", {})]).chunks():
        assembler.add(chunk)

    assert assembler.result().blocks == (
        TextBlock(text="hello"),
        ToolCallBlock(id="call-1-1", name="read", arguments="{}"),
    )


@pytest.mark.anyio
async def test_lines_are_said_in_the_order_of_the_requests() -> None:
    model = ScriptedModel(Reply(text="one"), Reply.failure("OVERLOADED", retryable=True), [TextDelta(0, "no finish")])

    assert await said(model) == [TextDelta(0, "one"), Finish()]
    (failed,) = await said(model)
    assert isinstance(failed, Finish)
    assert failed.kind is FinishKind.ERROR
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.retryable) == ("OVERLOADED", True)
    assert await said(model) == [TextDelta(0, "no finish")]
    assert (model.prepared, len(model.requests), model.exhausted, model.streaming) == (3, 3, True, 0)


@pytest.mark.anyio
async def test_a_request_beyond_the_script_fails_and_says_what_to_do() -> None:
    (finish,) = await said(ScriptedModel())

    assert isinstance(finish, Finish)
    assert finish.failure is not None
    assert finish.failure.code == "SCRIPT_EXHAUSTED"
    assert "has 0 lines, and this is request 1 (turn 1, step 1, attempt 1)" in finish.failure.message


@pytest.mark.anyio
async def test_otherwise_is_said_for_ever_and_its_chunks_are_made_once() -> None:
    model = ScriptedModel(otherwise=Reply(text="again"))

    first, second = await said(model), await said(model)

    assert first == second
    assert first[0] is second[0]


@pytest.mark.anyio
async def test_calls_of_a_repeated_reply_get_ids_of_their_own() -> None:
    model = ScriptedModel(otherwise=Reply(calls=[("read", {})]))

    ids = [chunk.id for _ in range(2) for chunk in await said(model) if isinstance(chunk, ToolCallDelta)]

    assert ids == ["call-1-1", "call-2-1"]


@pytest.mark.anyio
async def test_a_gate_holds_the_stream_between_two_chunks() -> None:
    gate = Gate()
    model = ScriptedModel(Reply(text=["a", "b"]).held(gate, before=1))
    heard: list[Chunk] = []

    async def hear() -> None:
        async for chunk in prepared(model).open(request(), CancelSignal()):
            heard.append(chunk)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(hear)
            await gate.reached()
            assert heard == [TextDelta(0, "a")]
            assert (gate.waiting, model.streaming) == (1, 1)
            gate.open()

    assert heard == [TextDelta(0, "a"), TextDelta(0, "b"), Finish()]
    assert (gate.waiting, gate.passed, model.streaming) == (0, 1, 0)


@pytest.mark.anyio
async def test_a_cancelled_stream_leaves_its_gate_and_is_closed() -> None:
    gate = Gate()
    model = ScriptedModel([gate])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(said, model)
            await gate.reached()
            group.cancel_scope.cancel()

    assert (gate.waiting, gate.passed, model.streaming) == (0, 0, 0)


@pytest.mark.anyio
async def test_exceptions_are_raised_where_the_script_has_them() -> None:
    model = ScriptedModel(
        ValueError("opening"),
        [TextDelta(0, "a"), ValueError("in the stream")],
        preparing=[ModelError(Failure(message="refused", code="AUTH"))],
    )

    with pytest.raises(ModelError, match="refused"):
        model.prepare(CONFIG, CancelSignal())
    with pytest.raises(ValueError, match="opening"):
        prepared(model).open(request(), CancelSignal())
    with pytest.raises(ValueError, match="in the stream"):
        await said(model)
    assert (model.prepared, len(model.requests), model.streaming) == (3, 2, 0)


@pytest.mark.anyio
async def test_a_preparation_waits_for_its_gate() -> None:
    gate = Gate()
    model = ScriptedModel(preparing=[gate])
    preparing = model.prepare(CONFIG, CancelSignal())
    assert not isinstance(preparing, PreparedCall)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            @group.start_soon
            async def _() -> None:
                await gate.reached()
                gate.open()

            assert (await preparing).config == CONFIG


@pytest.mark.anyio
async def test_a_function_answers_from_the_request() -> None:
    def echo(request: Request, signal: CancelSignal) -> Reply:
        return Reply(text=f"attempt {request.attempt}")

    async def stream(request: Request, signal: CancelSignal) -> AsyncGenerator[Chunk]:
        yield TextDelta(0, "mine")

    model = ScriptedModel(echo, stream)

    assert await said(model) == [TextDelta(0, "attempt 1"), Finish()]
    assert await said(model) == [TextDelta(0, "mine")]


def test_what_the_configuration_leaves_open_is_filled_in_and_told() -> None:
    model = ScriptedModel(defaults={"max_tokens": 512, "effort": "low"}, context_window=8_000)

    call = prepared(model, CONFIG.model_copy(update={"effort": "high"}))

    assert (call.config.max_tokens, call.config.effort, call.defaults) == (512, "high", ("max_tokens",))
    assert call.context_window == 8_000
    model.context_window = None
    assert prepared(model).context_window is None
