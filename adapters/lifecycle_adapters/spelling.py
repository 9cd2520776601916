"""What the encoders of all wires share. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias

from lifecycle.vocabulary.assembly import free_id
from lifecycle.vocabulary.messages import (
    AssistantMessage,
    Block,
    SystemMessage,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
)
from lifecycle.vocabulary.requests import Request
from lifecycle.vocabulary.values import JsonValue

from .decoding import json_object

PREFILL = "prefill"
"""An option of ours: text that the answer is to begin with, sent as an assistant message at the end."""


_LONGEST_NAME = 64
_NAME = re.compile(f"[a-zA-Z0-9_-]{{1,{_LONGEST_NAME}}}")
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")

Messages: TypeAlias = Sequence[SystemMessage | UserMessage | AssistantMessage]


def spelt(body: Mapping[str, Any]) -> bytes:
    """The body of a request, as UTF-8 JSON."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def arguments_of(call: ToolCallBlock) -> dict[str, Any]:
    """The arguments as an object: with anything else a server refuses the conversation, now and ever after."""
    said = json_object(call.arguments)
    if said is not None:
        return said
    return {} if call.arguments.strip() in ("", "null") else {"invalid_arguments": call.arguments}


def replay_of(message: AssistantMessage, provider: str, model: str | None) -> tuple[JsonValue, ...]:
    """The replay entries, one a block; all None unless the same provider and the same model gave the answer."""
    nothing = (None,) * len(message.content)
    if message.replay is None or len(message.replay) != len(message.content):
        return nothing
    source = message.source
    same = source.get("provider", provider) == provider and source.get("model", model) in (model, None)
    return message.replay if same else nothing


def sendable(request: Request) -> Messages:
    """The conversation of a request, with ids and names of calls that a provider does not refuse."""
    return told_apart(plainly_named(request.messages, {tool.name for tool in request.tools}))


def plainly_named(messages: Messages, offered: Set[str]) -> Messages:
    """A conversation in which calls have names that providers take: a model may have made up one that they do not."""

    def strange(block: Block) -> bool:
        return isinstance(block, ToolCallBlock) and block.name not in offered and not _NAME.fullmatch(block.name)

    def named(block: Block) -> Block:
        if not (isinstance(block, ToolCallBlock) and strange(block)):
            return block
        return block.model_copy(update={"name": _NOT_IN_NAMES.sub("_", block.name)[:_LONGEST_NAME] or "unknown"})

    if not any(strange(block) for message in messages for block in message.content):
        return messages
    return [message.model_copy(update={"content": tuple(map(named, message.content))}) for message in messages]


def told_apart(messages: Messages) -> Messages:
    """A conversation in which no two calls share an id: some servers count anew in every answer.

    The first call keeps the id, a later one gets a free one in its place; a result follows the newest call of its id.
    Only what came before decides: a request still begins as the one before it did.
    """
    ids = [block.id for message in messages for block in message.content if isinstance(block, ToolCallBlock)]
    return messages if len(set(ids)) == len(ids) else [*_told_apart(messages)]


def _told_apart(messages: Messages) -> Iterator[SystemMessage | UserMessage | AssistantMessage]:
    names: dict[str, str] = {}
    taken: set[str] = set()

    def named(block: Block) -> Block:
        match block:
            case ToolCallBlock(id=id):
                names[id] = free_id(id, taken) if id in taken else id
                taken.add(names[id])
                return block.model_copy(update={"id": names[id]})
            case ToolResultBlock(tool_call_id=id):
                return block.model_copy(update={"tool_call_id": names.get(id, id)})
            case _:
                return block

    for message in messages:
        yield message.model_copy(update={"content": tuple(map(named, message.content))})
