"""Places: a bound program laid out for stepping, effect by effect, and what abstract performers hand out.

A frame says where a run is: `(level, state, spot, visited, event, lane)`. Level 0 is the agent, 1 the turn, 2 the step,
and 3 and more are calls; the spot is a place, a station, or whether a phase is entered afresh; `visited` are the phases
that were left in which something is done only once; `event` is what ends or leads on; `lane` how far a call may go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from lifecycle.definition.effects import Kind, Message
from lifecycle.definition.machine import ABORT, FAULT
from lifecycle.definition.table import Row
from lifecycle.driver.program import Action, Program, Station

from .happenings import Happening
from .world import Scene

ENTER, BEFORE, DO, ASKED, AFTER, CHOOSE, NESTED, TAKE = range(8)
"""What a frame is about to do. ASKED waits for others; BEFORE, AFTER and CHOOSE wait for the search to choose."""

SURE = "sure"
"""As the event of a frame that performs: its append will not be refused."""

Frame: TypeAlias = tuple[int, int, Any, frozenset[str], str, int]
Option: TypeAlias = tuple[str, int]
"""What may come of something, and how odd that is."""


class MishapError(Exception):
    """Something raises: a hook, an adapter, or an append that is refused."""


class Ask(NamedTuple):
    """Somebody outside decides what comes of an effect."""

    options: Callable[[Scene, int], Sequence[Option]]
    answer: Callable[[Scene, int, str], str | None]
    """What the performer returns then. May raise MishapError."""


class Drive(NamedTuple):
    """A call goes on to the end of a lane; then the performer is asked again."""

    call: int
    lane: int


class Blocked:
    """Nothing to do before another task has moved."""


BLOCKED: Final = Blocked()


def _always(_: Scene) -> bool:
    return True


def _nothing(_: Scene) -> None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Performer:
    """How an effect is performed on a scene; the number is the call's, from 0."""

    perform: Callable[[Scene, int], Ask | Drive | Blocked | str | None]
    ask: Ask | None = None
    """What `perform` hands out if somebody outside decides."""
    ready: Callable[[Scene], bool] = _always
    """Of one that may be blocked: whether it is not any more."""
    appends: bool = False
    """Of what is no record itself: it appends all the same."""
    due: Callable[[Scene], bool] = _always
    """Of a record: whether anything is appended now, which might be refused."""
    refusing: Callable[[Scene], None] = _nothing
    """Of a record: what has been done all the same when the append is refused."""

    def __call__(self, scene: Scene, call: int) -> Ask | Drive | Blocked | str | None:
        return self.perform(scene, call)


Faults: TypeAlias = Mapping[str, Performer]
"""Performers in the place of others, by their effects' keys."""
NO_FAULTS: Faults = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Place:
    """One effect where it stands: in a phase (`row` is None) or on an arrow."""

    station: Station
    row: Row | None
    key: str
    performer: Performer
    suspends: bool
    once: bool
    effect: Message
    heard: str
    """Who may act when it has been performed: `all` listeners, only `observers` of the log, or nobody."""
    owed: bool
    """It is performed whatever else raises."""
    durable: bool
    after: Place | None = None

    def refuse(self, scene: Scene) -> None:
        """Its append is refused."""
        scene.tell(Happening("vetoed", self.effect.name))
        self.performer.refusing(scene)


class Level:
    """A program, laid out as places."""

    def __init__(self, program: Program, faulty: Faults) -> None:
        self.program, self.table = program, program.table
        self.stations, self.interruptible = program.stations, program.interruptible
        self._faulty = faulty
        effects = [effect for phase in self.table.phases.values() for effect in phase.does]
        effects += [e for events in self.table.rows.values() for rows in events.values() for r in rows for e in r.emits]
        self._effects = {effect.key: effect for effect in effects if isinstance(effect, Message)}
        self.first = {name: self._laid(here.actions, here, None) for name, here in self.stations.items()}
        self.emits = {row: self._laid(acts, self.stations[row.source], row) for row, acts in program.emits.items()}

    def _laid(self, actions: tuple[Action, ...], station: Station, row: Row | None) -> tuple[Place, ...]:
        owed = row is not None and row.event in (ABORT, FAULT)
        places = [self._place(action, station, row, owed) for action in actions]
        for one, following in pairwise(places):
            one.after = following
        return tuple(places)

    def _place(self, action: Action, station: Station, row: Row | None, owed: bool) -> Place:
        effect = self._effects[action.key]
        heard = {Kind.RECORD: "observers", Kind.NOTIFY: "all"}.get(effect.kind, "")
        performer = self._faulty.get(action.key, action.perform)
        assert isinstance(performer, Performer)
        durable = effect.kind is Kind.RECORD or performer.appends
        return Place(station, row, action.key, performer, action.suspends, action.once, effect, heard, owed, durable)

    def only_events(self, phase: str) -> list[str]:
        return [event for event in self.table.rows[phase] if event not in (ABORT, FAULT)]

    def leads_back(self, phase: str, event: str) -> bool:
        """Whether the phase can come again after that event."""
        ahead, seen = [row.target for row in self.table.rows[phase][event]], set[str]()
        while ahead:
            here = ahead.pop()
            if here not in seen:
                seen.add(here)
                ahead += [row.target for after in self.only_events(here) for row in self.table.rows[here][after]]
        return phase in seen
