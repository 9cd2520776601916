"""Cancellations that are none, and those that come together with failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from lifecycle import Agent, AgentOptions, Ask, CallConfig, CancelSignal, Hooks, PreparedCall, tool
from lifecycle.services.points import POINTS, Mode
from lifecycle.testing import Call, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk, Finish
from lifecycle.vocabulary.events import ToolResultEvent, TurnEnd
from lifecycle.vocabulary.failures import COMPLETED, DISPOSED_CANCEL, USER_CANCEL, Aborted, Errored

from ..conformance.kit import Scene, scene

pytestmark = pytest.mark.anyio
ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
WORKS = Reply(calls=[("work", {})])


@tool
async def work() -> str:
    """Work."""
    return "done"


async def await_what_was_cancelled() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


def told(s: Scene) -> list[tuple[str, str | None] | None]:
    """Code and name of the faults of all results, in order."""
    return [None if one.error is None else (one.error.code, one.error.name) for one in s.data(ToolResultEvent)]


AWAITED = [name for name, point in POINTS.items() if point.mode in (Mode.SERIAL, Mode.WATERFALL)]


@ON_ASYNCIO
@pytest.mark.parametrize("point", AWAITED)
async def test_a_hook_that_awaits_what_was_cancelled_has_failed_and_the_agent_works_on(
    point: str, anyio_backend: str
) -> None:
    hooks, first = Hooks(), [True]

    async def hook(payload: Any, *rest: Any) -> Any:
        if first:
            first.clear()
            await await_what_was_cancelled()
        return await rest[0]() if rest else None

    hooks.listen(point, hook)
    answer = Reply.failure("SERVER") if point == "agent/request-error" else Reply(text="ok")
    async with scene(WORKS, answer, Reply(text="ok"), Reply(text="ok"), tools=[work], hooks=hooks) as s:
        await s.say("one")
        if point.startswith("tools/"):
            assert told(s) == [("HOOK_FAILED", "StrayCancellationError")]
            assert s.reasons == [COMPLETED]
        else:
            assert [type(reason) for reason in s.reasons] == [Errored]
        await s.say("two")
        assert not first
        assert s.reasons[1] == COMPLETED


@ON_ASYNCIO
async def test_so_has_an_approver(anyio_backend: str) -> None:
    hooks = Hooks()
    hooks.listen("tools/pre-execute", lambda payload, next: Ask("really?"))

    async def approve(payload: object, reason: str) -> bool:
        await await_what_was_cancelled()
        return True

    async with scene(WORKS, Reply(text="ok"), tools=[work], hooks=hooks, options=AgentOptions(approve=approve)) as s:
        await s.say("go")
        assert told(s) == [("HOOK_FAILED", "StrayCancellationError")]
        assert s.reasons == [COMPLETED]


@ON_ASYNCIO
@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_adapter_that_awaits_what_was_cancelled_has_failed_its_request(
    wrapped: bool, anyio_backend: str
) -> None:
    async def broken(*_: object) -> AsyncIterator[Chunk]:
        await await_what_was_cancelled()
        yield Finish()

    class Broken(ScriptedModel):
        def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
            return PreparedCall(config, broken)

    hooks = Hooks()
    if wrapped:
        hooks.listen("llm/stream", lambda payload, next: next())
    async with scene(model=Broken(), hooks=hooks) as s:
        await s.say("go")
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.message == "CancelledError"
        assert "assistant/attempt" in s.durable


async def hang_and_fail(started: anyio.Event) -> None:
    """Stand still in two tasks, one of which fails when it is cancelled."""

    async def fail() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            raise ValueError("in the cleanup")

    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        await anyio.sleep_forever()


@pytest.mark.parametrize("beside", [False, True])
async def test_a_body_whose_task_fails_when_it_is_cancelled_has_failed(beside: bool) -> None:
    started = anyio.Event()

    @tool(parallel=True)
    async def hang() -> None:
        """Hang."""
        await hang_and_fail(started)

    calls: list[Call] = [("hang", {})] * (2 if beside else 1)
    async with scene(Reply(calls=calls), Reply(text="ok"), tools=[hang]) as s:
        s.agent.followup("one")
        await started.wait()
        s.agent.cancel()
        await s.idle()
        assert told(s) == [("TOOL_FAILED", "ExceptionGroup")] * (2 if beside else 1)
        await s.say("two")
        assert s.reasons == [Aborted(reason=USER_CANCEL), COMPLETED]


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("point", ["agent/pre-step", "tools/post-execute"])
async def test_a_hook_whose_tasks_are_cancelled_with_the_host_gives_the_host_its_cancellation_and_nothing_else(
    point: str, failing: bool
) -> None:
    hooks, started = Hooks(), anyio.Event()

    async def hook(payload: object, next: object) -> None:
        if failing:
            await hang_and_fail(started)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(anyio.sleep_forever)
            started.set()

    hooks.listen(point, hook)
    agent = Agent(ScriptedModel(WORKS, Reply(text="ok")), tools=[work], hooks=hooks)
    with anyio.fail_after(5), anyio.CancelScope() as host:
        async with agent:
            agent.followup("go")
            await started.wait()
            host.cancel()
            await anyio.sleep_forever()
    assert host.cancelled_caught
    assert agent.session.events[-1].data == TurnEnd(turn=1, reason=Aborted(reason=DISPOSED_CANCEL))
