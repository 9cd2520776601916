"""Messages and the blocks they are made of: what user, assistant, tools and the prompt say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import field
from typing import Annotated, Literal, TypeAlias
from uuid import uuid4

from pydantic import Field

from .values import EMPTY, FrozenDict, Json, JsonObject, Value, freeze_object, trusted


class TextBlock(Value, frozen=True):
    type: Literal["text"] = "text"
    text: str


class ImageBlock(Value, frozen=True):
    """A picture: `data` in base64, or a `url` that the provider can reach."""

    type: Literal["image"] = "image"
    media_type: str = "image/png"
    data: str | None = None
    url: str | None = None


class ReasoningBlock(Value, frozen=True):
    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolCallBlock(Value, frozen=True):
    """The model asks for a tool. `arguments` is the model's raw text, whether or not it is JSON."""

    type: Literal["tool-call"] = "tool-call"
    id: str
    name: str
    arguments: str = ""


class ToolResultBlock(Value, frozen=True):
    """What a tool answered to the call `tool_call_id`."""

    type: Literal["tool-result"] = "tool-result"
    tool_call_id: str
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False


Block: TypeAlias = Annotated[
    TextBlock | ImageBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock, Field(discriminator="type")
]
Content: TypeAlias = tuple[TextBlock | ImageBlock, ...]
"""What a tool returns and what a person sends."""

USER = FrozenDict(kind="user")
"""The source of what a person typed."""


def _random_id() -> str:
    return uuid4().hex


identities: ContextVar[Callable[[], str]] = ContextVar("identities", default=_random_id)
"""Where identities come from. A simulation counts them, so that one scenario gives one log."""


def new_id() -> str:
    """An identity that no other message has."""
    return identities.get()()


class UserMessage(Value, frozen=True):
    """Input for the model: typed by a person, steered, injected, or written by a plug-in.

    `source` is a JSON object with at least `kind`; it travels with the message unchanged (INB-14).
    """

    role: Literal["user"] = "user"
    id: str = field(default_factory=new_id)
    content: tuple[Block, ...]
    source: JsonObject = USER


class AssistantMessage(Value, frozen=True):
    """What the model answered. `source` names the route; `replay` is provider state, an entry a block, opaque to us."""

    role: Literal["assistant"] = "assistant"
    id: str = field(default_factory=new_id)
    content: tuple[Block, ...]
    source: JsonObject = EMPTY
    replay: tuple[Json, ...] | None = None


class SystemMessage(Value, frozen=True):
    """One section of the prompt. `source` holds the section's name and its place among the sections."""

    role: Literal["system"] = "system"
    id: str = field(default_factory=new_id)
    content: tuple[TextBlock, ...]
    source: JsonObject = EMPTY


Message: TypeAlias = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


_text, _user = trusted(TextBlock), trusted(UserMessage)


def text(content: str) -> tuple[TextBlock, ...]:
    """One text block."""
    return (_text(text=content),)


def user_message(
    content: str | Iterable[Block], *, id: str | None = None, source: dict[str, object] | FrozenDict = USER
) -> UserMessage:
    """A user message from a string or from blocks. Raises NotJsonError where `source` is no lossless JSON."""
    id, source = id or new_id(), freeze_object(source, "source")
    if type(content) is str and type(id) is str:
        return _user(id=id, content=text(content), source=source)
    blocks = text(content) if isinstance(content, str) else tuple(content)
    return UserMessage(id=id, content=blocks, source=source)


def text_of(message: UserMessage | AssistantMessage | SystemMessage) -> str:
    """The text blocks of a message, joined."""
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))
