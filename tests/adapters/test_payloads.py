"""Recorded shapes of responses against the adapter, wherever a folder of them stands beside the checkout."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from lifecycle_adapters.anthropic_messages import AnthropicMessages
from lifecycle_adapters.failure_classes import classify
from lifecycle_adapters.http_model import HttpModel
from lifecycle_adapters.http_stream import Timeouts
from lifecycle_adapters.openai_chat import OpenAIChat
from lifecycle_adapters.openai_responses import OpenAIResponses
from lifecycle_adapters.recording import Replayed

from lifecycle.commands.decode import account
from tests.adapters.asking import Bytewise, ask
from tests.adapters.server import Visit, serving

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "payloads"
PAGE = Path(__file__).parents[2] / "adapters" / "README.md"
WIRES: dict[str, type[HttpModel]] = {
    "openai-chat": OpenAIChat,
    "anthropic-messages": AnthropicMessages,
    "openai-responses": OpenAIResponses,
    "http-error": OpenAIChat,
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


@pytest.mark.parametrize("case", cases(*WIRES))
async def test_a_recorded_response_is_understood(case: dict[str, Any]) -> None:
    body = (FOLDER / case["file"]).read_bytes()
    delivery = case["delivery"]

    async def answer(visit: Visit) -> None:
        if case["file"].endswith(".sse"):
            head = f"HTTP/1.1 {case['http']['status']} OK\r\nContent-Type: {case['http']['content_type']}\r\n"
            await visit.send(f"{head}Connection: close\r\n\r\n".encode())
        await visit.send(*pieces(body, delivery.get("offsets", [])))
        if delivery["end"] == "hang":
            await visit.gone()
        elif delivery["end"] == "abort":
            await anyio.lowlevel.checkpoint()
            visit.reset()

    with anyio.fail_after(20):
        async with serving(answer) as server:
            timeouts = Timeouts(read_seconds=0.5 if delivery["end"] == "hang" else 10)
            heard = await ask(WIRES[case["api"]](server.base_url, "m-test", "test-key-1", timeouts=timeouts))

    leave_out = {"text"} if delivery["end"] == "abort" else set[str]()  # a reset may overtake what was sent before it
    assert not problems(case, account(heard.chunks), leave_out | {"blocks"})


@pytest.mark.parametrize("case", cases(*WIRES))
async def test_a_recorded_file_is_decoded(case: dict[str, Any]) -> None:
    path = FOLDER / case["file"]
    decoded = await WIRES[case["api"]].decode(path.read_bytes(), raw=path.suffix == ".http")

    assert not problems(case, account(decoded.chunks, decoded.sent_back))


@pytest.mark.parametrize("case", cases(*WIRES))
async def test_a_recorded_stream_is_understood_byte_by_byte(case: dict[str, Any]) -> None:
    body = (FOLDER / case["file"]).read_bytes()
    if not case["file"].endswith(".sse"):
        return
    headers = {"Content-Type": case["http"]["content_type"]}
    response = httpx.Response(case["http"]["status"], headers=headers, stream=Bytewise(body))
    async with httpx.AsyncClient(transport=Replayed(response)) as client:
        heard = await ask(WIRES[case["api"]]("http://h/v1", "m", "test-key-1", client=client))

    assert not problems(case, account(heard.chunks), {"blocks"})


@pytest.mark.parametrize("case", cases("overflow-table"))
def test_the_wordings_of_an_overflow_are_told_from_other_refusals(case: dict[str, Any]) -> None:
    rows = json.loads((FOLDER / case["file"]).read_text())
    for row, expected in zip(rows, case["expect"]["rows"], strict=True):
        assert classify(row["status"], row["body"]).lower() == expected["class"], row


THEMES = {
    "sse-framing": "framing of events",
    "chat-stream-shape": "shape of chat streams",
    "tool-call-deltas": "tool calls in deltas",
    "anthropic-stream": "Messages",
    "responses-stream": "Responses",
    "http-retry": "HTTP, retry and overflow",
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no folder of payloads beside the checkout")
async def test_the_table_of_the_documents_is_the_one_that_comes_out() -> None:
    passed, every = Counter[str](), Counter[str]()
    for case in recorded(*WIRES, "overflow-table"):
        every[case["theme"]] += 1
        passed[case["theme"]] += await passes(case)
    table = [f"| {name} | {passed[theme]} | {every[theme]} |" for theme, name in THEMES.items()]

    assert "\n".join(table) in PAGE.read_text(encoding="utf-8")
    assert every.total() == passed.total() == 101


async def passes(case: dict[str, Any]) -> bool:
    content = (FOLDER / case["file"]).read_bytes()
    if case["api"] == "overflow-table":
        rows = zip(json.loads(content), case["expect"]["rows"], strict=True)
        return all(classify(row["status"], row["body"]).lower() == expected["class"] for row, expected in rows)
    decoded = await WIRES[case["api"]].decode(content, raw=case["file"].endswith(".http"))
    return not problems(case, account(decoded.chunks, decoded.sent_back))


def pieces(body: bytes, offsets: list[int]) -> Iterator[bytes]:
    start = 0
    for cut in [*offsets, len(body)]:
        yield body[start:cut]
        start = cut


def problems(case: dict[str, Any], got: dict[str, Any], leave_out: Set[str] = frozenset()) -> list[str]:
    """In what the answer differs from what is expected, unless it is one of the others that will do."""
    expect = {name: value for name, value in case["expect"].items() if name not in leave_out}
    found = [*differences(expect, got)]
    others = [expect | only_compared(other) for other in case.get("accept_also", [])]
    return [] if any(not [*differences(other, got)] for other in others) else found


def only_compared(other: dict[str, Any]) -> dict[str, Any]:
    error = {name: other[name] for name in ("class", "retry", "after_s") if name in other}
    return {name: value for name, value in other.items() if name in ("outcome", "text", "finish")} | (
        {"error": error} if error else {}
    )


def differences(expect: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    for name, wanted in expect.items():
        if name == "tool_calls":
            yield from differing_calls(wanted, got[name])
        elif name == "error":
            yield from differing_failure(wanted, got[name])
        elif name == "finish" and expect["outcome"] != "complete" and got["finish"] is None:
            pass  # an empty answer of a server that gave no reason
        elif got[name] != wanted and not (name == "finish_raw" and got[name] is None):
            yield f"{name}: {got[name]!r} for {wanted!r}"


def differing_calls(expected: list[dict[str, Any]], got: list[dict[str, Any]]) -> Iterator[str]:
    if len(got) != len(expected):
        yield f"calls: {got} for {expected}"
        return
    ids = [call["id"] for call in got]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"ids: {ids}"
    for call, wanted in zip(got, expected, strict=True):
        for name, value in wanted.items():
            if call[name] != value and not (name == "id" and value == {"generated": True}):
                yield f"{name}: {call[name]!r} for {wanted}"


def differing_failure(expected: dict[str, Any], got: dict[str, Any] | None) -> Iterator[str]:
    if got is None:
        yield f"no error for {expected}"
        return
    for name, value in expected.items():
        if name == "message_contains":
            if value not in got["message"]:
                yield f"message: {got['message']!r} for {value!r}"
        elif got[name] != value:
            yield f"{name}: {got[name]!r} for {value!r}"
