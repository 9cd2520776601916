"""The language of a lifecycle: which records may follow which, as an automaton that is made while it is used.

A configuration is where a run may be: one frame for each lifecycle, the outermost first, each at a place among the
effects of a phase or of an arrow. Effects that record something are the letters; all else is silent. What comes from
outside, which is every event of the outermost lifecycle that none of its runs leads to, may come at any time.

A cancel or a fault may come wherever something is still to be performed. So none comes once the last thing that a
phase does is recorded, and none before a phase that settles has made its record: then the log ends there.

Sets of configurations are states, each made once. Knows nothing of numbers and identities: see acceptor.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from types import SimpleNamespace
from typing import NamedTuple, TypeAlias

from lifecycle.vocabulary.rules import Rules

from .effects import Effect, Kind, Message
from .family import family
from .guards import atoms, compile_guard
from .machine import ABORT, FAULT, Lifecycle, Phase
from .table import Row, Table, table_of

Known: TypeAlias = frozenset[str]
"""The facts that are true, of those that records tell."""
IN_STEP = "a step is open"
"""A fact that no guard reads: listeners may then append messages of their own."""


class Item(NamedTuple):
    """One thing that is done. Without names it is silent."""

    names: tuple[str, ...] = ()
    needed: bool = True
    many: bool = False
    once: bool = False
    """Only when its phase is first entered in a run."""
    hooked: bool = False
    """Hook points are dispatched meanwhile."""


SILENT = Item()
HOOKED = Item(hooked=True)


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One lifecycle as the automaton sees it."""

    lifecycle: type[Lifecycle]
    table: Table
    phases: Mapping[str, tuple[Item, ...]]
    arrows: Mapping[Row, tuple[Item, ...]]
    once: frozenset[str]
    """The phases that do something only once."""
    led: frozenset[str]
    """The events to which a run that a phase makes leads."""
    pooled: Mapping[str, frozenset[str]]
    """By phase: what the runs that go side by side there record, in whatever order."""


class Frame(NamedTuple):
    """Where the run of one lifecycle is: before the item `at` of a phase or of an arrow."""

    track: Track
    place: str | Row
    at: int = 0
    seen: frozenset[str] = frozenset()


Config: TypeAlias = tuple[Frame, ...]


@dataclass(slots=True, eq=False)
class State:
    """The configurations that a run may be in after some records. The language fills `next`, by the known facts."""

    configs: frozenset[Config]
    tentative: bool
    """What was read is legal only if it is adopted from another log."""
    fragment: bool
    """What was read is legal only as a fragment, to which no turn and no step is known."""
    next: dict[Known, Mapping[str, State]] = field(default_factory=lambda: {})


class Language:
    """All that a lifecycle may record.

    Args:
        whole: The outermost lifecycle.
        rules: What is known of records, by their wire names; for the forms that are told apart.
        adopting: The records that end an adopted prefix.
        inherited: Lifecycles that such a prefix may also have been recorded by.
        fragments: Lifecycles whose whole run is a log of its own.
    """

    def __init__(
        self,
        whole: type[Lifecycle],
        rules: Mapping[str, Rules],
        adopting: Iterable[str] = (),
        inherited: Sequence[type[Lifecycle]] = (),
        fragments: Sequence[type[Lifecycle]] = (),
    ) -> None:
        self.whole, self._rules, self._adopting = whole, rules, tuple(adopting)
        self._tracks: dict[type[Lifecycle], Track] = {}
        self._states: dict[frozenset[Config], State] = {}
        self._closures: dict[tuple[frozenset[Config], Known], frozenset[Config]] = {}
        self._possible: dict[tuple[Row, Known], bool] = {}
        self._inherited, self._fragments = frozenset(inherited), frozenset(fragments)
        self._roots = frozenset(self._begin(one) for one in (whole, *inherited))
        self.initial = self._state(self._roots | {self._begin(one) for one in fragments})

    # -- reading -------------------------------------------------------------------------------------------------

    def after(self, state: State, known: Known) -> Mapping[str, State]:
        """What may be recorded next, and where that leads."""
        found = state.next.get(known)
        if found is None:
            found = state.next[known] = self._after(state, known)
        return found

    def resting(self, state: State, known: Known) -> bool:
        """Whether the log may end here: nothing is open."""
        return any(
            _at_rest(config) and config[0].track.lifecycle not in self._inherited
            for config in self._closure(state.configs, known)
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """Every letter: wire names, with the form behind a colon where one is told."""
        wholes = (self.whole, *self._inherited, *self._fragments)
        return frozenset(self._adopting).union(*(self._spoken(part) for whole in wholes for part in family(whole)))

    @cached_property
    def outside(self) -> frozenset[str]:
        """The letters that moves from outside record, which may come at any time."""
        track = self._track(self.whole)
        return frozenset(
            name
            for row, items in track.arrows.items()
            if row.event not in track.led
            for item in items
            for name in item.names
        )

    @cached_property
    def parking(self) -> frozenset[str]:
        """The facts that hold while a run is in a phase that parks: then the log may end, and goes on another time."""
        tracks = [self._track(part) for part in family(self.whole)]
        into = [row for track in tracks for row in track.arrows if track.table.phases[row.target].parks]
        told = [effect.names for row in into for effect in row.emits if isinstance(effect, Message) and effect.durable]
        return frozenset(self._rules[name].adds for names in told for name in names) - {""}

    @cached_property
    def woken(self) -> State:
        """Where a run is that begins with input that came before."""
        follow = self.after(self.initial, frozenset())
        reached = frozenset(config for name in self.outside if name in follow for config in follow[name].configs)
        return self._state(reached) if reached else self.initial

    def where(self, state: State) -> tuple[str, ...]:
        """The phases that a run may be in, the outermost first, such as `running/stepping/requesting`."""
        found: dict[str, str] = {}
        for config in state.configs:
            path = [_phase(frame) for frame in config]
            tail = "/".join(path[1:])
            if tail not in found or self._order(path[0]) < self._order(found[tail].partition("/")[0]):
                found[tail] = "/".join(path)
        return tuple(sorted(found.values()))

    def _order(self, phase: str) -> int:
        names = list(self._track(self.whole).table.phases)
        return names.index(phase) if phase in names else len(names)

    # -- making --------------------------------------------------------------------------------------------------

    def _state(self, configs: frozenset[Config]) -> State:
        found = self._states.get(configs)
        if found is None:
            roots = {config[0].track.lifecycle for config in configs}
            made = State(configs, roots <= self._inherited, roots <= self._fragments)
            found = self._states[configs] = made
        return found

    def _after(self, state: State, known: Known) -> Mapping[str, State]:
        reached: dict[str, set[Config]] = {}
        for config in self._closure(state.configs, known):
            for name, there in self._moves(config, known):
                if name:
                    reached.setdefault(name, set()).add(there)
            if _at_rest(config) and config[0].track.lifecycle not in self._fragments:
                for name in self._adopting:
                    reached.setdefault(name, set()).update(self._roots)
        return {name: self._state(frozenset(configs)) for name, configs in reached.items()}

    def _closure(self, configs: frozenset[Config], known: Known) -> frozenset[Config]:
        found = self._closures.get((configs, known))
        if found is None:
            seen, todo = set(configs), list(configs)
            while todo:
                for name, there in self._moves(todo.pop(), known):
                    if not name and there not in seen:
                        seen.add(there)
                        todo.append(there)
            found = self._closures[configs, known] = frozenset(seen)
        return found

    def _begin(self, lifecycle: type[Lifecycle]) -> Config:
        track = self._track(lifecycle)
        return (Frame(track, track.table.initial),)

    def _moves(self, config: Config, known: Known) -> Iterator[tuple[str, Config]]:
        """Each letter, empty if silent, with where it leads."""
        *outer, frame = config
        yield from self._steps(tuple(outer), frame, known)
        if outer:
            yield from self._outside(config, known)

    def _steps(self, outer: Config, frame: Frame, known: Known) -> Iterator[tuple[str, Config]]:
        track = frame.track
        for name in track.pooled.get(frame.place.source if isinstance(frame.place, Row) else frame.place, ()):
            yield name, (*outer, frame)
        if isinstance(frame.place, Row):
            items = track.arrows[frame.place]
            if frame.at < len(items):
                yield from self._perform(outer, frame, items[frame.at], known)
                if frame.place.event not in (ABORT, FAULT):
                    yield from self._cut(outer, frame, frame.place.source, known)
            else:
                yield from self._arrive(outer, frame, frame.place, known)
            return
        items, phase = track.phases[frame.place], track.table.phases[frame.place]
        if frame.at < len(items):
            yield from self._perform(outer, frame, items[frame.at], known)
            if not (phase.settles and any(item.names for item in items[frame.at :])):
                yield from self._cut(outer, frame, frame.place, known)
        elif phase.runs is not None:
            yield "", (*outer, frame, *self._begin(phase.runs))
        elif phase.final:
            if not outer:  # the next agent on this log
                yield "", self._begin(track.lifecycle)
        else:
            for event in track.table.events(frame.place):
                if event not in (ABORT, FAULT) and (outer or event not in track.led):
                    yield from self._take(outer, frame, event, known)

    def _outside(self, config: Config, known: Known) -> Iterator[tuple[str, Config]]:
        """What comes from outside while the outermost lifecycle runs another one. It may come again and again, and one
        move within another, so each is taken whole by any of its records.
        """
        frame, inner = config[0], config[1:]
        track = frame.track
        assert isinstance(frame.place, str)
        for event in track.table.events(frame.place):
            for row in track.table.rows[frame.place][event] if event not in track.led else ():
                if self._open(track, row, known):
                    there = (frame if row.again else Frame(track, row.target), *inner)
                    items = track.arrows[row]
                    for name in dict.fromkeys(name for item in items for name in item.names):
                        yield name, there
                    if not any(item.names and item.needed for item in items):
                        yield "", there

    def _perform(self, outer: Config, frame: Frame, item: Item, known: Known) -> Iterator[tuple[str, Config]]:
        on = (*outer, frame._replace(at=frame.at + 1))
        if item.hooked and IN_STEP in known:
            for name in self._hooked:
                yield name, (*outer, frame)
        if not item.names or (item.once and frame.place in frame.seen):
            yield "", on
            return
        for name in item.names:
            yield name, (*outer, frame) if item.many else on
        if not item.needed:
            yield "", on

    def _cut(self, outer: Config, frame: Frame, phase: str, known: Known) -> Iterator[tuple[str, Config]]:
        for event in (ABORT, FAULT):
            yield from self._take(outer, frame._replace(place=phase), event, known)

    def _take(self, outer: Config, frame: Frame, event: str, known: Known) -> Iterator[tuple[str, Config]]:
        assert isinstance(frame.place, str)
        for row in frame.track.table.rows[frame.place].get(event, ()):
            if self._open(frame.track, row, known):
                yield "", (*outer, frame._replace(place=row, at=0))

    def _arrive(self, outer: Config, frame: Frame, row: Row, known: Known) -> Iterator[tuple[str, Config]]:
        track = frame.track
        if row.target in track.table.final and outer:
            above = outer[-1]
            then = _then(above, track.lifecycle)
            for event in dict.fromkeys((then[row.event], ABORT)):
                yield from self._take(outer[:-1], above, event, known)
        elif row.again:
            last = max(len(track.phases[row.target]) - 1, 0)
            yield "", (*outer, frame._replace(place=row.target, at=last))
        else:
            seen = frame.seen | ({row.source} & track.once)
            yield "", (*outer, Frame(track, row.target, 0, seen))

    def _open(self, track: Track, row: Row, known: Known) -> bool:
        found = self._possible.get((row, known))
        if found is None:
            rows = track.table.rows[row.source][row.event]
            found = self._possible[row, known] = _possible(rows[: rows.index(row) + 1], known, self._counted)
        return found

    @cached_property
    def _counted(self) -> frozenset[str]:
        return frozenset(rules.adds for rules in self._rules.values() if rules.adds)

    @cached_property
    def _hooked(self) -> tuple[str, ...]:
        return tuple(name for name, rules in self._rules.items() if rules.hooked)

    # -- compiling -----------------------------------------------------------------------------------------------

    def _track(self, lifecycle: type[Lifecycle]) -> Track:
        if lifecycle not in self._tracks:
            table = table_of(lifecycle)
            phases = {name: self._items(phase.does) for name, phase in table.phases.items()}
            rows = [row for events in table.rows.values() for found in events.values() for row in found]
            self._tracks[lifecycle] = Track(
                lifecycle,
                table,
                phases,
                {row: self._items(row.emits) for row in rows},
                frozenset(name for name, items in phases.items() if any(item.once for item in items)),
                frozenset(event for phase in table.phases.values() for event in phase.then.values()),
                {name: self._spoken(phase.pool) for name, phase in table.phases.items() if phase.pool is not None},
            )
        return self._tracks[lifecycle]

    def _spoken(self, lifecycle: type[Lifecycle]) -> frozenset[str]:
        track = self._track(lifecycle)
        found = (*track.phases.values(), *track.arrows.values())
        return frozenset(name for items in found for item in items for name in item.names)

    def _items(self, effects: Iterable[Effect]) -> tuple[Item, ...]:
        found: list[Item] = []
        before = False
        for effect in effects:
            if (
                not isinstance(effect, Message)
                or effect.kind in (Kind.ANSWER, Kind.NOTIFY)
                or effect.sender.name == "User"
            ):
                continue  # nothing that could be cut is performed: whoever hears of it cannot fail the run
            if effect.kind is Kind.RECORD:
                made = self._recorded(effect)
                if before and effect.inner and effect.times == "*":  # they come in any order while one effect performs
                    found[-1] = Item((*found[-1].names, *made[0].names), needed=False, many=True)
                else:
                    found += made
                before = effect.inner and effect.times == "*"
            elif effect.performed:
                made = [HOOKED if effect.kind in (Kind.HOOK, Kind.ASK) else SILENT]
                found += made if found[-1:] != made else []
                before = False
        return tuple(found)

    def _recorded(self, effect: Message) -> list[Item]:
        many, needed = effect.times in ("*", "once"), effect.times == "1" and len(effect.names) == 1
        return [Item((self._letter(name, effect.act),), needed, many, effect.times == "once") for name in effect.names]

    def _letter(self, name: str, act: str) -> str:
        form = self._rules[name].form(act) if name in self._rules else ""
        return f"{name}:{form}" if form else name


def _then(frame: Frame, runs: type[Lifecycle]) -> Mapping[str, str]:
    """What follows a run; the phase that made it may have been left by a move from outside."""
    phases: dict[str, Phase] = dict(frame.track.table.phases)
    assert isinstance(frame.place, str)
    here = phases[frame.place]
    return here.then if here.runs is runs else next(phase.then for phase in phases.values() if phase.runs is runs)


def _at_rest(config: Config) -> bool:
    frame = config[0]
    return len(config) == 1 and isinstance(frame.place, str) and frame.track.table.phases[frame.place].runs is None


def _phase(frame: Frame) -> str:
    if not isinstance(frame.place, Row):
        return frame.place
    return frame.place.target if frame.at == len(frame.track.arrows[frame.place]) else frame.place.source


def _possible(rows: Sequence[Row], known: Known, counted: frozenset[str]) -> bool:
    """Whether the last of these arrows of one event may be the one that is open, whatever is not known."""
    guards = [row.arrow.guard for row in rows]
    free = sorted({atom for guard in guards for atom in atoms(guard)} - counted)
    tests = [compile_guard(guard) if guard else None for guard in guards]
    for values in product((False, True), repeat=len(free)):
        facts = SimpleNamespace(**{fact: fact in known for fact in counted}, **dict(zip(free, values, strict=True)))
        opened = [test is None or test(facts) for test in tests]
        if opened[-1] and not any(opened[:-1]):
            return True
    return False
