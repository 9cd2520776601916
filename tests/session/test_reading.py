"""Logs from files: what is read, and one sentence for each file that is none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lifecycle.errors import LogFormatError
from lifecycle.session import reading
from lifecycle.session.reading import LogReader, Record, open_log
from lifecycle.vocabulary.events import Event, StepStart, TurnStart

START = Event(0, 5, TurnStart(turn=1)).encode()
STEP = Event(1, 7, StepStart(turn=1, step=1)).encode()
HEADER = '{"type":"session","version":0,"id":"s","createdAt":0}'


def write(tmp_path: Path, *lines: str | bytes, end: bytes = b"\n") -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + end)
    return path


def read(path: Path) -> list[Record]:
    with open_log(path) as log:
        return list(log)


def reader(*lines: str) -> LogReader:
    return LogReader([f"{line}\n".encode() for line in lines], "log")


def test_events_as_they_are_stored(tmp_path: Path) -> None:
    first, second = read(write(tmp_path, START, STEP))

    assert (first.line, first.seq, first.time, first.type, first.data) == (1, 0, 5, "turn/start", {"turn": 1})
    assert (second.line, second.seq, second.time, second.type) == (2, 1, 7, "step/start")
    assert second.envelope == json.loads(STEP)


def test_a_log_without_numbers_and_times_counts_from_its_header_on() -> None:
    log = reader(HEADER, '{"type":"turn/start","data":{"turn":1}}', "", '{"type":"x/y","data":{},"ignorable":true}')

    found = list(log)

    assert [(record.line, record.seq, record.time) for record in found] == [(2, 0, None), (4, 1, None)]
    assert found[1].envelope["ignorable"] is True
    assert log.header is not None
    assert log.header["id"] == "s"


def test_the_live_lines_of_a_run_are_skipped() -> None:
    log = reader('{"domain":"live","name":"agent/status","status":"running"}', '{"domain":"durable",' + START[1:])

    assert [record.type for record in log] == ["turn/start"]


@pytest.mark.parametrize(
    ("row", "chunk"),
    [
        (
            {"type": "text-chunks", "data": {"index": 2, "dt": [0, 3], "texts": ["a", "b"]}},
            {"type": "text-delta", "index": 2, "text": "b"},
        ),
        (
            {"type": "tool-call-chunks", "data": {"index": 0, "dt": [0, 3], "id": "c", "name": "n", "args": ["", "{"]}},
            {"type": "tool-call-delta", "index": 0, "id": "c", "name": "n", "argumentsDelta": "{"},
        ),
    ],
)
def test_a_packed_row_is_as_many_events_as_it_holds(row: dict[str, Any], chunk: dict[str, Any]) -> None:
    row = {**row, "seq0": 4, "time0": 100, "data": {"turn": 1, "step": 2, **row["data"]}}

    first, second, last = reader(json.dumps(row), '{"type":"step/end","data":{}}')

    assert [first.seq, second.seq, last.seq] == [4, 5, 6]
    assert [first.time, second.time] == [100, 103]
    assert second.type == "assistant/chunk"
    assert second.data == {"turn": 1, "step": 2, "chunk": chunk}


@pytest.mark.parametrize("cut", range(1, len(STEP)))
def test_a_last_line_that_was_torn_is_told_and_left_out(tmp_path: Path, cut: int) -> None:
    with open_log(write(tmp_path, START, STEP[:cut], end=b"")) as log:
        assert [record.type for record in log] == ["turn/start"]
        assert log.torn == 2


def test_a_last_line_that_was_torn_within_a_character_or_never_written(tmp_path: Path) -> None:
    for tail in ('{"type":"ä'.encode()[:-1], b"\0" * 50):
        with open_log(write(tmp_path, START, tail, end=b"")) as log:
            assert len(list(log)) == 1
            assert log.torn == 2


def test_a_last_line_without_its_end_may_be_whole(tmp_path: Path) -> None:
    with open_log(write(tmp_path, START, STEP, end=b"")) as log:
        assert len(list(log)) == 2
        assert log.torn is None


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ([], None, "it is empty"),
        (["", "  "], None, "it is empty"),
        ([b"SQLite format 3\0..."], None, "it is a store of sessions; give the id"),
        ([b"\x7fELF\0\0"], None, "it is no text"),
        ([gzip.compress(b"x")], None, "it is no text"),
        (["# A title"], 1, "'# A title' is no JSON"),
        (["[1, 2]"], 1, "'[1, 2]' is no object"),
        (["[" * 100_000], 1, "is nested too deeply"),
        (['{"a": 1}'], 1, "no event of a session: it has not a `type`"),
        (['{"type": "turn/start"}'], 1, "it has not an object `data`"),
        ([START, '{"type": "step/st', STEP], 2, "is no JSON"),
        ([START, START], 2, "event 0 comes again; here event 1 would follow"),
        ([START, Event(2, 7, StepStart(turn=1, step=1)).encode()], 2, "event 2 comes too early: lines are missing"),
        ([START, HEADER], 2, "a session begins here"),
        ([HEADER, HEADER], 2, "a session begins here"),
        (
            ['{"type":"session","version":7,"id":"s"}'],
            1,
            "in version 7, and this program reads up to version 0",
        ),
        (['{"type":"x","data":{},"seq":"0"}'], 1, "`seq` is a number from 0 on, and not '\"0\"'"),
        (['{"type":"x","data":{},"time":true}'], 1, "`time` is a number from 0 on, and not 'true'"),
        (['{"type":"text-chunks","data":{"dt":[]}}'], 1, "a row of text-chunks has lists `texts` and `dt`"),
    ],
)
def test_what_is_no_log_is_said_in_a_sentence(
    tmp_path: Path, lines: Iterable[str | bytes], line: int | None, said: str
) -> None:
    path = write(tmp_path, *lines)

    with pytest.raises(LogFormatError) as refused:
        read(path)

    assert said in refused.value.reason
    assert refused.value.line == line
    assert str(refused.value) == f"{path}{f', line {line}' if line else ''}: {refused.value.reason}"
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(LogFormatError, match="it cannot be read"):
            read(path)


def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 1 << 20)

    with pytest.raises(LogFormatError, match="line 1: the line is longer than 1 MiB"):
        read(write(tmp_path, "x" * (2 << 20)))
