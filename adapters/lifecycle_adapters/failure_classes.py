"""Which of the neutral names a provider's refusal gets: by code and status, and last by its words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from lifecycle.vocabulary.failures import FailureCode

_READ_CHARS = 8192
"""How much of a server's words is read for their meaning."""

_CODES: Mapping[str, FailureCode] = {
    **dict.fromkeys(
        (
            "insufficient_quota",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
            "enforced_spend_limit_reached",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "exceeded_current_quota_error",
            "insufficient_balance",
            "insufficient_credits",
        ),
        FailureCode.QUOTA,
    ),
    **dict.fromkeys(("overloaded_error", "overloaded", "engine_overloaded_error"), FailureCode.OVERLOADED),
    **dict.fromkeys(
        (
            "rate_limit_error",
            "rate_limit_exceeded",
            "rate_limit_reached_error",
            "too_many_requests",
            "throttlingexception",
            "resource_exhausted",
        ),
        FailureCode.RATE_LIMIT,
    ),
    **dict.fromkeys(
        (
            "context_length_exceeded",
            "context_window_exceeded",
            "model_context_window_exceeded",
            "exceed_context_size_error",
            "request_too_large",
        ),
        FailureCode.CONTEXT_OVERFLOW,
    ),
    **dict.fromkeys(
        ("authentication_error", "permission_error", "permission_denied", "invalid_api_key", "invalid_authentication"),
        FailureCode.AUTH,
    ),
    **dict.fromkeys(
        ("server_error", "api_error", "internal_server_error", "internal_error", "timeout_error"), FailureCode.SERVER
    ),
    **dict.fromkeys(("not_found_error", "badrequesterror", "unsupported_value"), FailureCode.INVALID_REQUEST),
}
"""What the codes and types of providers mean, in lower case."""

_OVERFLOW = re.compile(
    r"maximum context length|context[_ ]length[_ ]exceeded|(?:prompt|input) (?:is )?too long|maximum model length"
    r"|exceed\w* (?:the |your |its |this model's )?(?:available |configured |maximum )?context"
    r"|(?:than|beyond|over) the (?:model's )?(?:maximum )?context (?:length|window|size)"
    r"|context (?:window|length|size|limit) (?:is |was |has been )?(?:only|exceed|reached|full)"
    r"|context[_ ]window[_ ]exceed|available context size|exceed_context_size|configured context size"
    r"|maximum allowed input length|exceeds the maximum size|request_too_large|maximum prompt length"
    r"|(?:input|prompt) tokens? (?:count )?.{0,40}exceed|exceed\w* (?:the )?(?:model )?(?:token|input) limit"
    r"|too many (?:input |prompt )?tokens in|tokens in the prompt cannot exceed|prompt (?:has|contains) .{0,20}tokens"
    r"|`inputs` tokens|reduce the length of the (?:messages|prompt|input)|range of input length should be",
    re.IGNORECASE,
)
_NOT_THE_INPUT = re.compile(
    r"(?<!\+ `)max_(?:completion_|output_|new_)?tokens(?:`|'|\"| )*(?:is|must|should)", re.IGNORECASE
)
"""Words about the ceiling of the answer, which say nothing of the conversation."""

_THROTTLED = re.compile(
    r"too many tokens, please wait|throttl|rate.?limit|too many requests|slow down|(?:tokens|requests) per minute",
    re.IGNORECASE,
)
_SPENT = re.compile(
    r"credit balance is too low|exceeded your current quota|insufficient (?:quota|balance|credit|fund)"
    r"|out of credits|billing hard limit|spend(?:ing)? limit",
    re.IGNORECASE,
)
_PASSES = re.compile(r"retry in|try again in|per[ _-]?(?:minute|second|hour)", re.IGNORECASE)
"""Words by which a quota is one that fills again by itself."""

_PASSING_STATUSES = frozenset({408, 409, 425})
"""Client errors that say: the same request, a little later."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the body of an error says: its words, and the codes and types that it names."""

    message: str
    names: frozenset[str]
    status: int | None
    request_id: str | None

    @property
    def text(self) -> str:
        """All words, of which some servers put the telling ones into a code."""
        return " ".join((self.message[:_READ_CHARS], *sorted(self.names)))


def classify(status: int | None, body: object) -> FailureCode:
    """Which of the neutral names fits: by code and status, and only where these leave it open by the words.

    `status` is None inside a stream; then a status that the body names counts.
    """
    said = read(body)
    meant = {_CODES[name] for name in said.names if name in _CODES}
    seen = status if status is not None and status >= 400 else said.status
    if FailureCode.QUOTA in meant or seen == 402 or (_SPENT.search(said.text) and not _PASSES.search(said.text)):
        return FailureCode.QUOTA
    if FailureCode.OVERLOADED in meant or seen == 529:
        return FailureCode.OVERLOADED
    if FailureCode.RATE_LIMIT in meant or seen == 429:
        return FailureCode.RATE_LIMIT
    if FailureCode.CONTEXT_OVERFLOW in meant:
        return FailureCode.CONTEXT_OVERFLOW
    if seen in (401, 403) or FailureCode.AUTH in meant:
        return FailureCode.AUTH
    overflow = _OVERFLOW.search(said.text) and not _NOT_THE_INPUT.search(said.text)
    if _THROTTLED.search(said.text) and not overflow:
        return FailureCode.RATE_LIMIT
    if (overflow and seen != 404) or seen == 413:
        return FailureCode.CONTEXT_OVERFLOW
    if seen in _PASSING_STATUSES or (seen is not None and seen >= 500) or FailureCode.SERVER in meant:
        return FailureCode.SERVER
    if seen is not None or FailureCode.INVALID_REQUEST in meant or any(map(_says_invalid, said.names)):
        return FailureCode.INVALID_REQUEST
    return FailureCode.SERVER


def _says_invalid(name: str) -> bool:
    return name.startswith(("invalid_", "unsupported_")) or name.endswith("_not_found")


def read(body: object) -> Said:
    message, names, request_id = "", set[str](), None
    for part in _parts(body):
        if isinstance(part, str):
            message = message or part
            continue
        for key in ("code", "type", "status", "error_code", "__type"):
            value = part.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                names.add(str(value).lower()[:200])
        words = part.get("message", part.get("detail"))
        if isinstance(words, str):
            message = words
        elif isinstance(words, (list, dict)):  # what FastAPI says is wrong, and where
            message = json.dumps(words, ensure_ascii=False)
        if isinstance(part.get("request_id"), str):
            request_id = part["request_id"]
    named = [int(name) for name in names if re.fullmatch("[45][0-9]{2}", name)]
    return Said(message, frozenset(names), min(named) if named else None, request_id)


def _parts(body: object) -> Iterator[str | dict[str, Any]]:
    """The body and the errors nested in it, outermost first. Servers nest them once; three is generous."""
    for _ in range(3):
        if isinstance(body, str):
            yield body
            return
        if not isinstance(body, dict):
            return
        known = cast("dict[str, Any]", body)
        yield known
        body = known.get("error")
