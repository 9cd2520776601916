"""Group END: an opened step is closed once, whichever way it ends."""

from __future__ import annotations

import pytest

from lifecycle import Failure, tool
from lifecycle.services.points import POINTS, Mode
from lifecycle.testing import Gate, Reply
from lifecycle.vocabulary.chunks import TextDelta
from lifecycle.vocabulary.events import Event
from lifecycle.vocabulary.failures import USER_CANCEL, Aborted, Errored
from lifecycle.vocabulary.messages import text

from .faults import ACTIONS, AFTER, HOST, SILENT, SYNCHRONOUS, Struck
from .kit import scene

pytestmark = pytest.mark.anyio

WAITING = [name for name, point in POINTS.items() if point.mode in (Mode.SERIAL, Mode.WATERFALL)]
WRAPPED = [name + AFTER for name, point in POINTS.items() if point.mode is Mode.WATERFALL]
WAITS = [*WAITING, *WRAPPED, "prepare", "chunk", "wrapped chunk", "body", "approve"]
CALLED = [name for name in POINTS if name not in WAITING and name not in SILENT]
PLACES = [
    *((place, action) for place in WAITS for action in (*ACTIONS, HOST)),
    *((place, action) for place in [*CALLED, "resolve", "open"] for action in SYNCHRONOUS),
]


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(("place", "action"), PLACES)
async def test_end_01_whatever_fails_or_cancels_wherever_every_boundary_is_closed_once(place: str, action: str) -> None:
    nth = 0
    while True:
        story = Struck(place, nth, action)
        try:
            await story.run()
        except BaseException as error:
            error.add_note(f"the fault: {action!r} at {place!r}, time {nth}")
            raise
        if not story.hit:
            break
        nth += 1

    assert nth > 0, f"the story never comes by {place!r}"
    assert story.reasons == ["completed"]


async def test_end_02_a_step_ends_after_its_answer_and_all_results() -> None:
    async with scene(Reply(calls=[("look", {}), ("look", {})]), Reply(text="ok"), tools=[look]) as s:
        await s.say("go")

        assert s.durable[s.durable.index("assistant/message") :] == [
            *("assistant/message", "tool/call", "tool/result", "tool/call", "tool/result", "step/end"),
            *("step/start", "assistant/message", "step/end", "turn/end"),
        ]


async def test_end_02_a_failed_step_ends_after_recovery_was_asked() -> None:
    async with scene(Reply.failure("OVERLOADED")) as s:
        await s.say("go")

        names = s.trace.names()
        assert names[names.index("assistant/attempt") :] == [
            *("assistant/attempt", "agent/assistant-stream end", "agent/request-error"),
            *("step/end", "agent/error", "turn/end", "agent/status"),
        ]


@pytest.mark.parametrize("type", ["step/start", "step/end"])
async def test_end_03_an_observer_that_raises_changes_nothing(type: str, caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s, scene() as undisturbed:

        def fail(event: Event) -> None:
            if event.type == type:
                raise OSError("observer")

        s.session.observe(fail)
        s.hooks.listen("session/event", lambda payload: fail(payload.event))
        await s.say("go")
        await undisturbed.say("go")

        assert s.trace.lines() == undisturbed.trace.lines()
        assert caplog.text.count("OSError: observer") == 2


@pytest.mark.parametrize(
    ("type", "ends"),
    [
        ("step/start", ["turn/start", "agent/inbox/spliced", "turn/end"]),
        ("step/end", ["request/context", "assistant/message", "turn/end"]),
    ],
)
async def test_end_03_a_veto_fails_the_turn_which_is_closed_as_far_as_possible(type: str, ends: list[str]) -> None:
    refused, problem, heard = list[str](), OSError("refused"), list[object]()

    def refuse(event: Event) -> None:
        if event.type == type:
            refused.append(event.type)
            raise problem

    async with scene() as s:
        s.session.veto(refuse)
        s.hooks.listen("agent/error", lambda payload: heard.append(payload.error))
        await s.say("go")

        assert s.durable[-3:] == ends
        assert s.reasons == [Errored(error=Failure(message="OSError: refused"))]
        assert refused == [type]
        assert heard == [problem]
        assert s.agent.step is None
        assert s.agent.status == "idle"


async def test_end_03_a_veto_of_the_end_of_a_cancelled_step_leaves_the_turn_aborted() -> None:
    gate = Gate()

    def refuse(event: Event) -> None:
        if event.type == "step/end":
            raise OSError("refused")

    async with scene([TextDelta(0, "a"), gate]) as s:
        s.session.veto(refuse)
        s.agent.followup("go")
        await gate.reached()
        s.agent.cancel()
        await s.idle()

        assert s.durable[-2:] == ["assistant/message", "turn/end"]
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        assert "agent/error" not in s.trace.names()


@pytest.mark.parametrize("failing", [False, True], ids=["after an answer", "after a failure"])
async def test_end_04_a_cancel_at_the_step_s_end_stops_the_turn_there(failing: bool) -> None:
    async with scene(Reply.failure("OVERLOADED") if failing else Reply(text="ok")) as s:
        s.session.observe(lambda event: s.agent.cancel(keep_inbox=True) if event.type == "step/end" else None)
        s.agent.followup("go")
        s.agent.inject("more")
        await s.idle()

        names = s.trace.names()
        assert names[names.index("step/end") :] == ["step/end", "turn/end", "agent/status"]
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        assert [message.content for message in s.agent.inbox.next_step] == [text("more")]
