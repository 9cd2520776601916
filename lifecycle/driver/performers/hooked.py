"""Performers that dispatch a hook point: no listener, no cost."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lifecycle.definition.effects import Kind, Message
from lifecycle.errors import DefinitionError
from lifecycle.services.points import HookPoint, Mode

from ..program import Perform


def serial(point: str, payload: Callable[[Any], Any]) -> Perform:
    """A performer that dispatches a serial point and leads on by the phase's only event."""

    def perform(run: Any) -> Coroutine[Any, Any, None] | None:
        if not run.agent.hooks.chains[point]:
            return None
        return _dispatch(run.agent.hooks.serial(point, payload(run)))

    return perform


async def _dispatch(dispatched: Coroutine[Any, Any, object]) -> None:
    await dispatched


def hooked(payload: Callable[[Any], Any]) -> Callable[[Message], Perform | None]:
    """What makes the performers of serial hook points that a user's lifecycle adds; `payload` is what they all get."""

    def perform(effect: Message) -> Perform | None:
        return serial(effect.name, payload) if effect.kind is Kind.HOOK and effect.mode == "serial" else None

    return perform


def check_point(point: HookPoint, payload: type[Any]) -> None:
    """Whether a user's hook point is declared as `hooked` dispatches it. Raises DefinitionError."""
    if point.mode is Mode.SERIAL and point.payload is payload and not point.verdicts:
        return
    takes = " and ".join(point.legal)
    raise DefinitionError(
        f"the hook point {point.name!r} is declared as {point.mode.value} with a {point.payload.__name__} for {takes}, "
        f"but without a performer it is dispatched as serial with a {payload.__name__} for nothing; declare it so, or "
        f"give the agent performers={{{point.name!r}: ...}}"
    )
