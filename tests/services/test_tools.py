"""Tools: what a model is told of a function, and what becomes of a call."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

import anyio
import pytest
from pydantic import BaseModel, Field

from lifecycle.errors import PromptError, ToolDefinitionError, ToolError, TurnCancelledError
from lifecycle.services.points import AgentHandle, ToolOutcome
from lifecycle.services.schema import read_docstring
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import (
    Parallel,
    StepTools,
    Tool,
    ToolContext,
    ToolRegistry,
    When,
    parse_arguments,
    tool,
)
from lifecycle.vocabulary.events import ToolFault, TurnStart
from lifecycle.vocabulary.failures import USER_CANCEL
from lifecycle.vocabulary.messages import ImageBlock, TextBlock, ToolCallBlock, text, text_of
from lifecycle.vocabulary.requests import ModelSelection
from lifecycle.vocabulary.values import EMPTY, FrozenDict


def agent(step: ModelSelection | None = None, session: object = None) -> AgentHandle:
    return cast("AgentHandle", SimpleNamespace(step=step, session=session))


def context(signal: CancelSignal | None = None, **of: Any) -> ToolContext:
    return ToolContext(agent(**of), ToolCallBlock(id="c1", name="t"), signal or CancelSignal())


async def result(made: Tool, raw: str = "", within: ToolContext | None = None) -> ToolOutcome:
    kwargs = made.validate(parse_arguments(raw))
    if isinstance(kwargs, ToolOutcome):
        return kwargs
    with anyio.fail_after(5):
        return await made.run(kwargs, within or context())


def said(outcome: ToolOutcome) -> str:
    return "".join(block.text for block in outcome.content if isinstance(block, TextBlock))


def code(outcome: ToolOutcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


# -- what the model is told ---------------------------------------------------------------------------------------


class Place(BaseModel):
    x: int


def test_signature_and_docstring_become_the_spec() -> None:
    @tool(parallel=True)
    async def look_up(
        context: ToolContext,
        word: str,
        mode: Literal["exact", "near"] = "exact",
        many: Annotated[int, Field(ge=1, description="How many.")] = 3,
        json: Place | None = None,
    ) -> str:
        """Look a word up.

        In the big book.

        Args:
            word: What to look up,
                as it is spelled.
            many: not this one
            context: never told

        Returns:
            mode: never told either
        """
        return word

    assert (look_up.name, look_up.description) == ("look_up", "Look a word up.\n\nIn the big book.")
    schema = look_up.spec.input_schema
    assert schema["properties"] == {
        "word": {"type": "string", "description": "What to look up, as it is spelled."},
        "mode": {"type": "string", "enum": ("exact", "near"), "default": "exact"},
        "many": {"type": "integer", "minimum": 1, "default": 3, "description": "How many."},
        "json": {"anyOf": ({"$ref": "#/$defs/Place"}, {"type": "null"}), "default": None},
    }
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ("word",), False)
    assert look_up.validate(FrozenDict(word="a", json=FrozenDict(x="1"))) == {
        "word": "a",
        "mode": "exact",
        "many": 3,
        "json": Place(x=1),
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Do.\n\nArgs:\n    x: The x\n        of it.\n    y (int): Why: so.\nReturns:\n    z: no",
        "Do.\n\nParameters\n----\nx : int\n    The x\n    of it.\ny\n    Why: so.\n\nReturns\n----\nz : int\n    no",
        "Do.\n\n:param x: The x\n    of it.\n:param int y: Why: so.\n:returns: no",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_three_ways_to_write_a_docstring(docstring: str) -> None:
    assert read_docstring(docstring) == ("Do.", {"x": "The x of it.", "y": "Why: so."})


def test_field_as_a_default_and_types_of_the_function_around() -> None:
    class Inner(BaseModel):
        n: int = 1

    fresh: list[str] = Field(default_factory=list)

    @tool
    def made(a: int = Field(default=2, gt=0), b: list[str] = fresh, c: Inner | None = None) -> None: ...

    assert made.validate(EMPTY) == {"a": 2, "b": [], "c": None}
    assert made.validate(FrozenDict(c=EMPTY)) == {"a": 2, "b": [], "c": Inner()}
    assert code(cast("ToolOutcome", made.validate(FrozenDict(a=0)))) == "INVALID_ARGUMENTS"


def positional(x: int, /) -> None: ...
def any_number(*xs: int) -> None: ...
def any_name(**xs: int) -> None: ...
def bare(x) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def odd(x: threading.Thread) -> None: ...
def two(a: ToolContext, b: ToolContext) -> None: ...
def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
def stream(x: int) -> Iterator[int]:
    yield x


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (positional, "'x'"),
    (any_number, "'xs'"),
    (any_name, "'xs'"),
    (cast("Any", bare), "'x'"),
    (odd, "Thread"),
    (two, "'b'"),
    (cast("Any", unknown), "Nowhere"),
    (stream, "generator"),
    (lambda: None, "<lambda>"),
]


@pytest.mark.parametrize(("function", "names"), REFUSED)
def test_what_no_model_can_fill_in_is_refused_by_name(function: Callable[..., Any], names: str) -> None:
    with pytest.raises(ToolDefinitionError, match=names) as refused:
        tool(function)
    assert function.__name__ in str(refused.value)


def test_an_async_classifier_or_condition_is_refused() -> None:
    async def asks(_: object) -> bool:
        return True

    for kwargs in ({"parallel": asks}, {"when": asks}):
        with pytest.raises(ToolDefinitionError, match="async"):
            tool(**cast("Any", kwargs))(lambda: None)


# -- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("", {}),
        (" \n", {}),
        ('{"a": [1, {"b": null}]}', {"a": (1, {"b": None})}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ("{", "{"),
        ("[1]", "[1]"),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 18446744073709551616}', '{"a": 18446744073709551616}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_tls_02_arguments_are_parsed_or_passed_on_raw(raw: str, parsed: object) -> None:
    assert parse_arguments(raw) == parsed
    assert isinstance(parse_arguments(raw), FrozenDict if isinstance(parsed, dict) else str)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("nonsense", "not a JSON object"),
        ("{}", "place: Field required"),
        ('{"place": {"x": "here"}}', "place.x: Input should be a valid integer"),
        ('{"place": {"x": 1}, "y": 2}', "y: there is no such argument"),
    ],
)
@pytest.mark.anyio
async def test_invalid_arguments_tell_the_model_what_is_wrong_and_start_nothing(raw: str, told: str) -> None:
    @tool
    async def go(place: Place) -> str:
        raise AssertionError("it started")

    outcome = await result(go, raw)

    assert code(outcome) == "INVALID_ARGUMENTS"
    assert said(outcome).startswith("go: ")
    assert told in said(outcome)


@pytest.mark.anyio
async def test_a_body_gets_ordinary_lists_and_dicts() -> None:
    @tool
    async def grow(any_thing: Any) -> Any:
        any_thing["more"].append(3)
        return any_thing

    assert said(await result(grow, '{"any_thing": {"more": [1, 2]}}')) == '{"more": [1, 2, 3]}'


# -- running ------------------------------------------------------------------------------------------------------

VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


@pytest.mark.anyio
async def test_a_plain_function_runs_in_a_worker_thread_with_the_context_variables() -> None:
    @tool
    def where() -> list[object]:
        return [threading.get_ident() != main, VARIABLE.get()]

    main = threading.get_ident()
    VARIABLE.set("set")
    assert (await result(where)).value == (True, "set")


@dataclass
class Pair:
    left: int
    right: str


@pytest.mark.parametrize(
    ("returned", "shown", "value"),
    [
        ("plain \ud800", "plain \ufffd", None),
        (None, "", None),
        (TextBlock(text="b"), "b", None),
        ([TextBlock(text="b"), ImageBlock(url="u"), TextBlock(text="\ud800")], "b\ufffd", None),
        (ToolOutcome(text("own"), value=1), "own", 1),
        ({"a": [1, True, "ä\ud800"]}, '{"a": [1, true, "ä\ufffd"]}', {"a": (1, True, "ä\ufffd")}),
        ([], "[]", ()),
        (2.5, "2.5", 2.5),
        (Place(x=1), '{"x": 1}', {"x": 1}),
        ([Pair(1, "r")], '[{"left": 1, "right": "r"}]', ({"left": 1, "right": "r"},)),
    ],
)
@pytest.mark.anyio
async def test_what_a_body_returns_becomes_content(returned: object, shown: str, value: object) -> None:
    @tool
    async def give() -> object:
        return returned

    outcome = await result(give)

    assert outcome.error is None
    assert (said(outcome), outcome.value) == (shown, value)


class Loop(list[Any]):
    """A list that contains itself."""

    def __init__(self) -> None:
        self.append(self)


async def nobody_waits() -> None: ...


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (object, "object"),
        (lambda: {1, 2}, "set"),
        (lambda: {"a": float("nan")}, "a is nan"),
        (lambda: {1: 2}, "dict"),
        (lambda: 2**64, "int"),
        (Loop, "Loop"),
        (nobody_waits, "coroutine"),
        (lambda: ToolOutcome(cast("Any", "text")), "ToolOutcome"),
    ],
)
@pytest.mark.anyio
async def test_what_is_no_result_is_an_error_that_names_tool_and_type(made: Callable[[], object], names: str) -> None:
    @tool
    async def give() -> object:
        return made()

    outcome = await result(give)

    assert code(outcome) == "INVALID_RESULT"
    assert "give" in said(outcome)
    assert names in said(outcome)


@pytest.mark.parametrize(
    ("error", "fault", "shown"),
    [
        (ToolError("no tea", "NO_TEA"), ToolFault(code="NO_TEA", name="ToolError"), "no tea"),
        (ToolError("no tea"), ToolFault(code="TOOL_FAILED", name="ToolError"), "no tea"),
        (KeyError("k"), ToolFault(code="TOOL_FAILED", name="KeyError"), "KeyError: 'k'"),
        (ValueError("\ud800"), ToolFault(code="TOOL_FAILED", name="ValueError"), "ValueError: \ufffd"),
        (SystemExit(3), ToolFault(code="TOOL_FAILED", name="SystemExit"), "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.anyio
async def test_tlp_03_what_a_body_raises_is_an_error_outcome(
    error: BaseException, fault: ToolFault, shown: str, threaded: bool
) -> None:
    async def fail() -> None:
        raise error

    def fail_in_a_thread() -> None:
        raise error

    outcome = await result(tool(fail_in_a_thread if threaded else fail))

    assert (outcome.error, said(outcome)) == (fault, shown)


@pytest.mark.anyio
async def test_ctrl_c_in_a_body_comes_out() -> None:
    @tool
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await result(interrupted)


# -- cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_tlp_04_the_signal_cancels_a_body_which_is_awaited_to_its_end() -> None:
    signal, ended = CancelSignal(), list[str]()

    @tool
    async def hang() -> str:
        try:
            signal.fire(USER_CANCEL)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                ended.append("cleaned up")
        return "never"

    outcome = await result(hang, within=context(signal))

    assert code(outcome) == "ABORTED"
    assert ended == ["cleaned up"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (lambda: "success", "ABORTED"),
        (lambda: ToolOutcome(text("bad"), error=ToolFault(code="OWN")), "OWN"),
        (object, "INVALID_RESULT"),
        (lambda: 1 // 0, "TOOL_FAILED"),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.anyio
async def test_tlp_04_cancellation_replaces_only_would_be_successes(
    ends: Callable[[], object], expected: str, threaded: bool
) -> None:
    signal = CancelSignal()
    started, go_on = anyio.Event(), threading.Event()

    async def swallow() -> object:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            return ends()  # noqa: B012  # it does not let itself be cancelled

    def block() -> object:
        anyio.from_thread.run_sync(started.set)
        assert go_on.wait(5)
        return ends()

    outcomes: list[ToolOutcome] = []

    async def run() -> None:
        outcomes.append(await result(tool(block if threaded else swallow), within=context(signal)))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await started.wait()
            signal.fire(USER_CANCEL)
            await anyio.lowlevel.checkpoint()
            assert not outcomes or not threaded  # a thread is awaited
            go_on.set()

    assert [code(outcome) for outcome in outcomes] == [expected]


@pytest.mark.anyio
async def test_tlp_04_a_body_that_never_began_is_aborted_before_dispatch() -> None:
    signal = CancelSignal()

    @tool
    def never() -> None:
        raise AssertionError("it started")

    limiter = anyio.to_thread.current_default_thread_limiter()
    outcomes: list[ToolOutcome] = []

    async def run() -> None:
        outcomes.append(await result(never, within=context(signal)))

    borrowers = [object() for _ in range(int(limiter.available_tokens))]
    for borrower in borrowers:
        limiter.acquire_on_behalf_of_nowait(borrower)
    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await anyio.wait_all_tasks_blocked()  # it waits for a thread
                signal.fire(USER_CANCEL)
    finally:
        for borrower in borrowers:
            limiter.release_on_behalf_of(borrower)
    outcomes.append(await result(never, within=context(signal)))

    assert [code(outcome) for outcome in outcomes] == ["ABORTED_BEFORE_DISPATCH"] * 2


@pytest.mark.anyio
async def test_cancellation_of_the_host_comes_out() -> None:
    @tool
    async def hang() -> None:
        host.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as host:
        await result(hang)
        raise AssertionError("it went on")
    assert host.cancelled_caught


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_cancellation_that_nobody_asked_of_the_turn_is_a_failure_of_the_tool(anyio_backend: str) -> None:
    @tool
    async def awaits_what_was_cancelled() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        inner.cancel()
        await inner

    outcome = await result(awaits_what_was_cancelled)

    assert outcome.error == ToolFault(code="TOOL_FAILED", name="CancelledError")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_cancelling_the_task_of_asyncio_comes_out(anyio_backend: str) -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> None:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(result(hang))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- the context --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.anyio
async def test_a_body_defers_concludes_and_records_also_from_a_thread(threaded: bool) -> None:
    appended: list[tuple[object, bool, int]] = []

    class Session:
        def append(self, data: object, *, ignorable: bool) -> object:
            appended.append((data, ignorable, threading.get_ident()))
            return data

    def act(here: ToolContext) -> ToolOutcome:
        here.defer("first")
        here.conclude()
        here.append(TurnStart(turn=1))
        return ToolOutcome(text("done"), contexts=(last,))

    async def act_inline(here: ToolContext) -> ToolOutcome:
        return act(here)

    aside = context()
    aside.defer("last")
    last = aside.deferred[0]
    outcome = await result(tool(act if threaded else act_inline), within=context(session=Session()))

    assert [text_of(message) for message in outcome.contexts] == ["first", "last"]
    assert outcome.contexts[0].source == {"kind": "tool", "tool": "t", "callId": "c1"}
    assert outcome.conclude
    assert appended == [(TurnStart(turn=1), True, threading.get_ident())]


# -- the registry -------------------------------------------------------------------------------------------------


def named(name: str, parallel: Parallel = False, when: When | None = None) -> Tool:
    async def body() -> str:
        return name

    return tool(name=name, parallel=parallel, when=when)(body)


def resolve(registry: ToolRegistry, step: ModelSelection | None = None) -> StepTools:
    return registry.resolve(agent(step), CancelSignal())


def names(tools: StepTools) -> list[str]:
    return [spec.name for spec in tools.specs]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (None, ["a", "b", "c", "d"]),
        (["c", ..., "a"], ["c", "b", "d", "a"]),
        (["c", "*", "a"], ["c", "b", "d", "a"]),
        (["d", "c"], ["d", "c", "a", "b"]),
        ([...], ["a", "b", "c", "d"]),
    ],
)
@pytest.mark.parametrize("registered", ["abcd", "dbca"])
def test_req_09_the_order_does_not_depend_on_registration(order: Any, expected: list[str], registered: str) -> None:
    assert names(resolve(ToolRegistry(map(named, registered), order))) == expected


def test_req_10_an_unknown_name_in_the_order_fails_the_resolution_not_the_configuration() -> None:
    registry = ToolRegistry([named("a")], ["b", ...])

    with pytest.raises(PromptError, match="'b', which is not registered; there are: a"):
        resolve(registry)
    registry.register(named("b", when=lambda _: False))
    assert names(resolve(registry)) == ["a"]
    with pytest.raises(PromptError, match="twice"):
        ToolRegistry([], [..., "a", ...])


def test_adm_02_a_tool_registered_after_the_resolution_is_for_the_next_step() -> None:
    registry = ToolRegistry([named("a")])
    first, again = resolve(registry), resolve(registry)

    registry.register(named("b"))

    assert first.specs is again.specs
    assert (names(first), first.get("b")) == (["a"], None)
    assert names(resolve(registry)) == ["a", "b"]


def test_stb_06_a_condition_reads_the_step_and_equal_sets_stay_the_same_object() -> None:
    registry = ToolRegistry([named("a"), named("b", when=lambda agent: bool(agent.step and agent.step.model == "big"))])
    small, big = ModelSelection(model="small"), ModelSelection(model="big")

    assert names(resolve(registry, small)) == ["a"]
    one = resolve(registry, big)
    assert names(one) == ["a", "b"]
    assert resolve(registry, big).specs is one.specs


def test_tls_14_membership_is_captured_and_definitions_stay_live() -> None:
    old, new = named("a"), named("a")
    registry = ToolRegistry([old])
    step = resolve(registry)

    assert registry.unregister("a") is old
    assert step.get("a") is old
    registry.register(new)
    assert step.get("a") is new
    with pytest.raises(ToolDefinitionError, match="already registered"):
        registry.register(named("a"))


def raising(_: object) -> bool:
    raise ValueError("no idea")


CLASSIFIERS: list[tuple[Parallel, bool]] = [
    (True, True),
    (False, False),
    (cast("Any", 1), False),
    (lambda _: True, True),
    (lambda _: 1, False),
    (lambda _: "yes", False),
    (lambda _: None, False),
    (lambda _: nobody_waits(), False),
    (lambda arguments: arguments["path"] == "a", True),
    (raising, False),
]


@pytest.mark.parametrize(("parallel", "expected"), CLASSIFIERS)
def test_tls_03_only_exactly_true_of_parsed_arguments_is_parallel(parallel: Parallel, expected: bool) -> None:
    step = resolve(ToolRegistry([named("t", parallel=parallel)]))

    assert step.parallel("t", FrozenDict(path="a")) is expected
    assert step.parallel("t", "{no json") is False
    assert step.parallel("missing", EMPTY) is False


def test_tls_15_a_set_is_disposed_once() -> None:
    registry = ToolRegistry([named("a")])
    first, second = resolve(registry), resolve(registry)
    assert registry.open_sets == 2

    first.dispose()
    first.dispose()
    second.dispose()

    assert registry.open_sets == 0
    assert (first.disposals, second.disposals) == (2, 1)


def test_a_cancelled_turn_resolves_nothing() -> None:
    signal = CancelSignal()
    signal.fire(USER_CANCEL)

    with pytest.raises(TurnCancelledError):
        ToolRegistry().resolve(agent(), signal)
