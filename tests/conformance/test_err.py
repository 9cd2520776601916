"""Group ERR: what an exception at an extension point leads to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lifecycle import Enter, Hooks, Reject
from lifecycle.services.points import POINTS, Mode, OnFault
from lifecycle.testing import Reply
from lifecycle.vocabulary.events import Event, TurnEnd, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Aborted, Errored, Failure, HookCancel
from lifecycle.vocabulary.messages import text_of

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

TOLD = [
    *("agent/status", "agent/inbox/inserted", "agent/inbox/claimed", "agent/inbox/discarded"),
    *("agent/assistant-stream", "agent/error", "agent/session-start", "agent/disposed", "session/event"),
]
"""The points where the story of `tell_everything` is told to listeners that cannot fail it."""

CLAIMED = ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]
OPENED = [*CLAIMED, "step/start"]
ADMITTED = [*OPENED, "user/message", "request/header", "request/context"]
SETTLED = [*ADMITTED, "assistant/attempt", "step/end", "turn/end"]
LANDS = {
    "agent/step-boundary": [*CLAIMED, "turn/end"],
    "agent/model": [*CLAIMED, "turn/end"],
    "agent/pre-step": [*CLAIMED, "turn/end"],
    "system-prompt/assemble": [*OPENED, "step/end", "turn/end"],
    "agent/request": [*OPENED, "step/end", "turn/end"],
    "llm/stream": SETTLED,
    "agent/request-error": SETTLED,
    "agent/turn-stopping": [*ADMITTED, "assistant/message", "step/end", "turn/end"],
}
"""The points that steer a turn, and the log of a turn that fails there."""


class Problem(Exception):
    """What the listeners here raise."""


async def tell_everything(s: Scene) -> None:
    """A turn, a failed turn, and a queued prompt that is taken back."""
    await s.say("one")
    s.agent.followup("two")
    queued = s.agent.followup("never mind")
    s.agent.inbox.remove(queued.id)
    await s.idle()


def awaitable(payload: object) -> Any:
    """Return what nobody awaits; it would fail."""

    async def fail() -> None:
        raise Problem

    return fail()


def raising(payload: object) -> None:
    raise Problem


def test_err_01_the_points_that_cannot_fail_anything_are_declared_so() -> None:
    contained = {name for name, point in POINTS.items() if point.on_fault is OnFault.CONTAINED}

    assert contained == {*TOLD, "agent/overdue", "tools/result"}


@pytest.mark.parametrize("fail", [raising, awaitable])
@pytest.mark.parametrize("point", TOLD)
async def test_err_01_a_listener_that_fails_is_logged_and_the_next_one_still_hears(
    point: str, fail: Callable[[object], Any], caplog: pytest.LogCaptureFixture
) -> None:
    hooks, heard, script = Hooks(), list[object](), [Reply(text="ok"), Reply.failure("OVERLOADED")]
    hooks.listen(point, fail)
    hooks.listen(point, heard.append)
    async with scene(*script, hooks=hooks) as s:
        await tell_everything(s)
    async with scene(*script) as undisturbed:
        await tell_everything(undisturbed)

    assert heard
    assert caplog.text.count(fail.__qualname__) >= len(heard)
    assert s.trace.lines() == undisturbed.trace.lines()
    assert [reason.kind for reason in s.reasons] == ["completed", "error"]


def story(point: str) -> list[Reply]:
    """What the model says first, so that the turn comes by the point."""
    return [Reply.failure("OVERLOADED")] if point == "agent/request-error" else []


def listen_once(s: Scene, point: str, listener: Callable[[], None]) -> None:
    """Listen at a point of any steering mode, the first time it is dispatched."""
    mode, times = POINTS[point].mode, [0]

    def first() -> bool:
        times[0] += 1
        return times[0] == 1

    async def wrap(payload: object, next: Callable[[], Awaitable[Any]]) -> Any:
        if first():
            listener()
        return await next()

    async def ask(payload: object) -> None:
        if first():
            listener()

    s.hooks.listen(point, wrap if mode is Mode.WATERFALL else ask)


def fail() -> None:
    raise Problem("no")


def test_err_02_the_points_that_steer_a_turn_are_declared_so() -> None:
    fails = (OnFault.FAILS_TURN, OnFault.FAILS_TURN_UNRECOVERED)

    assert {name for name, point in POINTS.items() if point.on_fault in fails} == set(LANDS)


@pytest.mark.parametrize("point", LANDS)
async def test_err_02_an_exception_of_a_steering_hook_ends_the_turn_and_leaves_the_agent_usable(point: str) -> None:
    errors = list[object]()
    async with scene(*story(point), Reply(text="ok"), Reply(text="ok"), Reply(text="ok")) as s:
        listen_once(s, point, fail)
        s.hooks.listen("agent/error", lambda payload: errors.append(payload.error))
        s.agent.followup("one")
        s.agent.followup("two")
        await s.idle()

        assert s.reasons == [Errored(error=Failure(message="Problem: no"))]
        assert [type(error) for error in errors] == [Problem]
        assert [text_of(message) for message in s.agent.inbox.next_turn] == ["two"]  # the driver has stopped
        assert (s.agent.status, s.agent.step) == ("idle", None)
        assert s.durable.count("step/start") == s.durable.count("step/end")

        await s.say("three")
        assert s.reasons[1:] == [COMPLETED, COMPLETED]
        assert s.trace.names().count("agent/error") == 1


@pytest.mark.parametrize(("point", "log"), LANDS.items())
async def test_err_03_the_log_shows_where_the_failure_landed(point: str, log: list[str]) -> None:
    async with scene(*story(point), Reply(text="ok")) as s:
        listen_once(s, point, fail)
        await s.say("go")

        assert s.durable == log
        told = [(entry.data["turn"], entry.data["step"]) for entry in s.trace.entries if entry.name == "agent/error"]
        assert told == [(1, 0 if log[3] == "turn/end" else 1)]
        names = s.trace.names()
        assert names[-3:] == ["agent/error", "turn/end", "agent/status"]


@pytest.mark.parametrize("point", LANDS)
async def test_err_04_a_hook_that_cancels_and_then_raises_has_cancelled(point: str) -> None:
    cause = HookCancel(reason="enough")
    async with scene(*story(point), Reply(text="ok")) as s:

        def cancel_and_fail() -> None:
            s.agent.cancel(cause)
            raise Problem

        listen_once(s, point, cancel_and_fail)
        await s.say("go")

        (end,) = s.data(TurnEnd)
        assert end == TurnEnd(turn=1, reason=Aborted(reason=cause))
        assert "agent/error" not in s.trace.names()
        assert s.durable.count("step/start") == s.durable.count("step/end")


async def test_err_04_a_failure_that_nobody_was_told_of_before_the_cancel_is_none() -> None:
    async with scene() as s:
        listen_once(s, "agent/request", fail)
        s.session.observe(lambda event: s.agent.cancel() if event.type == "step/end" else None)
        await s.say("go")

        assert [reason.kind for reason in s.reasons] == ["aborted"]
        assert "agent/error" not in s.trace.names()


async def test_err_04_a_cancel_after_the_failure_was_told_comes_too_late() -> None:
    async with scene() as s:
        listen_once(s, "agent/request", fail)
        s.hooks.listen("agent/error", lambda payload: s.agent.cancel())
        await s.say("go")

        assert [reason.kind for reason in s.reasons] == ["error"]


TURN = [
    *("agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "step/start", "user/message", "request/header"),
    *("request/context", "assistant/message", "step/end", "turn/end"),
]


@pytest.mark.parametrize("nth", range(1, len(TURN)))
async def test_err_05_a_refused_record_fails_the_turn_and_is_nowhere(nth: int) -> None:
    heard, refused = list[object](), list[Event]()

    def refuse(event: Event) -> None:
        if event.seq == nth and not refused:
            refused.append(event)
            raise Problem("refused")

    async with scene() as s:
        s.session.veto(refuse)
        s.hooks.listen("agent/error", lambda payload: heard.append(payload.error))
        await s.say("go")

        assert [event.type for event in refused] == [TURN[nth]]
        assert s.durable[:nth] == TURN[:nth]
        assert not [event for event in s.session.events if event is refused[0]]
        assert s.trace.names("D") == s.durable
        assert [type(error) for error in heard] == [Problem]
        assert [end.kind for end in s.reasons] == ([] if TURN[nth] in ("turn/start", "turn/end") else ["error"])
        assert s.durable.count("step/start") == s.durable.count("step/end") + (TURN[nth] == "step/end")
        assert s.agent.status == "idle"
        admitted = [data.message for data in s.data(UserMessageEvent)]
        assert [message for message in s.session.derive_messages() if message.role == "user"] == admitted


async def test_err_05_a_refused_end_of_a_failed_turn_is_told_besides_what_failed_it() -> None:
    heard = list[object]()
    async with scene(Reply.failure("OVERLOADED"), Reply(text="ok")) as s:
        s.hooks.listen("agent/error", lambda payload: heard.append(payload.error))
        with refusing(s, "turn/end"):
            await s.say("go")

        failure, refusal = heard
        assert isinstance(failure, Failure)
        assert isinstance(refusal, Problem)
        assert (s.durable[-1], s.agent.status) == ("step/end", "idle")


async def test_err_05_a_refused_insertion_raises_where_it_was_sent_and_changes_nothing() -> None:
    def refuse(event: Event) -> None:
        raise Problem("refused")

    async with scene() as s:
        remove = s.session.veto(refuse)
        for send in (s.agent.followup, s.agent.steer, s.agent.inject):
            with pytest.raises(Problem):
                send("go")
        assert (s.durable, s.trace.entries, s.agent.inbox.pending, s.agent.status) == ([], [], False, "idle")
        remove()
        await s.say("go")

        assert s.durable == TURN


async def test_err_05_a_validator_that_cancels_and_refuses_leaves_the_agent_where_it_was() -> None:
    async with scene() as s:

        def refuse(event: Event) -> None:
            s.agent.cancel()
            raise Problem("refused")

        remove = s.session.veto(refuse)
        with pytest.raises(Problem):
            s.agent.followup("go")
        assert (s.agent.phase, s.agent.status) == ("idle", "idle")
        remove()
        await s.say("on")

        assert s.reasons == [COMPLETED]


async def test_err_05_a_refused_clearing_raises_in_the_cancel_and_the_turn_goes_on() -> None:
    async with scene(Reply(text="ok"), Reply(text="ok")) as s:

        @s.hooks.on("agent/pre-step")
        async def cancel(payload: Any, next: Next[Enter | Reject]) -> Enter | Reject:
            if payload.turn == 1:
                with pytest.raises(Problem), refusing(s, "agent/inbox/spliced"):
                    s.agent.cancel()
            return await next()

        await s.say("one", "two")

        assert s.reasons == [COMPLETED, COMPLETED]


class refusing:  # reads as a verb
    """Within the block, records of one type are refused."""

    def __init__(self, s: Scene, type: str) -> None:
        self._s, self._type = s, type

    def __enter__(self) -> None:
        self._remove = self._s.session.veto(self._refuse)

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _refuse(self, event: Event) -> None:
        if event.type == self._type:
            raise Problem("refused")
