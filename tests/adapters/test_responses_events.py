"""What the decoder of the Responses wire makes of its events. Without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lifecycle_adapters.decoding import MOST_BLOCKS
from lifecycle_adapters.http_failures import Site
from lifecycle_adapters.responses_events import ResponsesDecoder
from lifecycle_adapters.responses_request import items_of
from lifecycle_adapters.sse import ServerEvent

from lifecycle.errors import ModelError
from lifecycle.vocabulary.chunks import Chunk, FinishKind, Usage
from lifecycle.vocabulary.messages import AssistantMessage
from tests.adapters.asking import Heard

SITE = Site("http://host:1")


def event(kind: str, **said: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **said}


def function(id: str | None = "fc_1", call_id: str | None = "call_1", **more: Any) -> dict[str, Any]:
    made = {"type": "function_call", "id": id, "call_id": call_id, "name": "read", "arguments": "", **more}
    return {name: value for name, value in made.items() if value is not None}


def message(*texts: str, id: str = "msg_1", kind: str = "output_text", **more: Any) -> dict[str, Any]:
    field = "refusal" if kind == "refusal" else "text"
    return {"type": "message", "id": id, "content": [{"type": kind, field: text} for text in texts], **more}


def added(at: int | None, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.added", output_index=at, item=item)


def closed(at: int | None, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.done", output_index=at, item=item)


def text(said: str, at: int = 0, part: int = 0, id: str = "msg_1") -> dict[str, Any]:
    return event("output_text.delta", output_index=at, content_index=part, item_id=id, delta=said)


def argue(piece: str, at: int = 0, id: str = "fc_1") -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=at, item_id=id, delta=piece)


def argued(whole: str, at: int = 0, id: str = "fc_1") -> dict[str, Any]:
    return event("function_call_arguments.done", output_index=at, item_id=id, arguments=whole)


def over(*output: dict[str, Any], kind: str = "completed", **response: Any) -> dict[str, Any]:
    return event(kind, response={"status": kind, "output": list(output), **response})


def heard(*events: dict[str, Any]) -> Heard:
    decoder = ResponsesDecoder(SITE)
    chunks: list[Chunk] = []
    for said in events:
        chunks += decoder.feed(ServerEvent(str(said.get("type", "")), json.dumps(said)))
    return Heard([*chunks, *decoder.finish()])


def calls(*events: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in heard(*events).calls]


def sent_back(answer: Heard) -> list[dict[str, Any]]:
    sent = AssistantMessage(content=answer.assembled.blocks, replay=answer.assembled.replay)
    return list(json.loads(json.dumps(items_of(sent, "p", "m"))))


ONE = [("call_1", "read", '{"a":1}')]


@pytest.mark.parametrize(
    "events",
    [
        [added(0, function()), argue('{"a"'), argue(":1}"), argued('{"a":1}'), over()],
        [added(0, function()), argued('{"a":1}'), closed(0, function(arguments='{"a":1}')), over()],
        [added(0, function()), argue('{"a"'), closed(0, function(arguments='{"a":1}')), over()],
        [closed(0, function(arguments='{"a":1}')), closed(0, function(arguments='{"a":1}')), over()],
        [over(function(arguments='{"a":1}'))],
        [added(0, function()), argue('{"a"'), over(function(arguments='{"a":1}'))],
        [added(0, function(arguments='{"a"')), argue(":1}"), over()],
        [argue('{"a":1}'), closed(0, function(arguments='{"a":1}')), over()],
        [added(0, function()), added(0, function()), argue('{"a":1}'), over(function(arguments='{"a":1}'))],
        # The id of the item changes from event to event, or is missing, or the index is.
        [added(0, function("x")), argue('{"a"', id="y"), closed(0, function("z", arguments='{"a":1}')), over()],
        [added(0, function(None)), argue('{"a":1}', id=""), closed(0, function(None, arguments='{"a":1}')), over()],
        [added(None, function()), argue('{"a":1}'), closed(None, function(arguments='{"a":1}')), over()],
        [closed(0, function("x", arguments='{"a":1}')), over(function("y", arguments='{"a":1}'))],
        [closed(3, function("x", arguments='{"a":1}')), over(function("y", arguments='{"a":1}'))],
    ],
)
def test_a_call_is_one_call_however_often_and_wherever_it_is_said(events: list[dict[str, Any]]) -> None:
    assert calls(*events) == ONE
    assert heard(*events).finish.kind is FinishKind.TOOL_CALLS


def test_calls_are_told_apart_by_id_by_index_and_by_what_they_say() -> None:
    two = [("call_1", "read", '{"p":1}'), ("call_2", "read", '{"p":2}')]
    one, other = function("a", "call_1"), function("b", "call_2")
    by_id = [added(0, one), added(0, other), argue('{"p":1}', 0, "a"), argue('{"p":2}', 0, "b"), over()]
    assert calls(*by_id) == two
    by_index = [added(0, one), added(1, other), argue('{"p":2}', 1, ""), argue('{"p":1}', 0, ""), over()]
    assert calls(*by_index) == two
    same_id = [closed(0, function("a", arguments='{"p":1}')), closed(1, function("b", arguments='{"p":2}')), over()]
    assert calls(*same_id) == [("call_1", "read", '{"p":1}'), ("call_1-1", "read", '{"p":2}')]


def test_text_is_told_once_and_the_last_word_on_it_wins() -> None:
    events = [
        added(0, message()),
        text("Hel"),
        event("output_text.done", output_index=0, item_id="msg_1", text="Hello"),
    ]
    assert heard(*events, closed(0, message("Hello")), over(message("Hello"))).text == "Hello"
    assert heard(text("Hel"), closed(0, message("Hello")), over()).text == "Hello"
    assert heard(text("Hxl"), closed(0, message("Hello")), over()).text == "Hello"
    assert heard(over(message("Hel", "lo"))).text == "Hello"
    assert heard(text("Hel"), text("lo", part=1), closed(0, message("Hel", "lo")), over()).text == "Hello"


def test_a_refusal_is_text_and_a_finish() -> None:
    said = event("refusal.delta", output_index=0, item_id="msg_1", content_index=0, delta="No.")
    for answer in (heard(said, over()), heard(over(message("No.", kind="refusal")))):
        assert (answer.text, answer.finish.kind) == ("No.", FinishKind.REFUSAL)


def test_reasoning_goes_back_whole_if_it_is_encrypted_and_else_stays() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    summary = event("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=0, delta="hm")
    secret = {**item, "encrypted_content": "xyz"}
    tail = [text("ok", 1), over()]

    answer = heard(added(0, {**item, "summary": []}), summary, closed(0, secret), *tail)
    assert (answer.reasoning, answer.text) == ("hm", "ok")
    assert sent_back(answer) == [secret, {"type": "message", "role": "assistant", "content": "ok"}]
    assert sent_back(heard(summary, closed(0, item), *tail))[0]["type"] == "message"
    silent: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
    assert sent_back(heard(closed(0, silent), *tail))[0] == silent


def test_the_phase_of_a_message_and_the_servers_own_tools_go_back() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    answer = heard(closed(0, search), closed(1, message("Look.", phase="commentary")), over())

    assert (answer.calls, answer.reasoning) == ([], "")
    assert sent_back(answer) == [
        search,
        {"type": "message", "role": "assistant", "content": "Look.", "phase": "commentary"},
    ]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (over(kind="incomplete", incomplete_details={"reason": "max_output_tokens"}), FinishKind.MAX_TOKENS),
        (over(kind="incomplete", incomplete_details={"reason": "content_filter"}), FinishKind.CONTENT_FILTER),
        (over(kind="incomplete", incomplete_details={"reason": "something_new"}), FinishKind.MAX_TOKENS),
        (over(kind="incomplete"), FinishKind.MAX_TOKENS),
        (event("completed", response={"status": "incomplete"}), FinishKind.MAX_TOKENS),
        (over(), FinishKind.STOP),
    ],
)
def test_every_end_has_a_name_of_ours_and_no_call_of_a_cut_answer_is_left(end: Any, kind: FinishKind) -> None:
    assert heard(text("x"), end).finish.kind is kind
    if kind is not FinishKind.STOP:
        assert heard(text("x"), closed(1, function(arguments="{}")), end).calls == []


def test_without_an_end_nothing_is_whole() -> None:
    failure = heard(text("x"), closed(1, function(arguments="{}"))).failure

    assert (failure.code, failure.retryable) == ("TRANSPORT", True)


def test_a_call_that_was_never_finished_does_not_run_whatever_the_end_says() -> None:
    assert heard(added(0, function()), over()).failure.code == "PROTOCOL"
    assert calls(added(0, function()), argue('{"a"'), over()) == [("call_1", "read", '{"a"')]


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": "server_error", "message": "it broke"}, "SERVER", True),
        ({"code": "rate_limit_exceeded", "message": "it broke"}, "RATE_LIMIT", True),
        ({"code": "insufficient_quota", "message": "it broke"}, "QUOTA", False),
        ({"code": "context_length_exceeded", "message": "it broke"}, "CONTEXT_OVERFLOW", False),
        ({"code": "invalid_prompt", "message": "it broke"}, "INVALID_REQUEST", False),
    ],
)
def test_a_failure_has_its_class_wherever_it_stands(error: dict[str, Any], code: str, retryable: bool) -> None:
    for said in (
        event("failed", response={"status": "failed", "error": error}),
        {"type": "error", **error},
        {"type": "error", "error": error},
    ):
        failure = heard(text("Par"), said).failure
        assert (failure.code, failure.retryable) == (code, retryable)
        assert "it broke" in failure.message


def test_usage_is_that_of_the_response() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 2}}

    assert heard(text("x"), over(usage=usage)).assembled.usage == Usage(
        input_tokens=3, output_tokens=4, reasoning_tokens=2
    )


def test_a_response_without_anything_in_it_is_empty() -> None:
    assert heard(over()).failure.code == "EMPTY_RESPONSE"


def test_too_many_blocks_are_a_failure_and_no_load() -> None:
    decoder = ResponsesDecoder(SITE)
    for at in range(MOST_BLOCKS):
        assert [*decoder.feed(ServerEvent("", json.dumps(added(at, function(f"f{at}", f"c{at}")))))]

    with pytest.raises(ModelError, match="more than 4096 blocks"):
        next(decoder.feed(ServerEvent("", json.dumps(added(None, function("x", "y"))))))
