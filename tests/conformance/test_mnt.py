"""Group MNT: maintenance tasks, which no turn runs beside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lifecycle import CancelSignal
from lifecycle.errors import AgentBusyError
from lifecycle.testing import Gate, Reply
from lifecycle.vocabulary.events import InboxSpliced, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, DISPOSED_CANCEL, PARENT_CANCEL, USER_CANCEL, CancelCause
from lifecycle.vocabulary.messages import user_message

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, C = (user_message(name, id=name) for name in "abc")
OK = Reply(text="ok")


def inputs(s: Scene) -> list[str]:
    return [data.message.id for data in s.data(UserMessageEvent)]


class Job:
    """A maintenance task that stands at a gate, and tells what it was handed."""

    def __init__(self) -> None:
        self.gate = Gate("job")
        self.signals: list[CancelSignal] = []
        self.result: str | None = None

    async def __call__(self, signal: CancelSignal) -> str:
        self.signals.append(signal)
        await self.gate.go()
        return "swept"

    @property
    def cause(self) -> CancelCause | None:
        return self.signals[0].cause


@asynccontextmanager
async def maintained(s: Scene) -> AsyncGenerator[Job]:
    """The job runs within the block and ends behind it."""
    job = Job()

    async def run() -> None:
        job.result = await s.agent.run_maintenance(job)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await job.gate.reached()
        yield job
        job.gate.open()


async def test_mnt_01_maintenance_is_refused_at_once_unless_the_agent_is_idle() -> None:
    gate, job = Gate(), Job()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        with pytest.raises(AgentBusyError, match="not idle"):
            await s.agent.run_maintenance(job)
        await gate.reached()
        with pytest.raises(AgentBusyError):
            await s.agent.run_maintenance(job)

        assert job.signals == []
        gate.open()
        await s.idle()
        assert s.reasons == [COMPLETED]


async def test_mnt_01_maintenance_is_refused_beside_maintenance() -> None:
    async with scene() as s, maintained(s):
        with pytest.raises(AgentBusyError):
            await s.agent.run_maintenance(Job())


class Pause:
    """Suspends once, and belongs to no event loop."""

    def __await__(self) -> Generator[None]:
        yield


async def test_mnt_01_it_starts_synchronously_and_is_invisible() -> None:
    signals: list[CancelSignal] = []

    async def job(signal: CancelSignal) -> str:
        signals.append(signal)
        await Pause()
        return "swept"

    async with scene() as s:
        running = s.agent.run_maintenance(job)
        running.send(None)
        assert len(signals) == 1
        assert (s.agent.status, s.agent.phase) == ("idle", "maintenance")

        with pytest.raises(StopIteration) as ended:
            running.send(None)
        assert ended.value.value == "swept"
        assert (s.agent.phase, s.trace.lines()) == ("idle", [])


async def test_mnt_01_every_task_gets_a_signal_of_its_own() -> None:
    job = Job()
    job.gate.open()
    async with scene() as s:
        await s.agent.run_maintenance(job)
        await s.agent.run_maintenance(job)

        first, second = job.signals
        assert first is not second


async def test_mnt_01_when_idle_waits_for_it() -> None:
    seen: list[str | None] = []
    async with scene() as s:

        async def wait() -> None:
            await s.agent.when_idle()
            seen.append(s.agent.phase)

        async with anyio.create_task_group() as tasks:
            async with maintained(s):
                tasks.start_soon(wait)
                for _ in range(5):
                    await checkpoint()
                assert seen == []
            await wait()

        assert seen == ["idle", "idle"]


async def test_mnt_01_a_job_that_raises_raises_to_its_caller_and_the_agent_is_idle() -> None:
    async def fail(signal: CancelSignal) -> None:
        s.agent.followup(A)
        raise OSError("no space")

    async with scene() as s:
        with pytest.raises(OSError, match="no space"):
            await s.agent.run_maintenance(fail)
        await s.idle()

        assert (inputs(s), s.reasons) == (["a"], [COMPLETED])


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_mnt_02_a_wake_is_queued_as_usual_and_starts_a_turn_after_the_job(verb: str) -> None:
    async with scene() as s:
        async with maintained(s) as job:
            getattr(s.agent, verb)(A)
            for _ in range(5):
                await checkpoint()
            assert s.trace.names() == ["agent/inbox/spliced", "agent/inbox/inserted"]
            assert (s.agent.status, s.agent.phase) == ("idle", "maintenance_latched")
            assert job.result is None
        await s.idle()

        assert s.data(InboxSpliced)[0].target == ("next-turn" if verb == "followup" else "next-step")
        assert s.trace.lines()[2:4] == ["L agent/status {status:running}", "D turn/start {turn:1}"]
        assert (inputs(s), s.reasons) == (["a"], [COMPLETED])


async def test_mnt_02_a_message_that_is_removed_meanwhile_starts_nothing() -> None:
    async with scene() as s:
        async with maintained(s):
            s.agent.followup(A)
            assert s.agent.inbox.remove("a")
        await s.idle()

        assert "turn/start" not in s.durable
        assert "agent/status" not in s.trace.names()


async def test_mnt_02_context_that_is_injected_meanwhile_wakes_nobody() -> None:
    async with scene() as s:
        async with maintained(s):
            s.agent.inject(A)
        await s.idle()

        assert s.trace.names() == ["agent/inbox/spliced", "agent/inbox/inserted"]


async def test_mnt_03_a_cancel_fires_the_jobs_signal_and_clears_queue_and_latch() -> None:
    async with scene() as s:
        async with maintained(s) as job:
            s.agent.followup(A)
            s.agent.cancel(PARENT_CANCEL)
            s.agent.cancel(USER_CANCEL)
            assert job.cause == PARENT_CANCEL
            assert not s.agent.inbox.pending
        await s.idle()

        assert job.result == "swept", "a job that pays no heed is awaited"
        assert "turn/start" not in s.durable


async def test_mnt_03_a_keeping_cancel_keeps_queue_and_latch() -> None:
    async with scene() as s:
        async with maintained(s) as job:
            s.agent.followup(A)
            s.agent.cancel(keep_inbox=True)
            assert job.cause == USER_CANCEL
        await s.idle()

        assert inputs(s) == ["a"]


@pytest.mark.parametrize("keep_inbox", [False, True])
async def test_mnt_03_a_wake_after_the_cancel_is_latched_again(keep_inbox: bool) -> None:
    async with scene() as s:
        async with maintained(s):
            s.agent.followup(A)
            s.agent.cancel(keep_inbox=keep_inbox)
            s.agent.followup(B)
        await s.idle()

        assert inputs(s) == (["a", "b"] if keep_inbox else ["b"])
        assert s.reasons == [COMPLETED] * len(inputs(s))


async def test_mnt_03_disposal_fires_the_signal_and_parks_what_waits() -> None:
    job = Job()

    async def heed(signal: CancelSignal) -> None:
        job.gate.open()
        await signal.wait()
        assert signal.cause == DISPOSED_CANCEL
        s.agent.followup(B)

    async with anyio.create_task_group() as tasks, scene() as s:
        tasks.start_soon(s.agent.run_maintenance, heed)
        await job.gate.go()
        s.agent.followup(A)

    assert s.session.inbox.next_turn == (A, B)
    assert s.durable.count("turn/start") == 0


async def test_mnt_03_the_turn_after_a_cancelled_job_has_a_signal_of_its_own() -> None:
    async with scene() as s:
        async with maintained(s):
            s.agent.cancel()
        await s.say("go on")

        assert s.reasons == [COMPLETED]
