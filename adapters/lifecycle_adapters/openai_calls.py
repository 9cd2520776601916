"""Tool calls as Chat Completions servers stream them: in fragments, under indexes and ids that cannot be trusted.

Decides to which call a fragment belongs. The rules follow what servers in use are known to send: no index, one index
for all calls, no id, one id for two calls, a name on each fragment, the same call twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .decoding import dict_in, index_in, spelt_in, text_in

_MOST_PARSED = 256
"""How often the arguments of one call are looked at while they stream; a server that makes it more is hostile."""


@dataclass(slots=True, eq=False)
class Call:
    """One call while it streams. `at` is the index of its block.

    `doubts` is the call that this one may merely repeat; only the end tells (`Calls.settled`).
    """

    at: int
    said_id: str | None = None
    id: str | None = None
    name: str = ""
    doubts: Call | None = None
    extra: dict[str, Any] = field(default_factory=lambda: {})
    _parts: list[str] = field(default_factory=lambda: [])
    _length: int = 0
    _parsed: int = 0

    @property
    def arguments(self) -> str:
        return "".join(self._parts)

    @property
    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        # Parsing is for the rare fragment that may end an object: some servers name the call on every one.
        last = next((part for part in reversed(self._parts) if part.strip()), "")
        if not last.rstrip().endswith("}") or self._parsed >= _MOST_PARSED:
            return False
        self._parsed += 1
        return isinstance(_parsed(self.arguments), dict)

    def add(self, arguments: str) -> bool:
        """Put a piece of the arguments to it; returns whether it was new. Some servers end with all of them again."""
        if not arguments or (len(arguments) == self._length and arguments == self.arguments and self.whole):
            return False
        self._parts.append(arguments)
        self._length += len(arguments)
        return True


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one delta says of a call. Empty and null equal absent; arguments that came as JSON are text again."""

    index: int | None
    id: str | None
    name: str | None
    arguments: str
    extra: dict[str, Any]
    """What the server wants back with the call, as Google does with its thought signatures."""

    @classmethod
    def read(cls, delta: dict[str, Any]) -> Fragment:
        function = dict_in(delta, "function") or delta  # some servers leave the inner object out
        return cls(
            index_in(delta, "index"),
            text_in(delta, "id") or None,
            text_in(function, "name") or None,
            spelt_in(function, "arguments"),
            dict_in(delta, "extra_content"),
        )

    def continues(self, call: Call) -> bool:
        """Whether this can only be more of the call, for all that it says of its id: arguments begin with a brace."""
        begins = self.arguments.lstrip()[:1]
        nameless = self.name is None and bool(begins)
        return (nameless or (self.name == call.name and begins not in ("", "{"))) and not call.whole


class Calls:
    """The calls of one answer, in the order in which they began."""

    __slots__ = ("_all", "_by_id", "_by_index", "_ids")

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._ids: set[str] = set()

    def place(self, said: Fragment, at: int) -> Call:
        """The call that the fragment belongs to: one that is under way, or a new one whose block is to be `at`.

        What the fragment says of id and name is noted; its arguments are the caller's to add.
        """
        known = self._known(said)
        if known is not None and said.name is not None:
            elsewhere = said.id is not None and said.index is not None and self._by_index.get(said.index) is not known
            if elsewhere or known.whole:
                return self._begin(said, at, known if said.name == known.name else None)
        if known is None:
            return self._begin(said, at, None)
        if said.id is not None and known.id is None:
            self._identify(known, said.id)
        if said.index is not None:
            self._by_index.setdefault(said.index, known)
        if said.name is not None and said.name != known.name:
            known.name += said.name
        known.extra |= said.extra
        return known

    @property
    def repeated(self) -> set[int]:
        """The blocks of calls that only said an earlier one again."""
        return {call.at for call in self._all if _repeats(call)}

    def settled(self) -> list[Call]:
        """The calls that are really there, each with an id of its own; without one it is named after its block."""
        kept = [call for call in self._all if not _repeats(call)]
        for call in kept:
            if call.id is None:
                self._identify(call, f"call-{call.at}")
        return kept

    def _known(self, said: Fragment) -> Call | None:
        here = None if said.index is None else self._by_index.get(said.index)
        if said.id is not None:
            if here is not None and here.said_id in (None, said.id):
                return here
            known = self._by_id.get(said.id)
            # Some servers make up an id for each fragment.
            return here if known is None and here is not None and said.continues(here) else known
        if said.index is not None:
            return here
        last = self._all[-1] if self._all else None
        if last is not None and said.name is not None and last.name not in ("", said.name):
            return None
        return last

    def _begin(self, said: Fragment, at: int, doubts: Call | None) -> Call:
        call = Call(at, name=said.name or "", doubts=doubts, extra=said.extra)
        if said.id is not None:
            self._identify(call, said.id)
        if said.index is not None:
            self._by_index[said.index] = call
        self._all.append(call)
        return call

    def _identify(self, call: Call, id: str) -> None:
        """Give the call an id: this one, or the first of `id-2`, `id-3`, ... that is free. The same in every run."""
        free, number = id, 2
        while free in self._ids:
            free, number = f"{id}-{number}", number + 1
        self._ids.add(free)
        call.id, call.said_id = free, id
        self._by_id[id] = call


def _repeats(call: Call) -> bool:
    doubted = call.doubts
    if doubted is None:
        return False
    arguments = call.arguments
    return not arguments.strip() or arguments == doubted.arguments or _same_object(arguments, doubted.arguments)


def _same_object(one: str, other: str) -> bool:
    parsed = _parsed(one)
    return isinstance(parsed, dict) and parsed == _parsed(other)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
