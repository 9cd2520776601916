"""The compact timed stream: what a model streamed, exactly, in little space (SET-05).

Runs of deltas of one block become one row; everything else is a row of its own. `dt` counts milliseconds
since the chunk before, and may be negative: clocks step back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from .chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, chunk_from_json, chunk_to_json
from .values import JsonObject, Value, freeze_object


class TextRun(Value, frozen=True):
    type: Literal["text-chunks", "reasoning-chunks"]
    index: int
    dt: tuple[int, ...]
    texts: tuple[str, ...]


class CallRun(Value, frozen=True):
    type: Literal["tool-call-chunks"] = "tool-call-chunks"
    index: int
    dt: tuple[int, ...]
    id: str | None = None
    name: str | None = None
    args: tuple[str, ...]


class Single(Value, frozen=True):
    type: Literal["chunk"] = "chunk"
    dt: int
    chunk: JsonObject


_Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
Row: TypeAlias = Annotated[TextRun | CallRun | Single, Field(discriminator="type")]


class TimedStream(Value, frozen=True):
    """The accepted chunks. `start` is the time of the first one, in epoch milliseconds (0 if there is none)."""

    start: int = 0
    rows: tuple[Row, ...] = ()

    def chunks(self) -> Iterator[tuple[Chunk, int]]:
        """The chunks again, each with its time."""
        time = self.start
        for row in self.rows:
            for chunk, dt in _unpack(row):
                time += dt
                yield chunk, time


def _unpack(row: TextRun | CallRun | Single) -> Iterator[tuple[Chunk, int]]:
    match row:
        case TextRun():
            kind = TextDelta if row.type == "text-chunks" else ReasoningDelta
            for text, dt in zip(row.texts, row.dt, strict=True):
                yield kind(row.index, text), dt
        case CallRun():
            for arguments, dt in zip(row.args, row.dt, strict=True):
                yield ToolCallDelta(row.index, row.id, row.name, arguments), dt
        case Single():
            yield chunk_from_json(row.chunk), row.dt


def _same_run(head: _Delta | None, chunk: _Delta) -> bool:
    if head is None or head.type != chunk.type or head.at != chunk.at:
        return False
    return not isinstance(chunk, ToolCallDelta) or head[1:3] == chunk[1:3]  # a run of calls shares id and name


class StreamRecorder:
    """Packs chunks as they are accepted. Constant work a chunk."""

    __slots__ = ("_clock", "_dt", "_head", "_rows", "_start", "_texts")

    def __init__(self) -> None:
        self._start: int | None = None
        self._clock = 0
        self._rows: list[Row] = []
        self._head: _Delta | None = None
        self._dt: list[int] = []
        self._texts: list[str] = []

    def add(self, chunk: Chunk, time: int) -> None:
        """Accept `chunk` at `time`, in epoch milliseconds."""
        if self._start is None:
            self._start = self._clock = time
        dt = time - self._clock
        self._clock = time
        if chunk.extra is not None or not isinstance(chunk, (TextDelta, ReasoningDelta, ToolCallDelta)):
            self._close()
            self._rows.append(Single(dt=dt, chunk=freeze_object(chunk_to_json(chunk), "chunk")))
            return
        if not _same_run(self._head, chunk):
            self._close()
            self._head = chunk
        self._dt.append(dt)
        self._texts.append(chunk.arguments if isinstance(chunk, ToolCallDelta) else chunk.text)

    def _close(self) -> None:
        head = self._head
        if head is None:
            return
        dt, texts = tuple(self._dt), tuple(self._texts)
        if isinstance(head, ToolCallDelta):
            self._rows.append(CallRun(index=head.at, dt=dt, id=head.id, name=head.name, args=texts))
        else:
            named: Literal["text-chunks", "reasoning-chunks"] = (
                "text-chunks" if isinstance(head, TextDelta) else "reasoning-chunks"
            )
            self._rows.append(TextRun(type=named, index=head.at, dt=dt, texts=texts))
        self._head = None
        self._dt, self._texts = [], []

    def stream(self) -> TimedStream:
        """What was accepted so far. The recorder goes on where it was."""
        self._close()
        return TimedStream(start=self._start or 0, rows=tuple(self._rows))
