"""The acceptor: the table of a revision, judging records one by one, while they are read or made.

Two things are held together. The language of the lifecycle says which record may follow which (language.py); rules
beside the record types say how records refer to one another (LOG-07, vocabulary/rules.py): numbers, the open turn and
step, identities and their order. Facts that records tell, such as whether a call has not started, are what the guards
of the lifecycle then read. Beyond the two there is no rule here.

A record costs a few look-ups; kept are the calls of the open step, and how many messages wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from lifecycle.vocabulary.events import Event, Replace, event_rules
from lifecycle.vocabulary.rules import FREE, Form, Rules, at

from .language import IN_STEP, Known, Language, State
from .machine import Lifecycle
from .revisions import NEWEST, REVISIONS
from .revisions.records import EARLIER, FRAGMENTS, INHERITED, PLUGINS

Why: TypeAlias = Literal["order", "reference", "unknown", "end"]
"""The lifecycle records something else there; its numbers or identities are wrong; nobody declares its type; the log
ends too early."""

NOTHING: Known = frozenset()
STEPPING: Known = frozenset({IN_STEP})


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first record that a lifecycle cannot have made.

    Args:
        name: Its wire name; empty where the log ends too early.
        phases: Where the run may have been, as paths such as `running/stepping/requesting`.
        expected: The records that would have been legal there. Input from outside, which may come at any time, is
            left out in a turn unless nothing else is legal.
        turn: The open turn, or else the last one.
        step: The open step, if one is.
    """

    why: Why
    name: str
    reason: str
    phases: tuple[str, ...]
    expected: tuple[str, ...]
    turn: int
    step: int | None

    def __str__(self) -> str:
        where = " or ".join(self.phases) or "nowhere"
        legal = ", ".join(self.expected) or "nothing"
        return f"{self.reason}; the run was in {where}, where this is legal: {legal}"


@dataclass(frozen=True, slots=True)
class Alphabet:
    """What is judged by: a language, the rules of all record types, and those that pass by."""

    language: Language
    rules: Mapping[str, Rules]
    passing: frozenset[str]
    """Types that somebody declared and no lifecycle of ours records."""
    plugins: tuple[str, ...]
    """How the types of foreign plug-ins begin."""
    kinds: dict[str, _Kind | None] = field(default_factory=lambda: {})
    """What was found out about record types so far."""

    def passes(self, name: str) -> bool:
        """Whether a record may stand anywhere, as far as the lifecycle goes."""
        return name in self.passing or (name.startswith(self.plugins) and name not in self.language.names)


class _Kind(NamedTuple):
    """One record type, ready to be judged."""

    rules: Rules
    passes: bool
    needs_turn: bool
    needs_step: bool
    plain: bool
    """It says nothing of others but in which turn and step it stands."""


class _Turn(NamedTuple):
    """What there is to know of numbers: the last turn and step, and which of them are open."""

    turn: int = 0
    turn_open: bool = False
    step: int = 0
    step_open: bool = False
    barred: tuple[str, ...] = ()
    """The types of records that do not follow in the open step: its request is settled for good."""
    unanswered: bool = False
    """The last step has not come to an answer."""


class Acceptor:
    """Judges the records of one log in order.

    Args:
        judge: A revision's name, a lifecycle derived from the newest Agent, or an `Alphabet` made before.
        last_turn: The number of the last turn of a log that is judged from a rest on.
        waiting: How many messages wait there, by list.
        woken: Input has come already.
    """

    __slots__ = (
        "_announced", "_doubt", "_identities", "_judge", "_kinds", "_known", "_language", "_state", "_taken", "_turn",
        "_waiting", "_weighed",
    )  # fmt: skip

    def __init__(
        self,
        judge: str | type[Lifecycle] | Alphabet = NEWEST,
        *,
        last_turn: int = 0,
        waiting: Mapping[str, int] = MappingProxyType({}),
        woken: bool = False,
    ) -> None:
        self._judge = judge if isinstance(judge, Alphabet) else alphabet_of(judge)
        self._language = self._judge.language
        self._kinds = self._judge.kinds
        self._state = self._language.woken if woken else self._language.initial
        self._known = NOTHING
        self._turn = _Turn(last_turn)
        self._identities: dict[str, deque[str]] = {}
        """By fact: the identities that make it true."""
        self._waiting = dict(waiting)
        self._doubt: Divergence | None = None
        self._weighed: tuple[State, _Kind, str, Any, Form | None] | None = None
        self._taken = ""
        """The fact whose oldest identity the record takes that was weighed last, if it takes one."""
        self._announced: list[str] | None = None
        """The identities that the record announces that was weighed last, if they were looked at."""

    # -- judging -------------------------------------------------------------------------------------------------

    def take(self, name: str, data: Any, *, replaces: bool = False, ignorable: bool = False) -> Divergence | None:
        """Judge one record and go on from it. None if it is legal; otherwise nothing has changed.

        Args:
            data: What it holds: JSON, or one of our values.
            replaces: It takes the place of something on the surface.
            ignorable: A reader that does not know the type may skip it.
        """
        wrong = self.weigh(name, data, replaces=replaces, ignorable=ignorable)
        if wrong is None:
            self.keep()
        return wrong

    def take_event(self, event: Event) -> Divergence | None:
        """`take`, of an event of a session."""
        return self.take(event.type, event.data, replaces=isinstance(event.surface, Replace), ignorable=event.ignorable)

    def weigh(self, name: str, data: Any, *, replaces: bool = False, ignorable: bool = False) -> Divergence | None:
        """Judge one record without going on from it; `keep` does that."""
        self._weighed = self._announced = None
        kind = self._kinds.get(name) or self._kind(name)
        if kind is None:
            return None if ignorable else self._unknown(name)
        rules = kind.rules
        state, told = self._state, None
        if replaces and rules.replacing is not None:
            wrong = self._replacing(name, rules, data)
            if wrong is None:
                self._weighed = state, PASSING, name, data, None
            return wrong
        if not kind.passes:
            letter = name
            for form in rules.forms:
                if form.fits(data):
                    letter, told = f"{name}:{form.name}", form
            follow = state.next.get(self._known) or self._language.after(state, self._known)
            next_state = follow.get(letter)
            if next_state is None:
                return self._misplaced(letter)
            state = next_state
            if state.fragment:
                self._weighed = state, PASSING, name, data, None
                return None
        wrong = self._references(name, kind, data)
        if wrong is None:
            self._weighed = state, kind, name, data, told
        return wrong

    def keep(self) -> None:
        """Go on from the record that was weighed last, if it was legal."""
        if self._weighed is None:
            return
        (state, kind, name, data, form), self._weighed = self._weighed, None
        if state.tentative and not self._state.tentative:
            self._doubt = self._misplaced(name)
        self._state = state
        if not kind.plain:
            self._apply(kind.rules, data)
        if form is not None and form.bars:
            self._turn = self._turn._replace(barred=form.bars)
        elif kind.rules.answers and self._turn.unanswered and form is None:
            now = self._turn
            self._turn = _Turn(now.turn, now.turn_open, now.step, now.step_open, now.barred)

    def end(self) -> Divergence | None:
        """Judge the end of the log: None if nothing is left open, or its turn is parked."""
        if self._known & self._language.parking or self._language.resting(self._state, self._known):
            return None
        if self._doubt is not None and self._state.tentative:
            return self._doubt
        now = self._turn
        what = f"step {now.step} of turn {now.turn}" if now.step_open else f"turn {now.turn}"
        reason = f"the log ends while {what} is open" if now.turn_open else "the log ends too early"
        return self._diverged("end", "", reason)

    @property
    def turn(self) -> int | None:
        """The open turn."""
        return self._turn.turn if self._turn.turn_open else None

    @property
    def doubt(self) -> Divergence | None:
        """What was legal only if it was adopted from another log, as long as that is not known."""
        return self._doubt if self._state.tentative else None

    @property
    def fragment(self) -> bool:
        """Whether what was read is no session, but a fragment that may be a log of its own."""
        return self._state.fragment

    # -- rules ---------------------------------------------------------------------------------------------------

    def _references(self, name: str, kind: _Kind, data: Any) -> Divergence | None:
        now, read = self._turn, _item if issubclass(type(data), dict) else getattr  # not `at`: all come by here
        if kind.needs_turn:
            turn = read(data, "turn", None)
            if not now.turn_open or turn != now.turn:
                is_open = f"turn {now.turn} is open" if now.turn_open else "no turn is open"
                return self._misfit(name, f"it says turn {turn}, where {is_open}")
        if kind.needs_step:
            step = read(data, "step", None)
            if not now.step_open or step != now.step:
                is_open = f"step {now.step} is open" if now.step_open else "no step is open"
                return self._misfit(name, f"it says step {step}, where {is_open}")
        return None if kind.plain else self._relations(name, kind.rules, data)

    def _relations(self, name: str, rules: Rules, data: Any) -> Divergence | None:
        now = self._turn
        if rules.counts is not None:
            number, due = at(data, rules.counts), (now.turn if rules.counts == "turn" else now.step) + 1
            if number != due or isinstance(number, bool):
                return self._misfit(name, f"it says {rules.counts} {number}, where {rules.counts} {due} is due")
        if rules.reasons:
            reason = at(data, "reason.kind")
            if reason not in rules.reasons:
                return self._misfit(name, f"its reason is {reason!r}, which is none of {', '.join(rules.reasons)}")
            if reason in rules.natural and now.unanswered:
                return self._misfit(name, f"its reason is {reason!r}, and step {now.step} came to no answer")
        if rules.waits in self._known:
            return self._misfit(name, f"{self._identities[rules.waits][0]!r} is still {rules.waits}")
        if rules.about and (at(data, rules.about_key),) != tuple(self._identities.get(rules.about, ()))[-1:]:
            given = at(data, rules.about_key)
            return self._misfit(name, f"it is about {given!r}, which is not the newest that is {rules.about}")
        if name in now.barred:
            return self._misfit(name, "the request of this step was settled for good")
        if rules.takes:
            return self._identity(name, rules, data)
        if rules.adds:
            self._announced = self._ids(rules, data)
            if self._announced is None:
                return self._misfit(name, f"`{rules.key}` does not hold what it announces")
        if rules.lists:
            return self._list(name, rules, data)
        return None

    def _identity(self, name: str, rules: Rules, data: Any) -> Divergence | None:
        """Whether a record takes the identity that is due."""
        given = at(data, rules.key)
        fact = self._taken = self._taken_by(rules, data)
        due = self._identities.get(fact) or deque[str]()
        if due and due[0] == given:
            return None
        if given in due:
            return self._misfit(name, f"it is of {given!r}, where {due[0]!r} is due by the order of {rules.ordered_by}")
        legal = f", where {due[0]!r} is due" if due else ""
        return self._misfit(name, f"it is of {given!r}, of which no {rules.ordered_by} is left in this step{legal}")

    def _taken_by(self, rules: Rules, data: Any) -> str:
        if rules.unstarted and at(data, "error.code") == rules.unstarted:
            return "unstarted"
        return rules.takes

    def _ids(self, rules: Rules, data: Any) -> list[str] | None:
        held = at(data, rules.key)
        if isinstance(held, str):
            return [held]
        if not isinstance(held, (list, tuple)):
            return None
        return [at(block, "id") for block in cast("Sequence[Any]", held) if at(block, "type") == "tool-call"]

    def _list(self, name: str, rules: Rules, data: Any) -> Divergence | None:
        target, start, gone = at(data, rules.lists), at(data, "start"), at(data, "removedCount") or 0
        waiting = self._waiting.get(target, 0)
        if isinstance(start, int) and isinstance(gone, int) and 0 <= start <= start + gone <= waiting:
            return None
        if self._state.tentative:  # what was sent may be missing there, as the claim may
            return None
        return self._misfit(name, f"it takes {gone} from place {start} of {target}, where {waiting} wait")

    def _replacing(self, name: str, rules: Rules, data: Any) -> Divergence | None:
        now = self._turn
        if rules.replacing == "turn" and not now.turn_open:
            return self._misfit(name, "it replaces a message outside an open turn")
        if rules.replacing == "step":
            kind = self._kinds[name]
            assert kind is not None
            return self._references(name, kind._replace(plain=True), data)
        return None

    def _apply(self, rules: Rules, data: Any) -> None:
        now = self._turn
        if rules.counts == "turn":
            self._turn = _Turn(now.turn + 1, True)
        elif rules.counts == "step":
            self._turn = _Turn(now.turn, True, now.step + 1, True, unanswered=True)
            self._known = STEPPING
        elif rules.closes == "step":
            self._turn = _Turn(now.turn, True, now.step, unanswered=now.unanswered)
            self._forget()
        elif rules.closes == "turn":
            self._turn = _Turn(now.turn)
            self._forget()
        elif rules.adopts:
            self._waiting.clear()
        elif rules.lists:
            target = at(data, rules.lists)
            came, gone = at(data, "inserted") or (), at(data, "removedCount") or 0
            self._waiting[target] = max(self._waiting.get(target, 0) + len(came) - gone, 0)
        if rules.takes:
            self._identities[self._taken].popleft()
        if rules.adds:
            ids = self._ids(rules, data) if self._announced is None else self._announced
            self._identities.setdefault(rules.adds, deque()).extend(ids or ())
        if rules.takes or rules.adds:
            self._known = _known_facts(tuple([fact for fact, ids in self._identities.items() if ids]))

    def _forget(self) -> None:
        self._identities.clear()
        self._known = NOTHING

    # -- saying --------------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> _Kind | None:
        judge = self._judge
        known = name in judge.rules or name in judge.language.names
        if not known and not judge.passes(name):
            return None  # not kept: a log may hold any number of them
        rules = judge.rules.get(name, FREE)
        plain = not (rules.counts or rules.closes or rules.adds or rules.takes or rules.lists or rules.adopts)
        plain = plain and not any(name in form.bars for other in judge.rules.values() for form in other.forms)
        made = _Kind(rules, judge.passes(name), "turn" in rules.refers_to, "step" in rules.refers_to, plain)
        self._kinds[name] = made
        return made

    def _unknown(self, name: str) -> Divergence:
        reason = f"{name} is declared by nobody, no known plug-in's records begin so, and it is not marked ignorable"
        return self._diverged("unknown", name, reason)

    def _misplaced(self, letter: str) -> Divergence:
        name = letter.partition(":")[0]
        told = _told(letter)
        if name not in {known.partition(":")[0] for known in self._language.names}:
            return self._diverged("order", name, f"this revision records no {told}")
        return self._diverged("order", name, f"{told} cannot follow here")

    def _due(self, name: str) -> bool:
        """Whether the facts hold that a record needs, and those are over that it waits for."""
        rules = self._judge.rules.get(name, FREE)
        return {rules.takes, rules.about} <= {"", *self._known} and rules.waits not in self._known

    def _misfit(self, name: str, reason: str) -> Divergence:
        return self._diverged("reference", name, f"{name} does not fit: {reason}")

    def _diverged(self, why: Why, name: str, reason: str) -> Divergence:
        follow = self._language.after(self._state, self._known)
        sure = {
            letter
            for letter, state in follow.items()
            if not (state.tentative or state.fragment) and self._due(letter.partition(":")[0])
        }
        legal = sure or set(follow)
        now = self._turn
        inside = legal - self._language.outside if now.turn_open else legal
        return Divergence(
            why,
            name,
            reason,
            self._language.where(self._state),
            tuple(sorted(map(_told, inside or legal))),
            now.turn,
            now.step if now.step_open else None,
        )


PASSING = _Kind(FREE, True, False, False, True)


_item = cast("Callable[[Any, str, None], Any]", dict[str, Any].get)


@cache
def _known_facts(facts: tuple[str, ...]) -> Known:
    return STEPPING.union(facts)


def _told(letter: str) -> str:
    name, _, form = letter.partition(":")
    return f"{name} ({form})" if form else name


def alphabet_of(judge: str | type[Lifecycle], plugins: Iterable[str] = ()) -> Alphabet:
    """What a revision's logs, or those of a user's lifecycle, are judged by.

    Args:
        judge: The name of a revision, or a whole lifecycle: an agent.
        plugins: How the types of further plug-ins' records begin.
    """
    return _alphabet(judge, tuple(plugins), tuple(event_rules()))


@cache
def _alphabet(judge: str | type[Lifecycle], plugins: tuple[str, ...], declared: tuple[str, ...]) -> Alphabet:
    rules = {**EARLIER, **event_rules()}
    adopting = [name for name, said in rules.items() if said.adopts]

    def language(whole: type[Lifecycle], revision: str = "") -> Language:
        return Language(whole, rules, adopting, INHERITED.get(revision, ()), FRAGMENTS.get(revision, ()))

    made = language(REVISIONS[judge], judge) if isinstance(judge, str) else language(judge)
    ours = {letter.partition(":")[0] for letter in made.names}
    for one in REVISIONS.values():
        ours |= {letter.partition(":")[0] for letter in language(one).names}
    return Alphabet(made, rules, frozenset(rules) - ours, (*PLUGINS, *plugins))
