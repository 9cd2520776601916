"""The programs of an agent: the newest revision's, or those of a lifecycle that a user derives from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import Kind, Message
from lifecycle.definition.family import family, pooled, within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.step import Step
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn
from lifecycle.errors import DefinitionError
from lifecycle.services.points import POINTS, CallPayload, StepPayload, TurnPayload

from .performers import admission, stream, tooling
from .performers.agent import AGENT
from .performers.call import CALL
from .program import Perform, Program

_REST = (admission, stream, tooling)  # imported for the performers of a step that they register


class Programs(NamedTuple):
    """What an agent runs, and what its steps run for each tool call."""

    agent: Program
    call: Program
    points: Mapping[str, type[Any]]
    """The hook points that a user's lifecycle adds and nobody performs, with the payload that each is dispatched with:
    the agent's hooks must know them.
    """


def programs(lifecycle: type[Lifecycle] | None, performers: Mapping[str, Perform]) -> Programs:
    """Bind the performers to the newest revision, with a user's lifecycle in its place.

    Raises:
        DefinitionError: if the lifecycle has no place there, an effect no performer, or a performer no effect.
    """
    return _bound(lifecycle or Agent, performers) if performers else _plain(lifecycle or Agent)


@cache
def _plain(lifecycle: type[Lifecycle]) -> Programs:
    return _bound(lifecycle, {})


def _bound(lifecycle: type[Lifecycle], performers: Mapping[str, Perform]) -> Programs:
    whole = within(Agent, lifecycle)
    _check_keys(whole, performers)
    call = CALL.program(pooled(whole) or ToolCall, performers)
    return Programs(AGENT.program(whole, performers), call, dict(_points(whole, performers)))


def _said(lifecycle: type[Lifecycle]) -> Iterator[Message]:
    for phase in lifecycle.spec.phases.values():
        for effect in (*phase.does, *(effect for arrow in phase.arrows for effect in arrow.emits)):
            if isinstance(effect, Message):
                yield effect


def _check_keys(whole: type[Lifecycle], performers: Mapping[str, Perform]) -> None:
    """Raises DefinitionError for a performer that nothing would ever call."""
    known = {effect.key for one in family(whole) for effect in _said(one)}
    for key in performers:
        if key not in known:
            from difflib import get_close_matches  # only a mistake pays for it

            like = get_close_matches(key, known, 1)
            meant = f"; did you mean {like[0]!r}?" if like else ""
            raise DefinitionError(f"the performer of {key!r} has no effect to perform in {whole.__name__}{meant}")


_PAYLOADS: Mapping[type[Lifecycle], type[Any]] = {Turn: TurnPayload, Step: StepPayload, ToolCall: CallPayload}


def _points(whole: type[Lifecycle], performers: Mapping[str, Perform]) -> Iterator[tuple[str, type[Any]]]:
    for one in family(whole):
        for effect in _said(one):
            if effect.kind is Kind.HOOK and effect.name not in POINTS and effect.key not in performers:
                yield effect.name, next(payload for kind, payload in _PAYLOADS.items() if issubclass(one, kind))
