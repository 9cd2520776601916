"""Group CAN: cancelling a turn, what is kept and discarded by it, and input that comes while it settles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest
from anyio import CancelScope
from anyio.lowlevel import checkpoint

from lifecycle import Agent, Hooks, Tool, ToolContext, tool
from lifecycle.services.listeners import AnyListener
from lifecycle.services.model import PreparedCall
from lifecycle.services.points import AgentHandle, InboxPayload, Mode, StatusPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.testing import Gate, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta
from lifecycle.vocabulary.events import Event, InboxSpliced, TurnStart, UserMessageEvent
from lifecycle.vocabulary.failures import (
    COMPLETED,
    DISPOSED_CANCEL,
    PARENT_CANCEL,
    USER_CANCEL,
    Aborted,
    CancelCause,
    HookCancel,
)
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.requests import CallConfig, Request

from .kit import Scene, scene

pytestmark = pytest.mark.anyio

A, B, C, X, Y = (user_message(name, id=name) for name in "abcxy")
OK = Reply(text="ok")
ABORTED = Aborted(reason=USER_CANCEL)
Next = Callable[..., Awaitable[Any]]


def inputs(s: Scene) -> list[str]:
    """The ids of the admitted inputs, in order."""
    return [data.message.id for data in s.data(UserMessageEvent)]


def statuses(s: Scene) -> list[str]:
    """What was told as `agent/status`, in order."""
    return [str(entry.data["status"]) for entry in s.trace.entries if entry.name == "agent/status"]


def when(s: Scene, type: str, do: Callable[[], object]) -> None:
    """Do something, once, inside the observer of the first record of a type."""
    done: list[bool] = []

    def observe(event: Event) -> None:
        if event.type == type and not done:
            done.append(True)
            do()

    s.session.observe(observe)


def hooked(point: str, do: Callable[[Agent], object]) -> Hooks:
    """Hooks that do something at a point, once, and otherwise change nothing."""
    hooks, done = Hooks(), list[bool]()

    def act(payload: Any) -> None:
        if not done:
            done.append(True)
            do(payload.agent)

    async def serial(payload: Any) -> None:
        act(payload)

    async def waterfall(payload: Any, next: Next) -> Any:
        act(payload)
        return await next()

    listeners: dict[Mode, AnyListener] = {Mode.SERIAL: serial, Mode.WATERFALL: waterfall}
    hooks.listen(point, listeners.get(hooks.points[point].mode, act))
    return hooks


@pytest.mark.parametrize("cause", [USER_CANCEL, PARENT_CANCEL, HookCancel(reason="too dear"), DISPOSED_CANCEL])
async def test_can_01_the_cause_is_that_of_the_signal_and_of_the_turns_end(cause: CancelCause) -> None:
    signals: list[CancelSignal] = []
    gate = Gate()

    def answer(request: Request, signal: CancelSignal) -> Any:
        signals.append(signal)
        return OK.held(gate)

    async with scene(answer) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel(cause)

        assert signals[0].cause is cause
        await s.idle()
        assert s.reasons == [Aborted(reason=cause)]


async def test_can_01_the_first_cause_wins_over_later_ones_and_over_disposal() -> None:
    gate = Gate()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel(USER_CANCEL)
        s.agent.cancel(PARENT_CANCEL)

    assert s.reasons == [ABORTED]
    assert s.trace.names().count("agent/error") == 0


async def test_can_01_a_cancel_within_a_cancel_is_the_later_one() -> None:
    gate, hooks = Gate(), Hooks()

    @hooks.on("agent/inbox/discarded")
    def again(payload: InboxPayload) -> None:
        s.agent.cancel(PARENT_CANCEL, keep_inbox=True)

    async with scene(OK.held(gate), hooks=hooks) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.inject(X)
        s.agent.followup(B)
        s.agent.cancel(USER_CANCEL)
        assert not s.agent.inbox.pending, "nor does it keep what the first one discards"
        await s.idle()

        assert s.reasons == [ABORTED]


async def test_can_01_the_signal_of_a_turn_that_is_over_fires_no_more() -> None:
    signals: list[CancelSignal] = []
    hooks = Hooks()
    hooks.listen("agent/turn-stopping", lambda payload: signals.append(payload.signal))

    @hooks.on("agent/status")
    def cancel(payload: StatusPayload) -> None:
        if payload.status == "running" and signals:
            s.agent.cancel()

    async with scene(hooks=hooks) as s:
        await s.say("one")
        await s.say("two")
        s.agent.cancel()

        assert [signal.fired for signal in signals] == [False]
        assert s.reasons == [COMPLETED]


async def test_can_01_leaving_the_context_is_a_cause_too() -> None:
    gate = Gate()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        await gate.reached()

    assert s.reasons == [Aborted(reason=DISPOSED_CANCEL)]
    assert s.durable[-3:] == ["assistant/attempt", "step/end", "turn/end"]


async def test_can_02_a_cancel_discards_list_by_list_and_then_fires() -> None:
    gate = Gate()

    async def answer(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        with signal.calling(lambda: fired.extend(s.trace.lines())):
            await gate.go()
        yield Finish(FinishKind.STOP)

    fired: list[str] = []
    async with scene(answer) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.followup(B)
        s.agent.followup(C)
        s.agent.inject(X)
        s.agent.steer(Y)
        s.trace.clear()
        s.agent.cancel()

        assert s.trace.lines() == fired
        assert fired == [
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:2, inserted:[], outcome:canceled}",
            "L agent/inbox/discarded {message:m4}",
            "L agent/inbox/discarded {message:m5}",
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:2, inserted:[], outcome:canceled}",
            "L agent/inbox/discarded {message:m2}",
            "L agent/inbox/discarded {message:m3}",
        ]
        await s.idle()
        assert (inputs(s), s.reasons) == (["a"], [ABORTED])


async def test_can_03_what_was_queued_before_a_keeping_cancel_waits_for_the_next_wake() -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.followup(B)
        s.agent.inject(X)
        s.agent.cancel(keep_inbox=True)
        await s.idle()
        assert (s.agent.inbox.next_step, s.agent.inbox.next_turn) == ((X,), (B,))
        assert (s.agent.status, s.reasons) == ("idle", [ABORTED])
        assert "agent/inbox/discarded" not in s.trace.names()

        s.agent.followup(C)
        await s.idle()
        assert inputs(s) == ["a", "x", "b", "c"]


async def test_can_04_every_late_wake_is_a_turn_of_its_own() -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK, OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        s.agent.steer(B)
        s.agent.steer(C)
        assert s.agent.inbox.next_turn == (B, C)
        await s.idle()

        assert [start.turn for start in s.data(TurnStart)] == [1, 2, 3]
        assert inputs(s) == ["a", "b", "c"]


@pytest.mark.parametrize("keep_inbox", [False, True])
@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_can_04_a_wake_after_the_signal_runs_at_convergence_as_a_turn_of_its_own(
    verb: str, keep_inbox: bool
) -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.trace.clear()
        s.agent.cancel(keep_inbox=keep_inbox)
        getattr(s.agent, verb)(B)
        assert s.agent.inbox.next_turn == (B,)
        await s.idle()

        lines = s.trace.lines()
        at = lines.index("D turn/end {turn:1, reason:{kind:aborted, reason:{kind:user}}}")
        assert lines[at + 1 : at + 5] == [
            "L agent/status {status:idle}",
            "L agent/status {status:running}",
            "D turn/start {turn:2}",
            "D agent/inbox/spliced {target:next-turn, start:0, removedCount:1, inserted:[]}",
        ]
        assert s.reasons == [ABORTED, COMPLETED]


async def test_can_04_a_latched_wake_takes_what_was_parked_before_it_first() -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK, OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.followup(B)
        s.agent.inject(X)
        s.agent.cancel(keep_inbox=True)
        s.agent.steer(C)
        await s.idle()

        assert inputs(s) == ["a", "x", "b", "c"]
        assert [start.turn for start in s.data(TurnStart)] == [1, 2, 3]


async def test_can_04_an_inject_after_the_signal_is_staged_and_latches_nothing() -> None:
    gate = Gate()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        s.agent.inject(X)
        await s.idle()

        assert (s.agent.inbox.next_step, s.agent.inbox.next_turn) == ((X,), ())
        assert s.durable.count("turn/start") == 1


async def test_can_04_a_cancelled_turn_that_is_over_diverts_no_steer() -> None:
    """Not even one that comes before the next turn has started: only a turn that settles has a signal that counts."""
    hooks = Hooks()

    @hooks.on("agent/status")
    def steer(payload: StatusPayload) -> None:
        if payload.status == "running" and s.reasons:
            s.agent.steer(X)

    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        s.agent.cancel()
        await s.idle()
        s.agent.followup(B)
        await s.idle()

        assert s.data(InboxSpliced)[-3].target == "next-step"
        assert inputs(s) == ["x", "b"]
        assert s.reasons == [ABORTED, COMPLETED]


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_can_05_a_later_cancel_withdraws_the_latched_wake(verb: str) -> None:
    gate = Gate()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        getattr(s.agent, verb)(B)
        s.agent.cancel(PARENT_CANCEL)
        await s.idle()

        assert not s.agent.inbox.pending
        assert (s.durable.count("turn/start"), s.reasons) == (1, [ABORTED])
        assert statuses(s) == ["running", "idle"]


async def test_can_05_a_later_cancel_that_keeps_the_inbox_keeps_the_latch() -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        s.agent.followup(B)
        s.agent.cancel(keep_inbox=True)
        await s.idle()

        assert inputs(s) == ["a", "b"]


@pytest.mark.parametrize("left", [False, True])
async def test_can_05_removal_of_the_last_pending_message_withdraws_the_latched_wake(left: bool) -> None:
    gate = Gate()
    async with scene(OK.held(gate), OK) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        s.agent.followup(B)
        if left:
            s.agent.followup(C)
        s.agent.inbox.remove("b")
        await s.idle()

        assert inputs(s) == (["a", "c"] if left else ["a"])
        assert s.durable.count("turn/start") == (2 if left else 1)


async def test_can_05_whether_a_send_is_late_is_decided_before_its_insertion() -> None:
    """A cancel that its own announcement causes comes after it: what it inserted is discarded, and no turn follows."""
    gate, hooks = Gate(), Hooks()

    @hooks.on("agent/inbox/inserted")
    def cancel(payload: InboxPayload) -> None:
        if payload.message == X:
            s.agent.cancel()

    async with scene(OK.held(gate), hooks=hooks) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.steer(X)
        await s.idle()

        assert [record.target for record in s.data(InboxSpliced) if record.inserted] == ["next-turn", "next-step"]
        assert (s.durable.count("turn/start"), s.agent.inbox.pending) == (1, False)


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_can_06_a_wake_during_disposal_is_parked(verb: str, leaving: bool) -> None:
    gate, hooks = Gate(), Hooks()

    async def answer(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        try:
            await gate.go()
            yield Finish(FinishKind.STOP)
        finally:
            getattr(s.agent, verb)(B)

    async with scene(answer, hooks=hooks) as s:
        s.agent.followup(A)
        await gate.reached()
        if not leaving:
            s.agent.cancel(DISPOSED_CANCEL)
            await s.idle()

    assert s.reasons == [Aborted(reason=DISPOSED_CANCEL)]
    assert s.session.inbox.pending
    assert "agent/inbox/discarded" not in s.trace.names()


async def test_can_06_disposal_withdraws_a_latched_wake_and_keeps_its_message() -> None:
    gate = Gate()
    async with scene(OK.held(gate)) as s:
        s.agent.followup(A)
        await gate.reached()
        s.agent.cancel()
        s.agent.followup(B)

    assert s.session.inbox.next_turn == (B,)
    assert s.reasons == [ABORTED]


async def test_can_06_what_an_idle_listener_sends_during_disposal_is_parked() -> None:
    gate, hooks = Gate(), Hooks()

    @hooks.on("agent/status")
    def again(payload: StatusPayload) -> None:
        if payload.status == "idle":
            s.agent.followup(B)

    async with scene(OK.held(gate), hooks=hooks) as s:
        s.agent.followup(A)
        await gate.reached()

    assert s.session.inbox.next_turn == (B,)
    assert (s.durable.count("turn/start"), s.agent.phase) == (1, "disposed")


@pytest.mark.parametrize("cause", [USER_CANCEL, DISPOSED_CANCEL])
async def test_can_07_an_idle_cancel_arms_nothing(cause: CancelCause) -> None:
    async with scene() as s:
        s.agent.cancel(cause)
        assert s.trace.lines() == []
        s.agent.followup(A)
        s.agent.followup(B)
        await s.idle()

        assert (inputs(s), s.reasons) == (["a", "b"], [COMPLETED, COMPLETED])


async def test_can_07_after_a_turn_that_was_cancelled_as_disposed_the_next_prompts_run() -> None:
    async with scene() as s:
        s.agent.followup(A)
        s.agent.cancel(DISPOSED_CANCEL)
        await s.idle()
        s.agent.followup(B)
        s.agent.followup(C)
        await s.idle()

        assert inputs(s) == ["b", "c"]


@pytest.mark.parametrize("keep_inbox", [False, True])
async def test_can_07_an_idle_cancel_clears_what_is_parked_unless_it_is_kept(keep_inbox: bool) -> None:
    async with scene() as s:
        s.agent.inject(X)
        s.trace.clear()
        s.agent.cancel(keep_inbox=keep_inbox)

        assert s.agent.inbox.pending is keep_inbox
        discarded = [] if keep_inbox else ["agent/inbox/spliced", "agent/inbox/discarded"]
        assert s.trace.names() == discarded
        await s.say("go on")
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("keep_inbox", [False, True])
async def test_can_08_a_cancel_by_a_listener_of_running_opens_no_turn(keep_inbox: bool) -> None:
    hooks = hooked("agent/status", lambda agent: agent.cancel(keep_inbox=keep_inbox))
    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert statuses(s) == ["running", "idle"]
        assert "turn/start" not in s.durable
        assert s.agent.inbox.pending is keep_inbox
        await s.say("next")
        assert s.reasons[0] == COMPLETED


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_can_08_a_replacement_that_it_sends_runs_at_convergence(verb: str) -> None:
    heard: list[str] = []

    def replace(agent: Agent) -> None:
        agent.cancel()
        getattr(agent, verb)(B)

    hooks = hooked("agent/status", replace)
    hooks.listen("agent/status", lambda payload: heard.append(payload.status))
    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        await s.idle()

        assert statuses(s) == ["running", "idle", "running", "idle"]
        assert heard == statuses(s), "a listener behind the one that cancels hears the same order"
        assert (inputs(s), s.reasons) == (["b"], [COMPLETED])


@pytest.mark.parametrize("place", ["after the send", "agent/step-boundary", "agent/model", "agent/pre-step"])
async def test_can_09_a_cancel_before_step_start_ends_the_turn_without_a_step(place: str) -> None:
    hooks = Hooks() if place == "after the send" else hooked(place, lambda agent: agent.cancel())
    async with scene(hooks=hooks) as s:
        s.agent.followup(A)
        if place == "after the send":
            s.agent.cancel()
        await s.idle()

        assert s.durable == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
        assert s.reasons == [ABORTED]
        proposal = ["agent/step-boundary", "agent/model", "agent/pre-step"]
        ran = proposal[: proposal.index(place) + 1] if place in proposal else []
        assert [name for name in s.trace.names() if name in proposal] == ran
        assert s.agent.step is None


class Preparing(ScriptedModel):
    """Cancels while the call is being prepared: at once, or while it is awaited."""

    def __init__(self, agent: Callable[[], Agent], late: bool) -> None:
        super().__init__(OK)
        self.agent, self.late = agent, late

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall | Awaitable[PreparedCall]:
        prepared = super().prepare(config, signal)

        async def after() -> PreparedCall:
            self.agent().cancel()
            await signal.wait()
            assert isinstance(prepared, PreparedCall)
            return prepared

        if not self.late:
            self.agent().cancel()
            return prepared
        return after()


@pytest.mark.parametrize(
    "place", ["step/start", "resolve", "system-prompt/assemble", "agent/request", "prepare", "prepare, awaited"]
)
async def test_can_10_a_cancel_before_admission_leaves_an_empty_step_and_calls_no_adapter(place: str) -> None:
    hooks = hooked(place, lambda agent: agent.cancel()) if place in Hooks().points else Hooks()
    model = Preparing(lambda: s.agent, late=place.endswith("awaited")) if place.startswith("prepare") else None

    def offered(agent: AgentHandle) -> bool:
        if place == "resolve":
            agent.cancel()
        return True

    @tool(when=offered)
    async def work() -> str:
        """Works."""
        return "done"

    async with scene(hooks=hooks, model=model, tools=[work]) as s:
        if place == "step/start":
            when(s, place, s.agent.cancel)
        s.agent.followup(A)
        await s.idle()

        assert s.durable[3:] == ["step/start", "step/end", "turn/end"]
        assert s.reasons == [ABORTED]
        assert s.model.requests == []
        assert s.agent.tools.open_sets == 0
        assert s.agent.step is None


class Stubborn:
    """A place that does not listen to the signal: it goes on until it is let go."""

    def __init__(self) -> None:
        self.gate, self.over = Gate(), False

    async def stand(self) -> None:
        await self.gate.go()
        self.over = True


@pytest.mark.parametrize(
    "point", ["agent/step-boundary", "agent/pre-step", "agent/request", "tools/pre-execute", "agent/turn-stopping"]
)
async def test_can_11_a_hook_that_pays_no_heed_is_awaited(point: str) -> None:
    stubborn, hooks = Stubborn(), Hooks()

    async def serial(payload: Any) -> None:
        await stubborn.stand()

    async def waterfall(payload: Any, next: Next) -> Any:
        await stubborn.stand()
        return await next()

    hooks.listen(point, serial if hooks.points[point].mode.value == "serial" else waterfall)
    reply = Reply(calls=[("work", {})]) if point.startswith("tools/") else OK
    async with scene(reply, hooks=hooks, tools=[GatedTool(free=True)]) as s:
        s.agent.followup(A)
        await stubborn.gate.reached()
        s.agent.cancel()
        for _ in range(5):
            await checkpoint()
        assert (s.agent.status, stubborn.over) == ("running", False)

        stubborn.gate.open()
        await s.idle()
        assert stubborn.over
        assert s.reasons == [ABORTED]


async def test_can_11_an_adapter_and_a_tool_are_awaited_to_their_end() -> None:
    over: list[str] = []

    async def slow_end(name: str) -> None:
        with CancelScope(shield=True):
            await checkpoint()
            over.append(f"{name} at {s.agent.status}")

    async def answer(request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        try:
            yield TextDelta(0, "x")
            await signal.wait()
        finally:
            await slow_end("adapter")

    @tool
    async def work(context: ToolContext) -> str:
        """Works until it is stopped."""
        try:
            gate.open()
            await context.signal.wait()
        finally:
            await slow_end("tool")
        return "done"

    gate, hooks = Gate(), Hooks()
    async with scene(answer, Reply(calls=[("work", {})]), hooks=hooks, tools=[work]) as s:
        frame = Gate()
        hooks.listen("agent/assistant-stream", lambda payload: frame.open())
        s.agent.followup(A)
        await frame.go()
        s.agent.cancel()
        await s.idle()
        s.agent.followup(B)
        await gate.go()
        s.agent.cancel()
        await s.idle()

    assert over == ["adapter at running", "tool at running"]


async def test_can_11_all_points_of_a_turn_get_one_signal_and_the_next_turn_another() -> None:
    seen: dict[int, set[CancelSignal]] = {}
    hooks = Hooks()

    def note(payload: Any) -> None:
        seen.setdefault(s.session.last_turn, set()).add(payload.signal)

    async def serial(payload: Any) -> None:
        note(payload)

    async def waterfall(payload: Any, next: Next) -> Any:
        note(payload)
        return await next()

    points = {
        name for name, point in hooks.points.items() if "signal" in {field.name for field in fields(point.payload)}
    }
    for name in points:
        hooks.listen(name, serial if hooks.points[name].mode.value == "serial" else waterfall)

    tools: list[Tool] = [work := GatedTool(free=True)]
    calls = Reply(calls=[("work", {})])
    async with scene(calls, Reply.failure(), calls, OK, hooks=hooks, tools=tools) as s:
        s.agent.followup(A)
        s.agent.followup(B)
        await s.idle()
        s.agent.followup(C)
        await s.idle()

        assert len(points) >= 10
        assert {turn: len(signals) for turn, signals in seen.items()} == {1: 1, 2: 1, 3: 1}
        assert len({signal for signals in seen.values() for signal in signals}) == 3
        assert work.contexts[0].signal in seen[1]


@pytest.mark.parametrize("type", ["turn/start", "step/start", "assistant/message", "tool/call", "step/end"])
async def test_can_12_a_cancel_from_a_durable_observer_fires_and_clears_once_the_append_is_over(type: str) -> None:
    fired: list[bool] = []

    def cancel() -> None:
        s.agent.cancel()
        fired.append(signals[-1].fired if signals else type == "turn/start")
        assert s.agent.inbox.next_turn[-1:] == (B,), "during the append nothing can be discarded"

    signals: list[CancelSignal] = []
    hooks = Hooks()

    @hooks.on("agent/step-boundary")
    async def note(payload: Any) -> None:
        signals.append(payload.signal)

    async with scene(Reply(calls=[("work", {})]), hooks=hooks, tools=[GatedTool(free=True)]) as s:
        when(s, type, cancel)
        s.session.inbox.splice("next-turn", 0, 0, [A, B])
        s.agent.steer(X)
        await s.idle()

        assert fired == [True]
        assert not s.agent.inbox.pending
        assert s.reasons == [ABORTED]
        lines = s.trace.lines()
        at = next(n for n, line in enumerate(lines) if line.startswith(f"D {type} "))
        assert lines[at + 1].endswith("outcome:canceled}")
        assert lines[at + 2].startswith("L agent/inbox/discarded")


async def test_can_12_a_keeping_cancel_from_a_durable_observer_fires_and_discards_nothing() -> None:
    async with scene() as s:
        when(s, "step/start", lambda: s.agent.cancel(keep_inbox=True))
        s.agent.followup(A)
        s.agent.followup(B)
        await s.idle()

        assert s.agent.inbox.next_turn == (B,)
        assert s.durable[-3:] == ["step/start", "step/end", "turn/end"]
        assert s.reasons == [ABORTED]


async def test_can_12_an_idle_cancel_from_a_durable_observer_discards_after_the_append() -> None:
    async with scene() as s:
        when(s, "agent/inbox/spliced", s.agent.cancel)
        s.agent.inject(X)

        assert s.trace.lines() == [
            "D agent/inbox/spliced {target:next-step, start:0, inserted:[m1]}",
            "L agent/inbox/inserted {message:m1}",
            "D agent/inbox/spliced {target:next-step, start:0, removedCount:1, inserted:[], outcome:canceled}",
            "L agent/inbox/discarded {message:m1}",
        ]
