"""Group STE: steering and injection while a turn runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lifecycle import Hooks, tool
from lifecycle.testing import GatedTool, Reply
from lifecycle.vocabulary.events import ToolResultEvent, TurnStart
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import text_of, user_message

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, X, Y = (user_message(name, id=name) for name in "abxy")


def once_in_stream(hooks: Hooks, do: Callable[[Any], object]) -> None:
    """Do something to the agent at the first chunk of the first answer."""
    done: list[bool] = []

    def frame(payload: Any) -> None:
        if payload.frame.type == "chunk" and not done:
            done.append(True)
            do(payload.agent)

    hooks.listen("agent/assistant-stream", frame)


def roles(s: Scene, request: int) -> list[str]:
    """A request's messages: the role of each, or the id of an input."""
    known = (A, B, X, Y)
    return [message.id if message in known else message.role for message in s.model.requests[request].messages]


async def test_ste_01_a_steer_in_the_stream_becomes_the_next_step_of_the_turn() -> None:
    hooks = Hooks()
    once_in_stream(hooks, lambda agent: agent.steer(X))
    async with scene(Reply(text=["one", "two"]), Reply(text="ok"), hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert [roles(s, n) for n in (0, 1)] == [["a"], ["a", "assistant", "x"]]
        assert text_of(s.model.requests[1].messages[1]) == "onetwo"
        lines = s.trace.lines()
        at = lines.index("D step/end {turn:1, step:1}")
        assert lines[at : at + 8] == [
            "D step/end {turn:1, step:1}",
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:1, inserted:[]}",
            "L agent/inbox/claimed {message:m2, turn:1}",
            "L agent/step-boundary {turn:1, step:2}",
            "L agent/model {turn:1, step:2}",
            "L agent/pre-step {turn:1, step:2, messages:[m2]}",
            "D step/start {turn:1, step:2}",
            "L system-prompt/assemble {turn:1, step:2}",
        ]
        assert s.reasons == [COMPLETED]
        assert s.trace.names().count("agent/turn-stopping") == 1


async def test_ste_01_a_steer_in_a_tool_waits_for_the_end_of_the_step() -> None:
    work = GatedTool()
    async with scene(Reply(calls=[("work", {}), ("work", {})]), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup(A)
        await work.started("call-1-1", "call-1-2")
        s.agent.steer(X)
        work.release_all()
        await s.idle()

        assert roles(s, 1) == ["a", "assistant", "user", "user", "x"]
        assert [start.turn for start in s.data(TurnStart)] == [1]
        assert s.durable.count("step/end") == 2


async def test_ste_02_context_injected_by_a_tool_comes_after_all_results() -> None:
    @tool
    async def work(context: Any) -> str:
        """Works."""
        s.agent.inject(X if not s.agent.inbox.pending else Y)
        return "done"

    calls = [("work", {"context": 1}), ("work", {"context": 2})]
    async with scene(Reply(calls=calls), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup(A)
        await s.idle()

        assert roles(s, 1) == ["a", "assistant", "user", "user", "x", "y"]
        results = [event.seq for event in s.session.events if isinstance(event.data, ToolResultEvent)]
        assert results[-1] < s.event("user/message", 1).seq


@pytest.mark.parametrize("where", ["stream", "stop checkpoint"])
async def test_ste_03_an_inject_alone_continues_a_stopping_turn(where: str) -> None:
    hooks = Hooks()
    if where == "stream":
        once_in_stream(hooks, lambda agent: agent.inject(X))
    else:

        @hooks.on("agent/turn-stopping")
        async def stopping(payload: Any) -> None:
            if len(s.model.requests) == 1:
                s.agent.inject(X)

    async with scene(Reply(text="one"), Reply(text="two"), hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert [roles(s, n) for n in (0, 1)] == [["a"], ["a", "assistant", "x"]]
        assert (s.durable.count("turn/start"), s.durable.count("step/start")) == (1, 2)
        stops = {"stream": 1, "stop checkpoint": 2}
        assert s.trace.names().count("agent/turn-stopping") == stops[where]
