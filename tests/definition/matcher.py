"""A second opinion on logs: a brute-force matcher of the declared language, for small logs.

It shares nothing with the acceptor but the definition. It reads a lifecycle top down: from which place in the log can a
run of it begin, and where can that run then end? Every way through the effects is tried. What records say of each
other is checked in a pass of its own that is written out by hand, after the words of LOG-07.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from lifecycle.definition.effects import Effect, Kind, Message
from lifecycle.definition.guards import atoms
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Lifecycle, Phase
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.revisions.r2026_08 import Adopted
from lifecycle.definition.revisions.records import PLUGINS
from lifecycle.vocabulary.events import event_types

FOREIGN = ("llm/retry", "llm/retry-started")
"""Ours, but of a policy."""


class Rec(NamedTuple):
    """A record as the matcher sees it."""

    name: str
    data: Mapping[str, Any]
    replaces: bool = False


class Letter(NamedTuple):
    name: str
    at: int
    """Its place in the log."""
    known: frozenset[str]
    """Which of `unstarted` and `unsettled` hold before it."""


def first_illegal(records: Sequence[Rec], revision: str) -> int | None:
    """The place of the first record that no run of the revision makes; the log's length if it ends too early; None if
    the log is a word of the language.
    """
    if records and revision == "2026-08" and all(record.name == "assistant/chunk" for record in records):
        return None
    letters, wrong, unsent = _letters(records)
    found, adopted = _language(letters, len(records), revision, wrong is not None)
    if unsent is not None and unsent < adopted:
        unsent = None
    places = [place for place in (found, wrong, unsent) if place is not None]
    return min(places) if places else None


# -- the language ------------------------------------------------------------------------------------------------


def _language(letters: Sequence[Letter], end: int, revision: str, cut: bool) -> tuple[int | None, int]:
    """The first record that the lifecycle does not make, if there is one, and up to where the log was adopted.

    `cut`: the log goes on, but a record that does not fit has been found.
    """
    whole = REVISIONS[revision]
    begin = until = 0
    while True:
        seed = next((n for n in range(begin, len(letters)) if letters[n].name == "session/end-seed"), None)
        stop = len(letters) if seed is None else seed
        due = end if seed is None else letters[seed].at
        main = _Segment(whole, letters[begin:stop], due)
        if not main.whole():
            if revision != "2026-08":
                return main.furthest, until
            adopted = _Segment(Adopted, letters[begin:stop], due, sent=False)
            if seed is not None and adopted.whole():
                until = due
            elif seed is not None or not adopted.to_the_end():
                return max(main.furthest, adopted.furthest), until
            else:  # all is legal if it was adopted; but nothing says so
                return (None if cut else main.furthest), until
        if seed is None:
            return None, until
        begin = seed + 1


@dataclass
class _Segment:
    """A part of a log between rests."""

    agent: type[Lifecycle]
    recorded: Sequence[Letter]
    due: int
    """The place of what follows it."""
    sent: bool = True
    """The first turn needs something that was sent."""
    _reached: int = 0
    _ends: dict[Any, frozenset[tuple[str, int]]] = field(default_factory=lambda: {})

    def __post_init__(self) -> None:
        input = "agent/inbox/spliced" if _records_input(self.agent) else ""
        self.letters = [letter for letter in self.recorded if letter.name != input]  # it may come at any time
        first = next((letter.at for letter in self.recorded if letter.name == input), self.due)
        self._awake = 0 if not (self.sent and input) else sum(letter.at < first for letter in self.letters)

    def whole(self) -> bool:
        """Whether it is a number of whole turns, one after another."""
        turn = next(phase.runs for phase in self.agent.spec.phases.values() if phase.runs is not None)
        todo, seen = [0], set[int]()
        while todo:
            place = todo.pop()
            self._reached = max(self._reached, place)
            if place not in seen and self._awake == 0:
                seen.add(place)
                todo += [ended for _, ended in self.runs(turn, place)]
        return len(self.letters) in seen | {0}

    @property
    def furthest(self) -> int:
        """The place in the log of the first record that no way reached beyond."""
        return self.letters[self._reached].at if self._reached < len(self.letters) else self.due

    def to_the_end(self) -> bool:
        """Whether some way reached the end, though a turn may be open there."""
        self.whole()
        return self._reached == len(self.letters)

    def runs(self, lifecycle: type[Lifecycle], place: int) -> frozenset[tuple[str, int]]:
        """The events by which a run that begins at `place` may end, each with where it then is."""
        key = lifecycle, place
        if key not in self._ends:
            self._ends[key] = frozenset(_Run(self, lifecycle).ends(place))
        return self._ends[key]

    def reads(self, place: int, name: str) -> bool:
        self._reached = max(self._reached, place)
        return place < len(self.letters) and self.letters[place].name == name

    def known(self, place: int) -> frozenset[str]:
        return self.letters[place].known if place < len(self.letters) else frozenset()


class _Run:
    """All runs of one lifecycle from one place."""

    def __init__(self, segment: _Segment, lifecycle: type[Lifecycle]) -> None:
        self._segment, self._spec = segment, lifecycle.spec

    def ends(self, place: int) -> Iterator[tuple[str, int]]:
        todo: list[tuple[str, int, frozenset[str], int | None]] = [(self._spec.initial, place, frozenset(), None)]
        seen: set[object] = set()
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            name, at, entered, again = here
            phase = self._spec.phases[name]
            for event, arrow, after in self._leaves(phase, at, name in entered, again):
                emitted = self._say(list(_said(arrow.emits)), after)
                cuts = {way for way, left in emitted if left}
                if event not in (ABORT, FAULT):
                    for cut in cuts:
                        for stop in (ABORT, FAULT):
                            for other in self._arrows(phase, stop, cut):
                                for way, left in self._say(list(_said(other.emits)), cut):
                                    if not left:
                                        todo.append((other.goal, way, entered | {name}, None))
                                        if other.goal in self._spec.final:
                                            yield stop, way
                for way, left in emitted:
                    if left:
                        continue
                    if arrow.goal in self._spec.final:
                        yield event, way
                    elif arrow.internal:
                        todo.append((name, way, entered, max(len(list(_said(phase.does))) - 1, 0)))
                    else:
                        todo.append((arrow.goal, way, entered | {name}, None))

    def _leaves(self, phase: Phase, place: int, entered: bool, again: int | None) -> Iterator[tuple[str, Arrow, int]]:
        """The arrows that may be taken from a phase that is entered at `place`, each with where it then is."""
        if phase.final:
            return
        if phase.runs is not None:
            for event, after in self._segment.runs(phase.runs, place):
                for follows in (phase.then[event], ABORT):
                    for arrow in self._arrows(phase, follows, after):
                        yield follows, arrow, after
            return
        effects = [effect for effect in _said(phase.does) if not (entered and effect.times == "once")]
        effects = effects[again:] if again is not None else effects
        for after, left in self._say(effects, place):
            if not left:
                for event in {str(one) for arrow in phase.arrows for one in arrow.events} - {ABORT, FAULT}:
                    for arrow in self._arrows(phase, event, after):
                        yield event, arrow, after
            if left and not (phase.settles and any(one.kind is Kind.RECORD for one in left)):
                for event in (ABORT, FAULT):
                    for arrow in self._arrows(phase, event, after):
                        yield event, arrow, after

    def _say(self, effects: list[Message], place: int) -> set[tuple[int, tuple[Message, ...]]]:
        """Every way to say some effects, or the first of them: where it then is, and what is still to be said."""
        found: set[tuple[int, tuple[Message, ...]]] = set()

        def say(at: int, rest: tuple[Message, ...]) -> None:
            if not rest:
                found.add((at, ()))
                return
            if (at, rest) in found:
                return
            found.add((at, rest))
            first, *others = rest
            if first.kind is not Kind.RECORD:
                say(at, tuple(others))
                hooked = first.kind in (Kind.HOOK, Kind.ASK) and "open step" in self._segment.known(at)
                if hooked and self._segment.reads(at, "user/message"):  # whoever listens may append one of their own
                    say(at + 1, rest)
                return
            if first.inner and first.times == "*":
                group = [first]
                while others and others[0].inner and others[0].times == "*" and others[0].kind is Kind.RECORD:
                    group.append(others.pop(0))
                say(at, tuple(others))
                for one in group:
                    if self._segment.reads(at, _letter(one.names[0], one.act)):
                        say(at + 1, rest)
                return
            names = [_letter(name, first.act) for name in first.names]
            if first.times in ("*", "once"):
                say(at, tuple(others))
                if self._segment.reads(at, names[0]):
                    say(at + 1, rest)
            elif len(names) > 1:
                ways = {at}
                for name in names:
                    ways |= {way + 1 for way in ways if self._segment.reads(way, name)}
                for way in ways:
                    say(way, tuple(others))
                    found.add((way, rest))
            else:
                if first.times == "?":
                    say(at, tuple(others))
                if self._segment.reads(at, names[0]):
                    say(at + 1, tuple(others))

        say(place, tuple(effects))
        return found

    def _arrows(self, phase: Phase, event: str, place: int) -> Iterator[Arrow]:
        known = self._segment.known(place)
        key = id(phase), event, known  # phases of one name are equal, whatever lifecycle they belong to
        if key not in _OPEN:
            _OPEN[key] = _open(phase, event, known)
        return iter(_OPEN[key])


_OPEN: dict[tuple[int, str, frozenset[str]], tuple[Arrow, ...]] = {}


def _open(phase: Phase, event: str, known: frozenset[str]) -> tuple[Arrow, ...]:
    """The arrows that some valuation of what is not known opens."""
    arrows = [arrow for arrow in phase.arrows if event in {str(one) for one in arrow.events}]
    names = sorted({atom for arrow in arrows for atom in atoms(arrow.guard)})
    unknown = [name for name in names if name not in ("unstarted", "unsettled")]
    opened: set[int] = set()
    for values in product((False, True), repeat=len(unknown)):
        facts = {"unstarted": "unstarted" in known, "unsettled": "unsettled" in known}
        facts.update(zip(unknown, values, strict=True))
        for n, arrow in enumerate(arrows):
            if not arrow.guard or eval(arrow.guard, {"__builtins__": {}}, facts):
                opened.add(n)
                break
    return tuple(arrows[n] for n in sorted(opened))


def _said(effects: Sequence[Effect]) -> tuple[Message, ...]:
    """What could fail: notifications are contained, and answers are part of what was asked."""
    return _sayings(tuple(effects))


@cache
def _sayings(effects: tuple[Effect, ...]) -> tuple[Message, ...]:
    return tuple(_performed(effects))


def _performed(effects: Sequence[Effect]) -> Iterator[Message]:
    for effect in effects:
        if isinstance(effect, Message) and effect.kind not in (Kind.NOTIFY, Kind.ANSWER) and _counts(effect):
            yield effect


def _counts(effect: Message) -> bool:
    return effect.kind is Kind.RECORD or effect.performed


def _letter(name: str, act: str) -> str:
    if name == "agent/inbox/spliced" and act.startswith("claim"):
        return f"{name} by a claim"
    return f"{name}, interrupted" if act == "interrupted" else name


def _records_input(agent: type[Lifecycle]) -> bool:
    return any(
        isinstance(effect, Message) and effect.kind is Kind.RECORD
        for _, arrow in agent.spec.arrows
        for effect in arrow.emits
    )


# -- what records say of each other ------------------------------------------------------------------------------


def _letters(records: Sequence[Rec]) -> tuple[list[Letter], int | None, int | None]:
    """What the lifecycle records; the place of the first record that does not fit those before it, where it ends; and
    of the first that takes messages that do not wait, which may be so in a log whose beginning was adopted.
    """
    letters: list[Letter] = []
    turn = step = 0
    turn_open = step_open = settled = unanswered = False
    calls: list[str] = []
    started: list[str] = []
    waiting: dict[str, int] = {}
    unsent: int | None = None
    for n, (name, data, replaces) in enumerate(records):
        mine = data.get("turn") == turn and turn_open
        ours = mine and data.get("step") == step and step_open
        facts = {"unstarted": calls, "unsettled": started, "open step": step_open}
        known = frozenset(fact for fact, holds in facts.items() if holds)
        if name in FOREIGN:
            if not ours:
                return letters, n, unsent
            continue
        if name.startswith(tuple(PLUGINS)):
            continue
        if name not in event_types() and name not in ("assistant/chunk", "steering/message"):
            return letters, n, unsent
        if replaces and name == "user/message":
            continue
        if replaces and name == "tool/result":
            if not turn_open:
                return letters, n, unsent
            continue
        if replaces and name == "assistant/message":
            if not ours:
                return letters, n, unsent
            continue
        letter = name
        fits = True
        match name:
            case "turn/start":
                fits = data.get("turn") == turn + 1
                turn, turn_open, step, step_open, unanswered = turn + 1, True, 0, False, False
            case "turn/end":
                given: Mapping[str, object] = data.get("reason") or {}
                reason = given.get("kind")
                natural = reason in ("completed", "max-tokens")
                fits = mine and (natural or reason in ("blocked", "aborted", "error", "interrupted"))
                fits = fits and not (natural and unanswered)
                turn_open, step_open, calls, started = False, False, [], []
            case "step/start":
                fits = mine and data.get("step") == step + 1
                step, step_open, settled, unanswered = step + 1, True, False, True
            case "step/end":
                fits, step_open, calls, started = ours, False, [], []
            case "assistant/message":
                letter = f"{name}, interrupted" if data.get("interrupted") else name
                fits, settled = ours and not settled, bool(data.get("interrupted"))
                unanswered = unanswered and settled
                calls = calls + [block["id"] for block in data["message"]["content"] if block["type"] == "tool-call"]
            case "assistant/attempt":
                fits = ours and not settled
            case "assistant/chunk" | "system/message" | "steering/message":
                fits = ours
            case "tool/call":
                fits = ours and calls[:1] == [data.get("callId")]
                calls, started = calls[1:], [*started, str(data.get("callId"))]
            case "tool/result":
                call = data["message"]["source"].get("callId")
                if data.get("error", {}).get("code") == "TOOL_NOT_STARTED":
                    fits, calls = ours and calls[:1] == [call], calls[1:]
                else:
                    fits, started = ours and started[:1] == [call], started[1:]
            case "agent/inbox/spliced":
                gone, target = data.get("removedCount") or 0, str(data["target"])
                if gone and not data.get("inserted") and not data.get("outcome"):
                    letter = f"{name} by a claim"
                if unsent is None and data["start"] + gone > waiting.get(target, 0):
                    unsent = n
                waiting[target] = max(waiting.get(target, 0) - gone, 0) + len(data.get("inserted") or ())
            case "session/end-seed":
                waiting = {}
            case _:
                pass
        letters.append(Letter(letter, n, known))
        if not fits:
            return letters, n, unsent
    return letters, None, unsent
