"""Every run is a word of the full picture, every arrow of it is walked, and no effect can be lost or misplaced unseen.

Pictures are computed from the definition, so text alone proves little: a picture may be read wrongly, and a driver may
do something else. Here agents run, and what they did is held against the picture read as a language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import Effect, Kind, Message, Note
from lifecycle.definition.family import family
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Phase
from lifecycle.definition.tool_call import ToolCall
from lifecycle.driver.performers.agent import AGENT
from lifecycle.driver.performers.call import CALL
from lifecycle.driver.program import Action, Program
from lifecycle.driver.programs import Programs, programs
from lifecycle.errors import DefinitionError
from lifecycle.pictures.graph import arrow_key
from lifecycle.pictures.sequence import VIEWS, left_out
from lifecycle.services.points import POINTS, Mode
from tests.conformance.faults import Struck
from tests.conformance.test_end import PLACES

from .language import Language
from .recording import BODY, DOMAIN, UNDRAWN, Recording
from .scenarios import AFTER, ANSWERS, CANCELS, INPUTS, MEANWHILE, REPLIES, UNVISITED, Deeds, Play, Scenario
from .stories import STORIES
from .symbols import symbols_of

NEVER_WALKED: Mapping[str, str] = {
    "Turn.stepping.fault -> closing": "a step answers for its own faults, and nothing fails as one begins",
    "Agent.converging.outlast -> converging": "a story does not take that long; tests/cases/test_cancel.py walks it",
    "Agent.latched.outlast -> latched": "a story does not take that long",
    "Agent.idle.resume -> running [undecided]": "a process must be lost first; tests/conformance/test_rsm.py walks it",
    "Step.tooling.reenter -> tooling [undecided]": "a process must be lost first",
}
"""The arrows of the full picture that no run walks, and why."""

LOST_UNSEEN: Mapping[tuple[str, str], str] = {
    ("Turn.stepping.fault -> closing", "agent/error"): "the arrow is never walked",
    ("Agent.converging.outlast -> converging", "agent/overdue"): "no story takes that long",
    ("Agent.latched.outlast -> latched", "agent/overdue"): "no story takes that long",
    ("Agent.idle.resume -> running [undecided]", "wake"): "the arrow is walked when a process was lost",
    ("Agent.idle.resume -> running [undecided]", "agent/status:running"): "the arrow is walked when a process was lost",
    (
        "Step.tooling.reenter -> tooling [undecided]",
        "tool-owned events when applicable",
    ): "the arrow is walked when a process was lost",
    ("Agent.maintenance", "the maintenance task runs, with a signal of its own"): "a note",
    ("Agent.maintenance_latched", "the maintenance task runs, and input waits for its end"): "a note",
    ("ToolCall.called", "pre-execute verdict"): "an answer, which is the result of the effect before it",
    (
        "ToolCall.asking",
        "a turn whose process is lost here stays parked, and is asked about again",
    ): "a note",
    ("ToolCall.asking", "approval"): "an answer",
    ("ToolCall.prepared", "guard verdict"): "an answer",
    ("ToolCall.executing", "outcome"): "an answer",
    ("ToolCall.posting", "post-execute verdict"): "an answer",
}
"""The effects whose loss only the committed pages show, because nothing is observed of them, and why."""

full = cache(lambda: Language(Agent))
bound = cache(lambda: programs(None, {}))


def refusal(word: tuple[str, ...], language: Language) -> str | None:
    """What is wrong with a word, in words; None if nothing is."""
    place = language.refusal(word)
    if place is None:
        return None
    said = ["  " + symbol for symbol in word[max(0, place - 12) : place]]
    then = word[place : place + 3] or ("(the end)",)
    return "\n".join(["the picture allows:", *said, "but not then:", *then])


def check(recording: Recording) -> None:
    """What was recorded is a word of the full picture, and nothing was observed that is no part of any."""
    assert recording.unknown <= UNDRAWN
    assert refusal(recording.word, full()) is None


async def played(scenario: Scenario, bound_to: Programs | None = None, seconds: float = 5) -> Play:
    play = Play(scenario)
    await play.run(Agent, bound_to or bound(), seconds)
    return play


# -- every run is a word ------------------------------------------------------------------------------------------


class Recorded(Struck):
    """The systematic story, recorded."""

    recording: Recording

    def _spy_on_tools(self) -> None:
        super()._spy_on_tools()
        self.recording = Recording(self.agent, Agent, bound())

    async def pass_by(self, place: str) -> None:
        if place == "body":
            self.recording.note(BODY)
        await super().pass_by(place)


def _plays(place: str, action: str, most: int) -> Iterator[Recorded]:
    for nth in range(most):
        story = Recorded(place, nth, action)
        yield story
        if not story.hit:
            return


@pytest.mark.anyio
@pytest.mark.parametrize("place", sorted({place for place, _ in PLACES}))
async def test_a_story_with_a_fault_at_one_place_is_a_word(place: str) -> None:
    for action in [action for one, action in PLACES if one == place]:
        for story in _plays(place, action, most=1):
            await story.run()
            check(story.recording)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(("place", "action"), PLACES)
async def test_a_story_with_a_fault_at_any_time_of_a_place_is_a_word(place: str, action: str) -> None:
    for story in _plays(place, action, most=1000):
        await story.run()
        check(story.recording)


POINTS_VISITED = sorted(POINTS.keys() - UNVISITED - DOMAIN)
RECORDS = sorted(
    {
        name
        for one in family(Agent)
        for effects in [
            *(phase.does for phase in one.spec.phases.values()),
            *(arrow.emits for _, arrow in one.spec.arrows),
        ]
        for effect in effects
        if isinstance(effect, Message) and effect.kind is Kind.RECORD
        for name in effect.names
    }
)
PLACES_VISITED = [
    *POINTS_VISITED,
    *(name + AFTER for name in POINTS_VISITED if POINTS[name].mode is Mode.WATERFALL),
    *(f"{point} {type}" for point in sorted(DOMAIN) for type in RECORDS),
    *("prepare", "open", "chunk", "wrapped chunk", "check", "body", "approve", "maintenance"),
]
VERBS = [*CANCELS, *INPUTS, *["raise"] * 4, "cancel and raise", "forget", "cancel of the host"]


@st.composite
def deeds(draw: st.DrawFn) -> Deeds:
    made: dict[tuple[str, int], str] = {}
    for place in draw(st.lists(st.sampled_from(PLACES_VISITED), max_size=5)):
        own = [*ANSWERS.get(place, {}), *(["own", "defer", "conclude"] if place == "body" else [])]
        verb = draw(st.sampled_from([*VERBS, *own * 6]))
        meanwhile = MEANWHILE if draw(st.booleans()) else ""
        made[place, draw(st.integers(0, 3))] = meanwhile + verb
    return {("agent/request-error", 0): "retry", **made} if draw(st.booleans()) else made


FROM_OUTSIDE = [*["followup"] * 4, *INPUTS, "maintain", "wait", *CANCELS]
scenarios = st.builds(
    Scenario,
    rounds=st.lists(
        st.lists(st.sampled_from(FROM_OUTSIDE), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
    ).map(tuple),
    replies=st.lists(st.sampled_from([*REPLIES]), max_size=3).map(tuple),
    deeds=deeds(),
    leaves=st.sampled_from([False, False, False, True]),
    limit=st.sampled_from([1, 2, 10]),
)


@pytest.mark.anyio
@given(scenario=scenarios)
async def test_a_run_of_any_scenario_is_a_word(scenario: Scenario) -> None:
    check((await played(scenario)).recording)


# -- every arrow is walked ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_stories_are_words_do_what_they_say_and_walk_every_arrow() -> None:
    walked: set[str] = set()
    for name, scenario in STORIES.items():
        play = await played(scenario)
        assert refusal(play.recording.word, full()) is None, name
        verbs = [verb for deed in scenario.deeds.values() for verb in deed.removeprefix(MEANWHILE).split(" and ")]
        assert set(verbs) <= set(play.done), f"{name!r} never comes by one of its places"
        walked |= play.recording.arrows

    assert VIEWS["full"](Agent).arrows - walked == set(NEVER_WALKED)


# -- nothing is lost or misplaced unseen --------------------------------------------------------------------------


@cache
def words() -> Mapping[str, tuple[str, ...]]:
    """The words of the stories."""

    async def record() -> Mapping[str, tuple[str, ...]]:
        return {name: (await played(scenario)).recording.word for name, scenario in STORIES.items()}

    return anyio.run(record)


def _effects() -> Iterator[tuple[str, Phase | Arrow, int]]:
    for one in family(Agent):
        for name, phase in one.spec.phases.items():
            yield from ((f"{one.spec.name}.{name}", phase, n) for n in range(len(phase.does)))
        for event, arrow in one.spec.arrows:
            yield from ((arrow_key(one.spec.name, event, arrow), arrow, n) for n in range(len(arrow.emits)))


@contextmanager
def _without(owner: Phase | Arrow, n: int) -> Generator[Effect]:
    """The definition without one effect of a phase or an arrow."""
    attribute = "does" if isinstance(owner, Phase) else "emits"
    before: tuple[Effect, ...] = getattr(owner, attribute)
    setattr(owner, attribute, before[:n] + before[n + 1 :])
    try:
        yield before[n]
    finally:
        setattr(owner, attribute, before)


def _loss_is_seen(by: str, owner: Phase | Arrow, n: int, overview: str) -> tuple[bool, Effect]:
    with _without(owner, n) as effect:
        try:
            AGENT.program(Agent)
            CALL.program(ToolCall)
        except DefinitionError:
            return True, effect
        if VIEWS["overview"](Agent).text() != overview:  # which is held against the published one
            return True, effect
        symbols = {symbol for each in symbols_of(effect, by) for symbol in each}
        mutated = Language(Agent)
    return any(not symbols.isdisjoint(word) and word not in mutated for word in words().values()), effect


def test_no_effect_can_be_deleted_from_the_definition_unseen() -> None:
    overview = VIEWS["overview"](Agent).text()
    unseen: set[tuple[str, str]] = set()
    for by, owner, n in _effects():
        seen, effect = _loss_is_seen(by, owner, n, overview)
        if not seen:
            unseen.add((by, effect.text if isinstance(effect, Note) else effect.key))

    assert unseen == set(LOST_UNSEEN)
    silent = {by for by, owner, n in _effects() if not symbols_of(_all(owner)[n], by)}
    assert {by for (by, _), why in LOST_UNSEEN.items() if why.startswith(("a note", "an answer"))} <= silent


def _all(owner: Phase | Arrow) -> tuple[Effect, ...]:
    return owner.does if isinstance(owner, Phase) else owner.emits


def _actions(program: Program) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """The actions of each phase and arrow of a program, and of those that it runs."""
    for name, station in program.stations.items():
        yield f"{program.table.name}.{name}", station.actions
        if station.nested is not None:
            yield from _actions(station.nested)
    for row, actions in program.emits.items():
        yield arrow_key(program.table.name, row.event, row.arrow), actions


def _exchanged(program: Program, by: str, n: int) -> Program:
    """The program, with an action of a phase or an arrow and the one after it in the other order."""

    def exchanged(actions: tuple[Action, ...]) -> tuple[Action, ...]:
        return (*actions[:n], actions[n + 1], actions[n], *actions[n + 2 :])

    name, stations = program.table.name, dict(program.stations)
    for key, station in stations.items():
        if f"{name}.{key}" == by:
            stations[key] = replace(station, actions=exchanged(station.actions))
        elif station.nested is not None:
            stations[key] = replace(station, nested=_exchanged(station.nested, by, n))
    emits = {
        row: exchanged(actions) if arrow_key(name, row.event, row.arrow) == by else actions
        for row, actions in program.emits.items()
    }
    return replace(program, stations=stations, emits=emits)


async def _exchange_is_seen(by: str, exchanged: Programs) -> bool:
    """Whether a story is no word any more, says something else, or breaks."""
    for name, word in words().items():
        if not any(symbol.lstrip("!").startswith(f"{by}: ") for symbol in word):
            continue
        play = Play(STORIES[name])
        try:
            await play.run(Agent, exchanged, seconds=0.5)
        except Exception:
            return True
        if play.recording.word not in full() or Counter(play.recording.word) != Counter(word):
            return True
    return False


def test_no_two_effects_can_be_performed_in_the_other_order_unseen() -> None:
    pairs = [
        (by, n, agent) for agent in (True, False) for by, actions in _actions(bound().agent if agent else bound().call)
        if by not in NEVER_WALKED for n in range(len(actions) - 1)
    ]  # fmt: skip
    assert len(pairs) > 80

    unseen: list[tuple[str, int]] = []
    for by, n, agent in pairs:
        made = bound()
        if agent:
            made = made._replace(agent=_exchanged(made.agent, by, n))
        else:
            made = made._replace(call=_exchanged(made.call, by, n))
        if not anyio.run(_exchange_is_seen, by, made):
            unseen.append((by, n))

    assert unseen == []


# -- what the views leave out -------------------------------------------------------------------------------------


def _arrows() -> Iterator[tuple[str, str, Arrow]]:
    for one in family(Agent):
        yield from ((one.spec.name, event, arrow) for event, arrow in one.spec.arrows)


EVERY = {arrow_key(name, event, arrow): (name, event, arrow) for name, event, arrow in _arrows()}


def test_the_full_picture_leaves_nothing_out() -> None:
    assert left_out(Agent, "full") == set()
    assert left_out(ToolCall, "full") == set()


def test_the_overview_leaves_out_what_the_definition_hides_and_the_pool() -> None:
    hidden = {key for key, (name, _, arrow) in EVERY.items() if not arrow.drawn or name == "ToolCall"}

    assert left_out(Agent, "overview") == hidden


def test_the_step_view_leaves_out_all_but_the_regular_arrows_of_a_step() -> None:
    regular = {key for key, (name, event, _) in EVERY.items() if name == "Step" and event not in (ABORT, FAULT)}

    assert left_out(Agent, "step") == EVERY.keys() - regular


def test_the_cancel_view_shows_every_abort_and_nothing_else() -> None:
    assert left_out(Agent, "cancel") == {key for key, (_, event, _) in EVERY.items() if event != ABORT}


def test_the_tools_view_shows_the_regular_arrows_of_the_pool_and_of_its_calls() -> None:
    regular = {key for key, (name, event, _) in EVERY.items() if name == "ToolCall" and event not in (ABORT, FAULT)}
    pool = {key for key, (name, _, arrow) in EVERY.items() if name == "Step" and arrow.goal == arrow.source.id}

    assert left_out(Agent, "tools") == EVERY.keys() - regular - pool


def test_the_retry_view_shows_the_loop_of_the_attempts_and_the_ways_out_of_it() -> None:
    assert EVERY.keys() - left_out(Agent, "retry") == {
        "Step.requesting.fail -> retrying",
        "Step.requesting.succeed -> tooling",
        "Step.retrying.retry -> requesting [retryable]",
        "Step.retrying.surrender -> ended [not (retryable)]",
        "Turn.stepping.failed -> closing",
    }
