"""Performers that dispatch a hook point: no listener, no cost."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lifecycle.definition.effects import Kind, Message
from lifecycle.services.points import StepPayload

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


def hooked(effect: Message) -> Perform | None:
    """The performer of a serial hook point that a user's lifecycle adds: its payload is that of a step."""
    if effect.kind is not Kind.HOOK or effect.mode != "serial":
        return None

    def payload(run: Any) -> StepPayload:
        turn, step = (run.turn.number, run.number) if hasattr(run, "turn") else (run.number, run.steps)
        return StepPayload(run.agent.handle, turn, step, run.signal)

    return serial(effect.name, payload)
