"""What a Chat Completions stream says: its events in, chunks of ours out. Pure, one decoder an answer.

Text and reasoning are told by their deltas alone; a tool call also gets a `BlockEnd`, because only the end shows
which fragments belonged together, and that block is what runs. Null, empty and absent mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lifecycle.vocabulary.chunks import BlockStart, Chunk, FinishKind, ToolCallDelta, Usage, failed
from lifecycle.vocabulary.values import JsonValue, mend

from . import http_failures
from .decoding import (
    Decoder,
    Draft,
    count_in,
    dict_in,
    dicts_in,
    finished_call,
    index_in,
    kept_json,
    list_of,
    text_in,
)
from .http_failures import Site
from .openai_calls import Call, Calls, Fragment
from .openai_messages import DETAILS, EXTRA, FIELD, REASONING_FIELDS

_WORDS = {
    FinishKind.STOP: "stop end_turn eos eos_token stop_sequence complete",
    FinishKind.TOOL_CALLS: "tool_calls function_call tool_use",
    FinishKind.MAX_TOKENS: "length max_tokens max_output_tokens model_length model_context_window_exceeded",
    FinishKind.CONTENT_FILTER: "content_filter content_filtered sensitive safety recitation prohibited_content"
    " blocklist spii guardrail_intervened",
    FinishKind.REFUSAL: "refusal",
}
_FINISHES = {word: kind for kind, words in _WORDS.items() for word in words.split()}
"""Why servers say that an answer ended, in lower case."""

_PLAIN = (None, "stop", "tool_calls")
"""Reasons that our names for them say in full."""

_BROKEN_OFF = frozenset({
    "insufficient_system_resource", "error", "abort", "aborted", "cancelled", "network_error", "timeout",
    "malformed_function_call",
})  # fmt: skip
"""Finish reasons that mean a failure of the server in the middle of the answer."""


class ChatDecoder(Decoder):
    """Ends with `[DONE]`, or with a reason where a server forgets the mark."""

    wire = "openai-chat"

    def __init__(self, site: Site, *, empty_is_failure: bool = True) -> None:
        super().__init__(site, empty_is_failure=empty_is_failure)
        self._open: Draft | None = None
        self._calls = Calls()
        self._reasoning: dict[int, str] = {}
        self._details = ReasoningDetails()
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
        choices = dicts_in(said, "choices")
        holders = (said, dict_in(said, "x_groq"), *choices)
        usage = next((found for holder in holders if (found := _usage(dict_in(holder, "usage")))), None)
        if usage is not None and (usage != Usage() or self._usage is None):  # zeros at the end take nothing back
            self._usage = usage
        for choice in choices:
            yield from self._choice(choice)
        if usage is not None and not choices:  # running totals beside deltas are reported once, at the end
            yield from self._report()

    def _choice(self, choice: dict[str, Any]) -> Iterator[Chunk]:
        if index_in(choice, "index") not in (0, None):  # we ask for one answer
            return
        if choice.get("error"):
            self._failure = http_failures.in_stream(self._site, choice)
            return
        delta = dict_in(choice, "delta")
        if not delta and not self._told:  # a whole answer; beside an empty delta it would repeat what came before
            delta = dict_in(choice, "message")
        detailed = self._details.add(dicts_in(delta, DETAILS))
        field = next((name for name in REASONING_FIELDS if text_in(delta, name)), "")
        yield from self._said("reasoning", text_in(delta, field) or detailed, field)
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
        reason = text_in(choice, "finish_reason")
        self._reason = self._reason if reason in ("", "null") else reason

    @property
    def _told(self) -> bool:
        """Whether anything of the answer has come."""
        return self._open is not None or self._blocks.count > 0

    def _content(self, content: object) -> Iterator[Chunk]:
        if isinstance(content, str):
            yield from self._said("text", content)
            return
        for raw in list_of(content):  # some servers stream a list of parts
            part = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            if part.get("type") in ("text", "output_text"):
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
        reason = (self._reason or "").lower()
        called = self._calls.settled()
        if reason in _BROKEN_OFF:
            yield failed(http_failures.in_stream(self._site, {"message": self._reason, "type": "server_error"}))
            return
        if not reason and not all(call.arguments.strip() for call in called):
            # Nobody has said that the model was done, and no arguments are none yet.
            yield failed(http_failures.unfinished_call(self._site))
            return
        kind = FinishKind.REFUSAL if self._refused else _FINISHES.get(reason, FinishKind.UNKNOWN)
        if self._details and not self._reasoning:
            at = self._blocks.take()  # nothing to show, but it has to go back
            self._reasoning[at] = ""
            yield BlockStart(at, "reasoning")
        ends = [finished_call(call.at, call.id or "", call.name, call.arguments) for call in called]
        told = {} if self._reason in _PLAIN else {"said": self._reason}
        yield from self._ended(kind, ends, self._replay(called), told)

    def _replay(self, called: list[Call]) -> tuple[JsonValue, ...] | None:
        """For each block, what must come back with it. Nothing where there is none."""
        entries: dict[int, JsonValue] = {call.at: kept_json({EXTRA: call.extra}) for call in called if call.extra}
        for at, field in self._reasoning.items():
            kept: dict[str, object] = {FIELD: field} if field else {}
            kept |= {DETAILS: self._details.whole} if self._details and at == min(self._reasoning) else {}
            entries[at] = kept_json(kept) if kept else None
        if not any(entries.values()):
            return None
        return tuple(entries.get(at) for at in range(self._blocks.count) if at not in self._calls.repeated)


class ReasoningDetails:
    """The reasoning in OpenRouter's own form, which goes back whole: its entries come in pieces, as text does."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._told: list[list[str]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def whole(self) -> list[dict[str, Any]]:
        return [
            {**entry, _DETAIL_TEXTS[text_in(entry, "type")]: "".join(told)} if told else entry
            for entry, told in zip(self._entries, self._told, strict=True)
        ]

    def add(self, pieces: list[dict[str, Any]]) -> str:
        """Put pieces to what there is; returns what they say that can be shown."""
        shown = ""
        for piece in pieces:
            field = _DETAIL_TEXTS.get(text_in(piece, "type"), "")
            text = text_in(piece, field)
            last = self._entries[-1] if self._entries else {}
            if field and all(last.get(name) == piece.get(name) for name in ("type", "index")):
                last |= {name: value for name, value in piece.items() if value is not None}
            else:
                self._entries.append({**piece})
                self._told.append([])
            self._told[-1] += [text] if text else []
            shown += text
        return shown


_DETAIL_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Under which name each type of entry holds its text."""


def _usage(said: dict[str, Any]) -> Usage | None:
    read, written = (
        count_in(said, "prompt_tokens", "input_tokens"),
        count_in(said, "completion_tokens", "output_tokens"),
    )
    if read is None and written is None:
        return None
    details = dict_in(said, "prompt_tokens_details")
    cached = count_in(details, "cached_tokens")
    return Usage(
        input_tokens=read or 0,
        output_tokens=written or 0,
        cache_read_tokens=count_in(said, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=count_in(details, "cache_write_tokens"),
        reasoning_tokens=count_in(dict_in(said, "completion_tokens_details"), "reasoning_tokens"),
    )
