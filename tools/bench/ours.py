"""The contenders of this project: the same work through `Agent`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from contender import THINKING, Contender, Stamps
from lifecycle import Agent, Hooks, Session, tool
from lifecycle.driver.options import AgentOptions
from lifecycle.services.frames import StreamChunk
from lifecycle.services.model import PreparedCall
from lifecycle.services.points import EventPayload, StreamPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.session.sqlite import SqliteStore
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta, ToolCallDelta, Usage, UsageReport
from lifecycle.vocabulary.events import Event, TurnEnd
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.requests import CallConfig, Request


class Script:
    """A model in process that takes no time: `steps` answers that ask for `width` calls each, then `deltas` of text."""

    provider = "script"
    model: str | None = "script-1"

    def __init__(
        self, steps: int = 0, width: int = 1, deltas: int = 1, stamps: Stamps | None = None, thinking: float = 0
    ) -> None:
        self._steps, self._width, self._deltas, self._stamps, self._thinking = steps, width, deltas, stamps, thinking
        self._asked = 0

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        return PreparedCall(config, self._open)

    async def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        if self._stamps is not None:
            self._stamps.append(time.process_time())
        if self._thinking:
            await anyio.sleep(self._thinking)
        asked, self._asked = self._asked, self._asked + 1
        calls = self._width if asked < self._steps else 0
        for n in range(calls):
            yield ToolCallDelta(n, f"c{asked}-{n}", "work", '{"x": 1}')
        if not calls:
            for _ in range(self._deltas):
                yield TextDelta(0, "tok ")
        yield UsageReport(Usage(input_tokens=1, output_tokens=1))
        yield Finish(FinishKind.TOOL_CALLS if calls else FinishKind.STOP)


@tool
async def work(x: int) -> int:
    return x


@tool(name="work", parallel=True)
async def work_and_wait(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return x


class Ours(Contender):
    """The agent as a host uses it that has a task group and listens to the events of the log.

    Args:
        nursery: Each agent works in a task group of its own instead.
        quiet: Nobody listens.
        folder: Each session is kept in a SQLite store in this folder, which is opened for it.
        store: Each session is kept in this store, which is open.
        monitored: The definition watches what is appended.
    """

    def __init__(
        self,
        *,
        nursery: bool = False,
        quiet: bool = False,
        folder: Path | None = None,
        store: SqliteStore | None = None,
        monitored: bool = False,
    ) -> None:
        self.name = "ours"
        self.name += ", own nursery" if nursery else ""
        self.name += ", nobody listens" if quiet else ""
        self.name += ", SQLite" if folder is not None else ", open SQLite" if store is not None else ""
        self.name += ", monitored" if monitored else ""
        self._nursery, self._folder, self._store, self._monitored = nursery, folder, store, monitored
        self._heard: list[Event] = []
        self._hooks = Hooks()
        if not quiet:
            self._hooks.listen("session/event", self._hear)

    def _hear(self, payload: EventPayload) -> None:
        self._heard.append(payload.event)

    @asynccontextmanager
    async def _host(self) -> AsyncGenerator[TaskGroup | None]:
        if self._nursery:
            yield None
        else:
            async with anyio.create_task_group() as group:
                yield group

    def _agent(self, script: Script, group: TaskGroup | None, session: Session | None = None) -> Agent:
        self._heard.clear()
        return Agent(
            script, tools=[work], hooks=self._hooks, session=session, task_group=group, monitor=self._monitored
        )

    async def turns(self, count: int) -> None:
        async with self._host() as group:
            for _ in range(count):
                async with self._agent(Script(), group) as agent:
                    await _turn(agent)

    async def continued(self, count: int, stamps: Stamps) -> None:
        async with self._host() as group, self._agent(Script(), group) as agent:
            for _ in range(count):
                stamps.append(time.process_time())
                await _turn(agent)
            stamps.append(time.process_time())

    async def steps(self, count: int, stamps: Stamps | None = None) -> None:
        async with (
            self._host() as group,
            self._session() as session,
            self._agent(Script(count, stamps=stamps), group, session) as agent,
        ):
            await _turn(agent)

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[Session | None]:
        if self._store is not None:
            yield await self._store.create()  # the agent closes it where it is left
        elif self._folder is not None:
            async with SqliteStore(self._folder / "sessions.db") as store:
                yield await store.create()
        else:
            yield None

    async def parallel(self, count: int) -> None:
        self._heard.clear()
        options = AgentOptions(max_parallel_tools=count)
        async with (
            self._host() as group,
            Agent(
                Script(1, count), tools=[work_and_wait], hooks=self._hooks, options=options, task_group=group
            ) as agent,
        ):
            await _turn(agent)

    async def deltas(self, count: int) -> int:
        seen = 0
        async with self._host() as group, self._agent(Script(deltas=count), group) as agent:
            events = agent.events()
            agent.followup("hi")
            async for event in events:
                if event.domain == "live" and event.name == "agent/assistant-stream":
                    payload = event.payload
                    assert isinstance(payload, StreamPayload)
                    frame = payload.frame
                    seen += isinstance(frame, StreamChunk) and isinstance(frame.chunk, TextDelta)
        return seen

    async def sessions(self, count: int) -> None:
        self._heard.clear()

        async def one(group: TaskGroup | None) -> None:
            script = Script(thinking=THINKING)
            async with Agent(script, tools=[work], hooks=self._hooks, task_group=group, monitor=False) as agent:
                await _turn(agent)

        async with self._host() as group, anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one, group)


async def _turn(agent: Agent) -> None:
    agent.followup("hi")
    await agent.when_idle()
    last = agent.session.events[-1].data
    assert isinstance(last, TurnEnd)
    assert last.reason == COMPLETED, last.reason
