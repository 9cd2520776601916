"""A picture read as a language: which runs it allows.

The blocks mean what a reader takes them for. An `alt` is exactly one of its ways, an `opt` perhaps nothing; a `loop` is
walked at least once unless it says otherwise, and left through a `break` if it has one; `par` is any interleaving. The
rest is what the definition means and no picture spells out:

* a cancel or a fault is taken from any point of its phase, also when a record that the phase tries is refused;
* what is owed then is done to its end, and a refused record of it counts as tried;
* inner effects come in any order and number while the effect before them is performed;
* those of the calls do so, too, while they are drained;
* what comes from outside may come while an earlier thing of that kind is still being recorded or told, from whoever
  hears of that; the rest of the earlier one follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from lifecycle.definition.effects import Kind, Message
from lifecycle.definition.family import pooled
from lifecycle.definition.machine import Lifecycle
from lifecycle.pictures.blocks import Alt, Block, Branch, Break, Loop, Mark, Opt, Par, Say
from lifecycle.pictures.graph import arrow_key
from lifecycle.pictures.sequence import VIEWS

from .automaton import Automaton
from .symbols import REFUSED, STRAY, Symbols, called, declared, spellings, symbols_of

DRAINS = frozenset({"drain", "abandon"})
"""The effects that wait for the started calls of a pool, wherever those are."""
CANCEL = "cancel"
"""The event from outside that may come while an append is refused, which nothing else can."""


class Exit(NamedTuple):
    """A way that may be taken from any point of a stage. `without` builds it anew, one record being done with."""

    state: int
    depth: int
    body: tuple[Block, ...]
    without: Callable[[str], int]


class Point(NamedTuple):
    """A place within a stage; of a place behind a refused record, the key of that."""

    state: int
    depth: int
    refused: str = ""


@dataclass(slots=True)
class Scope:
    """The points and exits of stages, by the stage."""

    points: defaultdict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    exits: defaultdict[str, list[Exit]] = field(default_factory=lambda: defaultdict(list))


class Around(NamedTuple):
    """Where a block stands."""

    depth: int = 0
    """In how many things that go on side by side."""
    loops: tuple[tuple[int, int, int], ...] = ()
    """Of each loop around it: depth, head, and where it goes on behind."""
    first: bool = True
    """Whether effects that happen once may happen."""
    owed: str = ""
    """The stage whose exit this is."""
    before: int = 0
    """Where whoever refuses an input leads back to."""
    skip: str = ""
    """The key of the record that was refused on the way here."""


class Language(Automaton):
    """The runs of a lifecycle that a picture of it allows, as sequences of symbols."""

    def __init__(self, lifecycle: type[Lifecycle], view: str = "full") -> None:
        super().__init__()
        pool = pooled(lifecycle)
        self._pooled = spellings([] if pool is None else declared(pool))
        self.own = spellings(declared(lifecycle))
        cancels = ((event, arrow) for event, arrow in lifecycle.spec.arrows if event == CANCEL)
        self._cancels = spellings(
            (arrow_key(lifecycle.spec.name, event, arrow), effect) for event, arrow in cancels for effect in arrow.emits
        )
        self._rests: dict[str, int] = {}
        """Where a phase takes what comes from outside, as often as it comes."""
        self._states = 0
        self.start = self._new()
        blocks = VIEWS[view](lifecycle).blocks
        self.end, _ = self._sequence(blocks, self.start, Around())

    def _new(self) -> int:
        self._states += 1
        return self._states - 1

    def _goes(self, source: int, target: int, levels: int = 0) -> None:
        """A silent way, out of so many things that go on side by side."""
        if levels:
            self.escapes[source].append((levels, target))
        else:
            self.silent[source].append(target)

    def _says(self, source: int, symbols: Iterable[str], target: int) -> None:
        for symbol in symbols:
            self.spoken[source][symbol].append(target)

    def _sequence(self, blocks: Iterable[Block], start: int, around: Around) -> tuple[int, Scope]:
        """Build blocks from `start` on. Returns where they end, and what is in them."""
        scope, here = Scope(), start
        line: list[Say] = []
        for block in blocks:
            if isinstance(block, Say):
                line.append(block)
                continue
            here = self._line(line, here, around, scope)
            line = []
            here = self._block(block, here, around, scope)
        here = self._line(line, here, around, scope)
        self._connect(scope)
        return here, scope

    def _connect(self, scope: Scope) -> None:
        """Let each exit be taken from every point of its stage."""
        for stage, exits in scope.exits.items():
            for way in exits:
                own = {say.effect.key for say in way.body if isinstance(say, Say) and isinstance(say.effect, Message)}
                for point in dict.fromkeys(scope.points[stage]):
                    target = way.without(point.refused) if point.refused in own else way.state
                    self._goes(point.state, target, point.depth - way.depth)
        scope.exits.clear()

    def _merge(self, scope: Scope, inner: Scope, around: Around) -> None:
        for stage, points in inner.points.items():
            if stage != around.owed:
                scope.points[stage] += points

    def _block(self, block: Block, here: int, around: Around, scope: Scope) -> int:
        match block:
            case Alt():
                return self._alt(block, here, around, scope)
            case Opt():
                after = self._new()
                end, inner = self._sequence(block.body, here, around._replace(before=here))
                self._merge(scope, inner, around)
                self._goes(end, after)
                self._goes(here, after)
                return after
            case Loop():
                return self._loop(block, here, around, scope)
            case Break():
                self._break(block, here, around, scope)
                return here
            case Par():
                return self._par(block, here, around, scope)
            case Say() | Mark():
                raise AssertionError(f"{block!r} is no block of its own in a view")

    def _alt(self, block: Alt, here: int, around: Around, scope: Scope) -> int:
        after = self._new()
        for branch in block.branches:
            start = self._way(branch, here, around, scope, lambda end: self._goes(end, after))
            if not branch.stage:
                self._goes(here, start)
        return after

    def _break(self, block: Break, here: int, around: Around, scope: Scope) -> None:
        outermost = block.levels + block.again
        depth, head, after = around.loops[-outermost]
        target = head if block.again else after
        start = self._way(block, here, around, scope, lambda end: self._goes(end, target, around.depth - depth))
        if not block.stage:
            self._goes(here, start)

    def _way(self, way: Branch | Break, here: int, around: Around, scope: Scope, lead: Callable[[int], None]) -> int:
        """Build one way from a choice or out of a loop; those with a stage are taken from all points of it."""
        within = around._replace(before=here, owed=way.stage or around.owed)

        def build(skip: str) -> int:
            start = self._new()
            end, inner = self._sequence(way.body, start, within._replace(skip=skip))
            self._merge(scope, inner, within)
            lead(end)
            return start

        start = build("")
        if way.stage:
            scope.points[way.stage].append(Point(here, around.depth))
            scope.exits[way.stage].append(Exit(start, around.depth, way.body, cache(build)))
        return start

    def _loop(self, block: Loop, here: int, around: Around, scope: Scope) -> int:
        after = self._new()
        if block.overlapping:
            start = self._new()
            end, inner = self._sequence(block.body, start, around._replace(depth=around.depth + 1, before=start))
            self._merge(scope, inner, around)
            self.overs[here_ := self._new()] = (start, end, after)
            self._goes(here, here_)
            return after
        head = self._new()
        self._goes(here, head)
        self._rests[block.header] = head
        left = _is_left(block.body)
        again = head
        rounds = [True, False] if _has_once(block) else [around.first]
        heads = [head] if len(rounds) == 1 else [head, self._new()]
        for at, first in zip(heads, rounds, strict=True):
            again = heads[-1]
            loops = (*around.loops, (around.depth, again, after))
            end, inner = self._sequence(block.body, at, around._replace(loops=loops, first=first, before=at))
            self._merge(scope, inner, around)
            self._goes(end, again)
            if not left:
                self._goes(end, after)
        if block.perhaps_never:
            self._goes(head, after)
            self._goes(again, after)
        return after

    def _par(self, block: Par, here: int, around: Around, scope: Scope) -> int:
        parts: list[tuple[int, int]] = []
        for branch in block.branches:
            start = self._new()
            end, inner = self._sequence(branch.body, start, around._replace(depth=around.depth + 1, before=start))
            self._merge(scope, inner, around)
            parts.append((start, end))
        state, after = self._new(), self._new()
        self._goes(here, state)
        self.pars[state] = (tuple(parts), after)
        return after

    # -- what is said -------------------------------------------------------------------------------------------------

    def _line(self, line: list[Say], here: int, around: Around, scope: Scope) -> int:
        """Build what is said in one go."""
        waits: list[int] = []
        for say in line:
            here = self._say(say, here, around, scope)
            effect = say.effect
            if self._from_outside(say) and isinstance(effect, Message) and effect.kind in (Kind.RECORD, Kind.NOTIFY):
                waits.append(here)
        if waits:
            last, here = here, self._new()  # a place of its own, where nothing of the line is said any more
            self._goes(last, here)
            self.threads |= {state: here for state in waits if state != last}
        return here

    @staticmethod
    def _from_outside(say: Say) -> bool:
        """Whether the outermost lifecycle says it, whose events come from outside."""
        return bool(say.stage) and "/" not in say.stage and "*" not in say.stage

    def _say(self, say: Say, here: int, around: Around, scope: Scope) -> int:
        effect = say.effect
        symbols = symbols_of(effect, say.by)
        if not isinstance(effect, Message) or not symbols or effect.key == around.skip:
            return here
        if effect.inner:
            tried = [REFUSED + symbol for each in symbols for symbol in each] if effect.kind is Kind.RECORD else []
            for each in (*symbols, tried):
                self._says(here, each, here)
            return here
        stage = say.stage
        if stage != around.owed:
            scope.points[stage].append(Point(here, around.depth))
        after = self._performed(effect, symbols, here, around)
        if effect.kind is Kind.RECORD:
            self._refused(say, symbols, here, after, around, scope)
        if stage != around.owed:
            scope.points[stage].append(Point(after, around.depth))
        if called(effect):  # an ask that names a hook point: the dispatch is a part of what is asked
            for name in effect.names:
                self._says(after, [STRAY + name], after)
        if effect.key in DRAINS:
            self._says(after, self._pooled, after)
        return after

    def _performed(self, effect: Message, symbols: tuple[Symbols, ...], here: int, around: Around) -> int:
        perhaps = effect.times != "1" or len(symbols) > 1
        many = effect.times in ("*", "once")
        if effect.times == "once" and not around.first:
            return here
        for each in symbols:
            after = self._new()
            self._says(here, each, after)
            if many:
                self._says(after, each, after)
            if perhaps:
                self._goes(here, after)
            here = after
        return here

    def _refused(
        self, say: Say, symbols: tuple[Symbols, ...], here: int, after: int, around: Around, scope: Scope
    ) -> None:
        """A record may be refused: then its phase has failed, or its arrow was not taken."""
        assert isinstance(say.effect, Message)
        refused = self._new()
        tried = [REFUSED + symbol for each in symbols for symbol in each]
        self._says(here, tried, refused)
        if after != here and say.effect.times != "1":
            self._says(after, tried, refused)
        if around.owed and say.stage == around.owed:
            self._goes(refused, after)
        elif self._from_outside(say):
            self._says(refused, self._cancels, refused)  # by whoever refused it
            self._goes(refused, self._rests.get(say.stage, around.before))
        else:
            scope.points[say.stage].append(Point(refused, around.depth, say.effect.key))


def _is_left(blocks: Iterable[Block], level: int = 1) -> bool:
    """Whether a break in the body of a loop leads out of it."""
    for block in blocks:
        match block:
            case Break():
                if block.levels >= level or _is_left(block.body, level):
                    return True
            case Loop():
                if _is_left(block.body, level + 1):
                    return True
            case Opt():
                if _is_left(block.body, level):
                    return True
            case Alt() | Par():
                if any(_is_left(branch.body, level) for branch in block.branches):
                    return True
            case Say() | Mark():
                pass
    return False


def _has_once(loop: Loop) -> bool:
    """Whether the loop comes back to a phase that does something only when it is first entered."""
    return any(
        isinstance(say, Say)
        and isinstance(say.effect, Message)
        and say.effect.times == "once"
        and say.stage == loop.header
        for say in loop.body
    )
