"""What a Chat Completions stream says: server-sent events in, chunks of ours out. Pure, one decoder an answer.

Text and reasoning are told by their deltas alone; a tool call also gets a `BlockEnd`, because only the end shows
which fragments belonged together, and that block is what runs. Null, empty and absent mean the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from lifecycle.vocabulary.chunks import (
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
    failed,
)
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import ToolCallBlock
from lifecycle.vocabulary.values import FrozenDict, JsonValue, mend

from . import http_failures
from .http_failures import Site
from .openai_calls import Call, Calls, Fragment
from .openai_messages import REASONING_FIELDS
from .sse import ServerEvent

_FINISHES = {
    "stop": FinishKind.STOP,
    "end_turn": FinishKind.STOP,
    "eos": FinishKind.STOP,
    "tool_calls": FinishKind.TOOL_CALLS,
    "function_call": FinishKind.TOOL_CALLS,
    "tool_use": FinishKind.TOOL_CALLS,
    "length": FinishKind.MAX_TOKENS,
    "max_tokens": FinishKind.MAX_TOKENS,
    "model_length": FinishKind.MAX_TOKENS,
    "content_filter": FinishKind.CONTENT_FILTER,
    "sensitive": FinishKind.CONTENT_FILTER,
    "refusal": FinishKind.REFUSAL,
}
_BROKEN_OFF = frozenset({"insufficient_system_resource", "error"})
"""Finish reasons that mean a failure of the server in the middle of the answer."""

_ANSWERED = frozenset({FinishKind.STOP, FinishKind.TOOL_CALLS, FinishKind.UNKNOWN})


class ChatDecoder:
    """Feed it the events; `finish` says how it ended. `done` tells that the server has said so itself."""

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        self._site = site
        self._empty_is_failure = empty_is_failure
        self._next = 0
        self._open: tuple[str, int] = ("", -1)
        self._held = ""
        self._calls = Calls()
        self._reasoning: dict[int, str] = {}
        self._reason: str | None = None
        self._refused = False
        self.done = False
        self._failure: Failure | None = None
        self._usage: Usage | None = None
        self._reported: Usage | None = None

    @property
    def over(self) -> bool:
        """Whether nothing that follows can count."""
        return self.done or self._failure is not None

    @property
    def answered(self) -> bool:
        """Whether the answer is complete, though usage may follow."""
        return self._reason is not None

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        """The chunks that the event amounts to. Once `over`, everything is ignored."""
        if self.over or not event.data.strip():
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        said = _object(event.data)
        if event.name == "error":
            self._failure = http_failures.in_stream(self._site, event.data if said is None else said)
        elif said is None:
            excerpt = self._site.quote(event.data)[:120]
            self._failure = http_failures.protocol(
                f"{self._site.name} sent an event that is no JSON object: {excerpt}", retryable=True
            )
        else:
            yield from self._chunk(said)

    def unterminated(self, event: ServerEvent) -> Iterator[Chunk]:
        """The event that the body broke off in: it counts if what it says is whole."""
        if event.data.strip() == "[DONE]" or _object(event.data) is not None:
            yield from self.feed(event)

    def document(self, body: bytes) -> Iterator[Chunk]:
        """A whole answer, of a server that did not stream."""
        text = body.decode("utf-8", "replace")
        said = _object(text)
        if said is not None:
            yield from self._chunk(said)
            self.done = True
            return
        excerpt = self._site.quote(text)[:120]
        self._failure = http_failures.protocol(
            f"{self._site.name} answered with something that is neither a stream nor a JSON object: {excerpt}",
            retryable=False,
        )

    def finish(self, broken: Failure | None = None) -> Iterator[Chunk]:
        """The end of the answer; the last chunk is a `Finish`. `broken` says how the connection broke, if it did."""
        yield from self._release()
        yield from self._report()
        failure = self._failure or (None if self.done or self._reason is not None else broken or self._cut())
        if failure is None and self._reason in _BROKEN_OFF:
            failure = http_failures.in_stream(self._site, {"message": self._reason, "type": "server_error"})
        if failure is not None:
            yield failed(failure)
            return
        kind = FinishKind.REFUSAL if self._refused else _FINISHES.get(self._reason or "", FinishKind.UNKNOWN)
        calls = self._calls.settled()
        if calls and kind in _ANSWERED:
            kind = FinishKind.TOOL_CALLS
        if self._empty_is_failure and self._next == 0 and kind in _ANSWERED:
            yield failed(http_failures.empty_response(self._site))
            return
        for call in calls:
            yield BlockEnd(call.at, ToolCallBlock(id=call.id or "", name=mend(call.name), arguments=_arguments(call)))
        yield Finish(kind, replay=self._replay())

    def _cut(self) -> Failure:
        return http_failures.transport(
            f"{self._site.name} closed the connection before the answer was finished; try again"
        )

    def _chunk(self, said: dict[str, Any]) -> Iterator[Chunk]:
        if said.get("error") or said.get("object") == "error":
            self._failure = http_failures.in_stream(self._site, said)
            return
        usage = _usage(said.get("usage"))
        self._usage = usage or self._usage
        choices = _list(said.get("choices"))
        for choice in choices:
            if isinstance(choice, dict):
                yield from self._choice(cast("dict[str, Any]", choice))
        if usage is not None and not choices:  # running totals beside deltas are reported once, at the end
            yield from self._report()

    def _choice(self, choice: dict[str, Any]) -> Iterator[Chunk]:
        if choice.get("index") not in (0, None):  # we ask for one answer
            return
        raw = choice.get("delta") or choice.get("message")
        delta = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        for name in REASONING_FIELDS:
            reasoning = delta.get(name)
            if reasoning and isinstance(reasoning, str):
                yield from self._said("reasoning", reasoning, name)
                break
        yield from self._content(delta.get("content"))
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            yield from self._said("text", refusal)
        for call in _list(delta.get("tool_calls")):
            if isinstance(call, dict):
                yield from self._called(Fragment.read(cast("dict[str, Any]", call)))
        legacy = delta.get("function_call")
        if legacy and isinstance(legacy, dict):
            yield from self._called(Fragment.read({"index": 0, "function": legacy}))
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            self._reason = reason

    def _content(self, content: object) -> Iterator[Chunk]:
        if isinstance(content, str):
            if content:
                yield from self._said("text", content)
            return
        for raw in _list(content):  # some servers stream a list of parts
            part = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                yield from self._said("text", part["text"])
            elif part.get("type") == "thinking":
                thought: object = part.get("thinking")
                pieces = [thought] if isinstance(thought, str) else [_text(piece) for piece in _list(thought)]
                yield from self._said("reasoning", "".join(pieces))

    def _said(self, kind: str, text: str, field: str = "") -> Iterator[Chunk]:
        if self._open[0] != kind:
            yield from self._release()
        text, self._held = self._held + text, ""
        if (
            "\ud800" <= text[-1:] <= "\udbff"
        ):  # half a character: servers that cut UTF-16 send the rest in the next delta
            text, self._held = text[:-1], text[-1]
        if not text:
            return
        if self._open[0] != kind:
            self._open = (kind, self._block())
            if kind == "reasoning":
                self._reasoning[self._open[1]] = field
            yield BlockStart(self._open[1], kind)
        yield (TextDelta if kind == "text" else ReasoningDelta)(self._open[1], mend(text))

    def _release(self) -> Iterator[Chunk]:
        """Let go of a half character whose rest never came."""
        kind, at = self._open
        if self._held and kind:
            held, self._held = self._held, ""
            yield (TextDelta if kind == "text" else ReasoningDelta)(at, mend(held))

    def _called(self, said: Fragment) -> Iterator[Chunk]:
        call = self._calls.place(said, self._next)
        if call.at == self._next:
            yield from self._release()
            self._block()
            self._open = ("", -1)
            yield BlockStart(call.at, "tool-call")
        new = call.add(said.arguments)
        if new or said.name is not None:
            # A call that may be a mere repetition goes without its name: without it and its end it comes to nothing.
            name = mend(call.name) if call.name and call.doubts is None else None
            yield ToolCallDelta(call.at, call.id and mend(call.id), name, mend(said.arguments) if new else "")

    def _block(self) -> int:
        at, self._next = self._next, self._next + 1
        return at

    def _report(self) -> Iterator[Chunk]:
        if self._usage is not None and self._usage != self._reported:
            self._reported = self._usage
            yield UsageReport(self._usage)

    def _replay(self) -> tuple[JsonValue, ...] | None:
        """For each block, what its reasoning must come back as. Nothing where there is none."""
        if not any(self._reasoning.values()):
            return None
        entries: list[JsonValue] = []
        for at in range(self._next):
            field = self._reasoning.get(at)
            if at not in self._calls.repeated:
                entries.append(FrozenDict(reasoning_field=field) if field else None)
        return tuple(entries)


def _arguments(call: Call) -> str:
    """The raw text; `null`, which some servers send for no arguments, is an empty object."""
    raw = mend(call.arguments)
    return "{}" if raw.strip() == "null" else raw


def _object(text: str) -> dict[str, Any] | None:
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else None


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(piece: object) -> str:
    said: object = cast("dict[str, object]", piece).get("text") if isinstance(piece, dict) else None
    return said if isinstance(said, str) else ""


def _usage(raw: object) -> Usage | None:
    if not isinstance(raw, dict):
        return None
    said = cast("dict[str, Any]", raw)

    def count(name: str, within: str | None = None) -> int | None:
        holder = said if within is None else said.get(within)
        value: object = cast("dict[str, object]", holder).get(name) if isinstance(holder, dict) else None
        # More than a log can carry, or less than nothing, is no count.
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None

    return Usage(
        input_tokens=count("prompt_tokens") or 0,
        output_tokens=count("completion_tokens") or 0,
        cache_read_tokens=count("cached_tokens", "prompt_tokens_details"),
        reasoning_tokens=count("reasoning_tokens", "completion_tokens_details"),
    )
