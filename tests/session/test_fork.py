"""Forks: where they are possible, and what the child has of its parent."""

from __future__ import annotations

import pytest

from lifecycle.errors import ForkError
from lifecycle.session.fork import Lineage
from lifecycle.session.log import Session
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.failures import INTERRUPTED

from .logs import a_turn, answer, said, shown, types


def parent_of_two_turns() -> Session:
    session = Session.memory("parent")
    a_turn(session, 1, "one")
    session.inbox.insert("next-turn", said("waits"))
    a_turn_end = session.next_seq
    session.append(ev.TurnStart(turn=2))
    for step in (1, 2):
        session.append(ev.StepStart(turn=2, step=step))
        session.append(answer(f"step {step}", 2, step), surface="append")
        session.append(ev.StepEnd(turn=2, step=step))
    assert a_turn_end == 9
    return session


def test_rsm_05_a_fork_after_a_turn_has_the_log_up_to_its_end() -> None:
    parent = parent_of_two_turns()

    child = parent.fork(1, id="child")

    assert child.id == "child"
    assert child.lineage == Lineage("parent", 8)
    assert child.events[:8] == parent.events[:8]
    assert types(child)[8:] == ["session/end-seed"]
    assert shown(child) == ["one", "to one"]
    assert (child.last_turn, child.open_turn) == (1, None)
    assert parent.next_seq == 16


def test_rsm_05_an_open_tail_does_not_stand_in_the_way_of_an_earlier_boundary() -> None:
    parent = parent_of_two_turns()

    assert parent.open_turn == 2
    assert parent.fork().lineage == Lineage("parent", 8)


def test_a_fork_after_a_step_closes_its_turn_as_interrupted_in_the_child() -> None:
    parent = parent_of_two_turns()

    child = parent.fork(2, 1)

    assert child.lineage == Lineage("parent", 13)
    assert child.events[:13] == parent.events[:13]
    assert child.events[13].data == ev.TurnEnd(turn=2, reason=INTERRUPTED)
    assert types(child)[14:] == ["session/end-seed"]
    assert (child.last_turn, child.open_turn) == (2, None)
    assert shown(child) == ["one", "to one", "step 1"]


def test_rsm_01_a_fork_does_not_inherit_what_waited() -> None:
    parent = Session.memory("parent")
    parent.inbox.insert("next-turn", said("early"))
    parent.inbox.insert("next-turn", said("waits"))
    parent.append(ev.TurnStart(turn=1))
    parent.inbox.claim(first=True)
    parent.append(ev.TurnEnd(turn=1, reason=INTERRUPTED))
    child = parent.fork(1)
    assert parent.inbox.next_turn == (said("waits"),)
    assert child.inbox.next_turn == ()

    child.inbox.insert("next-turn", said("waits"))
    again = Session.restored(child.events, "again", lineage=child.lineage)
    assert again.inbox.next_turn == (said("waits"),)
    assert again.fork(1).inbox.next_turn == ()


@pytest.mark.parametrize(
    ("turn", "step", "complaint"),
    [
        (2, None, "at turn 2: turns 1 to 1 have ended, and of turn 2 the steps 1, 2"),
        (3, None, "at turn 3: turns 1 to 1 have ended$"),
        (2, 3, "at step 3 of turn 2: .*steps 1, 2"),
        (1, 2, "at step 2 of turn 1: .*of turn 1 the steps 1"),
        (None, 1, "name the turn"),
    ],
)
def test_rsm_05_an_impossible_boundary_is_refused_with_those_there_are(
    turn: int | None, step: int | None, complaint: str
) -> None:
    with pytest.raises(ForkError, match=complaint):
        parent_of_two_turns().fork(turn, step)


def test_a_session_without_a_finished_turn_cannot_be_forked() -> None:
    with pytest.raises(ForkError, match="session 's' cannot be forked where a turn has ended: no turn of it has ended"):
        Session.memory("s").fork()


def test_a_child_goes_its_own_way() -> None:
    parent = parent_of_two_turns()
    child = parent.fork(1)
    a_turn(child, 2, "other")

    assert shown(child) == ["one", "to one", "other", "to other"]
    assert shown(parent) == ["one", "to one", "step 1", "step 2"]
    assert child.fork(2).lineage == Lineage(child.id, child.next_seq)
