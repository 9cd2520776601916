"""What a log costs in memory: little beside what it says, and nothing that grows faster than it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest

from lifecycle import Agent, Session, tool
from lifecycle.services.model import PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta, ToolCallDelta
from lifecycle.vocabulary.requests import CallConfig, Request

pytestmark = pytest.mark.anyio

MOST = 400
"""Bytes an event, beside its own JSON."""


class Busy:
    """Asks for a call in each of its first answers of a turn."""

    provider, model = "busy", "busy-1"

    def __init__(self, steps: int) -> None:
        self._steps, self._asked = steps, 0

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        return PreparedCall(config, self._open)

    async def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        self._asked = (self._asked + 1) % (self._steps + 1)
        if self._asked:
            yield ToolCallDelta(0, f"c{self._asked}", "work", '{"x": 1}')
            yield Finish(FinishKind.TOOL_CALLS)
        else:
            yield TextDelta(0, "that was it")
            yield Finish()


@tool
async def work(x: int) -> int:
    return x


@pytest.mark.parametrize("events", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_an_event_takes_little_memory_beside_what_it_says(events: int) -> None:
    with anyio.fail_after(600):
        async with Agent(Busy(events // 5), tools=[work], monitor=False) as agent:
            gc.collect()
            tracemalloc.start()
            try:
                await turn(agent)
                taken = held()
            finally:
                tracemalloc.stop()

    said = sum(len(event.encode()) for event in agent.session.events)
    count = len(agent.session.events)
    assert count >= events
    assert (taken - said) / count <= MOST


AGENTS = 50


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_many_turns_of_many_agents_leave_nothing_behind(count: int) -> None:
    async def turns(count: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(AGENTS):
                group.start_soon(one, count // AGENTS)

    async def one(count: int) -> None:
        for _ in range(count):
            async with Agent(Busy(1), tools=[work], session=Session.memory(), monitor=False) as agent:
                await turn(agent)

    with anyio.fail_after(1200):
        await turns(100)  # what is made once
        tracemalloc.start()
        try:
            await turns(100)
            before = held()
            await turns(count)
            after = held()
        finally:
            tracemalloc.stop()

    assert after - before < max(100_000, 25 * count)  # a session has twenty thousand bytes


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_many_turns_of_agents_that_live_on_leave_nothing_but_their_logs(count: int) -> None:
    agents = [Agent(Busy(1), tools=[work], monitor=False) for _ in range(AGENTS)]

    async def turns(count: int) -> None:
        for _ in range(count // AGENTS):
            for agent in agents:
                await turn(agent)

    def logged() -> tuple[int, int]:
        events = [event for agent in agents for event in agent.session.events]
        return len(events), sum(len(event.encode()) for event in events)

    with anyio.fail_after(1200):
        async with AsyncExitStack() as stack:
            for agent in agents:
                await stack.enter_async_context(agent)
            tracemalloc.start()
            try:
                await turns(100)
                before, (events_before, said_before) = held(), logged()
                await turns(count)
                after, (events, said) = held(), logged()
            finally:
                tracemalloc.stop()

    assert (after - before - (said - said_before)) / (events - events_before) <= MOST


async def turn(agent: Agent) -> None:
    agent.followup("go")
    await agent.when_idle()


def held() -> int:
    """Bytes that are in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
