"""What the decoders of all wires share: server-sent events in, chunks of ours out. Pure, one decoder an answer.

A wire says what each event means. Here is decided what counts as an event at all, how blocks are numbered and their
text is told, and how an answer ends: whole, empty, cut off, or refused by the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from lifecycle.errors import ModelError, NotJsonError
from lifecycle.vocabulary.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    Usage,
    UsageReport,
    failed,
)
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import ToolCallBlock
from lifecycle.vocabulary.values import EMPTY, FrozenDict, JsonValue, freeze, mend

from . import http_failures
from .failure_classes import WORDS, read
from .http_failures import Site
from .sse import ServerEvent

ANSWERED = frozenset({FinishKind.STOP, FinishKind.TOOL_CALLS, FinishKind.UNKNOWN})
"""The finishes of an answer that is whole: its calls run, and it has to have some content."""

MOST_BLOCKS = 4096
"""How many blocks an answer may have: more than any model asks for, and few enough that none costs too much."""

_WIRES: Mapping[str, str] = {
    "response.": "openai-responses",
    "message_": "anthropic-messages",
    "content_block_": "anthropic-messages",
}
"""How the types of events begin that name a part of an answer, and of which wire such an event is."""

_PARTS_OF_ANSWERS = tuple(_WIRES)
"""Those are no error, whatever their name or their fields."""

_IDLE_WORDS = re.compile(r"\W{0,3}(?:ping|pong|keep[-_ ]?alive|heart[-_ ]?beat)\W{0,3}", re.IGNORECASE)
"""What servers send as data, instead of a comment, to say that they are alive."""

_DELTAS: Mapping[str, Callable[[int, str], Chunk]] = {"text": TextDelta, "reasoning": ReasoningDelta}


@dataclass(slots=True, eq=False)
class Draft:
    """A block of text or reasoning while it is told. It gets its number with its first letter."""

    kind: str
    at: int | None = None
    held: str = ""


class Blocks:
    """The blocks of one answer, numbered in the order in which they begin."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.count = 0

    def take(self) -> int:
        """The number of a new block. Raises ModelError if there are too many."""
        if self.count >= MOST_BLOCKS:
            raise too_many_blocks(self._site)
        at, self.count = self.count, self.count + 1
        return at

    def say(self, draft: Draft, text: str) -> Iterator[Chunk]:
        """Tell a piece of text. Half a character is held: servers that cut UTF-16 send its rest in the next delta."""
        text, draft.held = draft.held + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, draft.held = text[:-1], text[-1]
        if not text:
            return
        if draft.at is None:
            draft.at = self.take()
            yield BlockStart(draft.at, draft.kind)
        yield _DELTAS[draft.kind](draft.at, mend(text))

    def release(self, draft: Draft) -> Iterator[Chunk]:
        """Let go of half a character whose rest never came."""
        held, draft.held = draft.held, ""
        if held:
            if draft.at is None:
                draft.at = self.take()
                yield BlockStart(draft.at, draft.kind)
            yield _DELTAS[draft.kind](draft.at, mend(held))


class Decoder:
    """Feed it the events; `finish` says how it ended.

    A wire overrides `_take` (an event), `_whole` (an answer that is not streamed) and `_conclude` (the end of an answer
    that arrived), and perhaps `answered`.
    """

    wire: ClassVar[str]
    """The name of what it understands."""

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        self._site = site
        self._empty_is_failure = empty_is_failure
        self._blocks = Blocks(site)
        self._failure: Failure | None = None
        self._usage: Usage | None = None
        self._input_said: int | None = None
        self._reported: Usage | None = None
        self.done = False
        """Whether the server has said that the answer is over."""
        self.moved = False
        """Whether anything came that brings the answer forward, since this was last set to False."""
        self._wires: set[str] = set()
        """Of which wires the events were that came, until one was of its own."""

    @property
    def over(self) -> bool:
        """Whether nothing that follows can count."""
        return self.done or self._failure is not None

    @property
    def answered(self) -> bool:
        """Whether the answer is complete, though usage or the mark that ends it may follow."""
        return False

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        """The chunks that the event amounts to. Once `over`, everything is ignored."""
        data = event.data.strip()
        if self.over or not data:
            return
        if data == "[DONE]":
            self._marked()
            return
        said = said_in(data)
        if said is None and _each_counts(data):
            for line in data.split("\n"):  # the server forgets the blank line between its events
                yield from self.feed(ServerEvent(event.name, line))
        elif said is None and _IDLE_WORDS.fullmatch(data):
            pass
        elif said is None and event.name != "error":
            excerpt = self._site.quote(data)[:120]
            self._failure = http_failures.protocol(
                f"{self._site.name} sent an event that is no JSON object: {excerpt}", retryable=True
            )
        elif said is None or _is_error(event.name, said) or _complains(said):
            self._failure = http_failures.in_stream(self._site, data if said is None else said)
        else:
            if self.wire not in self._wires:
                self._wires |= _wire_of(event.name, said)
            for chunk in self._take(event.name, said):
                self.moved = True
                yield chunk

    def unterminated(self, event: ServerEvent) -> Iterator[Chunk]:
        """The event that the body broke off in: it counts if what it says is whole."""
        data = event.data.strip()
        if data == "[DONE]" or said_in(data) is not None or _each_counts(data):
            yield from self.feed(event)

    def document(self, body: bytes) -> Iterator[Chunk]:
        """A whole answer, of a server that did not stream."""
        text = body.decode("utf-8", "replace")
        said = said_in(text)
        if not text.strip():
            self._failure = self._cut()
        elif said is None:
            excerpt = self._site.quote(text)[:120]
            self._failure = http_failures.protocol(
                f"{self._site.name} answered with something that is neither a stream nor a JSON object: {excerpt}",
                retryable=False,
            )
        elif _is_error("", said):
            self._failure = http_failures.in_stream(self._site, said)
        else:
            yield from self._whole(said)

    def finish(self, broken: Failure | None = None) -> Iterator[Chunk]:
        """The end of the answer; the last chunk is a `Finish`. `broken` says how the connection broke, if it did."""
        yield from self._release()
        yield from self._report()
        failure = self._failure or (None if self.done or self.answered else broken or self._cut())
        if failure is not None:
            yield failed(failure)
        else:
            yield from self._conclude()

    # What a wire says.

    def _take(self, name: str, said: dict[str, Any]) -> Iterator[Chunk]:
        """An event. `name` is the server's name for it, or empty."""
        raise NotImplementedError

    def _whole(self, said: dict[str, Any]) -> Iterator[Chunk]:
        """An answer in one document; sets `done`, or a failure."""
        raise NotImplementedError

    def _conclude(self) -> Iterator[Chunk]:
        """The last chunks of an answer that arrived; normally ends with `_ended`."""
        raise NotImplementedError

    def _release(self) -> Iterator[Chunk]:
        """What is still held back of the blocks that are open."""
        raise NotImplementedError

    def _marked(self) -> None:
        """The mark `[DONE]` came. It ends an answer only where the wire knows it."""

    # What a wire uses.

    def _ended(
        self,
        kind: FinishKind,
        calls: Sequence[BlockEnd] = (),
        replay: tuple[JsonValue, ...] | None = None,
        extra: Mapping[str, object] = EMPTY,
    ) -> Iterator[Chunk]:
        """The end of an answer. An empty one is a failure; whether it asks for calls is told by those that it holds."""
        if calls and kind in ANSWERED:
            kind = FinishKind.TOOL_CALLS
        elif kind is FinishKind.TOOL_CALLS and not calls:
            kind = FinishKind.STOP
        kept = kept_json(extra)
        told = kept if isinstance(kept, FrozenDict) and kept else None
        if self._empty_is_failure and self._blocks.count == 0 and kind in ANSWERED:
            empty = FrozenDict({**(told or {}), "instead": kind.value})
            yield failed(http_failures.empty_response(self._site))._replace(extra=empty)
            return
        yield from calls
        yield Finish(kind, replay=replay, extra=told)

    def _report(self) -> Iterator[Chunk]:
        if self._usage is not None and self._usage != self._reported:
            self._reported, said = self._usage, self._input_said
            yield UsageReport(
                self._usage, FrozenDict(input=said) if said not in (None, self._usage.input_tokens) else None
            )

    def _cut(self) -> Failure:
        if self._wires and self.wire not in self._wires:
            return http_failures.no_answer(self._site, "stream")
        return http_failures.transport(
            f"{self._site.name} closed the connection before the answer was finished; try again"
        )


def too_many_blocks(site: Site) -> ModelError:
    return ModelError(
        http_failures.protocol(f"{site.name} sent an answer of more than {MOST_BLOCKS} blocks", retryable=False)
    )


_OF_ANSWERS = frozenset({"object", "usage", "done"})
"""Fields of what is a part of an answer, or tells of one."""
_WELL = frozenset((
    "ok", "success", "true", "0", "200",
    "created", "queued", "pending", "waiting", "processing", "running", "in_progress", "started",
))  # fmt: skip
"""What an event says of itself that tells how far the server has come."""


def said_in(text: str) -> dict[str, Any] | None:
    """The JSON object that an event or a document is. Google sends an error as the only item of a list."""
    said = json_object(text)
    if said is None and text.lstrip().startswith("["):
        errors = dicts_in(json_object(f'{{"listed":{text}}}') or {}, "listed")
        return errors[0] if errors and _is_error("", errors[0]) else None
    return said


_MOST_LINES = 4_096
"""In how many lines of one event others are looked for: all of it is done in one piece."""


def _each_counts(data: str) -> bool:
    """Whether each of several lines is an event of its own."""
    lines = [line.strip() for line in data.split("\n", _MOST_LINES)]
    return 1 < len(lines) <= _MOST_LINES and all(
        line in ("", "[DONE]") or json_object(line) is not None for line in lines
    )


def _is_error(name: str, said: dict[str, Any]) -> bool:
    """Whether the event reports a failure. What the data says of itself outweighs the name of the event."""
    kind = text_in(said, "type")
    if kind.startswith(_PARTS_OF_ANSWERS) and kind != "response.error":
        return False
    if said.get("error") or said.get("errors") or "error" in (name, kind, said.get("object")):
        return True
    return not kind and "choices" not in said and read(said).status is not None


def _wire_of(name: str, said: dict[str, Any]) -> set[str]:
    """The wire that an event is of, if it shows that."""
    kind = text_in(said, "type") or name
    named = {wire for begin, wire in _WIRES.items() if kind.startswith(begin)}
    return named or ({"openai-chat"} if dicts_in(said, "choices") else set[str]())


def _complains(said: dict[str, Any]) -> bool:
    """Whether an event that is no part of an answer says in words what is wrong: gateways have no one form for that."""
    kind = text_in(said, "type")
    if said.get("choices") is not None or (kind and "choices" not in said) or said.keys() & _OF_ANSWERS:
        return False
    if any(str(said.get(mark)).lower() in _WELL for mark in ("status", "success", "code")):
        return False
    return any(isinstance(said.get(words), str) and said[words] for words in WORDS)


def finished_call(at: int, id: str, name: str, arguments: str) -> BlockEnd:
    """The end of a call that may run. `null`, which some servers send for no arguments, is an empty object."""
    raw = mend(arguments)
    raw = "{}" if raw.strip() == "null" else raw
    return BlockEnd(at, ToolCallBlock(id=mend(id), name=mend(name), arguments=raw))


def is_object(text: str) -> bool:
    """Whether `text` is a whole JSON object."""
    stripped = text.strip()
    return stripped.endswith("}") and json_object(stripped) is not None


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` spells. NaN and the infinities, which are no JSON, are read as null."""
    try:
        said: Any = json.loads(text, parse_constant=_nothing)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else None


def _nothing(_: str) -> None:
    return None


def dict_in(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`; an empty one if there is none."""
    value: object = holder.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def dicts_in(holder: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in the list under `key`; whatever else stands there is passed over."""
    return [cast("dict[str, Any]", item) for item in list_of(holder.get(key)) if isinstance(item, dict)]


def list_of(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def text_in(holder: Mapping[str, Any], key: str) -> str:
    """The string under `key`; empty if there is none."""
    value: object = holder.get(key)
    return value if isinstance(value, str) else ""


def index_in(holder: Mapping[str, Any], key: str) -> int | None:
    """The whole number under `key`; some servers spell it as text, or as a fraction of nothing."""
    value: object = holder.get(key)
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_in(holder: Mapping[str, Any], *keys: str) -> int | None:
    """The number of tokens under the first of the keys that holds one: no fraction, not negative, and not endless."""
    for key in keys:
        value: object = holder.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:  # what a log can carry
            return value
    return None


def spelt_in(holder: Mapping[str, Any], key: str) -> str:
    """The text under `key`; JSON that some servers put there as it is, is text again."""
    value: object = holder.get(key)
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def kept_json(value: object) -> JsonValue:
    """`value` as a log can keep it; None if it cannot be kept as it is."""
    try:
        return freeze(value)
    except (NotJsonError, RecursionError):
        return None
