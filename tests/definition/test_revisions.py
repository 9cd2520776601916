"""Every revision can be drawn, holds nothing that cannot happen, and draws the picture that was published of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from difflib import unified_diff
from functools import partial
from itertools import product
from pathlib import Path

import merman
import pytest

from lifecycle.definition.agent import IDLE
from lifecycle.definition.effects import Effect, Message
from lifecycle.definition.family import family
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Lifecycle, fire, phase_of
from lifecycle.definition.revisions import NEWEST, REVISIONS, r001, r2026_08
from lifecycle.definition.table import Row, table_of
from lifecycle.errors import IllegalTransitionError
from lifecycle.pictures.blocks import effects_of
from lifecycle.pictures.sequence import VIEWS, left_out, sequence

DATA = Path(__file__).parent / "data"
PUBLISHED = Path(__file__).parents[3] / "shared" / "seeds"
LINES = {"000": 78, "001": 63, "002": 46}
"""How many lines the published pictures have."""

DRIVEN = {one for revision in REVISIONS.values() for one in family(revision) if one is not revision}
"""The lifecycles that are run and can therefore be cancelled. What comes to an agent comes from outside."""

every_revision = pytest.mark.parametrize("name", REVISIONS)
every_lifecycle = pytest.mark.parametrize(
    "lifecycle",
    [
        pytest.param(one, id=f"{name}-{one.__name__}")
        for name, revision in REVISIONS.items()
        for one in family(revision)
    ],
)


def plain(text: str) -> list[str]:
    """The lines of a diagram without indentation, code tags, and what a scraped page puts between them."""
    lines = [line.strip() for line in re.sub(r"</?code>", "", text).splitlines()]
    return [line for line in lines if line not in ("", "|")]


def diagram_of(page: str) -> list[str]:
    """The lines of the first sequence diagram of a page: up to its last arrow, for the page may lack the fence."""
    lines = plain(page)
    arrows = [n for n, line in enumerate(lines) if re.match(r"\w+--?>>\w+: ", line)]
    return lines[lines.index("sequenceDiagram") : arrows[-1] + 1]


def same(published: list[str], drawn: list[str]) -> None:
    assert drawn == published, "\n".join(unified_diff(published, drawn, "published", "drawn", lineterm="", n=2))


# -- the pictures ------------------------------------------------------------------------------------------------


@every_revision
def test_the_overview_is_the_one_that_is_kept(name: str) -> None:
    """To keep another one, on purpose: `python tests/definition/test_revisions.py`."""
    kept = (DATA / f"overview-{name}.mmd").read_text(encoding="utf-8")
    same(kept.splitlines(), sequence(REVISIONS[name]).splitlines())


@pytest.mark.parametrize(("name", "lines"), LINES.items())
def test_the_kept_overview_has_as_many_lines_as_the_published_picture(name: str, lines: int) -> None:
    assert len(plain((DATA / f"overview-{name}.mmd").read_text(encoding="utf-8"))) == lines


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published documents are not here")
@pytest.mark.parametrize(("document", "name"), [("000", "000"), ("001", "001"), ("002", "002"), ("003", "002")])
def test_the_overview_is_line_for_line_the_published_picture(document: str, name: str) -> None:
    (page,) = PUBLISHED.glob(f"{document}_*.txt")
    published = diagram_of(page.read_text(encoding="utf-8"))
    assert len(published) == LINES[name]
    same(published, plain(sequence(REVISIONS[name])))


@every_revision
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_valid_mermaid(name: str, view: str) -> None:
    judged = merman.MermanEngine(None, None).validate(sequence(REVISIONS[name], view), None)
    assert judged.valid, judged.error


@every_revision
def test_the_full_view_leaves_no_arrow_and_no_effect_out(name: str) -> None:
    revision = REVISIONS[name]
    declared = {effect for one in family(revision) for effect in declared_effects(one)}
    assert left_out(revision, "full") == frozenset()
    assert declared - set(effects_of(VIEWS["full"](revision).blocks)) == set()


@every_revision
def test_the_full_view_says_once_for_each_arrow_that_the_agent_rests(name: str) -> None:
    arrows = [arrow for _, arrow in REVISIONS[name].spec.arrows if IDLE in arrow.emits]
    assert list(effects_of(VIEWS["full"](REVISIONS[name]).blocks)).count(IDLE) == len(arrows) > 1


# -- nothing that cannot happen ----------------------------------------------------------------------------------


@every_lifecycle
def test_every_phase_can_be_reached(lifecycle: type[Lifecycle]) -> None:
    spec = lifecycle.spec
    reached, todo = {spec.initial}, [spec.initial]
    while todo:
        for goal in {arrow.goal for arrow in spec.phases[todo.pop()].arrows} - reached:
            reached.add(goal)
            todo.append(goal)
    assert set(spec.phases) - reached == set()


@every_lifecycle
def test_every_arrow_is_taken_with_some_facts(lifecycle: type[Lifecycle]) -> None:
    table = table_of(lifecycle)
    declared = {row.arrow for events in table.rows.values() for rows in events.values() for row in rows}
    taken = {row.arrow for row in taken_rows(lifecycle)}
    assert [said(arrow) for arrow in declared - taken] == []


@every_lifecycle
def test_every_way_on_from_a_nested_lifecycle_is_led_to_by_one_of_its_ends(lifecycle: type[Lifecycle]) -> None:
    for phase in lifecycle.spec.phases.values():
        if phase.runs is not None and lifecycle in DRIVEN:
            events = {str(event) for arrow in phase.arrows for event in arrow.events}
            assert events - {ABORT, FAULT} == set(phase.then.values()) - {ABORT}


@every_lifecycle
def test_every_phase_of_a_driven_lifecycle_answers_abort_and_fault(lifecycle: type[Lifecycle]) -> None:
    table = table_of(lifecycle)
    answering = {phase for phase in table.phases if {ABORT, FAULT} <= set(table.events(phase))}
    assert answering == (set(table.phases) - table.final if lifecycle in DRIVEN else set())


@every_revision
def test_a_revision_is_an_agent_that_runs_turns_of_steps_with_a_pool_of_calls(name: str) -> None:
    assert [one.__name__ for one in family(REVISIONS[name])] == ["Agent", "Turn", "Step", "ToolCall"]


# -- the earlier revisions in words ------------------------------------------------------------------------------


def test_the_newest_revision_comes_first() -> None:
    assert list(REVISIONS) == [NEWEST, "2026-08", "001", "002"]


def test_a_first_proposal_that_is_rejected_opens_no_turn_in_001_and_closes_one_in_2026_08() -> None:
    assert recorded(r001.Turn(), "claim", "reject") == ["agent/inbox/spliced"]
    assert recorded(r2026_08.Turn(), "open", "claim", "reject", "close") == [
        "turn/start",
        "agent/inbox/spliced",
        "turn/end",
    ]


def test_a_retry_ends_the_step_in_001_and_stays_in_it_in_2026_08() -> None:
    facts = {"retryable": True}
    assert recorded(r001.Step(), "open", "request", "fail", "retry", **facts) == [
        "step/start",
        "user/message",
        "assistant/chunk",
        "step/end",
    ]
    assert recorded(r2026_08.Step(), "open", "request", "fail", "retry", **facts) == [
        "step/start",
        "user/message",
        *(2 * ["request/header", "request/context", "assistant/chunk"]),
    ]


def test_a_revision_made_of_another_one_leaves_that_one_as_it_was() -> None:
    assert issubclass(r2026_08.Step, r001.Step)
    assert [said(arrow) for arrow in r001.Step.spec.phases["retrying"].arrows][:2] == [
        "retrying -> ended [retryable]",
        "retrying -> ended [not (retryable)]",
    ]
    assert {phase.owner for phase in r2026_08.Turn.spec.phases.values()} == {r2026_08.Turn}


# -- helpers -----------------------------------------------------------------------------------------------------


def said(arrow: Arrow) -> str:
    return f"{arrow.source.id} -> {arrow.goal}" + (f" [{arrow.guard}]" if arrow.guard else "")


def declared_effects(lifecycle: type[Lifecycle]) -> Iterator[Effect]:
    for phase in lifecycle.spec.phases.values():
        yield from phase.does
        for arrow in phase.arrows:
            yield from arrow.emits


def taken_rows(lifecycle: type[Lifecycle]) -> Iterator[Row]:
    """What each event takes from each phase, for every valuation of the facts that guards read."""
    table, spec = table_of(lifecycle), lifecycle.spec
    atoms = sorted(spec.atoms)
    valuations = [
        spec.facts(**dict(zip(atoms, values, strict=True))) for values in product((False, True), repeat=len(atoms))
    ]
    assert set(atoms) <= {field.name for field in fields(spec.facts)}
    for phase, events in table.rows.items():
        for event in events:
            for facts in valuations:
                with suppress(IllegalTransitionError):
                    yield table.choose(phase, event, partial(replace, facts))


def recorded(machine: Lifecycle, *events: str, **facts: bool) -> list[str]:
    """What a run records that takes these events, each effect once, nested lifecycles left out."""
    spec = type(machine).spec
    effects = list(spec.phases[phase_of(machine)].does)
    for event in events:
        effects += fire(machine, event, spec.facts(**facts)).emits
        effects += spec.phases[phase_of(machine)].does
    return [name for effect in effects if isinstance(effect, Message) and effect.durable for name in effect.names]


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for key, value in REVISIONS.items():
        (DATA / f"overview-{key}.mmd").write_text(sequence(value), encoding="utf-8")
