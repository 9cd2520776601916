"""What changed between two lifecycles, fact by fact: as values, and as lines to read.

Lifecycles that the same phase runs or pools are held against each other, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from lifecycle.definition.effects import Effect, Kind, Message
from lifecycle.definition.machine import Arrow, Lifecycle, Phase

from .tables import spelt

Sort: TypeAlias = Literal["added", "removed", "changed"]
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that is not the same in both.

    Args:
        what: What it is about: a `phase`, an `arrow`, an `effect` or a `fact`.
        lifecycle: The lifecycle, by both its names if they differ: `Step -> ReviewedStep`.
        place: Where in it: `reviewing`, or `requesting.succeed`, which is the phase and the event.
        aspect: What about it, where it is in both: `guard`, `wording`, `target`, `runs`, ...
        old: How it was; empty if it was not.
        new: How it is; empty if it is no more.
    """

    sort: Sort
    what: str
    lifecycle: str
    place: str
    aspect: str = ""
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        about = f"{self.what} {self.place}".strip()
        if self.sort != "changed":
            said = self.new or self.old
            return f"{SIGNS[self.sort]} {about}{f': {said}' if said else ''}"
        return f"~ {about}: {self.aspect}: {self.old or '(none)'} -> {self.new or '(none)'}"


def differences(old: type[Lifecycle], new: type[Lifecycle]) -> tuple[Change, ...]:
    """All changes, lifecycle by lifecycle, in the order of the new declaration; nothing if both say the same."""
    return tuple(_compared(old, new, set()))


def told(changes: Iterable[Change]) -> Iterator[str]:
    """The changes as lines, below the name of each lifecycle. What belongs to something new stands under it."""
    lifecycle, within = "", ""
    for change in changes:
        if change.lifecycle != lifecycle:
            lifecycle, within = change.lifecycle, ""
            yield lifecycle
        part = change.what == "effect" and change.place == within
        yield f"{'      ' if part else '  '}{_part(change) if part else change}"
        if change.what in ("phase", "arrow"):
            within = change.place if change.sort != "changed" else ""


def _part(change: Change) -> str:
    return f"{SIGNS[change.sort]} {change.new or change.old}"


def _compared(old: type[Lifecycle], new: type[Lifecycle], seen: set[tuple[object, object]]) -> Iterator[Change]:
    if old is new or (old, new) in seen:
        return
    seen.add((old, new))
    pair = _Pair(old, new)
    yield from pair.changes()
    for name, phase in new.spec.phases.items():
        before = old.spec.phases.get(name)
        if before is not None:
            for was, now in ((before.runs, phase.runs), (before.pool, phase.pool)):
                if was is not None and now is not None:
                    yield from _compared(was, now, seen)


class _Pair:
    """Two lifecycles, without what they run."""

    def __init__(self, old: type[Lifecycle], new: type[Lifecycle]) -> None:
        self.old, self.new = old.spec, new.spec
        self.name = old.spec.name if old.spec.name == new.spec.name else f"{old.spec.name} -> {new.spec.name}"

    def changes(self) -> Iterator[Change]:
        yield from self._facts()
        for name, phase in self.new.phases.items():
            before = self.old.phases.get(name)
            if before is None:
                yield self._change("added", "phase", name, new=_nature(phase))
                yield from (self._change("added", "effect", name, new=_spelt(effect)) for effect in phase.does)
            else:
                yield from self._phase(name, before, phase)
            yield from self._arrows(name, before, phase)
        for name, phase in self.old.phases.items():
            if name not in self.new.phases:
                yield self._change("removed", "phase", name, old=_nature(phase))
                yield from (self._change("removed", "effect", name, old=_spelt(effect)) for effect in phase.does)
                yield from self._arrows(name, phase, None)

    def _change(
        self, sort: Sort, what: str, place: str, aspect: str = "", old: object = "", new: object = ""
    ) -> Change:
        return Change(sort, what, self.name, place, aspect, _word(old), _word(new))

    def _facts(self) -> Iterator[Change]:
        old, new = ([field.name for field in fields(spec.facts)] for spec in (self.old, self.new))
        yield from (self._change("added", "fact", name) for name in new if name not in old)
        yield from (self._change("removed", "fact", name) for name in old if name not in new)

    def _phase(self, name: str, old: Phase, new: Phase) -> Iterator[Change]:
        aspects: dict[str, Callable[[Phase], object]] = {
            "initial": lambda phase: phase.initial,
            "final": lambda phase: phase.final,
            "wording of the loop": lambda phase: phase.loops,
            "lane": lambda phase: phase.lane,
            "settles": lambda phase: phase.settles,
            "parks": lambda phase: phase.parks,
        }
        for aspect, value in aspects.items():
            if value(old) != value(new):
                yield self._change("changed", "phase", name, aspect, value(old), value(new))
        for aspect, was, now in (("runs", old.runs, new.runs), ("pools", old.pool, new.pool)):
            if (was is None) is not (now is None):
                names = (None if one is None else one.spec.name for one in (was, now))
                yield self._change("changed", "phase", name, aspect, *names)
        for ending in [*new.then, *(ending for ending in old.then if ending not in new.then)]:
            if old.then.get(ending) != new.then.get(ending):
                yield self._change(
                    "changed", "phase", name, f"after {ending}", old.then.get(ending), new.then.get(ending)
                )
        yield from self._effects(name, old.does, new.does)

    # -- arrows --------------------------------------------------------------------------------------------------

    def _arrows(self, name: str, old: Phase | None, new: Phase | None) -> Iterator[Change]:
        before, after = _by_event(old), _by_event(new)
        for event in [*after, *(event for event in before if event not in after)]:
            place, was, now = f"{name}.{event}", before.get(event, []), after.get(event, [])
            pairs = _paired(was, now)
            for arrow in now:
                match = pairs.get(id(arrow))
                if match is None:
                    yield self._change("added", "arrow", place, new=_arrow(arrow))
                    yield from (self._change("added", "effect", place, new=_spelt(effect)) for effect in arrow.emits)
                else:
                    yield from self._arrow(place, match, arrow)
            kept = [pairs[id(arrow)] for arrow in now if id(arrow) in pairs]
            for arrow in was:
                if arrow not in kept:
                    yield self._change("removed", "arrow", place, old=_arrow(arrow))
                    yield from (self._change("removed", "effect", place, old=_spelt(effect)) for effect in arrow.emits)
            ranks = [was.index(arrow) for arrow in kept]
            if ranks != sorted(ranks):
                asked = (", then ".join(arrow.guard or arrow.goal for arrow in one) for one in (was, now))
                yield self._change("changed", "arrow", place, "order", *asked)

    def _arrow(self, place: str, old: Arrow, new: Arrow) -> Iterator[Change]:
        aspects: dict[str, Callable[[Arrow], object]] = {
            "target": lambda arrow: arrow.goal,
            "guard": lambda arrow: arrow.guard,
            "wording": lambda arrow: arrow.when,
            "enters the phase anew": lambda arrow: not arrow.internal,
            "drawn": lambda arrow: arrow.drawn,
            "drawn again": lambda arrow: arrow.fold.replay,
            "note for the loop": lambda arrow: arrow.fold.note and arrow.fold.note.text,
        }
        for aspect, value in aspects.items():
            if value(old) != value(new):
                yield self._change("changed", "arrow", place, aspect, value(old), value(new))
        yield from self._effects(place, old.emits, new.emits)

    # -- effects -------------------------------------------------------------------------------------------------

    def _effects(self, place: str, old: Sequence[Effect], new: Sequence[Effect]) -> Iterator[Change]:
        before, after = [identity(effect) for effect in old], [identity(effect) for effect in new]
        gone: list[int] = []
        come: list[int] = []
        for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag == "equal":
                for was, now in zip(old[i:j], new[k:m], strict=True):
                    yield from self._effect(place, was, now)
            else:
                gone += range(i, j)
                come += range(k, m)
        for n in come:
            moved = next((g for g in gone if before[g] == after[n]), None)
            if moved is None:
                where = f" (after {_spelt(new[n - 1])})" if n else " (first)" if len(new) > 1 else ""
                yield self._change("added", "effect", place, new=f"{_spelt(new[n])}{where}")
            else:
                gone.remove(moved)
                numbers = (f"{_spelt(effects[at])} as number {at + 1}" for effects, at in ((old, moved), (new, n)))
                yield self._change("changed", "effect", place, "order", *numbers)
                yield from self._effect(place, old[moved], new[n])
        yield from (self._change("removed", "effect", place, old=_spelt(old[g])) for g in gone)

    def _effect(self, place: str, old: Effect, new: Effect) -> Iterator[Change]:
        said = place if isinstance(new, Message) else f"{place}, a note"
        said = f"{said} {new.key}" if isinstance(new, Message) else said
        if _words(old) != _words(new):
            yield self._change("changed", "effect", said, "wording", _words(old), _words(new))
        if isinstance(old, Message) and isinstance(new, Message):
            for aspect in ("mode", "times", "line", "inner", "durable", "lane"):
                if getattr(old, aspect) != getattr(new, aspect):
                    yield self._change("changed", "effect", said, aspect, getattr(old, aspect), getattr(new, aspect))
        if old.drawn != new.drawn:
            yield self._change("changed", "effect", said, "drawn", old.drawn, new.drawn)


def identity(effect: Effect) -> tuple[object, ...]:
    """What makes an effect the same one, however it is worded."""
    if isinstance(effect, Message):
        return (effect.kind, effect.key, effect.sender.name, effect.receiver.name)
    return ("note", *(person.name for person in effect.over))


def _words(effect: Effect) -> str:
    if not isinstance(effect, Message):
        return effect.text
    return effect.detail if effect.kind is Kind.HOOK else effect.caption


def _spelt(effect: Effect) -> str:
    if isinstance(effect, Message):
        return spelt(effect)
    return f"note over {', '.join(person.name for person in effect.over)}: {effect.text}"


def _nature(phase: Phase) -> str:
    said = [word for word, so in (("initial", phase.initial), ("final", phase.final)) if so]
    said += [f"runs {phase.runs.spec.name}"] if phase.runs is not None else []
    said += [f"runs several {phase.pool.spec.name}"] if phase.pool is not None else []
    return ", ".join(said)


def _arrow(arrow: Arrow) -> str:
    guard = f" [{arrow.guard}]" if arrow.guard else ""
    return f"leads to {arrow.goal}{guard}{f', when {arrow.when}' if arrow.when else ''}"


def _by_event(phase: Phase | None) -> dict[str, list[Arrow]]:
    found: dict[str, list[Arrow]] = {}
    for arrow in phase.arrows if phase is not None else ():
        for event in arrow.events:
            found.setdefault(str(event), []).append(arrow)
    return found


def _paired(old: Sequence[Arrow], new: Sequence[Arrow]) -> dict[int, Arrow]:
    """For arrows of one phase and event, by the new one's `id`, the one that it was: the likest first."""
    likeness: tuple[Callable[[Arrow], object], ...] = (
        lambda arrow: (arrow.goal, arrow.guard),
        lambda arrow: arrow.goal,
        lambda arrow: arrow.guard,
        lambda arrow: None,
    )
    pairs: dict[int, Arrow] = {}
    free = list(old)
    for like in likeness:
        for arrow in new:
            match = next((was for was in free if like(was) == like(arrow)), None)
            if id(arrow) not in pairs and match is not None:
                pairs[id(arrow)] = match
                free = [was for was in free if was is not match]
    return pairs


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
