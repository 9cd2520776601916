"""What happens to an agent as JSON lines, one occurrence a line, for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any, cast, get_args

from pydantic.alias_generators import to_camel

from lifecycle.driver.feed import Durable, Missed, Occurrence
from lifecycle.services.points import SessionStartPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, chunk_to_json
from lifecycle.vocabulary.events import Event
from lifecycle.vocabulary.failures import failure_of
from lifecycle.vocabulary.values import FrozenDict, Value, mend

CHUNKS: tuple[type[Any], ...] = get_args(Chunk)

_ESCAPED = {
    code: f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""What JSON allows as it is within strings, and terminals or splitters into lines do not take as text."""


def line_of(occurrence: Occurrence) -> str:
    """One line: `{"domain": "durable", ...the event}` or `{"domain": "live", "name": ..., ...the payload}`.

    `{"domain": "missed", "lost": ..., "since": ...}` stands for what came faster than it was read.
    `agent/session-start` also names the session.
    """
    if isinstance(occurrence, Durable):
        return '{"domain":"durable",' + event_line(occurrence.event)[1:]
    if isinstance(occurrence, Missed):
        return dump({"domain": "missed", "name": occurrence.name, "lost": occurrence.lost, "since": occurrence.since})
    told = {"domain": "live", "name": occurrence.name, **cast("dict[str, Any]", as_json(occurrence.payload))}
    if isinstance(occurrence.payload, SessionStartPayload):
        told["session"] = occurrence.payload.agent.session.id
    return dump(told)


def event_line(event: Event) -> str:
    """A stored event as one line."""
    return event.encode().translate(_ESCAPED)


def dump(value: object) -> str:
    """JSON as one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)


def as_json(value: Any) -> Any:
    """A payload as JSON: its fields by their wire names, without the agent and the signal."""
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseException):
        return failure_of(value).to_json()
    if isinstance(value, CHUNKS):
        return chunk_to_json(value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {to_camel(name): as_json(field) for name, field in fields.items() if _told(name, field)}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return value if value is None or isinstance(value, (int, FrozenDict)) else mend(repr(value))


def _told(name: str, value: object) -> bool:
    return name != "agent" and value is not None and not isinstance(value, CancelSignal)
