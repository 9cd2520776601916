"""What is read off the source of listeners, and what of it looks wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from lifecycle import Deny, Enter, Hooks, Reject, Retry
from lifecycle.proof.hook_reading import Reading, Warned, read, warnings
from lifecycle.services.callables import name_of
from lifecycle.services.points import POINTS

Next = Callable[..., Awaitable[Any]]


async def passes_on(payload: Any, next: Next) -> Any:
    """It looks, and passes the answer on."""
    decision = await next()
    if decision.enters:
        return decision
    return decision


async def shortcut(payload: Any, next: Next) -> Any:
    return await next()


async def changes(payload: Any, next: Next) -> Any:
    decision = await next()
    return decision.with_messages(()) if decision.enters else decision


async def rejects(payload: Any, next: Next) -> Any:
    if payload.step > 3:
        return Reject("enough")
    return await next()


async def asks_first_then_rejects(payload: Any, next: Next) -> Any:
    try:
        decision = await next()
    except ValueError:
        return Reject("broken")
    return decision if decision.enters else Reject("so be it")


async def never_asks(payload: Any, next: Next) -> Any:
    return Enter(payload.messages)


async def ignores(payload: Any, next: Next) -> Any:
    await next()
    return Enter(payload.messages)


async def names_behind_a_return(payload: Any, next: Next) -> Any:
    return await next()
    return Reject("never")


async def hands_on(payload: Any, next: Next) -> Any:
    return await passes_on(payload, next)


def guards(payload: Any) -> Any:
    return Deny("no") if payload.call.name == "rm" else None


async def looks_at_no_answer(payload: Any, next: Next) -> Any:
    decision = await next()  # noqa: F841  # pyright: ignore[reportUnusedVariable]  # that is the mistake
    return Enter(payload.messages)


def always_guards(payload: Any) -> Any:
    if payload.call.name == "rm":
        return Deny("no")
    return Deny("neither")


class Counting:
    """A callable object, a method, and a partial are read as what they call."""

    async def __call__(self, payload: Any, next: Next) -> Any:
        return await next()

    async def method(self, payload: Any, next: Next) -> Any:
        return Reject("by a method")


async def with_options(most: int, payload: Any, next: Next) -> Any:
    return Reject("enough") if payload.step > most else await next()


@pytest.mark.parametrize(
    ("function", "reading"),
    [
        (passes_on, Reading()),
        (shortcut, Reading()),
        (changes, Reading(changes=True)),
        (rejects, Reading(("Reject",), alone=True, changes=True)),
        (asks_first_then_rejects, Reading(("Reject",), changes=True)),
        (never_asks, Reading(("Enter",), alone=True, never_asks=True, changes=True)),
        (ignores, Reading(("Enter",), ignores=True, changes=True)),
        (looks_at_no_answer, Reading(("Enter",), ignores=True, changes=True)),
        (names_behind_a_return, Reading(("Reject",), unreachable=("Reject",))),
        (hands_on, Reading(changes=True)),
        (Counting(), Reading()),
        (Counting().method, Reading(("Reject",), alone=True, never_asks=True, changes=True)),
        (partial(with_options, 3), Reading(("Reject",), alone=True, changes=True)),
    ],
    ids=lambda value: name_of(value) if callable(value) else "",  # the same in every process
)
def test_a_wrapper_is_read(function: Any, reading: Reading) -> None:
    hooks = Hooks()
    hooks.listen("agent/pre-step", function)

    assert read(POINTS["agent/pre-step"], hooks.listeners("agent/pre-step")[0]) == reading


@pytest.mark.parametrize(
    ("function", "never_asks"), [(guards, False), (always_guards, True)], ids=["guards", "always_guards"]
)
def test_a_guard_is_read(function: Any, never_asks: bool) -> None:
    hooks = Hooks()
    hooks.listen("tools/guard", function)

    found = read(POINTS["tools/guard"], hooks.listeners("tools/guard")[0])

    assert found == Reading(("Deny",), alone=True, never_asks=never_asks)


def within_a_lambda() -> Any:
    return lambda payload, next: next()  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]


@pytest.mark.parametrize("function", [within_a_lambda(), eval("lambda payload, next: next()")])
def test_what_cannot_be_read_may_do_anything_and_is_not_warned_of(function: Any) -> None:
    hooks = Hooks()
    hooks.listen("agent/pre-step", function)
    hooks.listen("agent/pre-step", changes)

    assert read(POINTS["agent/pre-step"], hooks.listeners("agent/pre-step")[0]) is None
    assert list(warnings(hooks)) == []


def warned(*functions: Any, point: str = "agent/pre-step") -> list[Warned]:
    """What looks wrong where each listener is a set of its own."""
    both = Hooks()
    for n, function in enumerate(functions):
        one = Hooks(name=f"set {n}")
        one.listen(point, function)
        both = both + one
    return list(warnings(both))


def test_a_listener_behind_one_that_never_asks_is_shadowed() -> None:
    (one,) = warned(never_asks, changes, shortcut)

    assert one.finding == "shadowed"
    assert one.sentence.endswith(
        "never_asks never calls next(), so tests.proof.test_hook_reading.changes and "
        "tests.proof.test_hook_reading.shortcut never run there"
    )
    assert warned(changes, never_asks) == []


def test_a_guard_behind_one_that_always_answers_is_shadowed() -> None:
    (one,) = warned(always_guards, guards, point="tools/guard")

    assert one.sentence.endswith(
        "always_guards always answers, so tests.proof.test_hook_reading.guards never runs there"
    )


def test_a_verdict_that_is_thrown_away_or_stands_behind_a_return_is_never_reached() -> None:
    (thrown,) = warned(ignores, rejects)
    (behind,) = warned(names_behind_a_return)

    assert (thrown.finding, behind.finding) == ("unreachable", "unreachable")
    assert "throws away what next() returned, so nothing that" in thrown.sentence
    assert behind.sentence.endswith("names Reject behind a return, where no run comes")


def test_an_order_that_decides_is_told_unless_somebody_has_settled_it() -> None:
    (one,) = warned(rejects, changes)
    assert one.finding == "order"
    assert "rejects may answer without asking" in one.sentence
    assert warned(changes, rejects) == []  # the outer one always asks: it sees whatever the inner one says
    assert warned(rejects, passes_on) == []

    first = Hooks(name="first", before="second")
    second = Hooks(name="second")
    first.listen("agent/pre-step", rejects)
    second.listen("agent/pre-step", changes)
    assert list(warnings(first + second)) == []

    same = Hooks(name="one set")
    same.listen("agent/pre-step", rejects)
    same.listen("agent/pre-step", changes)
    assert list(warnings(same)) == []


def test_a_plain_verdict_of_none_is_an_answer_of_its_own() -> None:
    async def gives_up(payload: Any, next: Next) -> Any:
        if payload.attempt > 3:
            return None
        return await next()

    async def retries(payload: Any, next: Next) -> Any:
        return Retry()

    (one,) = warned(gives_up, retries, point="agent/request-error")
    assert one.finding == "order"


def test_a_place_beside_a_set_that_is_nearly_called_so_is_told() -> None:
    mine, retry = Hooks(name="mine", before="retyr", after="compaction"), Hooks(name="retry", after="compaction")
    mine.listen("agent/pre-step", passes_on)

    (one,) = warnings(mine + retry)
    assert (one.point, one.finding) == ("agent/pre-step", "order")
    assert one.sentence == "mine is to come before 'retyr', which is not there; did you mean 'retry'?"
    assert list(warnings(mine)) == []
