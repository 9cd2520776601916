"""The items of a Responses answer while they are told, and which of them an event means. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .decoding import Draft, dicts_in, spelt_in, text_in

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that ask us to run something, and the field of each that says with what."""

PART_TYPES = {"output_text": "text", "text": "text", "refusal": "refusal", "summary_text": "summary"}
"""What the parts of an item tell."""

PartKey = tuple[str, int]
"""What a part tells, and its number."""

_GAPS = {"reasoning": "\n\n"}
"""What stands between the parts of an item."""


@dataclass(slots=True, eq=False)
class Item:
    """`raw` is what the server said of it last. A call is told at `at`, everything else through its draft."""

    type: str
    raw: dict[str, Any]
    draft: Draft
    at: int | None = None
    told: dict[PartKey, list[str]] = field(default_factory=lambda: {})
    whole: dict[PartKey, str] = field(default_factory=lambda: {})
    begun: dict[PartKey, str] = field(default_factory=lambda: {})
    """What its parts said where they began, which counts if nothing else comes."""
    named: bool = False
    pieces: list[str] = field(default_factory=lambda: [])
    arguments: str | None = None
    """All of them, once the server has said so."""
    done: bool = False

    @property
    def is_call(self) -> bool:
        return self.type in CALLS

    @property
    def spelt(self) -> str:
        """The arguments as far as they are known."""
        return ("".join(self.pieces) or arguments_in(self.raw)) if self.arguments is None else self.arguments

    @property
    def shown(self) -> dict[PartKey, str]:
        """Its parts as they were told."""
        return {key: "".join(pieces) for key, pieces in self.told.items()}

    @property
    def parts(self) -> dict[PartKey, str]:
        """Its parts as the server said them last, where it said them as a whole."""
        return {**self.shown, **self.whole}

    @property
    def gap(self) -> str:
        return _GAPS.get(self.type, "")

    @property
    def has_state(self) -> bool:
        """Whether it has to go back although there is nothing of it to show."""
        return self.type not in ("message", "reasoning", *CALLS) or bool(text_in(self.raw, "encrypted_content"))

    def matches(self, raw: dict[str, Any]) -> bool:
        """Whether the two can be the same item."""
        return self.type == text_in(raw, "type") and not self.differs(raw, "call_id")

    def differs(self, raw: dict[str, Any], name: str) -> bool:
        one, other = text_in(self.raw, name), text_in(raw, name)
        return bool(one and other) and one != other

    def says(self, raw: dict[str, Any]) -> bool:
        """Whether it has already said what `raw` says."""
        if self.is_call:
            return not self.differs(raw, "call_id") and self.spelt == arguments_in(raw)
        if self.type == "message":
            return "".join(self.parts.values()) == "".join(parts_in(raw).values())
        return self.raw == raw


def parts_in(raw: dict[str, Any]) -> dict[PartKey, str]:
    """The parts of an item that is told as a whole."""
    if text_in(raw, "type") == "reasoning":
        return {(what, at): text for what in ("summary", "content") for at, text in _texts(raw, what)}
    parts = enumerate(dicts_in(raw, "content"))
    return {(what, at): text_of(part) for at, part in parts if (what := PART_TYPES.get(text_in(part, "type")))}


def text_of(part: dict[str, Any]) -> str:
    return text_in(part, "text") or text_in(part, "refusal")


def arguments_in(raw: dict[str, Any]) -> str:
    """What a call, or an event of one, says of its arguments."""
    return spelt_in(raw, "arguments") or spelt_in(raw, "input")


def _texts(raw: dict[str, Any], what: str) -> list[tuple[int, str]]:
    return [(at, text_in(part, "text")) for at, part in enumerate(dicts_in(raw, what))]
