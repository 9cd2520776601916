"""The walk: one control flow that performs any lifecycle, and knows no phase by name.

A *performer* is a function of a run, registered for the key of an effect. A *program* is a frozen table with a
performer bound to every effect. `walk` is a plain generator: it decides, takes arrows and calls performers; those
that may suspend it hands to whoever drives it. So the same flow runs synchronously up to its first suspension
inside `followup()` (INB-09), and from there on in the driver's task, without a started coroutine changing hands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import anyio

from lifecycle.definition.effects import Effect, Kind, Message, Note
from lifecycle.definition.machine import ABORT, FAULT, Lifecycle
from lifecycle.definition.table import Row, Table, table_of
from lifecycle.errors import DefinitionError
from lifecycle.services.signal import CancelSignal

log = logging.getLogger("lifecycle")

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
    lane: str
    actions: tuple[Action, ...]
    nested: Program | None
    begin: Callable[[Any], Any] | None
    then: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A lifecycle whose every effect has a performer."""

    table: Table
    stations: Mapping[str, Station]
    emits: Mapping[Row, tuple[Action, ...]]
    interruptible: bool
    """Whether the lifecycle says what follows `abort` and `fault`."""


Move: TypeAlias = "tuple[Perform, Any, bool]"
"""A performer that may suspend, the run that it is to be called with, and whether it is left out once cancelled."""
Flow: TypeAlias = "Generator[Move, str | None, str]"


def walk(program: Program, run: Any) -> Flow:
    """Perform `run` from the phase it is in until it ends, or rests in a phase that does nothing.

    Yields the performers that may suspend; whoever drives it calls them and sends their result, or throws what they
    raised. Returns the event that ended it, or an empty string if it rests.
    """
    table, stations = program.table, program.stations
    visited: set[str] = set()
    event, fresh = "", True
    while True:
        here = stations[run.phase]
        if here.final:
            return event
        if here.nested is None and not here.actions:
            return ""
        outcome: str | None = None
        try:
            if here.nested is not None and here.begin is not None:
                outcome = here.then[(yield from walk(here.nested, here.begin(run)))]
                if program.interruptible and run.signal.fired and not here.settles:
                    outcome, run.error = ABORT, None  # also if it failed first: nobody has been told yet (ERR-04)
            else:
                for action in here.actions if fresh else here.actions[-1:]:
                    if action.once and here.name in visited:
                        continue
                    if not action.suspends:
                        outcome = cast("str | None", action.perform(run))
                        continue
                    outcome = yield action.perform, run, not here.settles
                    if run.signal.fired and not here.settles:
                        outcome = ABORT
                        break
            visited.add(here.name)
            if outcome is None:  # a phase whose last effect has nothing to say leads on by its only event
                outcome = _only_event(table, here.name)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not program.interruptible:
                raise
            outcome = _interrupted(run, error, here.settles)
        event = outcome

        while True:  # a second round only if an effect of the arrow raises: then the arrow was not taken
            row = table.choose(run.phase, event, run.facts)
            run.phase = row.target
            try:
                if event in (ABORT, FAULT):
                    yield from _emit_all(program.emits[row], run)
                else:
                    for action in program.emits[row]:
                        if action.suspends:
                            yield action.perform, run, False
                        else:
                            action.perform(run)
                break
            except GeneratorExit:
                raise
            except BaseException as error:
                if not program.interruptible:
                    raise
                run.phase = row.source
                event = _interrupted(run, error, here.settles)
        fresh = not row.again


def _emit_all(actions: Iterable[Action], run: Any) -> Flow:
    """Perform what an aborted or failed phase still owes: all of it, even if a part raises (END-03)."""
    for action in actions:
        try:
            if action.suspends:
                yield action.perform, run, False
            else:
                action.perform(run)
        except Exception as error:
            if run.error is None and not run.signal.fired:
                run.error = error
            log.exception("%r failed while a run was being closed", action.key, exc_info=error)
    return ""


def _interrupted(run: Any, error: BaseException, settles: bool) -> str:
    """The event that an exception stands for: cancelled beats failed (ERR-04)."""
    if not isinstance(error, Exception):  # the host cancels the task, or ends the process
        run.stop(error)
        return ABORT
    if run.signal.fired and not settles:
        return ABORT
    if run.error is None:
        run.error = error
    else:  # the first failure is the one that is told
        log.exception("a run that had failed failed once more", exc_info=error)
    return FAULT


@cache
def _only_event(table: Table, phase: str) -> str:
    events = [event for event in table.rows[phase] if event not in (ABORT, FAULT)]
    if len(events) != 1:
        raise DefinitionError(
            f"{table.name}.{phase}: the performer of the last effect must return one of {', '.join(events)}"
        )
    return events[0]


class Drive:
    """Drives one flow: plainly as far as it goes without suspending, then in a task."""

    __slots__ = ("_flow", "_move", "_started", "ended")

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._move: Move | None = None
        self._started = False
        self.ended: str | None = None
        """The event that ended it; an empty string if it rests; None while it runs."""

    def start(self) -> None:
        """Perform what can be performed without suspending."""
        self._started = True
        self._resume(self._flow.send, None)

    def _resume(self, step: Callable[[Any], Move], value: object) -> None:
        try:
            self._move = step(value)
        except StopIteration as end:
            self._move, self.ended = None, end.value

    async def run(self, until: Callable[[], bool] | None = None) -> None:
        """Perform the rest, or up to a suspension at which `until` holds.

        A cancellation from outside is `cancel(disposed)`: what is owed is still performed, shielded, and then the
        cancellation goes on its way.
        """
        if not self._started:
            self.start()
        outside = await self._perform(until)
        if outside is not None:
            with anyio.CancelScope(shield=True):
                await self._perform(until)
            raise outside

    async def _perform(self, until: Callable[[], bool] | None) -> BaseException | None:
        """Perform on; returns early, with what came, if it comes from outside."""
        while self._move is not None and not (until is not None and until()):
            perform, run, cancellable = self._move
            if cancellable and run.signal.fired:  # asked here: the task may have begun long after the last move
                self._resume(self._flow.send, None)
                continue
            try:
                result: Any = perform(run)
                if type(result) is CoroutineType:
                    result = await cast("Coroutine[Any, Any, str | None]", result)
            except Exception as error:
                self._resume(self._flow.throw, error)
            except BaseException as error:
                self._resume(self._flow.throw, error)
                return error
            else:
                self._resume(self._flow.send, result)
        return None


def perform_now(program: Program, run: Any, event: str) -> None:
    """Take one arrow from outside the walk, with effects none of which may suspend.

    If an effect raises, the arrow was not taken. Effects may themselves lead to further events: the phase has
    changed before the first of them.

    Raises:
        IllegalTransitionError: if the phase does not take `event`.
    """
    row = program.table.choose(run.phase, event, run.facts)
    run.phase = row.target
    try:
        for action in program.emits[row]:
            action.perform(run)
    except Exception:
        if row.target != row.source:  # whatever else the effects led to belonged to the arrow that was not taken
            run.phase = row.source
        raise


# -- performers ---------------------------------------------------------------------------------------------------


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

    def program(self, lifecycle: type[Lifecycle] | None = None) -> Program:
        """Bind the performers to a lifecycle: this one, or a user's derived from it.

        Raises:
            DefinitionError: if an effect has no performer, or a performer no effect.
        """
        lifecycle = lifecycle or self.lifecycle
        table, spec = table_of(lifecycle), lifecycle.spec
        stations = {name: self._station(spec.name, name, table) for name in spec.phases}
        rows = [row for events in table.rows.values() for found in events.values() for row in found]
        emits = {row: self._bind(f"{spec.name}.{row.event}", row.emits) for row in rows}
        if lifecycle is self.lifecycle:
            self._check_performers(rows, table)
        return Program(table, stations, emits, ABORT in spec.declared and FAULT in spec.declared)

    def _station(self, owner: str, name: str, table: Table) -> Station:
        phase = table.phases[name]
        nested, begin = None, None
        if phase.runs is not None:
            performers, begin = self._runner(phase.runs)
            nested = performers.program(phase.runs)
        actions = self._bind(f"{owner}.{name}", phase.does)
        return Station(name, phase.final, phase.settles, phase.lane, actions, nested, begin, phase.then)

    def _runner(self, lifecycle: type[Lifecycle]) -> tuple[Performers[Any], Callable[[Any], Any]]:
        for performers, begin in self._nested:
            if issubclass(lifecycle, performers.lifecycle):
                return performers, begin
        raise DefinitionError(f"{self.lifecycle.__name__}: nobody says how a run of {lifecycle.__name__} begins")

    def _bind(self, place: str, effects: Iterable[Effect]) -> tuple[Action, ...]:
        return tuple(self._action(place, effect) for effect in effects if _needs_performer(effect))

    def _action(self, place: str, effect: Effect) -> Action:
        assert isinstance(effect, Message)
        found = self._actions.get(effect.key)
        if found is not None:
            return Action(effect.key, found[0], found[1], effect.times == "once")
        made = self._fallback(effect) if self._fallback is not None else None
        if made is None:
            raise DefinitionError(f"{place}: nobody performs {effect.key!r}")
        return Action(effect.key, made, effect.kind is Kind.HOOK, effect.times == "once")

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


def _needs_performer(effect: Effect) -> bool:
    return not isinstance(effect, Note) and effect.performed and effect.sender.name != "User"


def _is_inner(effect: Message) -> bool:
    return effect.inner and effect.kind is not Kind.ANSWER
