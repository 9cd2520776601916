"""Sets of hooks that say which others they come before and after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import reduce
from itertools import permutations
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Hooks
from lifecycle.errors import HookError, HookOrderError

POINT = "agent/pre-step"


def named(name: str, *, listeners: int = 1, **place: Any) -> Hooks:
    """A set with so many listeners, which are called as the set is."""
    hooks = Hooks(name=name, **place)
    for _ in range(listeners):
        hooks.listen(POINT, listener(name))
    return hooks


def listener(name: str) -> Callable[..., Any]:
    async def listen(payload: object, next: Callable[[], Awaitable[Any]]) -> Any:
        return await next()

    listen.__qualname__ = name
    return listen


def order(hooks: Hooks) -> list[str]:
    return [one.name.rpartition(".")[2] for one in hooks.listeners(POINT)]


def test_what_says_nothing_keeps_the_order_in_which_it_was_added() -> None:
    assert order(named("b") + named("a") + Hooks() + named("c")) == ["b", "a", "c"]


@pytest.mark.parametrize("added", list(permutations("abc")))
def test_the_order_that_sets_ask_for_does_not_depend_on_which_is_added_first(added: tuple[str, ...]) -> None:
    sets = {"a": named("a", after="b"), "b": named("b"), "c": named("c", before=["b"])}
    first, second, third = (sets[name] for name in added)

    assert order(first + second + third) == order(first + (second + third)) == ["c", "b", "a"]


def test_a_set_moves_as_a_whole_and_only_as_far_as_it_must() -> None:
    both = named("x") + named("a", listeners=2) + named("y") + named("b", before="a") + named("z")

    assert order(both) == ["x", "y", "b", "a", "a", "z"]


def test_a_constraint_holds_through_a_set_that_does_not_listen_there() -> None:
    silent = Hooks(name="middle", after="first")

    assert order(named("last", after="middle") + silent + named("first")) == ["first", "last"]


def test_a_name_that_nobody_has_says_nothing() -> None:
    assert order(named("a", after="nobody") + named("b", before="nobody")) == ["a", "b"]


def test_a_later_registration_takes_its_place_too() -> None:
    late = Hooks(name="late", before="a")
    both = named("a") + late
    late.listen(POINT, listener("late"))

    assert order(both) == ["late", "a"]


def test_a_circle_is_an_error_that_names_it_when_the_sets_are_added_up() -> None:
    two = named("a", before="b") + named("b")

    with pytest.raises(HookOrderError) as refused:
        _ = two + named("c", after="b", before="a")

    assert set(refused.value.circle) == {"a", "b", "c"}
    assert "they say 'a' before 'b' before 'c' before 'a'" in str(refused.value)


def test_a_set_that_comes_before_itself_is_refused_at_once() -> None:
    with pytest.raises(HookOrderError, match="'a' before 'a'"):
        Hooks(name="a", before="a")


def test_a_place_needs_a_name() -> None:
    with pytest.raises(HookError, match="need a name"):
        Hooks(before="a")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.booleans()), max_size=6), st.randoms())
def test_every_constraint_holds_or_there_is_a_circle(said: list[tuple[str, str, bool]], random: Any) -> None:
    places: dict[str, dict[str, Any]] = {name: {"before": [], "after": []} for name in "abcd"}
    for one, other, before in said:
        places[one]["before" if before else "after"].append(other)
    pairs = [(one, other) if before else (other, one) for one, other, before in said]
    shuffled = list(places)
    random.shuffle(shuffled)
    if not all(one != other for one, other in pairs):
        return  # refused at once, as another test says
    both = added([named(name, listeners=1, **places[name]) for name in shuffled])
    if isinstance(both, HookOrderError):
        assert all(pair in pairs for pair in zip(both.circle, both.circle[1:], strict=False))
        assert both.circle[0] == both.circle[-1]
    else:
        ran = order(both)
        assert all(ran.index(one) < ran.index(other) for one, other in pairs)


def added(sets: list[Hooks]) -> Hooks | HookOrderError:
    """The sets added up, or why they cannot be."""
    try:
        return reduce(add, sets)
    except HookOrderError as refused:
        return refused
