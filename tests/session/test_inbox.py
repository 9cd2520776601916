"""The inbox: coordinates, identities, claims, and that it is nothing but a projection of the log."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lifecycle.errors import DuplicateMessageError, SessionError
from lifecycle.session.inbox import Inbox
from lifecycle.session.log import Session
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.messages import UserMessage, user_message

from .logs import said

A, B, C, X, Y = (said(name) for name in "abcxy")


def filled(*next_turn: UserMessage, next_step: tuple[UserMessage, ...] = ()) -> Session:
    session = Session.memory()
    for message in next_turn:
        session.inbox.insert("next-turn", message)
    for message in next_step:
        session.inbox.insert("next-step", message)
    return session


def records(session: Session, since: int = 0) -> list[ev.InboxSpliced]:
    found: list[ev.InboxSpliced] = []
    for event in session.events[since:]:
        assert isinstance(event.data, ev.InboxSpliced)
        found.append(event.data)
    return found


def test_inb_02_an_observer_of_the_record_still_sees_the_lists_as_they_were() -> None:
    session = filled(A)
    seen: list[Any] = []
    session.observe(lambda _: seen.append(session.inbox.next_turn))

    session.inbox.insert("next-turn", B)
    session.inbox.claim(first=True)

    assert seen == [(A,), (A, B)]
    assert session.inbox.next_turn == (B,)


def test_inb_02_an_append_that_raises_leaves_the_lists_alone() -> None:
    session = filled(A)

    def refuse(_: ev.Event) -> None:
        raise PermissionError

    lift = session.veto(refuse)
    with pytest.raises(PermissionError):
        session.inbox.insert("next-turn", B)
    with pytest.raises(PermissionError):
        session.inbox.clear()
    lift()

    assert session.inbox.next_turn == (A,)
    session.inbox.insert("next-step", B)
    assert session.inbox.next_step == (B,)


@pytest.mark.parametrize(
    ("start", "delete", "resolved", "removed"),
    [
        (0, 1, 0, [A]),
        (-1, 99, 2, [C]),
        (-99, 1, 0, [A]),
        (1, -5, 1, []),
        (99, 1, 3, []),
        (math.inf, 1, 3, []),
        (-math.inf, math.inf, 0, [A, B, C]),
        (1.0, 1.0, 1, [B]),
        (1, math.inf, 1, [B, C]),
        (0, -math.inf, 0, []),
    ],
)
def test_inb_04_coordinates_are_clamped_and_the_record_holds_what_they_came_to(
    start: float, delete: float, resolved: int, removed: list[UserMessage]
) -> None:
    session = filled(A, B, C)

    assert session.inbox.splice("next-turn", start, delete, [X]) == tuple(removed)

    (record,) = records(session, 3)
    assert record == ev.InboxSpliced(
        target="next-turn", start=resolved, removed_count=len(removed) or None, inserted=(X,)
    )
    assert type(record.start) is int
    expected = [A, B, C]
    expected[resolved : resolved + len(removed)] = [X]
    assert session.inbox.next_turn == tuple(expected)


@pytest.mark.parametrize(("start", "delete"), [(math.inf, 0), (3, 5), (0, 0), (0, -1)])
def test_inb_04_a_splice_that_changes_nothing_records_nothing(start: float, delete: float) -> None:
    session = filled(A, B, C)

    assert session.inbox.splice("next-turn", start, delete) == ()
    assert session.next_seq == 3


@pytest.mark.parametrize("wrong", [math.nan, 0.5, -1.5, "1", None])
def test_inb_04_what_is_no_whole_number_is_a_type_error(wrong: Any) -> None:
    session = filled(A)

    with pytest.raises(TypeError, match="whole number or infinite"):
        session.inbox.splice("next-turn", wrong, 1)
    with pytest.raises(TypeError, match="whole number or infinite"):
        session.inbox.splice("next-turn", 0, wrong)
    assert session.next_seq == 1


def test_inb_05_an_id_waits_at_most_once_across_both_lists() -> None:
    session = filled(A, next_step=(X,))
    for target, message in (("next-step", A), ("next-turn", A), ("next-turn", X)):
        with pytest.raises(DuplicateMessageError, match=f"'{message.id}' is already pending") as refused:
            session.inbox.insert(target, message)  # type: ignore[arg-type]  # a str in a loop
        assert refused.value.id == message.id
    with pytest.raises(DuplicateMessageError):
        session.inbox.splice("next-turn", 0, 0, [B, B])
    with pytest.raises(DuplicateMessageError):
        session.inbox.swap("a", (X,))

    assert session.next_seq == 2
    assert session.inbox.next_turn == (A,)


def test_inb_05_an_id_that_is_gone_may_come_again() -> None:
    session = filled(A)
    session.inbox.claim(first=True)
    session.inbox.insert("next-step", A)
    session.inbox.splice("next-step", 0, 1, [A, B])

    assert session.inbox.next_step == (A, B)


def test_inb_06_a_message_is_removed_or_replaced_wherever_it_waits() -> None:
    session = filled(A, B, next_step=(X,))
    new = user_message("new", id="b")

    assert session.inbox.swap("x", ()) is X
    assert session.inbox.swap("b", (new,)) is B
    assert session.inbox.swap("a", (C,)) is A
    assert session.inbox.swap("a", ()) is None
    assert session.inbox.swap("a", (Y,)) is None

    assert session.inbox.next_turn == (C, new)
    assert session.inbox.next_step == ()
    assert records(session, 3) == [
        ev.InboxSpliced(target="next-step", start=0, removed_count=1, outcome="canceled"),
        ev.InboxSpliced(target="next-turn", start=1, removed_count=1, inserted=(new,), outcome="canceled"),
        ev.InboxSpliced(target="next-turn", start=0, removed_count=1, inserted=(C,), outcome="canceled"),
    ]


def test_clm_01_the_first_claim_takes_all_of_next_step_and_the_oldest_prompt() -> None:
    session = filled(A, B, next_step=(X, Y))

    assert session.inbox.claim(first=True) == (X, Y, A)
    assert session.inbox.next_turn == (B,)
    assert session.inbox.pending


def test_clm_02_a_later_claim_takes_next_step_only() -> None:
    session = filled(A, next_step=(X,))

    assert session.inbox.claim(first=False) == (X,)
    assert session.inbox.next_turn == (A,)


def test_clm_03_a_claim_is_one_pure_deletion_for_each_list_that_it_touches() -> None:
    session = filled(A, B, next_step=(X, Y))
    session.inbox.claim(first=True)

    assert records(session, 4) == [
        ev.InboxSpliced(target="next-step", start=0, removed_count=2),
        ev.InboxSpliced(target="next-turn", start=0, removed_count=1),
    ]


def test_clm_05_an_empty_claim_records_nothing() -> None:
    session = filled(A)

    assert session.inbox.claim(first=False) == ()
    assert session.next_seq == 1
    assert filled().inbox.claim(first=True) == ()


def test_clearing_discards_next_step_first() -> None:
    session = filled(A, B, next_step=(X,))

    assert session.inbox.clear() == (X, A, B)
    assert not session.inbox.pending
    assert records(session, 3) == [
        ev.InboxSpliced(target="next-step", start=0, removed_count=1, outcome="canceled"),
        ev.InboxSpliced(target="next-turn", start=0, removed_count=2, outcome="canceled"),
    ]
    assert session.inbox.clear() == ()
    assert session.next_seq == 5


@pytest.mark.parametrize(
    "record",
    [
        ev.InboxSpliced(target="next-turn", start=0, removed_count=2),
        ev.InboxSpliced(target="next-turn", start=2),
        ev.InboxSpliced(target="next-turn", start=-1),
        ev.InboxSpliced(target="next-turn", start=0, removed_count=-1),
    ],
)
def test_a_record_that_points_outside_its_list_is_refused_before_it_is_written(record: ev.InboxSpliced) -> None:
    session = filled(A)

    with pytest.raises(SessionError, match="where 1 wait"):
        session.append(record)

    assert session.next_seq == 1


def test_the_lists_that_are_handed_out_are_not_the_inbox() -> None:
    session = filled(A)
    before = session.inbox.next_turn
    session.inbox.clear()

    assert before == (A,)


class InboxMachine(RuleBasedStateMachine):
    """Whatever is done to an inbox, the log alone gives the same lists, and no id waits twice."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session.memory()
        self.names = count()

    @property
    def inbox(self) -> Inbox:
        return self.session.inbox

    _lists = st.sampled_from(["next-turn", "next-step"])

    @rule(named=_lists)
    def insert(self, named: ev.InboxTarget) -> None:
        self.inbox.insert(named, said(f"m{next(self.names)}"))

    @rule(
        named=_lists,
        start=st.integers(-4, 4) | st.sampled_from([math.inf, -math.inf]),
        delete=st.integers(-1, 4) | st.just(math.inf),
        number=st.integers(0, 2),
    )
    def splice(self, named: ev.InboxTarget, start: float, delete: float, number: int) -> None:
        model = list(self.inbox.next_turn if named == "next-turn" else self.inbox.next_step)
        fresh = [said(f"m{next(self.names)}") for _ in range(number)]
        gone = self.inbox.splice(named, start, delete, fresh)
        clamped = int(max(-99, min(99, start)))
        first = clamped if clamped >= 0 else max(0, len(model) + clamped)
        taken = slice(first, first + int(max(0, min(99, delete))))
        assert list(gone) == model[taken]
        model[taken] = fresh
        assert list(self.inbox.next_turn if named == "next-turn" else self.inbox.next_step) == model

    @rule(first=st.booleans())
    def claim(self, first: bool) -> None:
        expected = self.inbox.next_step + (self.inbox.next_turn[:1] if first else ())
        assert self.inbox.claim(first) == expected

    @rule(place=st.integers(0, 3), replaced=st.booleans())
    def edit(self, place: int, replaced: bool) -> None:
        waiting = self.inbox.next_step + self.inbox.next_turn
        if place < len(waiting):
            id = waiting[place].id
            done = self.inbox.swap(id, (said(f"m{next(self.names)}"),) if replaced else ())
            assert done is waiting[place]

    @rule()
    def clear(self) -> None:
        assert self.inbox.clear() is not None
        assert not self.inbox.pending

    @invariant()
    def the_log_alone_gives_the_same_lists(self) -> None:
        again = Session.restored(self.session.events, "again").inbox
        assert (again.next_turn, again.next_step) == (self.inbox.next_turn, self.inbox.next_step)
        assert again.pending == self.inbox.pending == bool(again.next_turn or again.next_step)

    @invariant()
    def no_id_waits_twice(self) -> None:
        ids = [message.id for message in self.inbox.next_step + self.inbox.next_turn]
        assert len(ids) == len(set(ids))


TestInboxMachine = InboxMachine.TestCase
