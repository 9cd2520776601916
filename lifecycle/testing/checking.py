"""Checking hooks: the whole lifecycle with somebody's hooks in it, through many scenarios, until a rule is broken."""

from __future__ import annotations

import logging
import os
import random
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import get_args
from unittest.mock import patch

import anyio

from lifecycle.driver.monitor import VARIABLE as MONITOR
from lifecycle.errors import HookCheckError, HookFactoryError, SimulationError
from lifecycle.proof.simulation import Backend
from lifecycle.services.callables import name_of
from lifecycle.services.points import POINTS

from .arrows import Coverage, noting_arrows
from .cases import Case, Fixture, address_of, program_of
from .classics import CLASSICS
from .factories import Factory, factory_of, fresh
from .hook_calls import USUAL, Breach, Limits
from .judging import judged
from .picture import picture_of
from .properties import Property, property_of
from .shrinking import shrink
from .simulation import Simulated, simulate
from .watch import Watch, blamed_now
from .watched_hooks import WatchedHooks

SEED = "LIFECYCLE_SEED"
"""The seed of checks that are given none. The pytest plug-in sets it (`--lifecycle-seed`)."""
_MOST_MOVES = 400
"""A run of so many moves counts as endless; without hooks that wait, a scenario has a quarter of it at most."""


@dataclass
class Report:
    """What a check has done."""

    hooks: str
    seed: int
    examples: int = 0
    """How many scenarios were performed."""
    moves: int = 0
    """How many moves they had in all."""
    calls: int = 0
    """How often a checked listener was called."""
    seconds: float = 0.0
    """How long it took."""
    coverage: Coverage = field(default_factory=Coverage)

    def __str__(self) -> str:
        return (
            f"{self.hooks}: {self.examples} examples with {self.moves} moves and {self.calls} calls of hooks, in "
            f"{self.seconds:.1f} s with seed {self.seed}\n{self.coverage}"
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One case, performed and judged."""

    case: Case
    run: Simulated
    watch: Watch
    breaches: tuple[Breach, ...]

    @property
    def passes(self) -> bool:
        return not self.breaches


def check_hooks(
    factory: Factory | ModuleType | str,
    *,
    examples: int = 100,
    seed: int | None = None,
    invariants: Iterable[Callable[[Simulated], object]] = (),
    backends: Sequence[Backend] = ("asyncio",),
    may_raise: Iterable[type[BaseException]] = (),
    most_seconds: float = 120.0,
    most_seconds_cancelled: float = 10.0,
    most_retries: int = 10,
    most_seconds_running: float = 20.0,
    other_hooks: bool = True,
    progress: Callable[[Report], object] | None = None,
) -> Report:
    """Drive the whole lifecycle with hooks in it through random scenarios, and see whether they break a rule.

        def test_my_hooks():
            check_hooks(build_hooks)

    Messages, batches of tools, failures, retries, steering, cancellation at every moment, and further hooks behind
    those under test, in virtual time. Judged are the invariants of every run, the contract of each hook point (legal
    answers; `next()` once; nothing frozen is changed; cancellation is not swallowed; retries end; no task is left; it
    returns in time; it does not raise), and `invariants`.

    What a hook hands to a worker thread runs on the spot, files among it; `time.sleep` there takes virtual time.
    Sockets and processes are outside of virtual time, and a breach: hand in what talks to the world, and fake it in
    the test.

    Args:
        factory: Makes the hooks, without arguments and afresh for each example; or `module:name` of that function; or
            a module that has one called `hooks` or `build_hooks`.
        examples: How many scenarios to try.
        seed: Makes the search repeatable. By default that of `--lifecycle-seed`, else another one each time, which
            the report and the error tell.
        invariants: What else must hold; see `invariant`.
        backends: On which event loops, in turn.
        may_raise: What the hooks raise on purpose. A veto of `session/append` may raise anything that is no obvious
            mistake, such as a TypeError.
        most_seconds: Virtual seconds that one call of a hook may take by itself.
        most_seconds_cancelled: The same once the signal of its turn has fired.
        most_retries: How many attempts of one step a hook may follow by another.
        most_seconds_running: Real seconds for which a hook may run without giving way; judged in the main thread of a
            POSIX system only.
        other_hooks: Let scripted hooks stand behind those under test: they refuse, rewrite, raise and wait.
        progress: Called after each example.

    Returns:
        What was done, and which arrows and verdicts it has reached; `report.coverage.require(...)` insists on some.

    Raises:
        HookCheckError: if a rule is broken, with the smallest scenario that was found to break it.
        HookFactoryError: if there are no hooks to check, no examples or no such backend; nothing was tried.
        SimulationError: if Hypothesis is not installed, which draws scenarios once the first ones are used up.
    """
    _possible(examples, backends)
    make = factory_of(factory)
    limits = Limits(most_seconds, most_seconds_cancelled, most_retries, tuple(may_raise), most_seconds_running)
    properties = [property_of(one) for one in invariants]
    begun = time.perf_counter()
    report = Report(name_of(make), _seed(seed))
    two = fresh(make), fresh(make)
    if two[0] is two[1]:
        raise HookFactoryError(
            f"{name_of(make)} returns the same Hooks each time; make them within the function, afresh for each example"
        )
    unheard = [name for name in two[0].points if name not in POINTS and two[0].listeners(name)]
    if unheard:
        raise HookFactoryError(
            f"{name_of(make)} listens at {', '.join(unheard)}, which the lifecycle that a check runs never dispatches: "
            "it is the built-in one; check what listens there in a test of your own lifecycle"
        )
    report.coverage.points = {name: point for name, point in two[0].points.items() if two[0].listeners(name)}

    def tried(case: Case) -> Trial | None:
        """The trial if it failed."""
        trial = attempt(make, case, limits, properties, report.coverage)
        report.examples += 1
        report.moves += len(trial.run.moves)
        report.calls += len(trial.watch.calls)
        report.seconds = time.perf_counter() - begun
        if progress is not None:
            progress(report)
        return None if trial.passes else trial

    failed = None
    first = [case for case in CLASSICS if other_hooks or not case.scenario.hooks][:examples]
    for n, case in enumerate(first):
        failed = tried(case.model_copy(update={"backend": backends[n % len(backends)]}))
        if failed is not None:
            break
    if failed is None and examples > len(first):
        try:
            from .searching import cases, first_failing
        except ImportError as missing:
            raise SimulationError("to search needs Hypothesis; install turn-lifecycle[testing]") from missing

        drawn = cases(backends, most_hooks=2 if other_hooks else 0, points=report.coverage.points)
        failed = first_failing(tried, drawn, examples=examples - len(first), seed=report.seed)
    if failed is not None:
        raise _smallest(make, failed, limits, properties, report)
    return report


def check_case(
    factory: Factory | ModuleType | str,
    case: Case,
    *,
    invariants: Iterable[Callable[[Simulated], object]] = (),
    may_raise: Iterable[type[BaseException]] = (),
    most_seconds: float = 120.0,
    most_seconds_cancelled: float = 10.0,
    most_retries: int = 10,
    most_seconds_running: float = 20.0,
) -> Trial:
    """Perform one case with hooks in it, and judge it as `check_hooks` does. Raises likewise."""
    make = factory_of(factory)
    limits = Limits(most_seconds, most_seconds_cancelled, most_retries, tuple(may_raise), most_seconds_running)
    properties = [property_of(one) for one in invariants]
    trial = attempt(make, case, limits, properties)
    if not trial.passes:
        raise _error(make, trial, limits, properties, None)
    return trial


def attempt(
    make: Factory,
    case: Case,
    limits: Limits = USUAL,
    properties: Iterable[Property] = (),
    coverage: Coverage | None = None,
) -> Trial:
    """Perform one case and judge it, without raising what was found."""
    trial = _performed(make, case, limits, properties, coverage)
    if any(one.contract == "awaits" for one in trial.breaches):
        # a coroutine may be somebody else's, and only be collected here; it is not collected twice
        again = {one.key for one in _performed(make, case, limits, properties, coverage).breaches}
        kept = tuple(one for one in trial.breaches if one.contract != "awaits" or one.key in again)
        trial = replace(trial, breaches=kept)
    return trial


def _performed(
    make: Factory, case: Case, limits: Limits, properties: Iterable[Property], coverage: Coverage | None
) -> Trial:
    _outside_of_loops()
    watch = Watch(limits, case.interrupt)
    watched = WatchedHooks(fresh(make), watch)
    coverage = Coverage() if coverage is None else coverage
    with (
        patch.dict(os.environ, {MONITOR: "0"}),
        _unawaited(watch),
        _loops_silent(),
        watch.blocking_forbidden(),
        noting_arrows(coverage),
    ):
        run = simulate(
            case.scenario, lambda: watched, backend=case.backend, most_moves=_MOST_MOVES, before=watch.attend
        )
    coverage.verdicts |= watch.verdicts
    return Trial(case, run, watch, tuple(judged(run, watch, limits, properties)))


# -- a failure ----------------------------------------------------------------------------------------------------


def _smallest(
    make: Factory, failed: Trial, limits: Limits, properties: Sequence[Property], report: Report
) -> HookCheckError:
    """The error of the smallest case that fails as this one does."""
    key = failed.breaches[0].key
    hangs = failed.breaches[0].contract == "hangs"
    if hangs:  # it does so again as well if it is given a second
        limits = replace(limits, patience=min(limits.patience, 1.0))
    again = attempt(make, failed.case, limits, properties)
    if key not in [one.key for one in again.breaches]:
        first = failed.breaches[0]
        reason = f"{first.reason}; not when it is run again: the hooks keep something from one example to the next"
        return _error(make, failed, limits, properties, report, Breach("fresh", reason, first.call))

    best = again

    def fails(case: Case) -> bool:
        nonlocal best
        trial = attempt(make, case, limits, properties)
        fails = key in [one.key for one in trial.breaches]
        best = trial if fails else best
        return fails

    shrink(failed.case, fails, most=20 if hangs else 500)
    breach = next(one for one in best.breaches if one.key == key)
    return _error(make, best, limits, properties, report, breach)


def _error(
    make: Factory,
    trial: Trial,
    limits: Limits,
    properties: Sequence[Property],
    report: Report | None,
    breach: Breach | None = None,
) -> HookCheckError:
    breach = breach or trial.breaches[0]
    call = breach.call
    point = None if call is None else call.point.name
    fixture = Fixture(
        hooks=address_of(make), contract=breach.contract, point=point, reason=breach.reason, case=trial.case
    )
    return HookCheckError(
        breach.reason,
        contract=breach.contract,
        point=point,
        listener=None if call is None else call.listener,
        scenario=trial.case.scenario,
        moves=len(trial.case.scenario.moves),
        examples_tried=1 if report is None else report.examples,
        seed=None if report is None else report.seed,
        fixture=fixture.dumps(),
        program=program_of(
            make, trial.case, breach.reason, limits=_spelt(limits), may_raise=limits.may_raise, invariants=properties
        ),
        picture=picture_of(trial.watch.moments, breach),
    )


def _spelt(limits: Limits) -> str:
    """The limits that are not as usual, as arguments of `check_case`."""
    names = {
        "seconds": "most_seconds",
        "seconds_cancelled": "most_seconds_cancelled",
        "retries": "most_retries",
    }
    told = [
        f"{names[name]}={getattr(limits, name)!r}" for name in names if getattr(limits, name) != getattr(USUAL, name)
    ]
    return ", ".join(told)


# -- around a run ------------------------------------------------------------------------------------------------


def _possible(examples: int, backends: Sequence[str]) -> None:
    if examples < 1:
        raise HookFactoryError(f"examples={examples} tries nothing; give a number from 1 on")
    known = get_args(Backend)
    if isinstance(backends, str) or not backends or any(one not in known for one in backends):
        raise HookFactoryError(f"backends={backends!r} names no event loops; give some of {known}, as ('asyncio',)")


def _seed(seed: int | None) -> int:
    if seed is not None:
        return seed
    with suppress(KeyError, ValueError):
        return int(os.environ[SEED])
    return random.SystemRandom().randrange(1 << 32)


def _outside_of_loops() -> None:
    """Runs have event loops of their own, and there is one in a thread."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise HookFactoryError("a check runs event loops of its own; call it from a plain def, and not from an async one")


@contextmanager
def _loops_silent() -> Generator[None]:
    """Within the block, event loops do not complain of what faulty hooks leave behind."""
    log = logging.getLogger("asyncio")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def _unawaited(watch: Watch) -> Generator[None]:
    """Within the block, a coroutine that a listener makes and does not await is a breach; other warnings are lost."""

    def told(message: Warning | str, *_: object, **__: object) -> None:
        call = blamed_now()
        if call is not None and "was never awaited" in str(message):
            watch.breach("awaits", f"{call} does not await what it calls: {message}", call)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = told
        yield
