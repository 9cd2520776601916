"""Recorded shapes of responses against the adapter, wherever a folder of them stands beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from lifecycle_adapters.anthropic_messages import AnthropicMessages
from lifecycle_adapters.http_failures import classify
from lifecycle_adapters.http_model import HttpModel
from lifecycle_adapters.http_stream import Timeouts
from lifecycle_adapters.openai_chat import OpenAIChat
from lifecycle_adapters.openai_responses import OpenAIResponses

from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.failures import Failure, FailureCode
from tests.adapters.asking import Heard, ask
from tests.adapters.server import Visit, serving

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "payloads"
RETRY_CAP_SECONDS = 60
WIRES: dict[str, type[HttpModel]] = {
    "openai-chat": OpenAIChat,
    "anthropic-messages": AnthropicMessages,
    "openai-responses": OpenAIResponses,
    "http-error": OpenAIChat,
}
FINISHES = {
    FinishKind.STOP: "stop",
    FinishKind.TOOL_CALLS: "tool_calls",
    FinishKind.MAX_TOKENS: "length",
    FinishKind.CONTENT_FILTER: "content_filter",
    FinishKind.REFUSAL: "refusal",
    FinishKind.PAUSE: "pause",
    FinishKind.UNKNOWN: "unknown",
}
CLASSES = {
    FailureCode.SERVER: "server",
    FailureCode.OVERLOADED: "overloaded",
    FailureCode.RATE_LIMIT: "rate_limit",
    FailureCode.QUOTA: "quota",
    FailureCode.CONTEXT_OVERFLOW: "context_overflow",
    FailureCode.INVALID_REQUEST: "invalid_request",
    FailureCode.AUTH: "auth",
    FailureCode.TRANSPORT: "transport",
    FailureCode.TIMEOUT: "transport",
    FailureCode.PROTOCOL: "protocol",
    FailureCode.EMPTY_RESPONSE: "empty_response",
}


def recorded(*apis: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.expected.json")):
        expected = json.loads(path.read_text())
        if expected["api"] in apis:
            found.append(expected)
    return found


def cases(*apis: str) -> list[Any]:
    found = [pytest.param(case, id=case["file"]) for case in recorded(*apis)]
    return found or [pytest.param(None, id="none", marks=pytest.mark.skip("no folder of payloads beside the checkout"))]


@pytest.mark.parametrize("byte_by_byte", [False, True], ids=["as-recorded", "byte-by-byte"])
@pytest.mark.parametrize("case", cases(*WIRES))
async def test_a_recorded_response_is_understood(case: dict[str, Any], byte_by_byte: bool) -> None:
    body = (FOLDER / case["file"]).read_bytes()
    delivery = case["delivery"]

    async def answer(visit: Visit) -> None:
        if case["file"].endswith(".sse"):
            head = f"HTTP/1.1 {case['http']['status']} OK\r\nContent-Type: {case['http']['content_type']}\r\n"
            await visit.send(f"{head}Connection: close\r\n\r\n".encode())
        await visit.send(*pieces(body, delivery.get("offsets", []), byte_by_byte))
        if delivery["end"] == "hang":
            await visit.gone()
        elif delivery["end"] == "abort":
            await anyio.lowlevel.checkpoint()
            visit.reset()

    with anyio.fail_after(20):
        async with serving(answer) as server:
            timeouts = Timeouts(read_seconds=0.5 if delivery["end"] == "hang" else 10)
            heard = await ask(WIRES[case["api"]](server.base_url, "m-test", "test-key-1", timeouts=timeouts))

    expect = dict(case["expect"])
    if delivery["end"] == "abort":
        del expect["text"]  # a reset may overtake what was sent before it
    problems = [*differences(expect, heard)]
    for other in case.get("accept_also", []):
        if problems and not [*differences(expect | only_compared(other), heard)]:
            return
    assert not problems


@pytest.mark.parametrize("case", cases("overflow-table"))
def test_the_wordings_of_an_overflow_are_told_from_other_refusals(case: dict[str, Any]) -> None:
    rows = json.loads((FOLDER / case["file"]).read_text())
    for row, expected in zip(rows, case["expect"]["rows"], strict=True):
        assert CLASSES[classify(row["status"], row["body"])] == expected["class"], row


def pieces(body: bytes, offsets: list[int], byte_by_byte: bool) -> Iterator[bytes]:
    cuts = range(1, len(body)) if byte_by_byte else offsets
    start = 0
    for cut in [*cuts, len(body)]:
        yield body[start:cut]
        start = cut


def only_compared(other: dict[str, Any]) -> dict[str, Any]:
    error = {name: other[name] for name in ("class", "retry", "after_s") if name in other}
    return {name: value for name, value in other.items() if name in ("outcome", "text", "finish")} | (
        {"error": error} if error else {}
    )


def differences(expect: dict[str, Any], heard: Heard) -> Iterator[str]:
    got = outcome(heard)
    if got != expect["outcome"]:
        yield f"outcome {got}: {heard.finish}"
        return
    for name in ("text", "reasoning"):
        if name in expect and expect[name] != getattr(heard, name):
            yield f"{name}: {getattr(heard, name)!r} for {expect[name]!r}"
    usage = heard.assembled.usage
    spelt = None if usage is None else {"input": usage.input_tokens, "output": usage.output_tokens}
    if "usage" in expect and spelt != expect["usage"]:
        yield f"usage: {spelt} for {expect['usage']}"
    if got == "complete":
        if expect["finish"] != FINISHES[heard.finish.kind]:
            yield f"finish: {heard.finish.kind} for {expect['finish']}"
        yield from differing_calls(expect["tool_calls"], heard)
    if "error" in expect and heard.finish.failure is not None:
        yield from differing_failure(expect["error"], heard.failure)


def outcome(heard: Heard) -> str:
    failure = heard.finish.failure
    if failure is None:
        return "complete"
    if failure.code == FailureCode.EMPTY_RESPONSE:
        return "empty"
    return "truncated" if failure.code in (FailureCode.TRANSPORT, FailureCode.TIMEOUT) else "error"


def differing_calls(expected: list[dict[str, Any]], heard: Heard) -> Iterator[str]:
    if heard.finish.kind is FinishKind.MAX_TOKENS:
        if heard.calls:
            yield "calls although the answer was cut off"
        return
    if len(heard.calls) != len(expected):
        yield f"calls: {heard.calls} for {expected}"
        return
    ids = [call.id for call in heard.calls]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"ids: {ids}"
    for call, wanted in zip(heard.calls, expected, strict=True):
        if isinstance(wanted["id"], str) and call.id != wanted["id"]:
            yield f"id: {call.id} for {wanted['id']}"
        if call.name != wanted["name"]:
            yield f"name: {call.name} for {wanted['name']}"
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError:
            arguments = None
        runnable = isinstance(arguments, dict)
        if runnable != wanted["runnable"] or (runnable and arguments != wanted["arguments"]):
            yield f"arguments: {call.arguments!r} for {wanted}"


def differing_failure(expected: dict[str, Any], failure: Failure) -> Iterator[str]:
    if "class" in expected and CLASSES[FailureCode(failure.code)] != expected["class"]:
        yield f"class: {failure} for {expected}"
    retry = bool(failure.retryable) and (failure.retry_after or 0) <= RETRY_CAP_SECONDS  # the cap is the policy's
    if "retry" in expected and retry != expected["retry"]:
        yield f"retry: {failure} for {expected}"
    if "after_s" in expected and failure.retry_after != expected["after_s"]:
        yield f"after: {failure} for {expected}"
    if expected.get("message_contains", "") not in failure.message:
        yield f"message: {failure.message!r} for {expected}"
    if "request_id" in expected and failure.request_id != expected["request_id"]:
        yield f"request id: {failure.request_id} for {expected}"
