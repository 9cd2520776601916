"""What an MCP server returned, as what a tool of ours returns. Pure."""

from __future__ import annotations

from typing import Any

from mcp import types

from lifecycle.errors import NotJsonError
from lifecycle.services.points import ToolOutcome
from lifecycle.vocabulary.events import ToolFault
from lifecycle.vocabulary.messages import ImageBlock, TextBlock
from lifecycle.vocabulary.values import freeze, mend


def outcome_of(result: types.CallToolResult) -> ToolOutcome:
    """The outcome of a call; an error of the tool's own has the code TOOL_FAILED."""
    content = tuple(block for part in result.content if (block := _block(part)) is not None)
    value = None
    if result.structured_content is not None:
        try:
            value = freeze(result.structured_content)
        except NotJsonError:
            value = None
    if not content and value is not None:
        content = (TextBlock(text=mend(str(result.structured_content))),)
    fault = ToolFault(code="TOOL_FAILED") if result.is_error else None
    return ToolOutcome(content, error=fault) if fault else ToolOutcome(content, value=value)


def _block(part: Any) -> TextBlock | ImageBlock | None:
    match part:
        case types.TextContent():
            return TextBlock(text=mend(part.text))
        case types.ImageContent():
            return ImageBlock(media_type=part.mime_type, data=part.data)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return TextBlock(text=mend(f"{resource.uri}:\n{resource.text}"))
        case types.EmbeddedResource(resource=resource):
            return TextBlock(text=f"({resource.uri}: {resource.mime_type or 'data'} that is no text)")
        case types.ResourceLink():
            return TextBlock(text=mend(f"{part.name}: {part.uri}"))
        case types.AudioContent():
            return TextBlock(text=f"(sound, {part.mime_type})")
        case _:
            return None
