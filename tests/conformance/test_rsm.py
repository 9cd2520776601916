"""Group RSM: seed, resume, repair, fork, publication."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from lifecycle import Agent, Deny, Hooks, Session, ToolContext, tool
from lifecycle.errors import (
    ForkError,
    SessionError,
    SessionExistsError,
    SessionFormatError,
    SessionLockedError,
    SessionNotFoundError,
)
from lifecycle.services.points import SessionStartPayload
from lifecycle.services.tools import Replay
from lifecycle.session.fork import Lineage
from lifecycle.session.memory import MemoryStore
from lifecycle.session.repair import NOT_STARTED, OUTCOME_UNKNOWN, torn
from lifecycle.testing import Gate, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.events import (
    EndSeed,
    Event,
    InboxSpliced,
    RequestHeader,
    StepEnd,
    StepStart,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)
from lifecycle.vocabulary.failures import INTERRUPTED, Aborted
from lifecycle.vocabulary.messages import text_of, user_message

from ..crash import story
from ..crash.audit import illegal, problems
from .kit import scene

pytestmark = pytest.mark.anyio


def cut(events: Sequence[Event], at: int) -> Session:
    """What a store has of a session whose process was lost after `at` events."""
    return Session.restored(events[:at], "s")


def results(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    """The results in a log: the call, and the error if there is one."""
    return [
        (str(event.data.message.source["callId"]), None if event.data.error is None else event.data.error.code)
        for event in events
        if isinstance(event.data, ToolResultEvent)
    ]


async def test_rsm_01_a_seed_is_adopted_marked_once_and_gives_the_same_folds() -> None:
    events = await story.tell(Session.memory("s"))
    first = Session.seeded(events, lineage=Lineage("s", len(events)))
    again = Session.seeded(first.events)

    assert [type(event.data) for event in first.events[len(events) :]] == [EndSeed]
    assert again.events == first.events
    source = Session.restored(events, "s")
    for made in (first, again):
        assert made.derive_messages() == source.derive_messages()
        assert (made.last_turn, made.header, made.context) == (source.last_turn, source.header, source.context)
    assert illegal(first.events) == ""


async def test_rsm_01_a_seed_is_validated_and_its_input_is_not_inherited() -> None:
    session = Session.memory()
    session.inbox.insert("next-turn", user_message("waits"))
    assert not Session.seeded(session.events, lineage=Lineage("s", 1)).inbox.pending
    assert Session.seeded(session.events).inbox.pending

    with pytest.raises(SessionFormatError, match="event 1 stands where 0 is due"):
        Session.seeded([Event(1, 0, TurnStart(turn=1))])


async def test_rsm_02_a_resumed_agent_goes_on_with_numbers_input_and_a_header_that_says_so() -> None:
    store = MemoryStore()
    async with scene(session=await store.create("s", parent="mother")) as s:
        await s.say("one")
        s.agent.inject("staged")

    model = ScriptedModel(Reply(text="ok"))
    async with Agent.resume(store, "s", model) as agent:
        with anyio.fail_after(5):
            assert agent.session.lineage == Lineage("mother")
            before = agent.session.next_seq
            agent.followup("two")
            await agent.when_idle()

    events = agent.session.events
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.data.turn for event in events[before:] if isinstance(event.data, TurnStart)] == [2]
    assert [event.data.reason for event in events if isinstance(event.data, RequestHeader)] == ["initial", "resume"]
    assert [text_of(message) for message in model.requests[0].messages] == ["one", "ok", "staged", "two"]
    assert illegal(events) == ""


async def test_rsm_02_a_live_session_is_not_resumed_and_a_corrupt_inbox_record_is_named() -> None:
    store, gate = MemoryStore(), Gate()
    async with scene([gate, Reply(text="ok").chunks()[-1]], session=await store.create("s")) as s:
        s.agent.followup("one")
        await gate.reached()
        with pytest.raises(SessionLockedError, match="'s'"):
            async with Agent.resume(store, "s", ScriptedModel()):
                pass
        gate.open()

    with pytest.raises(SessionNotFoundError):
        async with Agent.resume(store, "unknown", ScriptedModel()):
            pass
    bad = Event(1, 0, InboxSpliced(target="next-turn", start=4, removed_count=2))
    with pytest.raises(SessionFormatError, match=r"event 1 \(agent/inbox/spliced\).*removes 2 at 4"):
        Session.restored([Event(0, 0, TurnStart(turn=1)), bad], "s")


async def test_rsm_03_a_log_that_was_cut_anywhere_is_owed_what_makes_it_legal_and_nothing_more() -> None:
    events = await story.tell(Session.memory("s"))
    assert illegal(events) == ""
    open_turns = 0
    for at in range(len(events) + 1):
        session = cut(events, at)
        open_turns += session.open_turn is not None

        owed = session.repair()

        assert problems(session) == [], at
        assert session.events[:at] == events[:at]
        assert bool(owed) == (torn(events[:at]) is not None)
        assert session.repair() == ()
    assert open_turns > len(events) // 2


async def test_rsm_03_a_repair_that_was_itself_cut_anywhere_is_finished_the_next_time() -> None:
    events = await story.tell(Session.memory("s"))
    for at in range(len(events)):
        whole = cut(events, at)
        owed = len(whole.repair())
        for paid in range(owed):
            again = cut(whole.events, at + paid)
            again.repair()
            assert [event.data for event in again.events] == [event.data for event in whole.events], (at, paid)


async def test_rsm_03_results_come_first_then_the_step_then_the_turn() -> None:
    work = GatedTool("work")
    script = [Reply(calls=[("work", {}, "a"), ("work", {}, "b"), ("rest", {}, "c")])]

    @tool
    async def rest() -> str:
        """Rest."""
        return "never reached"

    async with scene(*script, tools=[work, rest]) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        kept = tuple(s.session.events)
        s.agent.cancel()
    session = Session.restored(kept, "s")

    owed = session.repair()

    assert [event.type for event in owed] == ["tool/result"] * 3 + ["step/end", "turn/end"]
    assert results(owed) == [("a", OUTCOME_UNKNOWN), ("b", OUTCOME_UNKNOWN), ("c", NOT_STARTED)]
    calls = [event.seq for event in kept if event.type == "tool/call"]
    assert [event.sources for event in owed[:3]] == [(calls[0],), (calls[1],), None]
    assert owed[-1].data == TurnEnd(turn=1, reason=INTERRUPTED)


async def test_rsm_03_claimed_input_that_nobody_settled_waits_again_at_the_head_of_its_list() -> None:
    session = Session.memory()
    for target, id in (("next-step", "context"), ("next-turn", "first"), ("next-turn", "second")):
        session.inbox.insert(target, user_message(id, id=id))  # type: ignore[arg-type]
    session.append(TurnStart(turn=1))
    session.inbox.claim(first=True)
    session.append(StepStart(turn=1, step=1))

    owed = session.repair()

    assert [event.type for event in owed] == [*["agent/inbox/spliced"] * 2, "step/end", "turn/end"]
    assert [message.id for message in session.inbox.next_step] == ["context"]
    assert [message.id for message in session.inbox.next_turn] == ["first", "second"]


async def test_rsm_03_what_a_hook_dropped_from_an_admitted_batch_is_settled() -> None:
    session = Session.memory()
    session.inbox.insert("next-turn", user_message("dropped", id="dropped"))
    session.append(TurnStart(turn=1))
    session.inbox.claim(first=True)
    session.append(StepStart(turn=1, step=1))
    session.append(StepEnd(turn=1, step=1))

    assert [event.type for event in session.repair()] == ["turn/end"]
    assert not session.inbox.pending


async def test_rsm_03_a_log_at_rest_is_owed_nothing_and_opening_it_twice_does_not_let_it_grow() -> None:
    events = await story.tell(Session.memory("s"))
    assert Session.memory().repair() == ()
    session = Session.restored(events[:20], "s")
    async with Agent(ScriptedModel(), session=session):
        pass
    once = session.next_seq
    assert once > 20
    again = Session.restored(session.events, "s")
    async with Agent(ScriptedModel(), session=again):
        pass

    assert again.next_seq == once


async def test_rsm_04_a_session_whose_turn_goes_on_is_not_repaired() -> None:
    gate = Gate()
    async with scene([gate, Reply(text="ok").chunks()[-1]]) as s:
        s.agent.followup("one")
        await gate.reached()
        with pytest.raises(SessionError, match="is in use by"):
            s.session.repair()
        with pytest.raises(SessionError, match="is in use by"):
            await Agent(ScriptedModel(), session=s.session).__aenter__()
        gate.open()
        await s.idle()

    assert not [reason for reason in s.reasons if reason == INTERRUPTED]


@pytest.mark.parametrize("replay", ["never", "safe"])
async def test_rsm_04_a_call_whose_process_was_lost_runs_again_only_if_its_author_said_so(replay: Replay) -> None:
    work = GatedTool("work")
    async with scene(Reply(calls=[("work", {}, "a")]), tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a")
        kept, key = tuple(s.session.events), work.contexts[0].key.partition(":")[2]
        s.agent.cancel()
    keys: list[str] = []

    @tool(name="work", replay=replay)
    async def again(context: ToolContext) -> str:
        """Work."""
        keys.append(context.key)
        context.defer("by the way")
        return "done after all"

    session = Session.restored(kept, "s")
    async with Agent(ScriptedModel(), tools=[again], session=session) as agent:
        waiting = [text_of(message) for message in agent.inbox.next_step]

    ran = replay == "safe"
    assert keys == ([f"s:{key}"] if ran else [])
    assert waiting == (["by the way"] if ran else [])
    assert results(session.events) == [("a", None if ran else OUTCOME_UNKNOWN)]
    assert illegal(session.events) == ""


@pytest.mark.parametrize("found", ["it was paid", None, "raises"])
async def test_rsm_04_a_tool_may_find_out_what_came_of_a_lost_call(found: str | None) -> None:
    work = GatedTool("work")
    async with scene(Reply(calls=[("work", {}, "a")]), tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a")
        kept = tuple(s.session.events)
        s.agent.cancel()

    def recover(context: ToolContext) -> str | None:
        if found == "raises":
            raise OSError("nobody answers")
        return found

    @tool(name="work", recover=recover)
    async def pay() -> str:
        """Pay."""
        raise AssertionError("never again")

    session = Session.restored(kept, "s")
    async with Agent(ScriptedModel(), tools=[pay], session=session):
        pass

    assert results(session.events) == [("a", None if found == "it was paid" else OUTCOME_UNKNOWN)]


async def test_rsm_04_a_call_that_is_not_allowed_any_more_is_not_run_again_and_its_outcome_stays_unknown() -> None:
    work = GatedTool("work")
    async with scene(Reply(calls=[("work", {}, "a")]), tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a")
        kept = tuple(s.session.events)
        s.agent.cancel()
    hooks, ran = Hooks(), list[str]()

    @hooks.on("tools/pre-execute")
    async def deny(payload: object, next: object) -> Deny:
        return Deny("not any more")

    @tool(name="work", replay="safe")
    async def again() -> str:
        """Work."""
        ran.append("again")
        return "again"

    session = Session.restored(kept, "s")
    async with Agent(ScriptedModel(), tools=[again], hooks=hooks, session=session):
        pass

    assert ran == []
    assert results(session.events) == [("a", OUTCOME_UNKNOWN)]


async def test_rsm_05_a_fork_lies_outside_an_open_turn_and_goes_on_with_the_numbers() -> None:
    store = MemoryStore()
    session = await store.create("s")
    async with scene(session=session) as s:
        await s.say("one", "two")
    async with await store.open("s") as opened:
        opened.append(TurnStart(turn=3))

    with pytest.raises(SessionNotFoundError):
        await store.fork("unknown", new_id="s")
    with pytest.raises(SessionExistsError):
        await store.fork("s", turn=9, new_id="s")
    with pytest.raises(ForkError, match="turns 1 to 2 have ended"):
        await store.fork("s", turn=3, new_id="child")
    child = await store.fork("s", turn=1, new_id="child")
    assert child.lineage == Lineage("s", child.next_seq - 1)
    async with scene(session=child) as c:
        await c.say("another two")
        assert [start.turn for start in c.data(TurnStart)] == [1, 2]
    assert illegal(child.events) == ""


async def test_rsm_06_setup_runs_unpublished_and_leaving_settles_before_it_tells() -> None:
    told: list[str] = []
    hooks, gate, store = Hooks(), Gate(), MemoryStore()
    for point in ("agent/created", "agent/disposed"):
        hooks.listen(point, lambda payload, point=point: told.append(point))
    hooks.listen("session/event", lambda payload: told.append(payload.event.type))

    @hooks.on("agent/session-start")
    def start(payload: SessionStartPayload) -> None:
        told.append(f"start {payload.source}")

    model = ScriptedModel([gate, *Reply(text="ok").chunks()])
    async with Agent(model, hooks=hooks, session=await store.create("s")) as agent:
        assert told == ["agent/created", "start new"]
        agent.followup("one")
        with anyio.fail_after(5):
            await gate.reached()
    assert told[-2:] == ["turn/end", "agent/disposed"]
    assert agent.session.closed
    assert [type(e.data.reason) for e in agent.session.events if isinstance(e.data, TurnEnd)] == [Aborted]

    told.clear()
    async with Agent.resume(store, "s", ScriptedModel(), hooks=hooks):
        assert told == ["agent/created", "start resume"]


async def test_rsm_06_a_failed_setup_publishes_nothing_and_frees_the_session() -> None:
    store, hooks, told = MemoryStore(), Hooks(), list[str]()
    async with scene(session=await store.create("s")) as s:
        await s.say("one")
    hooks.listen("agent/session-start", lambda payload: told.append("start"))

    @hooks.on("agent/created")
    def veto(payload: object) -> None:
        raise PermissionError("not here")

    with pytest.raises(PermissionError):
        async with Agent.resume(store, "s", ScriptedModel(), hooks=hooks):
            pass

    assert told == []
    async with Agent.resume(store, "s", ScriptedModel()) as agent:
        assert agent.session.last_turn == 1
