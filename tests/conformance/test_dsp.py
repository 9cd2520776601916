"""Group DSP: how listeners are called; in an agent's run where a point of that mode has one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from lifecycle import Agent, CallConfig, Deny, Enter, HookPoint, Hooks, Reject, Session
from lifecycle.errors import HookRegistrationError, IllegalPayloadError, NextCalledTwiceError
from lifecycle.services.listeners import Next
from lifecycle.services.points import (
    POINTS,
    AgentHandle,
    CallPayload,
    EventPayload,
    Mode,
    OnFault,
    Payload,
    PreStepPayload,
    RequestPayload,
    StatusPayload,
    StepPayload,
)
from lifecycle.testing import GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.events import TurnStart
from lifecycle.vocabulary.failures import Errored

from .calls import DONE, asks
from .kit import scene

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Words(Payload):
    """The payload of the points of this test."""

    words: str


MINE = {
    **POINTS,
    "test/serial": HookPoint("test/serial", Mode.SERIAL, Words, (str, int, bool), OnFault.FAILS_TURN),
    "test/waterfall": HookPoint("test/waterfall", Mode.WATERFALL, Words, (str,), OnFault.FAILS_TURN),
    "test/parallel": HookPoint("test/parallel", Mode.PARALLEL, Words, (), OnFault.RAISED_AFTER_ALL),
}
HELLO = Words(cast("AgentHandle", None), "hello")


# -- DSP-01: emit ---------------------------------------------------------------------------------------------------


async def test_dsp_01_emit_calls_everybody_in_order_and_contains_each_fault(caplog: pytest.LogCaptureFixture) -> None:
    hooks, heard = Hooks(), list[str]()

    async def never() -> None:
        heard.append("awaited after all")

    @hooks.on("agent/status")
    def raising(payload: StatusPayload) -> None:
        heard.append(f"first {payload.status}")
        raise ValueError("the first listener fails")

    @hooks.on("agent/status")
    def returning(payload: StatusPayload) -> Awaitable[None]:
        heard.append(f"second {payload.status}")
        return never()

    @hooks.on("agent/status")
    def stopping(payload: StatusPayload) -> str:
        heard.append(f"third {payload.status}")
        return "a result, which is ignored"

    hooks.listen("agent/status", lambda payload: heard.append(f"fourth {payload.status}"))
    with caplog.at_level(logging.ERROR, "lifecycle"):
        async with scene(hooks=hooks) as s:
            s.agent.followup("hello")
            assert heard == ["first running", "second running", "third running", "fourth running"]  # by now, all of it
            await s.idle()

            assert heard[4:] == ["first idle", "second idle", "third idle", "fourth idle"]
            assert [reason.kind for reason in s.reasons] == ["completed"]
    assert caplog.text.count("ValueError: the first listener fails") == 2
    assert caplog.text.count("returned an awaitable") == 2


def test_dsp_01_a_listener_that_would_have_to_be_awaited_is_refused_where_it_is_registered() -> None:
    async def waits(payload: StatusPayload) -> None: ...

    with pytest.raises(HookRegistrationError, match="agent/status"):
        Hooks().listen("agent/status", waits)


# -- DSP-02: serial -------------------------------------------------------------------------------------------------


async def test_dsp_02_serial_awaits_one_at_a_time_and_the_first_answer_ends_the_round() -> None:
    hooks, order, gate = Hooks(), list[str](), anyio.Event()

    @hooks.on("tools/guard")
    async def slow(payload: CallPayload) -> None:
        order.append("first begins")
        await gate.wait()
        order.append("first ends")

    @hooks.on("tools/guard")
    def second(payload: CallPayload) -> Deny:
        order.append("second")
        return Deny("stop here")

    hooks.listen("tools/guard", lambda _: order.append("third"))
    work = GatedTool(free=True)
    async with scene(asks("a"), DONE, tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await anyio.wait_all_tasks_blocked()
        assert order == ["first begins"]

        gate.set()
        await s.idle()
        assert order == ["first begins", "first ends", "second"]
        assert work.calls == []


@pytest.mark.parametrize(("answers", "answer"), [((None, False, "stop"), "stop"), ((None, 0), 0), ((False,), None)])
async def test_dsp_02_none_and_false_pass_and_anything_else_is_returned(answers: Any, answer: object) -> None:
    hooks = Hooks(points=MINE)
    for one in answers:
        hooks.listen("test/serial", lambda _, one=one: one)  # pyright: ignore[reportUnknownLambdaType]

    assert await hooks.serial("test/serial", HELLO) == answer


async def test_dsp_02_an_exception_stops_the_round_and_reaches_the_dispatcher() -> None:
    hooks, order = Hooks(), list[str]()

    @hooks.on("agent/step-boundary")
    async def fails(payload: StepPayload) -> None:
        raise ValueError("no further")

    hooks.listen("agent/step-boundary", lambda _: order.append("never"))
    async with scene(hooks=hooks) as s:
        await s.say("hello")

        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.message == "ValueError: no further"
        assert order == []


# -- DSP-03: waterfall ----------------------------------------------------------------------------------------------


def wrapping(order: list[str], name: str) -> Any:
    async def wrap(payload: object, next: Next[Any]) -> Any:
        order.append(f"{name}(")
        try:
            return await next()
        finally:
            order.append(f"){name}")

    return wrap


async def test_dsp_03_the_first_registered_is_outermost_and_a_prepended_one_goes_in_front() -> None:
    hooks, order = Hooks(), list[str]()
    hooks.listen("agent/pre-step", wrapping(order, "a"))
    hooks.listen("agent/pre-step", wrapping(order, "b"))
    hooks.listen("agent/pre-step", wrapping(order, "front"), prepend=True)
    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert order == ["front(", "a(", "b(", ")b", ")a", ")front"]
        assert [reason.kind for reason in s.reasons] == ["completed"]  # what the default said came out


async def test_dsp_03_next_may_be_called_late_or_not_at_all_and_the_outermost_decides() -> None:
    hooks, order = Hooks(), list[str]()

    @hooks.on("agent/pre-step")
    async def late(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        await anyio.lowlevel.checkpoint()
        inner = await next()
        order.append(f"inner says {inner}")
        return Enter(payload.messages)

    hooks.listen("agent/pre-step", lambda payload, next: Reject("short-circuit"))
    hooks.listen("agent/pre-step", wrapping(order, "never"))
    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert order == ["inner says Reject(reason='short-circuit')"]
        assert s.durable.count("step/start") == 1


async def test_dsp_03_exceptions_pass_outward_and_a_wrapper_may_replace_them() -> None:
    hooks, order = Hooks(), list[str]()

    @hooks.on("agent/pre-step")
    async def catching(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        try:
            return await next()
        except ValueError as wrong:
            return Reject(str(wrong))

    hooks.listen("agent/pre-step", wrapping(order, "between"))

    @hooks.on("agent/pre-step")
    async def raising(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        raise ValueError("from within")

    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert order == ["between(", ")between"]
        assert [reason.kind for reason in s.reasons] == ["blocked"]


async def test_dsp_03_a_second_next_raises_and_nothing_runs_twice() -> None:
    hooks, order, raised = Hooks(), list[str](), list[str]()

    @hooks.on("agent/pre-step")
    async def twice(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        first = await next()
        with pytest.raises(NextCalledTwiceError, match="agent/pre-step") as wrong:
            await next()
        raised.append(wrong.value.listener)
        return first

    hooks.listen("agent/pre-step", wrapping(order, "inner"))
    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert order == ["inner(", ")inner"]
        assert [name.rsplit(".", 1)[-1] for name in raised] == ["twice"]
        assert [reason.kind for reason in s.reasons] == ["completed"]


async def test_dsp_03_each_listener_may_call_next_once_and_the_default_gets_the_payload() -> None:
    hooks, order = Hooks(points=MINE), list[str]()
    hooks.listen("test/waterfall", wrapping(order, "a"))
    hooks.listen("test/waterfall", wrapping(order, "b"))

    assert await hooks.waterfall("test/waterfall", HELLO, lambda payload: payload.words) == "hello"
    assert order == ["a(", "b(", ")b", ")a"]


# -- DSP-04: parallel -----------------------------------------------------------------------------------------------


async def test_dsp_04_parallel_starts_everybody_together_waits_for_all_and_raises_the_first_failure() -> None:
    hooks, order = Hooks(points=MINE), list[str]()
    gates = {"a": anyio.Event(), "b": anyio.Event(), "c": anyio.Event()}

    def waiting(name: str) -> Any:
        async def wait(payload: Words) -> None:
            order.append(f"{name} begins")
            await gates[name].wait()
            order.append(f"{name} ends")
            if name != "a":
                raise ValueError(f"{name} failed")

        return wait

    for name in gates:
        hooks.listen("test/parallel", waiting(name))

    async def dispatch() -> None:
        with pytest.raises(ValueError, match="b failed"):  # c failed later
            await hooks.parallel("test/parallel", HELLO)
        order.append("dispatched")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(dispatch)
            await anyio.wait_all_tasks_blocked()
            assert sorted(order) == ["a begins", "b begins", "c begins"]
            for name in "bca":
                gates[name].set()
                await anyio.wait_all_tasks_blocked()
    assert order[3:] == ["b ends", "c ends", "a ends", "dispatched"]


# -- DSP-05: scope and snapshot -------------------------------------------------------------------------------------


async def test_dsp_05_a_listener_hears_its_own_agent_and_a_shared_one_is_told_which() -> None:
    shared, own = Hooks(), Hooks()
    heard: list[tuple[str, object]] = []
    shared.listen("agent/status", lambda payload: heard.append(("shared", payload.agent)))
    own.listen("agent/status", lambda payload: heard.append(("own", payload.agent)))
    async with scene(hooks=shared + own) as one, scene(hooks=shared) as two:
        await one.say("to the first")
        await two.say("to the second")

        assert heard == [("shared", one.agent), ("own", one.agent)] * 2 + [("shared", two.agent)] * 2


async def test_dsp_05_the_agent_in_a_payload_cannot_be_exchanged() -> None:
    hooks, refused = Hooks(), list[IllegalPayloadError]()

    @hooks.on("agent/request")
    async def spoof(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
        try:
            return await next(replace(payload, agent=cast("AgentHandle", object())))
        except IllegalPayloadError as wrong:
            refused.append(wrong)
            raise

    async with scene(hooks=hooks) as s:
        await s.say("hello")

        assert [wrong.fields for wrong in refused] == [("agent",)]
        assert [reason.kind for reason in s.reasons] == ["error"]


async def test_dsp_05_who_is_called_is_fixed_when_the_dispatch_begins() -> None:
    hooks, heard = Hooks(), list[str]()

    @hooks.on("agent/status")
    def first(payload: StatusPayload) -> None:
        heard.append(f"first {payload.status}")
        if payload.status == "running":
            hooks.listen("agent/status", lambda payload: heard.append(f"late {payload.status}"))
            second.remove()

    second = hooks.listen("agent/status", lambda payload: heard.append(f"second {payload.status}"))
    async with scene(hooks=hooks) as s:
        await s.say("hello")

    assert heard == ["first running", "second running", "first idle", "late idle"]


async def test_dsp_05_the_listeners_of_a_session_go_with_the_agent_that_brought_them() -> None:
    session, hooks, heard = Session.memory(), Hooks(), list[tuple[str, object]]()

    @hooks.on("session/event")
    def hear(payload: EventPayload) -> None:
        heard.append((payload.event.type, payload.agent))

    session.append(TurnStart(turn=1))  # nobody is there yet
    assert heard == []

    other = Session.memory()
    async with Agent(ScriptedModel(otherwise=Reply(text="ok")), hooks=hooks, session=other) as agent:
        agent.followup("hello")
        await agent.when_idle()
        session.append(TurnStart(turn=2))  # of another session
        assert {who for _, who in heard} == {agent}
        assert [type for type, _ in heard] == [event.type for event in other.events]
        count = len(heard)
    assert len(heard) == count
    assert other.closed


async def test_dsp_05_a_registration_ends_with_its_block() -> None:
    hooks, heard = Hooks(), list[str]()
    async with scene(hooks=hooks) as s:
        with hooks.listen("agent/status", lambda payload: heard.append(payload.status)):
            await s.say("one")
        await s.say("two")

        assert heard == ["running", "idle"]
        assert hooks.listeners("agent/inbox/discarded") != ()  # the trace's own are still there
