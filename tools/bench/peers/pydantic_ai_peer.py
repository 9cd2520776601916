"""pydantic-ai: `Agent.run` and `Agent.run_stream` over its own FunctionModel."""

from __future__ import annotations

import asyncio
import time

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from contender import THINKING


async def work(x: int) -> int:
    """Work."""
    return x


async def waiting_work(x: int) -> int:
    """Work."""
    await asyncio.sleep(0)
    return x


class Peer:
    imported = "import pydantic_ai"

    def _agent(self, body, steps=0, width=1, stamps=None, thinking=0):
        told = 0

        async def answer(messages, info):
            nonlocal told
            if stamps is not None:
                stamps.append(time.process_time())
            if thinking:
                await asyncio.sleep(thinking)
            told += 1
            parts = [TextPart("ok")]
            if told <= steps:
                parts = [ToolCallPart("work", '{"x": 1}', tool_call_id=f"c{told}-{n}") for n in range(width)]
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=1, output_tokens=1))

        agent = Agent(FunctionModel(answer), instructions="be brief")
        agent.tool_plain(name="work")(body)
        return agent

    async def _run(self, body, **script):
        await self._ask(self._agent(body, **script))

    async def _ask(self, agent):
        result = await agent.run("hi", usage_limits=UsageLimits(request_limit=None))
        assert result.output == "ok"

    async def turns(self, count):
        for _ in range(count):
            await self._run(work)

    async def steps(self, count, stamps=None):
        await self._run(work, steps=count, stamps=stamps)

    async def parallel(self, count):
        await self._run(waiting_work, steps=1, width=count)

    async def deltas(self, count):
        async def stream(messages, info):
            for _ in range(count):
                yield "tok "

        seen = 0
        async with Agent(FunctionModel(stream_function=stream)).run_stream("hi") as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                seen += 1
        return seen

    async def sessions(self, count):
        agent = self._agent(work, thinking=THINKING)
        await asyncio.gather(*(self._ask(agent) for _ in range(count)))
