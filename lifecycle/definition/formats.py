"""What `f"{Turn:sequence}"` means: pictures by name. They stand on a higher floor, and are fetched when first asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Drawing: TypeAlias = Callable[[type[Any]], str]

_offers: list[Callable[[], Mapping[str, Drawing]]] = []


def offer(drawings: Callable[[], Mapping[str, Drawing]]) -> None:
    """Let `drawings()` be asked for what a format specification may name."""
    _offers.append(drawings)


def drawing(name: str) -> Drawing | None:
    """What draws a lifecycle under that name; None if nobody offers it."""
    return next((found for drawings in _offers if (found := drawings().get(name)) is not None), None)
