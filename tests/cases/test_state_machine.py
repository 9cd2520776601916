"""Public failures of state machines that drive themselves: each as it was met there, with what is right.

Our machines are tables that are never awaited. What goes wrong with others could go wrong in the agent here.
"""

from __future__ import annotations

import gc
import inspect
import tracemalloc
from typing import Any

import anyio
import pytest

from lifecycle import Agent, Hooks, tool, user_message
from lifecycle.errors import AgentDisposedError
from lifecycle.services.points import EventPayload, InboxPayload, Payload, SessionStartPayload, StatusPayload
from lifecycle.testing import Gate, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.events import InboxSpliced, TurnEnd, TurnStart
from lifecycle.vocabulary.failures import COMPLETED, USER_CANCEL, Aborted
from lifecycle.vocabulary.messages import text_of

from ..conformance.kit import scene

pytestmark = pytest.mark.anyio


async def test_c175_what_is_sent_while_the_agent_is_being_made_is_refused_or_taken_up_and_never_lost() -> None:
    hooks, phases = Hooks(), list[str]()

    @hooks.on("agent/created")
    def too_early(payload: Payload) -> None:
        phases.append(payload.agent.phase)
        with pytest.raises(AgentDisposedError, match="takes input only inside its context"):
            payload.agent.followup("too early")

    @hooks.on("agent/session-start")
    def at_once(payload: SessionStartPayload) -> None:
        phases.append(payload.agent.phase)
        payload.agent.followup("at once")

    async with scene(hooks=hooks) as s:
        assert s.agent.status == "running"
        await s.idle()
        assert s.reasons == [COMPLETED]
        assert phases == ["idle", "idle"]


@pytest.mark.parametrize("by", ["waiting", "maintenance"])
async def test_c176_after_the_task_that_waited_was_cancelled_the_next_event_is_taken(by: str) -> None:
    """A host's own task is cancelled in the middle of what it waits for; the agent works in another one."""
    work, gate = GatedTool("work"), Gate()

    async def maintain(_: object) -> None:
        await gate.go()

    script = [Reply(calls=[("work", {}, "a")])] if by == "waiting" else []
    async with scene(*script, Reply(text="ok"), tools=[work]) as s:

        async def wait() -> None:
            if by == "maintenance":
                await s.agent.run_maintenance(maintain)
            s.agent.followup("one")
            await s.idle()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await (work.started("a") if by == "waiting" else gate.reached())
            group.cancel_scope.cancel()
        assert s.agent.phase == ("running/stepping/tooling" if by == "waiting" else "idle")
        s.agent.cancel()
        await s.idle()
        await s.say("two")
        assert s.reasons[-1] == COMPLETED


async def test_c178_who_sends_what_is_refused_gets_the_exception_and_nobody_else() -> None:
    hooks = Hooks()

    @hooks.on("session/append")
    def veto(payload: EventPayload) -> None:
        data = payload.event.data
        if isinstance(data, InboxSpliced) and any(text_of(message) == "bad" for message in data.inserted):
            raise ValueError("not this one")

    got: dict[str, object] = {}
    async with scene(hooks=hooks) as s:

        async def send(words: str) -> None:
            try:
                got[words] = s.agent.followup(words).id
            except ValueError as error:
                got[words] = str(error)

        async with anyio.create_task_group() as group:
            for words in ("good", "bad", "better"):
                group.start_soon(send, words)
        await s.idle()
        assert got["bad"] == "not this one"
        assert isinstance(got["good"], str)
        assert isinstance(got["better"], str)
        assert s.reasons == [COMPLETED] * 2


async def test_c179_what_a_listener_asks_for_comes_before_what_is_sent_from_outside_next_and_in_its_order() -> None:
    hooks, told = Hooks(), list[str]()

    @hooks.on("agent/inbox/inserted")
    def chained(payload: InboxPayload) -> None:
        told.append(text_of(payload.message))
        if told[-1] == "one":
            payload.agent.inject("its own")

    async with scene(hooks=hooks) as s:
        for words in ("one", "from outside"):
            s.agent.followup(words)
        await s.idle()
        assert told == ["one", "its own", "from outside"]
        assert s.reasons == [COMPLETED] * 2


async def test_c181_an_agent_that_keeps_itself_going_neither_grows_nor_gets_deeper() -> None:
    hooks, depths, left = Hooks(), list[int](), [120]

    @hooks.on("agent/status")
    def again(payload: StatusPayload) -> None:
        if payload.status == "idle" and left[0]:
            left[0] -= 1
            depths.append(len(inspect.stack(0)))
            payload.agent.followup("again")

    async with scene(hooks=hooks, only=(), monitor=False, seconds=20) as s:
        s.agent.followup("go")
        while left[0] > 60:
            await anyio.lowlevel.checkpoint()
        gc.collect()
        tracemalloc.start()
        try:
            await s.idle()
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        turns = len(s.data(TurnStart))
        assert turns == len(s.data(TurnEnd)) == 121
        assert len(set(depths[1:])) == 1
        events = len(s.session.events) // 2
        assert grown < events * 4_000  # the log grows, and nothing else


async def test_c182_a_cancel_is_not_lost_behind_an_event_that_failed() -> None:
    hooks = Hooks()

    @hooks.on("session/append")
    def veto(payload: EventPayload) -> None:
        data = payload.event.data
        if isinstance(data, InboxSpliced) and data.target == "next-step" and data.inserted:
            raise ValueError("no steering")

    @hooks.on("agent/pre-step")
    async def steer_and_cancel(payload: Any, next: Any) -> Any:
        with pytest.raises(ValueError, match="no steering"):
            payload.agent.steer("bad")
        payload.agent.cancel()
        return await next()

    async with scene(hooks=hooks) as s:
        await s.say("go")
        assert s.reasons == [Aborted(reason=USER_CANCEL)]


async def test_c182_a_duplicate_among_several_sends_costs_the_others_nothing() -> None:
    async with scene() as s:
        s.agent.inject(user_message("one", id="x"))
        with pytest.raises(Exception, match="'x'"):
            s.agent.inject(user_message("two", id="x"))
        await s.say("three")
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("exclusive", [True, False])
async def test_c184_work_that_ends_the_state_it_runs_in_is_awaited_by_the_agent_and_not_by_itself(
    exclusive: bool,
) -> None:
    agents: list[Agent] = []

    @tool(parallel=not exclusive)
    async def work() -> str:
        """End the turn that this call belongs to, and wait for that."""
        agents[0].cancel()
        await anyio.sleep_forever()
        return "never"

    model = ScriptedModel(Reply(calls=[("work", {}), ("work", {})]), Reply(text="ok"))
    with anyio.fail_after(5):
        async with Agent(model, tools=[work]) as agent:
            agents.append(agent)
            agent.followup("one")
            await agent.when_idle()
            agent.followup("two")
            await agent.when_idle()
    ends = [event.data.reason for event in agent.session.events if isinstance(event.data, TurnEnd)]
    assert ends == [Aborted(reason=USER_CANCEL), COMPLETED]
