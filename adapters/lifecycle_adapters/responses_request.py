"""What the Responses wire is asked with: a request of ours becomes the body of a POST. Pure."""

from __future__ import annotations

import json
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
from lifecycle.vocabulary.values import FrozenDict

from .responses_events import PHASE, kept_item
from .spelling import PREFILL, Messages, arguments_of, replay_of, sendable, spelt

_LONGEST_ID = 64


def encode(request: Request, *, provider: str) -> bytes:
    """The body of the POST, as UTF-8 JSON. Nothing is stored by the provider: the conversation is always sent whole.

    The options of the configuration are merged in last, by the provider's own names; one that is null takes the field
    out.
    """
    config = request.config
    items = [*_items(sendable(request), provider, config.model)]
    body: dict[str, Any] = {"model": config.model, "input": items, "stream": True, "store": False}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if config.effort is not None:
        body["reasoning"] = {"effort": config.effort}
        body["include"] = ["reasoning.encrypted_content"]
    if config.max_tokens is not None:
        body["max_output_tokens"] = config.max_tokens
    if config.temperature is not None:
        body["temperature"] = config.temperature
    for name, value in config.options.items():
        if name == PREFILL:
            items.append({"type": "message", "role": "assistant", "content": value})
        elif value is None:
            body.pop(name, None)
        else:
            body[name] = value
    return spelt(body)


def items_of(message: AssistantMessage, provider: str, model: str | None) -> list[dict[str, Any]]:
    """How an answer is sent back, item by item. Reasoning goes only to the model that reasoned, encrypted and whole."""
    return [*_answer(message, provider, model)]


def _answer(message: AssistantMessage, provider: str, model: str | None) -> Iterator[dict[str, Any]]:
    entries = replay_of(message, provider, model)
    for block, entry in zip(message.content, entries, strict=True):
        kept = kept_item(entry)
        if isinstance(block, ReasoningBlock):
            # We have nothing stored, so that reasoning which the server kept to itself could not be found again.
            if kept is not None and (kept.get("type") != "reasoning" or kept.get("encrypted_content")):
                yield kept
        elif isinstance(block, TextBlock) and block.text:
            said: dict[str, Any] = {"type": "message", "role": "assistant", "content": block.text}
            if isinstance(entry, FrozenDict) and isinstance(entry.get(PHASE), str):
                said[PHASE] = entry[PHASE]
            yield said
        elif isinstance(block, ToolCallBlock):
            arguments = json.dumps(arguments_of(block), ensure_ascii=False)
            yield {
                "type": "function_call",
                "call_id": _id(block.id),
                "name": block.name or "unknown",
                "arguments": arguments,
            }


def _items(messages: Messages, provider: str, model: str | None) -> Iterator[dict[str, Any]]:
    for message in messages:
        if isinstance(message, SystemMessage):
            yield {"type": "message", "role": "system", "content": text_of(message)}
        elif isinstance(message, AssistantMessage):
            yield from _answer(message, provider, model)
        else:
            yield from (_result(block) for block in message.content if isinstance(block, ToolResultBlock))
            content = _content(message.content)
            if content:
                yield {"type": "message", "role": "user", "content": content}


def _result(block: ToolResultBlock) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": _id(block.tool_call_id), "output": _content(block.content)}


def _content(blocks: Sequence[Block]) -> str | list[dict[str, Any]]:
    """A plain string where text is all there is: every server takes that."""
    kept = [block for block in blocks if isinstance(block, (TextBlock, ImageBlock))]
    if any(isinstance(block, ImageBlock) for block in kept):
        return [
            {"type": "input_text", "text": block.text} if isinstance(block, TextBlock) else _picture(block)
            for block in kept
        ]
    return "".join(block.text for block in kept if isinstance(block, TextBlock))


def _picture(image: ImageBlock) -> dict[str, Any]:
    url = image.url if image.url is not None else f"data:{image.media_type};base64,{image.data or ''}"
    return {"type": "input_image", "detail": "auto", "image_url": url}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema: dict[str, Any] = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": schema,
        "strict": False,  # strict is the default here, and refuses most schemas
    }


def _id(id: str) -> str:
    """An id that this API takes; another provider's may be longer."""
    return id if len(id) <= _LONGEST_ID else f"{id[:50]}_{crc32(id.encode()):08x}"
