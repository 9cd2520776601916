"""The lifecycle of an agent turn and step, declared once as state machines and performed by one driver."""

from collections.abc import Mapping as _Mapping

from lifecycle.definition import formats as _formats
from lifecycle.driver.agent import Agent
from lifecycle.driver.feed import Durable, EventStream, Live, Missed
from lifecycle.driver.options import AgentOptions
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.model import Model, PreparedCall
from lifecycle.services.points import (
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Enter,
    HookPoint,
    PromptAssembly,
    PromptText,
    Reject,
    Retry,
    ToolOutcome,
)
from lifecycle.services.prompt import Prompt, Section
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, ToolContext, tool
from lifecycle.session.log import Session
from lifecycle.vocabulary.failures import Failure, HookCancel, ParentCancel, UserCancel
from lifecycle.vocabulary.messages import UserMessage, user_message
from lifecycle.vocabulary.requests import CallConfig, ModelSelection

__all__ = [
    "Accept",
    "Agent",
    "AgentOptions",
    "Allow",
    "Ask",
    "Block",
    "CallConfig",
    "CancelSignal",
    "Deny",
    "Durable",
    "Enter",
    "EventStream",
    "Failure",
    "HookCancel",
    "HookPoint",
    "Hooks",
    "Live",
    "Missed",
    "Model",
    "ModelSelection",
    "Next",
    "ParentCancel",
    "PreparedCall",
    "Prompt",
    "PromptAssembly",
    "PromptText",
    "Reject",
    "Retry",
    "Section",
    "Session",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "UserCancel",
    "UserMessage",
    "tool",
    "user_message",
]


def _pictures() -> _Mapping[str, _formats.Drawing]:
    """What `f"{Turn:sequence}"` draws with. Nobody who draws nothing loads it."""
    from lifecycle.pictures.formats import FORMATS

    return FORMATS


_formats.offer(_pictures)
