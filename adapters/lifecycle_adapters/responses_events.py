"""What a Responses stream says: its events in, chunks of ours out. Pure, one decoder an answer.

An answer is a list of items, each told in deltas, in events that say the same again as a whole, and once more at the
end. Whatever comes first is told; what is said to be done wins. Items are found by id, or by index where servers change
the ids. What must go back unchanged (encrypted reasoning, the server's own tools) is kept as replay state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lifecycle.vocabulary.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishKind,
    ToolCallDelta,
    Usage,
    failed,
)
from lifecycle.vocabulary.messages import ReasoningBlock, TextBlock
from lifecycle.vocabulary.values import FrozenDict, JsonValue, mend

from . import http_failures
from .calls import CallText, settled
from .decoding import (
    ANSWERED,
    MOST_BLOCKS,
    Decoder,
    Draft,
    count_in,
    dict_in,
    dicts_in,
    index_in,
    kept_json,
    text_in,
    too_many_blocks,
)
from .http_failures import Site

ITEM = "item"
"""The field of a replay entry that holds an item as it is to be sent back."""

PHASE = "phase"
"""The field of a replay entry of a message that some models want back with it."""

_IDLE = frozenset({"response.in_progress", "response.queued", "keepalive", "response.keepalive", "ping"})
"""Events that say no more than that the server is alive."""

_PART_TYPES = {"output_text": "text", "text": "text", "refusal": "refusal"}
_TEXT_EVENTS = {
    "response.output_text": ("message", "text", "content_index"),
    "response.refusal": ("message", "refusal", "content_index"),
    "response.reasoning_summary_text": ("reasoning", "summary", "summary_index"),
    "response.reasoning_text": ("reasoning", "content", "content_index"),
}
"""For the beginning of a type: the item it belongs to, what it tells, and where its number stands."""

_PartKey = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Item:
    type: str
    raw: dict[str, Any]
    draft: Draft
    at: int | None = None
    told: dict[_PartKey, list[str]] = field(default_factory=lambda: {})
    whole: dict[_PartKey, str] = field(default_factory=lambda: {})
    named: bool = False
    pieces: list[str] = field(default_factory=lambda: [])
    arguments: str | None = None
    """All of them, once the server has said so."""
    done: bool = False

    @property
    def spelt(self) -> str:
        """The arguments as far as they are known."""
        return "".join(self.pieces) if self.arguments is None else self.arguments

    @property
    def shown(self) -> dict[_PartKey, str]:
        """Its parts as they were told."""
        return {key: "".join(pieces) for key, pieces in self.told.items()}

    @property
    def parts(self) -> dict[_PartKey, str]:
        """Its parts as the server said them last, where it said them as a whole."""
        return {**self.shown, **self.whole}

    def joined(self, parts: dict[_PartKey, str]) -> str:
        return _GAPS.get(self.type, "").join(parts.values())


_GAPS = {"reasoning": "\n\n"}
"""What stands between the parts of an item."""


class ResponsesDecoder(Decoder):
    """Ends with `response.completed` or another event that carries the response's last status."""

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        super().__init__(site, empty_is_failure=empty_is_failure)
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._by_index: dict[int, _Item] = {}
        self._call_ids: set[str] = set()
        self._kind = FinishKind.UNKNOWN
        self._said: str | None = None
        self._refused = False

    def _take(self, name: str, said: dict[str, Any]) -> Iterator[Chunk]:
        kind = text_in(said, "type") or name
        self.moved = self.moved or kind not in _IDLE
        stem, _, last = kind.rpartition(".")
        if stem in _TEXT_EVENTS and last in ("delta", "done"):
            of, what, number = _TEXT_EVENTS[stem]
            item = self._found(said, of) or self._new({"type": of}, said)
            key = (what, index_in(said, number) or 0)
            if last == "delta":
                yield from self._tell(item, key, text_in(said, "delta"))
            else:
                yield from self._tell_whole(item, key, text_in(said, "text") or text_in(said, "refusal"))
            return
        match kind:
            case "response.output_item.added":
                yield from self._added(said, dict_in(said, "item"))
            case "response.output_item.done":
                yield from self._item_done(said, dict_in(said, "item"))
            case "response.content_part.done":
                message = self._found(said, "message")
                part = dict_in(said, "part")
                said_as = _PART_TYPES.get(text_in(part, "type"))
                if message is not None and said_as is not None:
                    key = (said_as, index_in(said, "content_index") or 0)
                    yield from self._tell_whole(message, key, text_in(part, "text") or text_in(part, "refusal"))
            case "response.function_call_arguments.delta":
                item = self._found(said, "function_call") or self._new({"type": "function_call"}, said)
                yield from self._argue(item, text_in(said, "delta"))
            case "response.function_call_arguments.done":
                item = self._found(said, "function_call") or self._new({"type": "function_call"}, said)
                yield from self._argued(item, said)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                yield from self._over(dict_in(said, "response"), kind.removeprefix("response."))
            case _:
                pass

    def _whole(self, said: dict[str, Any]) -> Iterator[Chunk]:
        if not isinstance(said.get("output"), list):
            self._failure = http_failures.no_answer(self._site)
            return
        yield from self._over(said, "completed")

    # Items.

    def _found(self, said: dict[str, Any], type: str) -> _Item | None:
        """The item that an event means."""
        item = self._by_id.get(text_in(said, "item_id")) or self._by_index.get(_index(said))
        return item if item is not None and item.type == type else None

    def _new(self, raw: dict[str, Any], said: dict[str, Any]) -> _Item:
        if len(self._items) >= MOST_BLOCKS:
            raise too_many_blocks(self._site)
        type = text_in(raw, "type")
        item = _Item(type, raw, Draft("text" if type == "message" else "reasoning"))
        self._items.append(item)
        self._name(item, raw, said)
        return item

    def _name(self, item: _Item, raw: dict[str, Any], said: dict[str, Any]) -> None:
        for id in (text_in(raw, "id"), text_in(said, "item_id")):
            if id:
                self._by_id.setdefault(id, item)
        index = _index(said)
        if index >= 0:
            self._by_index[index] = item

    def _added(self, said: dict[str, Any], raw: dict[str, Any]) -> Iterator[Chunk]:
        if text_in(raw, "id") in self._by_id or not text_in(raw, "type"):
            return
        before = self._by_index.get(_index(said))
        if before is not None and not before.done and _matches(before, raw) and not _differs(before, raw, "id"):
            return
        item = self._new(raw, said)
        if item.type == "function_call":
            yield from self._begin_call(item)
            yield from self._argue(item, _arguments(raw))

    def _item_done(self, said: dict[str, Any], raw: dict[str, Any]) -> Iterator[Chunk]:
        item = self._by_id.get(text_in(raw, "id"))
        if item is None:
            there = self._by_index.get(_index(said))
            item = there if there is not None and _matches(there, raw) else None
            if item is not None and item.done and _differs(item, raw, "id"):
                item = None
        if item is None:
            if not text_in(raw, "type"):
                return
            item = self._new(raw, said)
        yield from self._settle(item, raw)

    def _settle(self, item: _Item, raw: dict[str, Any]) -> Iterator[Chunk]:
        """Take an item as the server closed it. The first time counts."""
        if item.done:
            return
        item.done = True
        item.raw = {**item.raw, **raw}
        if item.type == "function_call":
            yield from self._begin_call(item)
            yield from self._argued(item, raw)
        elif item.type == "message":
            for at, part in enumerate(dicts_in(raw, "content")):
                what = _PART_TYPES.get(text_in(part, "type"))
                if what is not None:
                    yield from self._tell_whole(item, (what, at), text_in(part, "text") or text_in(part, "refusal"))
        elif item.type == "reasoning":
            for what in ("summary", "content"):
                for at, part in enumerate(dicts_in(raw, what)):
                    yield from self._tell_whole(item, (what, at), text_in(part, "text"))
        if item.type not in ("message", "function_call") and item.draft.at is None and _has_state(item):
            item.draft.at = self._blocks.take()  # nothing to show, but it has to go back
            yield BlockStart(item.draft.at, "reasoning")

    # Text.

    def _tell(self, item: _Item, key: _PartKey, text: str) -> Iterator[Chunk]:
        self._refused = self._refused or (key[0] == "refusal" and bool(text))
        if not text or item.done or key in item.whole:
            return
        yield from self._say(item, key, text)

    def _say(self, item: _Item, key: _PartKey, text: str) -> Iterator[Chunk]:
        gap = _GAPS.get(item.type, "") if item.told and key not in item.told else ""
        item.told.setdefault(key, []).append(text)
        yield from self._blocks.say(item.draft, gap + text)

    def _tell_whole(self, item: _Item, key: _PartKey, text: str) -> Iterator[Chunk]:
        """A part as a whole: what is new in it is told; what contradicts the deltas wins at the end."""
        if not text or key in item.whole:
            return
        self._refused = self._refused or key[0] == "refusal"
        item.whole[key] = text
        told = "".join(item.told.get(key, ()))
        last = not told or key == next(reversed(item.told))  # only the last part can still grow
        if last and len(text) > len(told) and text.startswith(told):
            yield from self._say(item, key, text[len(told) :])

    # Calls.

    def _begin_call(self, item: _Item) -> Iterator[Chunk]:
        begun = item.at is not None
        if item.at is None:
            item.at = self._blocks.take()
            yield BlockStart(item.at, "tool-call")
        name, id = text_in(item.raw, "name"), text_in(item.raw, "call_id")
        if name and not item.named and id not in self._call_ids:
            # One that may be a mere repetition comes to nothing without its name and its end.
            self._call_ids.update({id} - {""})
            item.named = True
            yield ToolCallDelta(item.at, mend(id) or None, mend(name))
        elif not begun and id:
            yield ToolCallDelta(item.at, mend(id))

    def _argue(self, item: _Item, piece: str) -> Iterator[Chunk]:
        if item.arguments is not None or not piece:
            return
        yield from self._begin_call(item)
        item.pieces.append(piece)
        if item.at is not None:
            yield ToolCallDelta(item.at, arguments=mend(piece))

    def _argued(self, item: _Item, said: dict[str, Any]) -> Iterator[Chunk]:
        """All arguments of a call. The server's last word on them: they win over the pieces."""
        yield from self._begin_call(item)
        arguments = _arguments(said)
        if item.arguments is None or (arguments.strip() and not item.arguments.strip()):
            if not arguments.strip():
                arguments = "".join(item.pieces)
            elif not item.pieces and item.at is not None:
                yield ToolCallDelta(item.at, arguments=mend(arguments))
            item.arguments = arguments

    # The end.

    def _over(self, response: dict[str, Any], event: str) -> Iterator[Chunk]:
        self._usage = _usage(dict_in(response, "usage")) or self._usage
        status = text_in(response, "status")
        status = status if status in ("completed", "incomplete", "failed", "cancelled") else event
        if status in ("failed", "cancelled"):
            error = dict_in(response, "error") or {"message": f"the response is {status}"}
            self._failure = http_failures.in_stream(self._site, {"error": error})
            return
        for at, raw in enumerate(dicts_in(response, "output")):
            item = self._listed(at, raw)
            if item is not None:
                yield from self._settle(item, raw)
        self.done = True
        if status == "completed":
            self._kind = FinishKind.STOP
            return
        self._said = text_in(dict_in(response, "incomplete_details"), "reason") or None
        filtered = self._said == "content_filter"
        self._kind = FinishKind.CONTENT_FILTER if filtered else FinishKind.MAX_TOKENS

    def _listed(self, at: int, raw: dict[str, Any]) -> _Item | None:
        """The item that stands in the list of a response, new if it was never told."""
        type = text_in(raw, "type")
        if not type:
            return None
        named = self._by_id.get(text_in(raw, "id"))
        if named is not None:
            return named
        there = self._by_index.get(at)
        if there is not None and _matches(there, raw):
            return there
        known = next((item for item in self._items if item.type == type and _says(item, raw)), None)
        return known or self._new(raw, {"output_index": at})

    def _release(self) -> Iterator[Chunk]:
        for item in self._items:
            yield from self._blocks.release(item.draft)

    def _conclude(self) -> Iterator[Chunk]:
        kind = FinishKind.REFUSAL if self._refused and self._kind is FinishKind.STOP else self._kind
        called = [(item.at, item) for item in self._items if item.at is not None]
        if kind in ANSWERED and any(item.arguments is None and not item.spelt.strip() for _, item in called):
            yield failed(http_failures.unfinished_call(self._site))
            return
        for item in self._items:
            yield from self._corrected(item)
        calls = [
            CallText(at, text_in(item.raw, "call_id"), text_in(item.raw, "name"), item.spelt) for at, item in called
        ]
        calls.sort()
        ends = settled(calls)
        dropped = {call.at for call in calls} - {end.at for end in ends}
        yield from self._ended(kind, ends, self._entries(dropped), {"said": self._said} if self._said else {})

    def _corrected(self, item: _Item) -> Iterator[Chunk]:
        """The end of a block whose deltas told something else than the server's last word."""
        at = item.draft.at
        if at is None or item.type not in ("message", "reasoning") or item.parts == item.shown:
            return
        block = TextBlock if item.type == "message" else ReasoningBlock
        yield BlockEnd(at, block(text=mend(item.joined(item.parts))))

    def _entries(self, dropped: set[int]) -> tuple[JsonValue, ...] | None:
        entries: dict[int, JsonValue] = {}
        for item in self._items:
            at, phase = item.draft.at, item.raw.get(PHASE)
            if at is None:
                continue
            if item.type == "message":
                if isinstance(phase, str):
                    entries[at] = kept_json({PHASE: phase})
            elif item.done:
                entries[at] = kept_json({ITEM: item.raw})
        if not entries:
            return None
        return tuple(entries.get(at) for at in range(self._blocks.count) if at not in dropped)


def _index(said: dict[str, Any]) -> int:
    index = index_in(said, "output_index")
    return -1 if index is None else index


def _matches(item: _Item, raw: dict[str, Any]) -> bool:
    """Whether the two can be the same item."""
    return item.type == text_in(raw, "type") and not _differs(item, raw, "call_id")


def _differs(item: _Item, raw: dict[str, Any], name: str) -> bool:
    one, other = text_in(item.raw, name), text_in(raw, name)
    return bool(one and other) and one != other


def _says(item: _Item, raw: dict[str, Any]) -> bool:
    """Whether the item has already said what `raw` says."""
    if item.type == "function_call":
        return not _differs(item, raw, "call_id") and item.spelt == _arguments(raw)
    if item.type == "message":
        return "".join(item.parts.values()) == "".join(text_in(part, "text") for part in dicts_in(raw, "content"))
    return item.raw == raw


def _has_state(item: _Item) -> bool:
    return item.type != "reasoning" or bool(text_in(item.raw, "encrypted_content"))


def _arguments(raw: dict[str, Any]) -> str:
    arguments = raw.get("arguments")
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def _usage(said: dict[str, Any]) -> Usage | None:
    if not said:
        return None
    return Usage(
        input_tokens=count_in(said, "input_tokens") or 0,
        output_tokens=count_in(said, "output_tokens") or 0,
        cache_read_tokens=count_in(dict_in(said, "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_in(dict_in(said, "output_tokens_details"), "reasoning_tokens"),
    )


def kept_item(entry: object) -> dict[str, Any] | None:
    """The item of a replay entry; None if it holds none."""
    kept = entry.get(ITEM) if isinstance(entry, FrozenDict) else None
    return dict(kept) if isinstance(kept, FrozenDict) else None
