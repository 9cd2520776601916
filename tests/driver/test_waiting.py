"""Who waits for an agent that waits for them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lifecycle import Hooks, ToolContext, tool
from lifecycle.errors import AgentBusyError
from lifecycle.services.points import POINTS, Mode
from lifecycle.testing import Call, Reply
from lifecycle.vocabulary.events import ToolResultEvent
from lifecycle.vocabulary.failures import COMPLETED

from ..conformance.kit import scene

pytestmark = pytest.mark.anyio
AWAITED = [
    name
    for name, point in POINTS.items()
    if point.mode in (Mode.SERIAL, Mode.WATERFALL) and name != "agent/request-error"
]


@pytest.mark.parametrize("point", AWAITED)
async def test_a_hook_that_would_wait_for_itself_is_told_so(point: str) -> None:
    hooks, told = Hooks(), list[str]()

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    async def hook(payload: Any, *rest: Any) -> Any:
        with pytest.raises(AgentBusyError, match="would wait for itself") as raised:
            await payload.agent.when_idle()
        told.append(str(raised.value))
        return await rest[0]() if rest else None

    hooks.listen(point, hook)
    async with scene(Reply(calls=[("work", {})]), Reply(text="ok"), tools=[work], hooks=hooks) as s:
        await s.say("go")
        assert told
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("calls", [1, 3])
async def test_so_is_a_tool_and_its_call_fails(calls: int) -> None:
    @tool(parallel=True)
    async def work(context: ToolContext) -> str:
        """Work."""
        agent: Any = context.agent
        await agent.when_idle()
        return "never"

    script: list[Call] = [("work", {})] * calls
    async with scene(Reply(calls=script), Reply(text="ok"), tools=[work]) as s:
        await s.say("go")
        assert [one.error and one.error.name for one in s.data(ToolResultEvent)] == ["AgentBusyError"] * calls
        assert s.reasons == [COMPLETED]


async def test_a_task_that_a_hook_starts_elsewhere_may_wait() -> None:
    hooks, heard = Hooks(), list[str]()
    async with anyio.create_task_group() as group:

        @hooks.on("agent/pre-step")
        async def hook(payload: Any, next: Any) -> Any:
            async def wait() -> None:
                await payload.agent.when_idle()
                heard.append(payload.agent.status)

            group.start_soon(wait)
            return await next()

        async with scene(hooks=hooks) as s:
            await s.say("go")
            await anyio.wait_all_tasks_blocked()
    assert heard == ["idle"]
