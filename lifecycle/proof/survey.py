"""The survey: every phase of a lifecycle with every event and every valuation of the guards.

Looks at one table alone, and at how the phases that run another lifecycle go on after each of its endings. A fact
that guards compare is given the values around what it is compared with; all others are true or false.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from lifecycle.definition.guards import parse
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Lifecycle
from lifecycle.definition.table import Row, Table, table_of
from lifecycle.errors import TooManyFactsError

MOST = 200_000
"""How many valuations of one phase are looked at; a definition with more of them is refused."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """With some facts several arrows of one event are open, and the first one is taken.

    That is usual where the last one carries no guard; it is `unclear` where two guards hold at once.
    """

    phase: str
    event: str
    arrows: tuple[str, ...]
    facts: Mapping[str, object]
    unclear: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """With some facts nothing leads on from a phase. `ending` is set if it is the ending of a nested lifecycle."""

    phase: str
    facts: Mapping[str, object]
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What one lifecycle looks like from every side."""

    name: str
    phases: int
    events: int
    arrows: int
    cells: int
    """Phases x events x valuations that were looked at."""
    open_cells: int
    depth: int
    """How many arrows the farthest phase is from the beginning."""
    complete: bool
    """The bound on the depth left nothing out."""
    unreachable: tuple[str, ...]
    dead: tuple[str, ...]
    """Arrows that no reachable phase takes, whatever the facts."""
    overlaps: tuple[Overlap, ...]
    gaps: tuple[Gap, ...]
    endless: tuple[str, ...]
    """Reachable phases from which no final one can be reached, although there is one."""
    nested: Mapping[str, Mapping[str, str]]
    """By phase, which event follows which ending of what it runs."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, one sentence each; none if nothing is."""
        found = [f"{self.name}.{phase} cannot be reached" for phase in self.unreachable]
        found += [f"{arrow} is never taken" for arrow in self.dead]
        found += [
            f"{self.name}.{one.phase}: two guards of {one.event!r} hold at once {_told(one.facts)}; the order decides"
            f" between {' and '.join(one.arrows)}"
            for one in self.overlaps
            if one.unclear
        ]
        for gap in self.gaps:
            what = f"{gap.ending!r} is not taken" if gap.ending else "nothing leads on"
            found.append(f"{self.name}.{gap.phase}: {what} {_told(gap.facts)}")
        return (*found, *(f"{self.name}.{phase}: no end can be reached from here" for phase in self.endless))


def survey(lifecycle: type[Lifecycle], depth: int | None = None) -> Survey:
    """Look at every phase that is at most `depth` arrows from the beginning.

    Raises:
        TooManyFactsError: if the guards of one phase have more than MOST valuations.
    """
    table, spec = table_of(lifecycle), lifecycle.spec
    moves = {phase: _Cells(table, lifecycle, phase) for phase in table.phases}
    distance = _distances(table.initial, moves, depth)
    reached = [phase for phase in table.phases if phase in distance]
    taken = {row for phase in reached for row in moves[phase].taken}
    complete = not any(goal not in distance for phase in reached for goal in moves[phase].goals)
    every = [row for events in table.rows.values() for rows in events.values() for row in rows]
    return Survey(
        name=spec.name,
        phases=len(table.phases),
        events=len({event for rows in table.rows.values() for event in rows}),
        arrows=len(every),
        cells=sum(moves[phase].cells for phase in reached),
        open_cells=sum(moves[phase].open_cells for phase in reached),
        depth=max(distance.values()),
        complete=complete,
        unreachable=tuple(phase for phase in table.phases if phase not in distance) if complete else (),
        dead=tuple(
            arrow_named(spec.name, row.event, row.arrow)
            for row in every
            if row not in taken and (row.source in distance or complete)
        ),
        overlaps=tuple(one for phase in reached for one in moves[phase].overlaps),
        gaps=tuple(gap for phase in reached for gap in moves[phase].gaps),
        endless=tuple(_endless(table, moves, reached)) if complete else (),
        nested={phase: dict(declared.then) for phase, declared in table.phases.items() if declared.runs is not None},
    )


def arrow_named(owner: str, event: str, arrow: Arrow) -> str:
    """An arrow in one line: `Step.enter: modelled -> entered if admitted`."""
    guard = f" if {arrow.guard}" if arrow.guard else ""
    return f"{owner}.{event}: {arrow.source.id} -> {arrow.goal}{guard}"


class _Cells:
    """One phase with every event and every valuation of the facts that its guards read."""

    def __init__(self, table: Table, lifecycle: type[Lifecycle], phase: str) -> None:
        self.taken: set[Row] = set()
        self.overlaps: list[Overlap] = []
        self.gaps: list[Gap] = []
        self.cells = self.open_cells = 0
        self._table, self._phase = table, phase
        self._rows = table.rows[phase]
        self._seen: set[tuple[str, bool]] = set()
        self._final = phase in table.final
        self._endings = sorted(set(table.phases[phase].then.values()))
        for facts in _valuations(table, lifecycle, phase):
            self._look(facts, lifecycle.facts(**facts))
        self.goals = list(dict.fromkeys(row.target for row in self.taken))

    def _look(self, values: Mapping[str, object], facts: Any) -> None:
        opened: set[str] = set()
        for event, rows in self._rows.items():
            self.cells += 1
            live = [row for row in rows if row.guard is None or row.guard(facts)]
            if live:
                opened.add(event)
                self.open_cells += 1
                self.taken.add(live[0])
            if len(live) > 1:
                self._overlap(event, live, values)
        if self._final:
            return
        if not opened - {ABORT, FAULT} and not any(not gap.ending for gap in self.gaps):
            self.gaps.append(Gap(self._phase, values))
        for ending in self._endings:
            if ending not in opened and all(gap.ending != ending for gap in self.gaps):
                self.gaps.append(Gap(self._phase, values, ending))

    def _overlap(self, event: str, live: list[Row], values: Mapping[str, object]) -> None:
        unclear = sum(row.guard is not None for row in live) > 1
        if (event, unclear) not in self._seen:
            self._seen.add((event, unclear))
            arrows = tuple(arrow_named(self._table.name, event, row.arrow) for row in live)
            self.overlaps.append(Overlap(self._phase, event, arrows, values, unclear))


def _valuations(table: Table, lifecycle: type[Lifecycle], phase: str) -> Iterator[dict[str, object]]:
    values: dict[str, dict[object, None]] = {}
    for rows in table.rows[phase].values():
        for row in rows:
            _interesting(row.arrow.guard, values)
    choices = {atom: list(found) or [False, True] for atom, found in sorted(values.items())}
    size = prod(map(len, choices.values()))
    if size > MOST:
        raise TooManyFactsError(
            f"{lifecycle.__name__}.{phase}: its guards read {len(choices)} facts with {size} valuations, and at most"
            f" {MOST} can be looked at; put some of the facts together, or into phases"
        )
    for combination in product(*choices.values()):
        yield dict(zip(choices, combination, strict=True))


def _interesting(guard: str, values: dict[str, dict[object, None]]) -> None:
    """Add to `values` what makes a difference to `guard`: around each constant that a fact is compared with."""
    if not guard:
        return
    tree = parse(guard)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            values.setdefault(node.id, {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            constants = [side.value for side in sides if isinstance(side, ast.Constant)]
            for side in sides:
                if isinstance(side, ast.Name):
                    for constant in constants:
                        values[side.id] |= dict.fromkeys(_around(constant))


def _around(constant: object) -> list[object]:
    if isinstance(constant, bool) or constant is None:
        return [False, True, constant]
    if isinstance(constant, (int, float)):
        return [constant - 1, constant, constant + 1]
    if isinstance(constant, str):
        return [constant, f"not {constant}"]
    return [constant]


def _distances(initial: str, moves: Mapping[str, _Cells], depth: int | None) -> dict[str, int]:
    distance, front = {initial: 0}, [initial]
    while front and (depth is None or distance[front[0]] < depth):
        found = dict.fromkeys(goal for phase in front for goal in moves[phase].goals if goal not in distance)
        distance.update(dict.fromkeys(found, distance[front[0]] + 1))
        front = list(found)
    return distance


def _endless(table: Table, moves: Mapping[str, _Cells], reached: list[str]) -> Iterator[str]:
    if not table.final:
        return
    ending = set(table.final)
    while grown := {phase for phase in reached if phase not in ending and ending & set(moves[phase].goals)}:
        ending |= grown
    yield from (phase for phase in reached if phase not in ending)


def _told(facts: Mapping[str, object]) -> str:
    return f"with {', '.join(f'{name}={value!r}' for name, value in facts.items())}" if facts else "whatever the facts"
