"""What the requests of all wires share: one call an id, whatever ids the servers gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from lifecycle_adapters import anthropic_request, openai_messages, responses_request
from lifecycle_adapters.spelling import told_apart

from lifecycle.vocabulary.messages import Message, TextBlock, ToolCallBlock, user_message
from lifecycle.vocabulary.requests import CallConfig
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
