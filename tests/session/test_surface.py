"""The surface: what may stand on it, what replaces what, and the messages that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.errors import SurfaceError
from lifecycle.session.log import Session
from lifecycle.session.surface import derive
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.messages import text, user_message
from lifecycle.vocabulary.values import freeze_object

from .logs import answer, result, section, shown, user


def surfaced(*datas: ev.EventData) -> Session:
    session = Session.memory()
    for data in datas:
        session.append(data, surface="append")
    return session


@pytest.mark.parametrize("data", [section("a", "A"), user("a"), answer("a"), result("c", "r")], ids=lambda d: d.type)
def test_log_04_a_message_must_say_what_it_does_to_the_surface(data: ev.EventData) -> None:
    session = Session.memory()

    with pytest.raises(SurfaceError, match=rf"event 0 \({data.type}\) bears a message .*surface='append'"):
        session.append(data)

    assert session.append(data, surface="append").seq == 0


@pytest.mark.parametrize(
    "data", [ev.TurnStart(turn=1), ev.AssistantAttempt(turn=1, step=1, stream=answer("a").stream), ev.EndSeed()]
)
def test_log_04_other_events_have_no_place_on_the_surface(data: ev.EventData) -> None:
    session = surfaced(user("a"))

    for operation in ("append", ev.Replace(start=0, end=0)):
        with pytest.raises(SurfaceError, match=r"bears no message.*system/message, user/message"):
            session.append(data, surface=operation, sources=[0])

    assert session.next_seq == 1


def test_log_05_a_range_is_replaced_by_one_message_in_its_place() -> None:
    session = surfaced(user("a"), answer("b"), user("c"), answer("d"))

    session.append(user("bc"), surface=ev.Replace(start=1, end=2), sources=[1, 2])

    assert shown(session) == ["a", "bc", "d"]
    assert list(session.surface.nodes) == [0, 4, 3]
    assert session.surface.nodes[4].type == "user/message"
    assert session.surface.generation == 1


def test_log_05_a_replacement_is_a_node_like_any_other() -> None:
    session = surfaced(user("a"), user("b"), user("c"))
    session.append(user("bc"), surface=ev.Replace(start=1, end=2), sources=[1, 2])
    session.append(user("abc"), surface=ev.Replace(start=0, end=3), sources=[0, 3])

    assert shown(session) == ["abc"]
    assert session.surface.generation == 2
    with pytest.raises(SurfaceError, match="no node 3 is on the surface, which holds 4"):
        session.append(user("x"), surface=ev.Replace(start=3, end=3), sources=[3])


@pytest.mark.parametrize(
    ("start", "end", "sources", "complaint"),
    [
        (9, 9, [0], "no node 9 is on the surface, which holds 0, 1, 2"),
        (0, 9, [0], "no node 9"),
        (2, 1, [1, 2], "did you mean 1 to 2"),
        (0, 1, [0], "takes the place of 1 without citing it"),
        (0, 1, None, "takes the place of 0, 1 without citing it"),
        (0, 0, [], "empty list of sources, which only assistant/message may"),
        (0, 0, [0, 0], "each source may be named once"),
        (0, 0, [0, 3], "cites 3; only earlier events, 0 to 2"),
        (0, 0, [0, -1], "cites -1"),
    ],
)
def test_log_05_a_wrong_replacement_is_refused_and_changes_nothing(
    start: int, end: int, sources: list[int] | None, complaint: str
) -> None:
    session = surfaced(user("a"), user("b"), user("c"))

    with pytest.raises(SurfaceError, match=complaint):
        session.append(user("x"), surface=ev.Replace(start=start, end=end), sources=sources)

    assert shown(session) == ["a", "b", "c"]
    assert session.surface.generation == 0
    assert session.next_seq == 3


def test_log_05_only_an_assistant_message_may_name_no_sources_at_all() -> None:
    session = surfaced(user("a"), answer("b"))

    session.append(answer("c"), surface=ev.Replace(start=1, end=1), sources=[])

    assert shown(session) == ["a", "c"]


def test_log_05_sources_are_checked_off_the_surface_too() -> None:
    session = surfaced(user("a"))

    with pytest.raises(SurfaceError, match="only earlier events"):
        session.append(ev.EndSeed(), sources=[1])
    assert session.append(ev.EndSeed(), sources=[0]).sources == (0,)


def test_log_05_a_tool_result_is_replaced_by_itself_with_other_content() -> None:
    session = surfaced(user("a"), result("c", "long long"))

    session.append(result("c", "short"), surface=ev.Replace(start=1, end=1), sources=[1])

    assert session.derive_messages()[1].content[0] == result("c", "short").message.content[0]


_other_step = result("c", "x").model_copy(update={"step": 2})
_other_error = result("c", "x").model_copy(update={"error": ev.ToolFault(code="C")})


@pytest.mark.parametrize(
    ("data", "start", "end", "complaint"),
    [
        (result("c", "x"), 0, 0, r"one tool/result and nothing else, not 0 \(user/message\)"),
        (result("c", "x"), 0, 1, "one tool/result and nothing else"),
        (result("other", "x"), 1, 1, "same turn, step, call, error and source"),
        (_other_step, 1, 1, "same turn, step"),
        (_other_error, 1, 1, "same turn, step"),
    ],
)
def test_log_05_a_tool_result_replaces_nothing_else(
    data: ev.ToolResultEvent, start: int, end: int, complaint: str
) -> None:
    session = surfaced(user("a"), result("c", "r"))

    with pytest.raises(SurfaceError, match=complaint):
        session.append(data, surface=ev.Replace(start=start, end=end), sources=[0, 1])


def test_log_06_what_is_not_on_the_surface_is_not_derived() -> None:
    session = surfaced(user("a"))
    session.append(ev.AssistantAttempt(turn=1, step=1, stream=answer("x").stream))
    session.append(ev.EndSeed())

    assert shown(session) == ["a"]


def test_set_02_an_assistant_message_without_content_is_in_the_log_and_no_history() -> None:
    session = surfaced(user("a"), answer(""), user("b"))

    assert shown(session) == ["a", "b"]
    assert list(session.surface.nodes) == [0, 1, 2]


def test_req_06_messages_only_grow_at_the_tail_and_earlier_views_stay() -> None:
    session = surfaced(section("s", "S"), user("a"))
    before = session.derive_messages()
    session.append(answer("b"), surface="append")
    after = session.derive_messages()

    assert len(before) == 2
    assert len(after) == 3
    assert all(old is new for old, new in zip(before, after[:2], strict=True))

    session.append(user("c"), surface=ev.Replace(start=1, end=2), sources=[1, 2])
    assert [len(before), len(after)] == [2, 3]
    assert shown(session) == ["S", "c"]


def test_prompt_sections_lead_the_conversation_in_the_order_they_are_rendered() -> None:
    session = surfaced(user("hi"), section("late", "L", 2), section("early", "E", 1))

    assert shown(session) == ["E", "L", "hi"]
    assert {name: node.seq for name, node in session.surface.system.items()} == {"late": 1, "early": 2}


def test_a_changed_section_is_rewritten_in_place_and_an_emptied_one_is_gone() -> None:
    session = surfaced(section("a", "A", 0), section("b", "B", 1), user("hi"))

    session.append(section("a", "A2", 0), surface=ev.Replace(start=0, end=0), sources=[0])
    assert shown(session) == ["A2", "B", "hi"]
    session.append(section("b", "", 1), surface=ev.Replace(start=1, end=1), sources=[1])
    assert shown(session) == ["A2", "hi"]
    assert session.surface.system["b"].seq == 4
    session.append(section("a", "A3", 2), surface=ev.Replace(start=3, end=3), sources=[3])
    session.append(section("b", "B3", 1), surface=ev.Replace(start=4, end=4), sources=[4])
    assert shown(session) == ["B3", "A3", "hi"]


def test_a_section_has_one_node_ahead_of_the_conversation() -> None:
    session = surfaced(section("a", "A"), user("hi"))

    with pytest.raises(SurfaceError, match=r"'a' already has the node 0.*replace that one.*in-history"):
        session.append(section("a", "A2"), surface="append")
    with pytest.raises(SurfaceError, match="'a' already has the node 0"):
        session.append(section("a", "A2"), surface=ev.Replace(start=1, end=1), sources=[1])


def test_an_in_history_change_stands_where_it_was_said_until_a_newer_head_makes_it_void() -> None:
    session = surfaced(section("a", "A"), user("hi"), section("a", "A2", in_history=True), user("ho"))
    assert shown(session) == ["A", "hi", "A2", "ho"]
    assert session.surface.system["a"].seq == 2

    session.append(section("a", "A3"), surface=ev.Replace(start=0, end=0), sources=[0])
    assert shown(session) == ["A3", "hi", "ho"]
    assert session.surface.system["a"].seq == 4

    session.append(section("a", "A4", in_history=True), surface="append")
    assert shown(session) == ["A3", "hi", "ho", "A4"]


def test_rty_04_a_replacement_that_swallows_sections_lets_them_be_appended_again() -> None:
    session = surfaced(section("a", "A"), user("hi"), answer("b"))

    session.append(user("summary"), surface=ev.Replace(start=0, end=2), sources=[0, 1, 2])
    assert shown(session) == ["summary"]
    assert not session.surface.system

    session.append(section("a", "A"), surface="append")
    assert shown(session) == ["A", "summary"]


def test_a_system_message_that_names_no_section_is_one_of_its_own() -> None:
    odd = section("x", "X")
    odd = odd.model_copy(update={"message": odd.message.model_copy(update={"source": freeze_object({"kind": "odd"})})})

    session = surfaced(user("hi"), odd, section("a", "A"))

    assert shown(session) == ["A", "X", "hi"]


def _context(content: str) -> ev.UserMessageEvent:
    return ev.UserMessageEvent(message=user_message(text(content), source={"kind": "runtime-context"}))


def test_adm_09_the_retained_snapshot_is_the_newest_one_on_the_surface() -> None:
    old, new = _context("old"), _context("new")
    session = surfaced(user("a"))
    assert session.surface.snapshot is None
    session.append(old, surface="append")
    session.append(user("b"), surface="append")
    session.append(new, surface="append")
    assert session.surface.snapshot is new.message

    session.append(user("c"), surface=ev.Replace(start=2, end=2), sources=[2])
    assert session.surface.snapshot is new.message
    session.append(user("d"), surface=ev.Replace(start=3, end=3), sources=[3])
    assert session.surface.snapshot is old.message
    session.append(user("e"), surface=ev.Replace(start=0, end=1), sources=[0, 1])
    assert session.surface.snapshot is None


_appended = st.one_of(
    st.builds(user, st.sampled_from("abc")),
    st.builds(answer, st.sampled_from(["", "x"])),
    st.builds(result, st.sampled_from("cd"), st.sampled_from("rs")),
    st.builds(
        section,
        st.sampled_from("st"),
        st.sampled_from(["", "1", "2"]),
        st.integers(0, 2),
        in_history=st.booleans(),
    ),
    st.just(_context("now")),
    st.just(ev.EndSeed()),
)


def _naive(events: Any) -> list[int]:
    """Which nodes are on the surface, worked out as simply as can be."""
    order: list[int] = []
    for event in events:
        if event.surface == "append":
            order.append(event.seq)
        elif event.surface is not None:
            first, last = order.index(event.surface.start), order.index(event.surface.end)
            order = [*order[:first], event.seq, *order[last + 1 :]]
    return order


@given(data=st.data())
def test_log_06_cached_messages_equal_a_scratch_derivation(data: st.DataObject) -> None:
    session = Session.memory()
    draw: Callable[[Any], Any] = data.draw
    for _ in range(draw(st.integers(1, 25))):
        what = draw(_appended)
        nodes = list(session.surface.nodes)
        operation: ev.SurfaceOp | None = "append" if what.on_surface else None
        sources: list[int] | None = None
        if what.on_surface and nodes and draw(st.booleans()):
            first = draw(st.integers(0, len(nodes) - 1))
            last = draw(st.integers(first, min(first + 3, len(nodes) - 1)))
            operation, sources = ev.Replace(start=nodes[first], end=nodes[last]), nodes[first : last + 1]
        before = session.derive_messages() if draw(st.booleans()) else None
        kept = None if before is None else list(before)
        generation = session.surface.generation
        leads = isinstance(what, ev.SystemMessageEvent) and "placement" not in what.message.source
        try:
            session.append(what, surface=operation, sources=sources)
        except SurfaceError:
            assert session.surface.generation == generation
            continue
        now = session.derive_messages()
        assert now == derive(session.events)
        assert list(session.surface.nodes) == _naive(session.events)
        assert [session.surface.nodes[seq].seq for seq in session.surface.nodes] == list(session.surface.nodes)
        restored = Session.restored(session.events, "again").surface
        assert (restored.system, restored.snapshot) == (session.surface.system, session.surface.snapshot)
        if before is not None:
            assert list(before) == kept
            if operation == "append" and not leads:
                assert all(old is new for old, new in zip(before, now, strict=False))
