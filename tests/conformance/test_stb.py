"""Group STB: the step boundary, the choice of the model, and the window in which it can be read as `agent.step`."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.lowlevel
import pytest

from lifecycle import (
    AgentOptions,
    CallConfig,
    Enter,
    ModelSelection,
    Prompt,
    Reject,
    Retry,
    Section,
    tool,
    user_message,
)
from lifecycle.services.points import (
    AgentHandle,
    AssemblePayload,
    EventPayload,
    PreStepPayload,
    RequestPayload,
    StepPayload,
)
from lifecycle.testing import GatedTool, Reply
from lifecycle.vocabulary.events import UserMessageEvent
from lifecycle.vocabulary.failures import Aborted, Blocked, Completed, Errored
from lifecycle.vocabulary.messages import SystemMessage, text_of

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

ASKS = Reply(calls=[("work", {})])
DONE = Reply(text="done")


def proposals(s: Scene) -> list[str]:
    """The trace, down to claims, the hooks of the proposals, and where steps begin."""
    names = ("claimed", "step-boundary", "agent/model", "pre-step", "step/start")
    return [line for line in s.trace.lines() if any(name in line for name in names)]


async def test_stb_01_every_proposed_step_has_one_boundary_after_its_claim_and_before_the_choice() -> None:
    async with scene(ASKS, DONE, DONE, tools=[GatedTool(free=True)]) as s:

        @s.hooks.on("agent/turn-stopping")
        def steer_once(_: object) -> None:
            if len(s.model.requests) == 2:
                s.agent.steer("and then")

        await s.say("go")

        assert proposals(s) == [
            "L agent/inbox/claimed {message:m1, turn:1}",
            "L agent/step-boundary {turn:1, step:1}",
            "L agent/model {turn:1, step:1}",
            "L agent/pre-step {turn:1, step:1, messages:[m1]}",
            "D step/start {turn:1, step:1}",
            "L agent/step-boundary {turn:1, step:2}",
            "L agent/model {turn:1, step:2}",
            "L agent/pre-step {turn:1, step:2, messages:[]}",
            "D step/start {turn:1, step:2}",
            "L agent/inbox/claimed {message:m2, turn:1}",
            "L agent/step-boundary {turn:1, step:3}",
            "L agent/model {turn:1, step:3}",
            "L agent/pre-step {turn:1, step:3, messages:[m2]}",
            "D step/start {turn:1, step:3}",
        ]


async def test_stb_01_a_rejected_proposal_had_its_boundary_and_the_next_turn_proposes_the_same_number() -> None:
    async with scene() as s:
        verdicts = [Reject("no")]

        @s.hooks.on("agent/pre-step")
        async def refuse_once(_: object, next: Next[Enter | Reject]) -> Enter | Reject:
            return verdicts.pop() if verdicts else await next()

        await s.say("one", "two")
        s.agent.steer("wake")
        await s.idle()

        assert [line for line in s.trace.lines("L") if "boundary" in line] == [
            "L agent/step-boundary {turn:1, step:1}",
            "L agent/step-boundary {turn:2, step:1}",
        ]


async def test_stb_02_boundary_listeners_are_awaited_one_after_another_before_the_choice() -> None:
    async with scene() as s:
        said: list[str] = []

        @s.hooks.on("agent/step-boundary")
        async def slow(_: StepPayload) -> None:
            said.append("slow begins")
            for _turn in range(3):
                await anyio.lowlevel.checkpoint()
            s.agent.models.selection = ModelSelection(provider="scripted", model="pending")
            said.append("slow ends")

        @s.hooks.on("agent/step-boundary")
        def quick(_: StepPayload) -> None:
            said.append("quick")

        @s.hooks.on("agent/model")
        async def choose(_: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
            chosen = await next()
            said.append(f"default is {chosen.model}")
            return chosen

        await s.say("go")

        assert said == ["slow begins", "slow ends", "quick", "default is pending"]
        assert [request.config.model for request in s.model.requests] == ["pending"]


async def test_stb_03_a_scheduled_mode_commits_at_the_boundary_and_is_told_in_the_first_step_admitted() -> None:
    async with scene() as s:
        mode, pending, untold = "act", ["plan"], list[str]()

        @s.hooks.on("agent/step-boundary")
        def commit(_: StepPayload) -> None:
            nonlocal mode
            if pending:
                mode = pending.pop()
                untold.append(f"The mode is now {mode}.")

        @s.hooks.on("agent/model")
        async def choose(_: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
            return (await next()).model_copy(update={"model": f"{mode}-model"})

        @s.hooks.on("agent/pre-step")
        async def refuse_one(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            decision = await next()
            assert isinstance(decision, Enter)
            return Reject() if text_of(payload.messages[0]) == "one" else decision

        @s.hooks.on("session/event")
        def opened(payload: EventPayload) -> None:
            if payload.event.type == "step/start":
                seen.append(mode)

        @s.hooks.on("agent/pre-step")
        async def narrate(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            decision = await next()
            if isinstance(decision, Enter) and text_of(payload.messages[0]) != "one":
                told, untold[:] = [user_message(one, source={"kind": "mode"}) for one in untold], []
                return decision.with_messages([*decision.messages, *told])
            return decision

        seen: list[str] = []
        await s.say("one")
        assert (mode, s.durable[-1], seen) == ("plan", "turn/end", [])

        await s.say("two")
        await s.say("three")

        assert seen == ["plan", "plan"]
        assert [text_of(data.message) for data in s.data(UserMessageEvent)] == [
            "two",
            "The mode is now plan.",
            "three",
        ]
        assert {request.config.model for request in s.model.requests} == {"plan-model"}


async def test_stb_04_listeners_wrap_the_current_selection_and_the_outermost_answer_holds() -> None:
    async with scene(options=AgentOptions(effort="low")) as s:
        defaults: list[ModelSelection] = []

        @s.hooks.on("agent/model")
        async def outer(_: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
            return (await next()).model_copy(update={"effort": "high"})

        @s.hooks.on("agent/model")
        async def inner(_: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
            defaults.append(await next())
            return defaults[-1].model_copy(update={"model": "script-2"})

        await s.say("go")

        assert defaults == [ModelSelection(provider="scripted", model="script-1", effort="low")]
        (config,) = [request.config for request in s.model.requests]
        assert (config.provider, config.model, config.effort) == ("scripted", "script-2", "high")
        assert s.agent.models.selection == defaults[0], "the choice of one step is not the next one's default"


async def test_stb_05_the_choice_is_published_from_the_choice_to_the_end_of_the_step() -> None:
    async with scene(ASKS, DONE, tools=[GatedTool(free=True)]) as s:
        windows: dict[str, list[bool]] = {}

        def look(name: str) -> None:
            windows.setdefault(name, []).append(s.agent.step is not None)

        def wraps(name: str) -> Callable[[object, Next[Any]], Awaitable[Any]]:
            async def wrapper(_: object, next: Next[Any]) -> Any:
                look(name)
                answer = await next()
                look(f"{name} after")
                return answer

            return wrapper

        for point in ("agent/model", "agent/pre-step", "system-prompt/assemble", "agent/request", "llm/stream"):
            s.hooks.listen(point, wraps(point))
        for point in ("agent/step-boundary", "agent/turn-stopping", "agent/assistant-stream", "agent/inbox/claimed"):
            s.hooks.listen(point, lambda _, point=point: look(point))
        s.hooks.listen("session/event", lambda payload: look(payload.event.type))
        await s.say("go")

        for name, seen in windows.items():
            unpublished = (
                name in ("agent/model", "agent/model after", "agent/step-boundary", "agent/turn-stopping")
                or name.startswith(("turn/", "agent/inbox/"))
            )  # fmt: skip
            assert seen == [not unpublished] * len(seen), name
        assert {"step/start", "request/header", "tool/call", "tool/result", "step/end"} <= windows.keys()


async def test_stb_05_the_default_is_published_also_where_nobody_listens() -> None:
    async with scene(options=AgentOptions(system=Prompt([Section("who", "You are {{model}}.")])), only=()) as s:
        seen: list[str | None] = []
        s.session.observe(lambda _: seen.append(s.agent.step.model if s.agent.step else None))
        await s.say("go")

        assert [text_of(m) for m in s.model.requests[0].messages] == ["You are script-1.", "go"]
        window = slice(s.durable.index("step/start"), s.durable.index("step/end") + 1)
        assert seen[window] == ["script-1"] * len(seen[window])
        assert set(seen[: window.start] + seen[window.stop :]) == {None}


async def test_stb_06_payloads_name_no_model_and_whoever_needs_it_reads_agent_step() -> None:
    active: list[str | None] = []

    def when(agent: AgentHandle) -> bool:
        active.append(agent.step.model if agent.step else None)
        return True

    @tool(when=when)
    def look_up(word: str) -> str:
        """Look a word up."""
        return word

    system = Prompt(
        [
            Section("who", "You are {{model}} of {{provider}}."),
            Section("how", lambda agent: f"Model {agent.step and agent.step.model}"),
        ]
    )
    async with scene(tools=[look_up], options=AgentOptions(system=system)) as s:

        @s.hooks.on("agent/model")
        async def choose(_: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
            return (await next()).model_copy(update={"model": "chosen"})

        @s.hooks.on("agent/pre-step")
        async def read(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            active.append(payload.agent.step.model if payload.agent.step else None)
            return await next()

        await s.say("go")

        assert active == ["chosen", "chosen"]
        prompts = [text_of(m) for m in s.model.requests[0].messages if isinstance(m, SystemMessage)]
        assert prompts == ["You are chosen of scripted.", "Model chosen"]
    assert fields(PreStepPayload) == {"agent", "messages", "turn", "step", "signal"}
    assert fields(AssemblePayload) == {"agent", "tools", "turn", "step", "signal"}


def fields(payload: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(payload)}


async def rejected(s: Scene) -> None:
    s.hooks.listen("agent/pre-step", lambda _, next: soon(Reject()))


async def soon(value: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return value


async def raised(s: Scene) -> None:
    @s.hooks.on("agent/pre-step")
    async def fail(_: object, next: object) -> Enter:
        raise LookupError("pre-step")


async def cancelled(s: Scene) -> None:
    @s.hooks.on("agent/pre-step")
    async def cancel(_: object, next: Next[Enter | Reject]) -> Enter | Reject:
        s.agent.cancel()
        return await next()


async def emptied(s: Scene) -> None:
    s.hooks.listen("agent/pre-step", lambda _, next: soon(Enter(())))


async def ended(s: Scene) -> None:
    pass


async def failed_later(s: Scene) -> None:
    @s.hooks.on("llm/stream")
    async def fail(_: object, next: object) -> Any:
        raise LookupError("stream")


EXITS = [
    (rejected, Blocked, False),
    (raised, Errored, False),
    (cancelled, Aborted, False),
    (emptied, Completed, False),
    (ended, Completed, True),
    (failed_later, Errored, True),
]


@pytest.mark.parametrize(("arrange", "reason", "opens"), EXITS, ids=[exit[0].__name__ for exit in EXITS])
async def test_stb_07_the_choice_is_withdrawn_by_every_exit(
    arrange: Callable[[Scene], Awaitable[None]], reason: type[Any], opens: bool
) -> None:
    async with scene() as s:
        seen: dict[str, bool] = {}

        @s.hooks.on("agent/pre-step")
        async def published(_: object, next: Next[Any]) -> Any:
            seen["published"] = s.agent.step is not None
            return await next()

        for point in ("agent/turn-stopping", "agent/error"):
            s.hooks.listen(point, lambda _, point=point: seen.update({point: s.agent.step is not None}))
        s.hooks.listen("session/event", lambda p: seen.update({p.event.type: s.agent.step is not None}))
        await arrange(s)
        assert s.agent.step is None
        await s.say("go")

        assert [type(found) for found in s.reasons] == [reason]
        assert s.agent.step is None
        assert seen.pop("published") is True
        assert seen["turn/end"] is False
        assert seen.get("agent/turn-stopping", False) is False
        assert seen.get("agent/error", False) is False
        assert seen.get("step/end") is (True if opens else None), "the observer of step/end still sees it"


async def test_stb_07_the_choice_is_withdrawn_where_the_record_of_the_step_end_is_refused() -> None:
    async with scene() as s:

        @s.hooks.on("session/append")
        def refuse(payload: EventPayload) -> None:
            if payload.event.type == "step/end":
                raise LookupError("refused")

        seen: list[object] = []
        s.hooks.listen("session/event", lambda p: seen.append(s.agent.step) if p.event.type == "turn/end" else None)
        await s.say("go")

        assert seen == [None]
        assert s.agent.step is None


async def test_stb_08_every_attempt_of_the_open_step_uses_the_selection_of_the_step() -> None:
    async with scene(Reply.failure(), Reply.failure(), DONE) as s:

        @s.hooks.on("agent/request-error")
        async def again(_: object, next: object) -> Retry:
            s.agent.models.selection = ModelSelection(provider="scripted", model="for the next step")
            return Retry()

        @s.hooks.on("agent/request")
        async def other(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            defaults.append((await next()).model)
            other = "only this attempt" if payload.attempt == 2 else defaults[-1]
            return CallConfig(provider="scripted", model=other)

        defaults: list[str | None] = []
        await s.say("go")

        live = s.trace.names("L")
        assert (live.count("agent/model"), live.count("agent/request")) == (1, 3)
        assert defaults == ["script-1", "script-1", "script-1"]
        assert [request.config.model for request in s.model.requests] == ["script-1", "only this attempt", "script-1"]


@pytest.mark.parametrize("point", ["agent/step-boundary", "agent/model"])
async def test_stb_09_a_hook_that_raises_there_fails_the_turn_before_a_step_opens(point: str) -> None:
    async with scene() as s:
        if point == "agent/model":

            @s.hooks.on("agent/model")
            async def fail(_: object, next: object) -> ModelSelection:
                raise LookupError("no choice")
        else:
            s.hooks.listen(point, fail_plainly)
        await s.say("go")

        assert s.durable == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
        assert [type(reason) for reason in s.reasons] == [Errored]
        assert [line for line in s.trace.lines("L") if "agent/error" in line] == [
            "L agent/error {turn:1, step:0, error:LookupError}"
        ]
        assert not s.session.inbox.pending


def fail_plainly(_: object) -> None:
    raise LookupError("no boundary")


@pytest.mark.parametrize("point", ["agent/step-boundary", "agent/model"])
@pytest.mark.parametrize("raises", [False, True])
async def test_stb_09_a_cancel_there_aborts_the_turn_and_asks_no_further_hook(point: str, raises: bool) -> None:
    async with scene() as s:

        def stop() -> None:
            s.agent.cancel()
            if raises:
                raise LookupError("cancelled beats failed")

        if point == "agent/model":

            @s.hooks.on("agent/model")
            async def choose(_: object, next: Next[ModelSelection]) -> ModelSelection:
                stop()
                return await next()
        else:
            s.hooks.listen(point, lambda _: stop())
        await s.say("go")

        assert s.durable == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
        assert [type(reason) for reason in s.reasons] == [Aborted]
        live = s.trace.names("L")
        assert live.count("agent/model") == (1 if point == "agent/model" else 0)
        assert "agent/pre-step" not in live
        assert "agent/error" not in live
        assert s.agent.step is None
