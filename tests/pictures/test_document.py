"""Whole pages: what stands on them, in both languages."""

from __future__ import annotations

import re

import pytest

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import hook
from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle, Phase
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn
from lifecycle.pictures import catalogue
from lifecycle.pictures.catalogue import CHINESE, STAYS, Catalogue, complaints
from lifecycle.pictures.document import CAPTIONS, Subject, drawn, page, sections
from lifecycle.pictures.hook_points import Point, dispatched, hook_points
from lifecycle.pictures.html import html
from lifecycle.pictures.sequence import VIEWS

from .judge import parsed

DRAFT = Point("review/draft", "waterfall", ("Draft", "None"), "fails the turn", "the draft", ("text",))


class Reviewed(Turn):
    """A turn whose answer is reviewed | twice."""

    reviewing = Phase(hook("review/draft", "waterfall"), loops="the reviews")
    stop = Turn.stopping.to(reviewing)
    accept = reviewing.to(Turn.settled, when="the review accepts #1")


def subject(lifecycle: type[Lifecycle]) -> Subject:
    return Subject(lifecycle, f"`{lifecycle.spec.name}`", "About it.", "lifecycle diagrams x:Y")


def test_a_page_shows_every_view_and_how_to_draw_each_again() -> None:
    made = page(subject(Agent), {})

    assert re.findall("^## (.*)$", made, re.MULTILINE)[: len(CAPTIONS)] == [heading for heading, _ in CAPTIONS.values()]
    for view in CAPTIONS:
        assert f"`lifecycle diagrams x:Y --view {view}`" in made
        assert drawn(Agent, view) in made
    assert "To draw it again: `lifecycle diagrams x:Y --format markdown`" in made


def test_every_fence_of_a_page_holds_a_whole_picture() -> None:
    fences = re.findall("```mermaid\n(.*?)```", page(subject(Reviewed), {"review/draft": DRAFT}), re.DOTALL)

    assert len(fences) == len(CAPTIONS) - 1
    assert {parsed(fence)["type"] for fence in fences} == {"sequence", "stateDiagram"}


def test_what_shows_nothing_or_the_same_again_is_left_out() -> None:
    shown = [section.heading for section in sections(subject(ToolCall), {})]

    assert "Tool calls" not in shown
    assert "Retry" not in shown
    assert drawn(ToolCall, "tools") == ""


def test_tables_of_nested_lifecycles_stand_on_the_page_or_are_linked() -> None:
    nested = [one for one in family(Turn) if one is not Turn]
    elsewhere = {one: f"{one.spec.name}.md" for one in nested}

    linked = page(Subject(Turn, "Turn", "", "x", elsewhere=elsewhere), {})

    assert [f"[{where}]({where})" in linked for where in elsewhere.values()] == [True] * len(nested)
    assert linked.count("| Phase |") == 1
    assert page(Subject(Turn, "Turn", "", "x"), {}).count("| Phase |") == 1 + len(nested)


def test_one_view_alone_is_a_page_without_hook_points() -> None:
    made = page(subject(Reviewed), {"review/draft": DRAFT}, only="state")

    assert re.findall("^## (.*)$", made, re.MULTILINE) == ["States"]


# -- hook points -------------------------------------------------------------------------------------------------


def test_a_point_is_told_with_place_mode_verdicts_rights_and_failure_policy() -> None:
    (told,) = (said for said in hook_points(Reviewed, {"review/draft": DRAFT}) if "review/draft" in said)

    assert told == (
        "`review/draft` (waterfall) in `Reviewed.reviewing`. Listeners wrap one another, the first registered"
        " outermost; each may call `next()` once. A listener returns `Draft` or `None`. It may change the draft."
        " By `next(payload)` it may replace `text` for what it wraps. If it raises: fails the turn."
    )


def test_a_point_that_nobody_describes_or_that_is_dispatched_otherwise_is_told_by_what_the_definition_says() -> None:
    for points in ({}, {"review/draft": Point("review/draft", "serial", on_fault="fails the turn")}):
        (told,) = (said for said in hook_points(Reviewed, points) if "review/draft" in said)

        assert told.endswith("The definition declares it; nobody describes what its listeners may do.")
        assert "(waterfall)" in told


class Silent(Lifecycle):
    """Nothing is recorded."""

    asked = Phase(hook("review/draft", "waterfall"), initial=True)
    over = Phase(final=True)

    end = asked.to(over)


def test_points_of_records_come_with_the_first_durable_effect() -> None:
    points = {"session/append": Point("session/append", "synchronous veto", records=True)}

    assert [point.name for point in dispatched(Turn, points)][-1] == "session/append"
    assert [point.name for point in dispatched(ToolCall, points)][-1] == "session/append"
    assert "session/append" not in [point.name for point in dispatched(Silent, points)]


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        (("pkg.one", "pkg.two"), "Here run, in this order: `pkg.one`, `pkg.two`, the default."),
        ((), "Here run, in this order: the default."),
        (None, "If it raises: fails the turn."),
    ],
)
def test_listeners_are_named_in_the_order_in_which_they_run(listeners: tuple[str, ...] | None, said: str) -> None:
    point = Point("review/draft", "waterfall", (), "fails the turn", "nothing", listeners=listeners)

    (told,) = (told for told in hook_points(Reviewed, {point.name: point}) if "review/draft" in told)

    assert told.endswith(said)


def test_at_a_point_without_a_default_nobody_may_listen() -> None:
    point = Point("agent/turn-stopping", "serial", (), "fails the turn", "nothing", listeners=())

    assert any(told.endswith("Nobody listens.") for told in hook_points(Turn, {point.name: point}))


# -- Chinese -----------------------------------------------------------------------------------------------------


def test_a_counterpart_keeps_the_code_and_the_placeholders_of_its_text() -> None:
    for english, chinese in CHINESE.items():
        for kept in ("`[^`]+`", r"\{[^}]+\}"):
            assert sorted(re.findall(kept, english)) == sorted(re.findall(kept, chinese)), english
        assert chinese != english
        assert english not in STAYS


def test_a_page_in_chinese_keeps_the_pictures_and_changes_their_words() -> None:
    words = Catalogue(Agent)

    chinese, english = VIEWS["full"](Agent).text(words), str(VIEWS["full"](Agent))

    kinds = r"^ *(\w+-?->>\w+|Note over|alt|else|opt|loop|par|and|break|end)"
    assert re.findall(kinds, chinese, re.MULTILINE) == re.findall(kinds, english, re.MULTILINE)
    assert "claimed batch" in english
    assert "claimed batch" not in chinese
    assert words.missing == ()


def test_a_missing_counterpart_is_named_and_the_text_stays_english() -> None:
    words = Catalogue(Reviewed)

    made = page(subject(Reviewed), {}, words)

    assert "the review accepts \\#1" in made
    assert set(words.missing) == {"About it.", "the review accepts #1"}
    assert "no Chinese counterpart for 'the review accepts #1'" in complaints([words])


def test_guards_and_wire_names_need_no_counterpart() -> None:
    words = Catalogue(Turn)

    assert words("not (owed or waiting)") == "not (owed or waiting)"
    assert words("`review/draft` waterfall") == "`review/draft` waterfall"
    assert words.missing == ()


def test_a_counterpart_that_no_page_asks_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CHINESE", {"said": "说", "never said": "没说"})
    one, other = Catalogue(), Catalogue()
    one("said")

    found = complaints([one, other])

    assert "a Chinese counterpart for 'never said', which no page says" in found
    assert not any("'said'" in complaint for complaint in found)


# -- HTML --------------------------------------------------------------------------------------------------------


def test_an_html_page_holds_its_pictures_and_asks_no_network_for_anything() -> None:
    made = html(subject(Reviewed), {"review/draft": DRAFT}, draw=lambda text, id: f"<svg id='{id}'>{len(text)}</svg>")

    assert re.findall("<svg id='(.*?)'", made) == [f"picture-{n}" for n in range(1, len(CAPTIONS))]
    assert "<title>Reviewed</title>" in made
    assert "<code>review/draft</code> (waterfall)" in made
    assert not re.search("https?:|<script|<link|@import", made)


def test_without_a_renderer_the_text_stands_in_the_page_and_a_file_beside_it_draws_it() -> None:
    made = html(subject(Turn), {}, only="full")

    assert '<pre class="mermaid">sequenceDiagram\n  participant Agent' in made
    assert "Driver-&gt;&gt;Session: turn/start" in made
    assert re.findall('src="(.*?)"', made) == ["mermaid.min.js"]
    assert not re.search("https?:", made)
