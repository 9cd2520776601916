"""Retry: a request that failed in passing is made again, in the open step, after a wait (RTY-10, RTY-11).

How long is decided by the class of the failure: what the provider asked for, or else exponential back-off with full
jitter. What has been spent is read off the log, so a resumed session, or two agents with one set of hooks, count right.

The arithmetic is one line and its chance comes from outside, because the simulation must be able to repeat it; tenacity
(9.2), backoff and stamina draw from the process-wide generator, and bring a loop that here is the lifecycle's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Literal

import anyio

from lifecycle.errors import PolicyError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import RequestErrorPayload, Retry
from lifecycle.session.log import Session
from lifecycle.vocabulary.chunks import ReasoningDelta, TextDelta
from lifecycle.vocabulary.events import AssistantAttempt, LlmRetry, LlmRetryStarted, StepStart, TurnStart
from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.messages import new_id

from .checks import check_kind, check_numbers


@dataclass(frozen=True, slots=True)
class Backoff:
    """How one class of failures is waited out: before retry n, a random part of `base_seconds` times 2 to the n-1.

    Args:
        retries: How often such a failure is followed by another attempt, in one step.
        base_seconds: The longest first wait.
        most_seconds: The longest wait of all.
    """

    retries: int = 2
    base_seconds: float = 0.5
    most_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self, whole=["retries"], real=["base_seconds", "most_seconds"])
        if self.retries < 1:
            raise PolicyError(
                f"Backoff: retries={self.retries} never retries; give at least 1, or leave the class out of `classes`"
            )
        if not 0 <= self.base_seconds <= self.most_seconds < float("inf"):
            raise PolicyError(
                f"Backoff: base_seconds={self.base_seconds} and most_seconds={self.most_seconds} are no waits; "
                "give 0 <= base_seconds <= most_seconds"
            )

    def seconds(self, retry: int, chance: float) -> float:
        """The wait before the `retry`-th retry, from 1 on; `chance` is from 0 up to 1."""
        return chance * min(self.base_seconds * 2.0 ** min(retry - 1, 60), self.most_seconds)


_BUSY = Backoff(retries=4, base_seconds=2.0, most_seconds=60.0)
_PASSING = Backoff()
TRANSIENT: Mapping[str, Backoff] = MappingProxyType(
    {
        FailureCode.RATE_LIMIT: _BUSY,
        FailureCode.OVERLOADED: _BUSY,
        FailureCode.SERVER: _PASSING,
        FailureCode.TIMEOUT: _PASSING,
        FailureCode.TRANSPORT: _PASSING,
        FailureCode.PROTOCOL: _PASSING,
        FailureCode.EMPTY_RESPONSE: _PASSING,
    }
)
"""The failures that pass by themselves, and how each is waited out."""


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """When a failed request is made again.

    Args:
        classes: What is retried, by the code of the failure. All other failures are left to the next listener, and so
            are those that say of themselves that they are not `retryable`.
        per_step: How many retries one step may have in all, whatever failed.
        per_turn: How many retries one turn may have in all.
        most_provider_seconds: The longest wait that a provider may ask for; it is then kept to the letter. A wait of 0
            says nothing, and is not kept.
        beyond: What to do where it asks for a longer one: `delegate` leaves the failure, with what was asked for, to
            the next listener, so that nobody asks earlier than told; `back-off` waits as if nothing had been asked.
        chance: Draws the random part, from 0 up to 1.

    Raises:
        PolicyError: where a retry could never happen, or a limit could never be reached.
    """

    classes: Mapping[str, Backoff] = field(default_factory=lambda: TRANSIENT)
    per_step: int = 4
    per_turn: int = 20
    most_provider_seconds: float = 60.0
    beyond: Literal["delegate", "back-off"] = "delegate"
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        check_numbers(self, whole=["per_step", "per_turn"], real=["most_provider_seconds"])
        for code, backoff in self.classes.items():
            check_kind(self, f"classes[{str(code)!r}]", backoff, Backoff, "a Backoff")
        if self.beyond not in ("delegate", "back-off"):
            raise PolicyError(f"RetryOptions: beyond={self.beyond!r} is neither 'delegate' nor 'back-off'")
        for name in ("per_step", "per_turn"):
            if getattr(self, name) < 1:
                raise PolicyError(
                    f"RetryOptions: a budget of {name}={getattr(self, name)} never retries; give at least 1, or leave "
                    "the policy out"
                )
        if self.per_turn < self.per_step:
            raise PolicyError(
                f"RetryOptions: per_step={self.per_step} can never be used up within per_turn={self.per_turn}; "
                "give per_turn at least per_step"
            )
        if not self.classes:
            raise PolicyError("RetryOptions: `classes` is empty, so nothing is ever retried; leave the policy out")
        if not self.most_provider_seconds >= 0:
            raise PolicyError(
                f"RetryOptions: most_provider_seconds={self.most_provider_seconds} is no time; give 0 to heed no "
                "provider, or more"
            )
        object.__setattr__(self, "classes", MappingProxyType({str(code): one for code, one in self.classes.items()}))

    def wait(self, failure: Failure, retry: int) -> float | None:
        """Seconds to wait before the `retry`-th retry of such a failure; None if it is not to be retried."""
        backoff = self.classes.get(failure.code)
        if backoff is None or failure.retryable is False or retry > backoff.retries:
            return None
        asked = failure.retry_after
        if asked is not None and asked > 0:
            if asked <= self.most_provider_seconds:
                return asked
            if self.beyond == "delegate":
                return None
        return backoff.seconds(retry, self.chance())


def retrying(options: RetryOptions | None = None) -> Hooks:
    """Hooks that make a failed request again. A prepared call whose `retry_policy` is RetryOptions is retried by those.

    Each retry is recorded: `llm/retry` before the wait, `llm/retry-started` after it. Where the failed attempt had
    streamed text, `llm/retry` says `shown`, for whoever shows it: the next attempt begins again. The wait ends when the
    turn is cancelled; then nothing more is recorded and nothing is retried.
    """
    hooks = Hooks(name="retry", after="compaction")  # an overflow passes by no waiting; who shortens is asked first
    hooks.listen("agent/request-error", partial(_recover, options or RetryOptions()))
    return hooks


async def _recover(options: RetryOptions, payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
    policy = payload.retry_policy
    options = policy if isinstance(policy, RetryOptions) else options
    session, failure = payload.agent.session, payload.failure
    in_turn = list(_made(session))
    in_step = [one for one in in_turn if one.step == payload.step]
    same = sum(one.failure.code == failure.code for one in in_step)
    seconds = None
    if len(in_step) < options.per_step and len(in_turn) < options.per_turn:
        seconds = options.wait(failure, same + 1)
    if seconds is None or payload.signal.fired:
        return await next()
    scheduled = LlmRetry(
        retry_id=new_id(),
        turn=payload.turn,
        step=payload.step,
        provider=payload.provider,
        retry=len(in_step) + 1,
        delay_ms=round(seconds * 1000),
        failure=failure,
        max_retries=options.per_step,
        shown=True if _shown(session) else None,
    )
    session.append(scheduled)
    with payload.signal.scope():
        await anyio.sleep(seconds)
    if payload.signal.fired:
        return None
    session.append(
        LlmRetryStarted(retry_id=scheduled.retry_id, turn=scheduled.turn, step=scheduled.step, retry=scheduled.retry)
    )
    return Retry()


def _made(session: Session) -> Iterator[LlmRetry]:
    """The retries of the open turn, the newest first."""
    for event in reversed(session.events):
        if isinstance(event.data, TurnStart):
            return
        if isinstance(event.data, LlmRetry):
            yield event.data


def _shown(session: Session) -> bool:
    """Whether the attempt that has just failed had streamed anything that a person can see."""
    for event in reversed(session.events):
        if isinstance(event.data, AssistantAttempt):
            chunks = (chunk for chunk, _ in event.data.stream.chunks())
            return any(isinstance(one, (TextDelta, ReasoningDelta)) and bool(one.text.strip()) for one in chunks)
        if isinstance(event.data, StepStart):
            break
    return False
