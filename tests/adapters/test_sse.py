"""Framing of server-sent events: the standard's rules, any cuts, bounded memory, linear time."""

from __future__ import annotations

import time
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_adapters.sse import EventDecoder, EventTooLargeError, ServerEvent


def decoded(*reads: bytes) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for read in reads for event in decoder.feed(read)]


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\r\n\ndata: b\n\r\ndata: c\n\n", ["a", "b", "c"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data\n\n", [""]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
        (b": hello\n:\ndata: a\n:glued\n\n: bye\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"id: 7\nretry: 3\nx-trace: y\ndata: a\n\n", ["a"]),
        ("data: a\u2028b\u2029c\u0085d\x0be\x0cf\n\n".encode(), ["a\u2028b\u2029c\u0085d\x0be\x0cf"]),
        ("data: é 你 🙂\n\n".encode(), ["é 你 🙂"]),
        (b"event: ping\n\ndata: a\n\n", ["a"]),
        (b"\n\n\ndata: a\n\n", ["a"]),
        (b"data: broken \xff byte\n\n", ["broken \ufffd byte"]),
        (b'data: a\n\n{"error": {"code": 500}}\n\n', ["a", '{"error": {"code": 500}}']),
        (b'{"error": {\n"code": 500}}\ndata: a\n\n', ["a"]),
    ],
)
def test_a_body_gives_the_same_events_whole_and_byte_by_byte(body: bytes, data: list[str]) -> None:
    assert [event.data for event in decoded(body)] == data
    assert [event.data for event in decoded(*(body[n : n + 1] for n in range(len(body))))] == data


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=8), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_no_cut_changes_what_is_read(lines: list[str], end: str, drawn: st.DataObject) -> None:
    body = "".join(f"data: {line}{end}{end}" for line in lines).encode()
    cuts = sorted(drawn.draw(st.sets(st.integers(0, len(body)), max_size=6)))
    reads = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]

    assert [event.data for event in decoded(*reads)] == lines


def test_an_event_has_the_name_that_the_server_gave_it() -> None:
    assert decoded(b"event: error\ndata: x\n\ndata: y\n\n") == [ServerEvent("error", "x"), ServerEvent("", "y")]


def test_a_field_called_error_is_an_event_of_that_name() -> None:
    assert decoded(b'error: {"message":"boom"}\n\n') == [ServerEvent("error", '{"message":"boom"}')]


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    decoder = EventDecoder()

    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\n\r") == [ServerEvent("", "a")]
    assert decoder.feed(b"\ndata: b\n\n") == [ServerEvent("", "b")]


def test_the_event_that_the_body_breaks_off_in_is_given_at_the_end() -> None:
    decoder = EventDecoder()

    assert decoder.feed(b"data: a\n\ndata: [DONE]") == [ServerEvent("", "a")]
    assert decoder.end() == [ServerEvent("", "[DONE]")]


@pytest.mark.parametrize(
    "flood", [b"data: " + b"x" * 2000, b": " + b"x" * 2000, b"data: " + b"x\ndata: " * 2000, b"x" * 2000]
)
def test_an_event_beyond_the_limit_is_refused_while_it_comes_in(flood: bytes) -> None:
    decoder = EventDecoder(max_event_bytes=1000)

    with pytest.raises(EventTooLargeError, match="1000 bytes"):
        deque((decoder.feed(flood[n : n + 100]) for n in range(0, len(flood), 100)), maxlen=0)


def test_a_line_of_megabytes_in_small_reads_takes_linear_time() -> None:
    line = b"data: " + b"x" * 4_000_000 + b"\n\n"
    began = time.process_time()

    events = decoded(*(line[n : n + 1024] for n in range(0, len(line), 1024)))

    assert [len(event.data) for event in events] == [4_000_000]
    assert time.process_time() - began < 2
