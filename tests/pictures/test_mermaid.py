"""Every picture of every lifecycle of ours, read by a full Mermaid parser: it shows what its blocks say, no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lifecycle.definition.effects import HOOKS, Kind, Line, Message, Participant, hook, note
from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.step import Step
from lifecycle.definition.turn import Turn
from lifecycle.pictures.blocks import Say, effects_of
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.pictures.sequence import VIEWS
from lifecycle.pictures.states import states
from lifecycle.pictures.tables import rows, table

from .judge import Read, participants, read, read_states, to_be_read

OURS = {f"{name}-{one.spec.name}": one for name, whole in REVISIONS.items() for one in family(whole)}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("lifecycle", OURS.values(), ids=OURS)
def test_a_sequence_diagram_shows_what_its_blocks_say(lifecycle: type[Lifecycle], view: str) -> None:
    picture = VIEWS[view](lifecycle)

    assert read(str(picture)) == list(to_be_read(picture.blocks, picture.marked))


@pytest.mark.parametrize("lifecycle", OURS.values(), ids=OURS)
def test_a_state_diagram_shows_every_phase_and_every_arrow(lifecycle: type[Lifecycle]) -> None:
    chart = read_states(states(lifecycle))

    assert sorted(chart.arrows) == sorted(arrows_of(lifecycle, ()))
    assert {state for state in chart.states if state[-1] not in ("(start)", "(end)")} == set(phases_of(lifecycle, ()))


def phases_of(lifecycle: type[Lifecycle], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, phase in lifecycle.spec.phases.items():
        yield (*path, name)
        for inner in (phase.runs, phase.pool):
            if inner is not None:
                yield from phases_of(inner, (*path, name))


def arrows_of(
    lifecycle: type[Lifecycle], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], str]]:
    spec = lifecycle.spec
    yield (*path, "(start)"), (*path, spec.initial), ""
    for event, arrow in spec.arrows:
        yield (*path, arrow.source.id), (*path, arrow.goal), f"{event} [{arrow.guard}]" if arrow.guard else event
    for name, phase in spec.phases.items():
        if phase.final:
            yield (*path, name), (*path, "(end)"), ""
        for inner in (phase.runs, phase.pool):
            if inner is not None:
                yield from arrows_of(inner, (*path, name))


def test_participants_stand_in_declared_order_and_only_those_who_speak() -> None:
    stranger = Participant("Reviewer")
    blocks = (Say(Message(Kind.TELL, HOOKS, stranger, Line.SOLID, "x")), Say(hook("a/b", "serial")))

    assert participants(sequence_text(blocks)) == ["Driver", "hook listeners", "Reviewer"]


def test_listeners_are_named_below_the_arrow_that_dispatches_their_point() -> None:
    blocks = (Say(hook("a/b", "serial")), Say(hook("c/d", "emit")), Say(hook("a/b", "serial"), brief=True))

    text = sequence_text(blocks, listeners={"a/b": ("pkg.one", "pkg.two"), "c/d": ()})

    assert read(text) == [
        Read("->>", "a/b serial", ("Driver", "hook listeners")),
        Read("note", "1. pkg.one\n2. pkg.two", ("hook listeners",)),
        Read("->>", "c/d emit", ("Driver", "hook listeners")),
        Read("->>", "a/b serial", ("Driver", "hook listeners")),
    ]


def test_other_words_change_labels_and_nothing_else() -> None:
    picture = VIEWS["full"](Turn)

    said, plain = read(picture.text(lambda text: text and f"~{text}")), read(str(picture))

    assert [one.kind for one in said] == [one.kind for one in plain]
    assert [one.text.replace("~", "") for one in said] == [one.text for one in plain]
    assert [one.text[:1] for one in said] == [one.text and "~" for one in plain]


def test_a_note_may_stand_over_several() -> None:
    say = Say(note(HOOKS, Participant("end"), text="both"))

    assert read(sequence_text((say,))) == [Read("note", "both", ("hook listeners", "end"))]


# -- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lifecycle", OURS.values(), ids=OURS)
def test_a_table_has_a_row_for_each_phase_and_each_arrow_and_cells_for_each_head(lifecycle: type[Lifecycle]) -> None:
    lines = table(lifecycle).splitlines()

    spec = lifecycle.spec
    assert len(lines) == 2 + len(spec.phases) + len(list(spec.arrows))
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}


def test_a_row_says_what_happens_under_which_guard_and_where_it_leads() -> None:
    (enter,) = (row for row in rows(Step) if row.event == "enter")

    assert (enter.phase, enter.guard, enter.target) == ("modelled", "admitted", "entered")
    assert enter.effects == ("Driver ->> Session: `step/start`",)
    assert "|  | `enter` | `admitted`<br>enter proposed step | Driver ->> Session: `step/start` | entered |" in table(
        Step
    )


def test_the_effects_of_the_rows_are_those_of_the_full_picture() -> None:
    """Two readers of one definition: what the table says of a step, its full picture says, too."""
    drawn = {effect.caption for effect in effects_of(VIEWS["full"](Step).blocks) if isinstance(effect, Message)}
    told = {said.partition(": ")[2] for row in rows(Step) for said in row.effects if ": " in said}

    assert [said for said in told if not any(said.startswith(caption) for caption in drawn)] == []
