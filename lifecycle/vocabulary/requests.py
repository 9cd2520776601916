"""What a model is asked with: the selection of a step, the configuration of a call, the tools, the request itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .messages import AssistantMessage, SystemMessage, UserMessage
from .values import EMPTY, JsonObject, Value


class ModelSelection(Value, frozen=True):
    """The provider, model and effort chosen for one step; published as `agent.step`."""

    provider: str | None = None
    model: str | None = None
    effort: str | None = None


class CallConfig(Value, frozen=True):
    """How one request is made. A hook that wants another returns `config.model_copy(update={...})`."""

    provider: str | None = None
    model: str | None = None
    effort: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    options: JsonObject = EMPTY
    """Fields for one provider only, by its own names."""


class ToolSpec(Value, frozen=True):
    """A tool as the model sees it. `input_schema` is a JSON schema of an object."""

    name: str
    description: str = ""
    input_schema: JsonObject = EMPTY
    kind: str | None = None
    """What it does to the world, as it declares: `read`, `write`, `execute`, ... For policies; no provider is told."""


class Header(Value, frozen=True):
    """What a request is made with besides its messages, in canonical form (REQ-07).

    `defaults` names the fields of `config` that the adapter filled in by itself (PRP-03).
    """

    config: CallConfig
    tools: tuple[ToolSpec, ...] | None = None
    defaults: tuple[str, ...] | None = None


SystemUpdate: TypeAlias = Literal["rewrite", "in-history"]
"""How a provider takes a changed prompt section: replaced in place, or appended so that its prefix cache survives."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, derived from the log and frozen (REQ-04, REQ-05)."""

    messages: Sequence[SystemMessage | UserMessage | AssistantMessage]
    tools: tuple[ToolSpec, ...]
    config: CallConfig
    turn: int
    step: int
    attempt: int
    starts_series: bool = False
