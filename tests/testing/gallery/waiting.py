"""Mistakes of hooks that wait: too long, for the wrong thing, past a cancel, or in a task of their own."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import anyio

from lifecycle import CancelSignal, Deny, Hooks, Reject, Retry, ToolOutcome
from lifecycle.vocabulary.messages import text

from .entry import Next, at, faulty, forget_a_task
from .properties import prompts_are_not_rejected

SLOW = "it does not return within the deadline"
LEAKS = "a task is left"
SWALLOWS = "it keeps a cancellation to itself"


@faulty("Catches everything around a wait, the cancellation too.", "agent/step-boundary", finds=SWALLOWS)
def swallows_a_cancellation(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def look_up(payload: Any) -> None:
        with suppress(BaseException):
            await anyio.sleep(1)


@faulty("Makes an error outcome of everything that a tool may raise.", "tools/execute", finds=SWALLOWS)
def makes_an_outcome_of_a_cancellation(hooks: Hooks) -> None:
    @at(hooks, "tools/execute")
    async def shelter(payload: Any, next: Next) -> object:
        try:
            return await next()
        except BaseException as error:
            return ToolOutcome(text(repr(error)))


@faulty("Tries again what a cancellation has ended.", "agent/pre-step", finds=SWALLOWS)
def begins_again_after_a_cancellation(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def look_up(payload: Any, next: Next) -> object:
        for _ in range(2):
            try:
                await anyio.sleep(1)
                break
            except anyio.get_cancelled_exc_class():
                continue
        return await next()


@faulty("Waits in a scope that nothing can end.", "agent/turn-stopping", finds=SLOW)
def shields_a_long_wait(hooks: Hooks) -> None:
    @at(hooks, "agent/turn-stopping")
    async def upload(payload: Any) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3_600)


@faulty("Takes an hour for every call.", "tools/pre-execute", finds=SLOW)
def is_slow(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def ask_a_person(payload: Any, next: Next) -> object:
        await anyio.sleep(3_600)
        return await next()


@faulty("Waits for something that nobody sets.", "agent/pre-step", finds=SLOW)
def waits_for_nothing(hooks: Hooks) -> None:
    ready = anyio.Event()

    @at(hooks, "agent/pre-step")
    async def wait(payload: Any, next: Next) -> object:
        await ready.wait()
        return await next()


@faulty("Waits for the cancel of a turn that nobody cancels.", "agent/turn-stopping", finds=SLOW)
def waits_for_a_cancel(hooks: Hooks) -> None:
    @at(hooks, "agent/turn-stopping")
    async def hold(payload: Any) -> None:
        await payload.signal.wait()


@faulty("Waits inside a turn until the agent is idle.", "agent/step-boundary", finds=SLOW)
def waits_for_its_own_end(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def wait(payload: Any) -> None:
        while payload.step > 1 and payload.agent.status == "running":  # noqa: ASYNC110  # part of the mistake
            await anyio.sleep(1)


@faulty("Takes a lock for the call and never gives it back.", "tools/execute", finds=SLOW)
def keeps_a_lock(hooks: Hooks) -> None:
    free = anyio.Semaphore(1)

    @at(hooks, "tools/execute")
    async def alone(payload: Any, next: Next) -> object:
        await free.acquire()
        outcome = await next()
        if outcome.error is None:
            free.release()
        return outcome


@faulty("Backs off twice as long each time, whether or not it is still wanted.", "agent/request-error", finds=SLOW)
def backs_off_without_a_limit(hooks: Hooks) -> None:
    @at(hooks, "agent/request-error")
    async def again(payload: Any, next: Next) -> object:
        await anyio.sleep(60 * 2**payload.attempt)
        return Retry() if payload.attempt < 8 else await next()


@faulty("Starts a task for every step and forgets it.", "agent/step-boundary", finds=LEAKS)
def leaks_a_task(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def prefetch(payload: Any) -> None:
        forget_a_task()


@faulty("An observer that works in a task, because nobody waits for it.", "tools/result", finds=LEAKS)
def leaks_a_task_from_an_observer(hooks: Hooks) -> None:
    @at(hooks, "tools/result")
    def upload(payload: Any) -> None:
        forget_a_task()


@faulty("Opens a task group and leaves it open.", "agent/pre-step", finds=LEAKS)
def leaves_a_task_group_open(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def start(payload: Any, next: Next) -> object:
        group = await anyio.create_task_group().__aenter__()
        group.start_soon(anyio.sleep, math.inf)
        return await next()


@faulty(
    "Keeps the signal of the first turn, and takes its cancel for one of every later turn.",
    "agent/pre-step",
    finds="a prompt is rejected that nobody cancelled",
    holds=(prompts_are_not_rejected,),
)
def keeps_the_signal_of_an_old_turn(hooks: Hooks) -> None:
    kept: list[CancelSignal] = []

    @at(hooks, "agent/pre-step")
    async def decide(payload: Any, next: Next) -> object:
        kept.append(payload.signal)
        return Reject("cancelled") if kept[0].fired and kept[0] is not payload.signal else await next()


@faulty("Waits for an approval that a cancel should end.", "tools/guard", finds=SLOW)
def asks_past_a_cancel(hooks: Hooks) -> None:
    @at(hooks, "tools/guard")
    async def ask(payload: Any) -> object:
        for _ in range(600):
            if payload.call.arguments == "yes":
                return None
            await anyio.sleep(1)
        return Deny("nobody answered")
