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
            "usage_limit_reached",
            "exceeded_current_quota_error",
            "insufficient_balance",
            "insufficient_credits",
            "insufficient_user_quota",
            "credit_limit",
            "payment_required",
            "arrearage",
            "accountoverdueerror",
            "allocationquota.freetieronly",
        ),
        FailureCode.QUOTA,
    ),
    **dict.fromkeys(
        ("overloaded_error", "overloaded", "engine_overloaded_error", "server_is_overloaded", "model_overloaded"),
        FailureCode.OVERLOADED,
    ),
    **dict.fromkeys(
        (
            "rate_limit_error",
            "rate_limit_exceeded",
            "rate_limit_reached_error",
            "rate_limited",
            "ratelimitreached",
            "too_many_requests",
            "toomanyrequests",
            "slow_down",
            "throttlingexception",
            "throttling",
            "throttling.ratequota",
            "throttling.allocationquota",
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
        (
            "authentication_error",
            "permission_error",
            "permission_denied",
            "invalid_api_key",
            "invalidapikey",
            "api_key_invalid",
            "invalid_authentication",
            "unauthenticated",
            "unauthorized",
        ),
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
    r"|exceed\w* (?:the |your |its |this model's |the model's )?(?:available |configured |maximum )?context"
    r"|(?:than|beyond|over) the (?:model's )?(?:maximum )?context (?:length|window|size)"
    r"|context (?:window|length|size|limit) (?:is |was |has been )?(?:only|exceed|reached|full)"
    r"|context[_ ]?window[_ ]?exceed|available context size|exceed_context_size|configured context size"
    r"|max context is|context the overflows"
    r"|maximum allowed input length|request exceeds the maximum size|request_too_large|maximum prompt length"
    r"|(?:input|prompt) tokens? (?:count )?.{0,40}exceed|exceed\w* (?:the )?(?:model )?(?:token|input) limit"
    r"|too many (?:input |prompt )?tokens in|tokens in the prompt cannot exceed|prompt (?:has|contains) .{0,20}tokens"
    r"|(?:input|prompt) (?:length )?(?:\(?\d+\)? )?exceeds (?:the )?max(?:imum)? (?:prompt |input )?length"
    r"|total tokens exceed|(?:conversation|messages) (?:is|are) too long|上下文长度|输入内容过长"
    r"|`inputs` (?:tokens|must have less than)|reduce the length of the (?:messages|prompt|input)"
    r"|range of input length should be"
    r"|(?:prompt|input|conversation|messages?|request) (?:is |are )?too (?:long|large) for (?:the|this|our) "
    r"|(?:prompt|input|conversation|messages) (?:is |are )?too (?:long|large)"
    r"|(?:larger|longer|greater|bigger) than the (?:max(?:imum)? |model's |available )*context"
    r"|exceed\w* the (?:max(?:imum)?|allowed|permitted) (?:allowed )?number of (?:input |prompt )?tokens"
    r"|number of (?:input |prompt )?tokens (?:\(?\d+\)? )?(?:exceed|is greater|is larger)"
    r"|(?<!rate )token limit (?:(?:has been|was|is) )?exceeded|too many tokens: ?\d",
    re.IGNORECASE,
)
_NOT_THE_INPUT = re.compile(
    r"(?<!\+ `)max_(?:completion_|output_|new_)?tokens(?:`|'|\"| )*(?:is|must|should)", re.IGNORECASE
)
"""Words about the ceiling of the answer, which say nothing of the conversation."""

_BOTH = re.compile(r"your request has \d+ input tokens", re.IGNORECASE)
"""Words of a ceiling that is too high only for so long a conversation."""

_THROTTLED = re.compile(
    r"too many tokens, please wait|throttl|rate.?limit|too many requests|slow down|(?:tokens|requests) per minute"
    r"|速率限制|per[ _-]?(?:minute|second|hour|day)|\b[TR]P[MD]\b|(?:daily|hourly) (?:token )?(?:limit|quota)",
    re.IGNORECASE,
)
_SIZED = re.compile(r"context|window|length|too long|number of tokens|上下文|过长", re.IGNORECASE)
"""Words of an overflow that no limit of rate has."""
_SPENT = re.compile(
    r"credit balance is too low|exceeded your current quota|insufficient[ _](?:account )?(?:quota|balance|credit|fund)"
    r"|balance is insufficient|(?:out of|requires more|all available|monthly included) credits|billing hard limit"
    r"|spend(?:ing)? limit|(?:credit|key) limit (?:has been |is |was )?(?:exceeded|reached)|api usage limits?"
    r"|check your plan and billing|update your payment method|overdue balance|account is in good standing"
    r"|free tier .{0,40}exhausted|欠费|余额不足|充值"
    r"|not enough (?:credit|balance|fund)|balance (?:is )?(?:not enough|too low|exhausted)"
    r"|credits? (?:are |is |have been )?depleted|spend(?:ing)? cap|usage limit (?:has been |was |is )?reached"
    r"|no (?:remaining|more) (?:quota|credit)"
    r"|unpaid invoice|payment (?:is )?required|(?:subscription|trial) (?:has |is )?expired",
    re.IGNORECASE,
)
_BUSY = re.compile(r"overloaded|(?:at|over) capacity|server (?:is )?(?:too )?busy", re.IGNORECASE)
_UNKNOWN_KEY = re.compile(
    r"(?:incorrect|invalid|missing) api[ -]?key|api[ -]?key (?:is )?(?:not valid|invalid)", re.IGNORECASE
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
    if FailureCode.OVERLOADED in meant or seen in (498, 529):  # of Groq, and of Anthropic
        return FailureCode.OVERLOADED
    if FailureCode.RATE_LIMIT in meant or seen == 429:
        return FailureCode.RATE_LIMIT
    if FailureCode.CONTEXT_OVERFLOW in meant:
        return FailureCode.CONTEXT_OVERFLOW
    if seen in (401, 403, 407) or FailureCode.AUTH in meant or _UNKNOWN_KEY.search(said.text):
        return FailureCode.AUTH
    overflow = _OVERFLOW.search(said.text) and (not _NOT_THE_INPUT.search(said.text) or _BOTH.search(said.text))
    if _THROTTLED.search(said.text) and not (overflow and _SIZED.search(said.text)):
        return FailureCode.RATE_LIMIT
    if (overflow and seen != 404) or seen == 413:
        return FailureCode.CONTEXT_OVERFLOW
    if (seen is None or seen >= 500) and _BUSY.search(said.text):
        return FailureCode.OVERLOADED
    if seen in _PASSING_STATUSES or (seen is not None and seen >= 500) or FailureCode.SERVER in meant:
        return FailureCode.SERVER
    if seen is not None or FailureCode.INVALID_REQUEST in meant or any(map(_INVALID.fullmatch, said.names)):
        return FailureCode.INVALID_REQUEST
    return FailureCode.SERVER


_INVALID = re.compile(r"(?:invalid|unsupported|empty)_.*|.*_not_found|.*policy.*|image_.*")
"""Names of what is wrong with the request itself."""

_NAMES = ("code", "type", "status", "error_code", "error_type", "reason", "__type")
WORDS = ("message", "detail", "error_msg", "error_message", "error_description", "msg")


def read(body: object) -> Said:
    """What a body says: decoded JSON, or text."""
    message, names, request_id = "", set[str](), None
    for part in _parts(body):
        if isinstance(part, str):
            message = message or part
            names |= {part.lower()} if re.fullmatch(r"[\w.-]{1,80}", part) else set()
            continue
        for key in _NAMES:
            value = part.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                names.add(str(value).lower()[:200].rpartition("#")[2])
        words = next((part[key] for key in WORDS if part.get(key)), None)
        if isinstance(words, str):
            message = words
        elif isinstance(words, (list, dict)):  # what FastAPI says is wrong, and where
            message = json.dumps(words, ensure_ascii=False)
        if isinstance(part.get("request_id"), str):
            request_id = part["request_id"]
    named = [int(name) for name in names if re.fullmatch("[45][0-9]{2}", name)]
    return Said(message, frozenset(names), min(named) if named else None, request_id)


def _parts(body: object) -> Iterator[str | dict[str, Any]]:
    """The body and the errors nested in it, outermost first: servers nest them once, and gateways once more."""
    part = _opened(body)
    for _ in range(5):
        if part is None:
            return
        yield part
        if isinstance(part, str):
            return
        within = [part.get("error"), part.get("errors"), _raw(part), part.get("message")]
        opened = [_opened(value) for value in within]
        inner = next((value for value in opened if isinstance(value, dict)), None)
        said = opened[0]
        part = inner if inner is not None else said if isinstance(said, str) else None


def _opened(value: object) -> str | dict[str, Any] | None:
    """The error in `value`: the first of a list, as Google sends it, or the one that a text spells, as gateways do."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(value) if len(value) <= _READ_CHARS else value
        except (ValueError, RecursionError):
            return str(value)
    if isinstance(value, list):
        value = next(iter(cast("list[object]", value)), None)
    if isinstance(value, str):
        return value or None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _raw(part: dict[str, Any]) -> object:
    """What OpenRouter keeps of the error of the provider that it asked."""
    metadata: object = part.get("metadata")
    return cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
