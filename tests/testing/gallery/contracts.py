"""Mistakes against the contract of a point: what a listener hands on, gives back, and may touch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel

from lifecycle import Deny, Hooks, ModelSelection, Reject
from lifecycle.vocabulary.values import FrozenDict

from .entry import Next, at, faulty

TWICE = "next() is called twice"
ILLEGAL = "an answer that the point does not allow"
TOUCHED = "a value that belongs to somebody else is changed in place"


@faulty("Asks for the model again, to see whether it is still the same.", "agent/model", finds=TWICE)
def calls_next_twice(hooks: Hooks) -> None:
    @at(hooks, "agent/model")
    async def choose(payload: Any, next: Next) -> object:
        return await next() if await next() else ModelSelection()


@faulty("Tries a tool again that has failed, by a second next().", "tools/execute", finds=TWICE)
def tries_a_tool_again(hooks: Hooks) -> None:
    @at(hooks, "tools/execute")
    async def insist(payload: Any, next: Next) -> object:
        outcome = await next()
        return outcome if outcome.error is None else await next()


@faulty("Asks again when another hook has rejected.", "agent/pre-step", finds=TWICE)
def asks_until_it_is_entered(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def decide(payload: Any, next: Next) -> object:
        answer = await next()
        return answer if answer.enters else await next()


@faulty("Takes a message out by handing the rest another payload.", "agent/pre-step", finds="next() on another payload")
def hands_on_another_payload(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def first_only(payload: Any, next: Next) -> object:
        return await next(replace(payload, messages=payload.messages[:1]))


@faulty("Hands the rest other arguments; only the verdict can.", "tools/execute", finds="next() on another payload")
def hands_on_other_arguments(hooks: Hooks) -> None:
    @at(hooks, "tools/execute")
    async def mark(payload: Any, next: Next) -> object:
        return await next(replace(payload, arguments={**payload.arguments, "marked": True}))


@faulty("Forgets to return what the rest has answered.", "agent/request", finds=ILLEGAL)
def forgets_to_return(hooks: Hooks) -> None:
    @at(hooks, "agent/request")
    async def watch(payload: Any, next: Next) -> None:
        await next()


@faulty("Returns only in one branch: None for every call but the dangerous one.", "tools/pre-execute", finds=ILLEGAL)
def answers_only_what_it_minds(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def mind(payload: Any, next: Next) -> object:
        if payload.call.name == "act":
            return Deny("not this one")
        return None


@faulty("Forgets to await the rest.", "agent/pre-step", finds=ILLEGAL)
def forgets_to_await(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def pass_on(payload: Any, next: Next) -> object:
        return next()


@faulty("Says True where it means that nothing is wrong.", "tools/guard", finds=ILLEGAL)
def guard_says_true(hooks: Hooks) -> None:
    @at(hooks, "tools/guard")
    def check(payload: Any) -> object:
        return payload.tool is not None


@faulty("Denies after the tool has run.", "tools/post-execute", finds=ILLEGAL)
def denies_afterwards(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def look(payload: Any, next: Next) -> object:
        return Deny("too late") if payload.outcome.error else await next()


@faulty("Rejects at the boundary, where nobody asks.", "agent/step-boundary", finds=ILLEGAL)
def rejects_at_the_boundary(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def stop(payload: Any) -> object:
        return Reject("enough steps") if payload.step > 1 else None


@faulty("A veto that answers instead of raising.", "session/append", finds=ILLEGAL)
def veto_answers(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def check(payload: Any) -> object:
        return payload.event.type != "tool/call"


@faulty("Hands out the text of a stream, not the stream.", "llm/stream", finds=ILLEGAL)
def returns_a_list_of_chunks(hooks: Hooks) -> None:
    @at(hooks, "llm/stream")
    async def collect(payload: Any, next: Next) -> object:
        return [chunk async for chunk in await next()]


@faulty("An async function where nobody waits.", "agent/status", finds="it is refused when it is registered")
def async_listener_of_an_emit(hooks: Hooks) -> None:
    @at(hooks, "agent/status")
    async def tell(payload: Any) -> None:
        await anyio.lowlevel.checkpoint()


@faulty("A plain function that returns an awaitable where nobody waits.", "agent/status", finds="it never runs")
def hidden_awaitable_of_an_emit(hooks: Hooks) -> None:
    hooks.listen("agent/status", lambda payload: anyio.lowlevel.checkpoint())


@faulty("Reads the chunk of each frame; the first and the last have none.", "agent/assistant-stream", finds="it raises")
def reads_what_is_not_there(hooks: Hooks) -> None:
    shown: list[object] = []

    @at(hooks, "agent/assistant-stream")
    def show(payload: Any) -> None:
        shown.append(payload.frame.chunk)


@faulty("Takes every inner answer for Enter.", "agent/pre-step", finds="it raises when another hook rejects")
def takes_every_answer_for_enter(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def trim(payload: Any, next: Next) -> object:
        answer = await next()
        return answer.with_messages(answer.messages[:2])


# -- changes in place ---------------------------------------------------------------------------------------------


@faulty("Cleans a message in place, past the frozen model.", "agent/pre-step", finds=TOUCHED)
def cleans_a_message_in_place(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def clean(payload: Any, next: Next) -> object:
        for message in payload.messages:
            message.__dict__["content"] = ()
        return await next()


@faulty("Swaps the messages of the payload, past the frozen dataclass.", "agent/pre-step", finds=TOUCHED)
def swaps_a_field_of_the_payload(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def reverse(payload: Any, next: Next) -> object:
        object.__setattr__(payload, "messages", (*payload.messages, *payload.messages[:1]))
        return await next()


@faulty("A copy that is not validated: text where blocks belong.", "agent/pre-step", finds="an invalid message")
def copies_without_validation(hooks: Hooks) -> None:
    @at(hooks, "agent/pre-step")
    async def rewrite(payload: Any, next: Next) -> object:
        answer = await next()
        if not answer.enters:
            return answer
        return answer.with_messages(message.model_copy(update={"content": "rewritten"}) for message in answer.messages)


@faulty("Fills arguments in, past the frozen object.", "tools/pre-execute", finds=TOUCHED)
def fills_arguments_in_place(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def fill(payload: Any, next: Next) -> object:
        if isinstance(payload.arguments, FrozenDict):
            dict[str, Any].__setitem__(payload.arguments, "root", "/tmp")
        return await next()


@faulty("Raises the effort of the agent's own choice, which is everybody's default.", "agent/model", finds=TOUCHED)
def changes_the_default_model(hooks: Hooks) -> None:
    @at(hooks, "agent/model")
    async def think(payload: Any, next: Next) -> object:
        selection = await next()
        object.__setattr__(selection, "effort", "high")
        return selection


@faulty("Lowers the limit of the configuration that is in the log.", "agent/request", finds=TOUCHED)
def changes_the_logged_configuration(hooks: Hooks) -> None:
    @at(hooks, "agent/request")
    async def limit(payload: Any, next: Next) -> object:
        config = await next()
        config.__dict__["max_tokens"] = 100 * payload.step
        return config


@faulty("Hides a text in the event that a veto is asked about.", "session/append", finds=TOUCHED)
def hides_a_text_in_a_veto(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def hide(payload: Any) -> None:
        if payload.event.type == "user/message":
            payload.event.data.message.__dict__["content"] = ()


@faulty("Cuts the outcome of a tool in place.", "tools/post-execute", finds=TOUCHED)
def cuts_an_outcome_in_place(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def cut(payload: Any, next: Next) -> object:
        object.__setattr__(payload.outcome, "content", payload.outcome.content[:0])
        return await next()
