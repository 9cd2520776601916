"""The survey: what is wrong with one definition, from every phase, with every event and all facts."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import partial
from types import new_class
from typing import Any, cast

import pytest

from lifecycle.commands.targets import OURS
from lifecycle.definition.effects import DRIVER, tell
from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle, Phase
from lifecycle.definition.table import table_of
from lifecycle.errors import IllegalTransitionError, TooManyFactsError
from lifecycle.proof.survey import MOST, survey

DO = tell(DRIVER, "do it")


@dataclass(frozen=True)
class Facts:
    ready: bool = False
    early: bool = False
    tries: int = 0


class Faulty(Lifecycle):
    """Everything that can be wrong, once."""

    facts = Facts

    begun = Phase(DO, initial=True)
    torn = Phase(DO)
    going = Phase(DO)
    done = Phase(final=True)

    go = begun.to(going, cond="ready") | begun.to(torn, cond="early")
    come = begun.to(done, cond="tries > 2", when="tried often") | begun.to(going, cond="not (tries > 2) and tries > 3")
    spin = going.to(done, cond="early and not early") | going.to(going) | torn.to(going)


def test_ours_have_nothing_wrong() -> None:
    every = {one for lifecycle in OURS.values() for one in family(lifecycle)}

    surveys = [survey(one) for one in every]

    assert [fault for one in surveys for fault in one.faults] == []
    assert all(one.complete and one.open_cells for one in surveys)


def test_what_is_wrong_is_named() -> None:
    found = survey(Faulty)

    assert found.unreachable == ()
    assert found.dead == (
        "Faulty.come: begun -> going if not (tries > 2) and tries > 3",
        "Faulty.spin: going -> done if early and not early",
    )
    assert [(one.phase, one.event, one.unclear) for one in found.overlaps] == [("begun", "go", True)]
    assert dict(found.overlaps[0].facts) | {"tries": 0} == {"early": True, "ready": True, "tries": 0}
    assert [(gap.phase, gap.facts["ready"], gap.facts["early"]) for gap in found.gaps] == [("begun", False, False)]
    assert found.endless == ("torn", "going")
    assert len(found.faults) == 6


def test_a_phase_beyond_the_bound_is_not_called_unreachable() -> None:
    near, far = survey(OURS["Step"], depth=2), survey(OURS["Step"])

    assert (near.depth, near.complete, near.faults) == (2, False, ())
    assert (far.depth, far.complete) == (5, True)


def test_a_last_arrow_without_a_guard_is_no_fault() -> None:
    class Usual(Lifecycle):
        facts = Facts
        begun = Phase(DO, initial=True)
        going = Phase(DO)
        done = Phase(final=True)
        go = begun.to(going, cond="ready") | begun.to(done)
        end = going.to(done)

    found = survey(Usual)

    assert [(one.event, one.unclear) for one in found.overlaps] == [("go", False)]
    assert found.faults == ()


class Asked(Lifecycle):
    begun = Phase(DO, initial=True)
    well = Phase(final=True)
    badly = Phase(final=True)
    succeed = begun.to(well)
    fail = begun.to(badly)


class Asking(Lifecycle):
    facts = Facts
    asking = Phase(initial=True, runs=Asked, then={"succeed": "go", "fail": "stay"})
    done = Phase(final=True)
    go = asking.to(done)
    stay = asking.to(done, cond="ready")


def test_an_ending_of_a_nested_run_that_nothing_takes_is_found() -> None:
    found = survey(Asking)

    assert found.nested == {"asking": {"succeed": "go", "fail": "stay"}}
    assert found.faults == ("Asking.asking: 'stay' is not taken with ready=False",)


def test_facts_that_are_too_many_are_refused_in_one_sentence() -> None:
    names = [f"fact{n}" for n in range(MOST.bit_length())]
    facts = make_dataclass("ManyFacts", [(name, bool, False) for name in names], frozen=True)
    begun, done = Phase(DO, initial=True), Phase(final=True)
    body = {"facts": facts, "begun": begun, "done": done, "go": begun.to(done, cond=" or ".join(names))}
    lifecycle: Any = new_class("Endless", (Lifecycle,), exec_body=lambda namespace: namespace.update(body))

    with pytest.raises(TooManyFactsError, match=r"Endless\.begun: its guards read 18 facts"):
        survey(lifecycle)


@pytest.mark.parametrize("lifecycle", [OURS["Agent"], OURS["Turn"], OURS["Step"]])
def test_the_cells_are_those_of_the_table(lifecycle: type[Lifecycle]) -> None:
    """An independent count: fire every event with all valuations of all facts, and see which arrows are taken."""
    table = table_of(lifecycle)
    names = sorted(lifecycle.spec.atoms)
    taken = set[object]()
    for bits in range(2 ** len(names)):
        facts = partial(cast("Any", lifecycle).facts, **{name: bool(bits >> n & 1) for n, name in enumerate(names)})
        for phase, events in table.rows.items():
            for event in events:
                try:
                    taken.add(table.choose(phase, event, facts))
                except IllegalTransitionError:
                    continue

    every = {row for events in table.rows.values() for rows in events.values() for row in rows}
    assert (taken == every) is (survey(lifecycle).dead == ())
