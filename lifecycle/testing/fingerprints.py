"""Fingerprints: what a frozen value says, so that two of them tell whether somebody has changed it meanwhile; and
whether a value that somebody has made without validation is one at all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from pydantic import ValidationError

from lifecycle.vocabulary.values import Value


def fingerprint(value: Any) -> object:
    """Equal for the same value as long as nobody changes it. What is no plain value, such as an agent, is itself."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return tuple((name, fingerprint(one)) for name, one in cast("dict[str, Any]", value).items())
    if isinstance(value, (tuple, list)):
        return type(cast(object, value)), tuple(map(fingerprint, cast("tuple[Any, ...]", value)))
    if dataclasses.is_dataclass(value):
        return type(value), tuple(fingerprint(getattr(value, one.name, None)) for one in dataclasses.fields(value))
    return id(value)


def invalid(value: Any) -> str | None:
    """What is wrong with a verdict or a value in it that was copied or constructed without validation; else None."""
    parts: list[Any] = []
    if isinstance(value, (tuple, list)):
        parts = list(cast("tuple[Any, ...]", value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, one.name, None) for one in dataclasses.fields(value)]
    wrong = next((wrong for wrong in map(invalid, parts) if wrong is not None), None)
    if wrong is None and isinstance(value, Value):
        try:
            type(value)(**{one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
        except ValidationError as refused:
            first = refused.errors()[0]
            return f"{type(value).__name__}.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return wrong
