"""Both galleries, complete."""

from __future__ import annotations

from . import calls, choices, contracts, loops, messages, orderly, records, streams, waiting
from .entry import CORRECT, FAULTY, Entry

MODULES = (calls, choices, contracts, loops, messages, orderly, records, streams, waiting)
"""Whose import fills them."""

__all__ = ["CORRECT", "FAULTY", "MODULES", "Entry"]
