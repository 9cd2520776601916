"""What searching the abstract runs has found, on the real agent."""

from __future__ import annotations

import pytest
from anyio import fail_after

from lifecycle import Agent, Hooks
from lifecycle.services.points import InboxPayload
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import Event, InboxSpliced, UserMessageEvent
from lifecycle.vocabulary.failures import DISPOSED_CANCEL
from lifecycle.vocabulary.messages import user_message

pytestmark = pytest.mark.anyio


async def test_who_is_told_what_the_cancel_of_an_idle_agent_discards_can_wake_it_whatever_the_cause() -> None:
    hooks = Hooks()

    @hooks.on("agent/inbox/discarded")
    def ask_again(payload: InboxPayload) -> None:
        agent.steer("again")

    with fail_after(5):
        async with Agent(ScriptedModel(otherwise=Reply(text="ok")), hooks=hooks) as agent:
            agent.inject("staged")
            agent.cancel(DISPOSED_CANCEL)
            await agent.when_idle()

            assert not agent.inbox.pending

    admitted = [event for event in agent.session.events if isinstance(event.data, UserMessageEvent)]
    assert len(admitted) == 1


async def test_what_a_cancel_discards_is_announced_before_an_observer_of_it_discards_more() -> None:
    hooks, heard = Hooks(), list[str]()
    hooks.listen("agent/inbox/discarded", lambda payload: heard.append(f"told {payload.message.id}"))

    with fail_after(5):
        async with Agent(ScriptedModel(otherwise=Reply(text="ok")), hooks=hooks) as agent:
            agent.followup("runs")
            agent.inject(user_message("more", id="more"))
            agent.followup(user_message("next", id="next"))

            def observe(event: Event) -> None:
                if isinstance(event.data, InboxSpliced) and event.data.outcome:
                    heard.append(event.data.target)
                    agent.cancel()

            agent.session.observe(observe)
            agent.cancel()
            await agent.when_idle()

    assert heard == ["next-step", "told more", "next-turn", "told next"]


@pytest.mark.parametrize("then", ["replaces", "cancels", "sends"])
async def test_an_edit_is_told_whole_before_what_comes_of_its_first_half(then: str) -> None:
    hooks, heard = Hooks(), list[str]()

    @hooks.on("agent/inbox/inserted")
    def came(payload: InboxPayload) -> None:
        heard.append(f"+{payload.message.id}")

    @hooks.on("agent/inbox/discarded")
    def went(payload: InboxPayload) -> None:
        heard.append(f"-{payload.message.id}")
        if payload.message.id == "first" and then == "replaces":
            agent.inbox.replace("second", user_message("third", id="third"))
        elif payload.message.id == "first" and then == "cancels":
            agent.cancel()
        elif payload.message.id == "first":
            agent.inject(user_message("third", id="third"))

    with fail_after(5):
        async with Agent(ScriptedModel(otherwise=Reply(text="ok")), hooks=hooks) as agent:
            agent.inject(user_message("first", id="first"))
            agent.inbox.replace("first", user_message("second", id="second"))

    rest = {"replaces": ["-second", "+third"], "cancels": ["-second"], "sends": ["+third"]}[then]
    assert heard == ["+first", "-first", "+second", *rest]


async def test_an_observer_of_an_edit_that_cancels_comes_after_what_it_observes() -> None:
    hooks, heard = Hooks(), list[str]()
    hooks.listen("agent/inbox/inserted", lambda payload: heard.append(f"+{payload.message.id}"))
    hooks.listen("agent/inbox/discarded", lambda payload: heard.append(f"-{payload.message.id}"))

    with fail_after(5):
        async with Agent(ScriptedModel(), hooks=hooks) as agent:
            agent.inject(user_message("first", id="first"))
            agent.session.observe(lambda event: agent.cancel() if event.seq == 1 else None)
            agent.inbox.replace("first", user_message("second", id="second"))

    assert heard == ["+first", "-first", "+second", "-second"]
