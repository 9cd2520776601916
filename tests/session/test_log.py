"""The log: order of an append, what is refused, what observers see, and the folds."""

from __future__ import annotations

import gc
import logging
import math
import subprocess
import sys
from typing import Any

import pytest

from lifecycle.errors import (
    NotJsonError,
    ReentrantAppendError,
    SessionClosedError,
    SessionError,
    SessionFormatError,
)
from lifecycle.session.log import Session
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import TextBlock, UserMessage, user_message
from lifecycle.vocabulary.requests import CallConfig, Header
from lifecycle.vocabulary.values import FrozenDict, trusted

from .logs import a_turn, said, shown, ticking, types, user


def test_log_01_events_are_numbered_from_zero_and_carry_the_time() -> None:
    session = Session.memory("s", clock=ticking(500))

    first = session.append(ev.TurnStart(turn=1))
    second = session.append(user("a"), surface="append")

    assert [(event.seq, event.time) for event in (first, second)] == [(0, 500), (1, 501)]
    assert session.events == [first, second]
    assert session.next_seq == 2


def test_log_01_the_time_is_epoch_milliseconds_by_default() -> None:
    assert 1_600_000_000_000 < Session.memory().append(ev.TurnStart(turn=1)).time < 10_000_000_000_000


def test_log_01_what_the_caller_changes_later_does_not_reach_the_log() -> None:
    source: dict[str, Any] = {"kind": "user", "tags": ["a"]}
    session = Session.memory()
    event = session.append(ev.UserMessageEvent(message=user_message("x", source=source)), surface="append")
    source["tags"].append("b")
    source["kind"] = "other"

    assert isinstance(event.data, ev.UserMessageEvent)
    assert event.data.message.source == {"kind": "user", "tags": ("a",)}
    with pytest.raises(TypeError):
        event.data.message.source["kind"] = "other"
    with pytest.raises(ValueError, match="frozen"):
        event.data.message.id = "y"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # as above


def test_log_02_a_lone_surrogate_is_refused_with_the_type_of_the_event() -> None:
    session = Session.memory()

    with pytest.raises(NotJsonError, match=r"user/message: .*surrogates") as refused:
        session.append(ev.UserMessageEvent(message=user_message("a\ud800")), surface="append")

    assert refused.value.where == "user/message"
    assert list(session.events) == []
    assert shown(session) == []


def test_log_02_what_went_around_validation_is_still_refused() -> None:
    class Odd:
        pass

    careless: Any = {"kind": Odd()}
    message = trusted(UserMessage)(id="i", content=(TextBlock(text="x"),), source=careless)
    session = Session.memory()

    with pytest.raises(NotJsonError, match="user/message"):
        session.append(trusted(ev.UserMessageEvent)(message=message), surface="append")

    assert not session.events


def test_inb_14_a_message_that_is_no_lossless_json_is_refused_before_it_is_queued() -> None:
    with pytest.raises(NotJsonError):
        user_message("x", source={"kind": "user", "score": math.nan})


def test_log_03_observers_run_after_the_commit_in_order_and_may_not_append() -> None:
    session = Session.memory()
    seen: list[object] = []
    refused: list[ReentrantAppendError] = []

    def first(event: ev.Event) -> None:
        seen.append(("first", session.events[-1] is event, session.appending is event))
        with pytest.raises(ReentrantAppendError, match="'step/start' while 'turn/start'") as error:
            session.append(ev.StepStart(turn=1, step=1))
        refused.append(error.value)

    session.observe(first)
    session.observe(lambda event: seen.append(("second", event.seq)))
    session.append(ev.TurnStart(turn=1))

    assert seen == [("first", True, True), ("second", 0)]
    assert (refused[0].refused, refused[0].during) == ("step/start", "turn/start")
    assert types(session) == ["turn/start"]
    assert session.appending is None


def test_an_observer_that_raises_is_logged_and_contained(caplog: pytest.LogCaptureFixture) -> None:
    session = Session.memory("s")
    seen: list[int] = []

    def broken(_: ev.Event) -> None:
        raise ZeroDivisionError

    session.observe(broken)
    session.observe(lambda event: seen.append(event.seq))
    with caplog.at_level(logging.ERROR, "lifecycle"):
        session.append(ev.TurnStart(turn=1))

    assert seen == [0]
    assert "event 0 (turn/start) of session 's' failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_veto_comes_before_the_commit_and_leaves_nothing_behind() -> None:
    session = Session.memory()
    seen: list[ev.Event] = []
    session.observe(seen.append)

    def no_turns(event: ev.Event) -> None:
        assert event not in session.events
        if event.type == "turn/start":
            raise PermissionError("no")

    lift = session.veto(no_turns)
    with pytest.raises(PermissionError):
        session.append(ev.TurnStart(turn=1))

    assert not session.events
    assert not seen
    assert session.last_turn == 0
    assert session.appending is None
    session.append(ev.EndSeed())
    lift()
    session.append(ev.TurnStart(turn=1))
    assert types(session) == ["session/end-seed", "turn/start"]


def test_a_veto_may_not_append_either() -> None:
    session = Session.memory()
    session.veto(lambda _: session.append(ev.EndSeed()))

    with pytest.raises(ReentrantAppendError):
        session.append(ev.TurnStart(turn=1))


def test_a_function_that_was_registered_twice_is_removed_once_at_a_time() -> None:
    session = Session.memory()
    seen: list[ev.Event] = []
    first, second = session.observe(seen.append), session.observe(seen.append)
    first()
    first()
    session.append(ev.EndSeed())
    assert len(seen) == 1

    second()
    session.append(ev.EndSeed())
    assert len(seen) == 1


def test_can_12_what_is_to_follow_runs_once_the_append_is_over() -> None:
    session = Session.memory()
    done: list[str] = []

    def observer(event: ev.Event) -> None:
        if event.type == "turn/start":
            session.after_append(lambda: done.append(session.append(ev.EndSeed()).type))
            session.after_append(lambda: done.append("and then"))
            assert not done

    session.observe(observer)
    session.append(ev.TurnStart(turn=1))

    assert done == ["session/end-seed", "and then"]
    session.after_append(lambda: done.append("at once"))
    assert done[-1] == "at once"


def test_what_follows_an_append_is_contained_and_runs_after_a_veto_too(caplog: pytest.LogCaptureFixture) -> None:
    session = Session.memory("s")
    done: list[int] = []

    def refuse(_: ev.Event) -> None:
        session.after_append(lambda: 1 // 0)
        session.after_append(lambda: done.append(1))
        raise PermissionError

    session.veto(refuse)
    with caplog.at_level(logging.ERROR, "lifecycle"), pytest.raises(PermissionError):
        session.append(ev.EndSeed())

    assert done == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_cancellation_that_passes_through_an_observer_leaves_the_folds_whole() -> None:
    session = Session.memory()

    def interrupted(_: ev.Event) -> None:
        raise KeyboardInterrupt

    remove = session.observe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.inbox.insert("next-turn", said("a"))
    remove()

    assert session.inbox.next_turn == (said("a"),)
    assert types(session) == ["agent/inbox/spliced"]
    assert session.append(ev.EndSeed()).seq == 1


def test_the_folds_follow_the_log() -> None:
    session = Session.memory()
    assert (session.last_turn, session.open_turn, session.header, session.context) == (0, None, None, None)

    session.append(ev.TurnStart(turn=1))
    assert (session.last_turn, session.open_turn) == (1, 1)
    header = Header(config=CallConfig(provider="p", model="m"))
    session.append(ev.RequestHeader(header=header, reason="initial"))
    session.append(ev.RequestContext(provider="p", model="m", context_window=5))
    session.append(ev.RequestContext(provider="p", model="m"))
    session.append(ev.TurnEnd(turn=1, reason=COMPLETED))

    assert (session.last_turn, session.open_turn) == (1, None)
    assert session.header is header
    assert session.context == ev.RequestContext(provider="p", model="m")


def test_rsm_01_a_seed_gives_the_same_state_and_is_closed_by_one_marker() -> None:
    parent = Session.memory("parent")
    a_turn(parent, 1, "one")
    a_turn(parent, 2, "two")
    parent.append(ev.TurnStart(turn=3))
    parent.inbox.insert("next-step", said("pending"))

    child = Session.seeded(parent.events)
    grandchild = Session.seeded(child.events)

    assert child.events[:-1] == parent.events[:]
    assert child.events[-1].type == "session/end-seed"
    assert grandchild.events == child.events[:]
    for copy in (child, grandchild):
        assert copy.derive_messages() == parent.derive_messages()
        assert (copy.last_turn, copy.open_turn, copy.header) == (3, 3, parent.header)
        assert copy.inbox.next_step == (said("pending"),)
    assert child.append(ev.EndSeed()).seq == len(parent.events) + 1


def test_rsm_01_an_empty_seed_is_a_marker_alone() -> None:
    assert types(Session.seeded([])) == ["session/end-seed"]


def _event(seq: int, data: ev.EventData, **envelope: Any) -> ev.Event:
    return ev.Event(seq, 0, data, **envelope)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([_event(1, ev.EndSeed())], "event 1 stands where 0 is due"),
        ([_event(0, ev.EndSeed()), _event(0, ev.EndSeed())], "event 0 stands where 1 is due"),
        ([_event(0, user("a"))], r"event 0 \(user/message\).*must say"),
        ([_event(0, user("a"), surface=ev.Replace(start=0, end=0))], "no node 0"),
        (
            [_event(0, ev.InboxSpliced(target="next-step", start=0, removed_count=1))],
            r"event 0 \(agent/inbox/spliced\).*where 0 wait",
        ),
        (
            [_event(n, ev.InboxSpliced(target="next-step", start=0, inserted=(said("a"),))) for n in range(2)],
            r"event 1 .*'a' is already pending",
        ),
    ],
)
def test_rsm_02_a_seed_that_is_no_log_is_refused_with_the_event(events: list[ev.Event], complaint: str) -> None:
    with pytest.raises(SessionFormatError, match=complaint):
        Session.seeded(events, "s")


def test_a_seed_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(NotJsonError):
        Session.seeded([_event(0, ev.UserMessageEvent(message=user_message("\ud800")), surface="append")])


def test_log_08_an_opaque_event_is_kept_and_skipped_by_projections() -> None:
    opaque = ev.Opaque(name="x/y", payload=FrozenDict(a=1))
    seed = [_event(0, opaque, surface="append", ignorable=True), _event(1, user("a"), surface="append")]

    session = Session.seeded(seed)

    assert session.events[0].data is opaque
    assert shown(session) == ["a"]
    assert list(session.surface.nodes) == [1]


@pytest.mark.parametrize("id", ["", "x" * 201, "a\nb", "tab\t", "nul\0", "\u2028", "\ud800", "\x7f"])
def test_a_session_id_that_cannot_be_shown_is_refused(id: str) -> None:
    with pytest.raises(SessionError, match="a session id"):
        Session.memory(id)


@pytest.mark.parametrize(
    "id", ["a", "x" * 200, "../../etc/passwd", "a b", "Überfall №1", "\U0001f469‍\U0001f4bb", "'; --"]
)
def test_a_session_id_is_free_text(id: str) -> None:
    assert Session.memory(id).id == id


@pytest.mark.anyio
async def test_a_closed_session_takes_nothing_any_more() -> None:
    async with Session.memory("s") as session:
        session.append(ev.EndSeed())
        await session.flush()
    await session.close()

    assert session.closed
    assert types(session) == ["session/end-seed"]
    with pytest.raises(SessionClosedError, match="session 's' is closed"):
        session.append(ev.EndSeed())


def test_appending_costs_the_same_at_any_length() -> None:
    """Counted in calls of Python functions, not in time: a machine that is busy has no say."""

    def cost(session: Session) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        gc.disable()  # its callbacks are calls too
        sys.setprofile(count)
        session.append(user("x"), surface="append")
        session.inbox.insert("next-turn", said("y"))
        session.inbox.claim(first=True)
        session.derive_messages()
        sys.setprofile(None)
        gc.enable()
        return calls

    session = Session.memory()
    cost(session)
    early = cost(session)
    for _ in range(3_000):
        session.append(user("z"), surface="append")

    assert cost(session) == early


def test_importing_the_session_loads_no_database() -> None:
    code = "import lifecycle, lifecycle.session.log, lifecycle.session.store, lifecycle.session.memory, sys\n"
    code += "sys.exit('sqlite3' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
