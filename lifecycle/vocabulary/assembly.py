"""Block assembly: the blocks that a stream of chunks spells, in the order of their indexes (STR-07, STR-08, SET-06)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress, count
from operator import itemgetter
from typing import NamedTuple, cast

from .chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from .messages import Block, ReasoningBlock, TextBlock, ToolCallBlock
from .stream import CallRun, Single, TextRun, TimedStream
from .values import JsonValue, trusted

_text, _reasoning, _tool_call = trusted(TextBlock), trusted(ReasoningBlock), trusted(ToolCallBlock)

_CALLLESS = frozenset({FinishKind.MAX_TOKENS, FinishKind.CONTENT_FILTER, FinishKind.REFUSAL})
"""The finishes after which no call runs: the turn does not go on for its results (STR-08)."""
_STOPPED, _NOTHING = Finish(), TimedStream()
_KINDS = {"text-chunks": "text", "reasoning-chunks": "reasoning"}


@dataclass(slots=True)
class _Draft:
    """One block while it streams. `kind` is as yet unknown, or a type that we cannot build."""

    kind: str
    parts: list[str] = field(default_factory=lambda: [])
    id: str | None = None
    name: str | None = None
    closed: Block | None = None

    def build(self, index: int) -> Block | None:
        if self.closed is not None:
            return self.closed
        joined = "".join(self.parts)
        match self.kind:
            case "text":
                return _text(text=joined)
            case "reasoning":
                return _reasoning(text=joined)
            case "tool-call" if self.name is not None:
                return _tool_call(id=self.id or f"call-{index}", name=self.name, arguments=joined)
            case _:
                return None


class Assembled(NamedTuple):
    """What a finished stream amounts to."""

    blocks: tuple[Block, ...]
    replay: tuple[JsonValue, ...] | None
    finish: Finish
    usage: Usage | None


class Assembler:
    """Collects chunks, one after another or those of a packed stream; constant work a chunk."""

    __slots__ = ("_drafts", "finish", "usage")

    def __init__(self, stream: TimedStream = _NOTHING) -> None:
        self._drafts: dict[int, _Draft] = {}
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        for row in stream.rows:
            if type(row) is TextRun:
                self._grow(_KINDS[row.type], row.at, row.texts)
            elif type(row) is CallRun:
                self._grow_call(row.at, row.id, row.name, row.args)
            else:
                self.add(cast("Single", row).chunk)

    def add(self, chunk: Chunk) -> None:
        match chunk:  # in the order of how often they come
            case TextDelta():
                self._grow("text", chunk.at, (chunk.text,))
            case ToolCallDelta():
                self._grow_call(chunk.at, chunk.id, chunk.name, (chunk.arguments,))
            case ReasoningDelta():
                self._grow("reasoning", chunk.at, (chunk.text,))
            case UsageReport():
                self.usage = chunk.usage
            case Finish():
                self.finish = chunk
            case BlockStart():
                self._drafts.setdefault(chunk.at, _Draft(chunk.block_type))
            case BlockEnd():
                draft = self._drafts.setdefault(chunk.at, _Draft(chunk.block.type))
                if draft.closed is None:  # the first end wins; what follows is a straggler
                    draft.closed = _identified(chunk.block, chunk.at)

    def _grow(self, kind: str, index: int, texts: tuple[str, ...]) -> _Draft:
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = _Draft(kind)
        if draft.closed is None and draft.kind == kind:
            draft.parts += texts
        return draft

    def _grow_call(self, index: int, id: str | None, name: str | None, arguments: tuple[str, ...]) -> None:
        draft = self._grow("tool-call", index, arguments)
        draft.id = draft.id or id
        draft.name = name if draft.name is None else draft.name

    def result(self) -> Assembled:
        """The whole answer. A missing finish counts as stop.

        Calls that must not run are left out, with the replay entries beside them: all of them where the answer was
        cut off or withheld, and those that were never closed where nobody said that the answer is whole.
        """
        finish = self.finish or _STOPPED
        built: list[Block] = []
        kept: list[bool] = []
        for index, draft in self._in_order():
            block = draft.build(index)
            if block is not None:
                built.append(block)
                kept.append(type(block) is not ToolCallBlock or self._runs(draft))
        replay = finish.replay if finish.replay is not None and len(finish.replay) == len(built) else None
        if replay is not None:
            replay = tuple(compress(replay, kept))
        return Assembled(tuple(compress(built, kept)), replay, finish, self.usage)

    def _runs(self, draft: _Draft) -> bool:
        """Whether a call may run that the model has asked for."""
        finish = self.finish
        if finish is None or finish.kind is FinishKind.UNKNOWN:
            return draft.closed is not None
        return finish.kind not in _CALLLESS

    def _in_order(self) -> Iterable[tuple[int, _Draft]]:
        drafts = self._drafts.items()
        return sorted(drafts, key=itemgetter(0)) if len(drafts) > 1 else drafts

    def visible(self) -> tuple[Block, ...]:
        """The text and reasoning that a cancelled stream has shown so far; empty if only blanks."""
        built = [draft.build(index) for index, draft in self._in_order()]
        return tuple(block for block in built if isinstance(block, (TextBlock, ReasoningBlock)) and block.text.strip())


def _identified(block: Block, index: int) -> Block:
    if isinstance(block, ToolCallBlock) and not block.id:
        return block.model_copy(update={"id": f"call-{index}"})
    return block


def told_once(
    blocks: tuple[Block, ...], replay: tuple[JsonValue, ...] | None
) -> tuple[tuple[Block, ...], tuple[JsonValue, ...] | None]:
    """`blocks` with one call an id, and the replay entries beside them.

    A call that is told twice, as a preview and once more when it is whole, is one. Others that share an id by mistake
    are told apart: each but the first gets an id of its own, and nothing is replayed that has the old one.
    """
    ids = [block.id for block in blocks if isinstance(block, ToolCallBlock)]
    taken = set(ids)
    if len(taken) == len(ids):
        return blocks, replay
    told: set[tuple[str, str, str]] = set()
    used: set[str] = set()
    kept: list[bool] = []
    apart: list[Block] = []
    for block in blocks:
        fresh, one = True, block
        if isinstance(block, ToolCallBlock):
            said = block.id, block.name, block.arguments
            fresh = said not in told
            told.add(said)
            if fresh and block.id in used:
                one, replay = block.model_copy(update={"id": free_id(block.id, taken)}), None
            used.add(block.id)
        apart.append(one)
        kept.append(fresh)
    return tuple(compress(apart, kept)), None if replay is None else tuple(compress(replay, kept))


def free_id(id: str, taken: set[str]) -> str:
    """The first of `id-2`, `id-3`, ... that is not taken; it is from now on."""
    made = next(f"{id}-{n}" for n in count(2) if f"{id}-{n}" not in taken)
    taken.add(made)
    return made
