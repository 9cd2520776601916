"""A fallback: the next route is asked in the open step, and the log says which one served."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from lifecycle_adapters.routing import Fallback

from lifecycle import Agent, Hooks
from lifecycle.errors import RouteError
from lifecycle.services.model import Model
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.requests import ModelSelection

pytestmark = pytest.mark.anyio


def broken(code: str = FailureCode.OVERLOADED) -> Reply:
    return Reply.failure(code)


def model(provider: str, *replies: Reply) -> ScriptedModel:
    return ScriptedModel(*replies, provider=provider, model="m")


async def run(models: list[ScriptedModel], *prompts: str, hooks: Hooks) -> list[Any]:
    by_name: dict[str, Model] = {one.provider: one for one in models}
    with anyio.fail_after(10):
        async with Agent(by_name, route="a/m", hooks=hooks) as agent:
            for prompt in prompts:
                agent.followup(prompt)
                await agent.when_idle()
            return list(agent.session.events)


def routes(events: list[Any]) -> list[str]:
    return [event.data.header.config.provider for event in events if event.type == "request/header"]


def ends(events: list[Any]) -> list[str]:
    return [event.data.reason.kind for event in events if event.type == "turn/end"]


async def test_the_next_route_is_asked_in_the_open_step_and_stays_for_the_turn() -> None:
    a = model("a", broken(), Reply(text="again"))
    b = model("b", Reply(calls=[("none", {})]), Reply(text="done"))
    events = await run([a, b], "one", "two", hooks=Fallback("a/m", "b/m").hooks)

    assert ends(events) == ["completed", "completed"]
    assert routes(events) == ["a", "b", "a"]
    assert [event.type for event in events].count("step/start") == 3
    served = [event.data.message.source["provider"] for event in events if event.type == "assistant/message"]
    assert served == ["b", "b", "a"]


async def test_only_declared_failures_lead_on_and_after_the_last_route_the_failure_stands() -> None:
    refused = await run(
        [model("a", broken(FailureCode.INVALID_REQUEST)), model("b")], "one", hooks=Fallback("a/m", "b/m").hooks
    )
    assert (ends(refused), routes(refused)) == (["error"], ["a"])
    declared = Fallback("a/m", "b/m", on=[FailureCode.INVALID_REQUEST]).hooks
    events = await run([model("a", broken(FailureCode.INVALID_REQUEST)), model("b", broken())], "one", hooks=declared)
    assert (ends(events), routes(events)) == (["error"], ["a", "b"])
    assert events[-1].data.reason.error.code == "OVERLOADED"


async def test_an_adapter_that_is_missing_is_a_reason_to_ask_another() -> None:
    events = await run([model("b", Reply(text="done"))], "one", hooks=Fallback("a/m", "b/m").hooks)

    assert ends(events) == ["completed"]


async def test_a_step_for_which_somebody_chose_another_route_is_left_alone() -> None:
    hooks = Fallback("a/m", "b/m").hooks

    @hooks.on("agent/model")
    async def other(payload: Any, next: Any) -> ModelSelection:
        await next()
        return ModelSelection(provider="c", model="m")

    events = await run([model("a"), model("b"), model("c", broken())], "one", hooks=hooks)

    assert (ends(events), routes(events)) == (["error"], ["c"])


@pytest.mark.parametrize("given", [["a/m"], ["a/m", "a/m"], ["a", "b/m"], [ModelSelection(provider="a"), "b/m"]])
def test_routes_that_make_no_fallback_are_refused(given: list[Any]) -> None:
    with pytest.raises(RouteError):
        Fallback(*given)
