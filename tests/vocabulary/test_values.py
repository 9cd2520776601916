"""Values: what JSON carries without loss, and what is refused with the path to it."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given

from lifecycle.errors import NotJsonError
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.requests import CallConfig
from lifecycle.vocabulary.values import FrozenDict, freeze, freeze_object, mend

from .strategies import frozen_objects, json_values


class Colour(StrEnum):
    RED = "red"


def _cycle() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "frozen"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("ü\U0001f600", "ü\U0001f600"),
        ([1, [2]], (1, (2,))),
        ((1, 2), (1, 2)),
        ({"a": {"b": [None]}}, {"a": {"b": (None,)}}),
        (Colour.RED, "red"),
    ],
)
def test_what_json_can_carry_is_frozen(value: object, frozen: object) -> None:
    assert freeze(value) == frozen


def test_a_member_of_a_string_enumeration_becomes_a_plain_string() -> None:
    assert type(freeze(Colour.RED)) is str


def test_negative_zero_becomes_zero() -> None:
    assert math.copysign(1.0, freeze_object({"x": -0.0})["x"]) == 1.0


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "", "is nan"),
        ({"a": [1, math.inf]}, "a[1]", "is inf"),
        ({"a": {"b": -math.inf}}, "a.b", "is -inf"),
        (2**63, "", "beyond 64 bit"),
        (-(2**63) - 1, "", "beyond 64 bit"),
        ({1: 2}, "", "no string"),
        ({"a": {"b\ud800": 1}}, "a", "lone surrogate"),
        (["\ud800"], "[0]", "lone surrogate"),
        (b"bytes", "", "type bytes"),
        ({1, 2}, "", "type set"),
        ([object()], "[0]", "type object"),
        (1j, "", "type complex"),
    ],
)
def test_log_02_what_json_cannot_carry_is_refused_with_its_path(value: object, path: str, reason: str) -> None:
    with pytest.raises(NotJsonError, match=reason) as refused:
        freeze(value, "thing")

    assert refused.value.where == "thing"
    assert refused.value.path == path


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(NotJsonError, match="contains itself"):
        freeze(_cycle())


_CHANGES: list[Callable[[Any], object]] = [
    lambda d: d.__setitem__("a", 2),
    lambda d: d.__delitem__("a"),
    lambda d: d.__ior__({"a": 2}),
    lambda d: d.update(a=2),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.clear(),
    lambda d: d.setdefault("b", 2),
]


@pytest.mark.parametrize("change", _CHANGES)
def test_log_01_an_object_that_was_read_back_cannot_be_changed(change: Callable[[Any], object]) -> None:
    frozen = freeze_object({"a": 1})

    with pytest.raises(TypeError, match="cannot be changed"):
        change(frozen)

    assert frozen == {"a": 1}


def test_an_object_that_is_built_directly_is_frozen_and_checked_all_the_same() -> None:
    inner: list[Any] = [1]
    built = FrozenDict(a=inner)
    inner.append(2)

    assert built == {"a": (1,)}
    with pytest.raises(NotJsonError):
        FrozenDict({"a": math.nan})


@given(frozen_objects)
def test_a_frozen_object_is_its_own_copy_hashable_and_survives_pickling(frozen: FrozenDict) -> None:
    assert copy.deepcopy(frozen) is frozen
    assert copy.copy(frozen) is frozen
    assert hash(frozen) == hash(freeze_object(dict(frozen)))
    back = pickle.loads(pickle.dumps(frozen))
    assert back == frozen
    assert type(back) is FrozenDict


@given(json_values)
def test_freezing_twice_changes_nothing(value: Any) -> None:
    assert freeze(freeze(value)) == freeze(value)


def test_mend_replaces_lone_surrogates_and_joins_halves_that_belong_together() -> None:
    assert mend("a\ud800b") == "a�b"
    assert mend("\ud83d\ude00") == "\U0001f600"
    assert mend("plain") == "plain"


def test_a_number_that_json_cannot_carry_is_refused_by_fields_too() -> None:
    with pytest.raises(ValueError, match="finite"):
        CallConfig(temperature=math.nan)
    with pytest.raises(ValueError, match="finite"):
        Failure(message="m", retry_after=math.inf)
