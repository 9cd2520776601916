"""State diagrams: every phase and every arrow of a lifecycle, what it runs and pools nested inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lifecycle.definition.machine import Lifecycle

from .labels import Ids, state_label


@dataclass(frozen=True, slots=True)
class Chart:
    """A state diagram before it is text. `states` holds what is nested in each state, and `arrows` their labels."""

    states: Mapping[str, Chart | None]
    arrows: tuple[tuple[str, str, str], ...]
    initial: str
    final: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "\n".join(["stateDiagram-v2", *(f"  {line}" for line in _lines(self, (), Ids()))]) + "\n"


def states(lifecycle: type[Lifecycle]) -> str:
    """The Mermaid `stateDiagram-v2` of a lifecycle. Nothing is left out."""
    return str(chart_of(lifecycle))


def chart_of(lifecycle: type[Lifecycle]) -> Chart:
    """The states and arrows of a lifecycle."""
    spec = lifecycle.spec
    inner = {name: phase.runs or phase.pool for name, phase in spec.phases.items()}
    return Chart(
        {name: None if runs is None else chart_of(runs) for name, runs in inner.items()},
        tuple(
            (arrow.source.id, arrow.goal, f"{event} [{arrow.guard}]" if arrow.guard else event)
            for event, arrow in spec.arrows
        ),
        spec.initial,
        spec.final,
    )


def _lines(chart: Chart, path: tuple[str, ...], ids: Ids) -> Iterator[str]:
    def id_of(name: str) -> str:
        return ids.of((*path, name), "_".join((*path, name)))

    for name, inner in chart.states.items():
        yield f'state "{state_label(name)}" as {id_of(name)}'
        if inner is not None:
            yield f"state {id_of(name)} {{"
            yield from (f"  {line}" for line in _lines(inner, (*path, name), ids))
            yield "}"
    yield f"[*] --> {id_of(chart.initial)}"
    for source, target, words in chart.arrows:
        said = state_label(words)
        yield f"{id_of(source)} --> {id_of(target)}" + (f" : {said}" if said else "")
    for name in chart.states:
        if name in chart.final:
            yield f"{id_of(name)} --> [*]"
