"""What a request does once it is derived: it streams, settles exactly once, and may be recovered (STR, SET, RTY)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from functools import lru_cache
from typing import Any

from anyio.lowlevel import checkpoint

from lifecycle.services.cancellation import failure_in
from lifecycle.services.frames import StreamChunk, StreamEnd, StreamStart
from lifecycle.services.model import close_stream, failing, whole
from lifecycle.services.points import LlmStreamPayload, RequestErrorPayload, Retry, StreamPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.assembly import Assembler, told_once
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta, Usage, failed, mended
from lifecycle.vocabulary.events import AssistantAttempt, AssistantMessageEvent, Event
from lifecycle.vocabulary.failures import MAX_TOKENS, Failure, FailureCode
from lifecycle.vocabulary.messages import AssistantMessage, Block, ToolCallBlock
from lifecycle.vocabulary.requests import Request
from lifecycle.vocabulary.stream import TimedStream
from lifecycle.vocabulary.values import FrozenDict, JsonValue, sealed, trusted

from ..runs import Attempt, StepRun
from ..walk import Cuttable, Flow
from .proposal import STEP
from .tooling import Pool

log = logging.getLogger("lifecycle")

STREAM = "agent/assistant-stream"

_PATIENCE = 256
"""After how many chunks others get a turn, in case none of them has ever suspended."""

_message, _settled, _attempted = trusted(AssistantMessage), trusted(AssistantMessageEvent), trusted(AssistantAttempt)


@STEP("llm/stream", suspends=True, inner=[f"{STREAM}:start", f"{STREAM}:chunk"])
def stream(step: StepRun) -> Cuttable | Coroutine[Any, Any, str | None] | Flow | None:
    """Consume the stream of the prepared call; the adapter's part of it is cut off when the signal fires.

    Wrappers only get the signal and are awaited to their end, as all hooks are (CAN-11). The store keeps what is asked
    before anybody is (PST-03).
    """
    kept = step.agent.session.barrier()
    return _stream(step) if kept is None else _stream_kept(step, kept)


def _stream_kept(step: StepRun, kept: Coroutine[Any, Any, None]) -> Flow:
    yield kept
    opened = None if step.signal.fired else _stream(step)
    return None if opened is None else (yield opened)


def _stream(step: StepRun) -> Cuttable | Coroutine[Any, Any, str | None] | None:
    agent, signal, attempt = step.agent, step.signal, Attempt(step.attempts)
    step.attempt = attempt
    if agent.heard(STREAM):
        start = StreamStart(_attempt_id(step, attempt), attempt.number, step.turn.number, step.number)
        agent.tell(STREAM, StreamPayload, start)
        if signal.cause is not None:  # by a listener of the start: the adapter is not called
            return None
    if agent.hooks.chains["llm/stream"]:
        return _stream_wrapped(step, attempt)
    return Cuttable(_stream_alone(step, attempt), signal)


async def _stream_alone(step: StepRun, attempt: Attempt) -> str | None:
    """Consume the adapter's own stream."""
    request, bound, signal = step.request, step.bound, step.signal
    assert request is not None
    chunks: AsyncIterator[Chunk] | None = None
    try:
        if bound is None:
            chunks = _nobody(request)
        else:
            bound.use(request)
            try:
                chunks = bound.prepared.open(request, signal)
            except Exception as error:
                chunks = _just(failing(error, signal))
        await _consume(step, attempt, chunks, own=True)
    finally:
        try:
            await close_stream(chunks)
        except Exception:  # the answer has been told by now, or its failure
            log.exception("the stream of the adapter %r could not be closed", request.config.provider)
    return _outcome(step, attempt)


async def _stream_wrapped(step: StepRun, attempt: Attempt) -> str | None:
    """Consume the stream that the listeners of `llm/stream` hand out."""
    adapters: list[AsyncIterator[Chunk]] = []
    try:
        chunks = await _wrapped(step, adapters)
        try:
            await _consume(step, attempt, aiter(chunks), own=False)
        finally:
            await close_stream(chunks)
    finally:  # a wrapper that is closed early does not close what it wraps
        for chunks in adapters:
            await close_stream(chunks)
    return _outcome(step, attempt)


async def _consume(step: StepRun, attempt: Attempt, chunks: AsyncIterator[Chunk], *, own: bool) -> None:
    """Take in one chunk after another, up to the first finish. What an adapter's `own` raises is one (STR-04).

    A chunk that comes after the signal has fired is neither assembled, nor framed, nor kept (STR-03).
    """
    agent, signal, id, number = step.agent, step.signal, _attempt_id(step, attempt), attempt.number
    accepted, times, now = attempt.recorder.chunks, attempt.recorder.times, agent.session.clock
    feeds, chains, handle, following = agent.feeds, agent.hooks.chains, agent.handle, chunks.__anext__
    while True:
        try:
            chunk = await following()
        except StopAsyncIteration:
            return
        except BaseException as error:
            failure = failure_in(error) if own else None
            if failure is None:
                raise
            chunk = failing(failure, signal)
        if signal.cause is not None:
            return
        if type(chunk) is Finish:
            chunk = attempt.finish = whole(chunk)
        elif type(chunk) is not TextDelta or not chunk.text.isascii():
            chunk = mended(chunk)
        time = now()
        accepted.append(chunk)
        times.append(time)
        heard = chains[STREAM]
        if heard or feeds.open:
            payload = StreamPayload(handle, StreamChunk(id, number, len(times) - 1, time, chunk))
            if feeds.open:
                feeds.live(STREAM, payload)
            if heard:
                agent.hooks.emit(STREAM, payload)
        if attempt.finish is not None:
            return
        if len(times) % _PATIENCE == 0:
            await checkpoint()


def _outcome(step: StepRun, attempt: Attempt) -> str | None:
    """The event that follows a stream that has ended."""
    if step.signal.cause is not None:
        return None
    finish = attempt.finish
    if finish is None or not finish.kind.failed:
        return "succeed"
    attempt.failure = finish.failure or _unexplained(finish)
    return "fail"


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


async def _just(chunk: Chunk) -> AsyncIterator[Chunk]:
    yield chunk


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


@STEP(f"{STREAM}:end", f"{STREAM}:cut")
def tell_end(step: StepRun) -> None:
    """Tell the end of a dispatched stream, once, after its settlement (SET-04)."""
    attempt = step.attempt
    if attempt is None or attempt.ended:
        return
    attempt.ended = True
    if step.agent.heard(STREAM):
        id, frames, event = _attempt_id(step, attempt), len(attempt.recorder.chunks), attempt.settlement
        end = StreamEnd(id, attempt.number, frames, "abandoned")
        if event is not None:
            end = replace(end, outcome="committed", event_type=event.type, seq=event.seq)
        step.agent.tell(STREAM, StreamPayload, end)


# -- settlement ---------------------------------------------------------------------------------------------------


@STEP("assistant/message")
def settle_message(step: StepRun) -> None:
    """Record the answer (SET-01), and what it asks for: tools, another request, or the end of the turn."""
    attempt = _attempt(step)
    stream = attempt.recorder.stream()
    made = Assembler(stream).result()
    attempt.settling = True
    blocks, replay = told_once(made.blocks, made.replay)
    kind = made.finish.kind
    attempt.settlement = _append_message(step, stream, blocks, replay, kind, made.usage)
    turn = step.turn
    if kind is FinishKind.MAX_TOKENS:
        turn.reason = MAX_TOKENS
    turn.pauses = turn.pauses + 1 if kind is FinishKind.PAUSE else 0
    turn.owed = 0 < turn.pauses <= step.agent.options.max_pauses
    calls = [block for block in blocks if type(block) is ToolCallBlock]
    step.pool = Pool(step, calls) if calls else None


@STEP("assistant/message:interrupted")
def settle_visible(step: StepRun) -> None:
    """Record the visible prefix of a stream that was cut off (SET-06); one that had failed has none (SET-08)."""
    attempt = step.attempt
    if attempt is None or attempt.settling or (attempt.finish is not None and attempt.finish.kind.failed):
        return
    stream = attempt.recorder.stream()
    assembler = Assembler(stream)
    blocks = assembler.visible()
    if blocks:
        attempt.settling = True
        attempt.settlement = _append_message(step, stream, blocks, None, FinishKind.ABORTED, assembler.usage)


@STEP("assistant/attempt", "assistant/attempt:cut")
def settle_attempt(step: StepRun) -> None:
    """Record a stream that left no message: failed, raised, or cut off with nothing to see (SET-03, SET-07, SET-09)."""
    attempt = step.attempt
    if attempt is None or attempt.settling:
        return
    attempt.settling = True
    attempt.settlement = step.agent.session.append(
        _attempted(turn=step.turn.number, step=step.number, stream=attempt.recorder.stream()),
        proven=True,  # chunks are mended and frozen when they are accepted
    )


def _append_message(
    step: StepRun,
    stream: TimedStream,
    blocks: tuple[Block, ...],
    replay: tuple[JsonValue, ...] | None,
    finish: FinishKind,
    usage: Usage | None,
) -> Event:
    session, request = step.agent.session, step.request
    assert request is not None
    message = _message(
        id=f"a{session.next_seq}",
        content=blocks,
        source=_route(request.config.provider, request.config.model),
        replay=replay,
    )
    return session.append(
        _settled(
            turn=step.turn.number,
            step=step.number,
            message=message,
            stream=stream,
            finish=finish,
            usage=usage if usage is None or type(usage) is Usage else Usage.model_validate(usage),
            interrupted=True if finish is FinishKind.ABORTED else None,
        ),
        surface="append",
        proven=True,  # as above
    )


@lru_cache
def _route(provider: str | None, model: str | None) -> FrozenDict:
    """The source of what a model has said."""
    return sealed({"kind": "model", "provider": provider, "model": model})


def _attempt(step: StepRun) -> Attempt:
    assert step.attempt is not None
    return step.attempt


# -- recovery -----------------------------------------------------------------------------------------------------


@STEP("agent/request-error", suspends=True)
def recover(step: StepRun) -> Coroutine[Any, Any, str] | str:
    """Ask whether the failed attempt is made again; otherwise the original failure stands (RTY-01, RTY-06)."""
    failure = _attempt(step).failure
    assert failure is not None
    if not step.agent.hooks.chains["agent/request-error"]:
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
