"""Values: what JSON carries without loss, and what is refused with the path to it."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from pydantic import Field, ValidationError

from lifecycle.errors import NotJsonError
from lifecycle.vocabulary.failures import Completed, Failure
from lifecycle.vocabulary.messages import TextBlock
from lifecycle.vocabulary.requests import CallConfig
from lifecycle.vocabulary.values import FrozenDict, Json, Value, freeze, freeze_object, mend, trusted

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


# -- values of a class ------------------------------------------------------------------------------------------------


class Parcel(Value, frozen=True):
    """What a plug-in may declare."""

    weight_in_kg: float = Field(gt=0)
    labels: tuple[str, ...] = ()
    parts: list[str] = field(default_factory=lambda: ["lid"])
    content: Json = None


def test_a_value_is_checked_when_it_is_made_and_cannot_change() -> None:
    parcel = Parcel(weight_in_kg=2, labels=["fragile"], content={"a": [1]})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # becomes a tuple

    assert parcel.labels == ("fragile",)
    assert parcel.content == {"a": (1,)}
    assert parcel.to_json() == {"weightInKg": 2.0, "labels": ("fragile",), "parts": ("lid",), "content": {"a": (1,)}}
    with pytest.raises(ValidationError, match="greater than 0"):
        Parcel(weight_in_kg=-1)
    with pytest.raises(ValidationError, match="Unexpected keyword"):
        Parcel.model_validate({"weightInKg": 1, "height": 2})
    with pytest.raises(ValidationError, match="frozen"):
        parcel.labels = ()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # what the test is about
    with pytest.raises(ValidationError, match="frozen"):
        del parcel.labels  # pyright: ignore[reportAttributeAccessIssue]  # as above
    with pytest.raises(AttributeError):
        object.__setattr__(parcel, "height", 2)  # nor can anything be hung on it


def test_a_copy_of_a_value_has_other_fields_and_no_further_ones() -> None:
    parcel = Parcel(weight_in_kg=2)

    assert parcel.model_copy(update={"labels": ("heavy",)}) == Parcel(weight_in_kg=2, labels=("heavy",))
    assert copy.deepcopy(parcel) is parcel
    assert pickle.loads(pickle.dumps(parcel)) == parcel
    with pytest.raises(TypeError, match="Parcel has no height; it has weight_in_kg, labels"):
        parcel.model_copy(update={"height": 3})


def test_a_trusted_value_equals_one_that_was_checked() -> None:
    made = trusted(TextBlock)(text="x")

    assert trusted(Completed)() == Completed()  # whose field is called `kind`
    assert made == TextBlock(text="x")
    assert hash(made) == hash(TextBlock(text="x"))
    assert repr(made) == "TextBlock(type='text', text='x')"
    assert made.to_json() == TextBlock(text="x").to_json()
    with pytest.raises(ValidationError, match="frozen"):
        made.text = "y"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # what the test is about
