"""What a Responses stream says: its events in, chunks of ours out. Pure, one decoder an answer.

An answer is a list of items, each told in deltas, in events that say the same again as a whole, and once more at the
end. Whatever comes first is told; what is said to be done wins. Items are found by id, or by index where servers change
the ids. What must go back unchanged (encrypted reasoning, the server's own tools) is kept as replay state.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    is_object,
    kept_json,
    spelt_in,
    text_in,
    too_many_blocks,
)
from .http_failures import Site
from .responses_items import PART_TYPES, Item, PartKey, arguments_in, parts_in, text_of

ITEM = "item"
"""The field of a replay entry that holds an item as it is to be sent back."""

PHASE = "phase"
"""The field of a replay entry of a message that some models want back with it."""

_IDLE = frozenset({"response.in_progress", "response.queued", "keepalive", "response.keepalive", "ping"})
"""Events that say no more than that the server is alive."""

_TEXT_EVENTS = {
    "response.output_text": ("message", "text", "content_index"),
    "response.refusal": ("message", "refusal", "content_index"),
    "response.reasoning_summary_text": ("reasoning", "summary", "summary_index"),
    "response.reasoning_text": ("reasoning", "content", "content_index"),
}
"""For the beginning of a type: the item it belongs to, what it tells, and where its number stands."""

_PART_EVENTS = {
    "response.content_part": ("message", "content_index"),
    "response.reasoning_summary_part": ("reasoning", "summary_index"),
}
"""For the beginning of a type: the item it belongs to, and where the number of the part stands."""

_CALL_EVENTS = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
}
"""For the beginning of a type: the call it belongs to."""

_ENDS = frozenset({"completed", "incomplete", "failed", "cancelled", "done"})


class ResponsesDecoder(Decoder):
    """Ends with `response.completed` or another event that carries the response's last status."""

    wire = "openai-responses"

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        super().__init__(site, empty_is_failure=empty_is_failure)
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._by_index: dict[int, Item] = {}
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
                yield from self._tell_whole(item, key, text_of(said))
        elif stem in _PART_EVENTS and last in ("added", "done"):
            of, number = _PART_EVENTS[stem]
            yield from self._part(said, of, index_in(said, number) or 0, whole=last == "done")
        elif stem in _CALL_EVENTS and last in ("delta", "done"):
            of = _CALL_EVENTS[stem]
            item = self._found(said, of) or self._new({"type": of}, said)
            if last == "delta":
                yield from self._argue(item, spelt_in(said, "delta"))
            else:
                yield from self._argued(item, said)
        elif stem == "response.output_item" and last == "added":
            yield from self._added(said, dict_in(said, "item"))
        elif stem == "response.output_item" and last == "done":
            yield from self._item_done(said, dict_in(said, "item"))
        elif stem == "response" and last in _ENDS:
            yield from self._over(dict_in(said, "response"), last)

    def _whole(self, said: dict[str, Any]) -> Iterator[Chunk]:
        if not isinstance(said.get("output"), list):
            self._failure = http_failures.no_answer(self._site)
            return
        yield from self._over(said, "completed")

    # Items.

    def _found(self, said: dict[str, Any], type: str) -> Item | None:
        """The item that an event means."""
        if not text_in(said, "item_id") and _index(said) < 0:
            return next((item for item in reversed(self._items) if item.type == type), None)
        item = self._by_id.get(text_in(said, "item_id")) or self._by_index.get(_index(said))
        return item if item is not None and item.type == type else None

    def _nameless(self, raw: dict[str, Any]) -> Item | None:
        """The item under way that one without an id, or without a place, can be."""
        under_way = (item for item in reversed(self._items) if not item.done)
        return next((item for item in under_way if item.matches(raw) and not item.differs(raw, "id")), None)

    def _new(self, raw: dict[str, Any], said: dict[str, Any]) -> Item:
        if len(self._items) >= MOST_BLOCKS:
            raise too_many_blocks(self._site)
        type = text_in(raw, "type")
        item = Item(type, raw, Draft("text" if type == "message" else "reasoning"))
        self._items.append(item)
        self._name(item, raw, said)
        return item

    def _name(self, item: Item, raw: dict[str, Any], said: dict[str, Any]) -> None:
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
        if before is not None and not before.done and before.matches(raw) and not before.differs(raw, "id"):
            return
        item = self._new(raw, said)
        item.begun = parts_in(raw)
        if item.is_call:
            yield from self._begin_call(item)
            begun = arguments_in(raw)
            if not is_object(begun):  # a whole one counts if nothing else comes: some servers tell it again in pieces
                yield from self._argue(item, begun)

    def _part(self, said: dict[str, Any], of: str, number: int, *, whole: bool) -> Iterator[Chunk]:
        part = dict_in(said, "part")
        what, text = PART_TYPES.get(text_in(part, "type")), text_of(part)
        if what is None or not text:
            return
        item = self._found(said, of) or self._new({"type": of}, said)
        if whole:
            yield from self._tell_whole(item, (what, number), text)
        else:
            item.begun[what, number] = text

    def _item_done(self, said: dict[str, Any], raw: dict[str, Any]) -> Iterator[Chunk]:
        item = self._by_id.get(text_in(raw, "id"))
        if item is None:
            there = self._by_index.get(_index(said))
            item = there if there is not None and there.matches(raw) else None
            if item is not None and item.done and item.differs(raw, "id"):
                item = None
            if _index(said) < 0:
                item = self._nameless(raw)
        if item is None:
            if not text_in(raw, "type"):
                return
            item = self._new(raw, said)
        yield from self._settle(item, raw)

    def _settle(self, item: Item, raw: dict[str, Any]) -> Iterator[Chunk]:
        """Take an item as the server closed it. The first time counts."""
        if item.done:
            return
        item.done = True
        if item.is_call:
            item.raw |= {name: value for name, value in raw.items() if value not in ("", None)}
            yield from self._begin_call(item)
            yield from self._argued(item, raw)
            return
        item.raw = {**item.raw, **raw}
        if item.type in ("message", "reasoning"):
            for key, text in parts_in(raw).items():
                yield from self._tell_whole(item, key, text)
        if item.has_state and item.draft.at is None:
            item.draft.at = self._blocks.take()  # nothing to show, but it has to go back
            yield BlockStart(item.draft.at, "reasoning")

    # Text.

    def _tell(self, item: Item, key: PartKey, text: str) -> Iterator[Chunk]:
        self._refused = self._refused or (key[0] == "refusal" and bool(text))
        if not text or item.done or key in item.whole:
            return
        yield from self._say(item, key, text)

    def _say(self, item: Item, key: PartKey, text: str) -> Iterator[Chunk]:
        gap = item.gap if item.told and key not in item.told else ""
        item.told.setdefault(key, []).append(text)
        yield from self._blocks.say(item.draft, gap + text)

    def _tell_whole(self, item: Item, key: PartKey, text: str) -> Iterator[Chunk]:
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

    def _begin_call(self, item: Item) -> Iterator[Chunk]:
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

    def _argue(self, item: Item, piece: str) -> Iterator[Chunk]:
        if item.arguments is not None or not piece:
            return
        yield from self._begin_call(item)
        item.pieces.append(piece)
        if item.at is not None:
            yield ToolCallDelta(item.at, arguments=mend(piece))

    def _argued(self, item: Item, said: dict[str, Any]) -> Iterator[Chunk]:
        """All arguments of a call. The server's last word on them: they win over the pieces."""
        yield from self._begin_call(item)
        arguments = arguments_in(said)
        if item.arguments is None or (arguments.strip() and not item.arguments.strip()):
            if not arguments.strip():
                arguments = item.spelt
            elif not item.pieces and item.at is not None:
                yield ToolCallDelta(item.at, arguments=mend(arguments))
            item.arguments = arguments

    # The end.

    def _over(self, response: dict[str, Any], event: str) -> Iterator[Chunk]:
        self._usage = _usage(dict_in(response, "usage")) or self._usage
        status = text_in(response, "status")
        status = status if status in ("completed", "incomplete", "failed", "cancelled") else event
        if status in ("failed", "cancelled"):
            error = response.get("error") or {"message": f"the response is {status}"}
            self._failure = http_failures.in_stream(self._site, {"error": error})
            return
        for at, raw in enumerate(dicts_in(response, "output")):
            item = self._listed(at, raw)
            if item is not None:
                yield from self._settle(item, raw)
        self.done = True
        if status in ("completed", "done"):
            cut = any(item.is_call and item.raw.get("status") == "incomplete" for item in self._items)
            self._kind = FinishKind.MAX_TOKENS if cut else FinishKind.STOP
            return
        self._said = text_in(dict_in(response, "incomplete_details"), "reason") or None
        filtered = self._said == "content_filter"
        self._kind = FinishKind.CONTENT_FILTER if filtered else FinishKind.MAX_TOKENS

    def _listed(self, at: int, raw: dict[str, Any]) -> Item | None:
        """The item that stands in the list of a response, new if it was never told."""
        type = text_in(raw, "type")
        if not type:
            return None
        named = self._by_id.get(text_in(raw, "id"))
        if named is not None:
            return named
        there = self._by_index.get(at)
        if there is not None and there.matches(raw):
            return there
        known = next((item for item in self._items if item.type == type and item.says(raw)), None)
        return known or self._new(raw, {"output_index": at})

    def _release(self) -> Iterator[Chunk]:
        for item in self._items:
            for key, text in item.begun.items() if self.done else ():
                if key not in item.told:
                    yield from self._tell_whole(item, key, text)
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

    def _corrected(self, item: Item) -> Iterator[Chunk]:
        """The end of a block whose deltas told something else than the server's last word."""
        at = item.draft.at
        if at is None or item.type not in ("message", "reasoning") or item.parts == item.shown:
            return
        block = TextBlock if item.type == "message" else ReasoningBlock
        yield BlockEnd(at, block(text=mend(item.gap.join(item.parts.values()))))

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


def _usage(said: dict[str, Any]) -> Usage | None:
    if not said:
        return None
    details = dict_in(said, "input_tokens_details")
    return Usage(
        input_tokens=count_in(said, "input_tokens") or 0,
        output_tokens=count_in(said, "output_tokens") or 0,
        cache_read_tokens=count_in(details, "cached_tokens"),
        cache_write_tokens=count_in(details, "cache_write_tokens"),
        reasoning_tokens=count_in(dict_in(said, "output_tokens_details"), "reasoning_tokens"),
    )


def kept_item(entry: object) -> dict[str, Any] | None:
    """The item of a replay entry; None if it holds none."""
    kept = entry.get(ITEM) if isinstance(entry, FrozenDict) else None
    return dict(kept) if isinstance(kept, FrozenDict) else None
