"""Mermaid text from blocks: a `sequenceDiagram`, with every label shown as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lifecycle.definition.effects import CAST, Effect, Message, Note, Participant

from .blocks import Alt, Block, Branch, Break, Loop, Opt, Par, Say, effects_of


def sequence_text(blocks: tuple[Block, ...], *, marked: bool = False) -> str:
    """The diagram. Participants stand in declared order; those that nobody speaks with are left out.

    Args:
        marked: Say on each arrow how often it happens, where that is not exactly once.
    """
    lines = ["sequenceDiagram", *(f"  {line}" for line in _participants(blocks))]
    lines += (f"  {line}" for line in _lines(blocks, marked))
    return "\n".join(lines) + "\n"


def _participants(blocks: tuple[Block, ...]) -> Iterator[str]:
    speaking: dict[Participant, None] = {}
    for effect in effects_of(blocks):
        people = (effect.sender, effect.receiver) if isinstance(effect, Message) else effect.over
        speaking |= dict.fromkeys(people)
    known = [person for person in CAST if person in speaking]
    for person in [*known, *(person for person in speaking if person not in CAST)]:
        yield f"participant {person.name}" + (f" as {label(person.label)}" if person.label else "")


def _lines(blocks: Iterable[Block], marked: bool) -> Iterator[str]:
    for block in blocks:
        match block:
            case Say():
                yield _said(block.effect, block.brief, marked)
            case Alt():
                yield from _branches("alt", "else", block.branches, marked)
            case Par():
                yield from _branches("par", "and", block.branches, marked)
            case Opt():
                yield from _block("opt", block.when, block.body, marked)
            case Loop():
                yield from _block("loop", block.when, block.body, marked)
            case Break():
                out = f" ({block.levels} loops out)" if block.levels > 1 else ""
                yield from _block("break", block.when + out, block.body, marked)


def _block(kind: str, when: str, body: tuple[Block, ...], marked: bool) -> Iterator[str]:
    yield f"{kind} {label(when)}".rstrip()
    yield from (f"  {line}" for line in _lines(body, marked))
    yield "end"


def _branches(first: str, other: str, branches: Iterable[Branch], marked: bool) -> Iterator[str]:
    for n, branch in enumerate(branches):
        yield f"{other if n else first} {label(branch.when)}".rstrip()
        yield from (f"  {line}" for line in _lines(branch.body, marked))
    yield "end"


def _said(effect: Effect, brief: bool, marked: bool) -> str:
    if isinstance(effect, Note):
        return f"Note over {','.join(person.name for person in effect.over)}: {label(effect.text)}"
    words = effect.text if brief else effect.caption
    times = {"1": "", "?": " [0..1]", "*": " [0..n]", "once": " [once]"}[effect.times] if marked else ""
    return f"{effect.sender.name}{effect.line.value}{effect.receiver.name}: {label(words.replace('`', '') + times)}"


_ESCAPES = str.maketrans({"#": "#35;", ";": "#59;"})


def label(text: str) -> str:
    """`text` as a label that Mermaid shows as it was written: `#` begins an entity there, `;` ends the line."""
    return "<br/>".join(part.strip() for part in text.splitlines()).translate(_ESCAPES) if text else text
