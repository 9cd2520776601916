"""What the decoder of the Messages wire makes of its events. Without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lifecycle_adapters.anthropic_events import MessagesDecoder
from lifecycle_adapters.anthropic_request import content_of
from lifecycle_adapters.http_failures import Site
from lifecycle_adapters.sse import ServerEvent

from lifecycle.vocabulary.chunks import Chunk, FinishKind, Usage
from lifecycle.vocabulary.messages import AssistantMessage
from tests.adapters.asking import Heard

SITE = Site("http://host:1")
END: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def start(at: int | None, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": at, "content_block": block}


def delta(at: int | None, kind: str, **said: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": at, "delta": {"type": kind, **said}}


def text(at: int | None, said: str) -> dict[str, Any]:
    return delta(at, "text_delta", text=said)


def argue(at: int | None, piece: str) -> dict[str, Any]:
    return delta(at, "input_json_delta", partial_json=piece)


def stop(at: int | None) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": at}


def call(at: int, *pieces: str, id: str = "toolu_1", name: str = "read", **block: Any) -> list[dict[str, Any]]:
    begun = start(at, type="tool_use", id=id, name=name, input={}, **block)
    return [begun, *(argue(at, piece) for piece in pieces), stop(at)]


def ended(reason: str | None, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason, **more}}, {"type": "message_stop"}]


def heard(*events: dict[str, Any]) -> Heard:
    decoder = MessagesDecoder(SITE)
    chunks: list[Chunk] = []
    for event in events:
        chunks += decoder.feed(ServerEvent(str(event.get("type", "")), json.dumps(event)))
    return Heard([*chunks, *decoder.finish()])


def sent_back(answer: Heard) -> list[dict[str, Any]]:
    message = AssistantMessage(content=answer.assembled.blocks, replay=answer.assembled.replay)
    return list(json.loads(json.dumps(content_of(message, "p", "m"))))


def calls(*events: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in heard(*events, *ended("tool_use")).calls]


def test_thinking_goes_back_with_its_signature_and_what_has_no_text_too() -> None:
    blocks = [
        [start(0, type="thinking", thinking="", signature=""), delta(0, "thinking_delta", thinking="I ")],
        [delta(0, "thinking_delta", thinking="see"), delta(0, "signature_delta", signature="c2ln"), stop(0)],
        [start(1, type="redacted_thinking", data="RU5D"), stop(1)],
        [start(2, type="text", text=""), text(2, "Done."), stop(2)],
    ]
    answer = heard(*(event for block in blocks for event in block), *END)

    assert (answer.reasoning, answer.text) == ("I see", "Done.")
    assert sent_back(answer) == [
        {"type": "thinking", "thinking": "I see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "RU5D"},
        {"type": "text", "text": "Done."},
    ]


def test_the_servers_own_tools_go_back_as_they_came_and_are_no_calls_of_ours() -> None:
    result = {"tool_use_id": "srv_1", "content": [{"type": "web_search_result", "url": "http://x"}]}
    answer = heard(
        start(0, type="server_tool_use", id="srv_1", name="web_search", input={}),
        argue(0, '{"query":'),
        argue(0, '"x"}'),
        stop(0),
        start(1, type="web_search_tool_result", **result),
        stop(1),
        start(2, type="text", text="", citations=[]),
        text(2, "So it is."),
        delta(2, "citations_delta", citation={"type": "web_search_result_location", "url": "http://x"}),
        stop(2),
        *ended("pause_turn"),
    )

    assert (answer.calls, answer.text, answer.reasoning) == ([], "So it is.", "")
    assert answer.finish.kind is FinishKind.PAUSE
    assert sent_back(answer) == [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", **result},
        {
            "type": "text",
            "text": "So it is.",
            "citations": [{"type": "web_search_result_location", "url": "http://x"}],
        },
    ]


def test_a_block_with_deltas_that_nobody_knows_is_passed_over_for_it_cannot_be_sent_back_whole() -> None:
    answer = heard(start(0, type="widget", w=1), delta(0, "widget_delta", w=2), stop(0), text(1, "Hello"), *END)

    assert answer.text == "Hello"
    assert sent_back(answer) == [{"type": "text", "text": "Hello"}]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("end_turn", FinishKind.STOP),
        ("stop_sequence", FinishKind.STOP),
        ("max_tokens", FinishKind.MAX_TOKENS),
        ("model_context_window_exceeded", FinishKind.MAX_TOKENS),
        ("refusal", FinishKind.REFUSAL),
        ("pause_turn", FinishKind.PAUSE),
        ("something_new", FinishKind.UNKNOWN),
        (None, FinishKind.UNKNOWN),
    ],
)
def test_every_reason_has_a_name_of_ours(reason: str | None, kind: FinishKind) -> None:
    assert heard(text(0, "x"), *ended(reason)).finish.kind is kind


def test_the_details_of_a_stop_are_kept() -> None:
    assert heard(text(0, "x"), *ended("stop_sequence", stop_sequence="###")).finish.extra == {
        "said": "stop_sequence",
        "stop_sequence": "###",
    }


def test_calls_whose_reason_says_stop_are_asked_for_all_the_same() -> None:
    assert heard(*call(0, "{}"), *END).finish.kind is FinishKind.TOOL_CALLS


def test_blocks_may_overlap_and_share_an_index_one_after_the_other() -> None:
    overlapping = [start(0, type="tool_use", id="a", name="f"), start(1, type="tool_use", id="b", name="g")]
    overlapping += [argue(1, '{"x":1'), argue(0, '{"y":'), argue(1, "}"), argue(0, "2}"), stop(0), stop(1)]
    assert calls(*overlapping) == [("a", "f", '{"y":2}'), ("b", "g", '{"x":1}')]
    assert calls(*call(0, '{"x":1}', id="a"), *call(0, '{"y":2}', id="b")) == [
        ("a", "read", '{"x":1}'),
        ("b", "read", '{"y":2}'),
    ]


def test_without_indexes_a_delta_belongs_to_the_block_that_began_last() -> None:
    events = [start(None, type="tool_use", id="a", name="f"), argue(None, "{}"), stop(None)]
    assert calls(*events, start(None, type="tool_use", id="b", name="g"), argue(None, '{"x":1}'), stop(None)) == [
        ("a", "f", "{}"),
        ("b", "g", '{"x":1}'),
    ]


def test_one_id_of_two_calls_is_made_two_and_a_repeated_call_is_one() -> None:
    assert calls(*call(0, '{"p":1}'), *call(1, '{"p":2}')) == [
        ("toolu_1", "read", '{"p":1}'),
        ("toolu_1-1", "read", '{"p":2}'),
    ]
    assert calls(*call(0, '{"p":1}'), *call(1, '{"p": 1}')) == [("toolu_1", "read", '{"p":1}')]
    assert [id for id, _, _ in calls(*call(0, "{}", id=""), *call(1, "{}", id=""))] == ["call-0", "call-1"]


def test_input_that_came_with_the_start_counts_unless_deltas_say_it() -> None:
    whole = start(0, type="tool_use", id="a", name="f", input={"q": "x"})
    assert calls(whole, stop(0)) == [("a", "f", '{"q": "x"}')]
    assert calls(whole, argue(0, '{"q":"x"}'), stop(0)) == [("a", "f", '{"q":"x"}')]


def test_no_call_of_a_cut_answer_or_of_one_that_reached_its_limit_is_left() -> None:
    begun = [start(0, type="tool_use", id="a", name="f"), argue(0, '{"q":')]
    assert heard(*begun).failure.code == "TRANSPORT"
    assert heard(*call(0, "{}")).failure.retryable is True
    assert heard(*begun, *ended("max_tokens")).calls == []


def test_a_call_that_was_never_finished_does_not_run_whatever_the_end_says() -> None:
    begun = start(0, type="tool_use", id="a", name="f", input={})

    assert heard(begun, *ended("tool_use")).failure.code == "PROTOCOL"
    assert [call.arguments for call in heard(begun, argue(0, '{"q"'), *ended("tool_use")).calls] == ['{"q"']
    assert heard(argue(0, "{}"), *ended("tool_use")).failure.code == "PROTOCOL"


def test_counts_are_totals_of_which_the_last_ones_hold() -> None:
    usage = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 7}
    answer = heard(
        {"type": "message_start", "message": {"usage": usage}},
        text(0, "ok"),
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 5}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )

    assert answer.assembled.usage == Usage(input_tokens=32, output_tokens=9, cache_read_tokens=7)


def test_an_answer_without_anything_in_it_is_empty_and_thinking_is_something() -> None:
    assert heard(*END).failure.code == "EMPTY_RESPONSE"
    assert heard(start(0, type="text", text=""), stop(0), *END).failure.code == "EMPTY_RESPONSE"
    thought = [start(0, type="thinking", thinking=""), delta(0, "thinking_delta", thinking="hm"), stop(0)]
    assert heard(*thought, *END).reasoning == "hm"
    assert heard(*ended("refusal")).finish.kind is FinishKind.REFUSAL


@pytest.mark.parametrize(
    ("kind", "code", "retryable"),
    [
        ("overloaded_error", "OVERLOADED", True),
        ("rate_limit_error", "RATE_LIMIT", True),
        ("api_error", "SERVER", True),
        ("timeout_error", "SERVER", True),
        ("invalid_request_error", "INVALID_REQUEST", False),
        ("not_found_error", "INVALID_REQUEST", False),
        ("authentication_error", "AUTH", False),
        ("permission_error", "AUTH", False),
        ("billing_error", "QUOTA", False),
        ("request_too_large", "CONTEXT_OVERFLOW", False),
    ],
)
def test_an_error_within_the_stream_has_its_class(kind: str, code: str, retryable: bool) -> None:
    failure = heard(text(0, "Par"), {"type": "error", "error": {"type": kind, "message": "it broke"}}).failure

    assert (failure.code, failure.retryable) == (code, retryable)
    assert "it broke" in failure.message


def test_a_ping_brings_nothing_forward_and_a_delta_does() -> None:
    decoder = MessagesDecoder(SITE)
    assert [*decoder.feed(ServerEvent("ping", '{"type":"ping"}'))] == []
    assert decoder.moved is False
    assert [*decoder.feed(ServerEvent("", json.dumps(text(0, "x"))))]
    assert decoder.moved is True


def test_what_a_log_cannot_keep_is_not_kept_for_sending_back() -> None:
    answer = heard(start(0, type="redacted_thinking", data=10**30), stop(0), text(1, "\ud800 ok"), *END)

    assert answer.text == "\ufffd ok"
    assert sent_back(answer) == [{"type": "text", "text": "\ufffd ok"}]
