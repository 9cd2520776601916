"""The first turn of a process, of an agent without tools: all that an import has put off is done by then."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from lifecycle import Agent, CallConfig, CancelSignal, PreparedCall
from lifecycle.vocabulary.chunks import Chunk, Finish, TextDelta
from lifecycle.vocabulary.requests import Request


class Model:
    provider = "script"
    model: str | None = "script-1"

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        return PreparedCall(config, self._open)

    async def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        yield TextDelta(0, "hello")
        yield Finish()


async def _main() -> None:
    async with Agent(Model()) as agent:
        agent.followup("hi")
        await agent.when_idle()


anyio.run(_main)
