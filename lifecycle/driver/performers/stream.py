"""What a request does once it is derived: it streams, settles exactly once, and may be recovered (STR, SET, RTY)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lifecycle.services.model import close_stream
from lifecycle.services.points import (
    LlmStreamPayload,
    RequestErrorPayload,
    Retry,
    StreamChunk,
    StreamEnd,
    StreamPayload,
    StreamStart,
)
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, failed, mended
from lifecycle.vocabulary.events import AssistantAttempt, AssistantMessageEvent, Event
from lifecycle.vocabulary.failures import MAX_TOKENS, Failure, FailureCode
from lifecycle.vocabulary.messages import AssistantMessage, Block, ToolCallBlock
from lifecycle.vocabulary.requests import Request
from lifecycle.vocabulary.values import FrozenDict, JsonValue

from ..runs import Attempt, StepRun
from .proposal import STEP
from .tooling import Pool

STREAM = "agent/assistant-stream"


@STEP("llm/stream", inner=[f"{STREAM}:start", f"{STREAM}:chunk"])
async def stream(step: StepRun) -> str | None:
    """Consume the stream of the prepared call; the adapter's part of it runs in a scope that the signal cancels.

    Wrappers only get the signal and are awaited to their end, as all hooks are (CAN-11). One scope does for the whole
    stream if there are none; it costs more than a chunk. The store keeps what is asked before anybody is (PST-03).
    """
    signal, kept = step.signal, step.agent.session.barrier()
    if kept is not None:
        await kept
        if signal.fired:
            return None
    attempt = Attempt(step.attempts)
    step.attempt = attempt
    _tell(step, attempt, lambda id: StreamStart(id, attempt.number, step.turn.number, step.number))
    if signal.fired:  # by a listener of the start: the adapter is not called
        return None
    if step.agent.hooks.listeners("llm/stream"):
        adapters: list[AsyncIterator[Chunk]] = []
        try:
            await _consume(step, attempt, await _wrapped(step, adapters))
        finally:  # a wrapper that is closed early does not close what it wraps
            for chunks in adapters:
                await close_stream(chunks)
    else:
        with signal.scope():
            await _consume(step, attempt, _adapter(step, step.request))
    if signal.fired:
        return None
    finish = attempt.assembler.finish
    if finish is None or not finish.kind.failed:
        return "succeed"
    attempt.failure = finish.failure or _unexplained(finish)
    return "fail"


async def _consume(step: StepRun, attempt: Attempt, chunks: AsyncIterator[Chunk]) -> None:
    """Accept chunks up to the first finish.

    A chunk that comes after the signal has fired is neither assembled, nor framed, nor kept (STR-03).
    """
    agent, signal, id = step.agent, step.signal, _attempt_id(step, attempt)
    add, record, now = attempt.assembler.add, attempt.recorder.add, agent.session.clock
    try:
        async for chunk in chunks:
            if signal.fired:
                break
            accepted, time = mended(chunk), now()
            add(accepted)
            record(accepted, time)
            if agent.feeds.open or agent.hooks.listeners(STREAM):
                frame = StreamChunk(id, attempt.number, attempt.frames, time, accepted)
                agent.tell(STREAM, StreamPayload, frame)
            attempt.frames += 1
            if type(accepted) is Finish:
                break
    finally:
        await close_stream(chunks)


def _adapter(step: StepRun, request: Request | None) -> AsyncIterator[Chunk]:
    assert request is not None
    return _nobody(request) if step.bound is None else step.bound.stream(request, step.signal)


async def _wrapped(step: StepRun, adapters: list[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
    """The stream as the listeners of `llm/stream` hand it out; the adapter's own goes to `adapters`, to be closed."""
    agent, request = step.agent, step.request
    assert request is not None

    def default(payload: LlmStreamPayload) -> AsyncIterator[Chunk]:
        chunks = _Cancellable(_adapter(step, payload.request), step.signal)
        adapters.append(chunks)
        return chunks

    return await agent.hooks.waterfall("llm/stream", LlmStreamPayload(agent.handle, request), default)


class _Cancellable:
    """An adapter's stream that ends when the signal fires, while whoever reads it goes on."""

    __slots__ = ("_chunks", "_signal")

    def __init__(self, chunks: AsyncIterator[Chunk], signal: CancelSignal) -> None:
        self._chunks, self._signal = chunks, signal

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        with self._signal.scope():
            return await anext(self._chunks)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await close_stream(self._chunks)


async def _nobody(request: Request) -> AsyncIterator[Chunk]:
    """The stream of a route that nobody serves (PRP-05)."""
    message = f"no adapter serves the provider {request.config.provider!r}"
    yield failed(Failure(message=message, code=FailureCode.NO_ADAPTER.value, retryable=False))


def _unexplained(finish: Finish) -> Failure:
    aborted = finish.kind is FinishKind.ABORTED
    message = "the provider aborted the call" if aborted else "the provider reported an error without saying which"
    return Failure(message=message, code=(FailureCode.ABORTED if aborted else FailureCode.UNKNOWN).value)


# -- live frames --------------------------------------------------------------------------------------------------


def _attempt_id(step: StepRun, attempt: Attempt) -> str:
    return f"{step.turn.number}.{step.number}.{attempt.number}"


def _tell(step: StepRun, attempt: Attempt, frame: Callable[[str], StreamStart | StreamEnd]) -> None:
    agent = step.agent
    if agent.feeds.open or agent.hooks.listeners(STREAM):
        agent.tell(STREAM, StreamPayload, frame(_attempt_id(step, attempt)))


@STEP(f"{STREAM}:end", f"{STREAM}:cut")
def tell_end(step: StepRun) -> None:
    """Tell the end of a dispatched stream, once, after its settlement (SET-04)."""
    attempt = step.attempt
    if attempt is None or attempt.ended:
        return
    attempt.ended = True
    event = attempt.settlement

    def frame(id: str) -> StreamEnd:
        if event is None:
            return StreamEnd(id, attempt.number, attempt.frames, "abandoned")
        return StreamEnd(id, attempt.number, attempt.frames, "committed", event.type, event.seq)

    _tell(step, attempt, frame)


# -- settlement ---------------------------------------------------------------------------------------------------


@STEP("assistant/message")
def settle_message(step: StepRun) -> None:
    """Record the answer (SET-01), and what it asks for: tools, another request, or the end of the turn."""
    attempt = _attempt(step)
    made = attempt.assembler.result()
    attempt.settling = True
    attempt.settlement = _append_message(step, made.blocks, made.replay, made.finish.kind)
    turn, kind = step.turn, made.finish.kind
    if kind is FinishKind.MAX_TOKENS:
        turn.reason = MAX_TOKENS
    turn.pauses = turn.pauses + 1 if kind is FinishKind.PAUSE else 0
    turn.owed = 0 < turn.pauses <= step.agent.options.max_pauses
    calls = [block for block in made.blocks if isinstance(block, ToolCallBlock)]
    step.pool = Pool(step, calls) if calls else None


@STEP("assistant/message:interrupted")
def settle_visible(step: StepRun) -> None:
    """Record the visible prefix of a stream that was cut off (SET-06); one that had failed has none (SET-08)."""
    attempt = step.attempt
    if attempt is None or attempt.settling or (attempt.assembler.finish or Finish()).kind.failed:
        return
    blocks = attempt.assembler.visible()
    if blocks:
        attempt.settling = True
        attempt.settlement = _append_message(step, blocks, None, FinishKind.ABORTED)


@STEP("assistant/attempt", "assistant/attempt:cut")
def settle_attempt(step: StepRun) -> None:
    """Record a stream that left no message: failed, raised, or cut off with nothing to see (SET-03, SET-07, SET-09)."""
    attempt = step.attempt
    if attempt is None or attempt.settling:
        return
    attempt.settling = True
    attempt.settlement = step.agent.session.append(
        AssistantAttempt(turn=step.turn.number, step=step.number, stream=attempt.recorder.stream()),
        proven=True,  # chunks are mended and frozen when they are accepted
    )


def _append_message(
    step: StepRun, blocks: tuple[Block, ...], replay: tuple[JsonValue, ...] | None, finish: FinishKind
) -> Event:
    session, attempt, request = step.agent.session, _attempt(step), step.request
    assert request is not None
    message = AssistantMessage(
        id=f"a{session.next_seq}",
        content=blocks,
        source=FrozenDict(kind="model", provider=request.config.provider, model=request.config.model),
        replay=replay,
    )
    return session.append(
        AssistantMessageEvent(
            turn=step.turn.number,
            step=step.number,
            message=message,
            stream=attempt.recorder.stream(),
            finish=finish,
            usage=attempt.assembler.usage,
            interrupted=True if finish is FinishKind.ABORTED else None,
        ),
        surface="append",
        proven=True,  # as above
    )


def _attempt(step: StepRun) -> Attempt:
    assert step.attempt is not None
    return step.attempt


# -- recovery -----------------------------------------------------------------------------------------------------


@STEP("agent/request-error", suspends=True)
def recover(step: StepRun) -> Coroutine[Any, Any, str] | str:
    """Ask whether the failed attempt is made again; otherwise the original failure stands (RTY-01, RTY-06)."""
    failure = _attempt(step).failure
    assert failure is not None
    if not step.agent.hooks.listeners("agent/request-error"):
        step.error = failure
        return "surrender"
    return _recover(step, failure)


async def _recover(step: StepRun, failure: Failure) -> str:
    def default(_: RequestErrorPayload) -> Retry | None:
        return None

    policy = None if step.bound is None else step.bound.prepared.retry_policy
    provider = step.config.provider if step.config is not None else None
    payload = RequestErrorPayload(
        step.agent.handle,
        step.turn.number,
        step.number,
        step.signal,
        step.attempts,
        provider or "",
        failure,
        policy,
    )
    step.retry = await step.agent.hooks.waterfall("agent/request-error", payload, default) is not None
    if step.retry:
        return "retry"
    if not step.signal.fired:
        step.error = failure
    return "surrender"
