"""What a Messages stream says: its events in, chunks of ours out. Pure, one decoder an answer.

Blocks come by index, each with a start, deltas and a stop. What must go back unchanged (thinking with its signature,
redacted thinking, the server's own tools, text with citations) is kept beside its block as replay state; a block that
has nothing to show stands as reasoning without text, so that its state has a place. Unknown types are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lifecycle.vocabulary.chunks import BlockStart, Chunk, FinishKind, ToolCallDelta, Usage, failed
from lifecycle.vocabulary.values import FrozenDict, JsonValue, mend

from . import http_failures
from .calls import CallText, settled
from .decoding import (
    ANSWERED,
    Decoder,
    Draft,
    count_in,
    dict_in,
    dicts_in,
    index_in,
    json_object,
    kept_json,
    list_of,
    spelt_in,
    text_in,
)
from .http_failures import Site

BLOCK = "block"
"""The field of a replay entry that holds a content block as it is to be sent back."""

_FINISHES = {
    "end_turn": FinishKind.STOP,
    "stop_sequence": FinishKind.STOP,
    "tool_use": FinishKind.TOOL_CALLS,
    "max_tokens": FinishKind.MAX_TOKENS,
    "model_context_window_exceeded": FinishKind.MAX_TOKENS,
    "pause_turn": FinishKind.PAUSE,
    "refusal": FinishKind.REFUSAL,
}
_PLAIN = (None, "end_turn", "tool_use")
"""Reasons that our names for them say in full."""

_USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "thinking_tokens",
)


@dataclass(slots=True, eq=False)
class _Part:
    """A content block while it streams. `raw` is its start; `json` the pieces of its input."""

    raw: dict[str, Any]
    draft: Draft
    at: int | None = None
    json: list[str] = field(default_factory=lambda: [])
    signature: list[str] = field(default_factory=lambda: [])
    citations: list[Any] = field(default_factory=lambda: [])
    closed: bool = False
    strange: bool = False
    """Whether it got a delta that we do not know, so that nobody can say what it is as a whole."""

    @property
    def type(self) -> str:
        return text_in(self.raw, "type")

    @property
    def arguments(self) -> str:
        """The input as text. Some gateways send it whole in the start of the block."""
        joined = "".join(self.json)
        if joined.strip():
            return joined
        return spelt_in(self.raw, "input") if self.raw.get("input") else ""


class MessagesDecoder(Decoder):
    """Ends with `message_stop`, and with nothing else but `[DONE]` after a reason to stop."""

    wire = "anthropic-messages"

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        super().__init__(site, empty_is_failure=empty_is_failure)
        self._open: dict[int, _Part] = {}
        self._last: _Part | None = None
        self._calls: list[tuple[int, _Part]] = []
        self._ids: set[str] = set()
        self._replay: dict[int, JsonValue] = {}
        self._counts: dict[str, int] = {}
        self._reason: str | None = None
        self._details: dict[str, Any] = {}

    def _take(self, name: str, said: dict[str, Any]) -> Iterator[Chunk]:
        kind = text_in(said, "type") or name
        self.moved = self.moved or kind != "ping"
        match kind:
            case "message_start":
                self._count(dict_in(dict_in(said, "message"), "usage"))
            case "content_block_start":
                yield from self._start(said, dict_in(said, "content_block"))
            case "content_block_delta":
                yield from self._delta(said, dict_in(said, "delta"))
            case "content_block_stop":
                part = self._part(said)
                if part is not None:
                    part.closed = True
                    yield from self._stop(part)
            case "message_delta":
                self._count(dict_in(said, "usage"))
                self._stopped(dict_in(said, "delta"))
            case "message_stop":
                self.done = True
            case _:
                pass

    def _marked(self) -> None:
        self.done = self._reason is not None  # the mark of another wire, by gateways that leave out ours

    def _whole(self, said: dict[str, Any]) -> Iterator[Chunk]:
        if text_in(said, "type") != "message" and not isinstance(said.get("content"), list):
            self._failure = http_failures.no_answer(self._site)
            return
        self._count(dict_in(said, "usage"))
        for at, block in enumerate(dicts_in(said, "content")):
            yield from self._start({"index": at}, block)
            part = self._open[at]
            part.closed = True
            yield from self._stop(part)
        self._stopped(said)
        self.done = True

    def _start(self, said: dict[str, Any], raw: dict[str, Any]) -> Iterator[Chunk]:
        index = index_in(said, "index")
        index = len(self._open) if index is None else index
        before = self._open.get(index)
        if before is not None and not before.closed:
            if before.raw == raw:  # a repeated event
                return
            yield from self._stop(before)
        part = self._open[index] = self._last = _Part(raw, Draft("reasoning" if _hidden(raw) else "text"))
        match part.type:
            case "tool_use":
                yield from self._begin_call(part)
            case "text":
                yield from self._blocks.say(part.draft, text_in(raw, "text"))
            case "thinking":
                yield from self._blocks.say(part.draft, text_in(raw, "thinking"))
            case _:
                pass

    def _begin_call(self, part: _Part) -> Iterator[Chunk]:
        id = text_in(part.raw, "id")
        part.at = self._blocks.take()
        self._calls.append((part.at, part))
        yield BlockStart(part.at, "tool-call")
        if id not in self._ids:  # one that may be a mere repetition comes to nothing without its name and its end
            self._ids.update({id} - {""})
            yield ToolCallDelta(part.at, mend(id) or None, mend(text_in(part.raw, "name")))

    def _delta(self, said: dict[str, Any], delta: dict[str, Any]) -> Iterator[Chunk]:
        kind = text_in(delta, "type")
        part = self._part(said)
        if part is None:
            yield from self._orphan(said, kind, delta)
            return
        match kind, part.type:
            case "text_delta", _:
                yield from self._blocks.say(part.draft, text_in(delta, "text"))
            case "thinking_delta", _:
                yield from self._blocks.say(part.draft, text_in(delta, "thinking"))
            case "signature_delta", _:
                part.signature.append(text_in(delta, "signature"))
            case "citations_delta", _:
                part.citations.append(delta.get("citation"))
            case "input_json_delta", _:
                piece = spelt_in(delta, "partial_json")
                part.json.append(piece)
                if piece and part.at is not None:
                    yield ToolCallDelta(part.at, arguments=mend(piece))
            case _:
                part.strange = True

    def _orphan(self, said: dict[str, Any], kind: str, delta: dict[str, Any]) -> Iterator[Chunk]:
        """A delta of a block that never began: text begins one by itself, and arguments are nobody's."""
        starts = {"text_delta": "text", "thinking_delta": "thinking"}
        index = index_in(said, "index")
        if index is not None and index in self._open:
            return  # a straggler of a block that is closed
        if kind in starts:
            yield from self._start(said, {"type": starts[kind]})
            yield from self._delta(said, delta)
        elif kind == "input_json_delta":
            self._failure = http_failures.protocol(
                f"{self._site.name} sent arguments for a call that it never began", retryable=True
            )

    def _part(self, said: dict[str, Any]) -> _Part | None:
        """The block that an event means, if it is open."""
        index = index_in(said, "index")
        part = self._last if index is None else self._open.get(index)
        return None if part is None or part.closed else part

    def _stop(self, part: _Part) -> Iterator[Chunk]:
        """Close a block, and keep what must go back with it."""
        yield from self._blocks.release(part.draft)
        raw = part.raw
        match part.type:
            case "tool_use":
                return
            case "text":
                cited = [*list_of(raw.get("citations")), *part.citations]
                kept = {**raw, "text": None, "citations": cited} if cited else None
            case "thinking":
                # Normally one piece, the whole; some gateways send several, or the whole twice.
                signature = "".join(part.signature[:1] if len(set(part.signature)) == 1 else part.signature)
                raw |= {"signature": signature} if signature else {}
                kept = {**raw, "thinking": None} if text_in(raw, "signature") else None
            case "":
                return
            case _:
                whole = json_object("".join(part.json)) if part.json else {}
                kept = None if part.strange or whole is None else {**raw, **({"input": whole} if part.json else {})}
        entry = None if kept is None else kept_json({BLOCK: kept})
        if entry is None:
            return
        at = part.draft.at
        if at is None:
            if part.type == "text":
                return
            at = part.draft.at = self._blocks.take()
            yield BlockStart(at, "reasoning")
        self._replay[at] = entry

    def _stopped(self, said: dict[str, Any]) -> None:
        reason = text_in(said, "stop_reason")
        if reason:
            self._reason = reason
            names = ("stop_sequence", "stop_details")
            self._details = {name: said[name] for name in names if said.get(name) is not None}

    def _count(self, usage: dict[str, Any]) -> None:
        """Counts are totals so far: one that is named replaces, one that is not stays."""
        named = {**usage, "thinking_tokens": dict_in(usage, "output_tokens_details").get("thinking_tokens")}
        self._counts |= {name: count for name in _USAGE_FIELDS if (count := count_in(named, name)) is not None}
        if self._counts:
            said, output, read, written, thought = map(self._counts.get, _USAGE_FIELDS)
            self._input_said = said or 0
            self._usage = Usage(
                input_tokens=self._input_said + (read or 0) + (written or 0),  # here, the parts stand beside the count
                output_tokens=output or 0,
                cache_read_tokens=read,
                cache_write_tokens=written,
                reasoning_tokens=thought,
            )

    def _release(self) -> Iterator[Chunk]:
        for part in self._open.values():
            if not part.closed:
                yield from self._stop(part)

    def _conclude(self) -> Iterator[Chunk]:
        kind = _FINISHES.get(self._reason or "", FinishKind.UNKNOWN)
        if kind in ANSWERED and any(not part.closed and not part.arguments.strip() for _, part in self._calls):
            yield failed(http_failures.unfinished_call(self._site))
            return
        calls = [
            CallText(at, text_in(part.raw, "id"), text_in(part.raw, "name"), part.arguments) for at, part in self._calls
        ]
        ends = settled(calls)
        dropped = {call.at for call in calls} - {end.at for end in ends}
        said = {} if self._reason in _PLAIN else {"said": self._reason}
        yield from self._ended(kind, ends, self._entries(dropped), {**said, **self._details})

    def _entries(self, dropped: set[int]) -> tuple[JsonValue, ...] | None:
        if not self._replay:
            return None
        return tuple(self._replay.get(at) for at in range(self._blocks.count) if at not in dropped)


def _hidden(raw: dict[str, Any]) -> bool:
    """Whether what the block says is no text of the answer."""
    return text_in(raw, "type") != "text"


def whole_block(entry: object, text: str) -> dict[str, Any] | None:
    """The content block of a replay entry, with the text of its block of ours; None if it is no such entry."""
    if not isinstance(entry, FrozenDict) or not isinstance(entry.get(BLOCK), FrozenDict):
        return None
    kept: FrozenDict = entry[BLOCK]
    return {name: text if value is None and name in ("text", "thinking") else value for name, value in kept.items()}
