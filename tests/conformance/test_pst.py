"""Group PST: persistence and flush checkpoints."""

from __future__ import annotations

import pytest

from lifecycle import Agent
from lifecycle.errors import AgentDisposedError
from lifecycle.services.points import Payload
from lifecycle.testing import Gate, ScriptedModel

from .kit import scene

pytestmark = pytest.mark.anyio


async def test_pst_01_a_flush_waits_for_every_listener_and_then_raises_the_first_failure() -> None:
    gate, ended = Gate("slow listener"), list[str]()
    async with scene() as s:

        @s.hooks.on("session/flush")
        async def slow(payload: Payload) -> None:
            await gate.go()
            ended.append("slow")

        @s.hooks.on("session/flush")
        async def failing(payload: Payload) -> None:
            gate.open()
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="the disk is full"):
            await s.agent.flush()

        assert ended == ["slow"]


async def test_pst_01_a_flush_tells_whether_anybody_took_part_and_needs_a_live_session() -> None:
    async with scene(only=["agent/status"]) as s:  # the trace listens at flushes too
        assert await s.agent.flush() is False

        @s.hooks.on("session/flush")
        async def keep(payload: Payload) -> None:
            assert payload.agent is s.agent

        assert await s.agent.flush() is True

    with pytest.raises(AgentDisposedError):
        await s.agent.flush()
    with pytest.raises(AgentDisposedError):
        await Agent(ScriptedModel()).flush()
