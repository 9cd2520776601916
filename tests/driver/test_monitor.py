"""The monitor: the definition watches a live agent, and what no run of it makes is never appended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import pytest

from lifecycle import Agent, AgentOptions, Hooks, Session, tool
from lifecycle.definition.effects import record
from lifecycle.definition.step import Step
from lifecycle.driver.monitor import VARIABLE
from lifecycle.driver.runs import StepRun
from lifecycle.errors import DivergenceError
from lifecycle.services.points import EventPayload
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import EventData, Replace, StepEnd, TurnStart, UserMessageEvent
from lifecycle.vocabulary.messages import user_message

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """Look."""
    return "seen"


async def test_a_run_of_the_lifecycle_passes() -> None:
    model = ScriptedModel(Reply(text="so", calls=[("look", {})]), Reply(text="done"))

    with anyio.fail_after(5):
        async with Agent(model, tools=[look], monitor=True) as agent:
            agent.followup("go")
            await agent.when_idle()

    assert [event.type for event in agent.session.events][-2:] == ["step/end", "turn/end"]


async def test_what_no_run_makes_raises_in_the_append_and_nothing_is_appended() -> None:
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), monitor=True) as agent:
        agent.followup("go")
        await agent.when_idle()
        before = list(agent.session.events)

        with pytest.raises(DivergenceError) as refused:
            agent.session.append(StepEnd(turn=1, step=1))

        assert list(agent.session.events) == before
        assert (refused.value.event, refused.value.phases) == ("step/end", ("running/closing",))
        assert refused.value.expected == ("agent/inbox/spliced", "session/end-seed", "turn/start")
        assert refused.value.before[-2:] == ("step/end", "turn/end")
        assert refused.value.seq == len(before)
        assert "step/end cannot follow here; the run was in running/closing" in str(refused.value)
        agent.followup("and on")
        await agent.when_idle()
        assert agent.session.last_turn == 2


async def one_turn(*, then: Callable[[], object] = lambda: None, **how: Any) -> None:
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), monitor=True, **how) as agent:
        agent.followup("go")
        await agent.when_idle()
        then()


@pytest.mark.parametrize("skipped", ["turn/end", "step/end", "assistant/message"])
async def test_a_record_that_the_driver_leaves_out_is_raised_where_the_agent_is_left(skipped: str) -> None:
    options = AgentOptions(performers={skipped: lambda run: None})

    with anyio.fail_after(5), pytest.raises(DivergenceError):
        await one_turn(options=options)


@pytest.mark.parametrize("point", ["agent/turn-stopping", "agent/inbox/claimed"])
async def test_what_a_hook_appends_that_no_run_makes_is_raised_where_the_agent_is_left(point: str) -> None:
    hooks = Hooks()

    def stray(payload: Any) -> None:
        payload.agent.session.append(StepEnd(turn=1, step=1))

    hooks.listen(point, stray)

    with anyio.fail_after(5), pytest.raises(DivergenceError) as told:
        await one_turn(hooks=hooks)

    assert told.value.event == "step/end"


async def test_what_goes_wrong_in_the_context_is_not_hidden_by_a_divergence() -> None:
    options = AgentOptions(performers={"turn/end": lambda run: None})

    with anyio.fail_after(5), pytest.raises(ZeroDivisionError):
        await one_turn(options=options, then=lambda: 1 // 0)


async def test_without_it_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    async with Agent(ScriptedModel()) as agent:
        agent.session.append(TurnStart(turn=7))

    assert agent.session.last_turn == 7


@pytest.mark.parametrize(("value", "watched"), [("1", True), ("0", False), ("", False)])
async def test_the_environment_says_who_is_watched_that_does_not_say(
    monkeypatch: pytest.MonkeyPatch, value: str, watched: bool
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    async with Agent(ScriptedModel()) as agent, Agent(ScriptedModel(), monitor=False) as other:
        other.session.append(StepEnd(turn=1, step=1))
        if watched:
            with pytest.raises(DivergenceError):
                agent.session.append(StepEnd(turn=1, step=1))
        else:
            agent.session.append(StepEnd(turn=1, step=1))


async def test_after_a_veto_it_waits_for_the_next_turn() -> None:
    """The log that a veto leaves is no run's, and that is not the run's fault."""
    hooks = Hooks()
    refused: list[str] = []

    @hooks.on("session/append")
    def refuse(payload: EventPayload) -> None:
        if payload.event.type == "turn/end" and not refused:
            refused.append(payload.event.type)
            raise OSError("no")

    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), hooks=hooks, monitor=True) as agent:
        for prompt in ("one", "two"):
            agent.followup(prompt)
            await agent.when_idle()
        assert [event.type for event in agent.session.events].count("turn/start") == 2
        with pytest.raises(DivergenceError):
            agent.session.append(StepEnd(turn=2, step=1))


async def test_a_resumed_session_is_watched_from_where_it_is() -> None:
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), monitor=True) as first:
        first.inject("first")
        first.followup("go")
        await first.when_idle()
        first.inject("for later")
    session = Session.seeded(first.session.events)

    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), session=session, monitor=True) as second:
        second.followup("and on")
        await second.when_idle()
        assert session.last_turn == 2


async def test_a_replaced_message_is_no_move_of_the_run() -> None:
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), monitor=True) as agent:
        agent.followup("go")
        await agent.when_idle()
        seqs = list(agent.session.surface.nodes)
        summary = UserMessageEvent(message=user_message("in short"))
        agent.session.append(summary, surface=Replace(start=seqs[0], end=seqs[-1]), sources=seqs)

        with pytest.raises(DivergenceError):
            agent.session.append(summary, surface="append")


class Proposed(EventData, frozen=True):
    type: ClassVar[str] = "test/proposed"


class Noted(Step):
    """A step that records that it was proposed."""

    boundary = Step.boundary.but(record("test/proposed"), *Step.boundary.does)


async def test_a_users_lifecycle_is_what_its_agent_is_held_to() -> None:
    def note(step: StepRun) -> None:
        step.agent.session.append(Proposed())

    options = AgentOptions(lifecycle=Noted, performers={"test/proposed": note})
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), options=options, monitor=True) as agent:
        agent.followup("go")
        await agent.when_idle()
        assert "test/proposed" in [event.type for event in agent.session.events]
        with pytest.raises(DivergenceError):
            agent.session.append(Proposed())


def test_nothing_is_imported_to_switch_it_on() -> None:
    script = (
        f"import os; os.environ[{VARIABLE!r}] = '1'; import lifecycle; from lifecycle.testing import ScriptedModel;"
        "print(lifecycle.Agent(ScriptedModel())._monitored)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "True"
