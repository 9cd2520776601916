"""What a Chat Completions stream says: its events in, chunks of ours out. Pure, one decoder an answer.

Text and reasoning are told by their deltas alone; a tool call also gets a `BlockEnd`, because only the end shows
which fragments belonged together, and that block is what runs. Null, empty and absent mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lifecycle.vocabulary.chunks import BlockStart, Chunk, FinishKind, ToolCallDelta, Usage, failed
from lifecycle.vocabulary.values import FrozenDict, JsonValue, mend

from . import http_failures
from .decoding import (
    Decoder,
    Draft,
    count_in,
    dict_in,
    dicts_in,
    finished_call,
    list_of,
    text_in,
)
from .http_failures import Site
from .openai_calls import Calls, Fragment
from .openai_messages import REASONING_FIELDS

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
_PLAIN = (None, "stop", "tool_calls")
"""Reasons that our names for them say in full."""

_BROKEN_OFF = frozenset({"insufficient_system_resource", "error"})
"""Finish reasons that mean a failure of the server in the middle of the answer."""


class ChatDecoder(Decoder):
    """Ends with `[DONE]`, or with a reason where a server forgets the mark."""

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        super().__init__(site, empty_is_failure=empty_is_failure)
        self._open: Draft | None = None
        self._calls = Calls()
        self._reasoning: dict[int, str] = {}
        self._reason: str | None = None
        self._refused = False

    @property
    def answered(self) -> bool:
        return self._reason is not None

    def _marked(self) -> None:
        self.done = True

    def _whole(self, said: dict[str, Any]) -> Iterator[Chunk]:
        if not isinstance(said.get("choices"), list):
            self._failure = http_failures.no_answer(self._site)
            return
        yield from self._take("", said)
        self.done = True

    def _take(self, name: str, said: dict[str, Any]) -> Iterator[Chunk]:
        usage = _usage(said.get("usage"))
        self._usage = usage or self._usage
        choices = list_of(said.get("choices"))
        for choice in dicts_in(said, "choices"):
            yield from self._choice(choice)
        if usage is not None and not choices:  # running totals beside deltas are reported once, at the end
            yield from self._report()

    def _choice(self, choice: dict[str, Any]) -> Iterator[Chunk]:
        if choice.get("index") not in (0, None):  # we ask for one answer
            return
        delta = dict_in(choice, "delta") or dict_in(choice, "message")
        for name in REASONING_FIELDS:
            reasoning = text_in(delta, name)
            if reasoning:
                yield from self._said("reasoning", reasoning, name)
                break
        yield from self._content(delta.get("content"))
        refusal = text_in(delta, "refusal")
        if refusal:
            self._refused = True
            yield from self._said("text", refusal)
        for call in dicts_in(delta, "tool_calls"):
            yield from self._called(Fragment.read(call))
        legacy = dict_in(delta, "function_call")
        if legacy:
            yield from self._called(Fragment.read({"index": 0, "function": legacy}))
        self._reason = text_in(choice, "finish_reason") or self._reason

    def _content(self, content: object) -> Iterator[Chunk]:
        if isinstance(content, str):
            yield from self._said("text", content)
            return
        for raw in list_of(content):  # some servers stream a list of parts
            part = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            if part.get("type") == "text":
                yield from self._said("text", text_in(part, "text"))
            elif part.get("type") == "thinking":
                pieces = [text_in(piece, "text") for piece in dicts_in(part, "thinking")]
                yield from self._said("reasoning", text_in(part, "thinking") or "".join(pieces))

    def _said(self, kind: str, text: str, field: str = "") -> Iterator[Chunk]:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            yield from self._release()
            self._open = Draft(kind)
        begun = self._open.at
        yield from self._blocks.say(self._open, text)
        if begun is None and self._open.at is not None and kind == "reasoning":
            self._reasoning[self._open.at] = field

    def _release(self) -> Iterator[Chunk]:
        if self._open is not None:
            yield from self._blocks.release(self._open)

    def _called(self, said: Fragment) -> Iterator[Chunk]:
        call = self._calls.place(said, self._blocks.count)
        if call.at == self._blocks.count:
            yield from self._release()
            call.at = self._blocks.take()
            self._open = None
            yield BlockStart(call.at, "tool-call")
        new = call.add(said.arguments)
        if new or said.name is not None:
            # A call that may be a mere repetition goes without its name: without it and its end it comes to nothing.
            name = mend(call.name) if call.name and call.doubts is None else None
            yield ToolCallDelta(call.at, call.id and mend(call.id), name, mend(said.arguments) if new else "")

    def _conclude(self) -> Iterator[Chunk]:
        if self._reason in _BROKEN_OFF:
            yield failed(http_failures.in_stream(self._site, {"message": self._reason, "type": "server_error"}))
            return
        kind = FinishKind.REFUSAL if self._refused else _FINISHES.get(self._reason or "", FinishKind.UNKNOWN)
        calls = [
            finished_call(call.at, call.id or "", call.name, call.arguments)
            for call in self._calls.settled()
            # Without a reason nobody has said that the model was done, and no arguments are none yet.
            if self._reason is not None or call.arguments.strip()
        ]
        yield from self._ended(kind, calls, self._replay(), {} if self._reason in _PLAIN else {"said": self._reason})

    def _replay(self) -> tuple[JsonValue, ...] | None:
        """For each block, what its reasoning must come back as. Nothing where there is none."""
        if not any(self._reasoning.values()):
            return None
        entries: list[JsonValue] = []
        for at in range(self._blocks.count):
            field = self._reasoning.get(at)
            if at not in self._calls.repeated:
                entries.append(FrozenDict(reasoning_field=field) if field else None)
        return tuple(entries)


def _usage(raw: object) -> Usage | None:
    if not isinstance(raw, dict):
        return None
    said = cast("dict[str, Any]", raw)
    return Usage(
        input_tokens=count_in(said, "prompt_tokens") or 0,
        output_tokens=count_in(said, "completion_tokens") or 0,
        cache_read_tokens=count_in(dict_in(said, "prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_in(dict_in(said, "completion_tokens_details"), "reasoning_tokens"),
    )
