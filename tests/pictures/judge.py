"""The judge of pictures: a full Mermaid parser that hands back what it read, compared with what was to be said.

Knows blocks and effects, and nothing of how `mermaid.py` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, NamedTuple

import pytest

from lifecycle.definition.effects import Line, Note, Participant
from lifecycle.pictures.blocks import Alt, Block, Break, Loop, Opt, Par, Say

merman = pytest.importorskip("merman", reason="no Mermaid parser here: it comes with the `dev` extra")
_engine: Any = merman.MermanEngine(None, None)


class Read(NamedTuple):
    """One entry of a sequence diagram: an arrow, a note, or the beginning or end of a block."""

    kind: str
    text: str = ""
    people: tuple[str, ...] = ()


_KINDS = {
    0: "->>", 1: "-->>", 2: "note", 10: "loop", 11: "end", 12: "alt", 13: "else", 14: "end", 15: "opt", 16: "end",
    19: "par", 20: "and", 21: "end", 30: "break", 31: "end",
}  # fmt: skip


def parsed(text: str) -> dict[str, Any]:
    """The picture as data. Fails if it is none."""
    verdict = _engine.validate(text, None)
    assert verdict.valid, f"{verdict.error}\n{text}"
    read: dict[str, Any] = json.loads(_engine.parse_json(text, None))
    return read


def shown(label: str) -> str:
    """A label as a reader sees it; the parser keeps entities in a spelling of its own."""
    entities = label.replace("ﬂ°°", "&#").replace("ﬂ°", "&").replace("¶ß", ";")
    return unescape(re.sub(r"<br\s*/?>", "\n", entities))


def normal(text: str) -> str:
    """What of a text can be seen in a picture: its lines, with single blanks."""
    lines = [re.sub(r"[^\S\n]+", " ", line).strip() for line in text.strip().splitlines()]
    return "\n".join(lines)


def read(text: str) -> list[Read]:
    """A sequence diagram, entry by entry, with participants as they are shown."""
    data = parsed(text)
    assert data["type"] == "sequence"
    names = {actor: shown(about["description"]) for actor, about in data["actors"].items()}
    notes = iter(data["notes"])
    entries: list[Read] = []
    for message in data["messages"]:
        kind = _KINDS[message["type"]]
        people = next(notes)["actor"] if kind == "note" else (message["from"], message["to"])
        given = dict.fromkeys(people) if kind == "note" else people
        entries.append(Read(kind, shown(message["message"]), tuple(names[one] for one in given if one is not None)))
    return entries


def participants(text: str) -> list[str]:
    """The participants in the order in which they are drawn, as they are shown."""
    data = parsed(text)
    return [shown(data["actors"][actor]["description"]) for actor in data["actorOrder"]]


def _name(person: Participant) -> str:
    return normal(person.label) or person.name


_TIMES = {"1": "", "?": " [0..1]", "*": " [0..n]", "once": " [once]"}


def to_be_read(blocks: Iterable[Block], marked: bool) -> Iterator[Read]:
    """What a reader of English must find for these blocks."""
    for block in blocks:
        match block:
            case Say(Note() as note):
                yield Read("note", normal(note.text), tuple(map(_name, note.over)))
            case Say(effect, brief):
                assert not isinstance(effect, Note)
                words = (effect.text if brief else f"{effect.text} {effect.detail}").replace("`", "")
                people = (_name(effect.sender), _name(effect.receiver))
                kind = "->>" if effect.line is Line.SOLID else "-->>"
                yield Read(kind, normal(words + (_TIMES[effect.times] if marked else "")), people)
            case Alt() | Par():
                first, other = ("alt", "else") if isinstance(block, Alt) else ("par", "and")
                for n, branch in enumerate(block.branches):
                    words = ": ".join(part for part in (branch.whose, normal(branch.when)) if part)
                    yield Read(other if n else first, normal(words))
                    yield from to_be_read(branch.body, marked)
                yield Read("end")
            case Opt() | Loop():
                yield Read("opt" if isinstance(block, Opt) else "loop", normal(block.when))
                yield from to_be_read(block.body, marked)
                yield Read("end")
            case Break():
                ways = [f"{block.levels} loops out"] if block.levels > 1 else []
                ways += ["the loop around begins anew"] if block.again else []
                yield Read("break", normal(block.when + (f" ({', '.join(ways)})" if ways else "")))
                yield from to_be_read(block.body, marked)
                yield Read("end")
            case _:
                raise AssertionError(f"no view of one lifecycle holds a {type(block).__name__}")


class Chart(NamedTuple):
    """A state diagram as it was read: states by path of shown names, and arrows between them."""

    states: frozenset[tuple[str, ...]]
    arrows: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]


def read_states(text: str) -> Chart:
    """A state diagram. The start and the end of a lifecycle are shown as `(start)` and `(end)`."""
    data = parsed(text)
    assert data["type"] == "stateDiagram"
    nodes = {node["id"]: node for node in data["nodes"]}

    def path(id: str) -> tuple[str, ...]:
        node = nodes[id]
        name = {"stateStart": "(start)", "stateEnd": "(end)"}.get(node["shape"], shown(str(node["label"])))
        return (*(path(node["parentId"]) if node.get("parentId") else ()), name)

    arrows = ((path(edge["start"]), path(edge["end"]), shown(edge["label"])) for edge in data["edges"])
    return Chart(frozenset(path(id) for id in nodes), tuple(arrows))
