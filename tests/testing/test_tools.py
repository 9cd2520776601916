"""Gated tools begin, stand still, and end as the test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import anyio
import pytest

from lifecycle.services.points import AgentHandle, ToolOutcome
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import ToolContext
from lifecycle.testing import GatedTool
from lifecycle.vocabulary.failures import USER_CANCEL
from lifecycle.vocabulary.messages import ToolCallBlock, text
from lifecycle.vocabulary.values import FrozenDict

AGENT = cast("AgentHandle", None)


async def called(tool: GatedTool, id: str, signal: CancelSignal | None = None, **arguments: object) -> ToolOutcome:
    kwargs = tool.validate(FrozenDict(arguments))
    assert not isinstance(kwargs, ToolOutcome)
    call = ToolCallBlock(id=id, name=tool.name)
    return await tool.run(kwargs, ToolContext(AGENT, call, signal or CancelSignal()))


@pytest.mark.anyio
async def test_bodies_end_in_the_order_of_their_release() -> None:
    tool = GatedTool()
    outcomes: dict[str, ToolOutcome] = {}

    async def call(id: str) -> None:
        outcomes[id] = await called(tool, id, n=id)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(call, "a")
            group.start_soon(call, "b")
            await tool.started("a", "b")
            assert (tool.running, tool.ended) == (2, [])
            tool.release("b", "b first")
            await tool.finished("b")
            tool.release("a", ValueError("broken"))

    assert (tool.ended, tool.most, tool.running, tool.cancelled) == (["b", "a"], 2, 0, [])
    assert sorted(tool.calls) == [("a", {"n": "a"}), ("b", {"n": "b"})]
    assert outcomes["b"].content == text("b first")
    assert outcomes["a"].error is not None
    assert outcomes["a"].error.name == "ValueError"


@pytest.mark.anyio
async def test_a_free_tool_answers_from_its_arguments() -> None:
    def read(arguments: Mapping[str, object]) -> str:
        return f"{arguments['path']} read"

    tool = GatedTool(answer=read, free=True)

    assert (await called(tool, "a", path="x")).content == text("x read")


@pytest.mark.anyio
async def test_a_cancelled_body_is_told() -> None:
    tool, signal = GatedTool(), CancelSignal()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(called, tool, "a", signal)
            await tool.started("a")
            signal.fire(USER_CANCEL)

    assert (tool.cancelled, tool.ended, tool.running) == (["a"], ["a"], 0)


@pytest.mark.anyio
async def test_released_ahead_of_its_start_a_call_runs_through() -> None:
    tool = GatedTool()

    tool.release("a")
    assert (await called(tool, "a")).content == text("done")
    tool.release_all()
    assert (await called(tool, "b")).content == text("done")
