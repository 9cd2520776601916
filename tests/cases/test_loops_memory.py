"""Public failures of other agent loops, of what never ends or always grows: each as it was met, with what is right.

Calls that go on for ever are held in tests/policies/test_limits.py, hopeless requests and empty answers beside it.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from lifecycle import Agent, Durable, Live, Missed, tool
from lifecycle.session.jsonl import JsonlStore
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.failures import COMPLETED

from ..conformance.kit import scene

pytestmark = pytest.mark.anyio
CHUNKS, MOST = 20_000, 100


async def test_c170_a_reader_that_is_slow_stops_or_is_cancelled_holds_up_nobody_and_hoards_nothing() -> None:
    model = ScriptedModel(Reply(text=["x"] * CHUNKS), Reply(text="ok"))
    slow, stopped, cancelled = list[Durable | Live | Missed](), list[str](), list[str]()
    with anyio.fail_after(20):
        async with Agent(model) as agent:
            streams = [agent.events(most=MOST) for _ in range(3)]

            async def read_slowly() -> None:
                async for occurrence in streams[0]:
                    slow.append(occurrence)
                    await anyio.lowlevel.checkpoint()

            async def stop_reading() -> None:
                async for occurrence in streams[1]:
                    stopped.append(occurrence.name)
                    if len(stopped) == 10:
                        return

            async def read_until_cancelled(scope: anyio.CancelScope) -> None:
                with scope:
                    async for occurrence in streams[2]:
                        cancelled.append(occurrence.name)
                        if len(cancelled) == 10:
                            scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(read_slowly)
                group.start_soon(stop_reading)
                group.start_soon(read_until_cancelled, anyio.CancelScope())
                agent.followup("go")
            await agent.when_idle()

            assert slow[-1].name == "agent/status"
            lost = sum(one.lost for one in slow if isinstance(one, Missed))
            assert lost > 0
            assert lost + len([one for one in slow if not isinstance(one, Missed)]) > CHUNKS
            assert [one.name async for one in streams[1]][-1] == "agent/status"
            kept = [one.name async for one in streams[2]]
            assert len(kept) <= MOST + 1
            assert [*cancelled, *kept][-1] == "agent/status"


async def test_c172_the_log_grows_with_the_steps_and_no_faster(tmp_path: Path) -> None:
    steps, sizes = 400, list[int]()

    @tool
    async def work() -> str:
        """Work."""
        return "r" * 200

    model = ScriptedModel(*[Reply(calls=[("work", {})])] * steps, Reply(text="ok"))
    async with JsonlStore(tmp_path) as store, scene(model=model, tools=[work], session=await store.create("s")) as s:
        await s.say("go")
        assert s.reasons == [COMPLETED]
        written = 0
        for event in s.session.events:
            written += len(event.encode())
            if event.type == "step/end":
                sizes.append(written)
                written = 0
    assert len(sizes) == steps + 1
    assert max(sizes[1:-1]) <= min(sizes[1:-1]) + 100  # but for the digits of numbers
