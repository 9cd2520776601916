"""Whole answers as each wire streams them: reasoning, text, two calls with arguments in pieces, usage, the last mark.

Each argument object ends in `"end": true`: one without it was never finished.
"""

from __future__ import annotations

import json
from typing import Any

from lifecycle_adapters.anthropic_messages import AnthropicMessages
from lifecycle_adapters.http_model import HttpModel
from lifecycle_adapters.openai_chat import OpenAIChat
from lifecycle_adapters.openai_responses import OpenAIResponses

WIRES: dict[str, type[HttpModel]] = {wire.wire: wire for wire in (OpenAIChat, OpenAIResponses, AnthropicMessages)}
REASONING = "I think – hence 🙂."
TEXT = "Hello, Zoë:\u2028I look."
CALLS = {
    "read": '{"path": "naïve/ünï.txt", "lines": [1, 20], "end": true}',
    "search": '{"query": "a \\"quoted\\" }{ word", "options": {"case": false}, "end": true}',
}


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(data: dict[str, Any], name: str = "") -> bytes:
    spelt = json.dumps(data, ensure_ascii=False).encode()
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + spelt + b"\n\n"


def chat() -> list[bytes]:
    def said(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [said({"role": "assistant", "content": None}), b": a comment\n\n"]
    events += [said({"reasoning_content": piece}) for piece in pieces(REASONING)]
    events += [said({"content": piece}) for piece in pieces(TEXT)]
    for at, (name, arguments) in enumerate(CALLS.items()):
        begun = {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(said({"tool_calls": [begun]}))
        events += [
            said({"tool_calls": [{"index": at, "function": {"arguments": piece}}]}) for piece in pieces(arguments)
        ]
    usage = event({**head, "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
    return [*events, said({}, "tool_calls"), usage, b"data: [DONE]\n\n"]


def messages() -> list[bytes]:
    def said(kind: str, **data: Any) -> bytes:
        return event({"type": kind, **data}, kind)

    def block(at: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> list[bytes]:
        begun = said("content_block_start", index=at, content_block=start)
        told = [said("content_block_delta", index=at, delta=delta) for delta in deltas]
        return [begun, *told, said("content_block_stop", index=at)]

    usage = {"input_tokens": 11, "output_tokens": 1}
    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
    }
    events = [said("message_start", message={**start, "stop_sequence": None, "usage": usage}), said("ping")]
    thinking = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(REASONING)]
    thinking.append({"type": "signature_delta", "signature": "c2ln"})
    events += block(0, {"type": "thinking", "thinking": "", "signature": ""}, thinking)
    events += block(1, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(TEXT)])
    for at, (name, arguments) in enumerate(CALLS.items()):
        told = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)]
        events += block(at + 2, {"type": "tool_use", "id": f"call_{at}", "name": name, "input": {}}, told)
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    return [*events, said("message_delta", delta=stop, usage={"output_tokens": 7}), said("message_stop")]


def responses() -> list[bytes]:
    count = 0

    def said(kind: str, **data: Any) -> bytes:
        nonlocal count
        count += 1
        return event({"type": kind, **data, "sequence_number": count}, kind)

    base = {"id": "r", "object": "response", "created_at": 1, "model": "m", "error": None, "incomplete_details": None}
    base |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": None, "instructions": None}
    events = [said("response.created", response={**base, "status": "in_progress", "output": []})]
    summary = [{"type": "summary_text", "text": REASONING}]
    reasoning = {"id": "rs", "type": "reasoning", "summary": summary, "encrypted_content": "eHl6"}
    begun = {**reasoning, "summary": []}
    events.append(said("response.output_item.added", output_index=0, item=begun))
    where: dict[str, Any] = {"item_id": "rs", "output_index": 0, "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    events.append(said("response.reasoning_summary_part.added", **where, part=part))
    events += [said("response.reasoning_summary_text.delta", **where, delta=piece) for piece in pieces(REASONING)]
    events.append(said("response.reasoning_summary_text.done", **where, text=REASONING))
    events.append(said("response.output_item.done", output_index=0, item=reasoning))
    content: dict[str, Any] = {"type": "output_text", "text": TEXT, "annotations": []}
    message: dict[str, Any] = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    opened: dict[str, Any] = {**message, "status": "in_progress", "content": []}
    events.append(said("response.output_item.added", output_index=1, item=opened))
    where = {"item_id": "msg", "output_index": 1, "content_index": 0}
    events.append(said("response.content_part.added", **where, part={**content, "text": ""}))
    events += [said("response.output_text.delta", **where, delta=piece, logprobs=[]) for piece in pieces(TEXT)]
    events.append(said("response.output_text.done", **where, text=TEXT, logprobs=[]))
    events.append(said("response.content_part.done", **where, part=content))
    events.append(said("response.output_item.done", output_index=1, item=message))
    output: list[dict[str, Any]] = [reasoning, message]
    for at, (name, arguments) in enumerate(CALLS.items()):
        item = {"id": f"fc_{at}", "type": "function_call", "call_id": f"call_{at}", "name": name}
        whole = {**item, "arguments": arguments, "status": "completed"}
        empty: dict[str, Any] = {**item, "arguments": "", "status": "in_progress"}
        events.append(said("response.output_item.added", output_index=at + 2, item=empty))
        where = {"item_id": f"fc_{at}", "output_index": at + 2}
        events += [said("response.function_call_arguments.delta", **where, delta=piece) for piece in pieces(arguments)]
        events.append(said("response.function_call_arguments.done", **where, name=name, arguments=arguments))
        events.append(said("response.output_item.done", output_index=at + 2, item=whole))
        output.append(whole)
    usage = {
        "input_tokens": 11,
        "output_tokens": 7,
        "total_tokens": 18,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    end = {**base, "status": "completed", "output": output, "usage": usage}
    return [*events, said("response.completed", response=end)]


STREAMS = {"openai-chat": chat(), "openai-responses": responses(), "anthropic-messages": messages()}
