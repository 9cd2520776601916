"""Mistakes with what is said: dropped, doubled, sent back, or remembered too long."""

from __future__ import annotations

from typing import Any

from lifecycle import Enter, Hooks, Reject, UserMessage, user_message

from .entry import Next, at, faulty
from .properties import (
    only_cancelled_turns_are_aborted,
    prompts_are_not_rejected,
    what_is_cancelled_is_not_said,
    what_is_claimed_is_admitted,
)

TWICE = "a message is admitted twice"


@faulty(
    "Enters what came first, and drops what steers the turn later.",
    "agent/pre-step",
    finds="a steering message is lost",
    holds=(what_is_claimed_is_admitted,),
)
def drops_steering(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def protect(payload: Any, next: Next) -> object:
        return await next() if payload.step == 1 else Enter(())


@faulty(
    "Keeps the last of several messages only.",
    "agent/pre-step",
    finds="a message is lost",
    holds=(what_is_claimed_is_admitted,),
)
def keeps_the_last_message_only(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def latest(payload: Any, next: Next) -> object:
        return Enter(payload.messages[-1:])


@faulty(
    "Merges several messages and makes a new one of them, under a new name, also where there is but one.",
    "agent/pre-step",
    finds="a message is lost",
    holds=(what_is_claimed_is_admitted,),
)
def merges_messages_under_a_new_name(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def merge(payload: Any, next: Next) -> object:
        blocks = [block for message in payload.messages for block in message.content]
        return Enter((user_message(blocks),)) if blocks else await next()


@faulty("Adds the batch to an answer that has it already.", "agent/pre-step", finds=TWICE)
def adds_the_batch_twice(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def add(payload: Any, next: Next) -> object:
        answer = await next()
        return answer.with_messages((*payload.messages, *answer.messages)) if answer.enters else answer


@faulty("Says everything again that was said in earlier steps.", "agent/pre-step", finds=TWICE)
def says_everything_again(hooks: Hooks) -> None:
    said: list[UserMessage] = []

    @at(hooks, "agent/pre-step")
    async def remember(payload: Any, next: Next) -> object:
        said.extend(payload.messages)
        return Enter(tuple(said))


@faulty("Takes one message and sends the others again, but counts from the first.", "agent/pre-step", finds=TWICE)
def sends_again_what_it_enters(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def one_by_one(payload: Any, next: Next) -> object:
        if len(payload.messages) < 2:
            return await next()
        for message in payload.messages:
            payload.agent.send(message, "next-turn", wakeup=True)
        return Enter(payload.messages[:1])


@faulty(
    "Sends again what a cancel has discarded.",
    "agent/inbox/discarded",
    finds="a cancel discards nothing",
    holds=(what_is_cancelled_is_not_said,),
)
def saves_what_a_cancel_discards(hooks: Hooks) -> None:
    @at(hooks, "agent/inbox/discarded")
    def save(payload: Any) -> None:
        payload.agent.send(payload.message, "next-turn", wakeup=True)


@faulty(
    "Counts the steps of all turns, to limit those of one.",
    "agent/pre-step",
    finds="a later prompt is rejected",
    holds=(prompts_are_not_rejected,),
)
def counts_over_all_turns(hooks: Hooks) -> None:
    steps = 0

    @at(hooks, "agent/pre-step")
    async def limit(payload: Any, next: Next) -> object:
        nonlocal steps
        steps += 1
        return await next() if steps <= 3 else Reject("too many steps")


@faulty(
    "Notes that a turn is open, and that it is not only where it stops in order.",
    "agent/pre-step",
    finds="the prompt after a cancel is rejected",
    holds=(prompts_are_not_rejected,),
)
def leaves_its_state_when_a_turn_is_cancelled(hooks: Hooks) -> None:
    open_turn = 0

    @at(hooks, "agent/turn-stopping")
    async def stop(payload: Any) -> None:
        nonlocal open_turn
        open_turn = 0

    @at(hooks, "agent/pre-step")
    async def start(payload: Any, next: Next) -> object:
        nonlocal open_turn
        if open_turn not in (0, payload.turn):
            return Reject("busy")
        open_turn = payload.turn
        return await next()


@faulty(
    "Cancels a turn that takes more than one step, and takes what it was told for said.",
    "agent/step-boundary",
    finds="a turn is aborted that nobody cancelled",
    holds=(only_cancelled_turns_are_aborted,),
)
def cancels_at_the_boundary(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def limit(payload: Any) -> None:
        if payload.step > 1:
            payload.agent.cancel()


@faulty(
    "One registry for all agents, which remembers the prompts of the others.",
    "agent/pre-step",
    finds="the factory gives out one registry twice",
    holds=(prompts_are_not_rejected,),
    fresh=False,
)
def shares_its_state_between_agents(hooks: Hooks) -> None:
    seen: set[str] = set()

    @at(hooks, "agent/pre-step")
    async def once(payload: Any, next: Next) -> object:
        for message in payload.messages:
            if message.id in seen:
                return Reject("seen")
            seen.add(message.id)
        return await next()
