"""Public failures of other agent loops, of running tools: each as it was met there, with what is right."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from lifecycle import Agent, AgentOptions, Block, HookCancel, Hooks, Session, ToolContext, tool
from lifecycle.errors import NotJsonError
from lifecycle.services.points import PostCallPayload, ResultPayload
from lifecycle.session.jsonl import JsonlStore
from lifecycle.testing import Beat, Call, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import BlockEnd, Finish, FinishKind, ReasoningDelta, TextDelta, ToolCallDelta
from lifecycle.vocabulary.events import ToolCallEvent, ToolResultEvent
from lifecycle.vocabulary.failures import COMPLETED, Aborted
from lifecycle.vocabulary.messages import AssistantMessage, Message, TextBlock, ToolCallBlock, ToolResultBlock

from ..conformance.kit import Scene, scene

pytestmark = pytest.mark.anyio
ABC: list[Call] = [("work", {}, "a"), ("work", {}, "b"), ("work", {}, "c")]


def results(s: Scene) -> list[tuple[str, str | None, str]]:
    """Of each result in the log: the id of its call, the code of its fault, and its text."""
    found: list[tuple[str, str | None, str]] = []
    for data in s.data(ToolResultEvent):
        (block,) = data.message.content
        assert isinstance(block, ToolResultBlock)
        said = "".join(one.text for one in block.content if isinstance(one, TextBlock))
        found.append((block.tool_call_id, None if data.error is None else data.error.code, said))
    return found


def answered(messages: Sequence[Message]) -> list[str]:
    """The ids of the calls that the results in a request answer, in order."""
    blocks = [block for message in messages for block in message.content]
    return [block.tool_call_id for block in blocks if isinstance(block, ToolResultBlock)]


async def test_c101_results_stand_in_the_order_of_the_calls_whatever_ended_first() -> None:
    work = GatedTool("work")
    async with scene(Reply(calls=ABC), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a", "b", "c")
        for call in ("c", "b", "a"):
            work.release(call, call.upper())
            await work.finished(call)
        await s.idle()

        assert work.ended == ["c", "b", "a"]
        assert results(s) == [("a", None, "A"), ("b", None, "B"), ("c", None, "C")]
        assert answered(s.model.requests[1].messages) == ["a", "b", "c"]


@pytest.mark.parametrize("fatal", [False, True])
async def test_c103_a_call_that_raises_costs_its_siblings_nothing(fatal: bool) -> None:
    """That an error is fatal is the host's choice: a hook that looks at results, and cancels."""
    hooks, work = Hooks(), GatedTool("work")

    @hooks.on("tools/result")
    def strict(payload: ResultPayload) -> None:
        if fatal and payload.error is not None:
            payload.agent.cancel(HookCancel(reason="a tool failed"))

    async with scene(Reply(calls=ABC), Reply(text="ok"), tools=[work], hooks=hooks) as s:
        s.agent.followup("go")
        await work.started("a", "b", "c")
        work.release("a", "ok")
        work.release("b", ValueError("no"))
        if not fatal:
            work.release("c", "ok")
        await s.idle()

        third = ("c", "ABORTED", "work was stopped: the turn was cancelled") if fatal else ("c", None, "ok")
        assert results(s) == [("a", None, "ok"), ("b", "TOOL_FAILED", "ValueError: no"), third]
        assert work.running == 0
        assert s.reasons == [Aborted(reason=HookCancel(reason="a tool failed")) if fatal else COMPLETED]
        assert len(s.model.requests) == (1 if fatal else 2)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("exclusive", [False, True])
async def test_c104_a_cancellation_from_inside_a_tool_is_its_own_failure(anyio_backend: str, exclusive: bool) -> None:
    @tool(parallel=not exclusive)
    async def work(context: ToolContext) -> str:
        """Work."""
        if context.call.id == "b":
            inner = asyncio.ensure_future(asyncio.sleep(60))
            await asyncio.sleep(0)
            inner.cancel()
            await inner
        return "ok"

    async with scene(Reply(calls=ABC), Reply(text="ok"), tools=[work]) as s:
        await s.say("go")
        assert results(s) == [("a", None, "ok"), ("b", "TOOL_FAILED", "CancelledError"), ("c", None, "ok")]
        assert s.reasons == [COMPLETED]


class Mute(Exception):
    """Cannot say what it is about."""

    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        Mute,
        TimeoutError,
        lambda: SystemExit(2),
        lambda: ExceptionGroup("g", [ValueError(), Mute()]),
        lambda: StopAsyncIteration("x"),
        lambda: ValueError("\ud800"),
        lambda: RecursionError(),
    ],
    ids=["mute", "timeout", "exit", "group", "stop", "surrogate", "recursion"],
)
async def test_c104_whatever_a_tool_raises_is_the_failure_of_that_call_alone(
    made: Callable[[], BaseException], threaded: bool
) -> None:
    def fail() -> None:
        """Fail."""
        raise made()

    async def fail_async() -> None:
        fail()

    failing = tool(name="fail", description="Fail.", parallel=True)(fail if threaded else fail_async)
    work = GatedTool("work", free=True)
    script = Reply(calls=[("fail", {}, "a"), ("work", {}, "b")]), Reply(text="ok"), Reply(text="ok")
    async with scene(*script, tools=[failing, work]) as s:
        await s.say("go", "and again")
        assert [(id, code) for id, code, _ in results(s)] == [("a", "TOOL_FAILED"), ("b", None)]
        assert s.reasons == [COMPLETED, COMPLETED]


async def test_c106_a_tool_that_does_not_exist_is_named_with_those_that_do_and_its_sibling_runs() -> None:
    read = GatedTool("read", free=True)
    async with scene(Reply(calls=[("serch", {}, "a"), ("read", {}, "b")]), Reply(text="ok"), tools=[read]) as s:
        await s.say("go")
        assert results(s) == [("a", "UNKNOWN_TOOL", "There is no tool 'serch'. There are: read"), ("b", None, "done")]
        assert len(s.model.requests) == 2


async def test_c107_plain_functions_run_beside_each_other_and_beside_the_loop() -> None:
    both, let_go = threading.Barrier(2), threading.Event()

    @tool(parallel=True)
    def work() -> str:
        """Work, once the other one does and the loop has gone on."""
        both.wait(5)
        return "together" if let_go.wait(5) else "alone"

    async with scene(Reply(calls=ABC[:2]), Reply(text="ok"), tools=[work]) as s:
        s.agent.followup("go")
        while both.n_waiting:
            await anyio.lowlevel.checkpoint()
        let_go.set()
        await s.idle()
        assert [said for _, _, said in results(s)] == ["together", "together"]


@dataclasses.dataclass
class Row:
    """A row."""

    when: datetime.date


def cycle() -> object:
    made: list[object] = []
    made.append({"again": made})
    return made


async def a_coroutine() -> None:
    """Awaited by nobody."""


RETURNED: list[tuple[str, Callable[[], object], str | None]] = [
    ("none", lambda: None, None),
    ("a dataclass", lambda: Row(datetime.date(2026, 1, 2)), None),
    ("ten megabytes", lambda: "x" * 10_000_000, None),
    ("a date", lambda: datetime.date(2026, 1, 2), "INVALID_RESULT"),
    ("a set", lambda: {1}, "INVALID_RESULT"),
    ("bytes", lambda: b"\xff", "INVALID_RESULT"),
    ("a decimal", lambda: decimal.Decimal("1.1"), "INVALID_RESULT"),
    ("not a number", lambda: {"a": math.nan}, "INVALID_RESULT"),
    ("a cycle", cycle, "INVALID_RESULT"),
    ("a generator", lambda: (n for n in (1,)), "INVALID_RESULT"),
    ("a coroutine", a_coroutine, "INVALID_RESULT"),
]


@pytest.mark.parametrize(("made", "code"), [row[1:] for row in RETURNED], ids=[row[0] for row in RETURNED])
async def test_c109_what_json_cannot_hold_never_fails_more_than_its_call(
    made: Callable[[], object], code: str | None
) -> None:
    def answer(arguments: Mapping[str, Any]) -> object:
        return made()

    work = GatedTool("work", answer=answer, free=True)
    async with scene(Reply(calls=ABC[:1]), Reply(text="ok"), tools=[work]) as s:
        await s.say("go")
        ((_, found, said),) = results(s)
        assert found == code
        assert code is None or "work returned" in said
        assert len(said) < 600_000
        assert s.reasons == [COMPLETED]
        for event in s.session.events:
            json.loads(event.encode(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


async def test_c109_a_result_that_is_too_long_says_so_where_something_is_missing() -> None:
    work, options = GatedTool("work", answer="x" * 900 + "the end", free=True), AgentOptions(max_result_chars=40)
    hooks = Hooks()

    @hooks.on("tools/post-execute")
    async def judge(payload: PostCallPayload, next: Any) -> Any:
        return Block(feedback="y" * 1000) if payload.call.id == "b" else await next()

    async with scene(Reply(calls=ABC[:2]), Reply(text="ok"), tools=[work], hooks=hooks, options=options) as s:
        await s.say("go")
        (_, _, said), (_, _, blocked) = results(s)
        assert said == "x" * 30 + "\n[... 867 of 907 characters were left out here ...]\n" + "xxxthe end"
        assert "\n[... 960 of 1,000 characters were left out here ...]\n" in blocked


async def test_c110_half_characters_are_mended_before_they_come_into_the_log(tmp_path: Any) -> None:
    @tool
    async def work(t: str) -> str:
        """Work."""
        assert t == "\ufffd"
        return "caf\udce9 \ud83d"

    async with JsonlStore(tmp_path / "s") as store:
        script = Reply(calls=[("work", '{"t":"\\ud83d"}', "a")])
        async with scene(script, Reply(text="ok"), tools=[work], session=await store.create("s")) as s:
            with pytest.raises(NotJsonError, match="surrogates not allowed"):
                s.agent.followup("half a \ud83d of the host's own is refused where it comes from")
            await s.say("go")
            assert results(s) == [("a", None, "caf\ufffd \ufffd")]
            assert s.reasons == [COMPLETED]
        (tmp_path / "s" / "s.jsonl").read_bytes().decode("utf-8")
        assert (await store.open("s", read_only=True)).open_turn is None


@pytest.mark.parametrize(
    "told",
    [
        [ToolCallDelta(0, "a", "work", '{"n":1}'), ToolCallDelta(1, "a", "work", '{"n":1}')],
        [
            ToolCallDelta(0, "a", "work", '{"n":1}'),
            BlockEnd(0, ToolCallBlock(id="a", name="work", arguments='{"n":1}')),
        ],
        [
            BlockEnd(0, ToolCallBlock(id="a", name="work", arguments='{"n":1}')),
            BlockEnd(1, ToolCallBlock(id="a", name="work", arguments='{"n":1}')),
        ],
    ],
    ids=["twice in pieces", "in pieces and whole", "twice whole"],
)
async def test_c113_a_call_that_is_told_twice_runs_once_and_from_the_whole_message(told: list[Beat]) -> None:
    work = GatedTool("work", free=True)
    async with scene([*told, Finish(FinishKind.TOOL_CALLS)], Reply(text="ok"), tools=[work]) as s:
        await s.say("go")
        assert work.calls == [("a", {"n": 1})]
        assert [call.call_id for call in s.data(ToolCallEvent)] == ["a"]
        assert answered(s.model.requests[1].messages) == ["a"]


async def test_c113_two_calls_that_share_an_id_both_run_and_each_has_its_result() -> None:
    def answer(arguments: Mapping[str, Any]) -> object:
        return arguments["n"]

    work = GatedTool("work", answer=answer, free=True)
    calls: list[Call] = [("work", {"n": 1}, "x"), ("work", {"n": 2}, "x")]
    async with scene(Reply(calls=calls), Reply(text="ok"), tools=[work]) as s:
        await s.say("go")
        assert results(s) == [("x", None, "1"), ("x-2", None, "2")]
        assert [call.call_id for call in s.data(ToolCallEvent)] == ["x", "x-2"]


ONE_ANSWER: list[Beat] = [
    ReasoningDelta(0, "hm"),
    TextDelta(1, "I look."),
    *(ToolCallDelta(n, id, "work", "{}") for n, id in enumerate("abc", 2)),
    Finish(FinishKind.TOOL_CALLS),
]


@pytest.mark.parametrize("listening", [False, True])
async def test_c115_and_c116_one_answer_with_three_calls_stays_one_with_its_three_results(
    tmp_path: Any, listening: bool
) -> None:
    work = GatedTool("work", free=True)
    async with JsonlStore(tmp_path) as store:
        async with scene(ONE_ANSWER, Reply(text="ok"), tools=[work], session=await store.create("s")) as s:
            stream = s.agent.events() if listening else None
            await s.say("one")
            assert stream is None or "tool/result" in [occurrence.name async for occurrence in stream]
        model = ScriptedModel(Reply(text="ok"))
        async with Agent.resume(store, "s", model, tools=[work]) as agent:
            agent.followup("two")
            await agent.when_idle()

    assert shape(model.requests[0].messages) == [
        ("user", ["text"]),
        ("assistant", ["reasoning", "text", "tool-call", "tool-call", "tool-call"]),
        *[("user", ["tool-result"])] * 3,
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
    assert answered(model.requests[0].messages) == ["a", "b", "c"]


def shape(messages: Sequence[Message]) -> list[tuple[str, list[str]]]:
    """Who says which kinds of blocks."""
    return [
        ("assistant" if isinstance(message, AssistantMessage) else "user", [block.type for block in message.content])
        for message in messages
    ]


async def test_c115_a_thousand_calls_of_one_answer_have_a_thousand_results_in_order() -> None:
    work = GatedTool("work", free=True)
    calls: list[Call] = [("work", {"n": n}, f"c{n}") for n in range(1000)]
    async with scene(Reply(calls=calls), Reply(text="ok"), tools=[work], session=Session.memory(), seconds=20) as s:
        await s.say("go")
        assert [id for id, _, _ in results(s)] == [f"c{n}" for n in range(1000)]
        assert work.most <= 10
