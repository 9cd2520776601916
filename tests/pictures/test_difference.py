"""What changed between two lifecycles: nothing escapes the list, and marks change nothing else in the picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any, cast

import pytest

from lifecycle.definition.effects import DRIVER, SESSION, Effect, Line, Message, Note, hook, note, record, tell
from lifecycle.definition.family import family, within
from lifecycle.definition.machine import REPLAY, Arrows, Lifecycle, LifecycleMeta, Phase
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.step import Step
from lifecycle.definition.turn import Turn
from lifecycle.pictures.blocks import Alt, Block, Branch, Loop, Opt, Say
from lifecycle.pictures.difference import differences, told
from lifecycle.pictures.marked import marked
from lifecycle.pictures.sequence import VIEWS, sequence

PAIRS = [pytest.param(old, new, id=f"{a}-{b}") for (a, old), (b, new) in permutations(REVISIONS.items(), 2)]


@dataclass(frozen=True, slots=True)
class Weather:
    dry: bool = False


class Errand(Lifecycle):
    facts = Weather

    asked = Phase(hook("errand/route", "serial", "chooses the way"), tell(DRIVER, "dress"), initial=True)
    walking = Phase(note(DRIVER, text="a long way"), tell(DRIVER, "walk"), loops="again")
    back = Phase(final=True)

    set_out = asked.to(walking, cond="dry", when="the sun shines") | asked.to(back, when="it rains")
    arrive = walking.to(back, when="the errand is done", emits=[record("errand/end")])


def lines(**body: Any) -> list[str]:
    """What is said of an errand in which some names are redefined."""
    return [line.strip() for line in told(differences(Errand, other(**body)))][1:]


def other(**body: Any) -> type[Lifecycle]:
    made: Any = LifecycleMeta("Other", (Errand,), {"__doc__": "", "__module__": __name__, **body})
    return cast("type[Lifecycle]", made)


ASKED, WALKING = Errand.asked, Errand.walking


@dataclass(frozen=True, slots=True)
class MoreWeather(Weather):
    cold: bool = False


def test_the_same_has_no_differences_whatever_it_is_called() -> None:
    class Copy(Errand):
        pass

    assert differences(Errand, Errand) == differences(Errand, Copy) == ()
    assert marked(Errand, Copy) == (sequence(Copy), 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"facts": MoreWeather}, ["+ fact cold"]),
        (
            {"asked": ASKED.but(hook("errand/route", "serial"), *ASKED.does[1:])},
            ["~ effect asked errand/route: wording: chooses the way -> (none)"],
        ),
        (
            {"asked": ASKED.but(hook("errand/route", "waterfall", "chooses the way"), *ASKED.does[1:])},
            ["~ effect asked errand/route: mode: serial -> waterfall"],
        ),
        (
            {"asked": ASKED.but(*reversed(ASKED.does))},
            ["~ effect asked: order: Driver -->> Driver: dress as number 2 -> Driver -->> Driver: dress as number 1"],
        ),
        (
            {"asked": ASKED.but(*ASKED.does, tell(SESSION, "ready"))},
            ["+ effect asked: Driver -->> Session: ready (after Driver -->> Driver: dress)"],
        ),
        ({"asked": ASKED.but(ASKED.does[0])}, ["- effect asked: Driver -->> Driver: dress"]),
        (
            {"asked": ASKED.but(replace(cast("Message", ASKED.does[0]), times="?"), ASKED.does[1])},
            ["~ effect asked errand/route: times: 1 -> ?"],
        ),
        (
            {"walking": WALKING.but(note(DRIVER, text="short"), WALKING.does[1])},
            ["~ effect walking, a note: wording: a long way -> short"],
        ),
        ({"walking": WALKING.but(loops="")}, ["~ phase walking: wording of the loop: again -> (none)"]),
        ({"walking": WALKING.but(pool=Step)}, ["~ phase walking: pools: (none) -> Step"]),
        ({"walking": WALKING.but(settles=True)}, ["~ phase walking: settles: no -> yes"]),
        (
            {"set_out": ASKED.to(WALKING, when="the sun shines") | WALKING.to(Errand.back)},
            [
                "~ arrow asked.set_out: guard: dry -> (none)",
                "- arrow asked.set_out: leads to back, when it rains",
                "+ arrow walking.set_out: leads to back",
            ],
        ),
        (
            {"set_out": ASKED.to(WALKING, cond="dry", when="dry") | ASKED.to(WALKING, when="it rains")},
            [
                "~ arrow asked.set_out: wording: the sun shines -> dry",
                "~ arrow asked.set_out: target: back -> walking",
            ],
        ),
        (
            {
                "set_out": ASKED.to(Errand.back, unless="dry", when="it rains")
                | ASKED.to(WALKING, cond="dry", when="the sun shines")
            },
            [
                "~ arrow asked.set_out: guard: (none) -> not (dry)",
                "~ arrow asked.set_out: order: dry, then back -> not (dry), then dry",
            ],
        ),
        (
            {"arrive": WALKING.to(Errand.back, when="the errand is done", fold=REPLAY, drawn=False)},
            [
                "~ arrow walking.arrive: drawn: yes -> no",
                "~ arrow walking.arrive: drawn again: no -> yes",
                "- effect walking.arrive: Driver ->> Session: `errand/end`",
            ],
        ),
    ],
)
def test_each_change_is_a_line(body: dict[str, Any], said: list[str]) -> None:
    assert lines(**body) == said


def test_what_is_new_stands_under_its_phase_and_its_arrow() -> None:
    class Longer(Errand):
        resting = Phase(tell(DRIVER, "rest"))
        pause = Errand.walking.to(resting, when="tired", emits=[record("errand/rest")])
        go_on = resting.to(Errand.walking)

    assert list(told(differences(Errand, Longer))) == [
        "Errand -> Longer",
        "  + arrow walking.pause: leads to resting, when tired",
        "      + Driver ->> Session: `errand/rest`",
        "  + phase resting",
        "      + Driver -->> Driver: rest",
        "  + arrow resting.go_on: leads to walking",
    ]


def test_what_a_phase_runs_is_compared_whatever_it_is_called() -> None:
    class Eager(Step):
        retrying = Step.retrying.but(*Step.retrying.does, note(DRIVER, text="at once"))

    (change,) = differences(Turn, within(Turn, Eager))

    assert (change.sort, change.lifecycle, change.place) == ("added", "Step -> Eager", "retrying")


# -- nothing escapes ------------------------------------------------------------------------------------------------


def bent(effect: Effect) -> Iterator[Effect]:
    """An effect, with each thing that it says changed."""
    flipped: dict[str, Any] = {"times": "?" if getattr(effect, "times", "") != "?" else "*", "detail": "bent"}
    flipped |= {"text": "bent", "line": Line.SOLID if getattr(effect, "line", "") is Line.DASHED else Line.DASHED}
    flipped |= {"act": "bent", "name": "bent", "mode": "bent", "lane": "bent", "over": (SESSION, DRIVER)}
    flipped |= {"sender": SESSION if getattr(effect, "sender", "") is not SESSION else DRIVER}
    flipped |= {"receiver": SESSION if getattr(effect, "receiver", "") is not SESSION else DRIVER}
    for field in fields(effect):
        value = getattr(effect, field.name)
        if field.name == "kind" or (field.name == "text" and isinstance(effect, Message) and effect.kind == "hook"):
            continue  # a hook's text is its point and its mode
        yield replace(
            cast("Any", effect), **{field.name: not value if isinstance(value, bool) else flipped[field.name]}
        )


@pytest.mark.parametrize("one", [*family(REVISIONS["000"])], ids=lambda one: one.spec.name)
def test_no_change_of_an_effect_of_ours_escapes(one: type[Lifecycle]) -> None:
    for phase in one.spec.phases.values():
        for effects in (phase.does, *(arrow.emits for arrow in phase.arrows)):
            for n, effect in enumerate(effects):
                rest = [*effects[:n], *effects[n + 1 :]]
                for changed in (rest, *([*effects[:n], made, *effects[n + 1 :]] for made in bent(effect))):
                    assert differences(alone(*effects), alone(*changed)), effect


def alone(*effects: Effect) -> type[Lifecycle]:
    class Alone(Lifecycle):
        only = Phase(initial=True)
        end = Phase(final=True)
        finish = only.to(end, emits=effects)

    return Alone


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_what_one_direction_adds_the_other_removes(old: type[Lifecycle], new: type[Lifecycle]) -> None:
    def counted(changes: Any, sort: str, what: str) -> Counter[str]:
        return Counter(change.place for change in changes if (change.sort, change.what) == (sort, what))

    there, back = differences(old, new), differences(new, old)

    assert there
    for what in ("phase", "arrow", "fact"):
        assert counted(there, "added", what) == counted(back, "removed", what)
        assert counted(there, "removed", what) == counted(back, "added", what)


# -- the picture ----------------------------------------------------------------------------------------------------


def without_marks(text: str) -> list[str]:
    """The lines of a marked picture as they would be without its marks."""
    kept: list[str] = []
    rects: list[bool] = []
    for line in text.splitlines():
        word = line.split()[0]
        if word in ("alt", "opt", "loop", "par", "break", "rect"):
            rects.append(word == "rect")
        if (word == "end" and rects.pop()) or word == "rect" or ": − " in line:
            continue
        line = re.sub(r"^(.*?: )[+~] ", r"\1", line.strip())
        kept.append(re.sub(r" \((new|was: .*?|was unnamed)\)(?= \(\d loops out\)$|$)", "", line))
    return kept


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_marks_change_nothing_else_in_a_picture_and_it_is_valid(
    old: type[Lifecycle], new: type[Lifecycle], view: str
) -> None:
    from .judge import parsed

    made = marked(old, new, view)
    plain = VIEWS[view](new)

    speaking = [line.strip() for line in str(plain).splitlines() if not line.strip().startswith("participant")]
    assert [line for line in without_marks(made.text) if not line.startswith("participant")] == speaking
    assert bool(made.marks) is (str(plain) != str(VIEWS[view](old)))
    if plain.blocks or made.marks:
        parsed(made.text)


def test_what_was_added_changed_and_removed_is_marked_where_it_is() -> None:
    class Other(Errand):
        asked = ASKED.but(hook("errand/route", "serial", "and the shoes"))
        walking = WALKING.but(*WALKING.does, record("errand/step"))

    assert marked(Errand, Other).text.splitlines()[3:] == [
        "  participant Session",
        "  rect rgb(255, 240, 200)",
        "    Driver->>Hooks: ~ errand/route serial and the shoes",
        "  end",
        "  rect rgb(250, 218, 218)",
        "    Note over Driver: − dress",
        "  end",
        "  opt the sun shines",
        "    Note over Driver: a long way",
        "    Driver-->>Driver: walk",
        "    rect rgb(214, 243, 219)",
        "      Driver->>Session: + errand/step",
        "    end",
        "    Driver->>Session: errand/end",
        "  end",
    ]


def test_a_loop_that_is_new_around_old_lines_says_so_in_its_caption() -> None:
    class Review(Step):
        reviewing = Phase(hook("agent/review", "waterfall"))
        succeed = Step.requesting.to(reviewing, when="model request succeeded", emits=succeeding(Step))
        approve = reviewing.to(Step.tooling, when="approved")
        revise = reviewing.to(Step.requesting, when="asked again")

    drawn = [line.strip() for line in marked(Step, Review).text.splitlines()]

    assert "loop the attempts of the request (new)" in drawn
    assert "Driver->>LLM: prepareCall(config, signal)" in drawn
    assert "Driver->>Hooks: + agent/review waterfall" in drawn
    assert sum(line.startswith("rect") for line in drawn) == 2


def succeeding(step: type[Step]) -> tuple[Effect, ...]:
    arrows: Arrows = step.spec.declared["succeed"]
    (arrow,) = arrows
    return arrow.emits


def test_a_caption_says_what_it_was() -> None:
    from lifecycle.pictures import marked as module

    def blocks(way: str, again: str, last: str) -> tuple[Block, ...]:
        say = Say(tell(DRIVER, "walk"))
        return (
            Alt((Branch(way, (say,)), Branch("else", (say,)))),
            Loop(again, (Opt(last, (Say(Note((DRIVER,), "n")),)),)),
        )

    marking = module._Marking(blocks("left", "", "old"), blocks("right", "twice", ""))  # pyright: ignore[reportPrivateUsage]  # not to be had from a lifecycle

    alt, loop = marking.whole()
    assert isinstance(alt, Alt)
    assert isinstance(loop, Loop)
    (opt,) = loop.body
    assert isinstance(opt, Opt)
    assert (alt.branches[0].when, loop.when, opt.when) == ("right (was: left)", "twice (was unnamed)", " (was: old)")
