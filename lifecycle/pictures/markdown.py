"""Markdown in which text is shown as it was written. What stands between backticks in it stays code."""

from __future__ import annotations

import re

_CODE = re.compile(r"(`[^`]+`)")
_MARKS = re.compile(r"[\\*<\[\]#~$&]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}


def text(words: str) -> str:
    """`words` as one line of a paragraph, a list or a heading."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(part if n % 2 else _MARKS.sub(_escaped, part) for n, part in enumerate(parts))


def cell(words: str) -> str:
    """`words` as the cell of a table, in which a bar would begin the next one."""
    return text(words).replace("|", "\\|")


def code(words: str) -> str:
    """`words` as code in the cell of a table. Nothing comes of nothing."""
    ticks = "``" if "`" in words else "`"
    return f"{ticks}{' '.join(words.split())}{ticks}".replace("|", "\\|") if words else ""


def fenced(language: str, words: str) -> str:
    """`words` as a fenced block, whatever fences they hold."""
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall("`+", words)), default=0))
    return f"{fence}{language}\n{words.rstrip(chr(10))}\n{fence}\n"


def _escaped(found: re.Match[str]) -> str:
    return _ENTITIES.get(found[0], f"\\{found[0]}")
