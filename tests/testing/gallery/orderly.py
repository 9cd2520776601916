"""Hook sets that are unusual and in order: a check that alarms about one of them is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel

from lifecycle import (
    Accept,
    Allow,
    Ask,
    Block,
    CancelSignal,
    Deny,
    Enter,
    HookCancel,
    Hooks,
    PromptText,
    Reject,
    Retry,
    ToolOutcome,
    user_message,
)
from lifecycle.services.points import POINTS, Mode
from lifecycle.vocabulary.chunks import BlockEnd, Chunk, Finish, TextDelta
from lifecycle.vocabulary.messages import TextBlock, text
from lifecycle.vocabulary.values import FrozenDict

from .entry import Next, at, correct
from .properties import act_never_runs, results_name_their_call, steps_are_few, what_is_claimed_is_admitted


@correct("Listens at every point and changes nothing.", holds=(what_is_claimed_is_admitted,))
def watches_everything(hooks: Hooks) -> None:
    seen: list[str] = []

    def watch(name: str) -> None:
        def plain(payload: Any) -> None:
            seen.append(name)

        def wrapper(payload: Any, next: Next) -> object:
            seen.append(name)
            return next()  # a plain function may hand out the awaitable

        hooks.listen(name, wrapper if POINTS[name].mode is Mode.WATERFALL else plain)

    for name in POINTS:
        watch(name)


@correct("Waits a little before and after the rest, at every point that waits.")
def waits_a_little_everywhere(hooks: Hooks) -> None:
    async def wait(payload: Any) -> None:
        await anyio.sleep(0.1)

    async def around(payload: Any, next: Next) -> object:
        await anyio.sleep(0.1)
        answer = await next()
        await anyio.sleep(0.1)
        return answer

    for name, point in POINTS.items():
        if point.mode is Mode.WATERFALL:
            hooks.listen(name, around)
        elif point.mode in (Mode.SERIAL, Mode.PARALLEL):
            hooks.listen(name, wait)


@correct("Hands the very payload on, by name, and calls next() late.")
def hands_on_the_very_payload(hooks: Hooks) -> None:
    @at(hooks, "agent/model")
    async def choose(payload: Any, next: Next) -> object:
        rest = next(payload)
        await anyio.lowlevel.checkpoint()
        return await rest


@correct("Overrules the rest without asking it: its own requests, its own outcomes.")
def never_asks_the_rest(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    def enter(payload: Any, next: Next) -> object:
        return Enter(payload.messages)

    @at(hooks, "tools/execute")
    def pretend(payload: Any, next: Next) -> object:
        return ToolOutcome(text("pretended"), value={"dry": True})


@correct("Answers by itself and never opens the model's stream.")
def answers_by_itself(hooks: Hooks) -> None:
    async def said() -> AsyncIterator[Chunk]:
        yield BlockEnd(0, TextBlock(text="from memory"))
        yield Finish()

    @at(hooks, "llm/stream")
    def remember(payload: Any, next: Next) -> object:
        return said()


@correct("Asks again twice after a failure, backs off, and stops when the turn is cancelled.")
def asks_again_twice(hooks: Hooks) -> None:
    @at(hooks, "agent/request-error")
    async def again(payload: Any, next: Next) -> object:
        if payload.attempt > 2 or payload.failure.retryable is False:
            return await next()
        with payload.signal.scope():
            await anyio.sleep(0.5 * payload.attempt)
        return await next() if payload.signal.fired else Retry()


@correct("Rewrites what is said and adds something of its own, under a new id.", holds=(what_is_claimed_is_admitted,))
def rewrites_and_adds(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def add(payload: Any, next: Next) -> object:
        answer = await next()
        if not answer.enters or not answer.messages:
            return answer
        said = [message.model_copy(update={"content": (*message.content, *text("!"))}) for message in answer.messages]
        return answer.with_messages((*said, user_message("by the way", source={"kind": "hook"})))


@correct("Rejects one batch, once, with the words that were agreed on.")
def rejects_once(hooks: Hooks) -> None:
    rejected = False

    @at(hooks, "agent/pre-step")
    async def decide(payload: Any, next: Next) -> object:
        nonlocal rejected
        if payload.turn > 1 and not rejected:
            rejected = True
            return Reject("one moment")
        return await next()


@correct("Makes every turn look once more, and counts by turn.", holds=(steps_are_few,))
def looks_once_more_in_each_turn(hooks: Hooks) -> None:
    looked: set[int] = set()

    @at(hooks, "agent/turn-stopping")
    async def look(payload: Any) -> None:
        if payload.turn not in looked:
            looked.add(payload.turn)
            payload.agent.inject("look once more")


@correct("Denies by name, asks about the rest, and takes arguments as they come.", holds=(act_never_runs,))
def denies_by_name(hooks: Hooks) -> None:
    @at(hooks, "tools/guard")
    async def guard(payload: Any) -> object:
        return Deny("act is forbidden") if payload.call.name == "act" else None

    @at(hooks, "tools/pre-execute")
    async def ask(payload: Any, next: Next) -> object:
        verdict = await next()
        if not isinstance(verdict, Allow) or isinstance(payload.arguments, str):
            return verdict
        return (
            Ask("shall I look?")
            if payload.call.name == "look"
            else Allow(FrozenDict({**payload.arguments, "asked": True}))
        )


@correct("Gives every tool a signal of its own, which fires after a second.")
def limits_the_time_of_tools(hooks: Hooks) -> None:
    @at(hooks, "tools/execute")
    async def limit(payload: Any, next: Next) -> object:
        own, outcome = CancelSignal(), None
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await anyio.sleep(1)
                own.fire(HookCancel(reason="too long"))

            group.start_soon(watch)
            outcome = await next(replace(payload, signal=own))
            group.cancel_scope.cancel()
        return outcome


@correct("Lets parallel tools run one after another, by a lock.", holds=(results_name_their_call,))
def runs_tools_one_by_one(hooks: Hooks) -> None:
    lock = anyio.Lock()

    @at(hooks, "tools/execute")
    async def alone(payload: Any, next: Next) -> object:
        async with lock:
            outcome = await next()
        return replace(outcome, content=text(f"for {payload.call.id}")) if outcome.error is None else outcome


@correct("Shortens what tools say, adds a context under a new id, and blocks what is secret.")
def shortens_and_blocks(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def shorten(payload: Any, next: Next) -> object:
        verdict = await next()
        if payload.call.name == "look":
            return Block("it is secret", contexts=(user_message("do not look", source={"kind": "hook"}),))
        if payload.outcome.error is None and isinstance(verdict, Accept) and verdict.value is None:
            return replace(verdict, content=text("short"))
        return verdict


@correct("Passes a stream on in capitals, closes it, and keeps its finish.")
def speaks_in_capitals(hooks: Hooks) -> None:
    async def capitals(chunks: Any) -> AsyncIterator[Chunk]:
        try:
            async for chunk in chunks:
                if isinstance(chunk, TextDelta):
                    yield chunk._replace(text=chunk.text.upper())
                elif isinstance(chunk, BlockEnd) and isinstance(chunk.block, TextBlock):
                    yield chunk._replace(block=TextBlock(text=chunk.block.text.upper()))
                else:
                    yield chunk
        finally:
            await chunks.aclose()

    @at(hooks, "llm/stream")
    async def wrap(payload: Any, next: Next) -> object:
        return capitals(await next())


@correct("Has a budget of three calls in a turn, and cancels from an observer when it is spent.")
def cancels_when_the_budget_is_spent(hooks: Hooks) -> None:
    spent: dict[int, int] = {}

    @at(hooks, "session/event")
    def count(payload: Any) -> None:
        if payload.event.type == "tool/call":
            turn = payload.event.data.turn
            spent[turn] = spent.get(turn, 0) + 1
            if spent[turn] == 3:
                payload.agent.cancel(HookCancel(reason="budget"), keep_inbox=True)


@correct("Steers once from a result, and sends one prompt when the agent first rests.")
def speaks_once_of_itself(hooks: Hooks) -> None:
    steered = prompted = False

    @at(hooks, "tools/result")
    def steer(payload: Any) -> None:
        nonlocal steered
        if not steered:
            steered = True
            payload.agent.steer("mind the result")

    @at(hooks, "agent/status")
    def prompt(payload: Any) -> None:
        nonlocal prompted
        if payload.status == "idle" and not prompted:
            prompted = True
            payload.agent.followup("one more thing")


@correct("Takes itself away while it is called, and puts another in its place.")
def takes_itself_away(hooks: Hooks) -> None:
    stack = ExitStack()

    def later(payload: Any) -> None:
        """The second one stays."""

    def once(payload: Any) -> None:
        stack.close()
        hooks.listen("agent/step-boundary", later, prepend=True)

    stack.enter_context(hooks.listen("agent/step-boundary", once))


@correct("Stops where it stands when its turn is cancelled, by raising what the signal raises.")
def raises_when_cancelled(hooks: Hooks) -> None:
    @at(hooks, "agent/request")
    async def check(payload: Any, next: Next) -> object:
        config = await next()
        with payload.signal.scope():
            await anyio.sleep(0.2)
        payload.signal.raise_if_fired()
        return config.model_copy(update={"max_tokens": 500})


@correct("Looks two things up at once, in a task group that it closes.")
def looks_two_things_up(hooks: Hooks) -> None:
    @at(hooks, "system-prompt/assemble")
    async def look_up(payload: Any, next: Next) -> object:
        found: dict[str, str] = {}

        async def find(name: str, seconds: float) -> None:
            await anyio.sleep(seconds)
            found[name] = f"{name} is known"

        async with anyio.create_task_group() as group:
            group.start_soon(find, "weather", 0.2)
            group.start_soon(find, "time", 0.1)
        made = await next()
        return replace(made, contexts=(*made.contexts, *(PromptText(name, found[name]) for name in sorted(found))))


@correct("Cleans up when it is cancelled, in a bounded shield, and lets the cancellation go on.")
def cleans_up_when_cancelled(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def work(payload: Any) -> None:
        try:
            await anyio.sleep(0.3)
        finally:
            with anyio.move_on_after(1, shield=True):
                await anyio.sleep(0.1)
