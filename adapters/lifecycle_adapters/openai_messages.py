"""What the Chat Completions wire is asked with: a request of ours becomes the body of a POST. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from lifecycle.vocabulary.messages import (
    AssistantMessage,
    Block,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    text_of,
)
from lifecycle.vocabulary.requests import Request, ToolSpec
from lifecycle.vocabulary.values import FrozenDict

from .spelling import PREFILL, Messages, arguments_of, replay_of, sendable, spelt

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Where servers put the model's reasoning, in a delta and in a message that is sent back."""

FIELD = "reasoning_field"
"""The field of a replay entry that says which of them it was."""

DETAILS = "reasoning_details"
"""Where OpenRouter puts reasoning that has to come back unchanged, signatures and all; and the field of the entry."""

EXTRA = "extra_content"
"""Where Google puts what has to come back with a call; and the field of the entry."""


def encode(request: Request, *, provider: str, max_tokens_field: str = "max_tokens") -> bytes:
    """The body of the POST, as UTF-8 JSON.

    The options of the configuration are merged in last, by the provider's own names; one that is null takes the field
    out. `provider` is ours: reasoning goes back only to the provider that it came from.
    """
    config = request.config
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [*_messages(sendable(request), provider, config.model)],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if config.effort is not None:
        body["reasoning_effort"] = config.effort
    if config.max_tokens is not None:
        body[max_tokens_field] = config.max_tokens
    if config.temperature is not None:
        body["temperature"] = config.temperature
    for name, value in config.options.items():
        if name == PREFILL:
            body["messages"].append({"role": "assistant", "content": value})
        elif value is None:
            body.pop(name, None)
        else:
            body[name] = value
    return spelt(body)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema: dict[str, Any] = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": schema},
    }


def _messages(messages: Messages, provider: str, model: str | None) -> Iterator[dict[str, Any]]:
    # A tool message carries text only. Pictures follow as a user message, once all results of the batch are out:
    # nothing may stand between them.
    pictures: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, UserMessage):
            rest: list[Block] = []
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    yield _result(block)
                    pictures += _pictures_of(block)
                else:
                    rest.append(block)
            if not rest:
                continue
            yield from _flush(pictures)
            yield {"role": "user", "content": _content(rest)}
            continue
        yield from _flush(pictures)
        if isinstance(message, SystemMessage):
            yield {"role": "system", "content": text_of(message)}
        else:
            yield answer(message, provider, model)
    yield from _flush(pictures)


def _flush(pictures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    if pictures:
        yield {"role": "user", "content": [*pictures]}
        pictures.clear()


def _result(block: ToolResultBlock) -> dict[str, Any]:
    said = "".join(part.text for part in block.content if isinstance(part, TextBlock))
    if not said and any(isinstance(part, ImageBlock) for part in block.content):
        said = "(a picture, which follows)"
    return {"role": "tool", "tool_call_id": block.tool_call_id, "content": said}


def _pictures_of(block: ToolResultBlock) -> Iterator[dict[str, Any]]:
    images = [part for part in block.content if isinstance(part, ImageBlock)]
    if images:
        yield {"type": "text", "text": f"From the tool call {block.tool_call_id}:"}
        yield from map(_picture, images)


def _content(blocks: Iterable[Block]) -> str | list[dict[str, Any]]:
    """A plain string where text is all there is: every server takes that, some nothing else."""
    kept = [block for block in blocks if isinstance(block, (TextBlock, ImageBlock))]
    if any(isinstance(block, ImageBlock) for block in kept):
        return [
            {"type": "text", "text": block.text} if isinstance(block, TextBlock) else _picture(block) for block in kept
        ]
    return "".join(block.text for block in kept if isinstance(block, TextBlock))


def _picture(image: ImageBlock) -> dict[str, Any]:
    url = image.url if image.url is not None else f"data:{image.media_type};base64,{image.data or ''}"
    return {"type": "image_url", "image_url": {"url": url}}


def answer(message: AssistantMessage, provider: str, model: str | None) -> dict[str, Any]:
    """How an answer is sent back. What only its own model understands goes to no other."""
    said = text_of(message)
    kept = [dict(entry) if isinstance(entry, FrozenDict) else {} for entry in replay_of(message, provider, model)]
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name or "unknown", "arguments": _object(call)},
            **{name: value for name, value in entry.items() if name == EXTRA},
        }
        for call, entry in zip(message.content, kept, strict=True)
        if isinstance(call, ToolCallBlock)
    ]
    made: dict[str, Any] = {"role": "assistant", "content": said if said or not calls else None}
    field = _reasoning_field(message, provider)
    if field is not None:
        made[field] = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
    details = next((entry[DETAILS] for entry in kept if DETAILS in entry), None)
    if details is not None:
        made[DETAILS] = details
    if calls:
        made["tool_calls"] = calls
    return made


def _reasoning_field(message: AssistantMessage, provider: str) -> str | None:
    """The field in which this provider wants its reasoning back, as its answer left it in the replay state.

    Some answer 400 to a tool call that comes back without its reasoning; to all others reasoning is not sent.
    """
    if message.replay is None or message.source.get("provider", provider) != provider:
        return None
    for entry in message.replay:
        if isinstance(entry, dict):
            field = cast("dict[str, object]", entry).get(FIELD)
            if isinstance(field, str) and field in REASONING_FIELDS:
                return field
    return None


def _object(call: ToolCallBlock) -> str:
    """The arguments as JSON text of an object: anything else breaks a server's chat template, now and ever after."""
    try:
        if isinstance(json.loads(call.arguments, parse_constant=_refuse), dict):
            return call.arguments  # to the letter, for the provider's cache
    except (ValueError, RecursionError):
        pass
    return json.dumps(arguments_of(call), ensure_ascii=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
