"""Labels and ids for Mermaid: any text is shown as it was written, any name becomes an id that is no word of Mermaid's.

Mermaid replaces `#59;` by the character of that number when a picture is drawn, so what would mean something to one
of its versions is written that way. What a label of ours usually holds (letters, digits, `/ { } ( ) [ ] , . - *`)
stays readable in the text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

_ALWAYS = str.maketrans({char: f"#{ord(char)};" for char in '#;<>&"`\\$'})
"""`#` begins an entity, `;` ends a statement, `<`, `>` and `&` are markup, `"` ends a name, `\\n` breaks a line, and
backticks and `$$` begin other languages."""
_BLANKS = re.compile(r"[^\S\n]+")
_COMMENT = re.compile("%(?=%)|(?<=%)%")
"""`%%` begins a comment or a directive, wherever it stands."""
_WRAP = re.compile(r"^(:?(?:no)?wrap):")
_DIRECTION = re.compile(r"direction(?=\s+(?:TB|BT|LR|RL|TD))", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*|(?<![^\W_])_|_(?![^\W_])")
"""Marks of Markdown; an underscore within a word is none."""
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
"""What no document may hold."""


def label(text: str) -> str:
    """`text` as a label of a sequence diagram. A line break is one in the picture, too; blanks around lines go."""
    return "<br/>".join(_WRAP.sub(r"\1#58;", line) for line in _lines(text))


def state_label(text: str) -> str:
    """`text` as a name or a label of a state diagram, which reads colons, Markdown and directions as its own."""
    return "<br/>".join(_entities(_EMPHASIS, _as_word(line).replace(":", "#58;")) for line in _lines(text))


def _lines(text: str) -> Iterable[str]:
    for line in text.strip().splitlines():
        plain = _BLANKS.sub(" ", _UNSEEN.sub("\ufffd", line)).strip()
        yield _entities(_COMMENT, plain.translate(_ALWAYS))


def _as_word(line: str) -> str:
    return _DIRECTION.sub(lambda found: f"#{ord(found[0][0])};{found[0][1:]}", line)


def _entities(what: re.Pattern[str], text: str) -> str:
    return what.sub(lambda found: f"#{ord(found[0])};", text)


_WORDS = frozenset((
    "accdescr", "acctitle", "activate", "actor", "alt", "and", "as", "autonumber", "box", "break", "class", "classdef",
    "create", "critical", "deactivate", "default", "destroy", "details", "direction", "else", "end", "fork", "hide",
    "join", "link", "links", "loop", "note", "off", "opt", "option", "over", "par", "par_over", "participant",
    "properties", "rect", "scale", "sequencediagram", "state", "statediagram", "style", "title",
))  # fmt: skip
"""Words that Mermaid takes for its own where a name is expected, in one kind of diagram or another."""


class Ids:
    """Ids for the names of one picture: the name itself where Mermaid takes it, and never one id for two things."""

    def __init__(self) -> None:
        self._ids: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def of(self, thing: Hashable, name: str) -> str:
        """The id of `thing`, which is called `name`; the same one each time."""
        if thing not in self._ids:
            plain = "".join(
                char if char.isascii() and (char.isalnum() or char == "_") else f"u{ord(char):x}" for char in name
            )
            made = first = plain if plain[:1].isalpha() and plain.lower() not in _WORDS else f"n_{plain}"
            number = 1
            while made.lower() in self._taken:
                number += 1
                made = f"{first}_{number}"
            self._taken.add(made.lower())
            self._ids[thing] = made
        return self._ids[thing]
