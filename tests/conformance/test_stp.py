"""Group STP: the checkpoint at which a turn is about to stop."""

from __future__ import annotations

from collections.abc import Callable

import anyio.lowlevel
import pytest

from lifecycle import Enter, Reject, Retry
from lifecycle.services.points import PreStepPayload, TurnPayload
from lifecycle.testing import GatedTool, Reply
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.failures import (
    BLOCKED,
    COMPLETED,
    MAX_TOKENS,
    PARENT_CANCEL,
    Aborted,
    Errored,
    TurnEndReason,
)
from lifecycle.vocabulary.messages import text_of

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

ASKS = Reply(calls=[("work", {})])
DONE = Reply(text="done")
STOPPING = "agent/turn-stopping"


def checkpoints(s: Scene) -> int:
    return s.trace.names().count(STOPPING)


def outline(s: Scene) -> list[str]:
    """Where turns and steps begin and end, and the checkpoints."""
    short = {"turn/start": "turn", "step/start": "step", "step/end": "end", STOPPING: "stopping", "turn/end": "over"}
    return [short[name] for name in s.trace.names() if name in short]


async def test_stp_01_it_comes_after_a_step_that_ended_naturally_with_nothing_pending() -> None:
    async with scene() as s:
        payloads: list[TurnPayload] = []
        s.hooks.listen(STOPPING, payloads.append)
        await s.say("hello")

        lines = s.trace.lines()
        at = lines.index(f"L {STOPPING} {{turn:1}}")
        assert lines[at - 1 : at + 2] == [
            "D step/end {turn:1, step:1}",
            f"L {STOPPING} {{turn:1}}",
            "D turn/end {turn:1, reason:{kind:completed}}",
        ]
        assert [(payload.agent, payload.turn, payload.signal.fired) for payload in payloads] == [(s.agent, 1, False)]


async def test_stp_01_its_listeners_run_one_after_another_each_awaited() -> None:
    async with scene() as s:
        said: list[str] = []

        @s.hooks.on(STOPPING)
        async def slow(_: TurnPayload) -> None:
            said.append("slow begins")
            await anyio.lowlevel.checkpoint()
            said.append("slow ends")

        s.hooks.listen(STOPPING, lambda _: said.append("quick"))
        s.session.observe(lambda event: said.append("over") if event.type == "turn/end" else None)
        await s.say("hello")

        assert said == ["slow begins", "slow ends", "quick", "over"]


@pytest.mark.parametrize("verb", ["steer", "inject"])
async def test_stp_01_pending_input_puts_it_off_to_the_step_that_takes_it(verb: str) -> None:
    async with scene() as s:

        @s.hooks.on("agent/assistant-stream")
        def send(_: object) -> None:
            if not s.session.inbox.pending and s.durable.count("step/start") == 1:
                (s.agent.steer if verb == "steer" else s.agent.inject)("more")

        await s.say("hello")

        assert outline(s) == ["turn", "step", "end", "step", "end", "stopping", "over"]


async def test_stp_01_a_step_that_owes_another_request_has_none() -> None:
    async with scene(ASKS, Reply(text="hm", finish=FinishKind.PAUSE), DONE, tools=[GatedTool(free=True)]) as s:
        await s.say("hello")

        assert outline(s) == ["turn", "step", "end", "step", "end", "step", "end", "stopping", "over"]


async def test_stp_01_a_step_at_the_token_ceiling_has_ended_naturally() -> None:
    async with scene(Reply(text="cut", finish=FinishKind.MAX_TOKENS)) as s:
        await s.say("hello")

        assert outline(s) == ["turn", "step", "end", "stopping", "over"]
        assert s.reasons == [MAX_TOKENS]


@pytest.mark.parametrize("verb", ["steer", "inject"])
async def test_stp_02_input_of_a_listener_continues_the_turn_and_every_later_stop_is_asked_again(verb: str) -> None:
    async with scene() as s:

        @s.hooks.on(STOPPING)
        def more(_: TurnPayload) -> None:
            if checkpoints(s) < 3:
                (s.agent.steer if verb == "steer" else s.agent.inject)(f"more {checkpoints(s)}")

        await s.say("hello")

        round_ = ["step", "end", "stopping"]
        assert outline(s) == ["turn", *round_, *round_, *round_, "over"]
        after = [line.split(" {")[0] for line in s.trace.lines()[s.trace.names().index(STOPPING) :]]
        assert after[: after.index("D step/start") + 1] == [
            f"L {STOPPING}",
            "D agent/inbox/spliced",
            "L agent/inbox/inserted",
            "D agent/inbox/spliced",
            "L agent/inbox/claimed",
            "L agent/step-boundary",
            "L agent/model",
            "L agent/pre-step",
            "D step/start",
        ]
        assert [text_of(request.messages[-1]) for request in s.model.requests] == ["hello", "more 1", "more 2"]
        assert s.reasons == [COMPLETED]


async def test_stp_03_queued_prompts_neither_prevent_it_nor_join_the_turn() -> None:
    async with scene() as s:

        @s.hooks.on(STOPPING)
        def queue(payload: TurnPayload) -> None:
            if payload.turn == 1:
                s.agent.followup("from the listener")

        s.agent.followup("one")
        s.agent.followup("two")
        await s.idle()

        assert outline(s) == ["turn", "step", "end", "stopping", "over"] * 3
        assert [text_of(request.messages[-1]) for request in s.model.requests] == ["one", "two", "from the listener"]
        assert s.trace.lines("L").count("L agent/status {status:running}") == 1


async def test_stp_04_a_listener_that_raises_ends_the_turn_and_stops_the_driver() -> None:
    async with scene() as s:
        later: list[TurnPayload] = []

        def fail(_: TurnPayload) -> None:
            if checkpoints(s) == 1:
                s.agent.steer("too late")
            raise LookupError("not yet")

        first = s.hooks.listen(STOPPING, fail)
        s.hooks.listen(STOPPING, later.append)
        await s.say("one", "two")

        assert outline(s) == ["turn", "step", "end", "stopping", "over"]
        assert later == []
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "LookupError: not yet" in reason.error.message
        assert [line for line in s.trace.lines("L") if "agent/error" in line] == [
            "L agent/error {turn:1, step:1, error:LookupError}"
        ]
        assert [text_of(message) for message in s.session.inbox.next_turn] == ["two"], "it is parked"
        first.remove()
        s.agent.steer("wake")
        await s.idle()
        assert s.reasons[1:] == [COMPLETED]


@pytest.mark.parametrize("raises", [False, True])
async def test_stp_05_a_cancel_there_aborts_the_turn_although_its_step_had_completed(raises: bool) -> None:
    async with scene() as s:
        later: list[TurnPayload] = []

        @s.hooks.on(STOPPING)
        async def stop(_: TurnPayload) -> None:
            s.agent.steer("more")
            s.agent.cancel(PARENT_CANCEL, keep_inbox=True)
            await anyio.lowlevel.checkpoint()
            if raises:
                raise LookupError("cancelled beats failed")

        s.hooks.listen(STOPPING, later.append)
        await s.say("hello")

        assert outline(s) == ["turn", "step", "end", "stopping", "over"]
        assert s.reasons == [Aborted(reason=PARENT_CANCEL)]
        assert "agent/error" not in s.trace.names()
        assert [text_of(message) for message in s.session.inbox.next_step] == ["more"]


def _reject(payload: PreStepPayload) -> Enter | Reject:
    return Reject()


def _empty(payload: PreStepPayload) -> Enter | Reject:
    return Enter(())


def _empty_later(payload: PreStepPayload) -> Enter | Reject:
    return Enter(payload.messages if payload.step == 1 else ())


def _reject_later(payload: PreStepPayload) -> Enter | Reject:
    return Enter(payload.messages) if payload.step == 1 else Reject()


@pytest.mark.parametrize(
    ("decide", "dispatched", "reason"),
    [(_reject, 0, BLOCKED), (_empty, 0, COMPLETED), (_empty_later, 1, COMPLETED), (_reject_later, 1, BLOCKED)],
    ids=["rejected", "empty", "later one empty", "later one rejected"],
)
async def test_stp_06_a_turn_that_ends_without_a_step_has_no_checkpoint_for_it(
    decide: Callable[[PreStepPayload], Enter | Reject], dispatched: int, reason: TurnEndReason
) -> None:
    async with scene() as s:

        @s.hooks.on("agent/pre-step")
        async def gate(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            return decide(payload)

        @s.hooks.on(STOPPING)
        def steer(_: TurnPayload) -> None:
            s.agent.steer("more")

        await s.say("hello")

        assert checkpoints(s) == dispatched
        assert s.durable.count("step/start") == dispatched
        assert s.reasons == [reason]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_stp_06_nor_has_one_whose_step_did_not_end_naturally(how: str) -> None:
    async with scene(Reply.failure()) as s:

        @s.hooks.on("agent/request-error")
        async def recover(_: object, next: Next[Retry | None]) -> Retry | None:
            if how == "is cancelled":
                s.agent.cancel()
            return await next()

        await s.say("hello")

        assert outline(s) == ["turn", "step", "end", "over"]
