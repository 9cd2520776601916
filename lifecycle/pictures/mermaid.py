"""Mermaid text from blocks: a `sequenceDiagram`, with every label shown as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from lifecycle.definition.effects import CAST, Effect, Message, Note, Participant, Times

from .blocks import Alt, Block, Branch, Break, Loop, Mark, Opt, Par, Say, effects_of
from .labels import Ids, label

Words: TypeAlias = Callable[[str], str]
"""The counterpart of an English text in the language of a picture."""

_TIMES: Mapping[Times, str] = MappingProxyType({"1": "", "?": "0..1", "*": "0..n", "once": "once"})

_COLOURS = {"added": "rgb(214, 243, 219)", "changed": "rgb(255, 240, 200)", "removed": "rgb(250, 218, 218)"}

NOBODY: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def as_written(text: str) -> str:
    """The words of a picture in English."""
    return text


def sequence_text(
    blocks: tuple[Block, ...],
    *,
    marked: bool = False,
    words: Words = as_written,
    listeners: Mapping[str, tuple[str, ...]] = NOBODY,
) -> str:
    """The diagram. Participants stand in declared order; those that nobody speaks with are left out.

    Args:
        marked: Say on each arrow how often it happens, where that is not exactly once.
        listeners: Who listens at which hook point; they are named below the arrows that dispatch it.
    """
    writer = _Writer(marked, words, listeners)
    lines = ["sequenceDiagram", *(f"  {line}" for line in writer.participants(blocks))]
    lines += (f"  {line}" for line in writer.lines(blocks))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, eq=False)
class _Writer:
    marked: bool
    words: Words
    listeners: Mapping[str, tuple[str, ...]]
    ids: Ids = field(default_factory=Ids)

    def participants(self, blocks: tuple[Block, ...]) -> Iterator[str]:
        speaking: dict[Participant, None] = {}
        for effect in effects_of(blocks):
            people = (effect.sender, effect.receiver) if isinstance(effect, Message) else effect.over
            speaking |= dict.fromkeys(people)
        known = [person for person in CAST if person in speaking]
        for person in [*known, *(person for person in speaking if person not in CAST)]:
            shown = label(self.words(person.label or person.name))
            made = self._id(person)
            yield f"participant {made}" + (f" as {shown}" if shown not in ("", made) else "")

    def lines(self, blocks: Iterable[Block]) -> Iterator[str]:
        for block in blocks:
            match block:
                case Say():
                    yield self._said(block)
                    yield from () if block.brief else self._who(block.effect)
                case Alt():
                    yield from self._branches("alt", "else", block.branches)
                case Par():
                    yield from self._branches("par", "and", block.branches)
                case Opt():
                    yield from self._block("opt", self.words(block.when), block.body)
                case Loop():
                    yield from self._block("loop", self.words(block.when), block.body)
                case Break():
                    yield from self._block("break", self._out(block), block.body)
                case Mark():
                    yield f"rect {_COLOURS[block.sort]}"
                    yield from (f"  {line}" for line in self.lines(block.body))
                    yield "end"

    def _id(self, person: Participant) -> str:
        return self.ids.of(person, person.name)

    def _block(self, kind: str, when: str, body: tuple[Block, ...]) -> Iterator[str]:
        yield f"{kind} {label(when)}".rstrip()
        yield from (f"  {line}" for line in self.lines(body))
        yield "end"

    def _branches(self, first: str, other: str, branches: Iterable[Branch]) -> Iterator[str]:
        for n, branch in enumerate(branches):
            when = self.words(branch.when).strip()
            when = ": ".join(part for part in (branch.whose, when) if part)
            yield f"{other if n else first} {label(when)}".rstrip()
            yield from (f"  {line}" for line in self.lines(branch.body))
        yield "end"

    def _out(self, block: Break) -> str:
        out = "" if block.levels < 2 else self.words("{levels} loops out").format(levels=block.levels)
        ways = [out, self.words("the loop around begins anew") if block.again else ""]
        where = ", ".join(way for way in ways if way)
        return " ".join(part for part in (self.words(block.when), f"({where})" if where else "") if part)

    def _said(self, said: Say) -> str:
        effect = said.effect
        if isinstance(effect, Note):
            return f"Note over {','.join(map(self._id, effect.over))}: {label(self.words(effect.text))}"
        parts = (effect.text,) if said.brief else (effect.text, effect.detail)
        caption = " ".join(self.words(part) for part in parts if part).replace("`", "")
        times = _TIMES[effect.times] if self.marked else ""
        times = f" [{self.words(times)}]" if times else ""
        return f"{self._id(effect.sender)}{effect.line.value}{self._id(effect.receiver)}: {label(caption + times)}"

    def _who(self, effect: Effect) -> Iterator[str]:
        if isinstance(effect, Message):
            for name in effect.names:
                if self.listeners.get(name):
                    each = "\n".join(f"{n}. {one}" for n, one in enumerate(self.listeners[name], 1))
                    yield f"Note over {self._id(effect.receiver)}: {label(each)}"
