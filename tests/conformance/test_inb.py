"""Group INB: inbox and wake."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lifecycle import Hooks
from lifecycle.errors import DuplicateMessageError, NotJsonError
from lifecycle.services.points import InboxPayload
from lifecycle.session.log import Session
from lifecycle.testing import Gate, Reply
from lifecycle.vocabulary.events import Event, InboxSpliced, StepStart, TurnStart, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import UserMessage, text, user_message
from lifecycle.vocabulary.values import FrozenDict

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, C = (user_message(name, id=name) for name in "abc")


def said(s: Scene) -> list[str]:
    """The ids of the user messages that were admitted, in order."""
    return [data.message.id for data in s.data(UserMessageEvent)]


async def test_inb_01_followup_records_the_insertion_before_anything_live() -> None:
    async with scene() as s:
        s.agent.followup("hello")

        assert s.trace.lines()[:4] == [
            "D agent/inbox/spliced {target:next-turn, start:0, inserted:[m1]}",
            "L agent/inbox/inserted {message:m1}",
            "L agent/status {status:running}",
            "D turn/start {turn:1}",
        ]
        await s.idle()


async def test_inb_02_an_observer_of_the_record_still_sees_the_lists_as_they_were() -> None:
    seen: list[tuple[str, tuple[UserMessage, ...]]] = []
    async with scene() as s:

        def look(event: Event) -> None:
            if isinstance(event.data, InboxSpliced):
                seen.append(("removed" if event.data.removed_count else "inserted", s.agent.inbox.next_turn))

        s.session.observe(look)
        s.agent.followup(A)

        assert seen == [("inserted", ()), ("removed", (A,))]
        assert s.agent.inbox.next_turn == ()
        await s.idle()


async def test_inb_02_a_refused_record_changes_nothing_and_the_next_send_works() -> None:
    async with scene() as s:

        def refuse(event: Event) -> None:
            raise OSError("disk full")

        remove = s.session.veto(refuse)
        with pytest.raises(OSError, match="disk full"):
            s.agent.followup(A)

        assert (s.trace.lines(), s.agent.inbox.pending, s.agent.status) == ([], False, "idle")
        remove()
        await s.say("again")
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize(
    ("verb", "target", "status"),
    [("followup", "next-turn", "running"), ("steer", "next-step", "running"), ("inject", "next-step", "idle")],
)
async def test_inb_03_each_verb_has_its_list_and_wakes_or_not(verb: str, target: str, status: str) -> None:
    gate = Gate()
    async with scene(Reply(text="ok").held(gate)) as s:
        getattr(s.agent, verb)(A)

        first, *_ = s.data(InboxSpliced)
        assert (first.target, first.inserted, s.agent.status) == (target, (A,), status)
        gate.open()
        await s.idle()


@pytest.mark.parametrize(("target", "wakeup"), [("next-turn", True), ("next-step", True), ("next-step", False)])
async def test_inb_03_the_verbs_are_forms_of_send(target: Any, wakeup: bool) -> None:
    async with scene() as s, scene() as t:
        s.agent.send(A, target, wakeup=wakeup)
        if wakeup:
            (t.agent.followup if target == "next-turn" else t.agent.steer)(A)
        else:
            t.agent.inject(A)
        await s.idle()
        await t.idle()

        assert s.trace.lines() == t.trace.lines()


@pytest.mark.parametrize(
    ("start", "delete", "stored"),
    [
        (-1, 99, (2, 1)),
        (-99, 1, (0, 1)),
        (1, math.inf, (1, 2)),
        (-math.inf, math.inf, (0, 3)),
        (2.0, 1.0, (2, 1)),
        (0, -5, None),
        (math.inf, 0, None),
        (99, 99, None),
    ],
)
async def test_inb_04_coordinates_are_resolved_before_they_are_stored(
    start: float, delete: float, stored: tuple[int, int] | None
) -> None:
    async with scene(monitor=False) as s:  # no agent splices without claiming or discarding
        s.session.inbox.splice("next-step", 0, 0, (A, B, C))
        s.session.inbox.splice("next-step", start, delete)

        _, *records = s.data(InboxSpliced)
        assert [(record.start, record.removed_count) for record in records] == ([] if stored is None else [stored])


async def test_inb_04_a_record_leaves_out_a_count_of_zero() -> None:
    async with scene() as s:
        s.agent.inject(A)
        s.session.inbox.splice("next-step", math.inf, 0, (B,))

        assert all("removedCount" not in event.encode() for event in s.session.events)
        assert s.data(InboxSpliced)[1].start == 1


@pytest.mark.parametrize("odd", [math.nan, 0.5, "1"])
async def test_inb_04_a_fraction_or_nan_is_no_coordinate(odd: Any) -> None:
    async with scene() as s:
        s.agent.inject(A)
        for call in ((odd, 1), (0, odd)):
            with pytest.raises(TypeError):
                s.session.inbox.splice("next-step", *call)

        assert (s.agent.inbox.next_step, len(s.durable)) == ((A,), 1)


@pytest.mark.parametrize("second", ["followup", "steer", "inject"])
async def test_inb_05_an_id_is_pending_once_across_both_lists(second: str) -> None:
    async with scene() as s:
        s.agent.inject(A)
        before = s.trace.lines()

        with pytest.raises(DuplicateMessageError, match="'a'"):
            getattr(s.agent, second)(A)
        assert (s.trace.lines(), s.agent.inbox.next_step, s.agent.status) == (before, (A,), "idle")


async def test_inb_06_a_replacement_is_one_record_then_discarded_then_inserted() -> None:
    async with scene() as s:
        s.agent.inject(A)
        s.trace.clear()

        assert s.agent.inbox.replace("a", B)
        assert s.trace.lines() == [
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:1, inserted:[m2], outcome:canceled}",
            "L agent/inbox/discarded {message:m1}",
            "L agent/inbox/inserted {message:m2}",
        ]
        assert s.agent.inbox.next_step == (B,)


async def test_inb_06_a_removal_is_canceled_and_discarded_in_whichever_list() -> None:
    gate = Gate()
    async with scene(Reply(text="ok").held(gate), Reply(text="ok")) as s:
        s.agent.followup("running")
        s.agent.followup(A)
        s.agent.inject(B)
        await gate.reached()
        s.trace.clear()

        assert s.agent.inbox.remove("a")
        assert s.agent.inbox.remove("b")
        assert s.trace.lines() == [
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[], outcome:canceled}",
            "L agent/inbox/discarded {message:m2}",
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:1, inserted:[], outcome:canceled}",
            "L agent/inbox/discarded {message:m3}",
        ]
        gate.open()
        await s.idle()


async def test_inb_06_what_waits_no_more_is_said_and_nothing_happens() -> None:
    async with scene() as s:
        await s.say("done")
        s.trace.clear()

        assert not s.agent.inbox.remove("done")
        assert not s.agent.inbox.replace("done", B)
        assert s.trace.lines() == []


async def test_inb_07_an_idle_inject_waits_for_the_next_turn_whoever_starts_it() -> None:
    async with scene() as s:
        s.agent.inject(A)
        await s.idle()
        assert s.trace.names() == ["agent/inbox/spliced", "agent/inbox/inserted"]
        assert (s.agent.status, s.model.requests) == ("idle", [])

        s.agent.followup(B)
        await s.idle()
        assert said(s) == ["a", "b"]
        assert s.durable.count("step/start") == 1


async def test_inb_08_an_idle_steer_wakes_and_is_taken_by_the_first_claim() -> None:
    async with scene() as s:
        s.agent.steer(A)
        await s.idle()

        assert s.durable[:3] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
        assert {record.target for record in s.data(InboxSpliced)} == {"next-step"}
        assert said(s) == ["a"]
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("listening", [False, True])
async def test_inb_09_a_wake_runs_to_the_first_suspension_and_no_further(listening: bool) -> None:
    """Also where nobody listens, so that a cancel right after the wake always comes before the step (CAN-09)."""
    async with scene(only=None if listening else ["agent/status", "agent/inbox/claimed"]) as s:
        s.agent.followup("hello")

        assert s.trace.lines("D") == [
            "D agent/inbox/spliced {target:next-turn, start:0, inserted:[m1]}",
            "D turn/start {turn:1}",
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[]}",
        ]
        assert s.trace.lines()[-1] == "L agent/inbox/claimed {message:m1, turn:1}"
        assert s.agent.status == "running"
        await s.idle()


async def test_inb_10_a_live_driver_needs_no_wake() -> None:
    gate = Gate()
    async with scene(Reply(text="ok").held(gate, before=1), Reply(text="ok"), Reply(text="ok")) as s:
        s.agent.followup(A)
        await gate.reached()
        s.trace.clear()
        s.agent.followup(B)
        s.agent.followup(C)
        assert s.trace.names() == ["agent/inbox/spliced", "agent/inbox/inserted"] * 2
        assert s.agent.phase == "running/stepping/requesting"

        gate.open()
        await s.idle()
        assert said(s) == ["a", "b", "c"]
        assert s.trace.lines().count("L agent/status {status:running}") == 0
        assert s.trace.lines().count("L agent/status {status:idle}") == 1


@pytest.mark.parametrize("n", range(1, 9))
async def test_inb_11_a_burst_gives_a_turn_each_in_order_under_one_status(n: int) -> None:
    prompts = [user_message(str(place), id=f"p{place}") for place in range(n)]
    async with scene() as s:
        for prompt in prompts:
            s.agent.followup(prompt)
        await s.idle()

        assert [start.turn for start in s.data(TurnStart)] == [*range(1, n + 1)]
        assert [(start.turn, start.step) for start in s.data(StepStart)] == [(turn, 1) for turn in range(1, n + 1)]
        assert said(s) == [prompt.id for prompt in prompts]
        assert s.reasons == [COMPLETED] * n
        assert [line for line in s.trace.lines() if "agent/status" in line] == [
            "L agent/status {status:running}",
            "L agent/status {status:idle}",
        ]


async def test_inb_12_a_wake_whose_message_is_gone_still_owns_a_turn_boundary() -> None:
    hooks = Hooks()

    @hooks.on("agent/inbox/inserted")
    def withdraw(payload: InboxPayload) -> None:
        assert s.agent.inbox.remove(payload.message.id)

    async with scene(hooks=hooks) as s:
        await s.say("never mind")

        assert s.durable == ["agent/inbox/spliced", "agent/inbox/spliced", "turn/start", "turn/end"]
        assert s.reasons == [COMPLETED]
        assert s.trace.names()[-2:] == ["turn/end", "agent/status"]
        assert s.model.requests == []


@pytest.mark.parametrize("type", ["agent/inbox/spliced", "turn/start", "step/start", "assistant/message", "turn/end"])
@pytest.mark.parametrize("verb", ["followup", "steer", "inject"])
async def test_inb_13_a_send_from_inside_a_durable_observer_is_refused_and_contained(type: str, verb: str) -> None:
    async with scene() as s, scene() as undisturbed:
        tried: list[str] = []

        def resend(event: Event) -> None:
            if event.type == type:
                tried.append(type)
                getattr(s.agent, verb)("from inside")

        s.session.observe(resend)
        await s.say("hello")
        await undisturbed.say("hello")

        assert tried
        assert s.trace.lines() == undisturbed.trace.lines()
        assert s.agent.phase == "idle"
        assert not s.agent.inbox.pending


async def test_inb_14_what_is_no_lossless_json_is_rejected_before_it_is_queued() -> None:
    async with scene() as s:
        for odd in (math.nan, {1}, b"bytes", {1: "key"}, "\ud800"):
            with pytest.raises(NotJsonError):
                s.agent.inject(UserMessage(id="x", content=text("see source"), source=FrozenDict(kind="user", odd=odd)))
        with pytest.raises(NotJsonError):
            s.agent.inject("a lone \ud800 surrogate")

        assert (s.trace.lines(), s.agent.inbox.pending) == ([], False)


async def test_inb_14_an_accepted_message_keeps_its_identity_through_log_claim_and_request() -> None:
    nested = {"kind": "user", "where": {"path": ["a", {"b": 1.5}], "none": None}}
    claimed: list[UserMessage] = []
    hooks = Hooks()
    hooks.listen("agent/inbox/claimed", lambda payload: claimed.append(payload.message))
    async with scene(hooks=hooks) as s:
        sent = s.agent.followup(UserMessage(id="mine", content=text("hello"), source=FrozenDict(nested)))
        nested["where"] = "changed by the caller"
        await s.idle()

        where = {"path": ("a", {"b": 1.5}), "none": None}
        for kept in (s.data(InboxSpliced)[0].inserted[0], *claimed, s.model.requests[0].messages[0]):
            assert kept == sent
            assert (kept.id, kept.content) == ("mine", text("hello"))
            assert dict(kept.source) == {"kind": "user", "where": where}
        with pytest.raises(TypeError):
            claimed[0].source["where"]["path"] = ()
        restored = Session.seeded(s.session.events)
        assert restored.derive_messages()[0] == sent
