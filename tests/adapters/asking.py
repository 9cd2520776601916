"""How the tests of the adapters ask: one request, the chunks that come back, and what they amount to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import httpx

from lifecycle.services.model import Model, PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.assembly import Assembled, Assembler
from lifecycle.vocabulary.chunks import Chunk, Finish, mended
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import Message, ReasoningBlock, TextBlock, ToolCallBlock, user_message
from lifecycle.vocabulary.requests import CallConfig, Request, ToolSpec


def request(
    config: CallConfig, messages: Sequence[Message] = (), tools: tuple[ToolSpec, ...] = (), prompt: str = "Say hello"
) -> Request:
    return Request(messages=messages or (user_message(prompt),), tools=tools, config=config, turn=1, step=1, attempt=1)


def opened(model: Model, *args: Any, config: CallConfig | None = None, **kwargs: Any) -> AsyncGenerator[Chunk, None]:
    """The chunks that the model answers one request with."""
    signal = CancelSignal()
    asked = config or CallConfig(provider=model.provider, model=model.model)
    prepared = model.prepare(asked, signal)
    assert isinstance(prepared, PreparedCall)
    return cast("AsyncGenerator[Chunk, None]", prepared.open(request(prepared.config, *args, **kwargs), signal))


class Heard:
    """An answer, taken to its end."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks
        assembler = Assembler()
        for chunk in chunks:
            assert mended(chunk) == chunk
            assembler.add(chunk)
        assert isinstance(chunks[-1], Finish)
        assert sum(isinstance(chunk, Finish) for chunk in chunks) == 1
        self.finish: Finish = chunks[-1]
        self.assembled: Assembled = assembler.result()

    @property
    def failure(self) -> Failure:
        assert self.finish.failure is not None, self.finish
        return self.finish.failure

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.assembled.blocks if isinstance(block, TextBlock))

    @property
    def reasoning(self) -> str:
        return "".join(block.text for block in self.assembled.blocks if isinstance(block, ReasoningBlock))

    @property
    def calls(self) -> list[ToolCallBlock]:
        return [block for block in self.assembled.blocks if isinstance(block, ToolCallBlock)]


async def ask(model: Model, *args: Any, **kwargs: Any) -> Heard:
    """Ask once and hear the answer out."""
    chunks: list[Chunk] = []
    async with aclosing(opened(model, *args, **kwargs)) as stream:
        async for chunk in stream:
            chunks.append(chunk)
    return Heard(chunks)


class Bytewise(httpx.AsyncByteStream):
    """A body of which each read is one byte."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(len(self.body)):
            yield self.body[at : at + 1]
