"""How a request of ours is spelt on the Chat Completions wire."""

from __future__ import annotations

import json

import pytest
from lifecycle_adapters.openai_messages import encode

from lifecycle.vocabulary.messages import (
    AssistantMessage,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    text,
    user_message,
)
from lifecycle.vocabulary.requests import CallConfig, ToolSpec
from lifecycle.vocabulary.values import FrozenDict, freeze_object
from tests.adapters.conversation import Spelling, result

spelt = Spelling(encode)


def test_a_plain_request_asks_for_a_stream_with_usage() -> None:
    assert spelt() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_conversation_keeps_its_order_system_messages_in_place() -> None:
    call = ToolCallBlock(id="c1", name="read", arguments='{"path":"a"}')
    messages = spelt(
        SystemMessage(content=text("be brief")),
        user_message("read a"),
        AssistantMessage(content=(TextBlock(text="I look."), call)),
        result("c1", TextBlock(text="contents")),
        SystemMessage(content=text("be briefer")),
        user_message("and?"),
    )["messages"]

    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "system", "user"]
    assert messages[2] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}],
    }
    assert messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "contents"}


@pytest.mark.parametrize("raw", ["", "null", "[]", '"x"', '{"path": "a', "not json", "{" * 100_000])
def test_arguments_that_are_no_object_are_sent_as_one_that_says_so(raw: str) -> None:
    sent = spelt(AssistantMessage(content=(ToolCallBlock(id="c", name="read", arguments=raw),)))["messages"][0]

    arguments = json.loads(sent["tool_calls"][0]["function"]["arguments"])
    assert arguments == ({} if raw in ("", "null") else {"invalid_arguments": raw})
    assert sent["content"] is None


def test_pictures_of_tools_follow_when_all_results_are_out() -> None:
    picture = ImageBlock(media_type="image/png", data="AAAA")
    messages = spelt(
        AssistantMessage(content=(ToolCallBlock(id="a", name="x"), ToolCallBlock(id="b", name="x"))),
        result("a", picture),
        result("b", TextBlock(text="done")),
        user_message([TextBlock(text="see"), ImageBlock(url="https://h/p.png")]),
    )["messages"]

    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert messages[1]["content"] == "(a picture, which follows)"
    assert messages[3]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert messages[4]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://h/p.png"}},
    ]


@pytest.mark.parametrize(("source", "back"), [({"provider": "p"}, True), ({}, True), ({"provider": "q"}, False)])
def test_reasoning_goes_back_in_its_field_to_the_provider_that_wants_it(source: dict[str, str], back: bool) -> None:
    answer = AssistantMessage(
        content=(ReasoningBlock(text="I should call it."), ToolCallBlock(id="c", name="now")),
        source=freeze_object(source),
        replay=(FrozenDict(reasoning_field="reasoning_content"), None),
    )

    assert spelt(answer)["messages"][0].get("reasoning_content") == ("I should call it." if back else None)


def test_reasoning_without_replay_state_stays_here() -> None:
    answer = AssistantMessage(content=(ReasoningBlock(text="hm"), TextBlock(text="yes")))

    assert spelt(answer)["messages"] == [{"role": "assistant", "content": "yes"}]


def test_the_configuration_is_spelt_by_the_wires_names_and_options_come_last() -> None:
    options = freeze_object({"temperature": 0.5, "stop": ["x"], "stream_options": None, "prefill": "So"})
    body = spelt(config=CallConfig(model="m", effort="low", max_tokens=9, temperature=0.1, options=options))

    assert body["reasoning_effort"] == "low"
    assert body["max_tokens"] == 9
    assert body["temperature"] == 0.5
    assert body["stop"] == ["x"]
    assert "stream_options" not in body
    assert "prefill" not in body
    assert body["messages"][-1] == {"role": "assistant", "content": "So"}


def test_tools_are_functions_with_their_schema() -> None:
    schema = freeze_object({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
    tools = spelt(tools=(ToolSpec(name="read", description="Read.", input_schema=schema), ToolSpec(name="now")))[
        "tools"
    ]

    assert tools[0] == {
        "type": "function",
        "function": {"name": "read", "description": "Read.", "parameters": json.loads(json.dumps(schema))},
    }
    assert tools[1]["function"]["parameters"] == {"type": "object", "properties": {}}
