"""How long a provider asks to be left alone: in a header, in a field of the error, or in its words. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = r"[0-9]{1,9}(?:\.[0-9]{1,9})? ?(?:ms|millis|s|m|h|d)[a-z]{0,10}(?: and|,)?\s*"
_ASKED = re.compile(
    rf"(?:try(?:ing)? again|retry(?:ing)?|wait)(?: in| after| for)?(?: about)? ((?:{_SPAN}){{1,4}})", re.I
)
_PART = re.compile(r"([0-9.]+) ?(ms|millis|s|m|h|d)", re.I)
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")

_FIELDS = {"retryafter": 1.0, "retryafterseconds": 1.0, "retrydelay": 1.0, "retryafterms": 0.001}
"""Fields of errors that hold a delay, in lower case and without what joins words; and the unit of a bare number."""

_MOST_FIELDS = 256
"""How many fields of an error are looked at."""


def delay(headers: Mapping[str, str], body: object) -> float | None:
    """How many seconds the server asks to wait; None where it says nothing usable. The header outweighs the body."""
    asked = retry_after(headers)
    return asked_in(body) if asked is None else asked


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The delay that the headers ask for.

    A date is measured against the server's own `Date`, so that a wrong clock here does no harm, and is never negative.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,18}", value):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("date", ""))
    return max(0.0, until - (time.time() if now is None else now))


def asked_in(body: object) -> float | None:
    """The delay that an error asks for in a field, as Google's `retryDelay` and gateways do, or else in its words."""
    words: list[str] = []
    for count, (name, value) in enumerate(_fields(body)):
        if count == _MOST_FIELDS:
            break
        unit = _FIELDS.get(re.sub("[-_]", "", name.lower()))
        asked = None if unit is None else _seconds(value, unit)
        if asked is not None:
            return asked
        if isinstance(value, str):
            words.append(value[:4096])
    found = _ASKED.search(" ".join(words))
    return None if found is None else _span(found[1])


def _fields(body: object) -> Iterator[tuple[str, object]]:
    """All fields within, those of the outer objects first."""
    pending: list[tuple[str, object]] = [("", body)]
    for name, value in pending:  # grows while it is gone through
        yield name, value
        if isinstance(value, dict):
            pending += cast("dict[str, object]", value).items()
        elif isinstance(value, list):
            pending += [("", item) for item in cast("list[object]", value)]


def _seconds(value: object, unit: float) -> float | None:
    if isinstance(value, dict):  # how some clients spell Google's durations
        value = cast("dict[str, Any]", value).get("seconds")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    return float(value) * unit if _NUMBER.fullmatch(value) else _span(value) if re.fullmatch(_SPAN, value) else None


def _span(text: str) -> float:
    """`6m0s`, `20ms`, `26 seconds` in seconds."""
    return round(sum(float(number) * _UNITS.get(unit.lower(), 0.001) for number, unit in _PART.findall(text)), 9)


def _date(text: str) -> float | None:
    if not re.search(r"[0-9]:[0-9]{2}:[0-9]{2}", text):  # the parser is lenient and takes "1e3" for a date of its own
        return None
    try:
        read = parsedate_to_datetime(text)
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()  # asctime names no zone
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
