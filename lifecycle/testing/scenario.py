"""Scenarios: a run of an agent as plain data, which can be written down, made smaller, and run again.

A scenario says what the outside world does and when, what the model answers, how the tools behave, what the scripted
hooks do, and in which order things happen. Knows nothing of how it is performed (`simulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from lifecycle.services.points import POINTS, Mode
from lifecycle.vocabulary.chunks import FinishKind, Usage
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.requests import SystemUpdate

Cause: TypeAlias = Literal["user", "parent", "hook", "disposed"]


class Data(BaseModel, frozen=True):
    """The base of what can be written down and made smaller: frozen, closed, camelCase in JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class Act(Data, frozen=True):
    """Something done to the agent: by the outside world, or from within a hook or a tool.

    `remove` and `replace` edit the oldest pending message. For the outside world only: `maintain`; `dispose` leaves
    the agent's context; `abandon` cancels the scope around it.
    """

    verb: Literal["followup", "steer", "inject", "cancel", "remove", "replace", "maintain", "dispose", "abandon"] = (
        "followup"
    )
    text: str = "hello"
    """What is said, where something is."""
    cause: Cause = "user"
    keep_inbox: bool = False
    lasts: int = Field(default=1, ge=0)
    """How many moves a maintenance task takes. It stops early when its signal fires."""

    @property
    def from_outside_only(self) -> bool:
        return self.verb in ("maintain", "dispose", "abandon")

    def __str__(self) -> str:
        match self.verb:
            case "cancel":
                return f"cancel {self.cause}{', keeping the inbox' if self.keep_inbox else ''}"
            case "remove" | "maintain" | "dispose" | "abandon":
                return self.verb
            case _:
                return f"{self.verb} {self.text!r}"


class Move(Act, frozen=True):
    """What the outside world does, and when."""

    at: int = Field(default=0, ge=0)
    """After how many moves of the run; earlier if nothing else can move. Those of one number keep their order."""


class AskedCall(Data, frozen=True):
    """A tool call that the model asks for."""

    tool: str = "work"
    arguments: str = "{}"
    """The raw text, whether or not it is JSON."""
    id: str | None = None
    """By default `call-R-N`: the N-th call of request R."""


class Answer(Data, frozen=True):
    """What the model streams to one request; each chunk is one thing that the schedule releases."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[AskedCall, ...] = ()
    usage: Usage | None = None
    finish: FinishKind | None = None
    """By default what goes with the rest: `tool-calls` or `stop`, `error` where there is a failure."""
    failure: Failure | None = None
    """The failure in band that it ends with."""
    breaks_at: int | None = Field(default=None, ge=0)
    """The stream raises in the place of this chunk."""
    ends_at: int | None = Field(default=None, ge=0)
    """The stream ends without a finish in the place of this chunk."""
    lingers: int = Field(default=0, ge=0)
    """How many moves the adapter needs to close a stream that was not read to its end."""


class ToolScript(Data, frozen=True):
    """A tool, and how each of its calls goes."""

    name: str = "work"
    parallel: bool = False
    lasts: int = Field(default=1, ge=1)
    """How many moves the body takes."""
    lingers: int = Field(default=0, ge=0)
    """How many further moves it needs when it is cancelled."""
    answer: str = "done"
    raises: str | None = None
    """It fails with this message instead."""
    code: str | None = None
    """The code of that failure; without one it is an unexpected exception."""
    defers: tuple[str, ...] = ()
    """What it gives the model for the next step."""
    concludes: bool = False
    records: int = Field(default=0, ge=0)
    """How many events of its own it records."""
    does: tuple[Act, ...] = ()
    """What it does to the agent, right before it ends."""

    @field_validator("does")
    @classmethod
    def _from_within(cls, does: tuple[Act, ...]) -> tuple[Act, ...]:
        return _only_from_within(does)


def _only_from_within(does: tuple[Act, ...]) -> tuple[Act, ...]:
    for act in does:
        if act.from_outside_only:
            raise ValueError(f"only the outside world can {act.verb}")
    return does


Behaviour: TypeAlias = Literal[
    "raise", "act", "slow", "sleep", "nonsense", "reject", "empty", "rewrite", "add", "change", "retry", "deny", "ask",
    "replace", "block", "cut",
]  # fmt: skip
"""What a scripted hook does: raise, act on the agent, wait for moves or for virtual time, answer what no point allows;
or a verdict of its point."""

VERDICTS: Mapping[str, tuple[Behaviour, ...]] = MappingProxyType({
    "agent/model": ("change",),
    "agent/pre-step": ("reject", "empty", "rewrite", "add"),
    "system-prompt/assemble": ("change",),
    "agent/request": ("change",),
    "llm/stream": ("rewrite", "cut"),
    "agent/request-error": ("retry",),
    "tools/pre-execute": ("deny", "ask", "rewrite"),
    "tools/guard": ("deny",),
    "tools/execute": ("replace",),
    "tools/post-execute": ("block", "rewrite"),
})  # fmt: skip
"""What a scripted hook can answer at each point that listens."""


def behaviours(point: str) -> tuple[Behaviour, ...]:
    """All that a scripted hook can do at this point."""
    waits = POINTS[point].mode not in (Mode.EMIT, Mode.VETO)
    decides = bool(POINTS[point].verdicts)
    return (
        "raise",
        "act",
        *(("slow", "sleep") if waits else ()),
        *(("nonsense",) if decides else ()),
        *VERDICTS.get(point, ()),
    )


class HookScript(Data, frozen=True):
    """One listener at one hook point, and what it does there."""

    point: str
    does: Behaviour
    nth: int = Field(default=1, ge=0)
    """The how-many-th time that it is called; 0 is every time, otherwise it lets all other calls pass."""
    event: str | None = None
    """At `session/append` and `session/event`: only events of this type count."""
    after: bool = False
    """In a waterfall: once `next()` has returned, not before."""
    lasts: int = Field(default=1, ge=1)
    """How many moves it waits (`slow`)."""
    seconds: float = Field(default=1.0, ge=0)
    """How long it sleeps, in virtual seconds (`sleep`)."""
    acts: tuple[Act, ...] = ()
    """What it does to the agent (`act`)."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.point not in POINTS:
            raise ValueError(f"there is no hook point {self.point!r}")
        if self.does not in behaviours(self.point):
            raise ValueError(f"a hook at {self.point} can {', '.join(behaviours(self.point))}, and not {self.does}")
        if self.does == "act" and self.nth == 0:
            raise ValueError("a hook that acts each time it is called would call itself for ever; say which time")
        _only_from_within(self.acts)
        return self


class Scenario(Data, frozen=True):
    """One run of one agent, as data.

    Scenario(
        moves=[Move(text="look"), Move(at=4, verb="cancel")],
        answers=[Answer(calls=[AskedCall(tool="work")])],
        tools=[ToolScript(lasts=2)],
    )
    """

    moves: tuple[Move, ...] = ()
    answers: tuple[Answer, ...] = ()
    """One for each request; every request after the last one is answered with `ok`."""
    preparing: tuple[Literal["now", "later", "raise"], ...] = ()
    """How each preparation of a call goes: at once, as a thing that the schedule releases, or not at all."""
    tools: tuple[ToolScript, ...] = ()
    hooks: tuple[HookScript, ...] = ()
    choices: tuple[int, ...] = ()
    """Which of the things that wait comes next; past their end the one that has waited longest."""
    interleaving: tuple[int, ...] | None = None
    """Which callback runs next, for a search beyond moves: reproducible on each backend, and not equal on both."""
    system: str | None = "be brief"
    context: str | None = None
    """The runtime context."""
    system_update: SystemUpdate = "rewrite"
    max_parallel_tools: int = Field(default=10, ge=1)
    approves: bool = True

    @field_validator("tools")
    @classmethod
    def _names(cls, tools: tuple[ToolScript, ...]) -> tuple[ToolScript, ...]:
        names = [tool.name for tool in tools]
        if len(set(names)) < len(names):
            raise ValueError("two tools have one name")
        return tools

    def dumps(self) -> str:
        """The scenario as JSON text; what is usual is left out."""
        told = self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        return json.dumps(told, ensure_ascii=False, indent=2)

    @classmethod
    def loads(cls, text: str) -> Self:
        """The scenario that `dumps` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(text)
