"""Programs: a lifecycle with a performer bound to every effect.

A *performer* is a function of a run, registered for the key of an effect: plain, or async where it may suspend. The
one of a phase's last effect returns the event that follows. Lifecycle and performers meet in wire names, and are
held against each other in both directions when they are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from lifecycle.definition.effects import Effect, Kind, Message, Note
from lifecycle.definition.guards import atoms
from lifecycle.definition.machine import ABORT, FAULT, Lane, Lifecycle, Phase
from lifecycle.definition.table import Row, Table, table_of
from lifecycle.errors import DefinitionError
from lifecycle.services.signal import CancelSignal

START, ASK, BODY, COMMIT = range(4)
"""How far a run of a pool may be driven: to its first phase that parks or lies in another lane; through phases that
park; through its body; to its end.
"""
_LANES: Mapping[Lane, int] = MappingProxyType({"start": START, "body": BODY, "commit": COMMIT})

R = TypeVar("R", bound="Run")
F = TypeVar("F", bound=Callable[..., Any])


class Run(Protocol):
    """The working record of one run of a lifecycle."""

    phase: str
    signal: CancelSignal
    error: Any
    """What raised, if anything did."""

    def facts(self) -> Any:
        """What the guards may read, as the lifecycle's facts class."""
        ...

    def stop(self, error: BaseException) -> None:
        """Something that is no Exception passes through: fire the signal, and start nothing more."""
        ...


Perform: TypeAlias = Callable[[Any], "Coroutine[Any, Any, str | None] | str | None"]


class Action(NamedTuple):
    """An effect with its performer. `suspends`: it may wait, so the signal is looked at before and after it."""

    key: str
    perform: Perform
    suspends: bool
    once: bool


@dataclass(frozen=True, slots=True, eq=False)
class Station:
    """A phase as the walk sees it."""

    name: str
    final: bool
    settles: bool
    lane: int
    """How far a run must be driven to come through it, as `lane_of` says."""
    actions: tuple[Action, ...]
    nested: Program | None
    begin: Callable[[Any], Any] | None
    then: Mapping[str, str]
    once: bool
    """Some of its actions are performed only the first time."""
    only: str
    """The event that follows where the last action says none; empty if there are several."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A lifecycle whose every effect has a performer."""

    table: Table
    stations: Mapping[str, Station]
    emits: Mapping[Row, tuple[Action, ...]]
    interruptible: bool
    """Whether the lifecycle says what follows `abort` and `fault`."""


_NONE: Mapping[str, Perform] = MappingProxyType({})


@dataclass(slots=True)
class Performers(Generic[R]):
    """The performers of one lifecycle and of what users derive from it."""

    lifecycle: type[Lifecycle]
    _actions: dict[str, tuple[Perform, bool, tuple[str, ...]]] = field(default_factory=lambda: {})
    _nested: list[tuple[Performers[Any], Callable[[Any], Any]]] = field(default_factory=lambda: [])
    _fallback: Callable[[Message], Perform | None] | None = None

    def __call__(self, *keys: str, suspends: bool = False, inner: Iterable[str] = ()) -> Callable[[F], F]:
        """Register a performer for some effects' keys.

        Args:
            suspends: It may return a coroutine; async functions always do.
            inner: The keys of effects that happen while it performs.
        """

        def register(perform: F) -> F:
            for key in keys:
                if key in self._actions:
                    raise DefinitionError(f"{self.lifecycle.__name__}: {key!r} has a performer already")
                self._actions[key] = (perform, suspends or iscoroutinefunction(perform), tuple(inner))
            return perform

        return register

    def runs(self, nested: Performers[Any], begin: Callable[[R], Any]) -> None:
        """Say how a run of a nested lifecycle begins."""
        self._nested.append((nested, begin))

    def otherwise(self, fallback: Callable[[Message], Perform | None]) -> None:
        """Say how effects are performed that a user's lifecycle adds; it returns None for those it cannot."""
        self._fallback = fallback

    def program(self, lifecycle: type[Lifecycle] | None = None, more: Mapping[str, Perform] = _NONE) -> Program:
        """Bind the performers to a lifecycle: this one, or a user's derived from it.

        Args:
            more: The performers of effects that the user's lifecycle adds, or performs otherwise, by their keys.

        Raises:
            DefinitionError: if an effect has no performer, or a performer no effect.
        """
        lifecycle = lifecycle or self.lifecycle
        table, spec = table_of(lifecycle), lifecycle.spec
        self._check_facts(lifecycle)
        stations = {name: self._station(spec.name, name, table, more) for name in spec.phases}
        rows = [row for events in table.rows.values() for found in events.values() for row in found]
        emits = {row: self._bind(f"{spec.name}.{row.event}", row.emits, more) for row in rows}
        if lifecycle is self.lifecycle:
            self._check_performers(rows, table)
        return Program(table, stations, emits, ABORT in spec.declared and FAULT in spec.declared)

    def _check_facts(self, lifecycle: type[Lifecycle]) -> None:
        """A run tells the facts of our lifecycle; those that a user's adds, nobody would."""
        told = {one.name for one in fields(self.lifecycle.spec.facts)}
        for event, arrow in lifecycle.spec.arrows:
            for atom in atoms(arrow.guard):
                if atom not in told:
                    raise DefinitionError(
                        f"{lifecycle.__name__}.{arrow.source.id}: the guard of {event!r} reads {atom!r}, which no run "
                        "tells; let the performer of the phase's last effect return the one event or the other"
                    )

    def _station(self, owner: str, name: str, table: Table, more: Mapping[str, Perform]) -> Station:
        phase = table.phases[name]
        nested, begin = None, None
        if phase.runs is not None:
            performers, begin = self._runner(phase.runs)
            nested = performers.program(phase.runs, more)
        actions = self._bind(f"{owner}.{name}", phase.does, more)
        usual = [event for event in table.rows[name] if event not in (ABORT, FAULT)]
        return Station(
            name,
            phase.final,
            phase.settles,
            lane_of(phase),
            actions,
            nested,
            begin,
            phase.then,
            any(action.once for action in actions),
            usual[0] if len(usual) == 1 else "",
        )

    def _runner(self, lifecycle: type[Lifecycle]) -> tuple[Performers[Any], Callable[[Any], Any]]:
        for performers, begin in self._nested:
            if issubclass(lifecycle, performers.lifecycle):
                return performers, begin
        raise DefinitionError(f"{self.lifecycle.__name__}: nobody says how a run of {lifecycle.__name__} begins")

    def _bind(self, place: str, effects: Iterable[Effect], more: Mapping[str, Perform]) -> tuple[Action, ...]:
        return tuple(self._action(place, effect, more) for effect in effects if _needs_performer(effect))

    def _action(self, place: str, effect: Effect, more: Mapping[str, Perform]) -> Action:
        assert isinstance(effect, Message)
        once = effect.times == "once"
        if effect.key in more:
            given = more[effect.key]
            return Action(effect.key, given, effect.kind is Kind.HOOK or iscoroutinefunction(given), once)
        found = self._actions.get(effect.key)
        if found is not None:
            return Action(effect.key, found[0], found[1], once)
        made = self._fallback(effect) if self._fallback is not None else None
        if made is None:
            raise DefinitionError(
                f"{place}: nobody performs {effect.key!r}; give the agent a performer for it, such as "
                f"performers={{{effect.key!r}: ...}}"
            )
        return Action(effect.key, made, effect.kind is Kind.HOOK, once)

    def _check_performers(self, rows: Iterable[Row], table: Table) -> None:
        effects = [effect for phase in table.phases.values() for effect in phase.does]
        effects += [effect for row in rows for effect in row.emits]
        said = {effect.key for effect in effects if isinstance(effect, Message) and _needs_performer(effect)}
        inner = {effect.key for effect in effects if isinstance(effect, Message) and _is_inner(effect)}
        name = self.lifecycle.__name__
        for key in sorted(set(self._actions) - said):
            raise DefinitionError(f"{name}: the performer of {key!r} has no effect to perform")
        performed_within = {key for _, _, keys in self._actions.values() for key in keys}
        for key in sorted(inner ^ performed_within):
            raise DefinitionError(f"{name}: the inner effect {key!r} is declared but not performed, or the reverse")


def lane_of(phase: Phase) -> int:
    """How far a run must be driven to come through a phase: START, ASK, BODY or COMMIT."""
    return ASK if phase.parks else _LANES[phase.lane]


def _needs_performer(effect: Effect) -> bool:
    return not isinstance(effect, Note) and effect.performed and effect.sender.name != "User"


def _is_inner(effect: Message) -> bool:
    return effect.inner and effect.kind is not Kind.ANSWER
