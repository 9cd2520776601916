"""How a request of ours is spelt on the Messages wire."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_adapters.anthropic_messages import DEFAULT_MAX_TOKENS, AnthropicMessages
from lifecycle_adapters.anthropic_request import encode

from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.messages import (
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
from tests.adapters.conversation import CONFIG, Spelling, answer, result

CACHED = {"cache_control": {"type": "ephemeral"}}

spelt = Spelling(encode, CallConfig(provider="p", model="m", max_tokens=100), cache=False)


def test_a_plain_request() -> None:
    assert spelt() == {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
        "max_tokens": 100,
    }


def test_the_results_of_a_batch_are_one_user_message_before_what_was_said_meanwhile() -> None:
    calls = (ToolCallBlock(id="a", name="f", arguments='{"x":1}'), ToolCallBlock(id="b", name="g", arguments=""))
    messages = spelt(
        user_message("go"),
        answer(TextBlock(text="I look."), *calls),
        result("a", TextBlock(text="1")),
        user_message("and hurry"),
        result("b", ImageBlock(data="aGk="), is_error=True),
    )["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"][1:] == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": [picture], "is_error": True},
        {"type": "text", "text": "and hurry"},
    ]


def test_calls_stand_last_in_their_message_and_what_is_no_object_is_wrapped() -> None:
    call = ToolCallBlock(id="functions.read:0", name="no such tool", arguments='{"x"')
    (_, message, results) = spelt(
        user_message("go"), answer(call, TextBlock(text="Look.")), result("functions.read:0", TextBlock(text="bad"))
    )["messages"]

    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    used = message["content"][1]
    assert used["input"] == {"invalid_arguments": '{"x"'}
    assert used["name"] == "no_such_tool"
    assert used["id"] == results["content"][0]["tool_use_id"] == "functions_read_0_9a062ddf"


def test_thinking_goes_back_only_to_the_model_that_thought_it_and_only_signed() -> None:
    thought = ReasoningBlock(text="hm")
    entry = freeze_object({"block": {"type": "thinking", "thinking": None, "signature": "s"}})
    said = TextBlock(text="ok")
    signed = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "ok"}]

    def sent(replay: tuple[Any, ...] | None, **source: str) -> object:
        return spelt(user_message("go"), answer(thought, said, replay=replay, **source))["messages"][1]["content"]

    assert sent((entry, None), provider="p", model="m") == signed
    assert sent((entry, None), provider="p", model="other") == signed[1:]
    assert sent((entry, None), provider="other", model="m") == signed[1:]
    assert sent(None, provider="p", model="m") == signed[1:]
    assert sent((entry,), provider="p", model="m") == signed[1:]


def test_nothing_blank_is_sent_for_it_would_be_refused() -> None:
    messages = spelt(user_message("  "), answer(TextBlock(text="")), user_message("go"))["messages"]

    assert messages == [{"role": "user", "content": [{"type": "text", "text": "go"}]}]


def test_the_prompt_stands_on_top_and_the_stable_prefix_is_marked_for_the_cache() -> None:
    tool = ToolSpec(name="f", description="does", input_schema=freeze_object({"type": "object"}))
    body = spelt(
        SystemMessage(content=text("be brief")),
        user_message("go"),
        SystemMessage(content=text("be briefer")),
        tools=(tool,),
        cache=True,
    )

    assert body["system"] == [{"type": "text", "text": "be brief"}, {"type": "text", "text": "be briefer", **CACHED}]
    assert body["tools"] == [{"name": "f", "description": "does", "input_schema": {"type": "object"}}]
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "go", **CACHED}]
    assert spelt(tools=(tool,), cache=True)["tools"][0]["cache_control"] == {"type": "ephemeral"}


def test_the_configuration_is_spelt_in_the_words_of_the_wire() -> None:
    options = FrozenDict(thinking={"type": "adaptive"}, temperature=None, prefill="{")
    config = CONFIG.model_copy(update={"effort": "high", "temperature": 0.5, "options": options})
    body = spelt(config=config)

    assert body["output_config"] == {"effort": "high"}
    assert body["thinking"] == {"type": "adaptive"}
    assert "temperature" not in body
    assert body["messages"][-1] == {"role": "assistant", "content": "{"}


@pytest.mark.parametrize(
    "given", ["http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/messages", "http://h/v1/messages/"]
)
def test_a_base_url_is_taken_in_any_of_its_spellings(given: str) -> None:
    assert str(AnthropicMessages.base(given)) == "http://h/v1"


def test_the_ceiling_that_the_wire_wants_is_filled_in_and_named() -> None:
    prepared = AnthropicMessages("http://h", "m", env=None).prepare(CallConfig(provider="p", model="m"), CancelSignal())

    assert prepared.config.max_tokens == DEFAULT_MAX_TOKENS
    assert prepared.defaults == ("max_tokens",)
