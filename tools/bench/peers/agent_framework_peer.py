"""agent-framework-core: `Agent.run` over a chat client of our own with the layers that the shipped ones have."""

from __future__ import annotations

import asyncio
import time

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer

from contender import THINKING


class _Client(BaseChatClient):
    def __init__(self, steps=0, width=1, deltas=0, stamps=None, thinking=0):
        super().__init__()
        self.told, self.width, self.deltas, self.stamps = 0, width, deltas, stamps
        self.steps, self.thinking = steps, thinking

    def _inner_get_response(self, *, messages, stream, options, **_):
        return self._build_response_stream(self._stream()) if stream else self._whole()

    async def _whole(self):
        if self.stamps is not None:
            self.stamps.append(time.process_time())
        if self.thinking:
            await asyncio.sleep(self.thinking)
        self.told += 1
        if self.told > self.steps:
            return ChatResponse(messages=[Message("assistant", ["ok"], message_id=f"m{self.told}")])
        calls = [
            Content.from_function_call(f"c{self.told}-{n}", "work", arguments='{"x": 1}') for n in range(self.width)
        ]
        return ChatResponse(messages=[Message("assistant", calls)])

    async def _stream(self):
        for _ in range(self.deltas):
            yield ChatResponseUpdate(
                role="assistant", contents=[Content.from_text("tok ")], message_id="m", response_id="r"
            )


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, _Client):
    """The stack of a shipped client."""


@tool(approval_mode="never_require")
async def work(x: int) -> int:
    """Work."""
    return x


@tool(name="work", approval_mode="never_require")
async def waiting_work(x: int) -> int:
    """Work."""
    await asyncio.sleep(0)
    return x


class Peer:
    """Non-streamed runs, but for the deltas."""

    imported = "import agent_framework; agent_framework.Agent"

    def _agent(self, tools, more=(), **script):
        client = Client(**script)
        client.function_invocation_configuration["max_iterations"] = 1_000_000
        return Agent(client=client, instructions="be brief", tools=tools, **dict(more))

    async def turns(self, count):
        for _ in range(count):
            agent = self._agent([work])
            assert (await agent.run("hi", session=agent.create_session())).text == "ok"

    async def steps(self, count, stamps=None):
        agent = self._agent([work], steps=count, stamps=stamps)
        assert (await agent.run("hi", session=agent.create_session())).messages[-1].text == "ok"

    async def parallel(self, count):
        agent = self._agent([waiting_work], steps=1, width=count)
        assert (await agent.run("hi", session=agent.create_session())).messages[-1].text == "ok"

    async def deltas(self, count):
        agent, seen = self._agent([], deltas=count), 0
        async for update in agent.run("hi", session=agent.create_session(), stream=True):
            seen += bool(update.text)
        return seen

    async def sessions(self, count):
        agent = self._agent([work], thinking=THINKING)
        said = await asyncio.gather(*(agent.run("hi", session=agent.create_session()) for _ in range(count)))
        assert {one.text for one in said} == {"ok"}

    async def kept(self, count, folder):
        history = {
            "context_providers": [FileHistoryProvider(str(folder / "history"))],
            "require_per_service_call_history_persistence": True,  # after each step, not only at the end
        }
        agent = self._agent([work], history, steps=count)
        assert (await agent.run("hi", session=agent.create_session())).messages[-1].text == "ok"
