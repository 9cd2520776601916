"""The programs of an agent: the newest revision's, or those of a lifecycle that a user derives from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import Kind, Message
from lifecycle.definition.family import family, pooled, within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.tool_call import ToolCall

from .performers import admission, stream, tooling
from .performers.agent import AGENT
from .performers.call import CALL
from .program import Perform, Program

_REST = (admission, stream, tooling)  # imported for the performers of a step that they register


class Programs(NamedTuple):
    """What an agent runs, and what its steps run for each tool call."""

    agent: Program
    call: Program
    points: tuple[str, ...]
    """The hook points that a user's lifecycle dispatches; the agent's hooks must know them."""


def programs(lifecycle: type[Lifecycle] | None, performers: Mapping[str, Perform]) -> Programs:
    """Bind the performers to the newest revision, with a user's lifecycle in its place.

    Raises:
        DefinitionError: if the lifecycle has no place there, or an effect no performer.
    """
    return _bound(lifecycle or Agent, performers) if performers else _plain(lifecycle or Agent)


@cache
def _plain(lifecycle: type[Lifecycle]) -> Programs:
    return _bound(lifecycle, {})


def _bound(lifecycle: type[Lifecycle], performers: Mapping[str, Perform]) -> Programs:
    whole = within(Agent, lifecycle)
    call = CALL.program(pooled(whole) or ToolCall, performers)
    return Programs(
        AGENT.program(whole, performers), call, tuple(_points(whole, performers)) if whole is not Agent else ()
    )


def _points(lifecycle: type[Lifecycle], performers: Mapping[str, Perform]) -> Iterator[str]:
    for one in family(lifecycle):
        for phase in one.spec.phases.values():
            said = (*phase.does, *(effect for arrow in phase.arrows for effect in arrow.emits))
            for effect in said:
                if isinstance(effect, Message) and effect.kind is Kind.HOOK and effect.key not in performers:
                    yield effect.name
