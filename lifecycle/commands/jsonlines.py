"""What happens to an agent as JSON lines, one occurrence a line, for programs."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import Any, cast, get_args

from pydantic.alias_generators import to_camel

from lifecycle.driver.feed import Durable, Occurrence
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, chunk_to_json
from lifecycle.vocabulary.failures import failure_of
from lifecycle.vocabulary.values import FrozenDict, Value, mend

CHUNKS: tuple[type[Any], ...] = get_args(Chunk)


def line_of(occurrence: Occurrence) -> str:
    """One line: `{"domain": "durable", ...the event}` or `{"domain": "live", "name": ..., ...the payload}`."""
    if isinstance(occurrence, Durable):
        return '{"domain":"durable",' + occurrence.event.encode()[1:]
    told = {"domain": "live", "name": occurrence.name, **cast("dict[str, Any]", as_json(occurrence.payload))}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


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
    return value if value is None or isinstance(value, (int, float, FrozenDict)) else repr(value)


def _told(name: str, value: object) -> bool:
    return name != "agent" and value is not None and not isinstance(value, CancelSignal)
