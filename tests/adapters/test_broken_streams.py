"""Streams that are cut, repeated, dropped and corrupted: no exception, no unfinished call that runs, bounded memory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle_adapters.http_failures import Site
from lifecycle_adapters.openai_chat import OpenAIChat
from lifecycle_adapters.recording import Replayed
from lifecycle_adapters.sse import EventDecoder, ServerEvent

from lifecycle.vocabulary.chunks import Chunk, FinishKind, chunk_from_json, chunk_to_json
from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.values import freeze
from tests.adapters.asking import Heard, ask
from tests.adapters.server import OK_STREAM, Visit, serving
from tests.adapters.streams import CALLS, REASONING, STREAMS, TEXT, WIRES, pieces

EDITS = st.lists(
    st.tuples(st.sampled_from(["drop", "repeat", "flip", "insert", "move"]), st.floats(0, 1), st.floats(0, 1)),
    min_size=1,
    max_size=4,
)
wires = pytest.mark.parametrize("wire", WIRES)


def heard(wire: str, body: bytes, *, cuts: tuple[int, ...] = ()) -> Heard:
    """What the wire's decoder makes of a body, as the adapter feeds it."""
    model: Any = WIRES[wire]("http://h", "m", env=None)
    decoder = model._decoder(Site("http://h"))
    events = EventDecoder(1_000_000)
    chunks: list[Chunk] = []
    start = 0
    for cut in (*cuts, len(body)):
        for event in events.feed(body[start:cut]):
            chunks += decoder.feed(event)
        start = cut
    if not decoder.over:
        for event in events.end():
            chunks += decoder.unterminated(event)
    told = Heard([*chunks, *decoder.finish()])
    storable(told)
    model._sent_back(AssistantMessage(content=told.assembled.blocks, replay=told.assembled.replay))
    return told


def storable(told: Heard) -> None:
    """The log takes every chunk and gives it back; and what is kept for sending back, too."""
    for chunk in told.chunks:
        assert chunk_from_json(freeze(json.loads(json.dumps(chunk_to_json(chunk))))) == chunk
    freeze(told.assembled.replay)


def runnable(told: Heard) -> list[tuple[str, Any]]:
    """The calls that would run: those with a JSON object, or nothing, for arguments."""
    if told.finish.kind.failed:
        return []
    calls: list[tuple[str, Any]] = []
    for call in told.calls:
        try:
            arguments: Any = json.loads(call.arguments) if call.arguments.strip() else {}
        except ValueError:
            continue
        if isinstance(arguments, dict):
            calls.append((call.name, cast("dict[str, Any]", arguments)))
    return calls


WHOLE = [(name, json.loads(arguments)) for name, arguments in CALLS.items()]


@wires
def test_whole_the_stream_is_understood(wire: str) -> None:
    told = heard(wire, b"".join(STREAMS[wire]))

    assert (told.reasoning, told.text, runnable(told)) == (REASONING, TEXT, WHOLE)
    assert told.finish.kind is FinishKind.TOOL_CALLS
    assert told.assembled.usage is not None
    assert (told.assembled.usage.input_tokens, told.assembled.usage.output_tokens) == (11, 7)


@wires
def test_cut_anywhere_it_is_whole_or_a_failure_that_may_be_tried_again(wire: str) -> None:
    body = b"".join(STREAMS[wire])
    for cut in range(0, len(body), 3 if wire == "openai-chat" else 7):
        told = heard(wire, body[:cut])
        if told.finish.kind.failed:
            assert (told.failure.code, told.failure.retryable) == ("TRANSPORT", True)
            assert REASONING.startswith(told.reasoning.rstrip("\ufffd"))
            assert TEXT.startswith(told.text)
        else:
            assert (told.text, runnable(told)) == (TEXT, WHOLE)


@wires
@given(data=st.data())
@settings(max_examples=60)
def test_however_the_network_cuts_it_it_is_the_same(wire: str, data: st.DataObject) -> None:
    body = b"".join(STREAMS[wire])
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=30).map(sorted).map(tuple))

    assert heard(wire, body, cuts=cuts).chunks == heard(wire, body).chunks


@wires
@given(data=st.data())
@settings(max_examples=150)
def test_without_some_of_its_events_no_unfinished_call_runs(wire: str, data: st.DataObject) -> None:
    events = STREAMS[wire]
    at = data.draw(st.integers(0, len(events) - 1))
    many = data.draw(st.integers(1, 6))
    told = heard(wire, b"".join([*events[:at], *events[at + many :]]))

    # A gap in the middle of a call cannot be seen if it leaves JSON behind; one at its end can.
    for name, arguments in runnable(told):
        last = pieces(CALLS.get(name, " "))[-1]  # one whose name was lost is a call of no tool
        assert (
            not arguments or not name or any(call.arguments.endswith(last) for call in told.calls if call.name == name)
        )


@wires
@given(edits=EDITS)
@settings(max_examples=150)
def test_no_damage_to_its_bytes_brings_the_decoder_down(wire: str, edits: list[tuple[str, float, float]]) -> None:
    told = heard(wire, damaged(b"".join(STREAMS[wire]), edits))

    for _, arguments in runnable(told):
        assert isinstance(arguments, dict)


@pytest.mark.slow
@wires
@given(edits=EDITS)
@settings(max_examples=20_000, deadline=None)
def test_no_damage_to_its_bytes_brings_the_decoder_down_in_many_tries(
    wire: str, edits: list[tuple[str, float, float]]
) -> None:
    heard(wire, damaged(b"".join(STREAMS[wire]), edits))


def damaged(body: bytes, edits: list[tuple[str, float, float]]) -> bytes:
    for kind, where, much in edits:
        at = int(where * len(body))
        end = min(len(body), at + 1 + int(much**3 * 300))
        match kind:
            case "drop":
                body = body[:at] + body[end:]
            case "repeat":
                body = body[:end] + body[at:end] + body[end:]
            case "flip":
                body = body[:at] + bytes(byte ^ (1 << int(much * 7)) for byte in body[at : at + 1]) + body[at + 1 :]
            case "insert":
                body = body[:at] + bytes([int(much * 255)]) + body[at:]
            case _:
                body = body[end:] + body[at:end] + body[:at]
    return body


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@wires
@given(data=st.data())
@settings(max_examples=150)
def test_no_value_in_the_wrong_place_brings_the_decoder_down(wire: str, data: st.DataObject) -> None:
    """One value of one event, anywhere within it, is another: of another type, too large, no text."""
    events = [*STREAMS[wire]]
    at = data.draw(st.integers(0, len(events) - 1))
    line = next((line for line in events[at].split(b"\n") if line.startswith(b"data: {")), None)
    if line is None:
        return
    said = json.loads(line[6:])
    holder, key = data.draw(st.sampled_from([*places(said)]))
    holder[key] = data.draw(VALUES)
    spelt = json.dumps(said, allow_nan=True)
    events[at] = b"data: " + spelt.encode() + b"\n\n"

    heard(wire, b"".join(events))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, (dict, list)):
        return
    holder: Any = value  # pyright: ignore[reportUnknownVariableType]
    for key in [*holder] if isinstance(value, dict) else range(len(holder)):
        yield holder, key
        yield from places(holder[key])


@pytest.mark.anyio
@wires
@pytest.mark.parametrize("seed", range(3))
async def test_damaged_streams_end_through_the_whole_adapter_too(wire: str, seed: int) -> None:
    body = damaged(b"".join(STREAMS[wire]), [("flip", 0.2 * seed + 0.1, 0.5), ("drop", 0.3 * seed, 0.4)])
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=httpx.ByteStream(body))
    async with httpx.AsyncClient(transport=Replayed(response)) as client:
        storable(await ask(WIRES[wire]("http://h", "m", env=None, client=client)))


@pytest.mark.anyio
async def test_an_answer_that_never_ends_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle_adapters.http_stream.MAX_ANSWER_BYTES", 100_000)

    async def endless(visit: Visit) -> None:
        await visit.send(OK_STREAM)
        while True:
            await visit.send(b'data: {"choices":[{"delta":{"content":"and on "}}]}\n\n' * 100)

    with anyio.fail_after(20):
        async with serving(endless) as server:
            told = await ask(OpenAIChat(server.base_url, "m", env=None))

    assert (told.failure.code, told.failure.retryable) == ("PROTOCOL", False)
    assert "larger than 100000 bytes" in told.failure.message


@pytest.mark.anyio
async def test_one_read_that_unpacks_to_many_events_leaves_others_their_turn() -> None:
    packed = gzip.compress(b'data: {"choices":[]}\n\n' * 50_000 + b"data: [DONE]\n\n", 9)
    head = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    response = httpx.Response(200, headers=head, stream=httpx.ByteStream(packed))
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with httpx.AsyncClient(transport=Replayed(response)) as client, anyio.create_task_group() as group:
        group.start_soon(another)
        told = await ask(OpenAIChat("http://h", "m", env=None, client=client))
        assert told.failure.code == "EMPTY_RESPONSE"
        group.cancel_scope.cancel()

    assert turns > 10  # the million bytes that it unpacks to are 16 pieces


@wires
def test_an_answer_that_asks_for_calls_and_holds_none_has_stopped(wire: str) -> None:
    events = [event for event in STREAMS[wire] if b"call_" not in event and b"partial_json" not in event]
    events = [event for event in events if b"arguments" not in event and b"response.completed" not in event]
    if wire == "openai-responses":
        events.append(b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n')
    told = heard(wire, b"".join(events))

    assert (told.text, told.calls, told.finish.kind) == (TEXT, [], FinishKind.STOP)


def test_a_call_that_is_named_on_every_fragment_costs_no_more_than_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0

    def count(text: str) -> object:
        nonlocal parsed
        parsed += len(text)
        return None

    monkeypatch.setattr("lifecycle_adapters.openai_calls._parsed", count)
    fragment = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}}
    event = f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [fragment]}}]})}\n\n".encode()
    assert heard("openai-chat", event * 5000).finish.kind.failed
    assert parsed < 100_000


def test_an_event_without_any_data_is_none() -> None:
    for wire in WIRES:
        model: Any = WIRES[wire]("http://h", "m", env=None)
        assert [*model._decoder(Site("http://h")).feed(ServerEvent("error", " "))] == []
