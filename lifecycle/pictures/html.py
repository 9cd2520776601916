"""A page as one HTML file that asks no network for anything: whoever makes it hands over what draws a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from html import escape

from lifecycle.definition.machine import Lifecycle

from .document import Section, Subject, again, sections
from .hook_points import Point, joined
from .mermaid import Words, as_written
from .tables import HEADS, rows

STYLE = """
body { margin: 2rem auto; max-width: 100rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a;
  background: #fff }
figure { margin: 1rem 0; overflow-x: auto }
figure svg { height: auto; min-width: 40rem }
code { font-family: ui-monospace, monospace; font-size: 0.9em; background: #f3f3f3; padding: 0 0.2em }
table { border-collapse: collapse; font-size: 0.9rem }
th, td { border: 1px solid #ccc; padding: 0.25rem 0.5rem; text-align: left; vertical-align: top }
"""

_SCRIPT = "mermaid.min.js"


def html(
    subject: Subject,
    points: Mapping[str, Point],
    words: Words = as_written,
    only: str = "",
    *,
    lang: str = "en",
    draw: Callable[[str, str], str] | None = None,
) -> str:
    """The page as HTML; with `only`, one view of it.

    Args:
        draw: Makes an SVG of a Mermaid text and an id for it. Without it the text stands in the page, and a
            `mermaid.min.js` in the same folder draws it when the page is opened.
    """
    title = words(subject.title)
    parts = [f"<h1>{_inline(title)}</h1>", *([f"<p>{_inline(words(subject.intro))}</p>"] if subject.intro else [])]
    parts.append(f"<p>{_inline(again(subject, words))}</p>")
    for number, section in enumerate(sections(subject, points, words, only), 1):
        parts += _section(section, words, draw, f"picture-{number}")
    if draw is None:
        parts.append(f'<script src="{_SCRIPT}"></script>')
        parts.append("<script>window.mermaid && mermaid.initialize({ startOnLoad: true });</script>")
    head = f'<meta charset="utf-8"><title>{escape(title.replace("`", ""))}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="{lang}"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _section(section: Section, words: Words, draw: Callable[[str, str], str] | None, id: str) -> Iterator[str]:
    yield f"<h2>{_inline(section.heading)}</h2>"
    if section.sentences:
        yield f"<p>{_inline(joined(section.sentences))}</p>"
    if section.mermaid and draw is not None:
        yield f"<figure>{draw(section.mermaid, id)}</figure>"
    elif section.mermaid:
        yield f'<pre class="mermaid">{escape(section.mermaid)}</pre>'
    for one, _ in section.tables:
        yield f"<h3>{escape(one.spec.name)}</h3>"
        yield from _table(one, words)
    if section.points:
        yield f"<ul>{''.join(f'<li>{_inline(told)}</li>' for told in section.points)}</ul>"


def _table(lifecycle: type[Lifecycle], words: Words) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{_inline(words(head))}</th>' for head in HEADS)}</tr>"
    for row in rows(lifecycle, words):
        phase = "" if row.event else f"<b>{escape(row.phase)}</b>"
        guard = "<br>".join(part for part in (_code(row.guard), _inline(row.when)) if part)
        cells = (phase, _code(row.event), guard, "<br>".join(_inline(said) for said in row.effects), escape(row.target))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _code(words: str) -> str:
    return f"<code>{escape(words)}</code>" if words else ""


def _inline(words: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))
