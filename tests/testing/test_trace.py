"""A trace tells both domains in one order, with labels for ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from lifecycle.services.frames import StreamChunk, StreamEnd, StreamStart
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import (
    AgentHandle,
    Enter,
    ErrorPayload,
    InboxPayload,
    LlmStreamPayload,
    PostCallPayload,
    PreStepPayload,
    Reject,
    StatusPayload,
    StreamPayload,
    ToolOutcome,
)
from lifecycle.services.signal import CancelSignal
from lifecycle.testing import Trace
from lifecycle.vocabulary.chunks import TextDelta
from lifecycle.vocabulary.events import (
    Event,
    EventData,
    InboxSpliced,
    Opaque,
    ToolCallEvent,
    ToolFault,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import Errored, Failure
from lifecycle.vocabulary.messages import ToolCallBlock, user_message
from lifecycle.vocabulary.requests import CallConfig, Request
from lifecycle.vocabulary.values import FrozenDict

AGENT = cast("AgentHandle", None)


class Told:
    """A session that tells what it is told to."""

    def __init__(self) -> None:
        self.observers: list[Callable[[Event], object]] = []

    def observe(self, cb: Callable[[Event], object], /) -> Callable[[], None]:
        self.observers.append(cb)
        return lambda: self.observers.remove(cb)

    def tell(self, data: EventData) -> None:
        for observer in self.observers:
            observer(Event(0, 0, data))


def test_records_and_events_stand_in_the_order_in_which_they_happened() -> None:
    hooks, session, message = Hooks(), Told(), user_message("hi")
    trace = Trace(hooks, session)

    session.tell(InboxSpliced(target="next-turn", start=0, inserted=(message,)))
    hooks.emit("agent/inbox/inserted", InboxPayload(AGENT, message))
    hooks.emit("agent/status", StatusPayload(AGENT, "running"))
    session.tell(TurnStart(turn=1))
    session.tell(InboxSpliced(target="next-turn", start=0, removed_count=1))
    session.tell(UserMessageEvent(message=message))
    session.tell(UserMessageEvent(message=user_message("and this")))
    session.tell(TurnEnd(turn=1, reason=Errored(error=Failure(message="no", code="AUTH"))))

    assert trace.lines() == [
        "D agent/inbox/spliced {target:next-turn, start:0, inserted:[m1]}",
        "L agent/inbox/inserted {message:m1}",
        "L agent/status {status:running}",
        "D turn/start {turn:1}",
        "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[]}",
        "D user/message {message:m1}",
        "D user/message {message:m2}",
        "D turn/end {turn:1, reason:{kind:error, error:AUTH}}",
    ]
    assert trace.names("L") == ["agent/inbox/inserted", "agent/status"]


def test_a_run_of_chunk_frames_is_one_line() -> None:
    hooks = Hooks()
    trace = Trace(hooks)

    for n in range(3):
        hooks.emit("agent/assistant-stream", StreamPayload(AGENT, StreamChunk("id", 1, n, 0, TextDelta(0, "x"))))
    hooks.emit(
        "agent/assistant-stream", StreamPayload(AGENT, StreamEnd("id", 1, 3, "committed", "assistant/message", 9))
    )

    assert len(trace.entries) == 4
    assert trace.lines() == [
        "L agent/assistant-stream chunk *",
        "L agent/assistant-stream end {revision:1, index:3, outcome:committed, eventType:assistant/message, seq:9}",
    ]


@pytest.mark.anyio
async def test_a_waterfall_goes_through_unchanged() -> None:
    hooks, message = Hooks(), user_message("hi")
    trace = Trace(hooks)
    payload = PreStepPayload(AGENT, 1, 2, CancelSignal(), (message,))

    @hooks.on("agent/pre-step")
    async def add(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter:
        decision = await next()
        assert isinstance(decision, Enter)
        return decision.with_messages((*decision.messages, user_message("more")))

    decision = await hooks.waterfall("agent/pre-step", payload, lambda payload: Enter(payload.messages))

    assert isinstance(decision, Enter)
    assert len(decision.messages) == 2
    assert trace.lines() == ["L agent/pre-step {turn:1, step:2, messages:[m1]}"]


def test_what_differs_from_run_to_run_is_left_out() -> None:
    hooks, session, signal = Hooks(), Told(), CancelSignal()
    trace = Trace(session=session)
    trace.listen(hooks)
    call = ToolCallBlock(id="call-1-1", name="read", arguments="{}")
    request = Request((), (), CallConfig(), turn=1, step=1, attempt=2)
    outcome = ToolOutcome((), error=ToolFault(code="TOOL_FAILED"))

    hooks.emit("agent/assistant-stream", StreamPayload(AGENT, StreamStart("id", 1, 1, 1)))
    hooks.emit("agent/error", ErrorPayload(AGENT, 1, 0, ValueError("no")))
    session.tell(ToolCallEvent(turn=1, step=1, call_id="call-1-1", name="read", arguments="{}"))
    session.tell(Opaque(name="plugin/said", payload=FrozenDict(x=1)))
    trace.entries += [
        trace.entry("llm/stream", LlmStreamPayload(AGENT, request)),
        trace.entry("tools/post-execute", PostCallPayload(AGENT, call, FrozenDict(path="x"), None, signal, outcome)),
    ]

    assert trace.lines() == [
        "L agent/assistant-stream start {revision:1, turn:1, step:1}",
        "L agent/error {turn:1, step:0, error:ValueError}",
        "D tool/call {turn:1, step:1, callId:call-1-1, name:read, arguments:{}}",
        "D plugin/said",
        "L llm/stream {request:{turn:1, step:1, attempt:2}}",
        "L tools/post-execute {call:call-1-1, arguments:{path:x}, outcome:TOOL_FAILED}",
    ]


def test_a_closed_trace_hears_nothing_and_keeps_what_it_has() -> None:
    hooks, session = Hooks(), Told()

    with Trace(hooks, session, only=["agent/status"]) as trace:
        assert [name for name in hooks.points if hooks.listeners(name)] == ["agent/status"]
        hooks.emit("agent/status", StatusPayload(AGENT, "idle"))

    hooks.emit("agent/status", StatusPayload(AGENT, "running"))
    session.tell(TurnStart(turn=1))
    assert str(trace) == "L agent/status {status:idle}"
    assert not hooks.listeners("agent/status")
