"""Mistakes around tool calls: denials that leak, results of the wrong call, contexts that come through a block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio

from lifecycle import Accept, Allow, Block, Deny, Hooks, ToolOutcome
from lifecycle.vocabulary.messages import ToolCallBlock, text

from .entry import Next, at, faulty
from .properties import (
    act_never_runs,
    blocked_calls_give_no_context,
    contexts_are_sent_once,
    denied_calls_do_not_run,
    no_call_fails_in_a_hook,
    results_name_their_call,
)

RAISES = "it raises"


@faulty(
    "Denies the first call only, because it then takes the matter for settled.",
    "tools/guard",
    finds="a forbidden tool runs",
    holds=(act_never_runs,),
)
def denies_the_first_call_only(hooks: Hooks) -> None:
    denied = False

    @at(hooks, "tools/guard")
    def guard(payload: Any) -> object:
        nonlocal denied
        if payload.call.name != "act" or denied:
            return None
        denied = True
        return Deny("act is forbidden")


@faulty(
    "Denies calls without arguments, and takes those with some for harmless.",
    "tools/pre-execute",
    finds="a forbidden tool runs",
    holds=(act_never_runs,),
)
def denies_calls_without_arguments_only(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def check(payload: Any, next: Next) -> object:
        return Deny("act is forbidden") if payload.call.name == "act" and not payload.arguments else await next()


@faulty(
    "Says that a call may run, whatever the hooks below say.",
    "tools/pre-execute",
    finds="a call runs that another hook has denied",
    holds=(denied_calls_do_not_run,),
)
def overrules_a_denial(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def stamp(payload: Any, next: Next) -> object:
        await next()
        return Allow()


@faulty("Raises where it means to deny.", "tools/pre-execute", finds=RAISES)
def raises_instead_of_denying(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def check(payload: Any, next: Next) -> object:
        if payload.call.name == "act":
            raise PermissionError("act is forbidden")
        return await next()


@faulty("Reads arguments that are no JSON as if they were an object.", "tools/pre-execute", finds=RAISES)
def reads_raw_arguments_as_an_object(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def check(payload: Any, next: Next) -> object:
        return Deny("too many") if payload.arguments.get("n", 0) > 3 else await next()


@faulty(
    "Gives a call arguments that are no JSON.",
    "tools/pre-execute",
    finds="the call fails",
    holds=(no_call_fails_in_a_hook,),
)
def adds_an_object_to_the_arguments(hooks: Hooks) -> None:
    @at(hooks, "tools/pre-execute")
    async def add(payload: Any, next: Next) -> object:
        verdict = await next()
        if not isinstance(verdict, Allow) or isinstance(payload.arguments, str):
            return verdict
        given: Any = {**payload.arguments, "agent": payload.agent}
        return Allow(given)


@faulty("Looks at the tool of a call whose tool is gone.", "tools/result", finds=RAISES)
def looks_up_a_call_that_never_began(hooks: Hooks) -> None:
    begun: dict[str, ToolCallBlock] = {}

    @at(hooks, "tools/pre-execute")
    async def begin(payload: Any, next: Next) -> object:
        begun[payload.call.id] = payload.call
        return await next()

    @at(hooks, "tools/result")
    def end(payload: Any) -> None:
        begun.pop(payload.call.id)


@faulty(
    "Keeps the running call in one variable, while calls run side by side.",
    "tools/execute",
    finds="a result of another call",
    holds=(results_name_their_call,),
)
def keeps_the_running_call_in_one_variable(hooks: Hooks) -> None:
    running = ""

    @at(hooks, "tools/execute")
    async def label(payload: Any, next: Next) -> object:
        nonlocal running
        running = payload.call.id
        outcome = await next()
        return replace(outcome, content=text(f"for {running}"))


@faulty(
    "Remembers results by the name of their tool.",
    "tools/execute",
    finds="a result of another call",
    holds=(results_name_their_call,),
)
def remembers_results_by_name(hooks: Hooks) -> None:
    known: dict[str, ToolOutcome] = {}

    @at(hooks, "tools/execute")
    async def remember(payload: Any, next: Next) -> object:
        if payload.call.name not in known:
            known[payload.call.name] = replace(await next(), content=text(f"for {payload.call.id}"))
        return known[payload.call.name]


@faulty("Gives back the content of an outcome, and not the outcome.", "tools/execute", finds="an illegal answer")
def returns_the_text_of_an_outcome(hooks: Hooks) -> None:
    @at(hooks, "tools/execute")
    async def unwrap(payload: Any, next: Next) -> object:
        outcome = await next()
        return outcome.content if outcome.error is None else outcome


@faulty(
    "Blocks a result, and passes on what the tool had deferred.",
    "tools/post-execute",
    finds="a context of a blocked call is said",
    holds=(blocked_calls_give_no_context,),
)
def leaks_contexts_through_a_block(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def block(payload: Any, next: Next) -> object:
        return Block("not for you", contexts=payload.outcome.contexts)


@faulty(
    "Adds the contexts of the outcome to themselves.",
    "tools/post-execute",
    finds="a message is sent twice",
    holds=(contexts_are_sent_once,),
)
def sends_contexts_twice(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def keep(payload: Any, next: Next) -> object:
        return Accept(contexts=payload.outcome.contexts)


@faulty(
    "Accepts with a text and a value.",
    "tools/post-execute",
    finds="the call fails",
    holds=(no_call_fails_in_a_hook,),
)
def accepts_with_text_and_value(hooks: Hooks) -> None:
    @at(hooks, "tools/post-execute")
    async def both(payload: Any, next: Next) -> object:
        return Accept(content=text("done"), value={"done": True})


@faulty("Waits until two calls have come, to run them together.", "tools/execute", finds="it does not return")
def waits_for_a_second_call(hooks: Hooks) -> None:
    come = 0
    both = anyio.Event()

    @at(hooks, "tools/execute")
    async def together(payload: Any, next: Next) -> object:
        nonlocal come
        come += 1
        if come == 2:
            both.set()
        await both.wait()
        return await next()
