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
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, failed, mended
from lifecycle.vocabulary.events import AssistantAttempt, AssistantMessageEvent, Event
from lifecycle.vocabulary.failures import MAX_TOKENS, Failure, FailureCode
from lifecycle.vocabulary.messages import AssistantMessage, Block, ToolCallBlock
from lifecycle.vocabulary.values import FrozenDict, JsonValue

from ..runs import Attempt, StepRun
from .proposal import STEP
from .tooling import Pool

STREAM = "agent/assistant-stream"


@STEP("llm/stream", inner=[f"{STREAM}:start", f"{STREAM}:chunk"])
async def stream(step: StepRun) -> str | None:
    """Consume the stream of the prepared call, inside a scope that the signal cancels.

    A chunk that comes after the signal has fired is neither assembled, nor framed, nor kept (STR-03).
    """
    agent, signal = step.agent, step.signal
    attempt = step.attempt = Attempt(step.attempts)
    _tell(step, attempt, lambda id: StreamStart(id, attempt.number, step.turn.number, step.number))
    add, record, now = attempt.assembler.add, attempt.recorder.add, agent.session.clock
    with signal.scope():
        chunks = await _open(step)
        try:
            async for chunk in chunks:
                if signal.fired:
                    break
                accepted, time = mended(chunk), now()
                add(accepted)
                record(accepted, time)
                if agent.feeds.open or agent.hooks.listeners(STREAM):
                    _frame(step, attempt, accepted, time)
                attempt.frames += 1
                if type(accepted) is Finish:
                    break
        finally:
            await close_stream(chunks)
    if signal.fired:
        return None
    finish = attempt.assembler.finish
    if finish is None or not finish.kind.failed:
        return "succeed"
    attempt.failure = finish.failure or _unexplained(finish)
    return "fail"


async def _open(step: StepRun) -> AsyncIterator[Chunk]:
    agent, request, bound = step.agent, step.request, step.bound
    assert request is not None

    def default(payload: LlmStreamPayload) -> AsyncIterator[Chunk]:
        return _nobody(payload) if bound is None else bound.stream(payload.request, step.signal)

    payload = LlmStreamPayload(agent.handle, request)
    if not agent.hooks.listeners("llm/stream"):
        return default(payload)
    return await agent.hooks.waterfall("llm/stream", payload, default)


async def _nobody(payload: LlmStreamPayload) -> AsyncIterator[Chunk]:
    """The stream of a route that nobody serves (PRP-05)."""
    message = f"no adapter serves the provider {payload.request.config.provider!r}"
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


def _frame(step: StepRun, attempt: Attempt, chunk: Chunk, time: int) -> None:
    frame = StreamChunk(_attempt_id(step, attempt), attempt.number, attempt.frames, time, chunk)
    step.agent.tell(STREAM, StreamPayload, frame)


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
    """Record the visible prefix of a stream that was cut off (SET-06)."""
    attempt = step.attempt
    if attempt is None or attempt.settling:
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
        AssistantAttempt(turn=step.turn.number, step=step.number, stream=attempt.recorder.stream())
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
