"""The calls of an answer once it is over: each really there, each with an id of its own. For wires that number them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lifecycle.vocabulary.chunks import BlockEnd

from .decoding import finished_call, is_object, json_object


class CallText(NamedTuple):
    """A call as the server spelt it. `at` is the index of its block; `id` may be empty, or another call's."""

    at: int
    id: str
    name: str
    arguments: str


def settled(calls: Iterable[CallText]) -> list[BlockEnd]:
    """The ends of the blocks of all calls that are no mere repetition. Ids are made unique, the same in every run."""
    ends: list[BlockEnd] = []
    said: dict[str, list[CallText]] = {}
    used: set[str] = set()
    for call in calls:
        before = said.setdefault(call.id, [])
        if call.id and any(_repeats(call, other) for other in before):
            continue
        before.append(call)
        id = call.id or f"call-{call.at}"
        while id in used:
            id = f"{id}-{call.at}"
        used.add(id)
        ends.append(finished_call(call.at, id, call.name, call.arguments))
    return ends


def _repeats(call: CallText, other: CallText) -> bool:
    if call.name != other.name:
        return False
    if not call.arguments.strip() or call.arguments == other.arguments:
        return True
    return is_object(call.arguments) and json_object(call.arguments) == json_object(other.arguments)
