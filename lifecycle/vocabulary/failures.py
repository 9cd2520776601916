"""Failures of model requests, causes of a cancel, and the reasons for which a turn ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field

from .values import Mended, Value, mend, trusted


class FailureCode(StrEnum):
    """The neutral names of what can go wrong with a request. An adapter may use further codes of its own."""

    RATE_LIMIT = "RATE_LIMIT"
    OVERLOADED = "OVERLOADED"
    QUOTA = "QUOTA"
    CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW"
    INVALID_REQUEST = "INVALID_REQUEST"
    AUTH = "AUTH"
    SERVER = "SERVER"
    TIMEOUT = "TIMEOUT"
    TRANSPORT = "TRANSPORT"
    PROTOCOL = "PROTOCOL"
    EMPTY_RESPONSE = "EMPTY_RESPONSE"
    NO_ADAPTER = "NO_ADAPTER"
    INVALID_PREPARED_CALL = "INVALID_PREPARED_CALL"
    ABORTED = "ABORTED"
    UNKNOWN = "UNKNOWN"


class Failure(Value, frozen=True):
    """What went wrong, as data. `message` is one sentence for people; it never holds a key."""

    message: Mended
    code: Mended = FailureCode.UNKNOWN.value
    status: int | None = None
    """The HTTP status, where there was one."""
    request_id: Mended | None = None
    """The provider's name for the request, for its support."""
    retryable: bool | None = None
    """Whether the very same request may be sent again."""
    retry_after: float | None = None
    """How many seconds the provider asked to wait."""


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception stands for: the one it carries, or its rendered chain of causes (TRN-09)."""
    carried = getattr(error, "failure", None)
    if isinstance(carried, Failure):
        return carried
    return Failure(message=render_chain(error))


def render_chain(error: BaseException) -> str:
    """`error` and what caused it, outermost first, as one line; a group with what it holds. Never raises."""
    return mend(_chain(error, set()))


_SHOWN = 5
"""How many exceptions of a group are told."""


def _chain(error: BaseException, seen: set[int]) -> str:
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append(_rendered(current, seen))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return ", caused by ".join(parts)


def _rendered(error: BaseException, seen: set[int]) -> str:
    name = type(error).__name__
    try:
        said = str(error).strip()
    except Exception as wrong:  # of a class of somebody else's
        said = f"its text cannot be told ({type(wrong).__name__})"
    if isinstance(error, BaseExceptionGroup):
        held = cast("BaseExceptionGroup[BaseException]", error).exceptions
        told = [_chain(one, seen) or type(one).__name__ for one in held[:_SHOWN]]
        rest = [f"and {len(held) - _SHOWN} more"] if len(held) > _SHOWN else []
        said = f"{said}: {'; '.join([*told, *rest])}"
    return f"{name}: {said}" if said else name


class UserCancel(Value, frozen=True):
    """A person stopped the turn."""

    kind: Literal["user"] = "user"


class ParentCancel(Value, frozen=True):
    """The agent that started this one stopped it."""

    kind: Literal["parent"] = "parent"


class HookCancel(Value, frozen=True):
    """A hook stopped the turn; `reason` says why."""

    kind: Literal["hook"] = "hook"
    reason: Mended


class DisposedCancel(Value, frozen=True):
    """The agent is being disposed, or its host's scope was cancelled."""

    kind: Literal["disposed"] = "disposed"


CancelCause: TypeAlias = Annotated[UserCancel | ParentCancel | HookCancel | DisposedCancel, Field(discriminator="kind")]
USER_CANCEL = trusted(UserCancel)()
PARENT_CANCEL = trusted(ParentCancel)()
DISPOSED_CANCEL = trusted(DisposedCancel)()


class Completed(Value, frozen=True):
    kind: Literal["completed"] = "completed"


class MaxTokens(Value, frozen=True):
    """A step of the turn was cut off by the token ceiling (TRN-06)."""

    kind: Literal["max-tokens"] = "max-tokens"


class Blocked(Value, frozen=True):
    """A hook rejected the proposed step (TRN-07)."""

    kind: Literal["blocked"] = "blocked"


class Aborted(Value, frozen=True):
    """The turn's signal fired; `reason` is the first cause (TRN-11)."""

    kind: Literal["aborted"] = "aborted"
    reason: CancelCause


class Errored(Value, frozen=True):
    """The turn failed; `error` says how (TRN-09)."""

    kind: Literal["error"] = "error"
    error: Failure


class Interrupted(Value, frozen=True):
    """The process was lost; only repair writes it (TRN-04)."""

    kind: Literal["interrupted"] = "interrupted"


TurnEndReason: TypeAlias = Annotated[
    Completed | MaxTokens | Blocked | Aborted | Errored | Interrupted, Field(discriminator="kind")
]
COMPLETED = trusted(Completed)()
MAX_TOKENS = trusted(MaxTokens)()
BLOCKED = trusted(Blocked)()
INTERRUPTED = trusted(Interrupted)()
