"""Fingerprints: what a frozen value says, so that two of them tell whether somebody has changed it meanwhile."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from lifecycle.vocabulary.values import Value


def fingerprint(value: Any) -> object:
    """Equal for the same value as long as nobody changes it. What is no plain value, such as an agent, is itself."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Value):
        held = value.__dict__  # and not everything in there: a cached property is no change
        return type(value), tuple(fingerprint(held.get(name)) for name in type(value).model_fields)
    if isinstance(value, dict):
        return tuple((name, fingerprint(one)) for name, one in cast("dict[str, Any]", value).items())
    if isinstance(value, (tuple, list)):
        return type(cast(object, value)), tuple(map(fingerprint, cast("tuple[Any, ...]", value)))
    if dataclasses.is_dataclass(value):
        return type(value), tuple(fingerprint(getattr(value, one.name, None)) for one in dataclasses.fields(value))
    return id(value)
