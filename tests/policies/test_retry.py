"""Retry: the public failures that it touches, options that cannot work, and the rules of the lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lifecycle import Hooks
from lifecycle.errors import PolicyError
from lifecycle.policies.retry import Backoff, RetryOptions, retrying
from lifecycle.proof.simulation import Backend
from lifecycle.testing import Line, Reply, check_hooks
from lifecycle.vocabulary.chunks import TextDelta, failed
from lifecycle.vocabulary.events import AssistantAttempt, LlmRetry, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Errored, Failure, FailureCode
from lifecycle.vocabulary.messages import AssistantMessage, text_of

from ..conformance.kit import Scene, scene
from .kit import BACKENDS, each_backend, played, virtually, wrong

OK = Reply(text="ok")
WHOLE = RetryOptions(chance=lambda: 1.0)
"""Waits that are as long as they can be."""


def run(backend: Backend, *script: Line, prompts: int = 1) -> Scene:
    return played(backend, *script, hooks=retrying(WHOLE), prompts=prompts)


# -- public failures ---------------------------------------------------------------------------------------------


@each_backend
def test_c094_an_attempt_that_showed_text_says_so_and_the_answer_holds_the_second_one_only(backend: Backend) -> None:
    told: list[str] = []
    lost = failed(Failure(message="the connection was reset", code=FailureCode.TRANSPORT))

    async def story() -> Scene:
        async with scene([TextDelta(0, "The answer"), lost], Reply(text="The answer is 4."), hooks=retrying()) as s:
            s.session.observe(lambda event: told.append(event.type))
            s.hooks.listen("agent/assistant-stream", lambda payload: told.append(payload.frame.type))
            await s.say("2 + 2?")
            return s

    s = virtually(story, backend)
    (retry,) = s.data(LlmRetry)
    assert retry.shown is True
    stream = [one for one in told if one in ("start", "end", "llm/retry", "llm/retry-started")]
    assert stream == ["start", "end", "llm/retry", "llm/retry-started", "start", "end"]
    answers = [text_of(one) for one in s.session.derive_messages() if isinstance(one, AssistantMessage)]
    assert answers == ["The answer is 4."]


@each_backend
def test_c094_an_attempt_that_showed_nothing_is_made_again_in_silence(backend: Backend) -> None:
    s = run(backend, Reply.failure("SERVER"), Reply.failure("SERVER", text=" "), OK)

    assert [one.shown for one in s.data(LlmRetry)] == [None, None]


@each_backend
def test_c095_every_attempt_is_the_same_request_and_the_prompt_is_recorded_once(backend: Backend) -> None:
    s = run(backend, Reply.failure("SERVER"), Reply.failure("SERVER"), OK)

    first, *others = s.model.requests
    assert all(list(one.messages) == list(first.messages) for one in others)
    assert len(others) == 2
    assert len(s.data(UserMessageEvent)) == 1
    assert len(s.data(AssistantAttempt)) == 2


@each_backend
def test_c097_the_last_failure_is_the_end_of_the_turn_behind_all_retries(backend: Backend) -> None:
    refused = Reply.failure("INVALID_REQUEST", "no such model", status=400, retryable=False)
    s = run(backend, Reply.failure("SERVER"), Reply.failure("SERVER"), refused)

    (reason,) = s.reasons
    assert isinstance(reason, Errored)
    assert (reason.error.code, reason.error.status) == ("INVALID_REQUEST", 400)
    assert (len(s.data(AssistantAttempt)), len(s.data(LlmRetry))) == (3, 2)


@each_backend
def test_c098_the_budget_is_one_of_each_step_and_only_an_answer_ends_it(backend: Backend) -> None:
    calls = Reply(calls=[("look", {})])
    tenfold = [line for _ in range(10) for line in (Reply.failure("SERVER"), calls)]
    dying: Line = [TextDelta(0, "a"), failed(Failure(message="reset", code=FailureCode.TRANSPORT))]

    each_once = run(backend, *tenfold, Reply.failure("SERVER"), OK)
    never = run(backend, *[dying] * 9)
    again = run(backend, *[dying] * 6, prompts=2)

    assert (each_once.reasons, len(each_once.model.requests)) == ([COMPLETED], 22)
    assert (len(never.model.requests), never.reasons[0].kind) == (3, "error")
    assert [len(again.model.requests), *(reason.kind for reason in again.reasons)] == [6, "error", "error"]


@each_backend
def test_c100_a_failure_is_no_answer_of_the_model(backend: Backend) -> None:
    s = run(backend, Reply.failure("AUTH", status=401))

    assert not [one for one in s.session.derive_messages() if isinstance(one, AssistantMessage)]
    assert s.reasons[0].kind == "error"


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (partial(RetryOptions, per_step=0), "a budget of per_step=0 never retries; give at least 1"),
        (partial(RetryOptions, per_turn=0), "a budget of per_turn=0 never retries"),
        (partial(RetryOptions, per_step=9, per_turn=3), "per_step=9 can never be used up within per_turn=3"),
        (partial(RetryOptions, classes={}), "`classes` is empty"),
        (partial(RetryOptions, most_provider_seconds=-1.0), "most_provider_seconds=-1.0 is no time"),
        (partial(RetryOptions, most_provider_seconds=float("nan")), "most_provider_seconds=nan is no time"),
        (partial(Backoff, retries=0), "retries=0 never retries"),
        (partial(Backoff, retries=wrong(1.5)), "Backoff: retries=1.5 is not a whole number"),
        (partial(Backoff, most_seconds=wrong("long")), "Backoff: most_seconds='long' is not a number"),
        (partial(RetryOptions, per_turn=True), "RetryOptions: per_turn=True is not a whole number"),
        (partial(RetryOptions, classes={"SERVER": wrong(3)}), "RetryOptions: classes['SERVER']=3 is not a Backoff"),
        (partial(RetryOptions, beyond=wrong("wait")), "beyond='wait' is neither 'delegate' nor 'back-off'"),
        (partial(Backoff, base_seconds=5.0, most_seconds=1.0), "give 0 <= base_seconds <= most_seconds"),
        (partial(Backoff, base_seconds=-1.0), "give 0 <= base_seconds"),
        (partial(Backoff, most_seconds=float("inf")), "give 0 <= base_seconds"),
    ],
)
def test_options_that_cannot_work_are_refused_where_they_are_made(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        made()
    assert said in str(refused.value)


def build_retrying() -> Hooks:
    """For the check of hooks: a fresh set each time, with the longest waits."""
    return retrying(WHOLE)


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    report = check_hooks(build_retrying, examples=80, seed=7, backends=BACKENDS)
    report.coverage.require(verdicts=[("agent/request-error", "Retry"), ("agent/request-error", "None")])
