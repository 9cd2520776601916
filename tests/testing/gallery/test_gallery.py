"""The check of hooks against what people get wrong: it finds every mistake soon, and makes it small.

CI tries a sample of the mistakes and a few dozen examples of what is in order; `--run-slow` tries all, and prints what
it took. `LIFECYCLE_GALLERY_SEED` chooses another sample.
"""

from __future__ import annotations

import os
import random
import sys
import time
from dataclasses import dataclass
from statistics import median

import pytest

from lifecycle.errors import HookCheckError, HookFactoryError
from lifecycle.proof.simulation import Backend
from lifecycle.testing import Answer, AskedCall, Case, HookScript, Move, Scenario, ToolScript, check_case, check_hooks

from .everything import CORRECT, FAULTY, Entry

EXAMPLES = 500
FEW = 60
MOST_MOVES = 6
MEDIAN = 50
SEED = int(os.environ.get("LIFECYCLE_GALLERY_SEED", "1"))
SAMPLE = random.Random(SEED).sample(list(FAULTY.values()), 20)
LEANS_ON_THE_LOOP = [one for one in FAULTY.values() if one.factory.__module__.endswith(("waiting", "streams", "loops"))]
"""What an event loop might make another thing of: waiting, being cancelled, being closed."""
CANCELLED = ("swallows a cancellation", "makes an outcome of a cancellation", "begins again after a cancellation")
SAMPLE_ON_TRIO = [*map(FAULTY.__getitem__, CANCELLED), *random.Random(SEED).sample(LEANS_ON_THE_LOOP, 5)]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check said of a faulty set."""

    entry: Entry
    examples: int | None = None
    """How many were tried until it was found; None if it was not."""
    moves: int = 0
    point: str | None = None
    said: str = ""
    seconds: float = 0.0

    @property
    def problem(self) -> str:
        """What is wrong with the finding; empty if nothing is."""
        if self.examples is None:
            return f"{self.entry} is not found: {self.entry.finds}"
        if self.moves > MOST_MOVES:
            return f"{self.entry} is shown with {self.moves} moves"
        if self.point is not None and self.point not in self.entry.points:
            return f"{self.entry} is found at {self.point}, but listens at {self.entry.points}: {self.said}"
        return ""

    def __str__(self) -> str:
        examples = "never" if self.examples is None else str(self.examples)
        return (
            f"{self.entry.name:42} {examples:>5} {self.moves:>3} {self.seconds:6.1f} s  "
            f"{self.point or '':24} {' '.join(self.said.split())[:90]}"
        )


def find(entry: Entry, seed: int = 1, backend: Backend = "asyncio") -> Finding:
    begun = time.process_time()
    try:
        check_hooks(entry.factory, examples=EXAMPLES, seed=seed, invariants=entry.holds, backends=(backend,))
    except HookCheckError as found:
        took = time.process_time() - begun
        said = f"{found.contract}: {found.reason}"
        return Finding(entry, found.examples_tried, len(found.scenario.moves), found.point, said, took)
    except HookFactoryError as refused:  # before anything has run
        return Finding(entry, 0, 0, None, str(refused), time.process_time() - begun)
    return Finding(entry, seconds=time.process_time() - begun)


def test_the_galleries_are_as_large_as_they_are_said_to_be() -> None:
    assert len(FAULTY) >= 40
    assert len(CORRECT) >= 15
    assert all(entry.says and entry.finds and entry.points for entry in FAULTY.values())


@pytest.mark.parametrize("entry", SAMPLE, ids=lambda entry: f"sample {SEED}: {entry}")
def test_a_mistake_is_found(entry: Entry) -> None:
    assert find(entry).problem == ""


@pytest.mark.parametrize("entry", {str(one): one for one in SAMPLE_ON_TRIO}.values(), ids=str)
def test_a_mistake_is_found_on_trio(entry: Entry) -> None:
    assert find(entry, backend="trio").problem == ""


@pytest.mark.parametrize("name", ["forgets to return", "drops steering", "swallows a cancellation"])
def test_what_is_printed_of_a_mistake_shows_it_again(name: str) -> None:
    entry = FAULTY[name]
    with pytest.raises(HookCheckError) as found:
        check_hooks(entry.factory, examples=EXAMPLES, seed=1, invariants=entry.holds)
    with pytest.raises(HookCheckError) as again:
        exec(compile(found.value.program, name, "exec"), {"__name__": "repro"})
    assert (again.value.reason, again.value.point) == (found.value.reason, found.value.point)
    assert again.value.scenario == found.value.scenario


@pytest.mark.parametrize("entry", CORRECT.values(), ids=str)
def test_what_is_unusual_and_in_order_raises_no_alarm(entry: Entry) -> None:
    check_hooks(entry.factory, examples=FEW, seed=SEED, invariants=entry.holds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_mistake_is_found_soon_and_made_small(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    findings = [find(entry, seed) for entry in FAULTY.values()]
    middle = median(EXAMPLES if one.examples is None else one.examples for one in findings)
    with capsys.disabled():
        table = "\n".join(map(str, sorted(findings, key=lambda one: one.examples or 0)))
        sys.stdout.write(
            f"\n{table}\n{len(findings)} mistakes with seed {seed}; the median is found after {middle:g}\n"
        )
    assert [one.problem for one in findings if one.problem] == []
    assert middle <= MEDIAN


@pytest.mark.parametrize("name", ["cleans up when cancelled", "raises when cancelled", "looks two things up"])
def test_what_ends_in_order_when_cancelled_raises_no_alarm_on_trio(name: str) -> None:
    check_hooks(CORRECT[name].factory, examples=FEW, seed=SEED, backends=("trio",))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_failure_below_may_come_out_of_a_hook_that_is_cancelled_meanwhile(backend: Backend) -> None:
    scenario = Scenario(
        moves=(Move(),),
        answers=(Answer(calls=(AskedCall(tool="look"),)),),
        tools=(ToolScript(name="look"),),
        hooks=(HookScript(point="tools/execute", does="raise"),),
    )
    check_case(CORRECT["limits the time of tools"].factory, Case(scenario=scenario, backend=backend, interrupt=1))


@pytest.mark.slow
@pytest.mark.parametrize("entry", LEANS_ON_THE_LOOP, ids=str)
def test_what_leans_on_the_loop_is_found_on_trio(entry: Entry) -> None:
    assert find(entry, backend="trio").problem == ""


@pytest.mark.slow
@pytest.mark.parametrize("entry", CORRECT.values(), ids=str)
def test_what_is_unusual_and_in_order_raises_no_alarm_in_a_long_search(entry: Entry) -> None:
    check_hooks(entry.factory, examples=5_000, seed=1, invariants=entry.holds)
