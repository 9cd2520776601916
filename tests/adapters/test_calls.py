"""What becomes of calls that a stream tells more than once, and of thousands of them under one id."""

from __future__ import annotations

import pytest
from lifecycle_adapters import calls
from lifecycle_adapters.calls import CallText, settled
from lifecycle_adapters.decoding import json_object

from lifecycle.vocabulary.messages import ToolCallBlock


def ran(*told: tuple[str, str, str]) -> list[tuple[str, str]]:
    """The ids and arguments of the calls that are left."""
    blocks = [end.block for end in settled(CallText(at, *one) for at, one in enumerate(told))]
    return [(block.id, block.arguments) for block in blocks if isinstance(block, ToolCallBlock)]


def test_a_call_that_is_told_again_is_one_however_it_is_spelt() -> None:
    assert ran(("a", "f", '{"x": 1, "y": 2}'), ("a", "f", '{"y":2,"x":1}'), ("a", "f", "  ")) == [
        ("a", '{"x": 1, "y": 2}')
    ]


def test_calls_that_share_an_id_by_mistake_keep_one_each() -> None:
    assert ran(("a", "f", '{"x":1}'), ("a", "f", '{"x":2}'), ("a", "g", '{"x":1}'), ("", "f", "{}")) == [
        ("a", '{"x":1}'),
        ("a-1", '{"x":2}'),
        ("a-2", '{"x":1}'),
        ("call-3", "{}"),
    ]


def test_thousands_of_calls_with_one_id_are_each_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(text: str) -> object:
        read.append(text)
        return json_object(text)

    monkeypatch.setattr(calls, "json_object", counted)

    assert len(ran(*(("a", "f", f'{{"x":{n}}}') for n in range(2_000)))) == 2_000
    assert len(read) == 2_000
