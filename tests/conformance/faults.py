"""One long story in which everything happens, a fault at one place of it, and what must hold afterwards.

A *place* is everything that a lifecycle calls, appends or waits for: every hook point, the model's preparation and
each of its chunks, each body, the approver. A fault strikes at the n-th time that the story comes by its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from lifecycle import (
    Agent,
    AgentOptions,
    Ask,
    CallConfig,
    CancelSignal,
    Failure,
    Hooks,
    PreparedCall,
    Prompt,
    Retry,
    Section,
    Session,
    Tool,
    tool,
)
from lifecycle.services.points import Mode, StreamPayload
from lifecycle.services.tools import StepTools
from lifecycle.testing import Gate, Reply
from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.events import Event, EventData, StepEnd, StepStart, TurnEnd, TurnStart, UserMessageEvent
from lifecycle.vocabulary.messages import text_of, user_message
from lifecycle.vocabulary.requests import Request

ACTIONS = ("raise", "cancel", "cancel and raise", "wait, cancelled meanwhile", "wait, cancelled meanwhile, and raise")
HOST = "wait, and the host cancels"
SYNCHRONOUS = ("raise", "cancel", "cancel and raise")
AFTER = " after next()"

SILENT = {
    "agent/created": "vetoes publication; no turn can be open",
    "agent/session-start": "is told before any input can come",
    "agent/disposed": "is told when nothing runs any more",
    "agent/error": "is told in the stories that fail",
    "agent/overdue": "is told of a turn that takes long to settle; here no time passes",
    "session/flush": "is dispatched by nobody yet",
}
"""The hook points that the story does not come by, and why."""


class Fault(Exception):
    """What is raised where a fault strikes."""


@dataclass
class Struck:
    """The story with one fault, and what was seen of it."""

    place: str
    nth: int
    action: str
    hit: bool = False
    """The story came by the place often enough."""
    sets: list[StepTools] = field(default_factory=lambda: [])
    attempts: list[Event] = field(default_factory=lambda: [])
    """The boundaries that the driver tried to append, refused or not."""
    told: Counter[str] = field(default_factory=Counter[str])
    frames: Counter[str] = field(default_factory=Counter[str])
    statuses: list[str] = field(default_factory=lambda: [])
    streaming: int = 0
    bodies: int = 0
    _times: int = 0
    _gate: Gate = field(default_factory=Gate)

    # -- striking -------------------------------------------------------------------------------------------------

    def _due(self, place: str) -> bool:
        if place != self.place or self.hit:
            return False
        self._times += 1
        self.hit = self._times > self.nth
        return self.hit

    def strike(self, place: str) -> None:
        """Come by a place that cannot wait."""
        if self._due(place):
            self._act()

    async def pass_by(self, place: str) -> None:
        """Come by a place that can wait."""
        if self._due(place):
            if self.action.startswith("wait"):
                await self._gate.go()
            self._act()

    def _act(self) -> None:
        if self.action.startswith("cancel"):
            self.agent.cancel()
        if self.action.endswith("raise"):
            raise Fault(self.place)

    # -- the story ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tell the story, wait until it has settled, and see whether the agent still serves."""
        self.agent = Agent(
            Scripted(self),
            tools=self._tools(),
            hooks=self._hooks(),
            session=Session.memory(),
            options=AgentOptions(
                system=Prompt([Section("who", "be brief")], contexts=[Section("where", "here")]), approve=self._approve
            ),
        )
        self._spy_on_tools()
        with anyio.fail_after(5), anyio.CancelScope() as host:
            async with self.agent as agent, anyio.create_task_group() as outside:
                outside.start_soon(self._cancel_from_outside, host)
                with suppress(Fault):
                    agent.inject("context")
                with suppress(Fault):
                    agent.followup("go")
                with suppress(Fault):
                    agent.followup(user_message("never mind", id="gone"))
                with suppress(Fault):
                    agent.inbox.remove("gone")
                await agent.when_idle()
                outside.cancel_scope.cancel()
                self.settled()
                if self.hit:
                    await self.serves()
        if host.cancelled_caught:
            self.settled()

    async def _cancel_from_outside(self, host: anyio.CancelScope) -> None:
        await self._gate.reached()
        if self.action == HOST:
            host.cancel()
        else:
            self.agent.cancel()
            self._gate.open()

    async def _approve(self, payload: object, reason: str) -> bool:
        await self.pass_by("approve")
        return True

    def _tools(self) -> list[Tool]:
        @tool(parallel=True)
        async def look(which: int) -> str:
            """Look."""
            self.bodies += 1
            try:
                await self.pass_by("body")
            finally:
                self.bodies -= 1
            return "seen"

        @tool
        async def act() -> str:
            """Act."""
            self.agent.inject("noticed")
            await self.pass_by("body")
            return "done"

        return [look, act]

    def _spy_on_tools(self) -> None:
        resolve = self.agent.tools.resolve

        def spy(agent: Any, signal: CancelSignal) -> StepTools:
            self.strike("resolve")
            made = resolve(agent, signal)
            self.sets.append(made)
            return made

        self.agent.tools.resolve = spy  # type: ignore[method-assign]  # nothing else hands out the sets

    def _hooks(self) -> Hooks:
        hooks = Hooks()
        hooks.listen("session/append", self._spy_on_boundaries)
        hooks.listen("agent/status", lambda payload: self.statuses.append(payload.status))
        hooks.listen("agent/assistant-stream", self._spy_on_frames)
        hooks.listen("agent/error", lambda payload: self.told.update(["agent/error"]))
        for name, point in hooks.points.items():
            if point.mode is Mode.WATERFALL:
                hooks.listen(name, self._wrapper(name))
            elif point.mode in (Mode.EMIT, Mode.VETO):
                hooks.listen(name, self._striker(name))
            else:
                hooks.listen(name, self._waiter(name))
        hooks.listen("agent/request-error", lambda payload, next: Retry())
        hooks.listen("tools/pre-execute", lambda payload, next: Ask("sure?") if payload.call.name == "act" else next())
        hooks.listen("llm/stream", self._rechunk)
        return hooks

    def _spy_on_boundaries(self, payload: Any) -> None:
        data = payload.event.data
        if isinstance(data, (TurnStart, TurnEnd, StepStart, StepEnd)):
            self.attempts.append(payload.event)
        if data.type in ("assistant/message", "assistant/attempt"):
            self.told["settlement"] += 1

    def _spy_on_frames(self, payload: StreamPayload) -> None:
        self.frames[payload.frame.type] += 1

    def _striker(self, name: str) -> Callable[[Any], None]:
        return lambda payload: self.strike(name)

    def _waiter(self, name: str) -> Callable[[Any], Any]:
        async def listen(payload: Any) -> None:
            await self.pass_by(name)

        return listen

    def _wrapper(self, name: str) -> Callable[..., Any]:
        async def listen(payload: Any, next: Callable[[], Any]) -> Any:
            await self.pass_by(name)
            answer = await next()
            await self.pass_by(name + AFTER)
            return answer

        return listen

    async def _rechunk(self, payload: Any, next: Callable[[], Any]) -> AsyncGenerator[Chunk]:
        async for chunk in await next():
            await self.pass_by("wrapped chunk")
            yield chunk

    # -- what must hold -------------------------------------------------------------------------------------------

    def settled(self) -> None:
        """The boundaries are balanced, and nothing of the turn is left."""
        agent = self.agent
        assert balanced(self.attempts, agent.session.events)
        assert [made.disposals for made in self.sets] == [1] * len(self.sets)
        assert agent.tools.open_sets == 0
        assert (agent.status, agent.step) == ("idle", None)
        assert agent.phase == ("disposed" if self.action == HOST and self.hit else "idle")
        assert self.statuses == ["running", "idle"] * (len(self.statuses) // 2)
        assert self.frames["start"] == self.frames["end"] == self.told["settlement"]
        assert (self.streaming, self.bodies) == (0, 0)
        assert self.told["agent/error"] <= 1
        failed = [reason for reason in self.reasons if reason == "error"]
        assert len(failed) <= self.told["agent/error"]
        if self.action != "raise" and (self.place, self.action) != ("session/append", "cancel and raise"):
            assert self.told["agent/error"] == 0  # cancelled beats failed
            assert set(self.reasons) <= {"completed", "aborted"}
        if self.action == "raise":
            assert set(self.reasons) <= {"completed", "error"}

    async def serves(self) -> None:
        """The next prompt is answered in a turn of its own."""
        self.agent.followup("again")
        await self.agent.when_idle()
        events = self.agent.session.events
        assert self.reasons[-1] == "completed"
        assert balanced(self.attempts, events)
        prompts = [text_of(event.data.message) for event in events if isinstance(event.data, UserMessageEvent)]
        assert "again" in prompts
        assert (self.agent.status, self.agent.phase, self.agent.inbox.pending) == ("idle", "idle", False)

    @property
    def reasons(self) -> list[str]:
        return [event.data.reason.kind for event in self.agent.session.events if isinstance(event.data, TurnEnd)]


def balanced(attempts: list[Event], events: Sequence[Event]) -> bool:
    """Every turn and step that was opened was closed by one attempt, inside out; nothing else was."""
    open: list[EventData] = []
    for attempt in attempts:
        match attempt.data:
            case TurnStart() | StepStart():
                if attempt.seq < len(events) and events[attempt.seq] is attempt:
                    open.append(attempt.data)
            case TurnEnd(turn=turn):
                if not open or open.pop() != TurnStart(turn=turn):
                    return False
            case StepEnd(turn=turn, step=step):
                if not open or open.pop() != StepStart(turn=turn, step=step):
                    return False
            case _:
                raise AssertionError(f"{attempt.type} is no boundary")
    return not open


class Scripted:
    """The model of the story: it fails, asks for tools, and answers; whatever else comes is answered."""

    provider = "scripted"
    model = "script-1"

    def __init__(self, story: Struck) -> None:
        self._story = story
        self._script = [
            Reply(text="par", error=Failure(message="busy", code="OVERLOADED")),
            Reply(text="so", calls=[("look", {"which": 1}), ("look", {"which": 2}), ("act", {})]),
        ]

    async def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        await self._story.pass_by("prepare")
        return PreparedCall(config, self._open)

    def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        self._story.strike("open")
        return self._stream(self._script.pop(0) if self._script else Reply(text=["o", "k"]))

    async def _stream(self, reply: Reply) -> AsyncGenerator[Chunk]:
        self._story.streaming += 1
        try:
            for chunk in reply.chunks():
                await self._story.pass_by("chunk")
                yield chunk
        finally:
            self._story.streaming -= 1
