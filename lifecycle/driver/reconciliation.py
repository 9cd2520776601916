"""Reconciling the prompt: which system nodes must change so that the surface says what was rendered (ADM-06).

A decision over values: appends nothing, knows no run.

*In place*, the section's node ahead of the conversation becomes what was rendered, at its place among the others.
Otherwise the request series goes on, and a changed or new section is said again at the tail, so that everything
before it stays as the provider has it in its cache. A section that is gone cannot be taken back at the tail: an empty
node takes the place of its head, in both cases.

Places are numbers with room between them. So a section that comes, goes or moves costs one record, and its neighbours
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from lifecycle.services.points import PromptText
from lifecycle.session.surface import Surface
from lifecycle.vocabulary.events import Event, SystemMessageEvent
from lifecycle.vocabulary.messages import SystemMessage, text_of


class Edit(NamedTuple):
    """One node to write: in the place of `head`, or appended if that is None."""

    section: PromptText
    order: float
    head: Event | None = None
    in_history: bool = False


def reconcile(surface: Surface, sections: Sequence[PromptText], *, in_place: bool) -> list[Edit]:
    """The nodes to write, in the order of the prompt; those of sections that are gone come last."""
    newest = surface.system
    if not sections and not newest:
        return []
    edits = _rewritten(surface, sections) if in_place else _said_again(surface, sections)
    named = {section.name for section in sections}
    for name, node in newest.items():
        head = surface.heads.get(name)
        if name not in named and (node is not head or text_of(_message(node))):
            edits.append(Edit(PromptText(name, ""), _order(node) or 0, head))
    return edits


def _rewritten(surface: Surface, sections: Sequence[PromptText]) -> list[Edit]:
    heads, newest = surface.heads, surface.system
    standing = [heads.get(section.name) for section in sections]
    edits: list[Edit] = []
    for section, head, order in zip(sections, standing, _places([_place(head) for head in standing]), strict=True):
        # A head is only what holds if it is newer than every in-history node of its section.
        holds = head is not None and newest[section.name] is head and text_of(_message(head)) == section.text
        if not holds or _order(head) != order:
            edits.append(Edit(section, order, head))
    return edits


def _said_again(surface: Surface, sections: Sequence[PromptText]) -> list[Edit]:
    edits: list[Edit] = []
    for order, section in enumerate(sections):
        node = surface.system.get(section.name)
        if node is None or text_of(_message(node)) != section.text:
            edits.append(Edit(section, order, in_history=True))
    return edits


def _message(node: Event) -> SystemMessage:
    assert isinstance(node.data, SystemMessageEvent)
    return node.data.message


def _order(node: Event | None) -> float | None:
    order = None if node is None else _message(node).source.get("order")
    return order if isinstance(order, (int, float)) else None


def _place(head: Event | None) -> float | None:
    """The place that a head holds; an empty one, of a section that was gone, holds none."""
    return _order(head) if head is not None and text_of(_message(head)) else None


# -- places -------------------------------------------------------------------------------------------------------


def _places(held: Sequence[float | None]) -> Sequence[float]:
    """Strictly increasing places, of which as many as can be are those that are held."""
    places = [place for place in held if place is not None]
    if len(places) == len(held) and all(left < right for left, right in pairwise(places)):
        return places
    kept = _longest_increasing(held)
    made: list[float] = []
    for start, stop in pairwise([-1, *kept, len(held)]):
        below = held[start] if start >= 0 else None
        above = held[stop] if stop < len(held) else None
        made += _between(below, above, stop - start - 1)
        made += [] if above is None else [above]
    if all(left < right for left, right in pairwise(made)):
        return made
    return range(len(held))  # no number is left between two neighbours: everybody moves


def _longest_increasing(held: Sequence[float | None]) -> list[int]:
    """The indices of the longest run of places that increase. Prompts have few sections: quadratic is fine."""
    chains: list[list[int]] = [[]]
    for at, place in enumerate(held):
        if place is None:
            continue
        best = chains[0]
        for chain in chains[1:]:
            last = held[chain[-1]]
            if last is not None and last < place and len(chain) > len(best):
                best = chain
        chains.append([*best, at])
    return max(chains, key=len)


def _between(below: float | None, above: float | None, count: int) -> list[float]:
    """`count` places between two that are kept; whole numbers where one side is open."""
    if below is not None and above is not None:
        return [below + (above - below) * n / (count + 1) for n in range(1, count + 1)]
    first = floor(below) + 1 if below is not None else ceil(above) - count if above is not None else 0
    return [*range(first, first + count)]
