"""The programs of an agent: the newest revision's, or those of a lifecycle that a user derives from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from lifecycle.definition.agent import Agent
from lifecycle.definition.family import pooled, within
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
    return Programs(AGENT.program(whole, performers), call)
