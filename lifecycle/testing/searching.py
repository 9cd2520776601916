"""Searching: cases drawn by Hypothesis, until one fails. It draws only; what fails is made smaller elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lifecycle.proof.simulation import Backend
from lifecycle.services.points import POINTS

from .cases import Case
from .scenario import Answer, Scenario
from .strategies import QUIET_POINTS, hook_scripts, scenarios

T = TypeVar("T")

_UNFIT = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
    HealthCheck.nested_given,
)
"""Warnings for tests that are written by hand; a run is never too slow to be tried."""
_STUBBORN = 14
"""How often a failure comes in a row that does not go away."""


class _FoundError(Exception):
    """Ends the search."""


def cases(
    backends: Sequence[Backend] = ("asyncio",), *, most_hooks: int = 2, points: Iterable[str] = ()
) -> SearchStrategy[Case]:
    """Cases of every kind. Every second scripted hook listens at one of `points`: hooks meet where both listen."""
    usual = st.none()
    meeting = [name for name in points if name in POINTS and name not in QUIET_POINTS]
    hooks = hook_scripts(tuple(meeting)) | hook_scripts() if meeting else hook_scripts()
    return st.builds(
        Case,
        scenario=scenarios(hooks=hooks, most_hooks=most_hooks).flatmap(_stubborn),
        backend=st.sampled_from(list(backends)),
        interrupt=usual | usual | usual | st.integers(1, 20),
    )


def _stubborn(scenario: Scenario) -> SearchStrategy[Scenario]:
    """The scenario; or if its last request fails, one in which all that follow fail, too."""
    if not scenario.answers or scenario.answers[-1].failure is None:
        return st.just(scenario)
    last: Answer = scenario.answers[-1]
    return st.sampled_from(
        (scenario, scenario.model_copy(update={"answers": (*scenario.answers, *[last] * _STUBBORN)}))
    )


def first_failing(
    tried: Callable[[Case], T | None], drawn: SearchStrategy[Case], *, examples: int, seed: int
) -> T | None:
    """What `tried` makes of the first case for which it makes something; None if it never does."""
    found: list[T] = []

    @_seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=_UNFIT,
    )
    @given(drawn)
    def search(case: Case) -> None:
        if not found:
            made = tried(case)
            if made is None:
                return
            found.append(made)
        raise _FoundError

    with suppress(_FoundError):
        search()
    return found[0] if found else None


_seeded = seed
