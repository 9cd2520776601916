"""Mistakes in choosing: the model, the request, the prompt, and when a turn is enough."""

from __future__ import annotations

from itertools import count
from typing import Any

from lifecycle import Hooks, ModelSelection, PromptAssembly, PromptText

from .entry import Next, at, faulty
from .properties import limits_stay_small, somebody_serves_the_route, steps_are_few, the_prompt_stays, tools_stay


@faulty(
    "Chooses a provider that nobody has set up.",
    "agent/model",
    finds="a turn fails for want of an adapter",
    holds=(somebody_serves_the_route,),
)
def chooses_a_provider_that_is_not_there(hooks: Hooks) -> None:
    @at(hooks, "agent/model")
    async def choose(payload: Any, next: Next) -> object:
        return await next() if payload.step == 1 else ModelSelection(provider="elsewhere", model="big")


@faulty(
    "Doubles the limit of the last request, step by step.",
    "agent/request",
    finds="the limit grows without a bound",
    holds=(limits_stay_small,),
)
def doubles_the_limit_at_each_request(hooks: Hooks) -> None:
    @at(hooks, "agent/request")
    async def grow(payload: Any, next: Next) -> object:
        config = await next()
        return config.model_copy(update={"max_tokens": 2 * (config.max_tokens or 1_000)})


@faulty(
    "Builds a new prompt and forgets the tools.",
    "system-prompt/assemble",
    finds="a request without tools",
    holds=(tools_stay,),
)
def forgets_the_tools(hooks: Hooks) -> None:
    @at(hooks, "system-prompt/assemble")
    async def assemble(payload: Any, next: Next) -> object:
        made = await next()
        return PromptAssembly(sections=(*made.sections, PromptText("manner", "be kind")))


@faulty(
    "Puts into the prompt what changes with each step.",
    "system-prompt/assemble",
    finds="the prompt is told again at each step",
    holds=(the_prompt_stays,),
)
def changes_the_prompt_at_each_step(hooks: Hooks) -> None:
    numbers = count(1)

    @at(hooks, "system-prompt/assemble")
    async def assemble(payload: Any, rest: Next) -> object:
        made = await rest()
        now = PromptText("now", f"this is request {next(numbers)}")
        return PromptAssembly((*made.sections, now), made.variables, made.contexts, made.tools)


@faulty("Uses a variable that nobody gives.", "system-prompt/assemble", finds="the turn fails")
def uses_an_unknown_variable(hooks: Hooks) -> None:
    @at(hooks, "system-prompt/assemble")
    async def assemble(payload: Any, next: Next) -> object:
        made = await next()
        return PromptAssembly(
            (*made.sections, PromptText("user", "you help {{user}}")), made.variables, made.contexts, made.tools
        )


@faulty(
    "Names two sections alike.",
    "system-prompt/assemble",
    finds="a section is told twice",
    holds=(the_prompt_stays,),
)
def names_two_sections_alike(hooks: Hooks) -> None:
    @at(hooks, "system-prompt/assemble")
    async def assemble(payload: Any, next: Next) -> object:
        made = await next()
        more = PromptText("manner", "be kind"), PromptText("manner", "be brief")
        return PromptAssembly((*made.sections, *more), made.variables, made.contexts, made.tools)


@faulty(
    "Asks for another look twenty times, counted over all turns, and never sees that the model is done.",
    "agent/turn-stopping",
    finds="a turn takes many steps",
    holds=(steps_are_few,),
)
def looks_again_too_often(hooks: Hooks) -> None:
    left = 20

    @at(hooks, "agent/turn-stopping")
    async def look_again(payload: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            payload.agent.inject("look again")
