"""openai-agents: `Runner.run` and `Runner.run_streamed` over a model of our own, tracing off."""

from __future__ import annotations

import asyncio
import time

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from contender import THINKING

set_tracing_disabled(True)


def _said(text):
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)


class Script(Model):
    def __init__(self, steps=0, width=1, deltas=0, stamps=None, thinking=0):
        self.steps, self.width, self.chunks, self.stamps = steps, width, deltas, stamps
        self.told, self.thinking = 0, thinking

    async def get_response(self, *_, **__):
        if self.stamps is not None:
            self.stamps.append(time.process_time())
        if self.thinking:
            await asyncio.sleep(self.thinking)
        self.told += 1
        output = [_said("ok")]
        if self.told <= self.steps:
            output = [
                ResponseFunctionToolCall(
                    type="function_call",
                    call_id=f"c{self.told}-{n}",
                    id=f"f{self.told}-{n}",
                    name="work",
                    arguments='{"x": 1}',
                    status="completed",
                )
                for n in range(self.width)
            ]
        usage = Usage(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, *_, **__):
        for n in range(self.chunks):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta="tok ",
                item_id="m",
                output_index=0,
                content_index=0,
                sequence_number=n,
                logprobs=[],
            )
        response = Response.model_construct(
            id="r",
            created_at=0.0,
            model="script",
            object="response",
            output=[_said("tok " * self.chunks)],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            usage=None,
        )
        yield ResponseCompletedEvent.model_construct(
            type="response.completed", sequence_number=self.chunks, response=response
        )


@function_tool
async def work(x: int) -> int:
    """Work."""
    return x


@function_tool(name_override="work")
async def waiting_work(x: int) -> int:
    """Work."""
    await asyncio.sleep(0)
    return x


class Peer:
    imported = "import agents"

    def _agent(self, tools, **script):
        return Agent(name="a", instructions="be brief", model=Script(**script), tools=tools)

    async def _run(self, agent, session=None):
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, "hi", max_turns=1_000_000, run_config=config, session=session)
        assert result.final_output == "ok"

    async def turns(self, count):
        for _ in range(count):
            await self._run(self._agent([work]))

    async def steps(self, count, stamps=None):
        await self._run(self._agent([work], steps=count, stamps=stamps))

    async def parallel(self, count):
        await self._run(self._agent([waiting_work], steps=1, width=count))

    async def deltas(self, count):
        seen = 0
        run = Runner.run_streamed(self._agent([], deltas=count), "hi", run_config=RunConfig(tracing_disabled=True))
        async for event in run.stream_events():
            seen += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        return seen

    async def sessions(self, count):
        agent = self._agent([work], thinking=THINKING)
        await asyncio.gather(*(self._run(agent) for _ in range(count)))

    async def kept(self, count, folder):
        session = SQLiteSession(f"s{time.monotonic_ns()}", folder / "agents.db")
        await self._run(self._agent([work], steps=count), session)
        session.close()
