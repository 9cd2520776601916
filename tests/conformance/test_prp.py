"""Group PRP: each attempt prepares a call of its own, bound to the adapter that prepared it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest

from lifecycle import CallConfig, CancelSignal, Failure, PreparedCall, Retry
from lifecycle.errors import InvalidPreparedCallError, ModelError
from lifecycle.services.model import BoundCall, Models
from lifecycle.services.points import LlmStreamPayload, RequestErrorPayload, RequestPayload
from lifecycle.testing import Gate, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.events import RequestContext, RequestHeader
from lifecycle.vocabulary.failures import COMPLETED, USER_CANCEL, Aborted, Errored, FailureCode
from lifecycle.vocabulary.requests import Request

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

DONE = Reply(text="done")


@dataclass
class Slow:
    """An adapter whose look-up waits at a gate, and whose streams are those of a scripted model."""

    inner: ScriptedModel
    gate: Gate = field(default_factory=Gate)
    signals: list[CancelSignal] = field(default_factory=lambda: [])
    cancelled: int = 0
    provider: str = "scripted"
    model: str | None = "script-1"

    async def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        self.signals.append(signal)
        try:
            await self.gate.go()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        made = self.inner.prepare(config, signal)
        assert isinstance(made, PreparedCall)
        return made


def retries(s: Scene) -> list[RequestErrorPayload]:
    """Make every failed request again; returns what the recovery was told, as it comes."""
    told: list[RequestErrorPayload] = []

    @s.hooks.on("agent/request-error")
    async def again(payload: RequestErrorPayload, next: object) -> Retry:
        told.append(payload)
        return Retry()

    return told


async def test_prp_01_each_attempt_prepares_once_after_its_request_hook_with_the_turns_signal() -> None:
    async with scene(Reply.failure(), Reply.failure(), DONE) as s:
        slow = Slow(s.model)
        slow.gate.open()
        s.agent.models.register("scripted", slow)
        retries(s)
        seen: list[tuple[int, CancelSignal]] = []

        @s.hooks.on("agent/request")
        async def look(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            seen.append((len(slow.signals), payload.signal))
            return await next()

        await s.say("hello")

        assert [prepared for prepared, _ in seen] == [0, 1, 2]
        assert len(slow.signals) == len(s.model.requests) == 3
        assert all(signal is turn for signal, (_, turn) in zip(slow.signals, seen, strict=True))


async def test_prp_01_a_blocked_look_up_sees_the_cancel_and_the_turn_converges() -> None:
    async with scene() as s:
        slow = Slow(s.model)
        s.agent.models.register("scripted", slow)
        s.agent.followup("hello")
        await slow.gate.reached()
        s.agent.cancel()
        await s.idle()

        assert slow.signals[0].cause == USER_CANCEL
        assert slow.cancelled == 1, "it is not abandoned"
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        assert s.model.prepared == 0
        assert "llm/stream" not in s.trace.names()


async def test_prp_02_the_adapter_that_prepared_the_call_serves_it_whoever_is_registered_meanwhile() -> None:
    other = ScriptedModel(otherwise=Reply(text="from the other"))
    async with scene() as s:

        @s.hooks.on("llm/stream")
        async def swap(_: LlmStreamPayload, next: Next[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
            s.agent.models.unregister("scripted")
            s.agent.models.register("scripted", other)
            return await next()

        await s.say("hello")
        assert (len(s.model.requests), len(other.requests)) == (1, 0)
        await s.say("again")
        assert (len(s.model.requests), len(other.requests)) == (1, 1)


async def test_prp_02_a_prepared_call_is_good_for_one_stream_of_its_own_configuration() -> None:
    model, config, signal = ScriptedModel(otherwise=DONE), CallConfig(provider="scripted", model="m"), CancelSignal()
    prepare = partial(Models(model).prepare_call, config, signal)
    request = Request((), (), config, 1, 1, 1)

    used = prepare()
    another = prepare()
    assert isinstance(used, BoundCall)
    assert isinstance(another, BoundCall)
    stream = used.stream(request, signal)
    assert [chunk async for chunk in stream] == list(DONE.chunks())

    with pytest.raises(InvalidPreparedCallError, match="already used") as twice:
        used.stream(request, signal)
    changed = Request((), (), config.model_copy(update={"effort": "high"}), 1, 1, 1)
    with pytest.raises(InvalidPreparedCallError, match="another configuration") as foreign:
        another.stream(changed, signal)

    assert twice.value.failure.code == foreign.value.failure.code == FailureCode.INVALID_PREPARED_CALL
    assert len(model.requests) == 1


async def test_prp_03_what_the_adapter_filled_in_is_logged_and_marked_as_its_default() -> None:
    model = ScriptedModel(otherwise=DONE, defaults={"effort": "medium", "max_tokens": 100}, context_window=1000)
    async with scene(model=model) as s:

        @s.hooks.on("agent/request")
        async def cap(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            config = await next()
            return config if payload.turn == 1 else config.model_copy(update={"max_tokens": 50})

        await s.say("one", "two")

        first, second = (data.header for data in s.data(RequestHeader))
        assert (first.config.effort, first.config.max_tokens, first.defaults) == (
            "medium",
            100,
            ("effort", "max_tokens"),
        )
        assert (second.config.effort, second.config.max_tokens, second.defaults) == ("medium", 50, ("effort",))
        assert [request.config for request in model.requests] == [first.config, second.config]
        assert model.configs[0] == CallConfig(provider="scripted", model="script-1"), "it was asked without them"
        assert s.data(RequestContext) == [RequestContext(provider="scripted", model="script-1", context_window=1000)]


FAILURES = [
    LookupError("the look-up broke"),
    ModelError(Failure(message="no such model", code="INVALID_REQUEST", retryable=True)),
]


@pytest.mark.parametrize("error", FAILURES, ids=["plain", "structured"])
async def test_prp_04_a_failed_preparation_fails_the_turn_without_recovery_or_input(error: Exception) -> None:
    async with scene(model=ScriptedModel(otherwise=DONE, preparing=[error])) as s:
        told = retries(s)
        await s.say("hello")

        assert told == []
        assert s.durable == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "step/end",
            "turn/end",
        ]
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.code == ("INVALID_REQUEST" if isinstance(error, ModelError) else "UNKNOWN")
        assert str(error) in reason.error.message
        assert s.trace.names("L").count("agent/error") == 1
        await s.say("again")
        assert s.reasons[1:] == [COMPLETED]


async def test_prp_04_nor_is_a_failed_preparation_of_a_later_attempt_recovered() -> None:
    model = ScriptedModel(Reply.failure(), DONE, preparing=[None, LookupError("the look-up broke")])
    async with scene(model=model) as s:
        told = retries(s)
        await s.say("hello")

        assert [payload.attempt for payload in told] == [1]
        assert s.durable[-4:] == ["request/context", "assistant/attempt", "step/end", "turn/end"]
        assert s.durable.count("user/message") == 1
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "the look-up broke" in reason.error.message


async def test_prp_05_a_listener_may_serve_a_route_that_no_adapter_serves() -> None:
    async with scene() as s:
        s.agent.models.unregister("scripted")

        async def chunks() -> AsyncIterator[Chunk]:
            for chunk in Reply(text="served").chunks():
                yield chunk

        @s.hooks.on("llm/stream")
        async def serve(payload: LlmStreamPayload, next: object) -> AsyncIterator[Chunk]:
            requests.append(payload.request)
            return chunks()

        requests: list[Request] = []
        await s.say("hello")

        assert s.reasons == [COMPLETED]
        (header,) = s.data(RequestHeader)
        assert header.header.config == requests[0].config == CallConfig(provider="scripted", model="script-1")
        assert header.header.defaults is None
        assert s.data(RequestContext) == [RequestContext(provider="scripted", model="script-1")]


@pytest.mark.parametrize("heard", [True, False])
async def test_prp_05_where_nobody_serves_the_route_the_failure_is_in_band_and_offered_to_recovery(heard: bool) -> None:
    async with scene(only=None if heard else ()) as s:
        s.agent.models.unregister("scripted")
        told: list[RequestErrorPayload] = []

        @s.hooks.on("agent/request-error")
        async def register(payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
            told.append(payload)
            if payload.turn == 1:
                return await next()
            s.agent.models.register("scripted", s.model)
            return Retry()

        await s.say("hello")
        assert s.durable[-5:] == ["request/header", "request/context", "assistant/attempt", "step/end", "turn/end"]
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error == told[0].failure
        assert (reason.error.code, told[0].provider, told[0].retry_policy) == ("NO_ADAPTER", "scripted", None)

        await s.say("again")
        assert s.reasons[1:] == [COMPLETED]
        assert len(s.model.requests) == 1
