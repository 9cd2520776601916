"""Pictures from Mermaid text, by renderers that need no browser and no network. Loaded when a picture is asked for."""

from __future__ import annotations

import json
import re
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
        return _with_margin(str(engine.render_svg(mermaid, json.dumps({"svg": {"diagram_id": id}}))))
    except Exception as wrong:
        raise CallError(f"merman cannot draw the picture ({wrong}); --format mermaid writes its text") from wrong


def png(mermaid: str) -> bytes:
    """The picture as PNG on white. Its letters come from the fonts of this machine. Raises as `svg`."""
    try:
        import mmdr
        import novasvg  # what mmdr draws with
    except ImportError:
        raise NoRendererError("png", "mmdr") from None
    renderer, painter = cast(Any, mmdr), cast(Any, novasvg)  # annotated only in part
    try:
        document = painter.Document.load_from_data(_with_margin(renderer.render(mermaid).svg()))
        return bytes(document.render_to_bitmap(-1, -1, painter.Color("#ffffff")).to_png())
    except Exception as wrong:
        raise CallError(f"mmdr cannot draw the picture ({wrong}); --format mermaid writes its text") from wrong


_MARGIN = 32
_VIEW_BOX = re.compile(r'viewBox="(\S+) (\S+) (\S+) (\S+)"')
_MAX_WIDTH = re.compile(r"max-width: ([\d.]+)px")


def _with_margin(picture: str) -> str:
    """The SVG with more room around it: letters are measured before their font is known, and would be cut off."""

    def wider(found: re.Match[str]) -> str:
        x, y, width, height = map(float, found.groups())
        return f'viewBox="{x - _MARGIN:g} {y - _MARGIN:g} {width + 2 * _MARGIN:g} {height + 2 * _MARGIN:g}"'

    picture = _VIEW_BOX.sub(wider, picture, count=1)
    return _MAX_WIDTH.sub(lambda found: f"max-width: {float(found[1]) + 2 * _MARGIN:g}px", picture, count=1)
