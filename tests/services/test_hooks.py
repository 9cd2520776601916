"""Hooks: registration, the five ways to dispatch, and what a listener may not do."""

from __future__ import annotations

import dataclasses
import functools
import logging
import typing
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import anyio
import pytest

from lifecycle.errors import (
    HookError,
    HookRegistrationError,
    IllegalPayloadError,
    IllegalVerdictError,
    NextCalledTwiceError,
    UnknownHookPointError,
)
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Listening, Next
from lifecycle.services.points import (
    POINTS,
    AgentHandle,
    CallPayload,
    Deny,
    Enter,
    HookPoint,
    LlmStreamPayload,
    Mode,
    Payload,
    PreStepPayload,
    Reject,
    Retry,
    StatusPayload,
    StepPayload,
    ToolOutcome,
)
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, TextDelta
from lifecycle.vocabulary.failures import USER_CANCEL
from lifecycle.vocabulary.messages import ToolCallBlock, text, user_message
from lifecycle.vocabulary.requests import CallConfig, Request
from lifecycle.vocabulary.values import EMPTY

AGENT = cast("AgentHandle", object())
STATUS = StatusPayload(AGENT, "running")
STEP = StepPayload(AGENT, 1, 1, CancelSignal())
PRE_STEP = PreStepPayload(AGENT, 1, 1, CancelSignal(), ())
ENTER = Enter(())
DONE = ToolOutcome(text("done"))


def call(signal: CancelSignal | None = None) -> CallPayload:
    return CallPayload(AGENT, ToolCallBlock(id="c1", name="t"), EMPTY, None, signal or CancelSignal())


def enter(_: object) -> Enter | Reject:
    return ENTER


# -- registration -------------------------------------------------------------------------------------------------


def test_a_misspelt_point_is_an_error_that_names_the_nearest_and_all_legal_ones() -> None:
    with pytest.raises(UnknownHookPointError, match="did you mean 'agent/pre-step'") as refused:
        Hooks().on("agent/prestep")

    assert refused.value.suggestion == "agent/pre-step"
    assert refused.value.legal == tuple(POINTS)


@pytest.mark.parametrize("name", [point.name for point in POINTS.values() if point.mode in (Mode.EMIT, Mode.VETO)])
def test_an_async_def_is_refused_where_nobody_waits(name: str) -> None:
    async def late(payload: object) -> None: ...

    class Late:
        async def __call__(self, payload: object) -> None: ...

    for listener in (late, functools.partial(late), Late()):
        with pytest.raises(HookRegistrationError, match="plain def"):
            Hooks().listen(name, listener)


def test_a_listener_that_cannot_take_what_it_is_called_with_is_refused() -> None:
    hooks = Hooks()

    def no_next(payload: object) -> None: ...
    def three(payload: object, next: object, more: object) -> None: ...

    with pytest.raises(HookRegistrationError, match=r"no_next cannot listen .*\(payload, next\).*\(payload"):
        hooks.listen("agent/pre-step", no_next)
    with pytest.raises(HookRegistrationError, match="more"):
        hooks.listen("agent/pre-step", cast("Any", three))
    with pytest.raises(HookRegistrationError, match="cannot be called"):
        hooks.listen("agent/status", cast("Any", "no function"))
    assert not hooks.listeners("agent/pre-step")


def test_generators_are_refused_except_async_ones_at_the_stream() -> None:
    def generator(payload: object) -> Any:
        yield

    async def stream(payload: object, next: object) -> Any:
        yield

    with pytest.raises(HookRegistrationError, match="generator"):
        Hooks().listen("agent/status", generator)
    with pytest.raises(HookRegistrationError, match="async generator"):
        Hooks().listen("agent/pre-step", stream)
    assert Hooks().listen("llm/stream", stream).point == "llm/stream"


def test_a_registration_ends_with_its_block_and_may_be_removed_twice() -> None:
    hooks, heard = Hooks(), list[object]()

    with hooks.listen("agent/status", heard.append) as registration:
        hooks.emit("agent/status", STATUS)
    hooks.emit("agent/status", STATUS)
    registration.remove()

    assert heard == [STATUS]


def test_the_decorator_gives_the_function_back() -> None:
    hooks = Hooks()

    @hooks.on("agent/pre-step")
    async def passing(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        return await next()

    assert [listener.function for listener in hooks.listeners("agent/pre-step")] == [passing]


def test_every_point_has_a_listener_type_with_its_payload() -> None:
    typed: dict[str, Any] = {}
    for overload in typing.get_overloads(Listening.on):
        hints = typing.get_type_hints(overload)
        for name in typing.get_args(hints["name"]):
            (decorated,), _ = typing.get_args(hints["return"])
            typed[name] = decorated.__bound__

    assert typed.keys() == POINTS.keys()
    for name, point in POINTS.items():
        takes, _ = typing.get_args(typed[name])
        assert takes[0] is point.payload, name
        assert len(takes) == (2 if point.mode is Mode.WATERFALL else 1), name


# -- sums ---------------------------------------------------------------------------------------------------------


def test_dsp_05_a_sum_calls_the_left_ones_first_and_hears_of_later_changes() -> None:
    heard: list[str] = []

    def saying(word: str) -> Callable[[object], None]:
        return lambda _: heard.append(word)

    shared, own = Hooks(), Hooks()
    shared.listen("agent/status", saying("shared"))
    both = shared + own
    nested = both + Hooks()
    own.listen("agent/status", saying("own"))
    late = shared.listen("agent/status", saying("late"))
    nested.listen("agent/status", saying("sum"))
    nested.listen("agent/status", saying("front"), prepend=True)

    nested.emit("agent/status", STATUS)
    assert heard == ["front", "shared", "late", "own", "sum"]

    heard.clear()
    late.remove()
    shared.emit("agent/status", STATUS)
    both.emit("agent/status", STATUS)
    assert heard == ["shared", "shared", "own"]


def test_a_user_declares_points_of_their_own_and_two_meanings_of_one_name_do_not_add_up() -> None:
    tea = HookPoint("kitchen/tea", Mode.SERIAL, Payload, (str,))
    hooks = Hooks() + Hooks(points={**POINTS, tea.name: tea})
    hooks.listen("kitchen/tea", lambda _: "green")

    assert anyio.run(hooks.serial, "kitchen/tea", Payload(AGENT)) == "green"
    other = dataclasses.replace(tea, mode=Mode.EMIT)
    with pytest.raises(HookError, match="two ways"):
        _ = hooks + Hooks(points={tea.name: other})


# -- emit and veto ------------------------------------------------------------------------------------------------


def test_dsp_01_emit_contains_each_fault_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    hooks, heard = Hooks(), list[object]()

    async def never_awaited() -> None: ...
    def raising(_: object) -> None:
        raise ValueError("boom")

    def awaitable(_: object) -> Awaitable[None]:
        return never_awaited()  # left open it would be a RuntimeWarning, which fails this test

    for listener in (raising, awaitable, heard.append):
        hooks.listen("agent/status", listener)
    with caplog.at_level(logging.ERROR, "lifecycle.hooks"):
        hooks.emit("agent/status", STATUS)

    assert heard == [STATUS]
    assert "raising failed at 'agent/status'" in caplog.text
    assert "awaitable returned an awaitable" in caplog.text


def test_a_fault_at_agent_created_comes_out() -> None:
    hooks = Hooks()
    hooks.listen("agent/created", lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        hooks.emit("agent/created", Payload(AGENT))


def test_dsp_05_the_listeners_are_fixed_when_a_dispatch_begins() -> None:
    hooks, heard = Hooks(), list[object]()
    hooks.listen("agent/status", lambda _: hooks.listen("agent/status", heard.append))

    hooks.emit("agent/status", STATUS)
    assert heard == []
    hooks.emit("agent/status", STATUS)
    assert heard == [STATUS]


def test_err_05_a_veto_raises_and_an_answer_is_no_veto() -> None:
    hooks = Hooks()
    with hooks.listen("session/append", lambda _: 1 / 0), pytest.raises(ZeroDivisionError):
        hooks.veto("session/append", STATUS)
    with hooks.listen("session/append", lambda _: False), pytest.raises(IllegalVerdictError, match="nothing"):
        hooks.veto("session/append", STATUS)
    hooks.listen("session/append", lambda _: None)
    hooks.veto("session/append", STATUS)


def test_a_point_dispatched_in_another_mode_than_declared_is_an_error() -> None:
    hooks = Hooks()
    hooks.listen("agent/step-boundary", lambda _: None)

    with pytest.raises(HookError, match="declared serial"):
        hooks.emit("agent/step-boundary", STEP)
    with pytest.raises(UnknownHookPointError):
        hooks.emit("agent/stauts", STATUS)


# -- serial and parallel ------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_dsp_02_serial_stops_at_the_first_answer_that_is_neither_none_nor_false() -> None:
    hooks, heard = Hooks(), list[str]()

    @hooks.on("tools/guard")
    def nothing(payload: CallPayload) -> None:
        heard.append("nothing")

    hooks.listen("tools/guard", lambda _: False)

    @hooks.on("tools/guard")
    async def denies(payload: CallPayload) -> Deny:
        heard.append("denies")
        return Deny("no")

    hooks.listen("tools/guard", lambda _: heard.append("late"))

    assert await hooks.serial("tools/guard", call()) == Deny("no")
    assert heard == ["nothing", "denies"]


@pytest.mark.anyio
async def test_serial_raises_what_a_listener_raises_and_refuses_an_illegal_answer() -> None:
    hooks = Hooks()

    def chatty(_: object) -> str:
        return "hello"

    with hooks.listen("agent/step-boundary", chatty), pytest.raises(IllegalVerdictError) as refused:
        await hooks.serial("agent/step-boundary", STEP)
    assert refused.value.listener.endswith("chatty")
    assert refused.value.legal == ("nothing",)
    with hooks.listen("agent/step-boundary", lambda _: 1 / 0), pytest.raises(ZeroDivisionError):
        await hooks.serial("agent/step-boundary", STEP)
    assert await hooks.serial("agent/step-boundary", STEP) is None


@pytest.mark.anyio
async def test_dsp_04_parallel_waits_for_all_and_raises_the_failure_that_came_first() -> None:
    hooks, ended = Hooks(), list[str]()
    first, second = anyio.Event(), anyio.Event()

    async def fails_later(_: object) -> None:
        await second.wait()
        raise ValueError("later")

    async def fails_sooner(_: object) -> None:
        await first.wait()
        second.set()
        raise KeyError("sooner")

    async def opens(_: object) -> None:
        first.set()
        with anyio.fail_after(5):
            await second.wait()
        await anyio.lowlevel.checkpoint()
        ended.append("opens")

    for listener in (fails_later, fails_sooner, opens):
        hooks.listen("session/flush", listener)
    with anyio.fail_after(5), pytest.raises(KeyError, match="sooner"):
        await hooks.parallel("session/flush", Payload(AGENT))

    assert ended == ["opens"]


@pytest.mark.anyio
async def test_parallel_lets_ctrl_c_and_the_hosts_cancellation_out_as_they_are() -> None:
    hooks = Hooks()

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    async def waits(_: object) -> None:
        await anyio.sleep_forever()

    hooks.listen("session/flush", waits)
    with hooks.listen("session/flush", interrupted), anyio.fail_after(5), pytest.raises(KeyboardInterrupt):
        await hooks.parallel("session/flush", Payload(AGENT))
    hooks.listen("session/flush", waits)
    with anyio.CancelScope() as host:
        host.cancel()
        await hooks.parallel("session/flush", Payload(AGENT))
    assert host.cancelled_caught


# -- waterfall ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_dsp_03_the_first_is_outermost_and_prepend_goes_in_front() -> None:
    hooks, order = Hooks(), list[str]()

    def wrapping(name: str) -> Callable[..., Any]:
        async def wrapper(payload: object, next: Next[Enter]) -> Enter:
            order.append(f"{name}(")
            decision = await next()
            order.append(f"){name}")
            return decision

        return wrapper

    hooks.listen("agent/pre-step", wrapping("a"))
    hooks.listen("agent/pre-step", wrapping("b"))
    hooks.listen("agent/pre-step", wrapping("front"), prepend=True)
    hooks.listen("agent/pre-step", wrapping("foremost"), prepend=True)

    assert await hooks.waterfall("agent/pre-step", PRE_STEP, enter) is ENTER
    assert order == ["foremost(", "front(", "a(", "b(", ")b", ")a", ")front", ")foremost"]


@pytest.mark.anyio
async def test_dsp_03_a_wrapper_may_answer_alone_be_plain_or_replace_a_failure() -> None:
    async def failing(_: object) -> Enter | Reject:
        raise ValueError("no default")

    hooks = Hooks()
    with hooks.listen("agent/pre-step", lambda payload, next: Reject("no")):
        assert await hooks.waterfall("agent/pre-step", PRE_STEP, failing) == Reject("no")
    with hooks.listen("agent/pre-step", lambda payload, next: next()):
        assert await hooks.waterfall("agent/pre-step", PRE_STEP, enter) is ENTER

    @hooks.on("agent/pre-step")
    async def rescues(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        try:
            return await next()
        except ValueError as error:
            return Reject(str(error))

    assert await hooks.waterfall("agent/pre-step", PRE_STEP, failing) == Reject("no default")


@pytest.mark.anyio
async def test_without_listeners_the_default_runs_plain_or_async() -> None:
    async def default(_: object) -> Enter:
        return ENTER

    assert await Hooks().waterfall("agent/pre-step", PRE_STEP, default) is ENTER
    assert await Hooks().waterfall("agent/pre-step", PRE_STEP, enter) is ENTER


@pytest.mark.anyio
async def test_dsp_03_next_is_called_at_most_once() -> None:
    hooks, ran = Hooks(), list[object]()

    @hooks.on("agent/pre-step")
    async def twice(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        await next()
        return await next()

    def default(payload: PreStepPayload) -> Enter:
        ran.append(payload)
        return ENTER

    with pytest.raises(NextCalledTwiceError, match="twice called next"):
        await hooks.waterfall("agent/pre-step", PRE_STEP, default)
    assert ran == [PRE_STEP]


@pytest.mark.parametrize("verdict", [None, False, "enter", Enter, {"messages": ()}, Retry()])
@pytest.mark.anyio
async def test_an_illegal_verdict_names_the_listener_that_returned_it(verdict: object) -> None:
    hooks = Hooks()

    async def outer(payload: object, next: Next[Enter]) -> Enter:
        return await next()

    def wrong(payload: object, next: object) -> object:
        return verdict

    hooks.listen("agent/pre-step", outer)
    hooks.listen("agent/pre-step", wrong)
    with pytest.raises(IllegalVerdictError, match="Enter or Reject") as refused:
        await hooks.waterfall("agent/pre-step", PRE_STEP, enter)

    assert refused.value.listener.endswith("wrong")
    assert refused.value.verdict is verdict


@pytest.mark.anyio
async def test_none_is_a_verdict_only_where_the_point_says_so() -> None:
    hooks = Hooks()
    hooks.listen("agent/request-error", lambda payload, next: None)

    assert await hooks.waterfall("agent/request-error", STEP, lambda _: Retry()) is None


@pytest.mark.anyio
async def test_a_stream_is_wrapped_by_an_async_generator() -> None:
    hooks = Hooks()
    request = Request((), (), CallConfig(), 1, 1, 1)

    @hooks.on("llm/stream")
    async def shouting(payload: LlmStreamPayload, next: Next[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
        async for chunk in await next():
            yield chunk._replace(text=chunk.text.upper()) if isinstance(chunk, TextDelta) else chunk

    async def default(_: LlmStreamPayload) -> AsyncIterator[Chunk]:
        yield TextDelta(0, "hello")

    stream = await hooks.waterfall("llm/stream", LlmStreamPayload(AGENT, request), default)
    assert [chunk async for chunk in stream] == [TextDelta(0, "HELLO")]


# -- replaced payloads --------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_tlp_05_a_replaced_signal_is_fused_with_the_callers() -> None:
    hooks, turn, own = Hooks(), CancelSignal(), CancelSignal()
    seen: list[tuple[bool, bool]] = []

    @hooks.on("tools/execute")
    async def limits(payload: CallPayload, next: Next[ToolOutcome]) -> ToolOutcome:
        outcome = await next(dataclasses.replace(payload, signal=own))
        assert payload.signal is turn
        return outcome

    for fires in (own, turn):

        async def body(payload: CallPayload, fires: CancelSignal = fires) -> ToolOutcome:
            before = payload.signal.fired
            fires.fire(USER_CANCEL)
            seen.append((before, payload.signal.fired))
            return DONE

        await hooks.waterfall("tools/execute", call(turn), body)
        own = CancelSignal()

    assert seen == [(False, True), (False, True)]


@pytest.mark.anyio
async def test_dsp_05_a_payload_cannot_be_replaced_elsewhere_nor_its_agent() -> None:
    other = cast("AgentHandle", object())
    hooks = Hooks()

    def spoofs(payload: CallPayload, next: Next[ToolOutcome]) -> Awaitable[ToolOutcome]:
        return next(dataclasses.replace(payload, agent=other, signal=CancelSignal()))

    def adds(payload: PreStepPayload, next: Next[Enter | Reject]) -> Awaitable[Enter | Reject]:
        return next(dataclasses.replace(payload, messages=(user_message("more"),)))

    def swaps(payload: CallPayload, next: Next[ToolOutcome]) -> Awaitable[ToolOutcome]:
        return next("nonsense")

    hooks.listen("agent/pre-step", adds)
    with hooks.listen("tools/execute", spoofs), pytest.raises(IllegalPayloadError, match=r"spoofs .*agent") as spoofed:
        await hooks.waterfall("tools/execute", call(), lambda _: DONE)
    with hooks.listen("tools/execute", swaps), pytest.raises(IllegalPayloadError, match="str"):
        await hooks.waterfall("tools/execute", call(), lambda _: DONE)
    with pytest.raises(IllegalPayloadError, match="replace nothing"):
        await hooks.waterfall("agent/pre-step", PRE_STEP, enter)

    assert spoofed.value.legal == ("signal",)


# -- explain ------------------------------------------------------------------------------------------------------


def greedy(_: int, payload: CallPayload, next: Next[ToolOutcome]) -> Awaitable[ToolOutcome]:
    return next()


def test_explain_says_who_runs_in_which_order_and_by_which_rules() -> None:
    hooks = Hooks()
    hooks.listen("tools/execute", functools.partial(greedy, 1))

    said = hooks.explain("tools/execute")

    assert said.may_return == ("ToolOutcome",)
    assert said.listeners == (f"{__name__}.greedy",)
    assert str(said).splitlines() == [
        "tools/execute: waterfall",
        "  payload        agent, call, arguments, tool, signal",
        "  may return     ToolOutcome",
        "  may change     the outcome; the signal of its inner part",
        "  if it raises   error result of the call",
        "  next(payload)  may replace signal",
        f"  runs           1. {said.listeners[0]}",
        "                 2. the default",
    ]
    assert "1. nobody" in str(hooks.explain("agent/status"))
