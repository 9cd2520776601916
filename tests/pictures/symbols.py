"""Symbols: what can be observed of an effect, and for which phase or arrow it is performed.

A record, a hook and a live event are observed by themselves; what has no wire name, by the call of its performer. The
name of the phase or the arrow tells apart what is said alike in several places. What comes while another effect is
performed, and is no effect of that one, is a stray: it is known by its wire name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from lifecycle.definition.effects import Effect, Kind, Message
from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle
from lifecycle.pictures.graph import arrow_key

STRAY = "~"
"""Before the name of what is observed while another effect is performed."""
REFUSED = "!"
"""Before a record that was tried and refused."""
TOLD = {"start": "start", "chunk": "chunk", "end": "end", "cut": "end", "running": "running", "idle": "idle"}
"""What a stream frame or a status says, by the act of its effect."""
SEVERAL = frozenset({"agent/assistant-stream", "agent/status"})
"""The live events of which the payload tells several apart."""

Symbols: TypeAlias = tuple[str, ...]
"""The spellings under which one thing is observed."""


def told_as(effect: Message) -> tuple[str, ...]:
    """The names of the events that an effect is observed by; none if only the call of its performer shows it."""
    if effect.kind in (Kind.ASK, Kind.TELL, Kind.ANSWER):
        return ()
    if effect.name in SEVERAL:
        return (f"{effect.name} {TOLD[effect.act]}",)
    return effect.names


def called(effect: Effect) -> bool:
    """Whether an effect is observed by the call of its performer, or by the user's call."""
    return isinstance(effect, Message) and effect.kind in (Kind.ASK, Kind.TELL) and not effect.inner


def symbols_of(effect: Effect, by: str) -> tuple[Symbols, ...]:
    """What is observed of one performance of an effect that `by` declares, in order; nothing of notes and answers."""
    if not isinstance(effect, Message) or effect.kind is Kind.ANSWER:
        return ()
    names = told_as(effect)
    if not names:
        return ((STRAY + effect.key if effect.inner else spelt(by, effect.key),),)
    if effect.inner:
        return tuple((STRAY + name,) for name in names)
    return tuple((spelt(by, effect.key, name if len(names) > 1 else ""), STRAY + name) for name in names)


def spelt(by: str, key: str, name: str = "") -> str:
    """The symbol of what the performer of `key` does for an arrow or a phase; `name` is one of several events."""
    return f"{by}: {key}{f' | {name}' if name else ''}"


def declared(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Effect]]:
    """Every effect of one lifecycle, with the name of the phase or arrow that declares it."""
    for name, phase in lifecycle.spec.phases.items():
        yield from ((f"{lifecycle.spec.name}.{name}", effect) for effect in phase.does)
    for event, arrow in lifecycle.spec.arrows:
        yield from ((arrow_key(lifecycle.spec.name, event, arrow), effect) for effect in arrow.emits)


def declared_in(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Effect]]:
    """The same, of a lifecycle and of all that it runs and pools."""
    for one in family(lifecycle):
        yield from declared(one)


def spellings(effects: Iterable[tuple[str, Effect]]) -> frozenset[str]:
    """All that is observed of some effects."""
    return frozenset(symbol for by, effect in effects for symbols in symbols_of(effect, by) for symbol in symbols)
