"""google-adk: `Runner.run_async` over a model of our own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai.types import Content, FunctionCall, Part

from contender import THINKING

HI = Content(role="user", parts=[Part(text="hi")])


class Script(BaseLlm):
    model: str = "script"
    steps: int = 0
    width: int = 1
    chunks: int = 0
    stamps: Any = None
    thinking: float = 0
    told: int = 0

    async def generate_content_async(self, llm_request, stream=False):
        if self.stamps is not None:
            self.stamps.append(time.process_time())
        if self.thinking:
            await asyncio.sleep(self.thinking)
        self.told += 1
        for _ in range(self.chunks):
            yield self._said([Part(text="tok ")], partial=True)
        if self.told <= self.steps:
            yield self._said(
                [
                    Part(function_call=FunctionCall(id=f"c{self.told}-{n}", name="work", args={"x": 1}))
                    for n in range(self.width)
                ]
            )
        else:
            yield self._said([Part(text="ok")])

    def _said(self, parts, **more):
        return LlmResponse(content=Content(role="model", parts=parts), **more)


async def work(x: int) -> int:
    """Work."""
    return x


async def waiting_work(x: int) -> int:
    """Work."""
    await asyncio.sleep(0)
    return x


waiting_work.__name__ = "work"


class Peer:
    imported = "from google.adk.runners import Runner; from google.adk.agents import LlmAgent"

    def _runner(self, body=work, service=None, **script):
        agent = LlmAgent(name="a", model=Script(**script), instruction="be brief", tools=[body])
        return Runner(app_name="bench", agent=agent, session_service=service or InMemorySessionService())

    async def _run(self, runner, mode=StreamingMode.NONE):
        session = await runner.session_service.create_session(app_name="bench", user_id="u")
        seen, last = 0, None
        config = RunConfig(max_llm_calls=0, streaming_mode=mode)
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=HI, run_config=config):
            seen += bool(event.partial)
            last = event
        assert last.content.parts[0].text == "ok"
        return seen

    async def turns(self, count):
        for _ in range(count):
            await self._run(self._runner())

    async def steps(self, count, stamps=None):
        await self._run(self._runner(steps=count, stamps=stamps))

    async def parallel(self, count):
        await self._run(self._runner(waiting_work, steps=1, width=count))

    async def deltas(self, count):
        return await self._run(self._runner(chunks=count), StreamingMode.SSE)

    async def sessions(self, count):
        runner = self._runner(thinking=THINKING)
        await asyncio.gather(*(self._run(runner) for _ in range(count)))

    async def kept(self, count, folder):
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        await self._run(self._runner(service=SqliteSessionService(str(folder / "adk.db")), steps=count))
