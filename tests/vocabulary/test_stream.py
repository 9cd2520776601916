"""The compact timed stream gives back exactly what was accepted."""

from __future__ import annotations

import json

from hypothesis import given

from lifecycle.vocabulary.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    TextDelta,
    ToolCallDelta,
    chunk_from_json,
    chunk_to_json,
    mended,
)
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import TextBlock
from lifecycle.vocabulary.stream import StreamRecorder, TimedStream
from lifecycle.vocabulary.values import freeze_object

from .strategies import chunks, recorded, timed_chunks


@given(timed_chunks)
def test_set_05_the_stream_gives_back_chunks_boundaries_and_times(timed: list[tuple[Chunk, int]]) -> None:
    stream = recorded(timed)

    assert list(stream.chunks()) == timed
    assert TimedStream.from_json(json.loads(json.dumps(stream.to_json()))) == stream


@given(chunks)
def test_set_05_a_chunk_is_read_as_it_was_written_with_the_fields_we_do_not_know(chunk: Chunk) -> None:
    assert chunk_from_json(chunk_to_json(chunk)) == chunk


def test_set_05_a_clock_that_steps_back_is_kept() -> None:
    timed: list[tuple[Chunk, int]] = [(TextDelta(0, "a"), 100), (TextDelta(0, "b"), 40), (TextDelta(0, "c"), 90)]

    stream = recorded(timed)

    assert list(stream.chunks()) == timed
    assert len(stream.rows) == 1
    assert stream.start == 100


def test_a_run_of_deltas_is_one_row_and_a_stranger_ends_it() -> None:
    stream = recorded(
        [
            (TextDelta(0, "a"), 1),
            (TextDelta(0, "b"), 2),
            (TextDelta(1, "c"), 3),
            (TextDelta(1, "d", freeze_object({"x": 1})), 4),
            (TextDelta(1, "e"), 5),
            (ToolCallDelta(2, "id", "f", "{"), 6),
            (ToolCallDelta(2, None, None, "}"), 7),
        ]
    )

    assert [row["type"] for row in stream.to_json()["rows"]] == [
        "text-chunks",
        "text-chunks",
        "chunk",
        "text-chunks",
        "tool-call-chunks",
        "tool-call-chunks",
    ]


def test_an_empty_stream_is_empty() -> None:
    assert recorded([]) == TimedStream()
    assert list(TimedStream().chunks()) == []


def test_a_recorder_goes_on_after_it_was_read() -> None:
    recorder = StreamRecorder()
    recorder.add(TextDelta(0, "a"), 5)
    before = recorder.stream()
    recorder.add(TextDelta(0, "b"), 6)

    assert list(before.chunks()) == [(TextDelta(0, "a"), 5)]
    assert list(recorder.stream().chunks()) == [(TextDelta(0, "a"), 5), (TextDelta(0, "b"), 6)]


def test_text_from_a_model_is_mended_in_every_field() -> None:
    assert mended(TextDelta(0, "a\ud800")) == TextDelta(0, "a�")
    assert mended(BlockStart(0, "t\ud800")) == BlockStart(0, "t\ufffd")
    assert mended(BlockEnd(0, TextBlock(text="a\ud800"))) == BlockEnd(0, TextBlock(text="a\ufffd"))
    assert Failure(message="a\ud800").message == "a\ufffd"
    assert mended(ToolCallDelta(0, "i\ud800", "n\ud800", "{\ud800")) == ToolCallDelta(0, "i�", "n�", "{�")
