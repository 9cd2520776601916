"""Group CLM: what a step claims from the inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from lifecycle import Enter, Hooks, Reject, tool
from lifecycle.services.points import PreStepPayload, StepPayload, TurnPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.testing import Reply
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta
from lifecycle.vocabulary.events import InboxSpliced, StepStart, UserMessageEvent
from lifecycle.vocabulary.failures import USER_CANCEL
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.requests import Request

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, X, Y = (user_message(name, id=name) for name in "abxy")
Next = Callable[..., Awaitable[Any]]


def admitted(s: Scene) -> list[tuple[str, int]]:
    """Every admitted input with the number of the turn that it was admitted in."""
    turn, found = 0, list[tuple[str, int]]()
    for event in s.session.events:
        if isinstance(event.data, StepStart):
            turn = event.data.turn
        if isinstance(event.data, UserMessageEvent):
            found.append((event.data.message.id, turn))
    return found


async def test_clm_01_the_first_claim_takes_all_of_next_step_and_then_one_prompt() -> None:
    async with scene() as s:
        s.agent.inject(X)
        s.agent.inject(Y)
        s.agent.followup(A)
        s.agent.followup(B)
        assert s.agent.inbox.next_turn == (B,)

        await s.idle()
        assert admitted(s) == [("x", 1), ("y", 1), ("a", 1), ("b", 2)]


@pytest.mark.parametrize("place", ["adapter", "tool", "checkpoint", "pre-step"])
async def test_clm_02_a_prompt_never_joins_a_turn_that_is_open(place: str) -> None:
    sent: list[str] = []

    def send(here: str) -> None:
        if here == place and not sent:
            sent.append(here)
            s.agent.followup(B)
            s.agent.inject(X)

    async def answer(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        send("adapter")
        yield TextDelta(0, "ok")
        yield Finish(FinishKind.STOP)

    @tool
    async def work() -> str:
        """Works."""
        send("tool")
        return "done"

    hooks = Hooks()

    @hooks.on("agent/turn-stopping")
    async def stopping(payload: TurnPayload) -> None:
        send("checkpoint")

    @hooks.on("agent/pre-step")
    async def proposed(payload: PreStepPayload, next: Next) -> Any:
        send("pre-step")
        return await next()

    async with scene(Reply(calls=[("work", {})]), answer, Reply(text="ok"), tools=[work], hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert sent
        assert admitted(s) == [("a", 1), ("x", 1), ("b", 2)]
        assert [start.turn for start in s.data(StepStart)][-1:] == [2]


async def test_clm_03_a_claim_is_a_pure_deletion_for_each_list_and_then_one_echo_for_each_message() -> None:
    async with scene() as s:
        s.agent.inject(X)
        s.agent.inject(Y)
        s.trace.clear()
        s.agent.followup(A)

        assert s.trace.lines()[3:] == [
            "D turn/start {turn:1}",
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:2, inserted:[]}",
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[]}",
            "L agent/inbox/claimed {message:m1, turn:1}",
            "L agent/inbox/claimed {message:m2, turn:1}",
            "L agent/inbox/claimed {message:m3, turn:1}",
        ]
        await s.idle()
        assert "agent/inbox/discarded" not in s.trace.names()


async def test_clm_03_a_later_claim_is_one_deletion_and_its_echoes() -> None:
    async with scene(Reply(text="one"), Reply(text="two")) as s:
        s.agent.followup(A)
        s.agent.steer(X)
        s.agent.inject(Y)
        await s.idle()

        lines = s.trace.lines()
        at = lines.index("D step/end {turn:1, step:1}")
        assert lines[at + 1 : at + 5] == [
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:2, inserted:[]}",
            "L agent/inbox/claimed {message:m2, turn:1}",
            "L agent/inbox/claimed {message:m3, turn:1}",
            "L agent/step-boundary {turn:1, step:2}",
        ]


@pytest.mark.parametrize("how", ["reject", "empty", "raise", "cancel", "cancel keeping", "boundary", "model"])
async def test_clm_04_a_claimed_batch_is_never_put_back(how: str) -> None:
    hooks = Hooks()

    def spoil(here: str) -> None:
        if how == here:
            raise RuntimeError("no")
        if here == "raise" and how.startswith("cancel"):
            s.agent.cancel(keep_inbox=how == "cancel keeping")

    @hooks.on("agent/step-boundary")
    async def boundary(payload: StepPayload) -> None:
        spoil("boundary")

    @hooks.on("agent/model")
    async def model(payload: StepPayload, next: Next) -> Any:
        spoil("model")
        return await next()

    @hooks.on("agent/pre-step")
    async def decide(payload: PreStepPayload, next: Next) -> Any:
        spoil("raise")
        return Reject() if how == "reject" else Enter(()) if how == "empty" else await next()

    async with scene(hooks=hooks) as s:
        s.agent.inject(X)
        s.agent.followup(A)
        await s.idle()

        assert not s.agent.inbox.pending
        assert admitted(s) == []
        assert [record.target for record in s.data(InboxSpliced) if record.inserted] == ["next-step", "next-turn"]
        assert "step/start" not in s.durable
        assert "agent/inbox/discarded" not in s.trace.names()


async def test_clm_05_a_claim_of_nothing_is_silent_and_the_whole_proposal_still_runs() -> None:
    @tool
    async def work() -> str:
        """Works."""
        return "done"

    async with scene(Reply(calls=[("work", {})]), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup(A)
        await s.idle()

        lines = s.trace.lines()
        at = lines.index("D step/end {turn:1, step:1}")
        assert lines[at : at + 5] == [
            "D step/end {turn:1, step:1}",
            "L agent/step-boundary {turn:1, step:2}",
            "L agent/model {turn:1, step:2}",
            "L agent/pre-step {turn:1, step:2, messages:[]}",
            "D step/start {turn:1, step:2}",
        ]
        assert s.durable.count("agent/inbox/spliced") == 2
        assert s.trace.names().count("agent/inbox/claimed") == 1


LATE = ["agent/step-boundary", "agent/model", "agent/pre-step", "system-prompt/assemble", "agent/request", "llm/stream"]


@pytest.mark.parametrize("point", [*LATE, "agent/assistant-stream", "tools/execute"])
async def test_clm_06_what_comes_after_a_claim_waits_for_the_next_one_in_order(point: str) -> None:
    hooks, sent = Hooks(), list[str]()

    def send() -> None:
        if not sent:
            sent.append(point)
            s.agent.inject(X)
            s.agent.steer(Y)

    async def serial(payload: Any) -> None:
        send()

    async def waterfall(payload: Any, next: Next) -> Any:
        send()
        return await next()

    def emitted(payload: Any) -> None:
        send()

    kinds = {"agent/step-boundary": serial, "agent/assistant-stream": emitted}
    hooks.listen(point, kinds.get(point, waterfall))

    @tool
    async def work() -> str:
        """Works."""
        return "done"

    async with scene(Reply(calls=[("work", {})]), Reply(text="ok"), tools=[work], hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert sent
        users = [[message.id for message in request.messages if message in (A, X, Y)] for request in s.model.requests]
        assert users == [["a"], ["a", "x", "y"]]
        assert [start.turn for start in s.data(StepStart)] == [1, 1]


async def test_clm_04_a_cancel_right_after_the_wake_cannot_rescue_the_claimed_prompt() -> None:
    async with scene() as s:
        s.agent.followup(A)
        s.agent.cancel(USER_CANCEL, keep_inbox=True)
        await s.idle()

        assert not s.agent.inbox.pending
        assert s.durable == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
