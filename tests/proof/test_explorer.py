"""The explorer: that our own lifecycle holds within its bounds, and that what is wrong on purpose is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import hook
from lifecycle.definition.family import within
from lifecycle.definition.machine import Phase
from lifecycle.definition.step import CLOSE, Step
from lifecycle.definition.turn import Turn
from lifecycle.proof.counterexample import drawn, stages, told
from lifecycle.proof.explorer import DEADLOCK, explore
from lifecycle.proof.invariants import INVARIANTS
from lifecycle.proof.outside import Play
from lifecycle.proof.stepper import NEVER_RESTS
from lifecycle.proof.world import SCOPES, WIDE, Bounds
from tests.pictures.judge import parsed

from .seeded import SEEDED, Seeded

UNTAKEN = {
    # Only the host's own cancellation, or a veto that cancels as well, comes where nothing waits.
    "Turn.abort: opening -> closed",
    "Turn.abort: settled -> closing",
    "Turn.abort: closing -> closed",
    "ToolCall.abort: guarded -> finished",
    "ToolCall.abort: posting -> finished",
    # The driver's own failure, for a step has its answer to every other one.
    "Turn.fault: stepping -> closing",
    # The abstract calls have no arguments.
    "ToolCall.refuse: guarded -> posting",
    "ToolCall.fault: guarded -> posting",
}
"""What no search takes, each for a reason."""

QUIET = Bounds(
    messages=1, odd=1, calls=0, causes=("user",), listeners=False, vetoes=False, crashes=False, hooks=False,
    edits=False, maintenance=False,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDED.values(), ids=SEEDED)
def test_a_fault_on_purpose_is_found(seed: Seeded) -> None:
    bounds = QUIET.but(**seed.bounds)

    found = explore(Play(seed.lifecycle, bounds, seed.faulty))
    clean = explore(Play(bounds=bounds))

    assert found.broken is not None
    assert found.broken.invariant == seed.finds
    assert clean.complete
    assert clean.broken is None


def test_each_invariant_is_broken_by_some_fault() -> None:
    assert {seed.finds for seed in SEEDED.values()} == {*INVARIANTS, DEADLOCK, NEVER_RESTS}


def searched(scopes: Mapping[str, Bounds]) -> set[str]:
    """Search them; returns the arrows that none has taken, and prints how much there was."""
    untaken = [set(searched_one(name, bounds)) for name, bounds in scopes.items()]
    return {arrow for arrow in untaken[0] if all(arrow in others for others in untaken)}


def searched_one(name: str, bounds: Bounds) -> tuple[str, ...]:
    found = explore(Play(bounds=bounds))
    print(f"{name}: {found.states:,} states, {found.arrows:,} moves, depth {found.depth}, {found.seconds:.1f} s")  # noqa: T201  # the figures
    assert (found.broken, found.complete) == (None, True)
    assert found.rests
    return found.untaken


def test_nothing_breaks_and_nearly_every_arrow_is_taken() -> None:
    assert searched(SCOPES) == UNTAKEN


@pytest.mark.slow
def test_nothing_breaks_in_a_wider_world() -> None:
    assert searched(WIDE) == UNTAKEN


def test_a_bound_on_moves_or_states_leaves_the_search_incomplete() -> None:
    by_depth, by_states = explore(Play(bounds=QUIET), depth=3), explore(Play(bounds=QUIET), states=10)

    assert (by_depth.depth, by_depth.complete) == (3, False)
    assert (by_states.complete, by_states.states < 30) == (False, True)


class Checked(Step):
    checking = Phase(hook("agent/check", "serial"))
    finish = Step.arrows("finish").but(target=checking, emits=()) | checking.to(Step.ended, emits=CLOSE)
    repeat = checking.to(Step.requesting)


class CheckedTurn(Turn):
    stepping = Turn.stepping.but(runs=Checked)


def test_a_users_loop_is_gone_round_as_often_as_odd_things_may_come() -> None:
    repeat = "Checked.repeat: checking -> requesting"
    once, never = (explore(Play(within(Agent, CheckedTurn), QUIET.but(odd=odd))) for odd in (1, 0))

    assert (once.broken, once.complete, repeat in once.untaken) == (None, True, False)
    assert (never.broken, never.complete, repeat in never.untaken) == (None, True, True)


def test_the_same_search_finds_the_same() -> None:
    first, second = (dataclasses.replace(explore(Play(bounds=QUIET)), seconds=0) for _ in range(2))

    assert first == second


def test_a_shortest_run_is_told_and_drawn() -> None:
    seed = SEEDED["A wake after the cancel is not latched"]
    play = Play(seed.lifecycle, QUIET.but(**seed.bounds))
    found = explore(play)
    assert found.broken is not None
    run = stages(play, found.run)

    assert [line.strip() for line in told(run, found.broken) if "." in line[:5]] == [
        "1. the host calls followup(m1)",
        "2. the host cancels (user)",
        "3. the host calls followup(m2)",
        "4. agent/step-boundary returns",
    ]
    picture = drawn(run, found.broken)
    for line in ("Note over User,Driver: the host cancels (user)", "Agent-->>Driver: the signal fires { cause }"):
        assert f"  {line}\n" in picture
    assert picture.endswith("broken: a latched wake is started: the held wake was not started\n")


def test_the_picture_of_a_run_is_one_that_mermaid_reads() -> None:
    seed = SEEDED["a stream settles twice"]
    play = Play(seed.lifecycle, QUIET.but(**seed.bounds), seed.faulty)
    found = explore(play)
    assert found.broken is not None

    parsed(drawn(stages(play, found.run), found.broken))
