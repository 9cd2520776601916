"""The reconciled prompt: what the surface says is what was rendered, and no node is written that need not be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.driver.reconciliation import Edit, reconcile
from lifecycle.services.points import PromptText
from lifecycle.session.log import Session
from lifecycle.session.surface import derive
from lifecycle.vocabulary.events import Replace, SystemMessageEvent, UserMessageEvent
from lifecycle.vocabulary.messages import SystemMessage, text, text_of, user_message
from lifecycle.vocabulary.values import FrozenDict


def prompt(said: str) -> list[PromptText]:
    """`a1 b1` is a section `a` that says `a1`, and a section `b` that says `b1`."""
    return [PromptText(word[0], word) for word in said.split()]


def admit(session: Session, sections: Sequence[PromptText], *, in_place: bool = True) -> list[Edit]:
    """Write what the reconciliation asks for, as the driver does."""
    edits = reconcile(session.surface, sections, in_place=in_place)
    for edit in edits:
        place = {"placement": "in-history"} if edit.in_history else {}
        source = FrozenDict(kind="prompt", section=edit.section.name, order=edit.order, **place)
        message = SystemMessage(id=f"s{session.next_seq}", content=text(edit.section.text), source=source)
        data = SystemMessageEvent(turn=1, step=1, message=message)
        if edit.head is None:
            session.append(data, surface="append")
        else:
            session.append(data, surface=Replace(start=edit.head.seq, end=edit.head.seq), sources=[edit.head.seq])
    return edits


def say(session: Session, said: str) -> None:
    session.append(UserMessageEvent(message=user_message(said, id=f"u{session.next_seq}")), surface="append")


def system(session: Session) -> list[str]:
    """The derived system text, in order."""
    return [text_of(message) for message in session.derive_messages() if isinstance(message, SystemMessage)]


def lead(session: Session, count: int) -> list[str]:
    """The first `count` derived messages, whatever they are."""
    return [text_of(message) for message in session.derive_messages()[:count]]


def written(edits: list[Edit]) -> str:
    return " ".join(edit.section.text or f"-{edit.section.name}" for edit in edits)


@pytest.mark.parametrize(
    ("before", "after", "records"),
    [
        ("", "a1 b1", "a1 b1"),
        ("a1 b1 c1", "a1 b1 c1", ""),
        ("a1 b1 c1", "a1 b2 c1", "b2"),
        ("a1 b1 c1", "a1 b1 c1 d1", "d1"),
        ("a1 b1 c1", "a1 d1 b1 c1", "d1"),
        ("a1 b1 c1", "d1 e1 a1 b1 c1", "d1 e1"),
        ("a1 b1 c1", "a1 c1", "-b"),
        ("a1 b1 c1", "", "-a -b -c"),
        ("a1 b1 c1 d1", "d1 a1 b1 c1", "d1"),
        ("a1 b1 c1 d1", "b1 c1 d1 a1", "a1"),
        ("a1 b1 c1 d1", "a1 c1 b2 d1 e1", "b2 e1"),
        ("a1 b1", "c1", "c1 -a -b"),
    ],
    ids=lambda words: words or "nothing",
)
def test_only_nodes_that_changed_came_moved_or_went_are_written(before: str, after: str, records: str) -> None:
    session = Session.memory()
    admit(session, prompt(before))
    say(session, "hello")

    edits = admit(session, prompt(after))

    assert sorted(written(edits).split()) == sorted(records.split())
    assert system(session) == after.split()
    assert admit(session, prompt(after)) == [], "the second time there is nothing to do"


def test_a_section_that_comes_again_takes_up_its_own_node_at_its_new_place() -> None:
    session = Session.memory()
    for said, records in (("a1 b1", "a1 b1"), ("a1", "-b"), ("b1 a1", "b1"), ("b1", "-a"), ("a2 b1", "a2")):
        assert written(admit(session, prompt(said))) == records
        assert system(session) == said.split()

    assert len(session.surface.nodes) == 2


def test_a_place_between_two_neighbours_can_be_taken_without_end() -> None:
    session = Session.memory()
    first, last = prompt("a1 z1")
    admit(session, [first, last])
    records: list[int] = []
    for n in range(120):  # the room between two numbers can be halved about fifty times
        between = [PromptText(f"m{m}", f"m{m}") for m in (n, n + 1, n + 2)]
        records.append(len(admit(session, [first, *between, last])))
        assert system(session) == ["a1", *(section.text for section in between), "z1"]

    assert records[:40] == [3] + [2] * 39, "one comes, one goes"
    assert max(records) == 5, "where no room is left, all move but the first"


# -- in history ---------------------------------------------------------------------------------------------------


def test_within_a_series_a_changed_or_new_section_is_said_at_the_tail_and_nothing_before_it_moves() -> None:
    session = Session.memory()
    admit(session, prompt("a1 b1"))
    say(session, "hello")
    before = [*session.derive_messages()]

    edits = admit(session, prompt("c1 a1 b2"), in_place=False)

    assert written(edits) == "c1 b2"
    messages = session.derive_messages()
    assert list(messages[: len(before)]) == before
    assert [text_of(message) for message in messages[len(before) :]] == ["c1", "b2"]
    assert admit(session, prompt("c1 a1 b2"), in_place=False) == []


def test_a_section_that_says_again_what_its_head_says_is_said_again_at_the_tail() -> None:
    session = Session.memory()
    admit(session, prompt("a1"))
    for said in ("a2", "a1"):
        admit(session, prompt(said), in_place=False)

    assert system(session) == ["a1", "a2", "a1"]


@pytest.mark.parametrize("said", ["a1 b1", "a2 b1", "a3 b1", "b1 a2", "b1", "c1 a2 b1", ""])
def test_a_series_start_gathers_the_whole_prompt_ahead_of_the_conversation(said: str) -> None:
    session = Session.memory()
    admit(session, prompt("a1 b1"))
    say(session, "hello")
    admit(session, prompt("a2 b1 d1"), in_place=False)
    say(session, "more")

    admit(session, prompt(said))

    assert lead(session, len(said.split()) + 1) == [*said.split(), "hello"]
    assert system(session) == said.split()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_section_that_is_gone_is_gone_wherever_it_was_said(in_place: bool) -> None:
    session = Session.memory()
    admit(session, prompt("a1 b1"))
    say(session, "hello")
    admit(session, prompt("a2 b1 c1"), in_place=False)

    admit(session, prompt("b1"), in_place=in_place)

    assert system(session) == ["b1"]
    assert admit(session, prompt("b1"), in_place=in_place) == []
    admit(session, prompt("a3 b1 c1"), in_place=False)
    assert system(session) == ["b1", "a3", "c1"], "and comes again where it is said"


def test_a_head_that_was_swallowed_comes_again_and_what_its_section_said_in_history_does_not() -> None:
    session = Session.memory()
    admit(session, prompt("a1 b1"))
    say(session, "hello")
    admit(session, prompt("a2 b1"), in_place=False)
    session.append(
        UserMessageEvent(message=user_message("summary", id="u")), surface=Replace(start=0, end=2), sources=[0, 1, 2]
    )
    assert system(session) == ["a2"]

    edits = admit(session, prompt("a2 b1"))

    assert written(edits) == "a2 b1"
    assert lead(session, 3) == ["a2", "b1", "summary"]
    assert system(session) == ["a2", "b1"]


def test_what_is_left_of_a_section_in_history_goes_with_the_section() -> None:
    session = Session.memory()
    admit(session, prompt("a1 b1"))
    admit(session, prompt("a2 b1"), in_place=False)
    session.append(UserMessageEvent(message=user_message("gone", id="u")), surface=Replace(start=0, end=0), sources=[0])

    admit(session, prompt("b1"))

    assert system(session) == ["b1"]


# -- searches -----------------------------------------------------------------------------------------------------

PROMPTS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(1, 2)), unique_by=lambda section: section[0], max_size=5
).map(lambda made: tuple(PromptText(name, f"{name}{n}") for name, n in made))


class InPlace(NamedTuple):
    sections: tuple[PromptText, ...]


class SaidAgain(NamedTuple):
    sections: tuple[PromptText, ...]


class Say(NamedTuple):
    said: str


class Swallow(NamedTuple):
    """A summary takes the place of some nodes."""

    first: int
    more: int


class Foreign(NamedTuple):
    """Somebody else writes a system message."""

    said: str
    source: FrozenDict


MOVES = st.one_of(
    st.builds(InPlace, PROMPTS),
    st.builds(SaidAgain, PROMPTS),
    st.builds(Say, st.just("hello")),
    st.builds(Swallow, st.integers(0, 20), st.integers(0, 20)),
    st.builds(
        Foreign,
        st.sampled_from(("foreign", "")),
        st.sampled_from((FrozenDict(), FrozenDict(section="a", placement="in-history"), FrozenDict(order=-5))),
    ),
)


@given(st.lists(MOVES, max_size=14))
def test_after_every_reconciliation_the_surface_says_what_was_rendered(
    moves: list[InPlace | SaidAgain | Say | Swallow | Foreign],
) -> None:
    session = Session.memory()
    series = False
    for move in moves:
        match move:
            case InPlace(sections):
                admit(session, sections)
                series = True
                texts = [section.text for section in sections]
                assert system(session) == lead(session, len(texts)) == texts
                assert reconcile(session.surface, sections, in_place=True) == []
            case SaidAgain(sections) if series:
                before = [*session.derive_messages()]
                edits = admit(session, sections, in_place=False)
                assert newest(session) == {section.name: section.text for section in sections}
                if all(edit.in_history for edit in edits):
                    assert [*session.derive_messages()[: len(before)]] == before
                assert reconcile(session.surface, sections, in_place=False) == []
            case Swallow(first, more) if gone := [*session.surface.nodes][first : first + more + 1]:
                replaced = Replace(start=gone[0], end=gone[-1])
                session.append(UserMessageEvent(message=user_message("summary")), surface=replaced, sources=gone)
                series = False  # the next request starts one, hence writes in place
            case Foreign(said, source):
                message = SystemMessage(id=f"f{session.next_seq}", content=text(said), source=source)
                session.append(SystemMessageEvent(turn=1, step=1, message=message), surface="append")
            case _:
                say(session, "hello")
        assert [*session.derive_messages()] == derive(session.events)


def newest(session: Session) -> dict[str, str]:
    """What each section says last, as the model reads it."""
    said: dict[str, str] = {}
    for message in session.derive_messages():
        if isinstance(message, SystemMessage):
            said[str(message.source.get("section", message.id))] = text_of(message)
    return said


ORDERS = st.lists(st.sampled_from("abcde"), unique=True).map(lambda names: prompt(" ".join(f"{n}1" for n in names)))


@given(ORDERS, ORDERS)
def test_no_smaller_number_of_nodes_would_do(before: list[PromptText], after: list[PromptText]) -> None:
    session = Session.memory()
    admit(session, before)

    edits = admit(session, after)

    places = [before.index(section) for section in after if section in before]
    stay = max(n for n in range(len(places) + 1) if any(sorted(c) == [*c] for c in combinations(places, n)))
    gone = [section for section in before if section not in after]
    assert len(edits) == len(after) - stay + len(gone)
