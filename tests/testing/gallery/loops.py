"""Mistakes that never end: each answers what it has caused itself."""

from __future__ import annotations

from typing import Any

from lifecycle import Hooks, Reject, Retry

from .entry import Next, at, faulty
from .properties import no_prompt_of_a_hook_waits, no_prompt_waits

ENDLESS = "the run does not end"
UNBOUNDED = "it asks again without a bound"


@faulty("Asks again after every failure.", "agent/request-error", finds=UNBOUNDED)
def retries_for_ever(hooks: Hooks) -> None:
    @at(hooks, "agent/request-error")
    async def again(payload: Any, next: Next) -> object:
        return Retry()


@faulty("Asks again after visible text, and counts only the failures without.", "agent/request-error", finds=UNBOUNDED)
def retries_for_ever_after_visible_text(hooks: Hooks) -> None:
    silent, spoken = 0, False

    @at(hooks, "agent/assistant-stream")
    def listen(payload: Any) -> None:
        nonlocal spoken
        spoken = payload.frame.type == "chunk" or (payload.frame.type == "end" and spoken)

    @at(hooks, "agent/request-error")
    async def again(payload: Any, next: Next) -> object:
        nonlocal silent
        silent += not spoken
        return Retry() if silent < 3 else await next()


@faulty("Its counter begins anew with each attempt.", "agent/request-error", finds=UNBOUNDED)
def counts_its_retries_in_the_wrong_place(hooks: Hooks) -> None:
    tried = 0

    @at(hooks, "agent/request")
    async def begin(payload: Any, next: Next) -> object:
        nonlocal tried
        tried = 0
        return await next()

    @at(hooks, "agent/request-error")
    async def again(payload: Any, next: Next) -> object:
        nonlocal tried
        tried += 1
        return Retry() if tried <= 3 else await next()


@faulty("Finds something to do whenever the agent rests.", "agent/status", finds=ENDLESS)
def sends_a_prompt_whenever_idle(hooks: Hooks) -> None:
    @at(hooks, "agent/status")
    def go_on(payload: Any) -> None:
        if payload.status == "idle":
            payload.agent.followup("is there anything else?")


@faulty("Sends a prompt while the end of the turn is being announced.", "session/event", finds="it raises")
def asks_for_a_summary_too_early(hooks: Hooks) -> None:
    @at(hooks, "session/event")
    def summarise(payload: Any) -> None:
        if payload.event.type == "turn/end" and payload.event.data.reason.kind == "completed":
            payload.agent.followup("summarise")


@faulty("Lets no turn stop.", "agent/turn-stopping", finds=ENDLESS)
def injects_whenever_a_turn_stops(hooks: Hooks) -> None:
    @at(hooks, "agent/turn-stopping")
    async def continue_(payload: Any) -> None:
        payload.agent.inject("are you sure?")


@faulty("Goes on after every failure, also of what it goes on with.", "agent/status", finds=ENDLESS)
def goes_on_after_every_error(hooks: Hooks) -> None:
    failed = False

    @at(hooks, "agent/error")
    def note(payload: Any) -> None:
        nonlocal failed
        failed = True

    @at(hooks, "agent/status")
    def go_on(payload: Any) -> None:
        nonlocal failed
        if payload.status == "idle" and failed:
            failed = False
            payload.agent.followup("please go on")


@faulty(
    "Sends a prompt while a turn fails, which nobody takes up when it has failed.",
    "agent/error",
    finds="a prompt waits for ever",
    holds=(no_prompt_of_a_hook_waits,),
)
def goes_on_too_early(hooks: Hooks) -> None:
    @at(hooks, "agent/error")
    def go_on(payload: Any) -> None:
        payload.agent.followup("please go on")


@faulty("Acknowledges every message, also its own.", "agent/inbox/inserted", finds="it never comes back")
def answers_its_own_messages(hooks: Hooks) -> None:
    @at(hooks, "agent/inbox/inserted")
    def acknowledge(payload: Any) -> None:
        payload.agent.inject("noted")


@faulty("Adds a reminder to every step, which makes another step.", "agent/step-boundary", finds=ENDLESS)
def reminds_at_every_step(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def remind(payload: Any) -> None:
        payload.agent.inject("remember the rules")


@faulty(
    "Puts a prompt off: rejects it and sends it again, where it waits until somebody else prompts.",
    "agent/pre-step",
    finds="a prompt waits for ever",
    holds=(no_prompt_waits,),
)
def puts_a_prompt_off_for_ever(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def later(payload: Any, next: Next) -> object:
        if payload.turn % 2:
            return await next()
        for message in payload.messages:
            payload.agent.send(message, "next-turn", wakeup=True)
        return Reject("not now")
