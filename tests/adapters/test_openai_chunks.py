"""What the decoder makes of the stream: blocks, fragments of calls, finishes. Without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lifecycle_adapters.http_failures import Site
from lifecycle_adapters.openai_chunks import ChatDecoder
from lifecycle_adapters.openai_messages import answer as message_of
from lifecycle_adapters.sse import ServerEvent

from lifecycle.vocabulary.chunks import BlockStart, Chunk, FinishKind, TextDelta, ToolCallDelta, Usage, UsageReport
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.values import FrozenDict
from tests.adapters.asking import Heard

SITE = Site("http://host:1")


def said(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def fragment(index: int | None = 0, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    made = {"index": index, "id": id, "function": {"name": name, "arguments": args}}
    return said({"tool_calls": [{key: value for key, value in made.items() if value is not None}]})


def heard(*events: dict[str, Any] | str, done: bool = True, **options: Any) -> Heard:
    decoder = ChatDecoder(SITE, **options)
    chunks: list[Chunk] = []
    for event in [*events, *(["[DONE]"] if done else [])]:
        chunks += decoder.feed(ServerEvent("", event if isinstance(event, str) else json.dumps(event)))
    return Heard([*chunks, *decoder.finish()])


def calls(*events: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in heard(*events, said(finish=finish)).calls]


def test_text_is_one_block_that_begins_with_its_first_letter() -> None:
    answer = heard(said({"role": "assistant", "content": ""}), said({"content": "He"}), said({"content": "y"}, "stop"))

    assert answer.chunks[:3] == [BlockStart(0, "text"), TextDelta(0, "He"), TextDelta(0, "y")]
    assert answer.finish.kind is FinishKind.STOP


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_block_of_its_own_and_says_where_it_goes_back(field: str) -> None:
    answer = heard(said({field: "why"}), said({"content": "because", field: None}), said(finish="stop"))

    assert (answer.reasoning, answer.text) == ("why", "because")
    assert answer.assembled.replay == ({"reasoning_field": field}, None)


def test_parts_of_a_mistral_answer_are_reasoning_and_text() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}
    answer = heard(said({"content": [thinking, {"type": "text", "text": "because"}]}), said(finish="stop"))

    assert (answer.reasoning, answer.text) == ("why", "because")


def test_a_character_cut_in_two_deltas_is_whole_again() -> None:
    answer = heard(said({"content": "\ud83d"}), said({"content": "\ude42!"}), said({"content": "\ud83d"}, "stop"))

    assert answer.text == "🙂!\ufffd"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("stop", FinishKind.STOP),
        ("end_turn", FinishKind.STOP),
        ("length", FinishKind.MAX_TOKENS),
        ("content_filter", FinishKind.CONTENT_FILTER),
        ("something new", FinishKind.UNKNOWN),
        ("", FinishKind.UNKNOWN),
        (None, FinishKind.UNKNOWN),
    ],
)
def test_finish_reasons_have_our_names(reason: str | None, kind: FinishKind) -> None:
    assert heard(said({"content": "x"}), said(finish=reason)).finish.kind is kind


def test_a_refusal_is_text_and_a_finish_of_its_own() -> None:
    answer = heard(said({"refusal": "I will not."}), said(finish="stop"))

    assert (answer.text, answer.finish.kind) == ("I will not.", FinishKind.REFUSAL)


def test_without_a_terminal_mark_the_answer_is_cut_off_and_may_be_asked_for_again() -> None:
    answer = heard(said({"content": "Hal"}), done=False)

    assert (answer.failure.code, answer.failure.retryable) == (FailureCode.TRANSPORT, True)
    assert answer.text == "Hal"


@pytest.mark.parametrize("reason", ["stop", "tool_calls", None])
def test_an_answer_without_any_content_is_a_failure(reason: str | None) -> None:
    answer = heard(said({"role": "assistant", "content": ""}), said(finish=reason, usage={"prompt_tokens": 3}))

    assert (answer.failure.code, answer.failure.retryable) == (FailureCode.EMPTY_RESPONSE, True)
    assert answer.assembled.usage == Usage(input_tokens=3)


def test_a_content_less_answer_is_none_where_the_ceiling_or_the_caller_says_so() -> None:
    assert heard(said(finish="length")).finish.kind is FinishKind.MAX_TOKENS
    assert heard(said(finish="stop"), empty_is_failure=False).finish.kind is FinishKind.STOP


def test_running_totals_of_usage_are_reported_once() -> None:
    running = [said({"content": "x"}, usage={"prompt_tokens": 35, "completion_tokens": n}) for n in (1, 2, 3)]
    answer = heard(*running, said(finish="stop"))

    reports = [chunk for chunk in answer.chunks if isinstance(chunk, UsageReport)]
    assert reports == [UsageReport(Usage(input_tokens=35, output_tokens=3))]


def test_usage_counts_what_was_cached_and_reasoned_and_nothing_odd() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 10**30,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": -1},
    }
    answer = heard(said({"content": "x"}, "stop"), {"choices": [], "usage": usage})

    assert answer.assembled.usage == Usage(input_tokens=9, output_tokens=0, cache_read_tokens=4)


def test_a_call_streams_under_its_name_and_ends_as_the_block_that_runs() -> None:
    answer = heard(fragment(id="c1", name="add", args='{"a":'), fragment(args="1}"), said(finish="stop"))

    assert [chunk for chunk in answer.chunks if isinstance(chunk, ToolCallDelta)] == [
        ToolCallDelta(0, "c1", "add", '{"a":'),
        ToolCallDelta(0, "c1", "add", "1}"),
    ]
    assert answer.finish.kind is FinishKind.TOOL_CALLS
    assert [(call.id, call.arguments) for call in answer.calls] == [("c1", '{"a":1}')]


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    assert calls(
        fragment(id="a", name="add", args=""), fragment(args='{"n":1}'), fragment(id="b", name="add", args=""),
        fragment(args='{"n":2}'),
    ) == [("a", "add", '{"n":1}'), ("b", "add", '{"n":2}')]  # fmt: skip


def test_interleaved_fragments_go_by_their_index() -> None:
    assert calls(
        fragment(0, "a", "x", ""), fragment(1, "b", "y", ""), fragment(0, args='{"n":'), fragment(1, args='{"m":'),
        fragment(0, args="1}"), fragment(1, args="2}"),
    ) == [("a", "x", '{"n":1}'), ("b", "y", '{"m":2}')]  # fmt: skip


def test_an_id_and_a_name_on_every_fragment_make_one_call() -> None:
    assert calls(
        fragment(0, "a", "x", '{"n":'), fragment(0, "a", "x", '{"m":1}'), fragment(0, "a", "x", "}"),
        fragment(0, "a", "x", ""),
    ) == [("a", "x", '{"n":{"m":1}}')]  # fmt: skip


def test_a_name_in_pieces_is_joined() -> None:
    assert calls(fragment(id="a", name="get_"), fragment(name="weather"), fragment(args="{}")) == [
        ("a", "get_weather", "{}")
    ]


def test_fragments_without_any_index_go_to_the_last_call() -> None:
    assert calls(
        fragment(None, "a", "x", '{"n":'), fragment(None, args="1}"), fragment(None, "b", "y", ""),
        fragment(None, args="{}"),
    ) == [("a", "x", '{"n":1}'), ("b", "y", "{}")]  # fmt: skip


@pytest.mark.parametrize("again", [[fragment(1, "a", "x", '{"n": 1}')],
                                   [fragment(1, "a", "x", ""), fragment(1, args='{"n"'), fragment(1, args=":1}")],
                                   [fragment(0, args='{"n":1}')]])  # fmt: skip
def test_a_call_that_is_said_twice_runs_once(again: list[dict[str, Any]]) -> None:
    assert calls(fragment(0, "a", "x", '{"n":1}'), *again) == [("a", "x", '{"n":1}')]


@pytest.mark.parametrize("rest", [[fragment(1, "dup", "read", '{"p":"b"}')],
                                  [fragment(1, "dup", "read", ""), fragment(1, args='{"p":"b"}')],
                                  [fragment(1, "dup", "read", '{"p"'), fragment(1, "dup", args=':"b"}')]])  # fmt: skip
def test_two_calls_of_one_id_get_two_ids_and_each_time_the_same(rest: list[dict[str, Any]]) -> None:
    assert calls(fragment(0, "dup", "read", '{"p":"a"}'), *rest) == [
        ("dup", "read", '{"p":"a"}'),
        ("dup-2", "read", '{"p":"b"}'),
    ]


def test_two_calls_of_one_id_whose_fragments_interleave_are_told_apart_by_their_index() -> None:
    assert calls(
        fragment(0, "dup", "read", ""), fragment(1, "dup", "read", ""), fragment(0, args='{"p":"a"}'),
        fragment(1, args='{"p":"b"}'),
    ) == [("dup", "read", '{"p":"a"}'), ("dup-2", "read", '{"p":"b"}')]  # fmt: skip


def test_calls_without_ids_are_named_after_their_blocks() -> None:
    text = said({"content": "so"})
    assert calls(text, fragment(name="x", args='{"n":1}'), fragment(name="x", args='{"n":2}')) == [
        ("call-1", "x", '{"n":1}'),
        ("call-2", "x", '{"n":2}'),
    ]


@pytest.mark.parametrize(
    ("args", "raw"), [(None, ""), ("null", "{}"), ({"city": "Øslo"}, '{"city": "Øslo"}'), ("[]", "[]"), ('{"p', '{"p')]
)
def test_arguments_are_kept_as_text(args: Any, raw: str) -> None:
    assert calls(fragment(id="a", name="x", args=args)) == [("a", "x", raw)]


def test_a_ceiling_inside_a_call_leaves_no_call() -> None:
    assert calls(fragment(id="a", name="x", args='{"p": "cu'), finish="length") == []


def test_replay_state_lines_up_although_a_repeated_call_is_dropped() -> None:
    answer = heard(
        said({"reasoning": "hm"}), fragment(0, "a", "x", "{}"), fragment(1, "a", "x", "{}"), said(finish="stop")
    )

    assert len(answer.calls) == 1
    assert answer.assembled.replay == ({"reasoning_field": "reasoning"}, None)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"message": "backend exploded", "code": 500}}, FailureCode.SERVER),
        ({"object": "error", "message": "maximum context length is 8", "code": 400}, FailureCode.CONTEXT_OVERFLOW),
        ('{"choices":[{"ind', FailureCode.PROTOCOL),
        ("[1]", FailureCode.PROTOCOL),
        ("[" * 100_000, FailureCode.PROTOCOL),
        (said(finish="insufficient_system_resource"), FailureCode.SERVER),
    ],
)
def test_a_failure_in_the_stream_ends_it_and_what_follows_is_not_heard(
    event: dict[str, Any] | str, code: FailureCode
) -> None:
    answer = heard(said({"content": "Alpha"}), event, *([said({"content": "gamma"})] if code != "SERVER" else []))

    assert answer.failure.code == code
    assert answer.text == "Alpha"


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": [None, 3]},
        {"choices": [{"index": 1, "delta": {"content": "of another choice"}}]},
        said({"content": 3, "tool_calls": [None, 3], "function_call": "x", "refusal": 3}),
        {"choices": [{"delta": 3, "finish_reason": 3}], "usage": "much"},
        {"choices": [], "prompt_filter_results": []},
    ],
)
def test_what_makes_no_sense_is_passed_over(odd: dict[str, Any]) -> None:
    assert heard(odd, said({"content": "x"}, "stop")).text == "x"


def test_the_older_form_of_a_call_is_understood() -> None:
    assert calls(
        said({"function_call": {"name": "now", "arguments": "{"}}), said({"function_call": {"arguments": "}"}})
    ) == [("call-0", "now", "{}")]


def test_ten_thousand_fragments_take_linear_time() -> None:
    many = [fragment(0, "a", "x", "a" * 100) for _ in range(10_000)]

    assert len(calls(*many)[0][2]) == 1_000_000


def detail(kind: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", "index": at, **more}


def test_reasoning_details_are_joined_from_their_pieces_and_go_back_whole() -> None:
    answer = heard(
        said({"reasoning": "wh", "reasoning_details": [detail("text", text="wh", format="f", signature=None)]}),
        said({"reasoning": "y", "reasoning_details": [detail("text", text="y")]}),
        said({"reasoning_details": [detail("text", text="", signature="sig")]}),
        said({"reasoning_details": [detail("encrypted", 1, data="e1", id="call_1")]}),
        said({"reasoning_details": [detail("encrypted", 2, data="e2")]}),
        fragment(id="call_1", name="f", args="{}"),
        said(finish="tool_calls"),
    )

    assert answer.reasoning == "why"
    assert sent_back(answer)["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "why", "format": "f", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "e1", "id": "call_1"},
        {"type": "reasoning.encrypted", "index": 2, "data": "e2"},
    ]
    assert "reasoning_details" not in sent_back(answer, model="another")


def test_reasoning_details_that_show_nothing_go_back_too() -> None:
    answer = heard(said({"reasoning_details": [detail("encrypted", data="e")]}), said({"content": "x"}, "stop"))

    assert (answer.reasoning, answer.text) == ("", "x")
    assert sent_back(answer)["reasoning_details"] == [detail("encrypted", data="e")]


def test_what_google_wants_back_with_a_call_goes_back_with_it() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}
    answer = heard(said({"tool_calls": [first]}), fragment(1, "b", "g", "{}"), said(finish="stop"))

    assert [call.get("extra_content") for call in sent_back(answer)["tool_calls"]] == [extra, None]


def sent_back(given: Heard, model: str = "m") -> dict[str, Any]:
    source = FrozenDict(provider="p", model="m")
    message = AssistantMessage(content=given.assembled.blocks, source=source, replay=given.assembled.replay)
    spelt: dict[str, Any] = json.loads(json.dumps(message_of(message, "p", model)))
    return spelt
