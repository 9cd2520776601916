"""The compact timed stream: what a model streamed, exactly, in little space (SET-05).

Runs of deltas of one block become one row; everything else is a row of its own. `dt` counts milliseconds
since the chunk before, and may be negative: clocks step back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from .chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, chunk_from_json, chunk_to_json
from .values import freeze_object

_new: Any = cast("Any", tuple).__new__  # what a named tuple's own constructor comes to, at half the price
_Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
_DELTAS = frozenset((TextDelta, ReasoningDelta, ToolCallDelta))


class TextRun(NamedTuple):
    """Deltas of one text or reasoning block; `type` is spelled as on the wire."""

    type: str
    at: int
    dt: tuple[int, ...]
    texts: tuple[str, ...]


class CallRun(NamedTuple):
    """Deltas of one tool call, all with the same id and name."""

    at: int
    dt: tuple[int, ...]
    args: tuple[str, ...]
    id: str | None = None
    name: str | None = None


class Single(NamedTuple):
    """Any other chunk."""

    dt: int
    chunk: Chunk


Row: TypeAlias = TextRun | CallRun | Single

_RUNS: Mapping[str, Callable[[int, str], TextDelta | ReasoningDelta]] = {
    "text-chunks": TextDelta,
    "reasoning-chunks": ReasoningDelta,
}
_NAMES = {TextDelta: "text-chunks", ReasoningDelta: "reasoning-chunks"}


class TimedStream(NamedTuple):
    """The accepted chunks. `start` is the time of the first one, in epoch milliseconds (0 if there is none).

    A field of this type takes a stream, or the JSON of one, and is written as JSON.
    """

    start: int = 0
    rows: tuple[Row, ...] = ()

    def chunks(self) -> Iterator[tuple[Chunk, int]]:
        """The chunks again, each with its time."""
        time = self.start
        for row in self.rows:
            for chunk, dt in _unpack(row):
                time += dt
                yield chunk, time

    def to_json(self) -> dict[str, Any]:
        """The stream as JSON."""
        return {"start": self.start, "rows": [_row_to_json(row) for row in self.rows]}

    @classmethod
    def from_json(cls, value: object) -> TimedStream:
        """The stream that JSON spells; a stream is returned as it is. Raises ValueError if it is none."""
        if isinstance(value, TimedStream):
            return value
        given: dict[str, Any] = dict(freeze_object(value, "stream"))
        start, rows = given.pop("start", 0), given.pop("rows", ())
        if given or not _whole(start) or not _is_list(rows):
            raise ValueError("a stream holds a whole number `start` and a list `rows`, and nothing else")
        return cls(start, tuple(_row_from_json(row) for row in rows))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.from_json, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json)
        )


def _unpack(row: Row) -> Iterator[tuple[Chunk, int]]:
    match row:
        case TextRun():
            delta = _RUNS[row.type]
            for text, dt in zip(row.texts, row.dt, strict=True):
                yield delta(row.at, text), dt
        case CallRun():
            for arguments, dt in zip(row.args, row.dt, strict=True):
                yield ToolCallDelta(row.at, row.id, row.name, arguments), dt
        case Single():
            yield row.chunk, row.dt


def _row_to_json(row: Row) -> dict[str, Any]:
    match row:
        case TextRun():
            return {"type": row.type, "index": row.at, "dt": row.dt, "texts": row.texts}
        case CallRun():
            named = {name: said for name, said in (("id", row.id), ("name", row.name)) if said is not None}
            return {"type": "tool-call-chunks", "index": row.at, "dt": row.dt, **named, "args": row.args}
        case Single():
            return {"type": "chunk", "dt": row.dt, "chunk": chunk_to_json(row.chunk)}


def _row_from_json(value: object) -> Row:
    row = freeze_object(value, "row of a stream")
    try:
        kind = row["type"]
        if kind == "chunk":
            return Single(_int(row["dt"]), chunk_from_json(row["chunk"]))
        said = _all(row["args"] if kind == "tool-call-chunks" else row["texts"], str)
        dt = _all(row["dt"], int)
        if len(dt) != len(said):
            raise ValueError(f"{len(said)} deltas have {len(dt)} times")
        if kind == "tool-call-chunks":
            return CallRun(_int(row["index"]), dt, said, row.get("id"), row.get("name"))
        if kind in _RUNS:
            return TextRun(kind, _int(row["index"]), dt, said)
    except KeyError as missing:
        raise ValueError(f"a row of a stream has no {missing}") from None
    raise ValueError(f"a row of a stream has the unknown type {kind!r}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(value: Any) -> int:
    if not _whole(value):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def _is_list(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def _all(values: object, kind: type[Any]) -> tuple[Any, ...]:
    if not _is_list(values) or not all(type(value) is kind for value in values):
        raise ValueError(f"a row of a stream holds {values!r} where a list of {kind.__name__} belongs")
    return values


def _goes_on(head: _Delta, chunk: Any) -> bool:
    """Whether `chunk` belongs to the run that `head`, of the same type, began."""
    if head.at != chunk.at or chunk.extra is not None:
        return False
    return not isinstance(chunk, ToolCallDelta) or head[1:3] == chunk[1:3]  # a run of calls shares id and name


def _said(chunk: Any) -> str:
    said: str = chunk.arguments if isinstance(chunk, ToolCallDelta) else chunk.text
    return said


def _run(head: _Delta, dt: list[int], texts: list[str]) -> Row:
    made: Row
    if isinstance(head, ToolCallDelta):
        made = _new(CallRun, (head.at, tuple(dt), tuple(texts), head.id, head.name))
    else:
        made = _new(TextRun, (_NAMES[type(head)], head.at, tuple(dt), tuple(texts)))
    return made


class StreamRecorder:
    """Keeps chunks as they are accepted; they are packed when somebody asks."""

    __slots__ = ("chunks", "times")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.times: list[int] = []
        """When each was accepted, in epoch milliseconds."""

    def add(self, chunk: Chunk, time: int) -> None:
        """Accept `chunk` at `time`, in epoch milliseconds."""
        self.chunks.append(chunk)
        self.times.append(time)

    def stream(self) -> TimedStream:
        """What was accepted so far. The recorder goes on where it was."""
        if not self.times:
            return TimedStream()
        rows: list[Row] = []
        start = before = self.times[0]
        head: _Delta | None = None
        dts: list[int] = []
        texts: list[str] = []
        for chunk, time in zip(self.chunks, self.times, strict=True):
            dt, before = time - before, time
            if head is not None:
                if type(chunk) is type(head) and _goes_on(head, chunk):
                    dts.append(dt)  # nearly all do
                    texts.append(_said(chunk))
                    continue
                rows.append(_run(head, dts, texts))
                head = None
            if type(chunk) in _DELTAS and chunk.extra is None:
                head = cast("_Delta", chunk)
                dts, texts = [dt], [_said(head)]
            else:
                rows.append(_new(Single, (dt, chunk)))
        if head is not None:
            rows.append(_run(head, dts, texts))
        made: TimedStream = _new(TimedStream, (start, tuple(rows)))
        return made
