"""The calls of an answer once it is over: each really there, each with an id of its own. For wires that number them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from lifecycle.vocabulary.chunks import BlockEnd

from .decoding import finished_call, json_object


class CallText(NamedTuple):
    """A call as the server spelt it. `at` is the index of its block; `id` may be empty, or another call's."""

    at: int
    id: str
    name: str
    arguments: str


def settled(calls: Iterable[CallText]) -> list[BlockEnd]:
    """The ends of the blocks of all calls that are no mere repetition. Ids are made unique, the same in every run."""
    ends: list[BlockEnd] = []
    said: dict[tuple[str, str], set[str]] = {}
    used: set[str] = set()
    for call in calls:
        if call.id and _repeats(call, said.setdefault((call.id, call.name), set())):
            continue
        id = call.id or f"call-{call.at}"
        while id in used:
            id = f"{id}-{call.at}"
        used.add(id)
        ends.append(finished_call(call.at, id, call.name, call.arguments))
    return ends


def _repeats(call: CallText, before: set[str]) -> bool:
    """Whether a call of this id and name was asked with the same `before`: looked up, for there may be thousands."""
    if before and not call.arguments.strip():
        return True
    given = json_object(call.arguments)
    spelt = call.arguments if given is None else json.dumps(given, sort_keys=True)
    known = spelt in before
    before.add(spelt)
    return known
