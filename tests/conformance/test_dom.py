"""Group DOM: the log alone tells what happened; live events only echo it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lifecycle import Hooks, Live, Retry, Session, tool
from lifecycle.services.frames import StreamChunk, StreamEnd
from lifecycle.services.points import ClaimedPayload, InboxPayload, ResultPayload, StatusPayload, StreamPayload
from lifecycle.testing import Reply
from lifecycle.vocabulary.assembly import Assembler
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    Event,
    InboxSpliced,
    ToolResultEvent,
    TurnEnd,
    UserMessageEvent,
    decode_event,
)
from lifecycle.vocabulary.messages import UserMessage

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

Said = tuple[str, object]
SCRIPT = [
    Reply(reasoning="hm", text=["let me ", "look"], calls=[("look", {})]),
    Reply.failure("OVERLOADED", text="seen, bu"),
    Reply(text=["seen"]),
    Reply(text=["bye"]),
]


@tool
def look() -> str:
    """Look."""
    return "a cat"


def retrying() -> Hooks:
    hooks = Hooks()
    hooks.listen("agent/request-error", lambda payload, next: Retry())
    return hooks


class Transcript:
    """What was said, put together from live events alone."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self._running = Assembler()

    def hear(self, happened: Live) -> None:
        match happened.payload:
            case ClaimedPayload(message=message):
                self.said.append(("user", message.content))
            case StreamPayload(frame=StreamChunk(chunk=chunk)):
                self._running.add(chunk)
            case StreamPayload(frame=StreamEnd(event_type=settled)):
                if settled == "assistant/message":
                    self.said.append(("assistant", self._running.result().blocks))
                self._running = Assembler()
            case ResultPayload(result=result):
                self.said.append(("tool", result.content))
            case _:
                pass


def replayed(events: Iterable[Event]) -> list[Said]:
    """The same from the log alone."""
    said: list[Said] = []
    for event in events:
        match event.data:
            case UserMessageEvent(message=message):
                said.append(("user", message.content))
            case AssistantMessageEvent(message=message):
                said.append(("assistant", message.content))
            case ToolResultEvent(message=message):
                said.append(("tool", message.content))
            case _:
                pass
    return said


async def test_dom_01_a_transcript_from_the_stored_log_is_the_one_that_was_heard_live() -> None:
    heard = Transcript()
    async with scene(*SCRIPT, hooks=retrying(), tools=[look]) as s:
        happened = s.agent.events()
        await s.say("what is there?", "thanks")
        async for one in happened:
            if isinstance(one, Live):
                heard.hear(one)
        stored = [decode_event(event.encode()) for event in s.session.events]

    assert [who for who, _ in heard.said] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert replayed(stored) == heard.said


async def test_dom_01_a_run_that_nobody_listens_to_leaves_the_same_log() -> None:
    def session() -> Session:
        return Session.memory("same", clock=lambda: 7)

    async with scene(*SCRIPT, hooks=retrying(), tools=[look], session=session()) as heard:
        happened = heard.agent.events()
        await heard.say("what is there?", "thanks")
        happened.close()
    async with scene(*SCRIPT, hooks=retrying(), tools=[look], session=session(), only=()) as unheard:
        await unheard.say("what is there?", "thanks")

    assert [event.encode() for event in heard.session.events] == [event.encode() for event in unheard.session.events]


def last_splice(s: Scene) -> InboxSpliced:
    return s.data(InboxSpliced)[-1]


async def test_dom_02_what_a_live_event_announces_is_in_the_log_already() -> None:
    checked: list[str] = []
    async with scene(*SCRIPT, hooks=retrying(), tools=[look]) as s:

        def pending(message: UserMessage) -> bool:
            return message in (*s.agent.inbox.next_step, *s.agent.inbox.next_turn)

        @s.hooks.on("agent/inbox/inserted")
        def inserted(payload: InboxPayload) -> None:
            assert payload.message in last_splice(s).inserted
            assert pending(payload.message)
            checked.append("inserted")

        @s.hooks.on("agent/inbox/claimed")
        def claimed(payload: ClaimedPayload) -> None:
            assert last_splice(s).removed_count
            assert last_splice(s).outcome is None
            assert not pending(payload.message)
            checked.append("claimed")

        @s.hooks.on("agent/inbox/discarded")
        def discarded(payload: InboxPayload) -> None:
            assert last_splice(s).outcome == "canceled"
            assert not pending(payload.message)
            checked.append("discarded")

        @s.hooks.on("agent/assistant-stream")
        def ended(payload: StreamPayload) -> None:
            if isinstance(payload.frame, StreamEnd):
                settled = s.session.events[-1]
                assert (payload.frame.event_type, payload.frame.seq) == (settled.type, settled.seq)
                checked.append("ended")

        @s.hooks.on("agent/status")
        def status(payload: StatusPayload) -> None:
            if payload.status == "idle":
                assert isinstance(s.session.events[-1].data, TurnEnd)
            else:  # the one that comes first
                assert "turn/start" not in s.durable
            checked.append(payload.status)

        s.agent.followup("what is there?")
        s.agent.inbox.remove(s.agent.followup("never mind").id)
        await s.idle()

    assert checked == [
        *("inserted", "running", "claimed", "inserted", "discarded"),
        *("ended", "ended", "ended", "idle"),
    ]
