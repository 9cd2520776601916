"""Group RTY: a failed request and its retry, in the open step."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import AgentOptions, CallConfig, Failure, Hooks, Prompt, Retry, Section, tool, user_message
from lifecycle.policies.retry import TRANSIENT, Backoff, RetryOptions, retrying
from lifecycle.proof.simulation import Backend
from lifecycle.services.points import RequestErrorPayload, RequestPayload
from lifecycle.services.tools import ToolRegistry
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import FinishKind, TextDelta
from lifecycle.vocabulary.events import LlmRetry, LlmRetryStarted, Replace, SystemMessageEvent, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, USER_CANCEL, Aborted, Errored
from lifecycle.vocabulary.messages import text_of
from tests.policies.kit import HOURS, each_backend, played, virtually

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

Next = Callable[[], Awaitable[Retry | None]]
Recovery = Callable[[Scene, RequestErrorPayload], object]
LOST = Reply.failure("OVERLOADED", "the server is busy", retryable=True, status=529, retry_after=2.0)
OK = Reply(text="ok")


@tool
def look() -> str:
    """Look."""
    return "seen"


def always(payload: RequestErrorPayload, next: Next) -> Retry:
    return Retry()


def recovering(s: Scene, recover: Recovery) -> None:
    """Before every retry, do something about the failure."""

    def listen(payload: RequestErrorPayload, next: Next) -> Retry:
        recover(s, payload)
        return Retry()

    s.hooks.listen("agent/request-error", listen)


def replace_history(s: Scene, text: str, start: int = 0) -> None:
    """Put one message in the place of the surface's nodes from the `start`-th on, as compaction does."""
    seqs = list(s.session.surface.nodes)[start:]
    replacement = UserMessageEvent(message=user_message(text))
    s.session.append(replacement, surface=Replace(start=seqs[0], end=seqs[-1]), sources=seqs)


def texts(s: Scene, nth: int) -> list[tuple[str, str]]:
    """Roles and texts of the messages of a request."""
    return [(message.role, text_of(message)) for message in s.model.requests[nth].messages]


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        (LOST, Failure(message="the server is busy", code="OVERLOADED", status=529, retryable=True, retry_after=2.0)),
        ([TextDelta(0, "a"), OSError("reset")], Failure(message="OSError: reset")),
        (OSError("refused"), Failure(message="OSError: refused")),
    ],
    ids=["in band", "raised in mid-stream", "raised at dispatch"],
)
async def test_rty_01_a_listener_is_told_the_same_of_every_failure(line: Line, failure: Failure) -> None:
    hooks, heard, signals = Hooks(), list[RequestErrorPayload](), list[object]()

    @hooks.on("agent/request")
    async def shape(payload: RequestPayload, next: Callable[[], Awaitable[CallConfig]]) -> CallConfig:
        signals.append(payload.signal)
        return await next()

    @hooks.on("agent/request-error")
    async def hear(payload: RequestErrorPayload, next: Next) -> Retry | None:
        heard.append(payload)
        return await next()

    model = ScriptedModel(line, retry_policy={"times": 3})
    async with scene(model=model, hooks=hooks) as s:
        await s.say("go")

        (payload,) = heard
        assert {field.name for field in dataclasses.fields(payload)} == {
            *("agent", "turn", "step", "attempt", "provider", "failure", "retry_policy", "signal")
        }
        assert (payload.turn, payload.step, payload.attempt, payload.provider) == (1, 1, 1, "scripted")
        assert payload.agent is s.agent
        assert payload.failure == failure
        assert payload.retry_policy == {"times": 3}
        assert payload.signal is signals[0]
        assert s.reasons == [Errored(error=failure)]


@pytest.mark.parametrize("answer", [True, "retry", 3])
async def test_rty_01_an_answer_that_is_neither_a_retry_nor_nothing_fails_the_turn(answer: object) -> None:
    async with scene(LOST) as s:
        s.hooks.listen("agent/request-error", lambda payload, next: answer)
        await s.say("go")

        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "which allows Retry or None" in reason.error.message
        assert len(s.model.requests) == 1


async def test_rty_02_a_retry_adds_no_boundary_and_goes_back_to_the_request() -> None:
    async with scene(LOST, OK, options=AgentOptions(system="be brief")) as s:
        s.hooks.listen("agent/request-error", always)
        await s.say("go")

        lines = s.trace.lines()
        assert lines[lines.index("D assistant/attempt {turn:1, step:1}") :] == [
            "D assistant/attempt {turn:1, step:1}",
            "L agent/assistant-stream end {revision:1, index:1, outcome:committed, eventType:assistant/attempt, seq:8}",
            "L agent/request-error {turn:1, step:1, attempt:1, provider:scripted, failure:OVERLOADED}",
            "L agent/request {turn:1, step:1, attempt:2, startsSeries:false}",
            "L agent/assistant-stream start {revision:2, turn:1, step:1}",
            "L llm/stream {request:{turn:1, step:1, attempt:2}}",
            "L agent/assistant-stream chunk *",
            "D assistant/message {turn:1, step:1, message:a1, finish:stop}",
            "L agent/assistant-stream end {revision:2, index:2, outcome:committed, eventType:assistant/message, seq:9}",
            "D step/end {turn:1, step:1}",
            "L agent/turn-stopping {turn:1}",
            "D turn/end {turn:1, reason:{kind:completed}}",
            "L agent/status {status:idle}",
        ]
        assert s.durable.count("step/start") == s.durable.count("turn/start") == 1
        assert s.model.prepared == 2


async def test_rty_03_proposal_resolution_assembly_and_admission_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = Counter[str]()
    resolve = ToolRegistry.resolve

    def counted(registry: ToolRegistry, *given: Any) -> Any:
        resolved["tools"] += 1
        return resolve(registry, *given)

    monkeypatch.setattr(ToolRegistry, "resolve", counted)
    async with scene(LOST, LOST, OK, tools=[look], options=AgentOptions(system="be brief")) as s:
        s.hooks.listen("agent/request-error", always)
        await s.say("go")

        told = Counter(s.trace.names())
        once = ["agent/step-boundary", "agent/model", "agent/pre-step", "system-prompt/assemble", "agent/inbox/claimed"]
        once += ["step/start", "system/message", "user/message", "request/header", "request/context", "step/end"]
        assert {name: told[name] for name in once} == dict.fromkeys(once, 1)
        assert resolved["tools"] == 1
        assert told["agent/inbox/spliced"] == 2  # the insertion and the one claim


async def test_rty_03_tools_that_change_between_attempts_wait_for_the_next_step() -> None:
    async with scene(LOST, OK, OK, tools=[look]) as s:
        recovering(s, lambda s, payload: s.agent.tools.unregister("look"))
        await s.say("go", "on")

        assert [[spec.name for spec in request.tools] for request in s.model.requests] == [["look"], ["look"], []]


async def test_rty_04_each_attempt_shapes_and_prepares_its_request_with_the_selection_of_the_step() -> None:
    seen = list[tuple[int, CallConfig]]()

    async with scene(LOST, OK) as s:

        @s.hooks.on("agent/request")
        async def shape(payload: RequestPayload, next: Callable[[], Awaitable[CallConfig]]) -> CallConfig:
            config = await next()
            seen.append((payload.attempt, config))
            return config.model_copy(update={"model": f"try-{payload.attempt}"})

        s.hooks.listen("agent/request-error", always)
        await s.say("go")

        assert [(attempt, config.provider, config.model) for attempt, config in seen] == [
            (1, "scripted", "script-1"),
            (2, "scripted", "script-1"),
        ]
        assert [config.model for config in s.model.configs] == ["try-1", "try-2"]
        assert s.durable.count("request/header") == 2


async def test_rty_04_a_prompt_that_recovery_swallowed_is_restored_from_the_retained_assembly() -> None:
    prompt = Prompt([Section("who", "you are {{model}}"), Section("how", "be brief")])
    async with scene(LOST, OK, options=AgentOptions(system=prompt)) as s:
        recovering(s, lambda s, payload: replace_history(s, "the story so far"))
        await s.say("go")

        system = [("system", "you are script-1"), ("system", "be brief")]
        assert texts(s, 0) == [*system, ("user", "go")]
        assert texts(s, 1) == [*system, ("user", "the story so far")]
        assert s.trace.names().count("system-prompt/assemble") == 1
        assert [data.message.source["section"] for data in s.data(SystemMessageEvent)] == ["who", "how"] * 2


async def test_rty_05_each_attempt_derives_from_the_log_as_it_is_then() -> None:
    async with scene(OK, LOST, OK) as s:
        recovering(s, lambda s, payload: replace_history(s, "the story so far"))
        await s.say("one", "two")

        assert texts(s, 1) == [("user", "one"), ("assistant", "ok"), ("user", "two")]
        assert texts(s, 2) == [("user", "the story so far")]
        assert s.durable.count("request/header") == s.durable.count("request/context") == 1
        assert not s.model.requests[1].starts_series
        assert s.model.requests[2].starts_series


async def test_rty_05_what_recovery_appends_is_seen_and_nothing_else_is_said_twice() -> None:
    def note(s: Scene, payload: RequestErrorPayload) -> None:
        s.session.append(UserMessageEvent(message=user_message("try again")), surface="append")

    async with scene(LOST, OK) as s:
        recovering(s, note)
        await s.say("go")

        assert texts(s, 1) == [("user", "go"), ("user", "try again")]
        assert s.durable[s.durable.index("assistant/attempt") + 1 :] == [
            *("user/message", "assistant/message", "step/end", "turn/end")
        ]


async def test_rty_05_a_header_and_a_context_that_have_changed_are_said_again() -> None:
    async with scene(LOST, OK) as s:

        def grow(s: Scene, payload: RequestErrorPayload) -> None:
            s.model.context_window = 9_000
            s.model.defaults |= {"max_tokens": 100}

        recovering(s, grow)
        await s.say("go")

        assert s.durable[s.durable.index("assistant/attempt") + 1 :][:2] == ["request/header", "request/context"]


async def test_rty_06_without_a_retry_the_original_failure_stands_whatever_recovery_did() -> None:
    heard = list[object]()
    async with scene(LOST) as s:

        @s.hooks.on("agent/request-error")
        async def tidy_up(payload: RequestErrorPayload, next: Next) -> None:
            replace_history(s, "the story so far")
            await next()

        s.hooks.listen("agent/error", lambda payload: heard.append(payload.error))
        await s.say("go")

        failure = LOST.error
        assert failure is not None
        assert s.reasons == [Errored(error=failure)]
        assert heard == [failure]
        assert len(s.model.requests) == 1


async def test_rty_06_the_original_failure_also_outlasts_a_step_end_that_is_refused() -> None:
    def refuse(event: Any) -> None:
        if event.type == "step/end":
            raise OSError("refused")

    async with scene(LOST) as s:
        s.session.veto(refuse)
        await s.say("go")

        assert s.reasons == [Errored(error=LOST.error)]  # type: ignore[arg-type]  # a failing reply has one
        assert s.trace.names().count("agent/error") == 1


async def test_rty_07_an_exception_of_a_listener_fails_the_turn_instead() -> None:
    problem, heard = RuntimeError("recovery broke"), list[object]()
    async with scene(LOST, OK) as s:

        @s.hooks.on("agent/request-error")
        async def fail(payload: RequestErrorPayload, next: Next) -> Retry:
            raise problem

        s.hooks.listen("agent/error", lambda payload: heard.append(payload.error))
        await s.say("go")

        assert heard == [problem]
        assert s.reasons == [Errored(error=Failure(message="RuntimeError: recovery broke"))]
        assert len(s.model.requests) == 1
        assert s.durable[-3:] == ["assistant/attempt", "step/end", "turn/end"]


@pytest.mark.parametrize("moment", ["before it answers", "while it waits", "before it is asked"])
async def test_rty_08_a_cancel_makes_a_retry_void(moment: str) -> None:
    gate = Gate()
    async with scene(LOST, OK) as s:

        @s.hooks.on("agent/request-error")
        async def recover(payload: RequestErrorPayload, next: Next) -> Retry:
            if moment == "before it answers":
                s.agent.cancel()
            elif moment == "while it waits":
                await gate.go()
            return Retry()

        if moment == "before it is asked":
            s.session.observe(lambda event: s.agent.cancel() if event.type == "assistant/attempt" else None)
        s.agent.followup("go")
        if moment == "while it waits":
            await gate.reached()
            s.agent.cancel()
            gate.open()
        await s.idle()

        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        assert len(s.model.requests) == 1
        assert s.trace.names().count("agent/error") == 0
        assert s.trace.names().count("agent/request-error") == (0 if moment == "before it is asked" else 1)


async def test_rty_09_the_loop_sets_no_bound_to_attempts() -> None:
    async with scene(*[LOST] * 20, OK) as s:
        s.hooks.listen("agent/request-error", always)
        await s.say("go")

        assert [request.attempt for request in s.model.requests] == list(range(1, 22))
        assert s.durable.count("assistant/attempt") == 20
        assert s.durable.count("step/start") == 1
        assert s.reasons == [COMPLETED]


async def test_rty_09_the_attempts_of_the_next_step_count_from_one_again() -> None:
    asked = Reply(calls=[("look", {})])
    async with scene(LOST, asked, LOST, Reply(text="cut", finish=FinishKind.STOP), tools=[look]) as s:
        s.hooks.listen("agent/request-error", always)
        await s.say("go")

        assert [(request.step, request.attempt) for request in s.model.requests] == [(1, 1), (1, 2), (2, 1), (2, 2)]


# -- the policy ---------------------------------------------------------------------------------------------------

WHOLE = RetryOptions(chance=lambda: 1.0)
"""Waits that are as long as they can be."""


def waits(s: Scene) -> list[float]:
    """The waits that were scheduled, in seconds."""
    return [data.delay_ms / 1000 for data in s.data(LlmRetry)]


def run(backend: Backend, *script: Line, options: RetryOptions = WHOLE) -> Scene:
    return played(backend, *script, hooks=retrying(options))


@each_backend
@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_rty_10_a_transient_failure_is_made_again_after_a_recorded_wait(backend: Backend, code: str) -> None:
    s = run(backend, Reply.failure(code), Reply.failure(code), OK)

    base = TRANSIENT[code].base_seconds
    assert waits(s) == [base, 2 * base]
    assert s.reasons == [COMPLETED]
    begun, started = s.data(LlmRetry), s.data(LlmRetryStarted)
    assert [one.retry for one in begun] == [one.retry for one in started] == [1, 2]
    assert [one.retry_id for one in begun] == [one.retry_id for one in started]
    kinds = ("assistant/attempt", "llm/retry", "llm/retry-started", "assistant/message")
    assert [name for name in s.durable if name in kinds] == [*kinds[:3], *kinds[:3], kinds[3]]


@each_backend
def test_rty_10_the_wait_happens_on_the_clock_of_the_loop(backend: Backend) -> None:
    async def story() -> float:
        began = anyio.current_time()
        async with scene(Reply.failure("SERVER"), OK, hooks=retrying(WHOLE), seconds=HOURS) as s:
            await s.say("ping")
        return anyio.current_time() - began

    assert virtually(story, backend) == pytest.approx(0.5)


@given(st.integers(1, 60), st.floats(0, 1, exclude_max=True), st.floats(0, 100), st.floats(0, 1000))
def test_rty_10_waits_grow_to_a_cap_with_full_jitter(retry: int, chance: float, base: float, more: float) -> None:
    backoff = Backoff(base_seconds=base, most_seconds=base + more)

    seconds = backoff.seconds(retry, chance)

    assert 0 <= seconds <= backoff.most_seconds
    assert backoff.seconds(retry, 1.0) == min(base * 2 ** (retry - 1), base + more)
    assert backoff.seconds(retry + 1, chance) >= seconds
    assert Backoff(base_seconds=1.0).seconds(1_000_000, 1.0) == 30.0


@each_backend
@pytest.mark.parametrize(
    ("options", "asked", "waited"),
    [
        (WHOLE, 7.0, 7.0),
        (WHOLE, 60.0, 60.0),
        (WHOLE, 0.0, 2.0),  # a date in the past: the own back-off
        (RetryOptions(beyond="back-off", chance=lambda: 1.0), 86_400.0, 2.0),
    ],
)
def test_rty_10_a_providers_wait_is_kept_to_the_letter(
    backend: Backend, options: RetryOptions, asked: float, waited: float
) -> None:
    s = run(backend, Reply.failure("RATE_LIMIT", retry_after=asked), OK, options=options)

    assert (waits(s), s.reasons) == ([waited], [COMPLETED])


@each_backend
def test_rty_10_a_wait_of_hours_is_not_waited_and_not_undercut_but_told(backend: Backend) -> None:
    s = run(backend, Reply.failure("RATE_LIMIT", retry_after=86_400.0), OK)

    assert waits(s) == []
    assert len(s.model.requests) == 1
    (reason,) = s.reasons
    assert isinstance(reason, Errored)
    assert (reason.error.code, reason.error.retry_after) == ("RATE_LIMIT", 86_400.0)


@each_backend
@pytest.mark.parametrize(
    "failure",
    [Reply.failure("AUTH"), Reply.failure("CONTEXT_OVERFLOW"), Reply.failure("SERVER", retryable=False)],
)
def test_rty_10_what_does_not_pass_by_itself_is_left_to_the_next_listener(backend: Backend, failure: Reply) -> None:
    asked: list[str] = []

    async def story() -> Scene:
        hooks, behind = retrying(WHOLE), Hooks()

        @behind.on("agent/request-error")
        async def listen(payload: RequestErrorPayload, next: Next) -> Retry | None:
            asked.append(payload.failure.code)
            return await next()

        async with scene(failure, OK, hooks=hooks + behind, seconds=HOURS) as s:
            await s.say("ping")
            return s

    s = virtually(story, backend)
    assert len(asked) == 1
    assert [type(reason) for reason in s.reasons] == [Errored]
    assert waits(s) == []


@each_backend
def test_rty_10_the_budget_of_a_class_a_step_and_a_turn_ends_the_retries(backend: Backend) -> None:
    server, busy = Reply.failure("SERVER"), Reply.failure("OVERLOADED")

    by_class = run(backend, *[server] * 9)
    by_step = run(backend, server, busy, server, busy, busy, busy, OK)
    calls = Reply(calls=[("look", {})])
    by_turn = run(
        backend,
        *[server, calls, server, calls, server, calls],
        options=RetryOptions(per_step=1, per_turn=2, chance=lambda: 1.0),
    )

    assert [len(s.model.requests) for s in (by_class, by_step, by_turn)] == [3, 5, 5]
    assert all(isinstance(s.reasons[0], Errored) for s in (by_class, by_step, by_turn))


@each_backend
def test_rty_10_a_call_that_knows_its_policy_is_retried_by_it(backend: Backend) -> None:
    async def story() -> Scene:
        own = RetryOptions(classes={"QUOTA": Backoff(retries=1, base_seconds=3.0)}, chance=lambda: 1.0)
        model = ScriptedModel(Reply.failure("QUOTA"), OK, retry_policy=own)
        async with scene(model=model, hooks=retrying(WHOLE), seconds=HOURS) as s:
            await s.say("ping")
            return s

    s = virtually(story, backend)
    assert (waits(s), s.reasons) == ([3.0], [COMPLETED])


@each_backend
def test_rty_11_a_cancel_in_the_wait_starts_nothing(backend: Backend) -> None:
    async def story() -> tuple[Scene, float]:
        async with scene(Reply.failure("RATE_LIMIT", retry_after=50.0), OK, hooks=retrying(WHOLE), seconds=HOURS) as s:
            s.agent.followup("ping")
            await anyio.sleep(20)
            s.agent.cancel()
            await s.idle()
            return s, anyio.current_time()

    s, ended = virtually(story, backend)
    assert ended == pytest.approx(20)
    assert [type(reason) for reason in s.reasons] == [Aborted]
    assert s.durable.count("llm/retry") == 1
    assert "llm/retry-started" not in s.durable
    assert len(s.model.requests) == 1


@each_backend
def test_rty_11_what_was_delegated_is_drained_before_the_agent_rests(backend: Backend) -> None:
    drained: list[float] = []

    async def story() -> list[str]:
        hooks, behind = retrying(WHOLE), Hooks()

        @behind.on("agent/request-error")
        async def listen(payload: RequestErrorPayload, next: Next) -> Retry | None:
            await anyio.sleep(30)
            drained.append(anyio.current_time())
            return Retry()

        async with scene(Reply.failure("AUTH"), OK, hooks=hooks + behind, seconds=HOURS) as s:
            s.agent.followup("ping")
            await anyio.sleep(10)
            s.agent.cancel()
            await s.idle()
            assert drained == [30]
            return [reason.kind for reason in s.reasons]

    assert virtually(story, backend) == ["aborted"]
