"""A sequence diagram in which is marked what another one of the same kind does not show.

What was added or changed is coloured and begins with a sign; what was removed is a note where it was. Where blocks
are new around what was there before, their captions say so, and what is in them stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

from lifecycle.definition.effects import DRIVER, Effect, Message, Note, Participant
from lifecycle.definition.machine import Lifecycle

from .blocks import Alt, Block, Branch, Break, Loop, Mark, Opt, Par, Say, effects_of
from .difference import identity
from .mermaid import sequence_text
from .sequence import VIEWS

_SIGNS = {"added": "+ ", "changed": "~ ", "removed": "− "}
_Place: TypeAlias = Literal["say", "open", "else", "end"]


class Marked(NamedTuple):
    """The picture of the newer lifecycle. `marks` counts what is marked in it."""

    text: str
    marks: int


def marked(old: type[Lifecycle], new: type[Lifecycle], view: str = "overview") -> Marked:
    """The new one's view, with what differs from the old one's marked. Raises KeyError for a view there is not."""
    before, after = VIEWS[view](old), VIEWS[view](new)
    marking = _Marking(before.blocks, after.blocks)
    blocks = marking.whole()
    return Marked(sequence_text(blocks, marked=after.marked), marking.marks)


@dataclass(frozen=True, slots=True)
class _Token:
    """A line of a picture. `sign` is what it shows; lines of one `like` may be one that was changed."""

    place: _Place
    sign: tuple[object, ...]
    like: tuple[object, ...]
    words: str
    over: tuple[Participant, ...]


def _tokens(blocks: Iterable[Block]) -> Iterator[_Token]:
    for block in blocks:
        if isinstance(block, Say):
            yield _said(block)
            continue
        kind = type(block).__name__.lower()
        over = next((_people(effect) for effect in effects_of((block,))), (DRIVER,))
        for n, (words, body) in enumerate(_bodies(block)):
            place: _Place = "else" if n else "open"
            yield _Token(place, (place, kind, words), (place, kind), f"{kind}: {words}" if words else kind, over)
            yield from _tokens(body)
        yield _Token("end", ("end", kind), ("end", kind), "", over)


def _said(say: Say) -> _Token:
    effect = say.effect
    if isinstance(effect, Note):
        return _Token("say", ("note", effect), identity(effect), effect.text, _people(effect))
    words = effect.text if say.brief else effect.caption
    sign = (effect.sender, effect.receiver, effect.line, words, effect.times)
    return _Token("say", sign, identity(effect), words, _people(effect))


def _people(effect: Effect) -> tuple[Participant, ...]:
    people = (effect.sender, effect.receiver) if isinstance(effect, Message) else effect.over
    return tuple(dict.fromkeys(people))


def _bodies(block: Block) -> tuple[tuple[str, tuple[Block, ...]], ...]:
    match block:
        case Alt() | Par():
            return tuple(
                (": ".join(part for part in (one.whose, one.when) if part), one.body) for one in block.branches
            )
        case Say():
            return ()
        case Mark():
            return (("", block.body),)
        case Break():
            levels = f" ({block.levels} loops out)" if block.levels > 1 else ""
            return ((f"{block.when}{levels}", block.body),)
        case Opt() | Loop():
            return ((block.when, block.body),)


class _Marking:
    """Walks the new blocks beside their tokens, and marks those that the old ones do not have."""

    def __init__(self, old: tuple[Block, ...], new: tuple[Block, ...]) -> None:
        self.marks = 0
        self._new = new
        self._after = list(_tokens(new))
        before = list(_tokens(old))
        self._was: dict[int, str] = {}
        """The words of a line before, by its place in the new picture; empty if it is new."""
        self._gone: dict[int, list[_Token]] = {}
        """What was removed, by the place of the line before which it stood."""
        self._at = 0
        signs = [token.sign for token in before], [token.sign for token in self._after]
        for tag, i, j, k, m in SequenceMatcher(None, *signs, autojunk=False).get_opcodes():
            if tag != "equal":
                self._differs(before[i:j], k, m)

    def _differs(self, old: list[_Token], first: int, last: int) -> None:
        places: dict[int, int] = {}
        """Where in the new picture each of the old lines stands that was changed, by its number."""
        for at in range(first, last):
            like = self._after[at].like
            match = next((n for n, token in enumerate(old) if n not in places and token.like == like), None)
            self._was[at] = "" if match is None else old[match].words
            places |= {} if match is None else {match: at}
        for n, token in enumerate(old):
            if n not in places and token.place != "end":
                before = max((at + 1 for other, at in places.items() if other < n), default=first)
                self._gone.setdefault(before, []).append(token)

    def whole(self) -> tuple[Block, ...]:
        return tuple(self._body(self._new))

    def _body(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The blocks, runs of one mark together, and behind them what stood before the token that ends them."""
        run: list[Block] = []
        sort = ""
        for one, block in [*self._each(blocks)]:
            if one != sort and run:
                yield from [Mark(sort, tuple(run))] if sort else run
                run = []
            sort = one
            run.append(block)
        if run:
            yield from [Mark(sort, tuple(run))] if sort else run

    def _each(self, blocks: Iterable[Block]) -> Iterator[tuple[str, Block]]:
        for block in blocks:
            yield from self._removed()
            if isinstance(block, Say):
                yield self._say(block)
            elif self._wholly_new(block):
                self._at += len(list(_tokens((block,))))
                self.marks += 1
                yield "added", block
            else:
                yield "", self._compound(block)
        yield from self._removed()

    def _removed(self) -> Iterator[tuple[str, Block]]:
        runs: list[tuple[tuple[Participant, ...], list[str]]] = []
        for token in self._gone.pop(self._at, ()):
            self.marks += 1
            if not runs or runs[-1][0] != token.over:
                runs.append((token.over, []))
            runs[-1][1].append(f"{_SIGNS['removed']}{token.words}".replace("`", ""))
        for over, lines in runs:
            yield "removed", Say(Note(over, "\n".join(lines)))

    def _say(self, say: Say) -> tuple[str, Block]:
        at, self._at = self._at, self._at + 1
        if at not in self._was:
            return "", say
        self.marks += 1
        sort = "changed" if self._was[at] else "added"
        effect = replace(say.effect, text=f"{_SIGNS[sort]}{say.effect.text}")
        return sort, replace(say, effect=effect)

    def _wholly_new(self, block: Block) -> bool:
        last = self._at + len(list(_tokens((block,))))
        return all(self._was.get(at) == "" for at in range(self._at, last)) and not any(
            at in self._gone for at in range(self._at, last)
        )

    def _compound(self, block: Block) -> Block:
        made = block
        if isinstance(block, (Alt, Par)):
            made = replace(block, branches=tuple(self._branch(branch) for branch in block.branches))
        elif isinstance(block, (Opt, Loop, Break)):
            when = self._caption(block.when)
            made = replace(block, when=when, body=tuple(self._body(block.body)))
        self._at += 1  # its end
        return made

    def _branch(self, branch: Branch) -> Branch:
        when = self._caption(branch.when)
        return replace(branch, when=when, body=tuple(self._body(branch.body)))

    def _caption(self, words: str) -> str:
        at, self._at = self._at, self._at + 1
        if at not in self._was:
            return words
        self.marks += 1
        was = self._was[at].partition(": ")[2]
        return f"{words} (was: {was})" if was else f"{words} (new)" if not self._was[at] else f"{words} (was unnamed)"
