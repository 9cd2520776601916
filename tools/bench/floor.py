"""The floors: agent loops written by hand, which everything else is compared with. Standard library only.

`Bare` (F0) is what a competent user writes in twenty lines, with nothing to see from outside. `Observed` (F1) does
also what a lifecycle owes in each step: a transition table that is checked, a typed event a transition for one
subscriber, a look at the arguments, usage, a look at the cancel flag, and a task a tool call.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from contender import THINKING, Contender, Stamps

Said: TypeAlias = dict[str, Any]
Body: TypeAlias = Callable[..., Awaitable[object]]


class Script:
    """A model in process that takes no time: `steps` answers that ask for `width` calls each, then a text."""

    def __init__(self, steps: int = 0, width: int = 1, stamps: Stamps | None = None, thinking: float = 0) -> None:
        self._steps, self._width, self._stamps, self._thinking = steps, width, stamps, thinking
        self._asked = 0

    async def answer(self, history: list[Said]) -> Said:
        if self._thinking:
            await asyncio.sleep(self._thinking)
        if self._stamps is not None:
            self._stamps.append(time.process_time())
        asked, self._asked = self._asked, self._asked + 1
        if asked < self._steps:
            calls = [{"id": f"c{asked}-{n}", "name": "work", "arguments": '{"x": 1}'} for n in range(self._width)]
            return {"role": "assistant", "content": None, "calls": calls, "usage": (1, 1)}
        return {"role": "assistant", "content": "ok", "calls": None, "usage": (1, 1)}

    async def stream(self, deltas: int) -> AsyncIterator[str]:
        for _ in range(deltas):
            yield "tok "


async def work(x: int) -> int:
    return x


async def work_and_wait(x: int) -> int:
    await asyncio.sleep(0)
    return x


TOOLS: Mapping[str, Body] = {"work": work}
WAITING_TOOLS: Mapping[str, Body] = {"work": work_and_wait}


# -- F0 -----------------------------------------------------------------------------------------------------------


async def bare_call(tools: Mapping[str, Body], call: Said) -> Said:
    try:
        made = await tools[call["name"]](**json.loads(call["arguments"]))
    except Exception as wrong:
        made = f"error: {wrong}"
    return {"role": "tool", "call": call["id"], "content": str(made)}


async def bare_turn(script: Script, tools: Mapping[str, Body], history: list[Said], prompt: str) -> str:
    history.append({"role": "user", "content": prompt})
    while True:
        said = await script.answer(history)
        history.append(said)
        calls = said["calls"]
        if not calls:
            return str(said["content"])
        if len(calls) == 1:
            history.append(await bare_call(tools, calls[0]))
        else:
            history.extend(await asyncio.gather(*(bare_call(tools, call) for call in calls)))


class Bare(Contender):
    """F0."""

    name = "F0, bare loop"

    async def turns(self, count: int) -> None:
        for _ in range(count):
            assert await bare_turn(Script(), TOOLS, [], "hi") == "ok"

    async def continued(self, count: int, stamps: Stamps) -> None:
        history: list[Said] = []
        for _ in range(count):
            stamps.append(time.process_time())
            await bare_turn(Script(), TOOLS, history, "hi")
        stamps.append(time.process_time())

    async def steps(self, count: int, stamps: Stamps | None = None) -> None:
        assert await bare_turn(Script(count, 1, stamps), TOOLS, [], "hi") == "ok"

    async def parallel(self, count: int) -> None:
        assert await bare_turn(Script(1, count), WAITING_TOOLS, [], "hi") == "ok"

    async def deltas(self, count: int) -> int:
        return len([delta async for delta in Script().stream(count)])

    async def sessions(self, count: int) -> None:
        histories: list[list[Said]] = [[] for _ in range(count)]
        await asyncio.gather(*(bare_turn(Script(thinking=THINKING), TOOLS, one, "hi") for one in histories))


# -- F1 -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Moved:
    """What the subscriber gets."""

    seq: int
    time: float
    event: str
    turn: int
    step: int
    data: Any


MOVES: Mapping[tuple[str, str], str] = {
    ("idle", "start"): "preparing",
    ("preparing", "request"): "requesting",
    ("requesting", "respond"): "deciding",
    ("deciding", "dispatch"): "tooling",
    ("tooling", "call"): "tooling",
    ("tooling", "result"): "tooling",
    ("tooling", "join"): "stepped",
    ("deciding", "answer"): "stepped",
    ("stepped", "again"): "preparing",
    ("stepped", "finish"): "idle",
}
SCHEMAS: Mapping[str, Mapping[str, type]] = {"work": {"x": int}}


@dataclass(slots=True)
class Loop:
    """One observed session."""

    subscriber: Callable[[Moved], object]
    history: list[Said] = field(default_factory=lambda: [])
    state: str = "idle"
    seq: int = 0
    turn: int = 0
    step: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cancelled: bool = False

    def move(self, event: str, data: Any = None) -> None:
        state = MOVES.get((self.state, event))
        if state is None:
            raise RuntimeError(f"{self.state} does not take {event}")
        self.state = state
        self.seq += 1
        self.subscriber(Moved(self.seq, time.time(), event, self.turn, self.step, data))

    async def call(self, tools: Mapping[str, Body], call: Said) -> Said:
        self.move("call", call)
        try:
            arguments = json.loads(call["arguments"])
            for name, kind in SCHEMAS[call["name"]].items():
                if not isinstance(arguments.get(name), kind):
                    raise TypeError(name)
            made = await tools[call["name"]](**arguments)
        except Exception as wrong:
            made = f"error: {wrong}"
        result = {"role": "tool", "call": call["id"], "content": str(made)}
        self.move("result", result)
        return result

    async def run(self, script: Script, tools: Mapping[str, Body], prompt: str) -> str:
        self.turn += 1
        self.step = 0
        self.move("start", prompt)
        self.history.append({"role": "user", "content": prompt})
        while True:
            if self.cancelled:
                raise asyncio.CancelledError
            self.step += 1
            self.move("request")
            said = await script.answer(self.history)
            used = said["usage"]
            self.tokens_in += used[0]
            self.tokens_out += used[1]
            self.move("respond", said)
            self.history.append(said)
            calls = said["calls"]
            if not calls:
                self.move("answer")
                self.move("finish")
                return str(said["content"])
            self.move("dispatch")
            self.history.extend(
                [await asyncio.ensure_future(self.call(tools, calls[0]))]
                if len(calls) == 1
                else await asyncio.gather(*(self.call(tools, call) for call in calls))
            )
            self.move("join")
            self.move("again")


async def observed_stream(script: Script, deltas: int) -> AsyncIterator[Moved]:
    """A producer's task, a bounded queue, a typed event a delta."""
    queue: asyncio.Queue[Moved | None] = asyncio.Queue(256)

    async def produce() -> None:
        seq = 0
        async for delta in script.stream(deltas):
            seq += 1
            await queue.put(Moved(seq, 0.0, "delta", 1, 1, delta))
        await queue.put(None)

    producer = asyncio.ensure_future(produce())
    while (moved := await queue.get()) is not None:
        yield moved
    await producer


class Observed(Contender):
    """F1."""

    name = "F1, observed loop"

    def _loop(self) -> Loop:
        heard: list[Moved] = []
        return Loop(heard.append)

    async def turns(self, count: int) -> None:
        for _ in range(count):
            assert await self._loop().run(Script(), TOOLS, "hi") == "ok"

    async def continued(self, count: int, stamps: Stamps) -> None:
        loop = self._loop()
        for _ in range(count):
            stamps.append(time.process_time())
            await loop.run(Script(), TOOLS, "hi")
        stamps.append(time.process_time())

    async def steps(self, count: int, stamps: Stamps | None = None) -> None:
        assert await self._loop().run(Script(count, 1, stamps), TOOLS, "hi") == "ok"

    async def parallel(self, count: int) -> None:
        assert await self._loop().run(Script(1, count), WAITING_TOOLS, "hi") == "ok"

    async def deltas(self, count: int) -> int:
        seen = 0
        async for _ in observed_stream(Script(), count):
            seen += 1
        return seen

    async def sessions(self, count: int) -> None:
        loops = [self._loop() for _ in range(count)]
        await asyncio.gather(*(one.run(Script(thinking=THINKING), TOOLS, "hi") for one in loops))
