"""The live frames of a stream: its start, each chunk of it, and its end with what was recorded of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lifecycle.vocabulary.chunks import Chunk


@dataclass(frozen=True, slots=True)
class StreamStart:
    attempt_id: str
    revision: int
    turn: int
    step: int
    type: Literal["start"] = "start"


@dataclass(slots=True)  # not frozen: thousands are made in one answer, and freezing triples their price
class StreamChunk:
    attempt_id: str
    revision: int
    index: int
    time: int
    chunk: Chunk
    type: Literal["chunk"] = "chunk"


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """`event_type` and `seq` name the settlement; both are None when the attempt was abandoned."""

    attempt_id: str
    revision: int
    index: int
    outcome: Literal["committed", "abandoned"]
    event_type: str | None = None
    seq: int | None = None
    type: Literal["end"] = "end"


Frame: TypeAlias = StreamStart | StreamChunk | StreamEnd
