"""Hook points in words: mode, verdicts, what a listener may change, what an exception leads to, and who listens.

What a point allows is data of a higher floor; whoever wants it told hands it over as `Point`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lifecycle.definition.effects import Effect, Kind, Message
from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle

from .mermaid import Words, as_written

HOW: Mapping[str, str] = MappingProxyType(
    {
        "emit": "Listeners are told one after another, and what they return is ignored.",
        "serial": "Listeners are asked one after another until one answers.",
        "parallel": "Listeners run side by side, and all are awaited.",
        "waterfall": "Listeners wrap one another, the first registered outermost; each may call `next()` once.",
        "synchronous veto": "Listeners are asked before it happens; one that raises prevents it.",
    }
)
"""How the listeners of a mode are called."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a page says about a hook point.

    Args:
        verdicts: What a listener may return, by name; empty if that is ignored or must be nothing.
        records: It is dispatched for every record of the session log, whatever effect makes it.
        listeners: Who runs there, in order; None where nobody wants to know.
    """

    name: str
    mode: str
    verdicts: tuple[str, ...] = ()
    on_fault: str = ""
    may_change: str = ""
    replaces: tuple[str, ...] = ()
    records: bool = False
    listeners: tuple[str, ...] | None = None


def places(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Message]]:
    """All that a lifecycle and what it runs say, each with the phase or the event that says it."""
    for one in family(lifecycle):
        for name, phase in one.spec.phases.items():
            yield from ((f"{one.spec.name}.{name}", effect) for effect in _messages(phase.does))
            for arrow in phase.arrows:
                for event in arrow.events:
                    yield from ((f"{one.spec.name}.{event}", effect) for effect in _messages(arrow.emits))


def _messages(effects: Iterable[Effect]) -> Iterator[Message]:
    return (effect for effect in effects if isinstance(effect, Message))


def dispatched(lifecycle: type[Lifecycle], points: Mapping[str, Point]) -> Mapping[Point, tuple[str, ...]]:
    """The hook points that a lifecycle dispatches, in the order of the definition, each with where."""
    found: dict[Point, dict[str, None]] = {}
    for place, effect in places(lifecycle):
        for name in effect.names:
            known = points.get(name)
            if effect.kind is Kind.HOOK and (known is None or known.mode != effect.mode):
                known = Point(name, effect.mode)  # of an earlier revision, or of somebody who describes it nowhere
            if known is not None and not effect.durable:
                found.setdefault(known, {})[place] = None
    if any(effect.durable for _, effect in places(lifecycle)):
        for point in points.values():
            if point.records:
                found.setdefault(point, {})
    return {point: tuple(where) for point, where in found.items()}


def hook_points(lifecycle: type[Lifecycle], points: Mapping[str, Point], words: Words = as_written) -> Iterator[str]:
    """What is to be said of each hook point that a lifecycle dispatches; text between backticks is code."""
    for point, where in dispatched(lifecycle, points).items():
        yield told(point, where, words)


def told(point: Point, where: tuple[str, ...] = (), words: Words = as_written) -> str:
    """What is to be said of one hook point that is dispatched in `where`."""
    return joined(_said(point, where, words))


def joined(sentences: Iterable[str]) -> str:
    """Sentences in a row: no blank follows a full stop that brings its own."""
    return " ".join(sentences).replace("。 ", "。")


def _said(point: Point, where: tuple[str, ...], words: Words) -> Iterator[str]:
    yield f"`{point.name}` ({words(point.mode)})"
    if where:
        yield words("in {places}.").format(places=_listed(where, words("and")))
    else:
        yield words("for every record of the session log." if point.records else "outside the lifecycles.")
    if point.mode in HOW:
        yield words(HOW[point.mode])
    if point.on_fault:
        if point.verdicts:
            yield words("A listener returns {verdicts}.").format(verdicts=_listed(point.verdicts, words("or")))
        elif point.mode != "emit":
            yield words("A listener returns nothing.")
        if point.may_change == "nothing":
            yield words("It may change nothing.")
        else:
            yield words("It may change {what}.").format(what=words(point.may_change))
        if point.replaces:
            fields = _listed(point.replaces, words("and"))
            yield words("By `next(payload)` it may replace {fields} for what it wraps.").format(fields=fields)
        yield words("If it raises: {what}.").format(what=words(point.on_fault))
    else:
        yield words("The definition declares it; nobody describes what its listeners may do.")
    if point.listeners is not None:
        yield _runs(point, words)


def _listed(names: tuple[str, ...], last: str) -> str:
    *most, final = (f"`{name}`" for name in names)
    return f"{', '.join(most)} {last} {final}" if most else final


def _runs(point: Point, words: Words) -> str:
    runs = [f"`{name}`" for name in point.listeners or ()]
    if point.mode == "waterfall":
        runs.append(words("the default"))
    if not runs:
        return words("Nobody listens.")
    return words("Here run, in this order: {listeners}.").format(listeners=", ".join(runs))
