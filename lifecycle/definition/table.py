"""The frozen table: a lifecycle compiled once. It decides as the reference engine does, some hundred times faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from lifecycle.errors import IllegalTransitionError

from .effects import Effect
from .guards import Guard, compile_guard
from .machine import Arrow, Lifecycle, Phase


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One arrow of the table."""

    source: str
    event: str
    target: str
    guard: Guard | None
    arrow: Arrow
    again: bool
    """Whether the phase is not entered anew."""

    @property
    def emits(self) -> tuple[Effect, ...]:
        return self.arrow.emits


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A lifecycle as rows by phase and event. `phases` gives what each phase declares."""

    name: str
    initial: str
    final: frozenset[str]
    phases: Mapping[str, Phase]
    rows: Mapping[str, Mapping[str, tuple[Row, ...]]]
    _found: Mapping[str, Mapping[str, tuple[Row, ...]]] = field(init=False, repr=False)
    """`rows` as plain dicts, which are found in twice as fast."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_found", {phase: dict(events) for phase, events in self.rows.items()})

    def choose(self, phase: str, event: str, facts: Callable[[], Any]) -> Row:
        """The arrow that `event` takes from `phase`. `facts` is called only if a guard wants to know.

        Raises:
            IllegalTransitionError: if none is open.
        """
        known: Any = None
        for row in self._found[phase].get(event, ()):
            if row.guard is None:
                return row
            if known is None:
                known = facts()
            if row.guard(known):
                return row
        raise IllegalTransitionError(self.name, phase, event, self.events(phase))

    def events(self, phase: str) -> tuple[str, ...]:
        """The events that `phase` takes, with some facts or other."""
        return tuple(self.rows[phase])


@cache
def table_of(lifecycle: type[Lifecycle]) -> Table:
    """The table of a lifecycle, compiled at the first call."""
    spec = lifecycle.spec
    rows: dict[str, dict[str, list[Row]]] = {name: {} for name in spec.phases}
    for event, arrow in spec.arrows:
        guard = compile_guard(arrow.guard) if arrow.guard else None
        row = Row(arrow.source.id, event, arrow.goal, guard, arrow, bool(arrow.internal))
        rows[row.source].setdefault(event, []).append(row)
    frozen = {
        phase: MappingProxyType({event: tuple(found) for event, found in events.items()})
        for phase, events in rows.items()
    }
    return Table(spec.name, spec.initial, spec.final, spec.phases, MappingProxyType(frozen))
