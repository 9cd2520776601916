"""The order in which sets of hooks run: each may say which others it is to come before and after.

Knows nothing of hook points. What nobody says anything about keeps the order in which it was added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from lifecycle.errors import HookOrderError

from .waterfall import Chain, Listener


class Place(NamedTuple):
    """What one set says of its place, by the names of others. A name that nobody has says nothing."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()


Order = Mapping[str, Place]
"""What each named set says of its place."""


def merged(left: Order, right: Order) -> dict[str, Place]:
    """What both say.

    Raises:
        HookOrderError: if no order does justice to it all.
    """
    both = dict(left)
    for name, place in right.items():
        known = both.get(name, Place())
        both[name] = Place(known.before | place.before, known.after | place.after)
    check(both)
    return both


def check(order: Order) -> None:
    """Raises HookOrderError if what is said forms a circle, which it names."""
    try:
        TopologicalSorter(_predecessors(order)).prepare()
    except CycleError as circle:
        raise HookOrderError([str(name) for name in circle.args[1]]) from None


def arranged(chain: Chain, order: Order) -> Chain:
    """The listeners of `chain`, each as early as its set may be, and otherwise as they stand."""
    before = _predecessors(order)
    if not any(before.get(listener.of) for listener in chain):
        return chain
    waiting, made = list(chain), list[Listener]()
    while waiting:
        present = {listener.of for listener in waiting}
        first = next(one for one in waiting if not _earlier(one.of, before) & present)
        waiting.remove(first)
        made.append(first)
    return tuple(made)


def settled(one: str, other: str, order: Order) -> bool:
    """Whether something is said of which of two sets comes first."""
    before = _predecessors(order)
    return one in _earlier(other, before) or other in _earlier(one, before)


def _predecessors(order: Order) -> dict[str, set[str]]:
    """By name: who comes before it. Only names that are there count."""
    found: dict[str, set[str]] = {name: set(place.after & order.keys()) for name, place in order.items()}
    for name, place in order.items():
        for other in place.before & order.keys():
            found[other].add(name)
    return found


def _earlier(name: str, before: Mapping[str, Iterable[str]]) -> set[str]:
    """Everybody who comes before `name`, also by way of others, be they there or not."""
    found: set[str] = set()
    todo = list(before.get(name, ()))
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += before.get(one, ())
    return found
