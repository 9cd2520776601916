"""The lifecycle of an agent turn and step, declared once as state machines and performed by one driver.

A public name is loaded when it is first used, so that whoever draws or checks does not wait for the driver.
"""

from collections.abc import Mapping as _Mapping
from importlib import import_module as _import
from importlib.util import find_spec as _find
from typing import TYPE_CHECKING

from lifecycle.definition import formats as _formats

if TYPE_CHECKING:
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
else:  # unseen by a type checker, who would take it that there is every name

    def __getattr__(name):
        """A public name, or a part of the package, loaded now."""
        if name in _PLACE_OF:
            found = getattr(_import(_PLACE_OF[name]), name)
        elif not name.startswith("_") and _find(f"lifecycle.{name}") is not None:
            found = _import(f"lifecycle.{name}")
        else:
            raise AttributeError(f"module 'lifecycle' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})


del TYPE_CHECKING

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

_PLACES = {
    "lifecycle.driver.agent": "Agent",
    "lifecycle.driver.feed": "Durable EventStream Live Missed",
    "lifecycle.driver.options": "AgentOptions",
    "lifecycle.services.hooks": "Hooks",
    "lifecycle.services.listeners": "Next",
    "lifecycle.services.model": "Model PreparedCall",
    "lifecycle.services.points": "Accept Allow Ask Block Deny Enter HookPoint PromptAssembly PromptText Reject Retry "
    "ToolOutcome",
    "lifecycle.services.prompt": "Prompt Section",
    "lifecycle.services.signal": "CancelSignal",
    "lifecycle.services.tools": "Tool ToolContext tool",
    "lifecycle.session.log": "Session",
    "lifecycle.vocabulary.failures": "Failure HookCancel ParentCancel UserCancel",
    "lifecycle.vocabulary.messages": "UserMessage user_message",
    "lifecycle.vocabulary.requests": "CallConfig ModelSelection",
}
"""Where each public name stands; a test holds it to be what a type checker is told above."""
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}


def _pictures() -> _Mapping[str, _formats.Drawing]:
    """What `f"{Turn:sequence}"` draws with. Nobody who draws nothing loads it."""
    from lifecycle.pictures.formats import FORMATS

    return FORMATS


_formats.offer(_pictures)
