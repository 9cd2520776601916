"""What the Messages wire is asked with: a request of ours becomes the body of a POST. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

from lifecycle.vocabulary.messages import (
    AssistantMessage,
    Block,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
)
from lifecycle.vocabulary.requests import Request, ToolSpec

from .anthropic_events import whole_block
from .spelling import PREFILL, Messages, arguments_of, replay_of, sendable, spelt

_EPHEMERAL = {"type": "ephemeral"}


def encode(request: Request, *, provider: str, cache: bool = True) -> bytes:
    """The body of the POST, as UTF-8 JSON.

    The options of the configuration are merged in last, by the provider's own names; one that is null takes the field
    out. With `cache` the stable prefix (tools, system, the conversation so far) is marked for the provider's cache.
    """
    config = request.config
    system: list[dict[str, Any]] = [
        {"type": "text", "text": said}
        for message in request.messages
        if isinstance(message, SystemMessage) and (said := text_of(message)).strip()
    ]
    messages = _messages(sendable(request), provider, config.model)
    tools = [_tool(tool) for tool in request.tools]
    if cache:
        for stable in (system or tools, messages[-1]["content"] if messages else []):
            if stable and "cache_control" not in stable[-1] and stable[-1].get("type") not in _UNCACHED:
                stable[-1] = {**stable[-1], "cache_control": _EPHEMERAL}
    body: dict[str, Any] = {"model": config.model, "messages": messages, "stream": True}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
    if config.max_tokens is not None:
        body["max_tokens"] = config.max_tokens
    if config.temperature is not None:
        body["temperature"] = config.temperature
    if config.effort is not None:
        body["output_config"] = {"effort": config.effort}
    for name, value in config.options.items():
        if name == PREFILL:
            messages.append({"role": "assistant", "content": value})
        elif value is None:
            body.pop(name, None)
        else:
            body[name] = value
    return spelt(body)


_UNCACHED = frozenset({"thinking", "redacted_thinking"})
"""Blocks that take no cache mark."""


def content_of(message: AssistantMessage, provider: str, model: str | None) -> list[dict[str, Any]]:
    """How an answer is sent back. Thinking goes only to the model that thought it; calls stand last, as is required."""
    entries = replay_of(message, provider, model)
    blocks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block, entry in zip(message.content, entries, strict=True):
        kept = whole_block(entry, block.text if isinstance(block, (TextBlock, ReasoningBlock)) else "")
        if kept is not None:
            blocks.append(kept)
        elif isinstance(block, TextBlock) and block.text.strip():
            blocks.append({"type": "text", "text": block.text})
        elif isinstance(block, ToolCallBlock):
            calls.append(
                {"type": "tool_use", "id": _id(block.id), "name": _name(block.name), "input": arguments_of(block)}
            )
    return [*blocks, *calls]


def _messages(messages: Messages, provider: str, model: str | None) -> list[dict[str, Any]]:
    """Turns that alternate. The results of a batch make one user message, before all else that it says."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        if isinstance(message, AssistantMessage):
            content = content_of(message, provider, model)
        else:
            content = [*_user(message.content)]
        role = message.role
        if not content:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    for turn in turns:
        turn["content"].sort(key=_place)
    return turns


def _place(block: dict[str, Any]) -> int:
    """Where a block stands in its message: results first, calls last, all else as it came."""
    return {"tool_result": 0, "tool_use": 2}.get(block["type"], 1)


def _user(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            yield _result(block)
        elif isinstance(block, ImageBlock):
            yield _picture(block)
        elif isinstance(block, TextBlock) and block.text.strip():
            yield {"type": "text", "text": block.text}


def _result(block: ToolResultBlock) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(block.tool_call_id)}
    content = [*_user(block.content)]
    if content:
        made["content"] = content
    if block.is_error:
        made["is_error"] = True
    return made


def _picture(image: ImageBlock) -> dict[str, Any]:
    if image.url is not None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data or ""}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema: dict[str, Any] = {**tool.input_schema} if tool.input_schema else {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _id(id: str) -> str:
    """An id that this API takes. Another provider's may hold other characters; both ends of a call change alike."""
    if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id):
        return id
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', id)[:50]}_{crc32(id.encode()):08x}"


def _name(name: str) -> str:
    """The name of a tool; the model may have made one up that the API would refuse."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:128] or "unknown"
