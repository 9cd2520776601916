"""`lifecycle diff`: the list, the picture, and the exit code that says whether two lifecycles are the same."""

from __future__ import annotations

import json

import pytest

from lifecycle.definition.revisions import REVISIONS
from lifecycle.pictures.difference import differences, told
from lifecycle.pictures.marked import marked

from .child import LIFECYCLE, Ended, here, run

OLD, NEW = REVISIONS["001"], REVISIONS["2026-08"]


def sentence(ended: Ended, *parts: str) -> None:
    """It was refused, in one sentence."""
    assert (ended.code, ended.out) == (2, "")
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle diff: ")
    for part in parts:
        assert part in said


def test_the_list_and_the_picture_are_one_markdown_text() -> None:
    ended = here("diff", "001", "2026-08")

    listed, _, picture = ended.out.partition("\n\n```mermaid\n")
    assert (ended.code, ended.err) == (1, "")
    assert listed.splitlines() == list(told(differences(OLD, NEW)))
    assert picture == f"{marked(OLD, NEW).text}```\n"


def test_each_of_them_by_itself() -> None:
    assert here("diff", "001", "2026-08", "--format", "text").out.splitlines() == list(told(differences(OLD, NEW)))
    for view in ("overview", "full"):
        ended = here("diff", "001", "2026-08", "--format", "mermaid", "--view", view)
        assert ended == (1, marked(OLD, NEW, view).text, "")


def test_the_same_is_the_same() -> None:
    assert here("diff", "Turn", "Turn") == (0, "Turn and Turn say the same.\n", "")
    assert here("diff", "Agent", "000").code == 0
    assert json.loads(here("diff", "Turn", "Turn", "--json").out) == {
        "old": "Turn",
        "new": "Turn",
        "equal": True,
        "changes": [],
    }


def test_json_is_one_object() -> None:
    ended = here("diff", "001", "2026-08", "--json")

    told = json.loads(ended.out)
    assert (ended.code, ended.err, told["equal"]) == (1, "", False)
    assert len(told["changes"]) == len(differences(OLD, NEW))
    assert told["changes"][0] == {
        "sort": "changed",
        "what": "phase",
        "lifecycle": "Agent",
        "place": "running",
        "aspect": "after reject",
        "old": "turned",
    }


def test_a_view_that_shows_nothing_of_it_says_so() -> None:
    ended = here("diff", "001", "002", "--view", "retry", "--format", "mermaid")

    assert ended.code == 1
    assert ended.err == "lifecycle diff: the view 'retry' shows nothing of what changed; another --view may\n"


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["Turn", "Trun"], ["'Trun'", "'Turn'"]),
        (["nowhere.flow:A", "Turn"], ["no module 'nowhere'"]),
        (["Turn", "Step", "--view", "ful"], ["no view 'ful'", "did you mean 'full'", "overview, full, step"]),
        (["Turn", "Step", "--format", "svgg"], ["no format 'svgg'", "markdown, text, mermaid"]),
        (["Turn", "Step", "--json", "--view", "full"], ["leave --view"]),
        (["Turn", "Step", "--format", "text", "--view", "full"], ["leave --view out"]),
    ],
)
def test_a_wrong_call_is_a_sentence(args: list[str], parts: list[str]) -> None:
    sentence(here("diff", *args), *parts)


def test_a_pipe_that_breaks_ends_quietly() -> None:
    ended = run("sh", "-c", '"$@" | head -c 1', "sh", *LIFECYCLE, "diff", "000", "001", "--view", "full")

    assert (ended.out, ended.err) == ("A", "")
