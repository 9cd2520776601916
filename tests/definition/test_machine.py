"""Lifecycles as classes: what a mistake in one says, what a subclass owns, and what of the library they lean on."""

# pyright: reportUnknownMemberType=false
# The library annotates its own signatures only in part.

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import new_class
from typing import Any, cast

import pytest
from statemachine import State, StateMachine
from statemachine.exceptions import TransitionNotAllowed
from statemachine.factory import StateMachineMetaclass
from statemachine.spec_parser import replace_operators
from statemachine.transition import Transition
from statemachine.transition_list import TransitionList

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import DRIVER, record, tell
from lifecycle.definition.machine import ANYWHERE, RESERVED, Arrow, Arrows, Lifecycle, Phase, Sources, fire, phase_of
from lifecycle.definition.step import Step
from lifecycle.definition.table import table_of
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn, TurnFacts
from lifecycle.errors import DefinitionError, IllegalTransitionError


@dataclass(frozen=True, slots=True)
class ErrandFacts:
    """What an errand's guards may read."""

    reachable: bool = False
    steps: int = 0


class Errand(Lifecycle):
    """Ask for the way, go there, and come back or give up."""

    facts = ErrandFacts

    asked = Phase(tell(DRIVER, "ask for the way"), initial=True)
    walking = Phase(tell(DRIVER, "follow the way"))
    back = Phase(final=True)

    set_out = asked.to(walking, cond="reachable", when="a way is known", emits=[record("errand/start")])
    decline = asked.to(back, unless="reachable", when="no way is known")
    arrive = walking.to(back, when="the errand is done", emits=[record("errand/end")])
    abort = ANYWHERE.to(back, when="the errand is called off", emits=[record("errand/end")])
    fault = ANYWHERE.to(back, when="something went wrong")


# -- mistakes -------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {}
"""What is declared wrongly, and what the error says of it, by the words that tell what the mistake is."""


def mistake(says: str) -> Callable[[Callable[[], object]], None]:
    def note(declare: Callable[[], object]) -> None:
        MISTAKES[declare.__name__.replace("_", " ")] = (declare, says)

    return note


@mistake(r"^Wrong\.go: the guard reads 'reachible', which is no field of ErrandFacts \(reachable, steps\)$")
def a_typo_in_a_guard() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Errand.back, cond="reachable and not reachible")

    return Wrong


@mistake(r"^Wrong\.go: a guard is an expression over facts, such as 'ready', not <function")
def a_callable_guard() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Errand.back, cond=cast("str", lambda: True))

    return Wrong


@mistake(r"^Wrong\.go: the guard 'reachable and' is no expression: invalid syntax$")
def half_a_guard() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Errand.back, cond="reachable and")

    return Wrong


@mistake(r"^Wrong\.go: the guard 'reachable\(steps\)' holds a Call; facts and comparisons only$")
def a_guard_that_does_something() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Errand.back, cond="reachable(steps)")

    return Wrong


@mistake(r"^Wrong\.go: leads from or to Turn\.closing, which is no phase of Wrong$")
def a_phase_of_another_lifecycle() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Turn.closing)

    return Wrong


@mistake(r"^Wrong\.go: leads from or to a phase that it has no name for, which is no phase of Wrong$")
def a_phase_without_a_name() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Phase())

    return Wrong


@mistake(r"^Wrong\.go: leads from or to 'back', which is no phase$")
def a_phase_given_by_its_name() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(cast("Phase", "back"))

    return Wrong


@mistake(r"^Wrong\.resting: nothing leads on from here; declare what follows, or make the phase final$")
def a_forgotten_way_out() -> object:
    class Wrong(Errand):
        resting = Phase(tell(DRIVER, "sit down"))
        rest = Errand.walking.to(resting)

    return Wrong


@mistake(r"^Wrong: .*\['dreaming'\]$")
def a_phase_that_nothing_leads_to() -> object:
    class Wrong(Errand):
        dreaming = Phase(tell(DRIVER, "dream"))
        wake_up = dreaming.to(Errand.back)

    return Wrong


@mistake(r"^Wrong\.errand: say in `then` what follows Errand\.fault$")
def an_unanswered_ending_of_a_nested_lifecycle() -> object:
    class Wrong(Lifecycle):
        errand = Phase(initial=True, runs=Errand, then={"arrive": "over", "decline": "over", "abort": "over"})
        done = Phase(final=True)
        over = errand.to(done)

    return Wrong


ENDINGS: dict[str, str] = dict.fromkeys(("arrive", "decline", "abort", "fault"), "over")


@mistake(r"^Wrong\.errand: `then` names what never ends it: Errand\.set_out$")
def an_answer_to_what_ends_nothing() -> object:
    class Wrong(Lifecycle):
        errand = Phase(initial=True, runs=Errand, then={**ENDINGS, "set_out": "over"})
        done = Phase(final=True)
        over = errand.to(done)

    return Wrong


@mistake(r"^Wrong\.errand: `then` leads to 'finished', which is no event of Wrong$")
def an_answer_that_is_no_event() -> object:
    class Wrong(Lifecycle):
        errand = Phase(initial=True, runs=Errand, then={**ENDINGS, "arrive": "finished"})
        done = Phase(final=True)
        over = errand.to(done)

    return Wrong


@mistake(r"^Wrong\.errand: `then` leads to 'close', which the phase does not take$")
def an_answer_that_another_phase_takes() -> object:
    class Wrong(Lifecycle):
        errand = Phase(initial=True, runs=Errand, then={**ENDINGS, "arrive": "close"})
        resting = Phase(tell(DRIVER, "rest"))
        done = Phase(final=True)
        over = errand.to(resting)
        close = resting.to(done)

    return Wrong


@mistake(r"^Wrong\.errand: a phase that runs Errand does nothing besides$")
def an_effect_that_would_never_be_performed() -> object:
    class Wrong(Lifecycle):
        errand = Phase(tell(DRIVER, "wave"), initial=True, runs=Errand, then=ENDINGS)
        done = Phase(final=True)
        over = errand.to(done)

    return Wrong


@mistake(r"^Wrong\.back: a final phase does nothing; let the arrows that lead to it emit instead$")
def an_effect_of_a_final_phase() -> object:
    class Wrong(Errand):
        back = Errand.back.but(tell(DRIVER, "tell of it"))

    return Wrong


@mistake(r"^Wrong\.asked: `then` says what follows a lifecycle, but the phase runs none$")
def an_answer_without_a_question() -> object:
    class Wrong(Errand):
        asked = Errand.asked.but(then={"arrive": "decline"})

    return Wrong


@mistake(r"^Wrong\.walking: say what follows 'abort', such as ANYWHERE\.to\(\.\.\.\)$")
def a_phase_that_cannot_be_aborted() -> object:
    class Wrong(Errand):
        abort = Errand.asked.to(Errand.back)

    return Wrong


@mistake(r"^Wrong\.asked: say what follows 'fault', such as ANYWHERE\.to\(\.\.\.\)$")
def a_phase_that_cannot_fail() -> object:
    class Wrong(Errand):
        fault = Errand.walking.to(Errand.back)

    return Wrong


@mistake(r"^Wrong: it declares 'abort'; say also what follows 'fault'$")
def an_abort_without_a_fault() -> object:
    class Wrong(Lifecycle):
        asked = Phase(initial=True)
        back = Phase(final=True)
        go = asked.to(back)
        abort = ANYWHERE.to(back)

    return Wrong


@mistake(r"^Wrong\.go: an arrow without a guard must be the last one from its phase$")
def an_arrow_that_is_never_reached() -> object:
    class Wrong(Errand):
        go = Errand.asked.to(Errand.back) | Errand.asked.to(Errand.walking, cond="reachable")

    return Wrong


@mistake(r"^Wrong\.walking: 'walking' is both a phase and an event; choose another name for one$")
def a_phase_with_the_name_of_an_event() -> object:
    class Wrong(Errand):
        walking = cast("Any", Errand.asked.to(Errand.back))

    return Wrong


@mistake(r"^Wrong\.decline: the event 'decline' is replaced by None, which is none$")
def an_inherited_event_that_is_replaced_by_something_else() -> object:
    class Wrong(Errand):
        decline = cast("Any", None)

    return Wrong


@mistake(r"^Wrong: the fact 'asked' has the name of a phase or an event; rename one of them$")
def a_fact_with_the_name_of_a_phase() -> object:
    @dataclass(frozen=True)
    class Facts:
        asked: bool = False

    class Wrong(Lifecycle):
        facts = Facts
        asked = Phase(initial=True)
        back = Phase(final=True)
        go = asked.to(back, cond="asked")

    return Wrong


@mistake(r"^Wrong: the fact 'model' has a name of the library's; choose another$")
def a_fact_with_a_name_of_the_librarys() -> object:
    @dataclass(frozen=True)
    class Facts:
        model: bool = False

    class Wrong(Lifecycle):
        facts = Facts
        asked = Phase(initial=True)
        back = Phase(final=True)
        go = asked.to(back, cond="model")

    return Wrong


@mistake(r"^Wrong: facts must be a frozen dataclass, not <class '.*Facts'>$")
def facts_that_can_change() -> object:
    @dataclass
    class Facts:
        ready: bool = False

    class Wrong(Errand):
        facts = cast("Any", Facts)

    return Wrong


@mistake(r"^Wrong\.asked: 'ask for the way' is no effect; make one with hook, ask, record, notify or note$")
def words_in_the_place_of_an_effect() -> object:
    class Wrong(Errand):
        asked = Errand.asked.but(cast("Any", "ask for the way"))

    return Wrong


@mistake(r"^Wrong\.arrive: 'errand/end' is no effect; make one with hook, ask, record, notify or note$")
def words_in_the_place_of_what_an_arrow_emits() -> object:
    class Wrong(Errand):
        arrive = Errand.walking.to(Errand.back, emits=cast("Any", ["errand/end"]))

    return Wrong


@mistake(r"^Wrong: one phase is initial, not none$")
def no_beginning() -> object:
    class Wrong(Lifecycle):
        asked = Phase()
        back = Phase(final=True)
        go = asked.to(back)

    return Wrong


@mistake(r"^Wrong: one phase is initial, not asked and walking$")
def two_beginnings() -> object:
    class Wrong(Errand):
        walking = Errand.walking.but(initial=True)

    return Wrong


@mistake(r"^Wrong: Cannot declare transitions from final state. Invalid state\(s\): \['back'\]$")
def an_arrow_from_the_end() -> object:
    class Wrong(Errand):
        again = Errand.back.to(Errand.asked)

    return Wrong


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_an_error_at_import_that_names_who_made_it(what: str) -> None:
    declare, says = MISTAKES[what]
    with pytest.raises(DefinitionError, match=says):
        declare()


def _with_event(name: str) -> type[Lifecycle]:
    asked, back = Phase(initial=True), Phase(final=True)
    body: dict[str, Any] = {"asked": asked, "back": back, "go": asked.to(back, when="it just ends")}
    if name in ("abort", "fault"):
        body |= {"abort": ANYWHERE.to(back), "fault": ANYWHERE.to(back)}
    else:
        body[name] = asked.again()
    return new_class("Named", (Lifecycle,), {}, lambda namespace: namespace.update(body))


@pytest.mark.parametrize(
    "name",
    [
        *["model", "states", "configuration", "prepare", "events", "spec", "current_state", "allowed_events"],
        *["listeners", "initial_state", "final_states", "on_transition"],
        *["before_go", "on_go", "after_go", "on_enter_asked"],
    ],
)
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^Named\.{name}: '{name}' is a name of the library's; choose another$"):
        _with_event(name)


@pytest.mark.parametrize("name", ["start", "send", "name", "stop", "cancel", "abort", "fault", "history", "once"])
def test_a_harmless_name_works_in_both_engines(name: str) -> None:
    named = _with_event(name)
    goal = "back" if name in ("abort", "fault") else "asked"

    machine = named()
    assert fire(machine, name).goal == goal
    assert phase_of(machine) == goal
    assert table_of(named).choose("asked", name, named.facts).target == goal
    if goal == "asked":
        assert fire(machine, "go").goal == "back"


# -- what a lifecycle is --------------------------------------------------------------------------------------------


def test_an_arrow_is_taken_by_its_guard_and_says_what_it_emits() -> None:
    machine = Errand()
    arrow = fire(machine, "set_out", ErrandFacts(reachable=True))

    assert phase_of(machine) == "walking"
    assert (arrow.goal, arrow.when, [effect.caption for effect in cast("Any", arrow.emits)]) == (
        *("walking", "a way is known"),
        ["`errand/start`"],
    )
    with pytest.raises(IllegalTransitionError) as refused:
        fire(machine, "decline", ErrandFacts())
    assert str(refused.value) == ("Errand cannot take 'decline' in phase 'walking', which takes arrive, abort, fault")
    assert phase_of(machine) == "walking"


def test_a_guard_may_compare() -> None:
    class Tired(Errand):
        arrive = Errand.walking.to(Errand.back, cond="steps > 2 and not reachable") | Errand.walking.again()

    for facts in map(partial(ErrandFacts, False), range(5)):
        machine = Tired()
        fire(machine, "set_out", ErrandFacts(reachable=True))
        assert fire(machine, "arrive", facts).goal == ("back" if facts.steps > 2 else "walking")
        assert table_of(Tired).choose("walking", "arrive", partial(replace, facts)).target == phase_of(machine)


def test_an_unless_is_the_reverse_of_a_cond_and_both_must_hold() -> None:
    class Both(Errand):
        decline = Errand.asked.to(Errand.back, cond="steps == 1", unless="reachable or steps > 5")

    (arrow,) = Both.spec.declared["decline"]
    assert arrow.guard == "(steps == 1) and (not (reachable or steps > 5))"


def test_anywhere_and_sources_are_shorthand() -> None:
    class Short(Errand):
        nap = Sources(Errand.asked, Errand.walking).again(when="a short sleep")

    assert [(arrow.source.id, arrow.goal, arrow.internal) for event, arrow in Short.spec.arrows if event == "nap"] == [
        ("asked", "asked", True),
        ("walking", "walking", True),
    ]
    assert [arrow.source.id for event, arrow in Short.spec.arrows if event == "abort"] == ["asked", "walking"]


# -- inheritance ----------------------------------------------------------------------------------------------------


def written(lifecycle: type[Lifecycle]) -> list[tuple[object, ...]]:
    """Everything that a lifecycle declares, as plain values."""
    phases = [
        (name, phase.does, phase.initial, phase.final, phase.runs, dict(phase.then), phase.pool, phase.lane)
        for name, phase in lifecycle.spec.phases.items()
    ]
    arrows = [
        (event, arrow.source.id, arrow.goal, arrow.guard, arrow.when, arrow.emits, arrow.internal, arrow.drawn)
        for event, arrow in lifecycle.spec.arrows
    ]
    return [*phases, *arrows]


@pytest.mark.parametrize("lifecycle", [Agent, Turn, Step, ToolCall, Errand])
def test_a_subclass_that_adds_nothing_declares_the_same_with_phases_of_its_own(lifecycle: type[Lifecycle]) -> None:
    class Same(lifecycle):  # type: ignore[valid-type, misc]  # the base is a parameter
        pass

    assert written(Same) == written(lifecycle)
    assert not {id(phase) for phase in Same.spec.phases.values()} & {id(p) for p in lifecycle.spec.phases.values()}
    assert not {id(arrow) for _, arrow in Same.spec.arrows} & {id(arrow) for _, arrow in lifecycle.spec.arrows}


def test_extending_never_edits_a_parent() -> None:
    before = {lifecycle: written(lifecycle) for lifecycle in (Errand, Step, Turn, Agent, ToolCall)}

    class Reviewed(Step):
        reviewing = Phase(tell(DRIVER, "look at the answer"))
        succeed = Step.requesting.to(reviewing)
        approve = reviewing.to(Step.tooling)

    class Longer(Errand):
        resting = Phase(tell(DRIVER, "sit down"))
        rest = Errand.walking.to(resting)
        go_on = resting.to(Errand.walking)
        walking = Errand.walking.but(tell(DRIVER, "stroll"))

    class Longest(Longer):
        sleeping = Phase(tell(DRIVER, "sleep"))
        lie_down = Longer.resting.to(sleeping) | Errand.walking.to(sleeping)  # a grandparent's phase will do
        get_up = sleeping.to(Longer.walking)

    assert {lifecycle: written(lifecycle) for lifecycle in before} == before
    assert [*Reviewed.spec.phases][-1] == "reviewing"
    assert {arrow.goal for event, arrow in Longest.spec.arrows if event == "lie_down"} == {"sleeping"}
    assert Longest.spec.phases["walking"].does == (tell(DRIVER, "stroll"),) != Errand.spec.phases["walking"].does
    machine = Longest()
    for event in ("set_out", "rest", "lie_down", "get_up", "arrive"):
        fire(machine, event, ErrandFacts(reachable=True))
    assert phase_of(machine) == "back"


def test_anywhere_reaches_the_phases_that_a_subclass_adds() -> None:
    class Longer(Errand):
        resting = Phase(tell(DRIVER, "sit down"))
        rest = Errand.walking.to(resting)
        go_on = resting.to(Errand.walking)

    class Careful(Longer):
        abort = Longer.resting.to(Errand.back, when="woken and called off") | ANYWHERE.to(Errand.back)

    def aborts(lifecycle: type[Lifecycle]) -> dict[str, str]:
        return {arrow.source.id: arrow.when for event, arrow in lifecycle.spec.arrows if event == "abort"}

    called_off = "the errand is called off"
    assert aborts(Longer) == {"asked": called_off, "walking": called_off, "resting": called_off}
    assert aborts(Careful) == {"asked": "", "walking": "", "resting": "woken and called off"}
    assert aborts(Errand) == {"asked": called_off, "walking": called_off}


def test_redefining_a_name_replaces_it() -> None:
    class Direct(Errand):
        set_out = Errand.asked.to(Errand.walking, when="always")
        decline = Errand.walking.to(Errand.back, when="half-way")

    assert [(event, arrow.source.id, arrow.guard) for event, arrow in Direct.spec.arrows][:1] == [
        ("set_out", "asked", "")
    ]
    assert {arrow.source.id for event, arrow in Direct.spec.arrows if event == "decline"} == {"walking"}


def test_a_subclass_changes_one_thing_of_an_arrow_and_keeps_the_rest() -> None:
    class Longer(Errand):
        resting = Phase(tell(DRIVER, "rest"))
        arrive = Errand.arrows("arrive").but(target=resting, when="half of it is done")
        go_on = resting.to(Errand.back)

    (arrow,) = Longer.arrows("arrive")
    (was,) = Errand.arrows("arrive")
    assert (arrow.goal, arrow.when, arrow.emits) == ("resting", "half of it is done", (record("errand/end"),))
    assert (was.goal, was.when) == ("back", "the errand is done")
    assert [arrow.guard for arrow in Errand.arrows("set_out").but(cond="steps > 1")] == ["steps > 1"]


def test_a_subclass_adds_to_the_arrows_of_an_event() -> None:
    class Careful(Errand):
        resting = Phase(tell(DRIVER, "rest"))
        pause = Errand.walking.to(resting)
        go_on = resting.to(Errand.walking)
        abort = Errand.arrows("abort") | resting.to(Errand.walking, when="woken")

    goals = {arrow.source.id: arrow.goal for event, arrow in Careful.spec.arrows if event == "abort"}
    assert goals == {"asked": "back", "walking": "back", "resting": "walking"}


def test_arrows_of_an_event_that_there_is_not() -> None:
    with pytest.raises(DefinitionError, match=r"^Errand has no event 'set_of'; it has set_out, decline, arrive, abort"):
        Errand.arrows("set_of")


# -- the reference machine and the library --------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_reference_machine_survives_pickling_where_it_was(protocol: int) -> None:
    machine = Turn()
    for event in ("open", "claim"):
        fire(machine, event)

    again = pickle.loads(pickle.dumps(machine, protocol))
    assert phase_of(again) == "stepping"
    assert fire(again, "stepped", TurnFacts()).goal == "stopping"
    assert phase_of(machine) == "stepping"


def test_what_is_used_of_the_library() -> None:
    """What `machine.py` leans on. If this fails after an upgrade, that module is the one to look at."""

    class Plain(StateMachine):
        a = State(initial=True)
        b = State(final=True)
        go = a.to(b)

    # Transitions know their events and ends, and lie in the state that they start from, in the order of declaration.
    (transition,) = Plain.a.transitions
    assert [str(event) for event in transition.events] == ["go"]
    assert (transition.source, transition.target, transition.internal) == (Plain.a, Plain.b, False)
    assert Plain.a.id == "a"
    # The transition that was taken is handed to `on_transition`, and what that returns is what `send` returns.
    assert Errand().send("abort", facts=ErrandFacts()) in [arrow for _, arrow in Errand.spec.arrows]
    # A machine says where it is by the state's name.
    assert Plain().current_state_value == "a"
    # The names that its classes and its machines have are known, so that they can be refused.
    declared = {"a", "b", "go"}
    has = {name for name in {*dir(Plain), *vars(Plain())} - declared if not name.startswith("_")}
    assert has <= RESERVED
    # A class is made by its metaclass in two steps, and inherits nothing if `add_inherited` does nothing.
    assert isinstance(Errand, StateMachineMetaclass)
    assert "add_inherited" in vars(StateMachineMetaclass)
    assert issubclass(Arrow, Transition)
    assert issubclass(Arrows, TransitionList)
    # `!`, `^` and `v` are read as not, and, or.
    assert replace_operators("!a ^ b v c != d") == "not a  and  b  or  c != d"


def test_an_illegal_event_is_an_error_of_the_library_too() -> None:
    """StateMachine, never StateChart: that one ignores an illegal event without a word."""
    with pytest.raises(TransitionNotAllowed):
        Errand().send("arrive", facts=ErrandFacts())
    assert Lifecycle.allow_event_without_transition is False
