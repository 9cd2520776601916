"""langgraph: `langchain.agents.create_agent` over a chat model of our own, without a saver."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from contender import THINKING


class Script(BaseChatModel):
    steps: int = 0
    width: int = 1
    chunks: int = 0
    stamps: Any = None
    told: int = 0
    thinking: float = 0

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return self  # a real model would turn the tools into JSON schemas at each step

    def _generate(self, messages, stop=None, run_manager=None, **_):
        if self.stamps is not None:
            self.stamps.append(time.process_time())
        self.told += 1
        message = AIMessage(content="ok")
        if self.told <= self.steps:
            calls = [
                {"name": "work", "args": {"x": 1}, "id": f"c{self.told}-{n}", "type": "tool_call"}
                for n in range(self.width)
            ]
            message = AIMessage(content="", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **_):
        if self.thinking:
            await asyncio.sleep(self.thinking)
        return self._generate(messages)


class Streaming(Script):
    async def _astream(self, messages, stop=None, run_manager=None, **_):
        for n in range(self.chunks):
            last = "last" if n == self.chunks - 1 else None
            yield ChatGenerationChunk(message=AIMessageChunk(content="tok ", chunk_position=last))


@tool
async def work(x: int) -> int:
    """Work."""
    return x


@tool("work")
async def waiting_work(x: int) -> int:
    """Work."""
    await asyncio.sleep(0)
    return x


class Peer:
    imported = "from langchain.agents import create_agent"

    async def _run(self, script, tools):
        await self._ask(create_agent(script, tools))

    async def _ask(self, graph, config=(), **more):
        config = {"recursion_limit": 1_000_000, **dict(config)}
        said = await graph.ainvoke({"messages": [("user", "hi")]}, config, **more)
        assert said["messages"][-1].content == "ok"

    async def turns(self, count):
        graph = create_agent(Script(), [work])  # built once: to build it is far dearer than to run it
        for _ in range(count):
            said = await graph.ainvoke({"messages": [("user", "hi")]})
            assert said["messages"][-1].content == "ok"

    async def steps(self, count, stamps=None):
        await self._run(Script(steps=count, stamps=stamps), [work])

    async def parallel(self, count):
        await self._run(Script(steps=1, width=count), [waiting_work])

    async def deltas(self, count):
        graph, seen = create_agent(Streaming(chunks=count), []), 0
        async for message, _ in graph.astream({"messages": [("user", "hi")]}, stream_mode="messages"):
            seen += bool(message.content)
        return seen

    async def sessions(self, count):
        graph = create_agent(Script(thinking=THINKING), [work])
        await asyncio.gather(*(self._ask(graph) for _ in range(count)))

    async def kept(self, count, folder):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
            graph = create_agent(Script(steps=count), [work], checkpointer=saver)
            thread = {"configurable": {"thread_id": str(time.monotonic_ns())}}
            await self._ask(graph, thread, durability="sync")
