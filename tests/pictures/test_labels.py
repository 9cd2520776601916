"""Labels and ids: whatever the text, a full Mermaid parser reads it back as it was written."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.definition.effects import Kind, Line, Message, Note, Participant
from lifecycle.pictures.blocks import Alt, Block, Branch, Break, Loop, Opt, Par, Say
from lifecycle.pictures.labels import Ids, label, state_label
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.pictures.states import Chart

from .hard import HARD, NAMES
from .judge import normal, parsed, participants, read, read_states, to_be_read

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "payloads"


def everywhere(text: str, one: Participant, other: Participant) -> tuple[Block, ...]:
    """A diagram that holds a text in every place where a label may stand."""
    say = Say(Message(Kind.TELL, one, other, Line.SOLID, text.replace("`", "'")))
    back = Say(Message(Kind.ANSWER, other, one, Line.DASHED, "back"))
    return (
        say,
        Say(Note((one, other), text)),
        Alt((Branch(text, (say,)), Branch(text, (back,), whose="Step ended"))),
        Par((Branch(text, (say,)), Branch(text, (back,)))),
        Loop(text, (Opt(text, (say,)), Break(text, (back,)), Break(text, (back,), levels=2))),
    )


@pytest.mark.parametrize("text", HARD)
def test_a_label_of_a_sequence_diagram_is_read_as_it_was_written(text: str) -> None:
    blocks = everywhere(text, Participant("A"), Participant("B"))

    assert read(sequence_text(blocks)) == list(to_be_read(blocks, marked=False))


@pytest.mark.parametrize("text", HARD)
def test_a_label_of_a_state_diagram_is_read_as_it_was_written(text: str) -> None:
    inner = Chart({text: None}, (), text)

    chart = read_states(str(Chart({"here": inner, text: None}, (("here", text, text),), "here")))

    assert chart.states >= {("here",), ("here", normal(text)), (normal(text),)}
    assert (("here",), (normal(text),), normal(text)) in chart.arrows


@pytest.mark.parametrize("name", NAMES)
def test_a_participant_may_have_any_name(name: str) -> None:
    people = Participant(name), Participant("B", label=name)
    blocks = everywhere("x", *people)

    text = sequence_text(blocks)

    assert participants(text) == [name, name]
    assert read(text) == list(to_be_read(blocks, marked=False))


def test_phases_may_have_any_names_and_none_become_one() -> None:
    arrows = tuple((one, other, one) for one, other in pairwise(NAMES))

    chart = read_states(str(Chart(dict.fromkeys(NAMES), arrows, NAMES[0])))

    assert chart.states == {(name,) for name in (*NAMES, "(start)")}
    assert [arrow for arrow in chart.arrows if arrow[0] != ("(start)",)] == [
        ((one,), (other,), said) for one, other, said in arrows
    ]


def test_a_nested_phase_is_not_taken_for_one_whose_name_looks_like_its_path() -> None:
    inner = Chart({"b": None}, (), "b")

    text = str(Chart({"a": inner, "a_b": None}, (("a", "a_b", "go"),), "a"))

    assert read_states(text).states == {("a",), ("a", "b"), ("a", "(start)"), ("a_b",), ("(start)",)}


def test_an_empty_label_gives_an_arrow_without_a_colon() -> None:
    text = str(Chart({"a": None, "b": None}, (("a", "b", " \t "), ("b", "a", "")), "a"))

    assert "a --> b\n" in text
    assert [arrow[2] for arrow in read_states(text).arrows] == ["", "", ""]


def test_what_the_text_usually_holds_stays_readable() -> None:
    usual = "agent/inbox/claimed { message, turn } per message, StreamChunk* (a-b) [0..n]: 50%"

    assert label(usual) == usual
    assert state_label("maintenance_latched [not (owed or waiting)]") == "maintenance_latched [not (owed or waiting)]"


def test_what_older_versions_stumble_over_is_written_as_entities() -> None:
    assert state_label("std::move at 10:30") == "std#58;#58;move at 10#58;30"
    assert label("50%% <b> $$x$$") == "50#37;#37; #60;b#62; #36;#36;x#36;#36;"


def test_ids_depend_on_the_thing_and_what_came_before_only() -> None:
    ids = Ids()

    assert [ids.of(n, name) for n, name in enumerate(("a", "A", "a b", "end", "思考", "", "a"))] == [
        "a", "A_2", "au20b", "n_end", "u601du8003", "n_", "a_3",
    ]  # fmt: skip
    assert ids.of(0, "a") == "a"


@given(st.text(max_size=30))
def test_any_text_at_all_is_read_as_it_was_written(text: str) -> None:
    visible = "".join(char for char in text if char.isprintable() or char in " \n\t")
    blocks = everywhere(visible, Participant("A"), Participant("B", label=visible))

    assert read(sequence_text(blocks)) == list(to_be_read(blocks, marked=False))


@given(st.text())
def test_no_label_breaks_the_line_that_it_stands_on(text: str) -> None:
    for made in (label(text), state_label(text)):
        assert len(made.splitlines()) <= 1
        made.encode()


@pytest.mark.parametrize("text", [
    "sequenceDiagram\n  A->>B: a; b\n",
    "sequenceDiagram\n  alt x\n  A->>B: y\n",
    "sequenceDiagram\n  participant end\n  end->>B: x\n",
    "stateDiagram-v2\n  A --> state\n",
    'stateDiagram-v2\n  state "say "hi"" as s1\n',
])  # fmt: skip
def test_the_judge_refuses_what_labels_and_ids_keep_from_happening(text: str) -> None:
    with pytest.raises(AssertionError):
        parsed(text)


# -- the recorded cases ------------------------------------------------------------------------------------------


def cases(ending: str) -> list[Path]:
    return sorted(CASES.glob(f"*.{ending}"))


@pytest.mark.skipif(not cases("graph.json"), reason="the folder of recorded cases is not here")
@pytest.mark.parametrize("path", cases("graph.json"), ids=lambda path: path.name)
def test_a_recorded_graph_is_drawn_with_exactly_its_states_and_labels(path: Path) -> None:
    graph: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    arrows = tuple((arrow["from"], arrow["to"], arrow["label"]) for arrow in graph["transitions"])

    chart = read_states(str(Chart(dict.fromkeys(graph["states"]), arrows, graph["initial"])))

    assert chart.states == {(normal(state),) for state in (*graph["states"], "(start)")}
    assert [arrow for arrow in chart.arrows if arrow[0] != ("(start)",)] == [
        ((normal(source),), (normal(target),), normal(said)) for source, target, said in arrows
    ]
