"""Reading recorded logs: one record a line, whoever wrote it and in whichever revision of the lifecycle.

Strict about what a log is, and lenient about what stands in it: an event is neither validated nor held against a
lifecycle here. Read line by line, so that a log may be longer than memory is wide.

Taken are events as this package stores them (`{"seq": ..., "time": ..., "type": ..., "data": ...}`), the lines of
`lifecycle run --json`, of which the live ones are skipped, and logs that begin with a line about the session
(`"type": "session"`), leave `seq` and `time` out, and pack runs of chunks into one row.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from lifecycle.errors import LogFormatError

NEWEST_VERSION = 0
"""The newest version of a log, as its first line tells it, that is read here."""
LONGEST_LINE = 1 << 28
"""How many bytes a line may have."""
_SHOWN = 60
_SQLITE = b"SQLite format 3\0"
_PACKED: Mapping[str, tuple[str, str]] = {
    "text-chunks": ("text-delta", "texts"),
    "reasoning-chunks": ("reasoning-delta", "texts"),
    "tool-call-chunks": ("tool-call-delta", "args"),
}
"""Rows of several chunks: the type of each, and the field that holds what they bring."""


class Record(NamedTuple):
    """One durable event as its line spells it.

    Where the log leaves `seq` out, it is the event's position, from 0; `time`, in epoch milliseconds, is then None.
    """

    line: int
    seq: int
    time: int | None
    type: str
    data: Mapping[str, Any]
    envelope: Mapping[str, Any]
    """All that the line holds: `surfaceOp`, `sourceEventSeqs` and `ignorable` stand here, if they do."""


class LogReader:
    """Iterates over the records of a log, once.

    Args:
        lines: Its lines, each with its end; a last one without an end may be torn.
        name: What errors call it.
        unpack: Whether a row of several chunks becomes as many records; otherwise it is one, without the chunks.

    Raises:
        LogFormatError: while iterating: what was read is no log, or not whole. A last line that was torn in the
            middle is no error: `torn` has its number, once all else was read.
    """

    def __init__(self, lines: Iterable[bytes], name: str, *, unpack: bool = True) -> None:
        self.name = name
        self._unpack = unpack
        self.header: Mapping[str, Any] | None = None
        """What the log says about its session, where it begins with that."""
        self.torn: int | None = None
        self._lines = lines
        self._next: int | None = None
        self._line = 0

    def __iter__(self) -> Iterator[Record]:
        said = False
        for number, line in enumerate(self._lines, 1):
            self._line = number
            if self._line == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
                self._check_text(line)
            if not line.strip():
                continue
            raw = self._parsed(line, said)
            if raw is None:
                self.torn = self._line
                return
            said = True
            if raw.get("domain") != "live":
                yield from self._records(raw)
        if not said:
            raise LogFormatError(self.name, None, "it is empty; a log has one event a line")

    def fault(self, reason: str, line: int | None = None) -> LogFormatError:
        """What is wrong with a line: the one that was read last, or another one."""
        return LogFormatError(self.name, line or self._line, reason)

    def _check_text(self, line: bytes) -> None:
        if line.startswith(_SQLITE):
            raise LogFormatError(
                self.name, None, "it is a store of sessions; give the id of one of them, and this file with --store"
            )
        if b"\0" in line[:4096] or line.startswith((b"\x1f\x8b", b"PK\x03\x04")):
            raise LogFormatError(self.name, None, "it is no text, so it is no log")

    def _parsed(self, line: bytes, said: bool) -> dict[str, Any] | None:
        """The object that a line spells. None if it was torn."""
        try:
            raw: Any = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as wrong:
            if said and not line.endswith(b"\n"):
                return None
            why = "is nested too deeply" if isinstance(wrong, RecursionError) else "is no JSON"
            raise self.fault(f"{_shown(line)} {why}, so this is no event") from wrong
        if not isinstance(raw, dict):
            raise self.fault(f"{_shown(line)} is no object, so this is no event")
        return cast("dict[str, Any]", raw)

    def _records(self, raw: dict[str, Any]) -> Iterator[Record]:
        kind, data = raw.get("type"), raw.get("data")
        if kind == "session" and "data" not in raw:
            self._begin(raw)
            return
        if not isinstance(kind, str) or not isinstance(data, dict):
            what = "a `type`" if not isinstance(kind, str) else "an object `data`"
            raise self.fault(f"this is no event of a session: it has not {what}")
        data = cast("dict[str, Any]", data)
        if kind in _PACKED:
            yield from self._unpacked(kind, data, raw)
            return
        seq = self._count(self._number(raw, "seq"), 1)
        yield Record(self._line, seq, self._number(raw, "time"), kind, data, raw)

    def _begin(self, raw: dict[str, Any]) -> None:
        if self.header is not None or self._next is not None:
            raise self.fault("a session begins here; a log holds one session, from its first line on")
        version = raw.get("version", 0)
        if isinstance(version, bool) or not isinstance(version, int):
            raise self.fault(f"a log's version is a number, not {version!r}")
        if version > NEWEST_VERSION:
            raise self.fault(
                f"the log was written in version {version}, and this program reads up to version {NEWEST_VERSION}; "
                "a newer one may read it"
            )
        self.header = raw

    def _unpacked(self, kind: str, data: dict[str, Any], raw: dict[str, Any]) -> Iterator[Record]:
        chunk_type, field = _PACKED[kind]
        pieces, steps = data.get(field), data.get("dt", [])
        if not isinstance(pieces, list) or not isinstance(steps, list):
            raise self.fault(f"a row of {kind} has lists `{field}` and `dt`")
        pieces, steps = cast("list[object]", pieces), cast("list[object]", steps)
        seq, time = self._count(self._number(raw, "seq0"), len(pieces)), self._number(raw, "time0")
        kept: dict[str, Any] = {name: data[name] for name in ("index", "id", "name") if name in data}
        place: dict[str, Any] = {name: data[name] for name in ("turn", "step") if name in data}
        if not self._unpack:
            yield Record(self._line, seq, time, "assistant/chunk", place, raw)
            return
        for n, piece in enumerate(pieces):
            step = steps[n] if n < len(steps) else 0
            time = time + step if time is not None and isinstance(step, int) else time
            brought = "argumentsDelta" if field == "args" else "text"
            chunk = {"type": chunk_type, **kept, brought: piece}
            yield Record(self._line, seq + n, time, "assistant/chunk", {**place, "chunk": chunk}, raw)

    def _number(self, raw: Mapping[str, Any], field: str) -> int | None:
        value = raw.get(field)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise self.fault(f"`{field}` is a number from 0 on, and not {_shown(json.dumps(value).encode())}")
        return value

    def _count(self, seq: int | None, many: int) -> int:
        """The seq of an event, where none may be left out: the log's own, or the next one."""
        if seq is not None and self._next is not None and seq != self._next:
            what = "comes again" if seq < self._next else "comes too early: lines are missing"
            raise self.fault(f"event {seq} {what}; here event {self._next} would follow")
        first = (self._next or 0) if seq is None else seq
        self._next = first + many
        return first


@contextmanager
def open_log(path: Path, *, unpack: bool = True) -> Generator[LogReader]:
    """A log that is kept in a file.

    Raises:
        LogFormatError: if it cannot be opened; see `LogReader` for what is wrong with its lines.
    """
    try:
        file = path.open("rb")
    except OSError as wrong:
        raise LogFormatError(str(path), None, f"it cannot be read ({wrong.strerror})") from wrong
    with file:
        yield LogReader(_lines(file, str(path)), str(path), unpack=unpack)


def read_log(file: BinaryIO, name: str, *, unpack: bool = True) -> LogReader:
    """A log that comes from an open file, such as standard input."""
    return LogReader(_lines(file, name), name, unpack=unpack)


def is_too_long(line: str) -> bool:
    """Whether a line, with its end, has more bytes than any reader takes."""
    return len(line) >= LONGEST_LINE >> 2 and len(line.encode()) >= LONGEST_LINE


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    while line := _line(file, name):
        number += 1
        if len(line) > LONGEST_LINE:
            raise LogFormatError(name, number, f"the line is longer than {LONGEST_LINE >> 20} MiB, so it is no event")
        yield line


def _line(file: BinaryIO, name: str) -> bytes:
    try:
        return file.readline(LONGEST_LINE + 1)
    except OSError as wrong:
        raise LogFormatError(name, None, f"it cannot be read ({wrong.strerror})") from wrong


def _shown(line: bytes) -> str:
    text = " ".join(line[: 4 * _SHOWN].decode("utf-8", "replace").split())
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
