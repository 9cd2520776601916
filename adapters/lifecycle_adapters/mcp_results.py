"""What an MCP server returned, as what a tool of ours returns. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from mcp import types

from lifecycle.errors import NotJsonError
from lifecycle.services.points import ToolOutcome
from lifecycle.vocabulary.events import ToolFault
from lifecycle.vocabulary.messages import ImageBlock, TextBlock
from lifecycle.vocabulary.values import freeze, mend

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The kinds that providers take. One of another kind would have them refuse the conversation, now and ever after."""


def outcome_of(result: types.CallToolResult) -> ToolOutcome:
    """The outcome of a call; an error of the tool's own has the code TOOL_FAILED."""
    content = tuple(block for part in result.content if (block := _block(part)) is not None)
    value = None
    if result.structured_content is not None:
        try:
            value = freeze(result.structured_content)
        except NotJsonError:
            value = None
    if not content and result.structured_content is not None:
        content = (TextBlock(text=mend(json.dumps(result.structured_content, ensure_ascii=False))),)
    fault = ToolFault(code="TOOL_FAILED") if result.is_error else None
    return ToolOutcome(content, error=fault) if fault else ToolOutcome(content, value=value)


def _block(part: Any) -> TextBlock | ImageBlock | None:
    match part:
        case types.TextContent():
            return TextBlock(text=mend(part.text))
        case types.ImageContent(mime_type=kind, data=data) if kind in _PICTURES and _is_base64(data):
            return ImageBlock(media_type=kind, data=data)
        case types.ImageContent():
            return TextBlock(text=mend(f"(a picture that cannot be shown, {part.mime_type})"))
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return TextBlock(text=mend(f"{resource.uri}:\n{resource.text}"))
        case types.EmbeddedResource(resource=resource):
            return TextBlock(text=mend(f"({resource.uri}: {resource.mime_type or 'data'} that is no text)"))
        case types.ResourceLink():
            return TextBlock(text=mend(f"{part.name}: {part.uri}"))
        case types.AudioContent():
            return TextBlock(text=mend(f"(sound, {part.mime_type})"))
        case _:
            return None


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False
