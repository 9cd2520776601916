"""A picture read as a language: which runs it allows.

The blocks mean what a reader takes them for. An `alt` is exactly one of its ways, an `opt` perhaps nothing; a `loop` is
walked at least once unless it says otherwise, and left through a `break` if it has one; `par` is any interleaving. The
rest is what the definition means and no picture spells out:

* a cancel or a fault is taken from any point of its phase, also when a record that the phase tries is refused;
* what is owed then is done to its end, and a refused record of it counts as tried;
* inner effects come in any order and number while the effect before them is performed;
* while the tools of a step are drained, so do those of the calls;
* what comes from outside may come while an earlier thing of that kind is still being recorded or told, from whoever
  hears of that; the rest of the earlier one follows.

A picture becomes a small automaton. Where things go on side by side its state has parts, so a configuration is a
number, or a tuple of them with what they are in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from lifecycle.definition.effects import Effect, Kind, Message
from lifecycle.definition.family import family, pooled
from lifecycle.definition.machine import Lifecycle
from lifecycle.pictures.blocks import Alt, Block, Branch, Break, Loop, Mark, Opt, Par, Say
from lifecycle.pictures.graph import arrow_key
from lifecycle.pictures.sequence import VIEWS

STRAY = "~"
"""Before the name of what is observed while another effect is performed."""
REFUSED = "!"
"""Before a record that was tried and refused."""
DRAINS = frozenset({"drain", "abandon"})
"""The effects that wait for the started calls of a pool, wherever those are."""
CANCEL = "cancel"
"""The event from outside that may come while an append is refused, which nothing else can."""
TOLD = {"start": "start", "chunk": "chunk", "end": "end", "cut": "end", "running": "running", "idle": "idle"}
"""What a stream frame or a status says, by the act of its effect."""
SEVERAL = frozenset({"agent/assistant-stream", "agent/status"})
"""The live events of which the payload tells several apart."""
MOST_THREADS = 4

Symbols: TypeAlias = tuple[str, ...]
"""The spellings under which one thing is observed."""


def told_as(effect: Message) -> tuple[str, ...]:
    """The names of the events that an effect is observed by; none if only the call of its performer shows it."""
    if effect.kind in (Kind.ASK, Kind.TELL, Kind.ANSWER):
        return ()
    if effect.name in SEVERAL:
        return (f"{effect.name} {TOLD[effect.act]}",)
    return effect.names


def called(effect: Effect) -> bool:
    """Whether an effect is observed by the call of its performer, or by the user's call."""
    return isinstance(effect, Message) and effect.kind in (Kind.ASK, Kind.TELL) and not effect.inner


def symbols_of(effect: Effect, by: str) -> tuple[Symbols, ...]:
    """What is observed of one performance of an effect that `by` declares, in order; nothing of notes and answers."""
    if not isinstance(effect, Message) or effect.kind is Kind.ANSWER:
        return ()
    names = told_as(effect)
    if not names:
        return ((STRAY + effect.key if effect.inner else spelt(by, effect.key),),)
    if effect.inner:
        return tuple((STRAY + name,) for name in names)
    return tuple((spelt(by, effect.key, name if len(names) > 1 else ""), STRAY + name) for name in names)


def spelt(by: str, key: str, name: str = "") -> str:
    """The symbol of what the performer of `key` does for an arrow or a phase; `name` is one of several events."""
    return f"{by}: {key}{f' | {name}' if name else ''}"


def declared(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Effect]]:
    """Every effect of one lifecycle, with the name of the phase or arrow that declares it."""
    for name, phase in lifecycle.spec.phases.items():
        yield from ((f"{lifecycle.spec.name}.{name}", effect) for effect in phase.does)
    for event, arrow in lifecycle.spec.arrows:
        yield from ((arrow_key(lifecycle.spec.name, event, arrow), effect) for effect in arrow.emits)


def declared_in(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Effect]]:
    """The same, of a lifecycle and of all that it runs and pools."""
    for one in family(lifecycle):
        yield from declared(one)


# -- the automaton ------------------------------------------------------------------------------------------------

Config: TypeAlias = Any
"""A state; or `("par", state, (config, ...))`; or `("over", state, (config, ...))`."""
Thread: TypeAlias = tuple[int, int]
"""What is left of something that came from outside: where it stands, and where it ends."""
Spawned: TypeAlias = tuple[Thread, ...]
Step: TypeAlias = tuple[Config, Spawned]


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


class Language:
    """The runs of a lifecycle that a picture of it allows, as sequences of symbols."""

    def __init__(self, lifecycle: type[Lifecycle], view: str = "full") -> None:
        pool = pooled(lifecycle)
        self._pooled = _spellings([] if pool is None else declared(pool))
        self._own = _spellings(declared(lifecycle))
        """What the outermost lifecycle says, whose events come from outside."""
        cancels = ((event, arrow) for event, arrow in lifecycle.spec.arrows if event == CANCEL)
        self._cancels = _spellings(
            (arrow_key(lifecycle.spec.name, event, arrow), effect) for event, arrow in cancels for effect in arrow.emits
        )
        self._silent: defaultdict[int, list[int]] = defaultdict(list)
        self._spoken: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._escapes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._threads: dict[int, int] = {}
        self._rests: dict[str, int] = {}
        """Where a phase takes what comes from outside, as often as it comes."""
        self._pars: dict[int, tuple[tuple[tuple[int, int], ...], int]] = {}
        self._overs: dict[int, tuple[int, int, int]] = {}
        self._states = 0
        self.start = self._new()
        blocks = VIEWS[view](lifecycle).blocks
        self.end, _ = self._sequence(blocks, self.start, Around())
        self._reach = cache(self._reach)  # type: ignore[method-assign]  # one cache per language
        self._after = cache(self._after)  # type: ignore[method-assign]

    # -- reading ------------------------------------------------------------------------------------------------------

    def refusal(self, word: Sequence[str]) -> int | None:
        """The place of the symbol with which `word` leaves the language, its length if it ends too early, or None."""
        here: set[tuple[Config, tuple[Thread, ...]]] = {(self.start, ())}
        for n, symbol in enumerate(word):
            here = {after for config in here for after in self._next(config, symbol)}
            if not here:
                return n
        return None if any(self._finished(config) for config in here) else len(word)

    def __contains__(self, word: Sequence[str]) -> bool:
        return self.refusal(word) is None

    def _next(self, at: tuple[Config, tuple[Thread, ...]], symbol: str) -> Iterator[tuple[Config, tuple[Thread, ...]]]:
        config, threads = at
        if (
            symbol.removeprefix(REFUSED) not in self._own
        ):  # what comes from outside, and what that leads to, is over before a run goes on
            if not all(end in self._still(state, end) for state, end in threads):
                return
            threads = ()
        for after, spawned in self._after(config, symbol):
            if len(threads) + len(spawned) <= MOST_THREADS:
                yield after, tuple(sorted((*threads, *spawned)))
        for n, (state, end) in enumerate(threads):
            rest = threads[:n] + threads[n + 1 :]
            for here in self._still(state, end):
                for after in self._spoken[here].get(symbol, ()):
                    yield config, tuple(sorted((*rest, *(((after, end),) if self._goes_on(after, end) else ()))))

    def _still(self, state: int, end: int) -> set[int]:
        """All that is silently reached of a thread."""
        seen: set[int] = set()
        todo = [state]
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo += [] if here == end else self._silent[here]
        return seen

    def _goes_on(self, state: int, end: int) -> bool:
        """Whether a thread may say more."""
        return any(self._spoken[here] for here in self._still(state, end) if here != end or here == state)

    def _finished(self, at: tuple[Config, tuple[Thread, ...]]) -> bool:
        config, threads = at
        ends = all(end in self._still(state, end) for state, end in threads)
        return ends and (self.end, ()) in self._reach(config)

    def _reach(self, config: Config) -> frozenset[Step]:
        """All that `config` is without anything being observed."""
        seen: set[Step] = set()
        todo: list[Step] = [(config, ())]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            here, spawned = one
            if isinstance(here, int):
                todo += [(state, spawned) for state in self._silent[here]]
                if here == config and here in self._threads:  # this has just been recorded or told
                    todo.append((self._threads[here], ((here, self._threads[here]),)))
                if here in self._pars:
                    todo.append((("par", here, tuple(start for start, _ in self._pars[here][0])), spawned))
                if here in self._overs:
                    todo.append((("over", here, ()), spawned))
            else:
                kind, state, parts = here
                if kind == "par":
                    ends, after = self._pars[state]
                    if all((end, ()) in self._reach(part) for part, (_, end) in zip(parts, ends, strict=True)):
                        todo.append((after, spawned))
                else:
                    _, end, after = self._overs[state]
                    if all((end, ()) in self._reach(part) for part in parts):
                        todo.append((after, spawned))
                todo += [(target, spawned) for depth, target in self._out_of(here) if depth == 0]
        return frozenset(seen)

    def _out_of(self, config: Config) -> Iterator[tuple[int, int]]:
        """The ways out of what goes on side by side, as seen from `config`: out of how much more, and where to."""
        for part in config[2]:
            for inner, spawned in self._reach(part):
                if spawned:
                    continue
                ways = self._escapes[inner] if isinstance(inner, int) else self._out_of(inner)
                for depth, target in ways:
                    if depth > 0:
                        yield depth - 1, target

    def _after(self, config: Config, symbol: str) -> frozenset[Step]:
        """All that `config` may be after a symbol."""
        found: set[Step] = set()
        for here, spawned in self._reach(config):
            if isinstance(here, int):
                found |= {(state, spawned) for state in self._spoken[here].get(symbol, ())}
                continue
            kind, state, parts = here
            for n, part in enumerate(parts):
                for after, more in self._after(part, symbol):
                    changed = (*parts[:n], after, *parts[n + 1 :])
                    found.add(((kind, state, self._kept(kind, state, changed)), spawned + more))
            if kind == "over":
                for after, more in self._after(self._overs[state][0], symbol):
                    found.add(((kind, state, self._kept(kind, state, (*parts, after))), spawned + more))
        return frozenset(found)

    def _kept(self, kind: str, state: int, parts: tuple[Config, ...]) -> tuple[Config, ...]:
        """The parts without the overlapping rounds that are over and say no more."""
        if kind == "par":
            return parts
        end = self._overs[state][1]
        over = [self._reach(part) == {(part, ()), (end, ())} or part == end for part in parts]
        return tuple(sorted((part for part, gone in zip(parts, over, strict=True) if not gone), key=repr))

    # -- building -----------------------------------------------------------------------------------------------------

    def _new(self) -> int:
        self._states += 1
        return self._states - 1

    def _goes(self, source: int, target: int, levels: int = 0) -> None:
        """A silent way, out of so many things that go on side by side."""
        if levels:
            self._escapes[source].append((levels, target))
        else:
            self._silent[source].append(target)

    def _says(self, source: int, symbols: Iterable[str], target: int) -> None:
        for symbol in symbols:
            self._spoken[source][symbol].append(target)

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
            self._overs[here_ := self._new()] = (start, end, after)
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
        self._pars[state] = (tuple(parts), after)
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
            self._threads |= {state: here for state in waits if state != last}
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


def _spellings(effects: Iterable[tuple[str, Effect]]) -> frozenset[str]:
    return frozenset(symbol for by, effect in effects for symbols in symbols_of(effect, by) for symbol in symbols)


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
