"""Group TRN: how turns open, close and follow one another, and the reasons they end with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Enter, Hooks, Reject, ToolContext, tool
from lifecycle.services.points import ErrorPayload, PreStepPayload, StatusPayload, StepPayload, TurnPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.session.log import Session
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import FinishKind, TextDelta
from lifecycle.vocabulary.events import Event, StepStart, TurnEnd, TurnStart, UserMessageEvent
from lifecycle.vocabulary.failures import (
    BLOCKED,
    COMPLETED,
    DISPOSED_CANCEL,
    MAX_TOKENS,
    PARENT_CANCEL,
    USER_CANCEL,
    Aborted,
    Errored,
    Failure,
)
from lifecycle.vocabulary.messages import user_message

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, C, X, Z = (user_message(name, id=name) for name in "abcxz")
Next = Callable[..., Awaitable[Any]]
ASK = Reply(calls=[("work", {})])
CUT = Reply(text="cut o", finish=FinishKind.MAX_TOKENS)
OK = Reply(text="ok")


@tool
async def work() -> str:
    """Works."""
    return "done"


def inputs(s: Scene) -> list[str]:
    return [data.message.id for data in s.data(UserMessageEvent)]


def rejecting(*proposals: int) -> Hooks:
    """Hooks that reject the proposals with these places in the order of all."""
    hooks, seen = Hooks(), [0]

    @hooks.on("agent/pre-step")
    async def decide(payload: PreStepPayload, next: Next) -> Any:
        seen[0] += 1
        return Reject() if seen[0] in proposals else await next()

    return hooks


def refusing(s: Scene, type: str, times: int = 1) -> list[str]:
    """Veto the first records of a type; returns the list of what was refused."""
    refused: list[str] = []

    def veto(event: Event) -> None:
        if event.type == type and len(refused) < times:
            refused.append(event.type)
            raise OSError("refused")

    s.session.veto(veto)
    return refused


async def test_trn_01_the_turn_opens_before_the_claim_also_where_it_is_rejected() -> None:
    async with scene(hooks=rejecting(1)) as s:
        await s.say("hello")

        assert s.trace.lines()[2:6] == [
            "L agent/status {status:running}",
            "D turn/start {turn:1}",
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[]}",
            "L agent/inbox/claimed {message:m1, turn:1}",
        ]
        assert s.durable[1:] == ["turn/start", "agent/inbox/spliced", "turn/end"]


POINTS = [
    "agent/step-boundary",
    "agent/model",
    "agent/pre-step",
    "system-prompt/assemble",
    "agent/request",
    "llm/stream",
    "agent/request-error",
    "tools/pre-execute",
    "tools/execute",
    "tools/post-execute",
    "agent/turn-stopping",
]
RECORDS = ["step/start", "user/message", "request/header", "assistant/message", "tool/call", "tool/result", "step/end"]
FAILING = Reply.failure(text="half")


def balanced(s: Scene) -> None:
    """Every turn and every step that was opened was closed once, in order."""
    open_turn, open_step = 0, 0
    for event in s.session.events:
        match event.type:
            case "turn/start":
                assert (open_turn, open_step) == (0, 0)
                open_turn = 1
            case "step/start":
                assert (open_turn, open_step) == (1, 0)
                open_step = 1
            case "step/end":
                assert (open_turn, open_step) == (1, 1)
                open_step = 0
            case "turn/end":
                assert (open_turn, open_step) == (1, 0)
                open_turn = 0
            case _:
                pass
    assert (open_turn, open_step) == (0, 0)
    assert [start.turn for start in s.data(TurnStart)] == [end.turn for end in s.data(TurnEnd)]


@pytest.mark.parametrize("how", ["raises", "cancels", "cancels and raises", "is disposed"])
@pytest.mark.parametrize("point", POINTS)
async def test_trn_02_every_turn_that_starts_ends_once_whatever_a_hook_does(point: str, how: str) -> None:
    hooks = Hooks()

    def spoil(payload: Any) -> None:
        if how == "is disposed":
            s.agent.cancel(DISPOSED_CANCEL, keep_inbox=True)
        elif how != "raises":
            s.agent.cancel()
        if "raises" in how:
            raise RuntimeError("no")

    async def serial(payload: Any) -> None:
        spoil(payload)

    async def waterfall(payload: Any, next: Next) -> Any:
        spoil(payload)
        return await next()

    hooks.listen(point, serial if point in ("agent/step-boundary", "agent/turn-stopping") else waterfall)
    script: list[Line] = [FAILING] if point == "agent/request-error" else [ASK, OK]
    async with scene(*script, hooks=hooks, tools=[work]) as s:
        await s.say("hello")

        balanced(s)
        assert s.durable.count("turn/end") == 1
        assert s.agent.phase == "idle"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("type", RECORDS)
async def test_trn_02_every_turn_that_starts_ends_once_whichever_record_is_refused(type: str, times: int) -> None:
    async with scene(ASK, OK, tools=[work]) as s:
        assert refusing(s, type, times) is not None
        await s.say("hello")

        assert s.durable.count("turn/end") == s.durable.count("turn/start") == 1
        assert s.agent.phase == "idle"
        assert [reason.kind for reason in s.reasons] == ["error"]


@pytest.mark.parametrize("decision", [Reject(), Enter(())])
async def test_trn_02_a_rejected_or_emptied_first_batch_ends_its_turn_too(decision: Reject | Enter) -> None:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def decide(payload: PreStepPayload, next: Next) -> Reject | Enter:
        return decision

    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert s.durable[-3:] == ["turn/start", "agent/inbox/spliced", "turn/end"]


async def test_trn_03_turns_count_on_from_the_log_and_steps_start_again() -> None:
    seed: list[Event] = []
    for turn in range(5, 8):
        seed.append(Event(len(seed), 0, TurnStart(turn=turn)))
        seed.append(Event(len(seed), 0, TurnEnd(turn=turn, reason=COMPLETED)))
    async with scene(ASK, OK, OK, tools=[work], session=Session.seeded(seed)) as s:
        await s.say("eight", "nine")

        assert [(start.turn, start.step) for start in s.data(StepStart)] == [(8, 1), (8, 2), (9, 1)]


async def test_trn_03_a_turn_without_a_step_spends_a_number_of_its_own_only() -> None:
    async with scene(hooks=rejecting(1)) as s:
        await s.say("rejected")
        await s.say("entered")

        assert [start.turn for start in s.data(TurnStart)] == [1, 2]
        assert [(start.turn, start.step) for start in s.data(StepStart)] == [(2, 1)]


SCRIPTS = st.lists(
    st.sampled_from(
        [OK, ASK, CUT, FAILING, RuntimeError("adapter"), Reply(finish=FinishKind.PAUSE), (TextDelta(0, "x"),)]
    ),
    max_size=6,
)
ACTS = st.lists(st.sampled_from(["followup", "steer", "inject", "cancel", "keep", "wait"]), min_size=1, max_size=8)


@given(script=SCRIPTS, acts=ACTS, rejected=st.sets(st.integers(1, 6), max_size=2))
async def test_trn_04_no_live_turn_ends_outside_the_closed_set_or_interrupted(
    script: list[Any], acts: list[str], rejected: set[int]
) -> None:
    model = ScriptedModel(*script, otherwise=OK)
    async with scene(model=model, hooks=rejecting(*rejected), tools=[work]) as s:
        for act in acts:
            if act == "wait":
                await s.idle()
            elif act in ("cancel", "keep"):
                s.agent.cancel(keep_inbox=act == "keep")
            else:
                getattr(s.agent, act)("go")
        await s.idle()

        balanced(s)
        assert {reason.kind for reason in s.reasons} <= {"completed", "max-tokens", "blocked", "aborted", "error"}


async def test_trn_05_a_natural_stop_with_nothing_pending_completes_the_turn() -> None:
    async with scene() as s:
        await s.say("hello")

        assert s.durable == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
            "request/header",
            "request/context",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert s.reasons == [COMPLETED]


async def test_trn_05_input_that_waits_after_the_stop_checkpoint_keeps_the_turn_open() -> None:
    hooks = Hooks()

    @hooks.on("agent/turn-stopping")
    async def once_more(payload: TurnPayload) -> None:
        if s.durable.count("step/end") == 1:
            s.agent.steer(X)

    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert [(start.turn, start.step) for start in s.data(StepStart)] == [(1, 1), (1, 2)]
        assert s.reasons == [COMPLETED]


async def test_trn_05_a_concluding_tool_completes_the_turn() -> None:
    @tool(name="work")
    async def conclude(context: ToolContext) -> str:
        """Ends the turn."""
        context.conclude()
        return "done"

    async with scene(ASK, tools=[conclude]) as s:
        await s.say("hello")

        assert len(s.model.requests) == 1
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("later", [[OK], [ASK, OK]])
async def test_trn_06_a_token_ceiling_sticks_for_the_turn_and_not_for_the_next(later: list[Line]) -> None:
    gate = Gate()
    async with scene(CUT.held(gate), *later, OK, tools=[work]) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.steer(X)
        gate.open()
        await s.idle()
        await s.say("next")

        assert s.reasons == [MAX_TOKENS, COMPLETED]
        assert [start.turn for start in s.data(StepStart)] == [*[1] * (1 + len(later)), 2]


async def test_trn_07_a_later_rejection_blocks_the_turn_and_leaves_its_steps() -> None:
    async with scene(hooks=rejecting(2)) as s:
        s.agent.followup(A)
        s.agent.steer(X)
        await s.idle()

        assert s.durable[-4:] == ["assistant/message", "step/end", "agent/inbox/spliced", "turn/end"]
        assert s.reasons == [BLOCKED]
        assert inputs(s) == ["a"]
        assert "agent/error" not in s.trace.names()
        assert "agent/turn-stopping" not in s.trace.names()


async def test_trn_08_a_rejection_parks_what_is_queued_until_a_later_wake() -> None:
    async with scene(hooks=rejecting(1)) as s:
        s.agent.followup(A)
        s.agent.followup(B)
        s.agent.inject(X)
        await s.idle()
        assert (s.durable.count("turn/start"), s.agent.status) == (1, "idle")
        assert (s.agent.inbox.next_step, s.agent.inbox.next_turn) == ((X,), (B,))

        s.agent.followup(C)
        await s.idle()
        assert inputs(s) == ["x", "b", "c"]
        assert s.reasons == [BLOCKED, COMPLETED, COMPLETED]


async def test_trn_09_a_structured_failure_is_copied_into_the_reason() -> None:
    errors: list[Any] = []
    failure = Failure(message="busy", code="OVERLOADED", status=529, retryable=True, retry_after=2.5)
    hooks = Hooks()
    hooks.listen("agent/error", lambda payload: errors.append(payload.error))
    async with scene(Reply(error=failure), hooks=hooks) as s:
        await s.say("hello")

        assert s.reasons == [Errored(error=failure)]
        assert errors == [failure]


async def test_trn_09_any_other_exception_is_told_as_it_is_and_recorded_as_its_chain() -> None:
    error = RuntimeError("outer")
    errors: list[ErrorPayload] = []
    hooks = Hooks()

    @hooks.on("agent/request")
    async def fail(payload: Any, next: Next) -> Any:
        raise error from ValueError("inner")

    hooks.listen("agent/error", errors.append)
    async with scene(hooks=hooks) as s:
        await s.say("hello")

        (told,) = errors
        assert told.error is error
        assert (told.turn, told.step) == (1, 1)
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.code == "UNKNOWN"
        assert "outer" in reason.error.message
        assert "inner" in reason.error.message
        assert s.trace.names()[-3:] == ["agent/error", "turn/end", "agent/status"]


async def test_trn_10_an_error_parks_what_is_queued_until_a_later_wake() -> None:
    async with scene(FAILING, OK, OK) as s:
        s.agent.followup(A)
        s.agent.followup(B)
        await s.idle()
        assert (s.agent.status, s.agent.inbox.next_turn) == ("idle", (B,))

        s.agent.followup(C)
        await s.idle()
        assert inputs(s) == ["a", "b", "c"]
        assert [reason.kind for reason in s.reasons] == ["error", "completed", "completed"]


async def test_trn_11_a_cancelled_turn_ends_with_the_first_cause_and_no_error() -> None:
    gate = Gate()
    async with scene(Reply(text=["one", "two"]).held(gate, before=1)) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel(PARENT_CANCEL)
        s.agent.cancel(USER_CANCEL)
        await s.idle()

        assert s.reasons == [Aborted(reason=PARENT_CANCEL)]
        assert "agent/error" not in s.trace.names()


async def test_trn_12_the_next_turn_follows_at_once_with_a_signal_of_its_own() -> None:
    signals: list[CancelSignal] = []
    hooks = Hooks()

    @hooks.on("agent/step-boundary")
    async def note(payload: StepPayload) -> None:
        signals.append(payload.signal)

    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        s.agent.followup(B)
        await s.idle()

        first, second = signals
        assert first is not second
        lines = s.trace.lines()
        at = lines.index("D turn/end {turn:1, reason:{kind:completed}}")
        assert lines[at + 1] == "D turn/start {turn:2}"
        assert [(start.turn, start.step) for start in s.data(StepStart)] == [(1, 1), (2, 1)]


async def test_trn_12_staged_input_alone_opens_the_next_turn() -> None:
    """Both lists count: what is staged while `turn/end` is told cannot join the turn any more."""
    async with scene() as s:

        def stage(event: Event) -> None:
            if event.type == "turn/end" and s.durable.count("turn/end") == 1:
                s.session.after_append(lambda: s.agent.inject(X))

        s.session.observe(stage)
        await s.say("hello")

        assert inputs(s)[1:] == ["x"]
        assert [start.turn for start in s.data(TurnStart)] == [1, 2]


async def test_trn_12_a_cancelled_turn_does_not_hand_its_latch_to_the_one_after_the_next() -> None:
    gates = Gate(), Gate()
    async with scene(OK.held(gates[0]), OK.held(gates[1]), OK) as s:
        s.agent.followup(A)
        await gates[0].reached()
        s.agent.cancel()
        s.agent.followup(B)
        gates[0].open()
        await gates[1].reached()
        s.agent.cancel(keep_inbox=True)
        gates[1].open()
        await s.idle()

        assert [start.turn for start in s.data(TurnStart)] == [1, 2]


async def test_trn_13_leftovers_of_an_emptied_proposal_open_a_turn_at_once() -> None:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def swallow(payload: PreStepPayload, next: Next) -> Any:
        if payload.messages == (X,):
            s.agent.inject(Z)
            return Enter(())
        return await next()

    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        s.agent.steer(X)
        await s.idle()

        assert inputs(s) == ["a", "z"]
        assert s.reasons == [COMPLETED, COMPLETED]
        lines = s.trace.lines()
        at = lines.index("D turn/end {turn:1, reason:{kind:completed}}")
        assert lines[at + 1 : at + 3] == [
            "D turn/start {turn:2}",
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:1, inserted:[]}",
        ]


async def test_trn_14_a_refused_turn_start_owes_nothing() -> None:
    async with scene() as s:
        assert refusing(s, "turn/start") == []
        s.agent.followup(A)
        await s.idle()
        assert s.trace.lines() == [
            "D agent/inbox/spliced {target:next-turn, start:0, inserted:[m1]}",
            "L agent/inbox/inserted {message:m1}",
            "L agent/status {status:running}",
            "L agent/error {turn:1, step:0, error:OSError}",
            "L agent/status {status:idle}",
        ]
        assert s.agent.inbox.next_turn == (A,)

        s.agent.followup(B)
        await s.idle()
        assert inputs(s) == ["a", "b"]
        assert [start.turn for start in s.data(TurnStart)] == [1, 2]


async def test_trn_15_the_refused_end_of_a_failed_turn_is_an_error_of_its_own() -> None:
    async with scene(FAILING) as s:
        refused = refusing(s, "turn/end", times=9)
        await s.say("hello")

        assert refused == ["turn/end"]
        assert [line for line in s.trace.lines() if "agent/error" in line] == [
            "L agent/error {turn:1, step:1, error:SERVER}",
            "L agent/error {turn:1, step:1, error:OSError}",
        ]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_trn_15_a_refused_turn_end_is_told_once_and_the_agent_is_idle(cancelled: bool) -> None:
    async with scene() as s:
        refused = refusing(s, "turn/end", times=9)
        s.agent.followup(A)
        if cancelled:
            s.agent.cancel()
        await s.idle()

        assert refused == ["turn/end"]
        assert s.trace.names().count("agent/error") == 1
        assert s.trace.names()[-2:] == ["agent/error", "agent/status"]
        assert s.agent.status == "idle"
        assert "turn/end" not in s.durable


async def test_trn_16_idle_is_told_after_the_last_turn_end_only() -> None:
    async with scene() as s:
        await s.say("one", "two")

        assert s.trace.lines()[-2:] == [
            "D turn/end {turn:2, reason:{kind:completed}}",
            "L agent/status {status:idle}",
        ]
        assert s.trace.lines().count("L agent/status {status:idle}") == 1


async def test_trn_16_when_idle_waits_for_an_activity_that_replaced_the_one_before() -> None:
    hooks = Hooks()

    @hooks.on("agent/status")
    def again(payload: StatusPayload) -> None:
        if payload.status == "idle" and s.durable.count("turn/end") == 1:
            s.agent.followup(B)

    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        await s.agent.when_idle()

        assert s.durable.count("turn/end") == 2
        assert [line for line in s.trace.lines() if "agent/status" in line] == [
            "L agent/status {status:running}",
            "L agent/status {status:idle}",
            "L agent/status {status:running}",
            "L agent/status {status:idle}",
        ]


async def test_trn_16_when_idle_does_not_raise_for_a_failed_run() -> None:
    async with scene(RuntimeError("adapter")) as s:
        s.agent.followup(A)
        await s.agent.when_idle()
        await s.agent.when_idle()

        assert [reason.kind for reason in s.reasons] == ["error"]
