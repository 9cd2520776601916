"""What is looked at when a lifecycle is declared, so that a mistake is an error at import.

Every error names the lifecycle and the phase or the event that was written. Knows nothing of the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from lifecycle.errors import DefinitionError

from .effects import Message, Note
from .guards import atoms

if TYPE_CHECKING:
    from .machine import Arrows, Phase, Spec

ABORT = "abort"
"""The event of a cancelled run."""
FAULT = "fault"
"""The event of a run in which something raised."""


def check(spec: Spec, events: Mapping[str, Arrows]) -> None:
    """Raises DefinitionError for whatever is wrong with a lifecycle. `events` holds the arrows as they are taken."""
    if not spec.phases:
        return
    _check_facts(spec)
    initial = [name for name, phase in spec.phases.items() if phase.initial]
    if len(initial) != 1:
        raise DefinitionError(f"{spec.name}: one phase is initial, not {' and '.join(initial) or 'none'}")
    for name, phase in spec.phases.items():
        _check_phase(spec, name, phase, events)
    for event, arrows in events.items():
        _check_arrows(spec, event, arrows)
    for atom in sorted(spec.atoms & {*spec.phases, *events}):
        raise DefinitionError(f"{spec.name}: the fact {atom!r} has the name of a phase or an event; rename one of them")
    if (ABORT in events) is not (FAULT in events):
        given, missing = (ABORT, FAULT) if ABORT in events else (FAULT, ABORT)
        raise DefinitionError(f"{spec.name}: it declares {given!r}; say also what follows {missing!r}")


def _check_facts(spec: Spec) -> None:
    facts = cast("Any", spec.facts)
    frozen = isinstance(facts, type) and is_dataclass(facts) and cast("Any", facts).__dataclass_params__.frozen
    if not frozen:
        raise DefinitionError(f"{spec.name}: facts must be a frozen dataclass, not {facts!r}")


def _check_phase(spec: Spec, name: str, phase: Phase, events: Mapping[str, Arrows]) -> None:
    place = f"{spec.name}.{name}"
    _check_effects(place, phase.does)
    performed = any(effect.performed for effect in phase.does)
    if phase.final:
        if performed or phase.runs is not None:
            raise DefinitionError(f"{place}: a final phase does nothing; let the arrows that lead to it emit instead")
        return
    if phase.runs is None and phase.then:
        raise DefinitionError(f"{place}: `then` says what follows a lifecycle, but the phase runs none")
    if phase.runs is not None:
        if performed:
            raise DefinitionError(f"{place}: a phase that runs {phase.runs.__name__} does nothing besides")
        _check_then(spec, place, phase, phase.runs, events)
    leading = {event for event, arrows in events.items() if any(arrow.source is phase for arrow in arrows)}
    if not leading - {ABORT, FAULT}:
        raise DefinitionError(f"{place}: nothing leads on from here; declare what follows, or make the phase final")
    for event in (ABORT, FAULT):
        if event in events and event not in leading:
            raise DefinitionError(f"{place}: say what follows {event!r}, such as ANYWHERE.to(...)")


def _check_then(spec: Spec, place: str, phase: Phase, runs: Any, events: Mapping[str, Arrows]) -> None:
    endings = runs.spec.endings
    for ending in sorted(endings ^ set(phase.then)):
        hint = "say in `then` what follows" if ending in endings else "`then` names what never ends it:"
        raise DefinitionError(f"{place}: {hint} {runs.__name__}.{ending}")
    for event in sorted(set(phase.then.values())):
        if event not in events:
            raise DefinitionError(f"{place}: `then` leads to {event!r}, which is no event of {spec.name}")
        if all(arrow.source is not phase for arrow in events[event]):
            raise DefinitionError(f"{place}: `then` leads to {event!r}, which the phase does not take")


def _check_arrows(spec: Spec, event: str, arrows: Arrows) -> None:
    place, facts = f"{spec.name}.{event}", spec.facts
    known = {field.name for field in fields(facts)}
    bare: set[int] = set()
    for arrow in arrows:
        _check_effects(place, arrow.emits)
        if arrow.mistaken is not None:
            raise DefinitionError(
                f"{place}: a guard is an expression over facts, such as 'ready', not {arrow.mistaken!r}"
            )
        try:
            unknown = sorted(set(atoms(arrow.guard)) - known)
        except DefinitionError as wrong:
            raise DefinitionError(f"{place}: {wrong}") from wrong
        if unknown:
            legal = ", ".join(sorted(known)) or "none"
            raise DefinitionError(
                f"{place}: the guard reads {unknown[0]!r}, which is no field of {facts.__name__} ({legal})"
            )
        if id(arrow.source) in bare:
            raise DefinitionError(f"{place}: an arrow without a guard must be the last one from its phase")
        if not arrow.guard:
            bare.add(id(arrow.source))


def _check_effects(place: str, effects: Iterable[object]) -> None:
    for effect in effects:
        if not isinstance(effect, (Message, Note)):
            raise DefinitionError(f"{place}: {effect!r} is no effect; make one with hook, ask, record, notify or note")
