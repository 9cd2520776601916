"""The frozen table decides as the reference engine does: exhaustively, and in every order that a search comes upon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as search

from lifecycle.definition.agent import Agent, AgentFacts
from lifecycle.definition.effects import DRIVER, tell
from lifecycle.definition.family import family
from lifecycle.definition.guards import compile_guard
from lifecycle.definition.machine import ANYWHERE, Arrow, Lifecycle, Phase, fire, phase_of
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.step import Step, StepFacts
from lifecycle.definition.table import table_of
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn
from lifecycle.errors import DefinitionError, IllegalTransitionError

NEVER = "never declared"


@dataclass(frozen=True, slots=True)
class CountedFacts:
    """Facts that are more than yes or no, as a user's may be."""

    left: int = 0
    mood: str = "good"
    bored: bool = False


class Counted(Lifecycle):
    """A lifecycle whose guards compare, overlap and are given both ways; the order of the arrows decides."""

    facts = CountedFacts

    going = Phase(tell(DRIVER, "go on"), initial=True)
    waiting = Phase(tell(DRIVER, "wait"))
    over = Phase(final=True)

    tick = (
        going.to(over, cond="left == 0")
        | going.again(cond="left > 1 and mood != 'bad'", unless="bored")
        | going.to(waiting, cond="0 < left <= 1 or bored")
        | waiting.to(over, unless="left > 0 ^ mood == 'good'")
    )
    nudge = waiting.to(going, cond="!bored") | waiting.again()
    abort = ANYWHERE.to(over, cond="left < 2") | ANYWHERE.to(waiting)
    fault = ANYWHERE.to(over)


NEWEST = (Agent, Turn, Step, ToolCall)
EVERY = [
    *[pytest.param(one, id=f"{name}-{one.__name__}") for name, top in REVISIONS.items() for one in family(top)],
    pytest.param(Counted, id="Counted"),
]
every_lifecycle = pytest.mark.parametrize("lifecycle", EVERY)


def valuations(lifecycle: type[Lifecycle]) -> list[Any]:
    """Every value that the facts can have; of numbers and words, those that the guards above tell apart."""
    some: dict[object, tuple[object, ...]] = {"bool": (False, True), "int": (0, 1, 2), "str": ("good", "bad")}
    ranges = [some[field.type] for field in fields(lifecycle.facts)]
    return [lifecycle.facts(*values) for values in product(*ranges)]


def events_of(lifecycle: type[Lifecycle]) -> list[str]:
    return [*lifecycle.spec.declared, NEVER]


def by_table(lifecycle: type[Lifecycle], phase: str, event: str, facts: object) -> Arrow | None:
    """The arrow that the table takes; None if the event is refused."""
    try:
        return table_of(lifecycle).choose(phase, event, lambda: facts).arrow
    except IllegalTransitionError:
        return None


def by_reference(machine: Lifecycle, event: str, facts: object) -> Arrow | None:
    """The arrow that the library takes; None if the event is refused."""
    try:
        return fire(machine, event, facts)
    except IllegalTransitionError:
        return None


# -- exhaustively ---------------------------------------------------------------------------------------------------


def combinations(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, str, object]]:
    yield from product(lifecycle.spec.phases, events_of(lifecycle), valuations(lifecycle))


def test_the_newest_revision_is_four_lifecycles() -> None:
    assert set(family(Agent)) == set(NEWEST)


@every_lifecycle
def test_table_and_reference_take_the_same_arrow_wherever_whatever_the_facts(lifecycle: type[Lifecycle]) -> None:
    taken = set[Arrow]()
    for phase, event, facts in combinations(lifecycle):
        machine = lifecycle(start_value=phase)
        expected = by_reference(machine, event, facts)

        assert by_table(lifecycle, phase, event, facts) is expected, (phase, event, facts)
        assert phase_of(machine) == (phase if expected is None else expected.goal)
        if expected is not None:
            taken.add(expected)
    assert taken == {arrow for _, arrow in lifecycle.spec.arrows}, "an arrow that can never be taken"


@every_lifecycle
def test_both_refuse_with_the_same_words(lifecycle: type[Lifecycle]) -> None:
    for phase in lifecycle.spec.phases:
        errors: list[IllegalTransitionError] = []
        with pytest.raises(IllegalTransitionError) as by_library:
            fire(lifecycle(start_value=phase), NEVER, lifecycle.facts())
        errors.append(by_library.value)
        with pytest.raises(IllegalTransitionError) as by_row:
            table_of(lifecycle).choose(phase, NEVER, lifecycle.facts)
        errors.append(by_row.value)

        assert len({(error.machine, error.phase, error.event, error.legal, str(error)) for error in errors}) == 1
        assert errors[0].legal == table_of(lifecycle).events(phase)


# -- in any order ---------------------------------------------------------------------------------------------------


def orderings(lifecycle: type[Lifecycle]) -> type[RuleBasedStateMachine]:
    """Fires legal and illegal events, one machine from its beginning to its end."""
    facts, events = valuations(lifecycle), events_of(lifecycle)

    class Orderings(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.machine, self.phase = lifecycle(), lifecycle.spec.initial

        @rule(event=st.sampled_from(events), known=st.sampled_from(facts))
        def anything(self, event: str, known: object) -> None:
            expected = by_table(lifecycle, self.phase, event, known)
            assert by_reference(self.machine, event, known) is expected
            if expected is not None:
                self.phase = expected.goal

        @precondition(lambda self: self.phase not in lifecycle.spec.final)
        @rule(data=st.data())
        def something_legal(self, data: st.DataObject) -> None:
            event = data.draw(st.sampled_from(table_of(lifecycle).events(self.phase)))
            known = data.draw(st.sampled_from(facts))
            expected = by_table(lifecycle, self.phase, event, known)
            assert by_reference(self.machine, event, known) is expected
            if expected is not None:
                self.phase = expected.goal

        @invariant()
        def both_stand_in_the_same_place(self) -> None:
            assert phase_of(self.machine) == self.phase
            assert self.machine.is_terminated is (self.phase in table_of(lifecycle).final)

    return Orderings


@pytest.mark.parametrize("lifecycle", [*NEWEST, Counted])
def test_table_and_reference_stay_together_in_any_order_of_events(lifecycle: type[Lifecycle]) -> None:
    search(orderings(lifecycle), settings=settings(stateful_step_count=30))


# -- the table itself -----------------------------------------------------------------------------------------------


def test_facts_are_asked_for_only_if_a_guard_wants_to_know_and_then_once() -> None:
    asked: list[str] = []

    def facts() -> StepFacts:
        asked.append("facts")
        return StepFacts()

    table_of(Step).choose("claimed", "bind", facts)
    assert asked == []
    table_of(Step).choose("modelled", "reject", facts)
    assert asked == ["facts"]

    def counted() -> CountedFacts:
        asked.append("counted")
        return CountedFacts(left=1)

    assert table_of(Counted).choose("going", "tick", counted).target == "waiting"  # the third arrow
    assert asked == ["facts", "counted"]


def test_a_table_is_compiled_once_and_cannot_be_changed() -> None:
    table = table_of(Turn)

    assert table_of(Turn) is table
    for rows in (table.rows, table.rows["opened"]):
        with pytest.raises(TypeError):
            rows["new"] = ()  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(AttributeError):
        table.initial = "closed"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_arrow_back_does_not_enter_its_phase_anew_and_one_to_itself_does() -> None:
    again = table_of(Agent).choose("running", "submit", AgentFacts)
    anew = table_of(Agent).choose("running", "turned", lambda: AgentFacts(pending=True, healthy=True))

    assert (again.source, again.target, again.again) == ("running", "running", True)
    assert (anew.source, anew.target, anew.again) == ("running", "running", False)


@pytest.mark.parametrize(
    ("guard", "what"),
    [
        ("__import__('os')", "Call"),
        ("left.real", "Attribute"),
        ("[left]", "List"),
        ("left if bored else mood", "IfExp"),
        ("left + 1", "BinOp"),
        ("(left := 1)", "NamedExpr"),
        ("lambda: left", "Lambda"),
    ],
)
def test_a_guard_holds_nothing_but_facts_and_comparisons(guard: str, what: str) -> None:
    with pytest.raises(DefinitionError, match=f"holds a {what}"):
        compile_guard(guard)


@pytest.mark.parametrize(
    ("guard", "facts", "open"),
    [
        ("left", CountedFacts(left=2), True),
        ("not left", CountedFacts(left=2), False),
        ("left == 2 and (bored or mood == 'good')", CountedFacts(left=2), True),
        ("1 < left < 3", CountedFacts(left=3), False),
        ("True", CountedFacts(), True),
    ],
)
def test_a_guard_is_an_expression_over_the_facts(guard: str, facts: CountedFacts, open: bool) -> None:
    assert bool(compile_guard(guard)(facts)) is open
