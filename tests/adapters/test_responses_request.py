"""How a request of ours is spelt on the Responses wire."""

from __future__ import annotations

from typing import Any

from lifecycle_adapters.responses_request import encode

from lifecycle.vocabulary.messages import (
    AssistantMessage,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    text,
    user_message,
)
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import FrozenDict, freeze_object
from tests.adapters.conversation import CONFIG, Spelling

spelt = Spelling(encode)


def test_a_plain_request_is_stored_nowhere() -> None:
    assert spelt() == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
    }


def test_a_conversation_keeps_its_order() -> None:
    call = ToolCallBlock(id="c" * 70, name="read", arguments='{"path":"a"}')
    done = ToolResultBlock(tool_call_id="c" * 70, content=(TextBlock(text="so"), ImageBlock(url="http://x/y.png")))
    items = spelt(
        SystemMessage(content=text("be brief")),
        user_message("read a"),
        AssistantMessage(content=(TextBlock(text="I look."), call)),
        UserMessage(content=(done,)),
        user_message("and?"),
    )["input"]

    assert [(item["type"], item.get("role")) for item in items] == [
        ("message", "system"),
        ("message", "user"),
        ("message", "assistant"),
        ("function_call", None),
        ("function_call_output", None),
        ("message", "user"),
    ]
    assert items[3]["arguments"] == '{"path": "a"}'
    assert items[3]["call_id"] == items[4]["call_id"]
    assert len(items[3]["call_id"]) <= 64
    assert items[4]["output"] == [
        {"type": "input_text", "text": "so"},
        {"type": "input_image", "detail": "auto", "image_url": "http://x/y.png"},
    ]


def test_reasoning_goes_back_only_to_the_model_that_reasoned() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
    replay = (freeze_object({"item": item}), None)

    def sent(**source: str) -> list[str]:
        message = AssistantMessage(
            content=(ReasoningBlock(text=""), TextBlock(text="ok")), replay=replay, source=FrozenDict(source)
        )
        return [item["type"] for item in spelt(user_message("go"), message)["input"][1:]]

    assert sent(provider="p", model="m") == ["reasoning", "message"]
    assert sent(provider="p", model="other") == ["message"]
    assert sent(provider="other", model="m") == ["message"]


def test_the_configuration_is_spelt_in_the_words_of_the_wire() -> None:
    tool = ToolSpec(name="f", description="does")
    config = CONFIG.model_copy(
        update={"effort": "high", "temperature": 0.5, "max_tokens": 9, "options": FrozenDict(temperature=None, top_p=1)}
    )
    body = spelt(config=config, tools=(tool,))

    assert body["reasoning"] == {"effort": "high"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert (body["max_output_tokens"], body["top_p"], "temperature" in body) == (9, 1, False)
    assert body["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "does",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        }
    ]
