"""Pictures from Mermaid text, by renderers that need no browser and no network. Loaded when a picture is asked for."""

from __future__ import annotations

import json
from typing import Any, cast

from .calls import CallError

INSTALL = "pip install 'turn-lifecycle[render]'"


class NoRendererError(CallError):
    """What draws pictures is not installed."""

    def __init__(self, format: str, package: str) -> None:
        super().__init__(f"{format} needs {package}, which is not installed ({INSTALL}); the text is written instead")


def svg(mermaid: str, id: str = "picture") -> str:
    """The picture as SVG; `id` tells it from others in one document.

    Raises:
        NoRendererError: if nothing is there to draw it.
        CallError: if the renderer refuses the text.
    """
    try:
        import merman
    except ImportError:
        raise NoRendererError("svg", "merman") from None
    engine: Any = merman.MermanEngine(None, None)
    try:
        return str(engine.render_svg(mermaid, json.dumps({"svg": {"diagram_id": id}})))
    except Exception as wrong:
        raise CallError(f"merman cannot draw the picture ({wrong}); --format mermaid writes its text") from wrong


def png(mermaid: str) -> bytes:
    """The picture as PNG on white. Its letters come from the fonts of this machine. Raises as `svg`."""
    try:
        import mmdr
    except ImportError:
        raise NoRendererError("png", "mmdr") from None
    renderer = cast(Any, mmdr)  # annotated only in part
    try:
        return bytes(renderer.render(mermaid).png(background="#ffffff"))
    except Exception as wrong:
        raise CallError(f"mmdr cannot draw the picture ({wrong}); --format mermaid writes its text") from wrong
