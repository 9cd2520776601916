"""The pictures by the names that a format specification may give them: `f"{Turn:sequence}"`, `f"{Step:state}"`, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from lifecycle.definition.machine import Lifecycle

from .sequence import VIEWS, sequence
from .states import states
from .tables import table

FORMATS: Mapping[str, Callable[[type[Lifecycle]], str]] = MappingProxyType(
    {"sequence": sequence, **{view: partial(sequence, view=view) for view in VIEWS}, "state": states, "table": table}
)
"""Mermaid text, and for `table` Markdown. `sequence` is the overview."""
