"""The pool of tool calls under every batch that comes to mind: what must hold, whatever settles when."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Accept, Agent, AgentOptions, Allow, Ask, Block, Deny, Hooks, ToolContext, tool
from lifecycle.driver.runs import StepRun
from lifecycle.services.listeners import Next
from lifecycle.services.points import CallPayload, EventPayload, PostCallPayload, ResultPayload
from lifecycle.testing import Call, Reply, ScriptedModel
from lifecycle.vocabulary.events import Event, ToolCallEvent, ToolResultEvent, TurnEnd
from lifecycle.vocabulary.messages import ToolResultBlock
from lifecycle.vocabulary.values import FrozenDict

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class OneCall:
    """One call of a batch."""

    parallel: bool
    denied: bool
    raises: bool
    stubborn: bool
    """A cancel does not end its body."""
    flips: frozenset[int]
    """The calls that its result makes parallel where they were exclusive, and the reverse."""


@dataclass(frozen=True)
class Batch:
    calls: tuple[OneCall, ...]
    cap: int
    settle: tuple[int, ...]
    """Who ends first among those that run: the earlier in this list."""
    cancel_at: int | None
    """At the how-manieth thing that happens the turn is cancelled."""
    refuse: int | None
    """The call whose result the log refuses."""


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    size = draw(st.integers(1, 7))
    number, rarely = st.integers(0, size - 1), st.sampled_from([False, False, False, True])
    call = st.builds(
        OneCall,
        parallel=st.sampled_from([True, True, True, False]),
        denied=rarely,
        raises=rarely,
        stubborn=st.booleans(),
        flips=st.frozensets(number, max_size=2),
    )
    return Batch(
        calls=tuple(draw(st.lists(call, min_size=size, max_size=size))),
        cap=draw(st.integers(1, 4)),
        settle=tuple(draw(st.permutations(range(size)))),
        cancel_at=draw(st.none() | st.integers(0, size * 7)),
        refuse=draw(st.none() | st.none() | number),
    )


class Play:
    """Runs one batch, lets one body at a time end, and writes down what happens."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.log: list[tuple[str, int]] = []
        self.parallel = [call.parallel for call in batch.calls]
        self.started_parallel: dict[int, bool] = {}
        self.codes: dict[int, str | None] = {}
        self.ends: list[str] = []
        self.gates: dict[int, anyio.Event] = {}
        self.agent: Agent | None = None
        self.cancelled = False
        self.free = False
        """Bodies end by themselves."""

    def note(self, what: str, call: int = -1) -> None:
        self.log.append((what, call))
        if len(self.log) - 1 == self.batch.cancel_at and self.agent is not None:
            self.cancelled = True
            self.log.append(("cancel", call))
            self.agent.cancel()

    async def run(self) -> None:
        calls: list[Call] = [("work", {"n": n}, str(n)) for n in range(len(self.batch.calls))]
        model = ScriptedModel(Reply(calls=calls), otherwise=Reply(text="done"))

        def parallel(arguments: FrozenDict) -> bool:
            return self.parallel[int(arguments["n"])]

        @tool(parallel=parallel)
        async def work(n: int, context: ToolContext) -> str:
            return await self.body(n)

        options = AgentOptions(max_parallel_tools=self.batch.cap)
        with anyio.fail_after(20):
            async with Agent(model, tools=[work], hooks=self.hooks(), options=options) as self.agent:
                self.agent.session.observe(self.observe)
                self.agent.followup("go")
                try:
                    await self.settle_one_by_one()
                finally:  # also when a check fails: the agent waits for every body
                    self.free = True
                    for gate in self.gates.values():
                        gate.set()

    async def body(self, n: int) -> str:
        call, gate = self.batch.calls[n], self.gates.setdefault(n, anyio.Event())
        self.note("begin", n)
        try:
            with anyio.CancelScope(shield=call.stubborn):
                if not self.free:
                    await gate.wait()
        finally:
            self.note("end", n)
        if call.raises:
            raise ValueError("this body fails")
        return "done"

    def hooks(self) -> Hooks:
        hooks = Hooks()

        @hooks.on("tools/pre-execute")
        async def pre(payload: CallPayload, next: Next[Allow | Deny | Ask]) -> Allow | Deny | Ask:
            n = int(payload.call.id)
            self.note("pre", n)
            await anyio.lowlevel.checkpoint()
            return Deny("not this one") if self.batch.calls[n].denied else await next()

        @hooks.on("tools/post-execute")
        async def post(payload: PostCallPayload, next: Next[Accept | Block]) -> Accept | Block:
            self.note("post", int(payload.call.id))
            await anyio.lowlevel.checkpoint()
            return await next()

        @hooks.on("tools/result")
        def flip(payload: ResultPayload) -> None:
            for other in self.batch.calls[int(payload.call.id)].flips:
                self.parallel[other] = not self.parallel[other]

        @hooks.on("session/append")
        def refuse(payload: EventPayload) -> None:
            if isinstance(payload.event.data, ToolResultEvent) and answered(payload.event) == self.batch.refuse:
                self.note("refused", answered(payload.event))
                raise OSError("the disk is full")

        return hooks

    def observe(self, event: Event) -> None:
        match event.data:
            case ToolCallEvent(call_id=id):
                self.started_parallel[int(id)] = self.parallel[int(id)]
                self.note("call", int(id))
            case ToolResultEvent(error=error):
                self.codes[answered(event)] = None if error is None else error.code
                self.note("result", answered(event))
            case TurnEnd(reason=reason):
                self.ends.append(reason.kind)
            case _ if event.type == "step/end":
                self.log.append(("step/end", -1))
            case _:
                pass

    async def settle_one_by_one(self) -> None:
        assert self.agent is not None
        while True:
            await self.stillness()
            if self.agent.status == "idle":
                return
            running = self.running()
            self.check_that_nothing_idles(running)
            assert running, f"nothing runs, and the turn does not end: {self.log}"
            first = next(n for n in self.batch.settle if n in running)
            self.gates[first].set()

    async def stillness(self) -> None:
        """Wait until nothing has happened for many rounds of the event loop: nobody sleeps and nobody does I/O."""
        rounds, seen = 0, -1
        while rounds < 25:
            rounds, seen = (rounds + 1, seen) if len(self.log) == seen else (0, len(self.log))
            await anyio.lowlevel.checkpoint()

    def running(self) -> set[int]:
        return {n for what, n in self.log if what == "begin"} - {n for what, n in self.log if what == "end"}

    def check_that_nothing_idles(self, running: set[int]) -> None:
        """Whatever may start has started, and whatever may be committed has been (TLS-05, TLS-08)."""
        if self.cancelled or ("refused", self.batch.refuse) in self.log:
            return
        called = [n for what, n in self.log if what == "call"]
        pending = [n for n in called if ("result", n) not in self.log]
        assert not pending or pending[0] in running
        if len(called) < len(self.batch.calls):
            barrier = any(not self.started_parallel[n] for n in pending)
            if self.parallel[len(called)]:
                assert barrier or len(running) == self.batch.cap
            else:
                assert pending


def answered(event: Event) -> int:
    assert isinstance(event.data, ToolResultEvent)
    (block,) = event.data.message.content
    assert isinstance(block, ToolResultBlock)
    return int(block.tool_call_id)


def check_order(play: Play) -> None:
    """What holds of every log, however the turn ended."""
    batch, log = play.batch, play.log
    running, called, answered_, cancelled, failed, committing = set[int](), list[int](), list[int](), False, False, -1
    for what, n in log:
        match what:
            case "call":
                assert n == len(called), "calls start in model order"
                assert not failed, "nothing starts after a failure"
                pending = [m for m in called if m not in answered_]
                if not cancelled:
                    assert all(play.started_parallel[m] for m in pending), "nothing starts beside an exclusive call"
                    assert play.started_parallel[n] or not pending, "an exclusive call starts when all is committed"
                called.append(n)
            case "begin":
                assert not cancelled, "no body begins after a cancel"
                assert n in called
                running.add(n)
                assert len(running) <= batch.cap
                assert play.started_parallel[n] or running == {n}, "an exclusive body runs alone"
            case "end":
                running.discard(n)
            case "post":
                assert committing in (-1, n)
                committing = n
            case "result":
                assert n == len(answered_), "results come in model order, without a gap"
                assert n in called
                assert n not in running
                assert committing in (-1, n), "what is committed together is committed without a break"
                answered_.append(n)
                committing = -1
            case "pre":
                assert called[-1] == n
                assert committing == -1
            case "cancel":
                cancelled = True
            case "refused":
                failed, committing = True, -1
            case "step/end":
                assert not running, "no body outlives its step"
            case _:
                raise AssertionError(what)


def expected_code(play: Play, n: int) -> str | None:
    """What the result of a call says, by what was done to it and when."""
    call, log = play.batch.calls[n], play.log
    cancelled = log.index(next(entry for entry in log if entry[0] == "cancel")) if play.cancelled else len(log)
    asked = ("pre", n) in log
    if call.denied and asked:
        return "DENIED"
    if ("begin", n) not in log:
        return "ABORTED_BEFORE_DISPATCH"
    released = n in play.gates and play.gates[n].is_set() and (call.stubborn or log.index(("end", n)) < cancelled)
    if call.raises and released:
        return "TOOL_FAILED"
    # the entry right before the cancel is where it was made from: a body that cancels with its last breath was aborted
    return None if log.index(("end", n)) < cancelled - 1 else "ABORTED"


@given(batch=batches())
async def test_the_pool_keeps_its_promises(batch: Batch) -> None:
    play = Play(batch)
    await play.run()

    check_order(play)
    calls = range(len(batch.calls))
    refused = any(what == "refused" for what, _ in play.log)
    if not refused:
        assert sorted(play.codes) == [*calls], "every call is answered"
        assert play.codes == {n: expected_code(play, n) for n in calls}
        assert play.ends == (["aborted"] if play.cancelled else ["completed"])
    elif not play.cancelled:
        assert play.ends == ["error"]
        assert sorted(play.codes) == [*range(batch.refuse or 0)], "nothing is committed after a failure"


async def test_a_step_that_has_ended_is_freed_at_once_and_not_left_to_the_collector() -> None:
    @tool
    async def work() -> str:
        return "done"

    works = Reply(calls=[("work", {})])
    model = ScriptedModel(works, works, Reply(text="ok"))
    gc.collect()
    gc.disable()
    try:
        async with Agent(model, tools=[work]) as agent:
            agent.followup("go")
            with anyio.fail_after(5):
                await agent.when_idle()
            left = [one for one in gc.get_objects() if type(one) is StepRun and one.agent.handle is agent]
    finally:
        gc.enable()

    assert agent.session.open_turn is None
    assert left == []
