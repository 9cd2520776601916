"""SCXML: another interpreter that reads the document goes where the tables go."""

from __future__ import annotations

import random
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from statemachine import io

from lifecycle.commands.targets import OURS
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.table import table_of
from lifecycle.errors import IllegalTransitionError
from lifecycle.proof.scxml import scxml

NS = "{http://www.w3.org/2005/07/scxml}"


@pytest.mark.parametrize("lifecycle", OURS.values(), ids=OURS)
def test_a_document_holds_every_phase_and_arrow_once(lifecycle: type[Lifecycle]) -> None:
    root = ElementTree.fromstring(scxml(lifecycle))

    def counted(one: type[Lifecycle]) -> tuple[int, int]:
        phases, arrows = len(one.spec.phases), len(list(one.spec.arrows))
        inner = [counted(phase.runs) for phase in one.spec.phases.values() if phase.runs is not None]
        return phases + sum(n for n, _ in inner), arrows + sum(n for _, n in inner)

    ids = [state.get("id") for state in root.iter() if state.tag in (f"{NS}state", f"{NS}final")]
    assert (len(ids), len(list(root.iter(f"{NS}transition")))) == counted(lifecycle)
    assert len(set(ids)) == len(ids)
    assert {one.get("target") for one in root.iter(f"{NS}transition")} <= {*ids, None}


def by_tables(lifecycle: type[Lifecycle], phases: list[str], event: str) -> list[str]:
    """Where an event leads from nested phases if no fact holds: the innermost one that takes it, takes it."""
    levels = [lifecycle]
    for phase in phases[:-1]:
        inner = levels[-1].spec.phases[phase].runs
        assert inner is not None
        levels.append(inner)
    for depth in reversed(range(len(phases))):
        one = levels[depth]
        try:
            row = table_of(one).choose(phases[depth], event, one.facts)
        except IllegalTransitionError:
            continue
        if row.again:
            return phases
        if row.target in one.spec.final and depth:
            outer = levels[depth - 1].spec.phases[phases[depth - 1]]
            return by_tables(lifecycle, phases[:depth], outer.then[event])
        return [*phases[:depth], *entered(one, row.target)]
    return phases


def entered(lifecycle: type[Lifecycle], phase: str) -> list[str]:
    inner = lifecycle.spec.phases[phase].runs
    return [phase] if inner is None else [phase, *entered(inner, inner.spec.initial)]


@pytest.mark.parametrize("name", ["Agent", "Turn", "ToolCall", "002"])
def test_an_interpreter_of_scxml_goes_where_the_tables_go(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lifecycle, chance = OURS[name], random.Random(1)
    levels = [lifecycle, *(phase.runs for phase in lifecycle.spec.phases.values() if phase.runs is not None)]
    events = sorted({event for one in levels for event, _ in one.spec.arrows} - {"dispose"})
    moved = 0
    for _ in range(10):
        chart = cast("Any", io).load(
            scxml(lifecycle), format="scxml"
        )  # anew: a second machine of one class has no facts
        machine, phases = chart(), entered(lifecycle, lifecycle.spec.initial)
        while len(phases) > 1 or phases[0] not in lifecycle.spec.final:
            legal = [event for event in events if by_tables(lifecycle, phases, event) != phases]
            event = chance.choice([*legal, *legal, *events])
            machine.send(event)
            phases = by_tables(lifecycle, phases, event)
            moved += 1
            assert set(machine.configuration_values) == {".".join(phases[: n + 1]) for n in range(len(phases))}
            if moved % 60 == 0:
                break
    assert moved > 20
    assert capsys.readouterr().out  # what the effects log
