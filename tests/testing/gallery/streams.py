"""Mistakes in wrappers of a stream: chunks that go missing, come twice or in another order, and streams left open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio

from lifecycle import Hooks
from lifecycle.vocabulary.chunks import BlockEnd, Chunk, Finish, TextDelta, ToolCallDelta

from .entry import Next, at, faulty
from .properties import answers_are_the_models, no_step_takes_minutes

Chunks = AsyncIterator[Chunk]


@faulty(
    "Passes on text and calls, and drops the finish.",
    "llm/stream",
    finds="an answer ends without its finish",
    holds=(answers_are_the_models,),
)
def drops_the_finish(hooks: Hooks) -> None:
    async def without(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            if not isinstance(chunk, Finish):
                yield chunk

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return without(await next())


@faulty("Sends every chunk twice.", "llm/stream", finds="chunks come twice", holds=(answers_are_the_models,))
def doubles_chunks(hooks: Hooks) -> None:
    async def doubled(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            yield chunk
            yield chunk

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return doubled(await next())


@faulty(
    "Collects chunks and lets the last one out first.",
    "llm/stream",
    finds="chunks come in another order",
    holds=(answers_are_the_models,),
)
def reorders_chunks(hooks: Hooks) -> None:
    async def pairs(chunks: Chunks) -> Chunks:
        kept: list[Chunk] = []
        async for chunk in chunks:
            kept.append(chunk)
            if len(kept) == 2 or isinstance(chunk, Finish):
                for one in reversed(kept):
                    yield one
                kept.clear()

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return pairs(await next())


@faulty(
    "Lets text through only, so that the model's calls are never made.",
    "llm/stream",
    finds="calls go missing",
    holds=(answers_are_the_models,),
)
def drops_calls(hooks: Hooks) -> None:
    async def text_only(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            if isinstance(chunk, (TextDelta, Finish)):
                yield chunk

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return text_only(await next())


@faulty("Gives every call the same id.", "llm/stream", finds="two calls have one id", holds=(answers_are_the_models,))
def gives_all_calls_one_id(hooks: Hooks) -> None:
    async def renamed(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            if isinstance(chunk, ToolCallDelta):
                yield chunk._replace(id="call")
            elif isinstance(chunk, BlockEnd) and chunk.block.type == "tool-call":
                yield chunk._replace(block=chunk.block.model_copy(update={"id": "call"}))
            else:
                yield chunk

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return renamed(await next())


@faulty(
    "Lets a chunk out every ten minutes, whether or not somebody has cancelled.",
    "llm/stream",
    finds="a step takes very long",
    holds=(no_step_takes_minutes,),
)
def paces_chunks_past_a_cancel(hooks: Hooks) -> None:
    async def paced(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            await anyio.sleep(600)
            yield chunk

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return paced(await next())


@faulty("Shows that it is alive for as long as nobody stops it.", "llm/stream", finds="the run does not end")
def beats_for_ever(hooks: Hooks) -> None:
    async def beating(chunks: Chunks) -> Chunks:
        async for chunk in chunks:
            if isinstance(chunk, Finish):
                break
            yield chunk
        while True:
            await anyio.sleep(1)
            yield TextDelta(0, "")

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return beating(await next())


@faulty("Says goodbye while it is being closed.", "llm/stream", finds="it cannot be closed")
def speaks_while_it_is_closed(hooks: Hooks) -> None:
    async def parting(chunks: Chunks) -> Chunks:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            yield TextDelta(9, "goodbye")

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return parting(await next())


@faulty("Waits for ever while it is being closed.", "llm/stream", finds="it cannot be closed")
def never_closes(hooks: Hooks) -> None:
    async def clinging(chunks: Chunks) -> Chunks:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await anyio.Event().wait()

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return clinging(await next())


@faulty("Makes silence of a failure.", "llm/stream", finds="a failure is lost", holds=(answers_are_the_models,))
def hides_a_failure(hooks: Hooks) -> None:
    async def quiet(chunks: Chunks) -> Chunks:
        try:
            async for chunk in chunks:
                yield chunk._replace(failure=None) if isinstance(chunk, Finish) else chunk
        except Exception:
            yield Finish()

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return quiet(await next())
