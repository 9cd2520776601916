"""Group LOG: the session log, as whoever appends to it and reads it meets it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Agent, Session, UserMessage, user_message
from lifecycle.errors import NotJsonError, ReentrantAppendError, SessionFormatError, SurfaceError, UnknownEventError
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.surface import derive
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    Event,
    EventData,
    Opaque,
    Replace,
    StepStart,
    SurfaceOp,
    SystemMessageEvent,
    ToolFault,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    decode_event,
)
from lifecycle.vocabulary.messages import AssistantMessage, SystemMessage, ToolResultBlock, text
from lifecycle.vocabulary.stream import TimedStream
from lifecycle.vocabulary.values import FrozenDict, Json

from ..definition.matcher import first_illegal
from ..definition.recorded import judgement, mutants, of_events
from .faults import ACTIONS, HOST, SYNCHRONOUS, Struck
from .kit import scene
from .malformed import MALFORMED, TOLERATED
from .test_end import CALLED, WAITS
from .test_traces import STORIES, told

pytestmark = pytest.mark.anyio


class Noted(EventData, frozen=True):
    """An event of a plug-in: any JSON."""

    type: ClassVar[str] = "test/noted"
    note: Json = None


def said(words: str) -> UserMessageEvent:
    return UserMessageEvent(message=user_message(words, id=words))


def section(words: str, name: str = "rules", in_history: bool = False) -> SystemMessageEvent:
    source = FrozenDict(section=name, order=0, **({"placement": "in-history"} if in_history else {}))
    message = SystemMessage(id=words or "empty", content=text(words), source=source)
    return SystemMessageEvent(turn=1, step=1, message=message)


def answered(words: str) -> AssistantMessageEvent:
    message = AssistantMessage(id=words or "empty", content=text(words) if words else ())
    return AssistantMessageEvent(turn=1, step=1, message=message, stream=STREAM, finish=FinishKind.STOP)


def result(words: str, call: str = "a", error: ToolFault | None = None) -> ToolResultEvent:
    block = ToolResultBlock(tool_call_id=call, content=text(words), is_error=error is not None)
    return ToolResultEvent(turn=1, step=1, message=UserMessage(id=f"r{call}", content=(block,)), error=error)


STREAM = TimedStream(start=0)


# -- LOG-01 and LOG-02: what a record is ----------------------------------------------------------------------------


async def test_log_01_records_are_numbered_from_zero_without_gaps_and_timed() -> None:
    async with scene() as s:
        await s.say("one", "two")

        assert [event.seq for event in s.session.events] == list(range(len(s.session.events)))
        assert s.session.next_seq == len(s.session.events)
    session = Session.memory(clock=iter([5, 5, 3]).__next__)  # the clock's word is taken as it is
    assert [session.append(Noted()).time for _ in range(3)] == [5, 5, 3]


async def test_log_01_nothing_that_is_done_to_a_value_before_or_after_alters_the_log() -> None:
    mine: dict[str, Any] = {"path": ["a", {"b": 1}]}
    session = Session.memory()
    event = session.append(Noted(note=mine))
    mine["path"].append("later")
    mine["new"] = True

    data = event.data
    assert isinstance(data, Noted)
    assert data.note == {"path": ("a", {"b": 1})}
    for target, method, *arguments in (
        (data.note, "update", {"path": ()}),
        (data.note["path"][1], "clear"),
        (data.note["path"], "append", "c"),
        (data, "__setattr__", "note", None),
        (event, "__setattr__", "seq", 7),
        (session.events, "append", event),
        (session.events, "__setitem__", 0, event),
    ):
        with pytest.raises((TypeError, AttributeError, ValueError)):
            getattr(target, method)(*arguments)
    assert session.events[0] == Event(0, event.time, Noted(note={"path": ["a", {"b": 1}]}))


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "lossy",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        {"deep": [float("nan")]},
        ...,
        object(),
        b"bytes",
        {"a", "set"},
        {1: "a key that is no string"},
        CYCLE,
        2**63,
        "a lone \ud800 surrogate",
        lambda: None,
    ],
    ids=lambda value: type(value).__name__,  # the same in every process
)
async def test_log_02_what_json_would_lose_is_refused_and_nothing_is_appended(lossy: object) -> None:
    session = Session.memory()
    with pytest.raises((NotJsonError, ValueError)):
        session.append(Noted(note=lossy))

    assert len(session.events) == 0
    assert session.next_seq == 0


async def test_log_02_the_error_names_the_event_the_field_and_the_path() -> None:
    session = Session.memory()
    with pytest.raises(NotJsonError, match=r"^Noted\.note: a\[0\]\.b is of type set"):
        session.append(Noted(note={"a": [{"b": {1}}]}))
    with pytest.raises(NotJsonError, match=r"^user/message: .*surrogate"):  # text is looked at when it is written
        session.append(said("a lone \ud800 surrogate"), surface="append")
    assert len(session.events) == 0


async def test_log_02_a_negative_zero_and_lists_come_back_as_json_has_them() -> None:
    event = Session.memory().append(Noted(note=[-0.0, (1, 2)]))

    assert isinstance(event.data, Noted)
    assert str(event.data.note) == "(0.0, (1, 2))"
    assert decode_event(event.encode()) == event


# -- LOG-03: observers ----------------------------------------------------------------------------------------------


async def test_log_03_an_observer_cannot_append_and_sees_the_record_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session, order, refused = Session.memory(), list[str](), list[ReentrantAppendError]()

    def reentrant(event: Event) -> None:
        order.append(f"first sees {event.type} as the last of {len(session.events)}")
        assert session.events[-1] is event
        try:
            session.append(Noted())
        except ReentrantAppendError as error:
            refused.append(error)
            raise

    session.observe(reentrant)
    session.observe(lambda event: order.append(f"second sees {event.type}"))
    with caplog.at_level(logging.ERROR, "lifecycle"):
        session.append(TurnStart(turn=1))

    assert order == ["first sees turn/start as the last of 1", "second sees turn/start"]
    assert [(error.refused, error.during) for error in refused] == [("test/noted", "turn/start")]
    assert [event.type for event in session.events] == ["turn/start"]
    assert "observer" in caplog.text
    session.append(Noted())  # the log goes on


async def test_log_03_a_veto_cannot_append_either_and_comes_before_the_commit() -> None:
    session = Session.memory()

    def veto(event: Event) -> None:
        assert len(session.events) == 0
        session.append(Noted())

    session.veto(veto)
    with pytest.raises(ReentrantAppendError):
        session.append(TurnStart(turn=1))
    assert len(session.events) == 0


# -- LOG-04 and LOG-05: the surface ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [section("s"), said("u"), answered("a"), result("r")], ids=lambda data: data.type)
async def test_log_04_a_message_says_what_it_does_to_the_surface(data: EventData) -> None:
    session = Session.memory()
    with pytest.raises(SurfaceError, match=data.type):
        session.append(data)
    assert len(session.events) == 0

    session.append(data, surface="append")
    assert list(session.surface.nodes) == [0]
    replaced = session.append(data, surface=Replace(start=0, end=0), sources=[0])
    assert list(session.surface.nodes) == [replaced.seq]


@pytest.mark.parametrize("data", [TurnStart(turn=1), StepStart(turn=1, step=1), Noted()], ids=lambda data: data.type)
async def test_log_04_what_bears_no_message_stays_off_the_surface(data: EventData) -> None:
    session = Session.memory()
    operations: tuple[SurfaceOp, ...] = ("append", Replace(start=0, end=0))
    for operation in operations:
        with pytest.raises(SurfaceError, match=data.type):
            session.append(data, surface=operation)
    assert len(session.events) == 0


def four() -> Session:
    """A session with four user messages on its surface."""
    session = Session.memory()
    for words in ("zero", "one", "two", "three"):
        session.append(said(words), surface="append")
    return session


def test_log_05_a_replacement_takes_the_place_of_a_range_and_counts() -> None:
    session = four()
    assert session.surface.generation == 0

    session.append(said("middle"), surface=Replace(start=1, end=2), sources=[2, 1])
    assert list(session.surface.nodes) == [0, 4, 3]
    session.append(said("tail"), surface=Replace(start=4, end=3), sources=[0, 4, 3])  # surface order, not log order
    assert list(session.surface.nodes) == [0, 5]
    assert session.surface.generation == 2
    session.append(said("more"), surface="append")
    assert session.surface.generation == 2


@pytest.mark.parametrize(
    ("start", "end", "sources"),
    [
        (1, 9, [1, 2, 3]),  # there is no such record
        (9, 2, [1, 2]),
        (2, 1, [1, 2]),  # reversed
        (1, 2, [1]),  # 2 is shadowed, and not cited
        (1, 2, None),
        (1, 2, []),  # only an assistant message may
        (1, 2, [1, 2, 2]),  # named twice
        (1, 2, [1, 2, 4]),  # itself
        (1, 2, [1, 2, -1]),
    ],
)
def test_log_05_a_replacement_that_breaks_a_rule_is_refused_whole(
    start: int, end: int, sources: list[int] | None
) -> None:
    session = four()
    with pytest.raises(SurfaceError):
        session.append(said("new"), surface=Replace(start=start, end=end), sources=sources)

    assert list(session.surface.nodes) == [0, 1, 2, 3]
    assert session.surface.generation == 0
    assert len(session.events) == 4


def test_log_05_what_is_off_the_surface_cannot_be_replaced_again() -> None:
    session = four()
    session.append(said("new"), surface=Replace(start=1, end=2), sources=[1, 2])
    with pytest.raises(SurfaceError):
        session.append(said("newer"), surface=Replace(start=1, end=3), sources=[1, 3, 4])


def test_log_05_only_an_assistant_message_may_cite_nothing_on_purpose() -> None:
    session = four()
    session.append(answered("summary"), surface=Replace(start=0, end=3), sources=[])

    assert list(session.surface.nodes) == [4]


def test_log_05_a_result_replaces_one_result_and_changes_content_only() -> None:
    session = Session.memory()
    session.append(result("long", "a"), surface="append")
    session.append(result("other", "b"), surface="append")
    session.append(said("hello"), surface="append")

    for data, start, end in [
        (result("short", "a"), 0, 1),  # two results
        (result("short", "a"), 2, 2),  # no result
        (result("short", "b"), 0, 0),  # of another call
        (result("short", "a", ToolFault(code="X")), 0, 0),  # with another outcome
    ]:
        with pytest.raises(SurfaceError):
            session.append(data, surface=Replace(start=start, end=end), sources=[0, 1, 2])
    session.append(result("short", "a"), surface=Replace(start=0, end=0), sources=[0])
    assert list(session.surface.nodes) == [3, 1, 2]


# -- LOG-06: derived messages ---------------------------------------------------------------------------------------


def test_log_06_log_only_records_never_matter_and_empty_answers_are_skipped() -> None:
    session = Session.memory()
    session.append(TurnStart(turn=1))
    session.append(said("hello"), surface="append")
    session.append(answered(""), surface="append")
    session.append(Noted(note="nothing"))
    session.append(answered("hi"), surface="append")

    assert [message.id for message in session.derive_messages()] == ["hello", "hi"]


def test_log_06_each_call_returns_a_list_of_its_own_of_the_same_frozen_messages() -> None:
    session = four()
    first = session.derive_messages()
    session.append(said("later"), surface="append")
    second = session.derive_messages()

    assert [message.id for message in first] == ["zero", "one", "two", "three"]
    assert [message.id for message in second][-1] == "later"
    assert all(one is other for one, other in zip(first, second, strict=False))
    assert not hasattr(first, "__setitem__")
    session.append(said("new"), surface=Replace(start=0, end=3), sources=[0, 1, 2, 3])
    assert [message.id for message in second] == ["zero", "one", "two", "three", "later"]


def anything(n: int, heads: set[str]) -> st.SearchStrategy[EventData]:
    """Any event; of a prompt section only what may stand beside its head node, if it has one."""
    made: list[EventData] = [said(f"u{n}"), answered(f"a{n}"), answered(""), Noted()]
    for name in ("rules", "tools"):
        made += [section(words, name, in_history=name in heads) for words in (f"s{n}", "")]
    return st.sampled_from(made)


@given(data=st.data())
def test_log_06_what_is_kept_up_to_date_equals_what_is_derived_from_scratch(data: st.DataObject) -> None:
    session = Session.memory()
    for n in range(data.draw(st.integers(1, 25), label="events")):
        made = data.draw(anything(n, set(session.surface.heads)), label="what")
        nodes, replaces = list(session.surface.nodes), data.draw(st.booleans(), label="replaces")
        if isinstance(made, Noted):
            session.append(made)
        elif nodes and replaces:
            first = data.draw(st.integers(0, len(nodes) - 1), label="from")
            last = data.draw(st.integers(first, len(nodes) - 1), label="to")
            covered = nodes[first : last + 1]
            session.append(made, surface=Replace(start=nodes[first], end=nodes[last]), sources=covered)
        else:
            session.append(made, surface="append")
        if data.draw(st.booleans(), label="looks"):
            assert list(session.derive_messages()) == derive(session.events)
    assert list(session.derive_messages()) == derive(session.events)


# -- LOG-08: records that nobody knows ------------------------------------------------------------------------------

UNKNOWN = '{"seq":1,"time":7,"type":"plugin/unheard-of","data":{"a":[1]}'


def test_log_08_a_log_with_an_unknown_record_is_refused_and_the_record_is_named() -> None:
    with pytest.raises(UnknownEventError, match="plugin/unheard-of") as refused:
        decode_event(UNKNOWN + "}")
    assert isinstance(refused.value, SessionFormatError)


def test_log_08_one_that_may_be_ignored_is_kept_skipped_and_written_as_it_was() -> None:
    line = UNKNOWN + ',"ignorable":true}'
    event = decode_event(line)
    first = Event(0, 7, said("hello"), "append")
    session = Session.restored([first, event], "s")

    assert session.events[1] is event
    assert event.type == "plugin/unheard-of"
    assert isinstance(event.data, Opaque)
    assert [message.id for message in session.derive_messages()] == ["hello"]
    assert session.append(TurnStart(turn=1)).seq == 2
    assert event.encode() == line
    assert Session.seeded(session.events).events[1].encode() == line


async def test_log_08_one_that_may_be_ignored_survives_a_resume(tmp_path: Path) -> None:
    line = UNKNOWN + ',"ignorable":true}'
    async with SqliteStore(tmp_path / "sessions.db") as store:
        session = await store.create("s")
        session.append(said("hello"), surface="append")
        session.append(decode_event(line).data, ignorable=True)
        await session.close()

        async with Agent.resume(store, "s", ScriptedModel(Reply(text="ok"))) as agent:
            agent.followup("go on")
            await agent.when_idle()
        again = await store.open("s", read_only=True)

    kept = again.events[1]
    assert isinstance(kept.data, Opaque)
    assert (kept.data, kept.ignorable) == (decode_event(line).data, True)
    assert again.last_turn == 1


# -- LOG-07: what the definition says of a log ---------------------------------------------------------------------


@pytest.mark.parametrize("name", MALFORMED)
def test_log_07_a_malformed_sequence_is_refused_at_its_last_record(name: str) -> None:
    records, expected = MALFORMED[name]
    place, wrong = judgement(records, "000")

    assert place == first_illegal(records, "000") == len(records) - 1
    assert expected in str(wrong)


@pytest.mark.parametrize("name", TOLERATED)
def test_log_07_what_is_tolerated(name: str) -> None:
    assert judgement(TOLERATED[name], "000") == (None, None)
    assert first_illegal(TOLERATED[name], "000") is None


@pytest.mark.parametrize("name", STORIES)
async def test_log_07_every_reference_trace_is_legal_and_its_mutants_are_judged_alike(name: str) -> None:
    begin, _ = STORIES[name]
    records = of_events((await told(begin())).session.events)

    assert judgement(records, "000") == (None, None)
    for mutant in mutants(records):
        assert judgement(mutant.records, "000")[0] == first_illegal(mutant.records, "000"), mutant[:2]


@pytest.mark.parametrize("place", [*WAITS, *CALLED, "resolve", "open"])
async def test_log_07_what_a_fault_leaves_is_legal_unless_a_boundary_was_refused(place: str) -> None:
    actions = (*ACTIONS, HOST) if place in WAITS else SYNCHRONOUS
    for action in actions:
        nth, hit = 0, True
        while hit:
            story = Struck(place, nth, action)
            await story.run()
            nth, hit = nth + 1, story.hit
            events = story.agent.session.events
            lost = [
                attempt
                for attempt in story.attempts
                if attempt.type in ("step/end", "turn/end") and attempt.data not in [event.data for event in events]
            ]
            at, wrong = judgement(of_events(events), "000")
            if lost:
                assert wrong is not None, (action, nth, "a lost end must not pass")
            else:
                assert at is None, (action, nth, str(wrong))
            assert events
            assert isinstance(events[-1].data, TurnEnd)
