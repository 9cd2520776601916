"""Transition tables: what each phase does, and for each of its events the guard, what is emitted, and the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lifecycle.definition.effects import Effect, Message
from lifecycle.definition.machine import Lifecycle

from .markdown import cell, code
from .mermaid import Words, as_written

HEADS = ("Phase", "Event", "Guard", "Says", "Leads to")


class TableRow(NamedTuple):
    """One line of the table. A row without an event says what the phase does when it is entered."""

    phase: str
    event: str
    guard: str
    effects: tuple[str, ...]
    target: str
    when: str


def rows(lifecycle: type[Lifecycle], words: Words = as_written) -> Iterator[TableRow]:
    """The rows of a lifecycle, phase by phase in declared order."""
    for name, phase in lifecycle.spec.phases.items():
        inner = phase.runs or phase.pool
        runs = words("runs {lifecycle}") if phase.runs else words("runs several {lifecycle}") if phase.pool else ""
        does = _said(phase.does, words) + ((runs.format(lifecycle=inner.spec.name),) if inner is not None else ())
        yield TableRow(name, "", "", does, "", "")
        for arrow in phase.arrows:
            for event in arrow.events:
                says = _said(arrow.emits, words)
                yield TableRow(name, str(event), arrow.guard, says, arrow.goal, arrow.when and words(arrow.when))


def _said(effects: Iterable[Effect], words: Words) -> tuple[str, ...]:
    return tuple(spelt(effect, words) for effect in effects if isinstance(effect, Message))


def spelt(effect: Message, words: Words = as_written) -> str:
    """One effect as a line of text: who says what to whom, and how often."""
    times = "" if effect.times == "1" else f" ({words('once') if effect.times == 'once' else effect.times})"
    caption = " ".join(words(part) for part in (effect.text, effect.detail) if part)
    return f"{effect.sender.name} {effect.line.value} {effect.receiver.name}: {caption}{times}"


def table(lifecycle: type[Lifecycle], words: Words = as_written) -> str:
    """The rows as a Markdown table."""
    lines = [_row(words(head) for head in HEADS), _row(["---"] * len(HEADS))]
    for row in rows(lifecycle, words):
        phase = "" if row.event else f"**{cell(row.phase)}**"
        guard = "<br>".join(part for part in (code(row.guard), cell(row.when)) if part)
        says = "<br>".join(cell(said) for said in row.effects)
        lines.append(_row((phase, code(row.event), guard, says, cell(row.target))))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
