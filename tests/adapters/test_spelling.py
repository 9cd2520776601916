"""What the requests of all wires share: one call an id, whatever ids the servers gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from lifecycle_adapters import anthropic_request, openai_messages, responses_request
from lifecycle_adapters.spelling import told_apart

from lifecycle.vocabulary.messages import Message, TextBlock, ToolCallBlock, user_message
from lifecycle.vocabulary.requests import CallConfig, ToolSpec
from lifecycle.vocabulary.values import FrozenDict
from tests.adapters.conversation import Spelling, answer, result


def chat(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    said = Spelling(openai_messages.encode)(*messages)["messages"]
    asked = [call["id"] for one in said for call in one.get("tool_calls", ())]
    return asked, [one["tool_call_id"] for one in said if one["role"] == "tool"]


def responses(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    said = Spelling(responses_request.encode)(*messages)["input"]
    asked = [one["call_id"] for one in said if one["type"] == "function_call"]
    return asked, [one["call_id"] for one in said if one["type"] == "function_call_output"]


def anthropic(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    config = CallConfig(provider="p", model="m", max_tokens=100)
    said = [
        block for one in Spelling(anthropic_request.encode, config)(*messages)["messages"] for block in one["content"]
    ]
    asked = [one["id"] for one in said if one["type"] == "tool_use"]
    return asked, [one["tool_use_id"] for one in said if one["type"] == "tool_result"]


Ids = Callable[[Sequence[Message]], tuple[list[str], list[str]]]
WIRES = pytest.mark.parametrize("ids", [chat, responses, anthropic])


def step(*ids: str) -> list[Message]:
    calls = [ToolCallBlock(id=id, name="ls", arguments=json.dumps({"n": n})) for n, id in enumerate(ids)]
    return [answer(*calls), *(result(id, TextBlock(text="ok")) for id in ids)]


@WIRES
def test_ids_that_a_server_counts_anew_in_every_answer_go_back_as_one_call_each(ids: Ids) -> None:
    asked, answered = ids([user_message("go"), *step("call-0", "call-1"), *step("call-0"), *step("call-0", "call-1")])

    assert asked == ["call-0", "call-1", "call-0-2", "call-0-3", "call-1-2"]
    assert answered == asked


@WIRES
def test_a_free_id_that_a_later_call_has_is_given_to_neither_twice(ids: Ids) -> None:
    asked, answered = ids([user_message("go"), *step("a"), *step("a"), *step("a-2")])

    assert asked == answered == ["a", "a-2", "a-2-2"]


@WIRES
def test_a_longer_conversation_begins_as_the_shorter_one_did(ids: Ids) -> None:
    short: list[Message] = [user_message("go"), *step("a"), *step("a")]

    assert ids([*short, *step("a-2"), *step("a")])[0][:2] == ids(short)[0]


def test_where_all_ids_differ_nothing_is_made_anew() -> None:
    messages: list[Any] = [user_message("go"), *step("a", "b"), *step("c")]

    assert told_apart(messages) is messages


def names_in(said: dict[str, Any]) -> list[str]:
    """The names of the calls in a request of any wire."""
    turns: list[dict[str, Any]] = [*said.get("messages", ()), *said.get("input", ())]
    parts: list[dict[str, Any]] = [part for turn in turns for part in turn.get("content") or () if "name" in part]
    calls: list[dict[str, Any]] = [call["function"] for turn in turns for call in turn.get("tool_calls", ())]
    return [one["name"] for one in (*turns, *parts, *calls) if "name" in one]


@pytest.mark.parametrize("wire", [openai_messages, responses_request, anthropic_request])
def test_a_name_that_a_model_made_up_is_spelt_so_that_a_provider_takes_it(wire: Any) -> None:
    made_up = ["ls", "my.tool/é", "", "x" * 100]
    calls = [ToolCallBlock(id=f"c{n}", name=name, arguments="{}") for n, name in enumerate(made_up)]
    said = Spelling(wire.encode)(user_message("go"), answer(*calls))

    assert names_in(said) == ["ls", "my_tool__", "unknown", "x" * 64]


@pytest.mark.parametrize("wire", [openai_messages, responses_request])  # the third has one rule for all names
def test_a_tool_that_is_offered_keeps_its_name_whatever_that_is(wire: Any) -> None:
    offered = ToolSpec(name="my.tool", description="", input_schema=FrozenDict())
    call = ToolCallBlock(id="c", name="my.tool", arguments="{}")

    assert names_in(Spelling(wire.encode)(user_message("go"), answer(call), tools=(offered,))) == ["my.tool"]
