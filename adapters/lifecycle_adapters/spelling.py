"""What the encoders of all wires share. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lifecycle.vocabulary.messages import AssistantMessage, ToolCallBlock
from lifecycle.vocabulary.values import JsonValue

from .decoding import json_object

PREFILL = "prefill"
"""An option of ours: text that the answer is to begin with, sent as an assistant message at the end."""


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
