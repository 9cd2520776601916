"""Checking hooks: faulty ones are found, made small and fail again; what is in order raises no alarm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Enter, HookPoint, Hooks, Reject, Retry, ToolOutcome
from lifecycle.errors import CoverageError, HookCheckError, HookFactoryError
from lifecycle.services.points import POINTS, Mode, StepPayload
from lifecycle.testing import (
    Case,
    Fixture,
    Move,
    Report,
    Scenario,
    Simulated,
    check_case,
    check_hooks,
    invariant,
)
from lifecycle.vocabulary.messages import text
from tests.pictures.judge import parsed

Next = Callable[..., Awaitable[Any]]


def found(factory: Callable[[], Hooks], **options: Any) -> HookCheckError:
    with pytest.raises(HookCheckError) as caught:
        check_hooks(factory, examples=60, seed=1, **options)
    return caught.value


# -- faulty hooks ---------------------------------------------------------------------------------------------------


def forgets_to_return() -> Hooks:
    hooks = Hooks()

    @hooks.on("tools/post-execute")
    async def look(payload: Any, next: Next) -> Any:
        await next()

    return hooks


def asks_twice() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/request")
    async def shape(payload: Any, next: Next) -> Any:
        await next()
        try:
            return await next()
        except Exception:
            return await next()

    return hooks


def forgets_to_await() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def enter(payload: Any, next: Next) -> Any:
        _ = next()  # that is the mistake
        return Enter(payload.messages)

    return hooks


def changes_the_payload() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def reverse(payload: Any, next: Next) -> Any:
        object.__setattr__(payload, "messages", payload.messages[::-1] + payload.messages)
        return await next()

    return hooks


def retries_for_ever() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/request-error")
    async def again(payload: Any, next: Next) -> Any:
        return Retry()

    return hooks


def steers_for_ever() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/turn-stopping")
    async def more(payload: Any) -> None:
        payload.agent.steer("go on")

    return hooks


def swallows_cancellation() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/step-boundary")
    async def look_up(payload: Any) -> None:
        try:
            await anyio.sleep(1)
        except BaseException:
            return  # also from what must go on

    return hooks


def goes_on_after_a_cancel() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/turn-stopping")
    async def wait(payload: Any) -> None:
        await anyio.sleep(60)

    return hooks


def blocks() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/status")
    def pause(payload: Any) -> None:
        import time

        time.sleep(60)

    return hooks


def waits_for_nothing() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/model")
    async def choose(payload: Any, next: Next) -> Any:
        await anyio.sleep_forever()
        return await next()

    return hooks


def leaks_a_task() -> Hooks:
    hooks = Hooks()
    kept: list[object] = []

    @hooks.on("tools/result")
    def later(payload: Any) -> None:
        import asyncio

        kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(1_000)))

    return hooks


def refuses_the_end() -> Hooks:
    hooks = Hooks()

    @hooks.on("session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "turn/end":
            raise PermissionError("not yet")

    return hooks


def reads_what_is_not_there() -> Hooks:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def trim(payload: Any, next: Next) -> Any:
        answer = await next()
        return answer.with_messages(answer.messages[-1:])  # another hook may have rejected

    return hooks


FAULTY = {
    forgets_to_return: ("verdict", "tools/post-execute"),
    asks_twice: ("next", "agent/request"),
    forgets_to_await: ("next", "agent/pre-step"),
    changes_the_payload: ("frozen", "agent/pre-step"),
    retries_for_ever: ("retry", "agent/request-error"),
    steers_for_ever: ("comes_to_rest", "agent/turn-stopping"),
    swallows_cancellation: ("cancellation", "agent/step-boundary"),
    goes_on_after_a_cancel: ("deadline", "agent/turn-stopping"),
    blocks: ("blocking", "agent/status"),
    waits_for_nothing: ("comes_to_rest", "agent/model"),
    leaks_a_task: ("comes_to_rest", "tools/result"),
    refuses_the_end: ("veto", "session/append"),
    reads_what_is_not_there: ("raises", "agent/pre-step"),
}


@pytest.mark.parametrize("factory", FAULTY, ids=lambda factory: factory.__name__)
def test_a_faulty_hook_is_found_made_small_and_fails_again(factory: Callable[[], Hooks]) -> None:
    error = found(factory)

    assert (error.contract, error.point) == FAULTY[factory]
    assert error.moves == len(error.scenario.moves) <= 3
    assert error.examples_tried <= 60
    parsed(error.picture)
    assert "rect " in error.picture

    with pytest.raises(HookCheckError) as again:
        check_case(factory, Fixture.loads(error.fixture).case)
    assert (again.value.contract, again.value.reason) == (error.contract, error.reason)


def test_the_program_of_a_failure_runs_by_itself_and_fails_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from lifecycle import Hooks\n\n\ndef build():\n    hooks = Hooks()\n\n"
        "    @hooks.on('agent/status')\n    def broken(payload):\n        return payload.state\n\n"
        "    return hooks\n\n\n"
        "if __name__ == '__main__':\n    from lifecycle.testing import check_hooks\n\n"
        "    try:\n        check_hooks(build, examples=5)\n    except AssertionError as error:\n"
        "        open('repro.py', 'w').write(error.program)\n        print(error.reason)\n",
        encoding="utf-8",
    )

    def run(file: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    reason = run("mine.py").stdout.strip()
    again = run("repro.py")

    assert "broken at agent/status raises AttributeError" in reason
    assert again.returncode == 1
    assert f"HookCheckError: {reason}" in again.stderr


def test_the_error_tells_all_that_is_needed_to_run_it_again() -> None:
    error = found(forgets_to_return)

    assert "lost" not in error.reason
    for part in (error.reason, error.program, error.fixture, error.picture, f"seed {error.seed}"):
        assert part in str(error)
    assert json.loads(error.fixture)["hooks"].endswith(":forgets_to_return")


def test_state_that_outlives_an_example_is_told_from_a_fault_of_the_scenario() -> None:
    runs: list[object] = []

    def build() -> Hooks:
        hooks = Hooks()

        @hooks.on("agent/step-boundary")
        async def boundary(payload: Any) -> None:
            runs.append(payload)
            if len(runs) == 3:
                raise RuntimeError("the third one")

        return hooks

    error = found(build)

    assert error.contract == "fresh"
    assert "keep something" in error.reason


# -- what holds -----------------------------------------------------------------------------------------------------


def orderly() -> Hooks:
    """Each hook is unusual, and in order."""
    hooks = Hooks()

    @hooks.on("agent/request-error")
    async def again(payload: Any, next: Next) -> Any:
        with payload.signal.scope():
            await anyio.sleep(2**payload.attempt)
        return Retry() if payload.attempt < 3 else None

    @hooks.on("agent/pre-step")
    def skip(payload: Any, next: Next) -> Any:
        return next() if payload.turn % 3 else Reject("every third")

    @hooks.on("tools/execute")
    async def limited(payload: Any, next: Next) -> Any:
        with anyio.move_on_after(100):
            return await next()
        return ToolOutcome(text("it took too long"))

    @hooks.on("session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "request/context" and payload.event.seq > 40:
            raise PermissionError("enough")

    @hooks.on("agent/turn-stopping")
    async def checked(payload: Any) -> None:
        payload.signal.raise_if_fired()
        await anyio.sleep(0.5)

    return hooks


def test_hooks_that_are_in_order_raise_no_alarm_on_either_backend() -> None:
    report = check_hooks(orderly, examples=60, seed=1, backends=("asyncio", "trio"))

    assert report.examples == 60
    report.coverage.require(arrows=0.4, verdicts=[("agent/request-error", "Retry"), ("agent/request-error", "None")])


def test_one_seed_makes_one_search() -> None:
    def moves(seed: int) -> list[int]:
        made: list[int] = []

        def progress(report: Report) -> None:
            made.append(report.moves)

        check_hooks(Hooks, examples=32, seed=seed, progress=progress)
        return made

    assert moves(7) == moves(7) != moves(8)


def test_a_property_of_ones_own_is_checked_with_the_rest() -> None:
    @invariant
    def no_second_turn(run: Simulated) -> Iterator[str]:
        for event in run.durable("turn/start"):
            if event.data.turn > 1:  # type: ignore[attr-defined]  # it is a TurnStart
                yield f"turn 2 starts at seq {event.seq}"

    error = found(Hooks, invariants=[no_second_turn])

    assert error.contract == "no_second_turn"
    assert error.moves == 2
    assert error.point is None


def test_what_was_not_reached_is_named() -> None:
    report = check_hooks(forgets_nothing, examples=4, seed=1)

    with pytest.raises(CoverageError, match="no checked hook has answered Deny at tools/guard"):
        report.coverage.require(verdicts=[("tools/guard", "Deny")])
    assert ("tools/guard", "Deny") in report.coverage.missing_verdicts
    assert "tools/guard" in str(report)


def forgets_nothing() -> Hooks:
    hooks = Hooks()

    @hooks.on("tools/guard")
    def guard(payload: Any) -> None:
        return None

    return hooks


def test_hooks_may_raise_what_they_are_said_to_raise() -> None:
    class BudgetError(Exception):
        pass

    def build() -> Hooks:
        hooks = Hooks()

        @hooks.on("agent/model")
        async def choose(payload: Any, next: Next) -> Any:
            raise BudgetError("spent")

        return hooks

    assert found(build).contract == "raises"
    check_hooks(build, examples=12, seed=1, may_raise=[BudgetError])


# -- bad input ------------------------------------------------------------------------------------------------------


async def made_async() -> Hooks:
    return Hooks()


def listens_async_where_nobody_waits() -> Hooks:
    hooks = Hooks()

    async def told(payload: Any) -> None:
        pass

    hooks.listen("agent/status", told)
    return hooks


def needs_an_argument(argument: object) -> Hooks:
    return Hooks()


def listens_at_a_point_of_its_own() -> Hooks:
    hooks = Hooks(points={**POINTS, "agent/budget": HookPoint("agent/budget", Mode.SERIAL, StepPayload)})
    hooks.listen("agent/budget", lambda payload: None)
    return hooks


SHARED = Hooks()


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda: None, "returns None, and no Hooks; does it lack a return"),
        (lambda: 17, "returns 17, and no Hooks"),
        (lambda: 1 / 0, "raises ZeroDivisionError: division by zero"),
        (lambda: SHARED, "returns the same Hooks each time"),
        (needs_an_argument, "cannot be called without arguments"),
        (SHARED, "give the function that makes them"),
        (made_async, "is an async function"),
        (listens_at_a_point_of_its_own, "listens at agent/budget, which the lifecycle that a check runs never"),
        (listens_async_where_nobody_waits, "nobody waits at a point of mode emit; make it a plain def"),
        ("nowhere.at_all:hooks", "the module 'nowhere.at_all' does not import"),
        ("json:hooks", "the module 'json' has no 'hooks'"),
        (json, "the module json has no function `hooks` or `build_hooks`"),
    ],
)
def test_what_makes_no_hooks_is_told_in_one_sentence(factory: Any, says: str) -> None:
    with pytest.raises(HookFactoryError) as refused:
        check_hooks(factory)

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backends": ("curio",)}, "backends=('curio',) names no event loops; give some of ('asyncio', 'trio')"),
        ({"backends": ()}, "backends=() names no event loops"),
        ({"backends": "trio"}, "backends='trio' names no event loops"),
        ({"examples": 0}, "examples=0 tries nothing; give a number from 1 on"),
    ],
)
def test_a_check_that_tries_nothing_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(HookFactoryError) as refused:
        check_hooks(Hooks, **options)

    assert says in str(refused.value)


def test_a_property_that_breaks_down_is_a_breach_of_that_property() -> None:
    @invariant
    def crashes(run: Simulated) -> bool:
        return run.events[1_000_000].seq > 0

    error = found(Hooks, invariants=[crashes])

    assert error.contract == "crashes"
    assert "the property crashes cannot be judged: it raises IndexError" in error.reason
    assert error.moves <= 1


@pytest.mark.anyio
async def test_a_check_within_an_event_loop_is_refused(anyio_backend: str) -> None:
    with pytest.raises(HookFactoryError, match="from a plain def"):
        check_case(Hooks, Case(scenario=Scenario(moves=(Move(),))))
