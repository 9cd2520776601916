"""Model selection: a choice holds from the next step boundary on, for whole steps, and is told once."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle import Hooks, ModelSelection, Reject, Session, tool
from lifecycle.errors import PolicyError, RouteError
from lifecycle.policies.retry import RetryOptions, retrying
from lifecycle.policies.selection import ModelSwitch
from lifecycle.testing import Gate, Reply, check_hooks
from lifecycle.vocabulary.events import RequestHeader, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Errored
from lifecycle.vocabulary.messages import text_of

from ..conformance.kit import Next, Scene, scene
from .kit import BACKENDS

pytestmark = pytest.mark.anyio

ROUTES = {
    "small": ModelSelection(model="small"),
    "deep": ModelSelection(model="large", effort="high"),
    "elsewhere": ModelSelection(provider="nobody", model="x"),
}
TOLD = "From here on another model answers: {}."


@tool
def look() -> str:
    """Look."""
    return "seen"


def models(s: Scene) -> list[str | None]:
    return [request.config.model for request in s.model.requests]


def said(s: Scene) -> list[str]:
    return [text_of(data.message) for data in s.data(UserMessageEvent)]


async def test_stb_03_a_choice_commits_also_where_the_proposal_is_rejected_and_is_told_in_the_next_step() -> None:
    switch, refusing = ModelSwitch(ROUTES), Hooks()

    @refusing.on("agent/pre-step")
    async def refuse(payload: Any, next: Next[Any]) -> Any:
        decision = await next()
        return Reject() if text_of(payload.messages[0]) == "one" else decision

    async with scene(hooks=refusing + switch.hooks) as s:
        switch.select("small")
        assert (switch.selected, switch.pending) == (None, "small")
        await s.say("one")
        assert (switch.selected, switch.pending, said(s)) == ("small", None, [])
        await s.say("two", "three")

        assert said(s) == ["two", TOLD.format("small"), "three"]
        assert models(s) == ["small", "small"]


async def test_a_choice_in_an_open_step_waits_for_the_next_one_and_its_retries_stay_with_the_old_one() -> None:
    switch, gate = ModelSwitch(ROUTES), Gate()
    script = (Reply.failure("SERVER").held(gate), Reply(calls=[("look", {})]), Reply(text="done"))
    async with scene(*script, tools=[look], hooks=retrying(RetryOptions(chance=lambda: 0.0)) + switch.hooks) as s:
        s.agent.followup("one")
        await gate.reached()
        switch.select("small")
        switch.select("deep")
        gate.open()
        await s.idle()

        assert models(s) == ["script-1", "script-1", "large"]
        assert [request.config.effort for request in s.model.requests] == [None, None, "high"]
        assert said(s) == ["one", TOLD.format("deep")]  # in the step that the tools owed, which had no input


async def test_a_choice_is_told_again_where_the_step_was_left_before_its_input_was_admitted() -> None:
    switch = ModelSwitch(ROUTES)
    async with scene(hooks=switch.hooks) as s:
        switch.select("small")
        s.model.preparing.append(RuntimeError("broken"))
        await s.say("one")
        await s.say("two")

        assert [reason.kind for reason in s.reasons] == ["error", "completed"]
        assert said(s) == ["two", TOLD.format("small")]


async def test_a_choice_that_was_taken_back_before_anybody_heard_of_it_is_not_told() -> None:
    switch = ModelSwitch(ROUTES)
    async with scene(hooks=switch.hooks) as s:
        switch.select("small")
        await s.say("one")
        switch.select("deep")
        switch.select("small")
        await s.say("two")

        assert said(s) == ["one", TOLD.format("small"), "two"]


async def test_a_switch_alone_opens_no_step() -> None:
    switch, emptying = ModelSwitch(ROUTES), Hooks()

    @emptying.on("agent/pre-step")
    async def empty(payload: Any, next: Next[Any]) -> Any:
        return (await next()).with_messages(())

    async with scene(hooks=switch.hooks + emptying) as s:
        switch.select("small")
        await s.say("one")
        assert "step/start" not in s.durable


async def test_a_route_that_nobody_offers_is_refused_and_changes_nothing() -> None:
    switch = ModelSwitch(ROUTES)
    switch.select("deep")

    with pytest.raises(RouteError, match="there is no route 'shallow' to select; there are: small, deep, elsewhere"):
        switch.select("shallow")

    assert switch.pending == "deep"


async def test_a_route_that_no_adapter_serves_fails_the_turn_with_a_sentence_and_the_next_choice_mends_it() -> None:
    switch = ModelSwitch(ROUTES)
    async with scene(hooks=switch.hooks) as s:
        switch.select("elsewhere")
        await s.say("one")
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.message == "no adapter serves the provider 'nobody'"
        switch.select("small")
        await s.say("two")

        assert s.reasons[-1] == COMPLETED
        assert said(s)[0] == "one"
        assert [data.header.config.provider for data in s.data(RequestHeader)] == ["nobody", "scripted"]


async def test_a_resumed_session_goes_on_with_the_route_that_was_told_if_it_is_offered() -> None:
    switch = ModelSwitch(ROUTES)
    async with scene(hooks=switch.hooks) as s:
        switch.select("small")
        await s.say("one")
        events = s.session.events
    for routes, selected in [(ROUTES, "small"), ({"other": ModelSelection(effort="low")}, None)]:
        again = ModelSwitch(routes)
        async with scene(hooks=again.hooks, session=Session.seeded(events, "again")) as s:
            await s.say("two")
            assert again.selected == selected
            assert len([text for text in said(s) if text.startswith("From here on")]) == 1


@pytest.mark.parametrize(
    ("routes", "told"),
    [
        ({}, "there are no routes to choose from"),
        ({"a": ModelSelection()}, "the route 'a' names neither provider"),
        ({"a": "small"}, r"ModelSwitch: routes\['a'\]='small' is not a ModelSelection"),
    ],
)
async def test_routes_that_cannot_work_are_refused(routes: dict[str, Any], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        ModelSwitch(routes)


def build_switching() -> Hooks:
    """For the check of hooks: somebody chooses another route whenever a turn has ended, and in the middle of steps."""
    switch = ModelSwitch({"a": ModelSelection(effort="low"), "b": ModelSelection(effort="high")})

    @switch.hooks.on("session/event")
    def choose(payload: Any) -> None:
        if payload.event.type in ("turn/start", "assistant/message"):
            switch.select("ab"[payload.event.seq % 2])

    return switch.hooks


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    report = check_hooks(build_switching, examples=80, seed=7, backends=BACKENDS)
    report.coverage.require(verdicts=[("agent/model", "ModelSelection"), ("agent/pre-step", "Enter")])
