"""Group REQ: how a request is shaped, what it is derived from, and what the log says of it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import setitem
from random import Random
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lifecycle import (
    AgentOptions,
    CallConfig,
    CancelSignal,
    Enter,
    ModelSelection,
    PreparedCall,
    PromptAssembly,
    PromptText,
    Reject,
    Retry,
    Session,
    user_message,
)
from lifecycle.services.points import (
    AssemblePayload,
    LlmStreamPayload,
    PreStepPayload,
    RequestErrorPayload,
    RequestPayload,
)
from lifecycle.testing import Beat, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk, FinishKind, TextDelta
from lifecycle.vocabulary.events import Replace, RequestContext, RequestHeader, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Errored
from lifecycle.vocabulary.messages import text_of
from lifecycle.vocabulary.requests import Request, SystemUpdate
from lifecycle.vocabulary.values import FrozenDict, Value

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

ASKS = Reply(calls=[("work", {})])
DONE = Reply(text="done")


def shapes(s: Scene, **changes: object) -> list[CallConfig]:
    """Make every request with these changes; returns the defaults that are offered, as they come."""
    defaults: list[CallConfig] = []

    @s.hooks.on("agent/request")
    async def shape(_: RequestPayload, next: Next[CallConfig]) -> CallConfig:
        defaults.append(await next())
        return defaults[-1].model_copy(update=changes)

    return defaults


async def test_req_01_the_configuration_that_is_returned_is_prepared_logged_and_sent_each_attempt() -> None:
    async with scene(Reply.failure(), DONE) as s:
        payloads: list[RequestPayload] = []

        @s.hooks.on("agent/request")
        async def shape(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            payloads.append(payload)
            return (await next()).model_copy(update={"temperature": payload.attempt / 10})

        @s.hooks.on("agent/request-error")
        async def again(_: RequestErrorPayload, next: object) -> Retry:
            return Retry()

        await s.say("hello")

        assert [(p.agent, p.turn, p.step, p.attempt) for p in payloads] == [(s.agent, 1, 1, 1), (s.agent, 1, 1, 2)]
        assert not any(p.signal.fired for p in payloads)
        assert [config.temperature for config in s.model.configs] == [0.1, 0.2]
        assert [data.header.config.temperature for data in s.data(RequestHeader)] == [0.1, 0.2]
        assert [request.config.temperature for request in s.model.requests] == [0.1, 0.2]


async def test_req_01_the_default_cannot_be_changed_in_place() -> None:
    async with scene(options=AgentOptions(request_options={"deep": {"list": [1]}})) as s:

        @s.hooks.on("agent/request")
        async def mutate(_: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            config = await next()
            with pytest.raises(TypeError):
                config.options["deep"]["list"] = ()
            config.model = "another"  # type: ignore[misc]  # what the test is about
            return config

        await s.say("hello")

        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert ValidationError.__name__ in reason.error.message
        assert s.model.prepared == 0


async def test_req_02_the_default_starts_from_the_selection_and_carries_what_no_adapter_filled_in() -> None:
    first = ScriptedModel(otherwise=DONE, defaults={"max_tokens": 100, "effort": "high"}, context_window=1000)
    second = ScriptedModel(otherwise=DONE, provider="second")
    async with scene(model=first, options=AgentOptions(request_options={"seed": 7})) as s:
        s.agent.models.register("second", second)
        defaults = shapes(s)
        await s.say("one")
        s.agent.models.selection = ModelSelection(provider="second", model="m2", effort="low")
        await s.say("two")

        options = FrozenDict(seed=7)
        assert defaults == [
            CallConfig(provider="scripted", model="script-1", options=options),
            CallConfig(provider="second", model="m2", effort="low", options=options),
        ]
        assert first.requests[0].config.max_tokens == 100
        assert second.requests[0].config.max_tokens is None


async def test_req_02_options_that_an_adapter_filled_in_are_not_carried_either() -> None:
    class Filling(ScriptedModel):
        def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
            made = super().prepare(config.model_copy(update={"options": FrozenDict(tier="fast")}), signal)
            assert isinstance(made, PreparedCall)
            return dataclasses.replace(made, defaults=("options",))

    async with scene(model=Filling(otherwise=DONE)) as s:
        defaults = shapes(s)
        await s.say("one", "two")

        assert [config.options for config in defaults] == [{}, {}]
        assert s.model.requests[1].config.options == {"tier": "fast"}


async def test_req_02_an_explicit_cap_is_carried_to_the_next_provider() -> None:
    second = ScriptedModel(otherwise=DONE, provider="second")
    async with scene(model=ScriptedModel(otherwise=DONE, defaults={"max_tokens": 100})) as s:
        s.agent.models.register("second", second)

        @s.hooks.on("agent/request")
        async def cap(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            config = await next()
            return config.model_copy(update={"max_tokens": 50, "temperature": 0.5}) if payload.turn == 1 else config

        await s.say("one")
        s.agent.models.selection = ModelSelection(provider="second", model="m2")
        await s.say("two")

        (config,) = [request.config for request in second.requests]
        assert (config.provider, config.model, config.max_tokens, config.temperature) == ("second", "m2", 50, 0.5)


async def test_req_02_the_first_request_of_an_instance_starts_from_its_options_and_not_from_the_log() -> None:
    async with scene() as s:
        shapes(s, max_tokens=50, temperature=0.5)
        await s.say("one")
        log = [*s.session.events]
    async with scene(session=Session.seeded(log), options=AgentOptions(max_tokens=7)) as s:
        defaults = shapes(s)
        await s.say("two", "three")

        assert [(config.max_tokens, config.temperature) for config in defaults] == [(7, None), (7, None)]


@pytest.mark.parametrize("missing", ["provider", "model"])
async def test_req_03_a_configuration_without_a_route_fails_the_turn_and_names_the_hook(missing: str) -> None:
    async with scene() as s:
        shapes(s, **{missing: None})
        await s.say("hello")

        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert f"names no {missing}" in reason.error.message
        assert "'agent/request'" in reason.error.message
        assert reason.error.code != "NO_ADAPTER"
        assert s.model.prepared == 0, "no adapter was asked"
        assert "agent/request-error" not in s.trace.names()


CHANGES: Sequence[Callable[[Any], object]] = (
    lambda request: request.messages.append(request.messages[0]),
    lambda request: setitem(request.messages, 0, request.messages[1]),
    lambda request: setattr(request.messages[1].content[0], "text", "x"),
    lambda request: setitem(request.messages[1].source, "kind", "x"),
    lambda request: setattr(request.messages[0], "content", ()),
    lambda request: request.tools[0].input_schema.clear(),
    lambda request: setattr(request.tools[0], "name", "x"),
    lambda request: setitem(request.config.options["a"], "b", 1),
    lambda request: setattr(request.config, "model", "x"),
    lambda request: setattr(request, "messages", ()),
)


async def test_req_05_the_request_cannot_be_changed_by_whoever_wraps_the_stream() -> None:
    async with scene(tools=[GatedTool()], options=AgentOptions(system="be brief", request_options={"a": {}})) as s:

        @s.hooks.on("llm/stream")
        async def tamper(payload: LlmStreamPayload, next: Next[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
            request: Any = payload.request
            for change in CHANGES:
                with pytest.raises((AttributeError, TypeError, ValidationError)):
                    change(request)
            return await next()

        await s.say("hello")

        assert s.reasons == [COMPLETED]
        assert seen(s.model.requests[0]) == rebuild(event.encode() for event in s.session.events)[0]


async def test_req_05_a_listener_that_tries_fails_the_turn_loudly() -> None:
    async with scene() as s:

        @s.hooks.on("llm/stream")
        async def tamper(payload: LlmStreamPayload, next: Next[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
            messages: Any = payload.request.messages
            messages.append(user_message("smuggled"))
            return await next()

        await s.say("hello")

        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "append" in reason.error.message
        assert s.model.requests == []


async def test_req_06_the_messages_only_grow_at_the_tail_and_earlier_ones_stay_the_same_objects() -> None:
    async with scene(ASKS, DONE, Reply.failure(), DONE, ASKS, DONE, tools=[GatedTool(free=True)]) as s:
        s.hooks.listen("agent/request-error", _retry)
        s.agent.inject("context")
        await s.say("one", "two", "three")

        assert len(s.model.requests) == 6
        sizes = [len(request.messages) for request in s.model.requests]
        for earlier, later in zip(s.model.requests, s.model.requests[1:], strict=False):
            assert len(later.messages) >= len(earlier.messages)
            assert all(a is b for a, b in zip(earlier.messages, later.messages, strict=False))
        assert sizes == [2, 4, 6, 6, 8, 10]
        assert [len(request.messages) for request in s.model.requests] == sizes, "and no request grows afterwards"


async def _retry(_: RequestErrorPayload, next: object) -> Retry:
    return Retry()


async def test_req_06_a_replacement_starts_another_list_and_leaves_the_requests_before_it_alone() -> None:
    async with scene() as s:
        await s.say("one")
        before = [text_of(message) for message in s.model.requests[0].messages]
        seqs = [*s.session.surface.nodes]
        summary = UserMessageEvent(message=user_message("summary"))
        s.session.append(summary, surface=Replace(start=seqs[0], end=seqs[-1]), sources=seqs)
        await s.say("two")

        assert [text_of(message) for message in s.model.requests[1].messages] == ["summary", "two"]
        assert [text_of(message) for message in s.model.requests[0].messages] == before


async def test_req_07_a_header_is_logged_first_and_then_where_it_changes() -> None:
    async with scene() as s:
        await s.say("one", "two", "three")
        assert [data.reason for data in s.data(RequestHeader)] == ["initial"]

        s.agent.models.selection = ModelSelection(provider="scripted", model="script-2")
        await s.say("four", "five")
        s.agent.tools.register(GatedTool())
        await s.say("six")
        assert [data.reason for data in s.data(RequestHeader)] == ["initial", "change", "change"]
        assert [data.header.config.model for data in s.data(RequestHeader)] == ["script-1", "script-2", "script-2"]
        log = [*s.session.events]
    model = ScriptedModel(otherwise=DONE, model="script-2")
    async with scene(session=Session.seeded(log), model=model, tools=[GatedTool()]) as s:
        await s.say("seven", "eight")

        headers = s.data(RequestHeader)
        assert [data.reason for data in headers] == ["initial", "change", "change", "resume"]
        assert headers[-1].header == headers[-2].header, "a new instance says it though nothing changed"


async def test_req_07_the_canonical_header_has_no_empty_parts() -> None:
    async with scene() as s:
        await s.say("one")

        (line,) = [json.loads(event.encode()) for event in s.session.events if event.type == "request/header"]
        assert line["data"]["header"].keys() == {"config"}
        assert {"provider", "model"} <= line["data"]["header"]["config"].keys() <= {"provider", "model", "options"}


async def test_req_08_a_context_record_is_logged_where_route_or_capacity_change() -> None:
    a, b = ScriptedModel(otherwise=DONE, context_window=1000), ScriptedModel(otherwise=DONE, provider="b")
    async with scene(model=a) as s:
        s.agent.models.register("b", b)
        for provider in ("scripted", "scripted", "b", "b", "scripted"):
            s.agent.models.selection = ModelSelection(provider=provider, model="m")
            await s.say("hello")
        a.context_window = 2000
        await s.say("hello")

        assert s.data(RequestContext) == [
            RequestContext(provider="scripted", model="m", context_window=1000),
            RequestContext(provider="b", model="m"),
            RequestContext(provider="scripted", model="m", context_window=1000),
            RequestContext(provider="scripted", model="m", context_window=2000),
        ]
        assert s.session.context == s.data(RequestContext)[-1]


@pytest.mark.parametrize(
    ("order", "names"),
    [(None, ["a", "b", "c", "d"]), (["c", "*", "a"], ["c", "b", "d", "a"]), (["d"], ["d", "a", "b", "c"])],
    ids=["by name", "with a rest", "the rest last"],
)
async def test_req_09_the_order_of_tools_is_that_of_names_or_the_configured_one(
    order: Sequence[str] | None, names: list[str]
) -> None:
    headers: list[object] = []
    for seed in range(3):
        tools = [GatedTool(name) for name in "abcd"]
        Random(seed).shuffle(tools)
        async with scene(tools=tools, options=AgentOptions(tool_order=order)) as s:
            await s.say("hello")

            assert [tool.name for tool in s.model.requests[0].tools] == names
            headers.append(s.data(RequestHeader)[0].header)
    assert headers == headers[:1] * 3


async def test_req_10_an_order_that_names_no_tool_fails_the_opened_step() -> None:
    async with scene(tools=[GatedTool("a")], options=AgentOptions(tool_order=["a", "missing"])) as s:
        await s.say("hello")

        assert s.durable == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "step/end",
            "turn/end",
        ]
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "'missing'" in reason.error.message


async def test_req_11_surface_records_before_the_admission_are_in_this_request_and_input_is_not() -> None:
    async with scene() as s:

        @s.hooks.on("agent/request")
        async def append(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            if payload.step == 1:
                s.agent.inject("injected")
                s.session.append(UserMessageEvent(message=user_message("appended")), surface="append")
            return await next()

        await s.say("hello")

        requests = [[text_of(message) for message in request.messages] for request in s.model.requests]
        assert requests == [["appended", "hello"], ["appended", "hello", "ok", "injected"]]


# -- the request equals the log -----------------------------------------------------------------------------------


@dataclass
class Rebuilt:
    """A request, as far as a log says it."""

    turn: int
    step: int
    attempt: int
    messages: list[Any]
    tools: list[Any]
    config: Any


def rebuild(lines: Iterable[str]) -> list[Rebuilt]:
    """Every request that was dispatched, from the lines of the log and nothing else.

    A dispatched request is settled by exactly one record; what the log said right before it is what was asked.
    """
    made: list[Rebuilt] = []
    surface: list[tuple[int, str, Any]] = []
    header: Any = None
    attempts: Counter[tuple[int, int]] = Counter()
    for event in map(json.loads, lines):
        kind, data, operation = event["type"], event["data"], event.get("surfaceOp")
        if kind == "request/header":
            header = data["header"]
        if kind in ("assistant/message", "assistant/attempt"):
            attempts[at := (data["turn"], data["step"])] += 1
            made.append(Rebuilt(*at, attempts[at], history(surface), header.get("tools", []), header["config"]))
        if operation is not None:
            seqs = [seq for seq, _, _ in surface]
            first = last = len(surface)
            if operation != "append":
                first, last = seqs.index(operation["start"]), seqs.index(operation["end"]) + 1
            surface[first:last] = [(event["seq"], kind, data if kind == "user/message" else data["message"])]
    return made


def history(surface: list[tuple[int, str, Any]]) -> list[Any]:
    """The prompt in the order of its sections, then what was said in the order of the surface."""
    heads = {
        message["source"]["section"]: (seq, message)
        for seq, kind, message in surface
        if kind == "system/message" and "placement" not in message["source"]
    }
    prompt = [message for _, message in sorted(heads.values(), key=lambda head: head[1]["source"]["order"])]
    said: list[Any] = []
    for seq, kind, message in surface:
        if kind == "system/message":
            newest_head = heads.get(message["source"]["section"], (-1,))[0]
            if "placement" not in message["source"] or seq < newest_head:
                continue
        said.append(message)
    empty = [{"type": "text", "text": ""}]
    return [message for message in [*prompt, *said] if message["content"] not in ([], empty)]


def seen(request: Request) -> Rebuilt:
    """A request that was dispatched, in the same terms."""
    return Rebuilt(
        request.turn,
        request.step,
        request.attempt,
        [plain(message) for message in request.messages],
        [plain(spec) for spec in request.tools],
        plain(request.config),
    )


def plain(value: Value) -> Any:
    return json.loads(value.model_dump_json(exclude_none=True))


Answer: TypeAlias = Literal["stop", "tools", "fail", "cancel", "pause", "cut off", "nothing", "raise", "tamper"]


@dataclass(frozen=True)
class Move:
    """What a search draws for one request, and for the proposal that leads to it."""

    answer: Answer
    sections: str
    context: str
    tools: str
    provider: str
    cap: int | None
    appends: bool
    update: SystemUpdate
    entered: Literal["claim", "extra", "series", "none", "reject"]
    swallow: tuple[int, int] | None
    steered: bool


ANSWERS: tuple[Answer, ...] = ("stop", "tools", "fail", "cancel", "pause", "cut off", "nothing", "raise", "tamper")
UPDATES: tuple[SystemUpdate, ...] = ("rewrite", "in-history")
TWO_SECTIONS = st.tuples(*(st.sampled_from(("", f"{name}1", f"{name}2")) for name in "ab")).map(" ".join)
MOVES = st.builds(
    Move,
    # Named twice is twice as likely: most runs shall come far, and meet a prompt that changes within a series.
    st.sampled_from(("stop", "tools", *ANSWERS)),
    TWO_SECTIONS,
    st.sampled_from(("", "rain", "snow")),
    st.sampled_from(("", "", "x", "yz")),
    st.sampled_from(("first", "first", "first", "second", "nobody")),
    st.sampled_from((None, 10, 20)),
    st.booleans(),
    st.sampled_from(("in-history", *UPDATES)),
    st.sampled_from(("claim", "claim", "claim", "extra", "series", "none", "reject")),
    st.none() | st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.booleans(),
)


class World:
    """An agent's surroundings that follow the drawn moves; request N and its proposal are about move N."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves = moves
        self.dispatched: list[Request] = []
        self.proposals = 0
        self.scene: Scene | None = None

    def at(self, request: int) -> Move:
        """The move of a request; after the last one they come again, tamely."""
        move = self.moves[request % len(self.moves)]
        tame = replace(move, answer="stop", entered="claim", steered=False, swallow=None)
        return move if request < len(self.moves) else tame

    @property
    def next(self) -> Move:
        """The move of the request that is proposed or prepared."""
        return self.at(len(self.dispatched))

    @property
    def last(self) -> Move:
        """The move of the request that was dispatched last."""
        return self.at(len(self.dispatched) - 1)

    @property
    def s(self) -> Scene:
        assert self.scene is not None
        return self.scene

    def enter(self, s: Scene, second: ScriptedModel) -> None:
        """Take hold of an agent."""
        self.scene = s
        self.models = (s.model, second)
        s.agent.models.register("second", second)
        s.hooks.listen("agent/step-boundary", self.boundary)
        s.hooks.listen("agent/pre-step", self.decide)
        s.hooks.listen("system-prompt/assemble", self.assemble)
        s.hooks.listen("agent/request", self.shape)
        s.hooks.listen("llm/stream", self.dispatch)
        s.hooks.listen("agent/request-error", self.recover)

    def boundary(self, _: object) -> None:
        move = self.next
        self.s.agent.models.selection = ModelSelection(provider=move.provider, model="m")
        for model in self.models:
            model.system_update = move.update
        for name in "xyz":
            self.s.agent.tools.unregister(name)
            if name in move.tools:
                self.s.agent.tools.register(GatedTool(name, free=True))

    async def decide(self, payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        self.proposals += 1
        match self.at(self.proposals - 1).entered:
            case "claim":
                return await next()
            case "extra":
                return Enter((*payload.messages, user_message("extra")))
            case "series":
                return Enter(payload.messages, starts_request_series=True)
            case "none":
                return Enter(())
            case "reject":
                return Reject()

    async def assemble(self, _: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
        default, move = await next(), self.next
        sections = tuple(PromptText(word[0], word) for word in move.sections.split())
        return PromptAssembly(sections, default.variables, (PromptText("weather", move.context),), default.tools)

    async def shape(self, _: RequestPayload, next: Next[CallConfig]) -> CallConfig:
        if self.next.appends:
            self.s.session.append(UserMessageEvent(message=user_message("by a plug-in")), surface="append")
        config = await next()
        return config if self.next.cap is None else config.model_copy(update={"max_tokens": self.next.cap})

    async def dispatch(self, payload: LlmStreamPayload, next: Next[AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
        self.dispatched.append(payload.request)
        if self.last.answer == "tamper":
            raise LookupError("no stream")
        return await next()

    async def recover(self, _: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
        swallow = self.last.swallow
        if swallow is None:
            return await next()
        if nodes := [*self.s.session.surface.nodes][swallow[0] : sum(swallow) + 1]:
            summary = UserMessageEvent(message=user_message("summary"))
            self.s.session.append(summary, surface=Replace(start=nodes[0], end=nodes[-1]), sources=nodes)
        return Retry()

    def answer(self, request: Request, _: CancelSignal) -> Reply | Sequence[Beat]:
        if self.last.steered:
            self.s.agent.inject("by the way")
        match self.last.answer:
            case "tools":
                return Reply(text="see", calls=[(name, {}, f"{name}{len(self.dispatched)}") for name in "xyz"])
            case "fail":
                return Reply.failure(text="half")
            case "cancel":
                self.s.agent.cancel()
                return DONE
            case "pause":
                return Reply(text="hm", finish=FinishKind.PAUSE)
            case "cut off":
                return Reply(text="so", finish=FinishKind.MAX_TOKENS)
            case "nothing":
                return Reply()
            case "raise":
                return [TextDelta(0, "half"), LookupError("connection lost")]
            case _:
                return DONE


@given(moves=st.lists(MOVES, min_size=3, max_size=9), again=st.booleans(), heard=st.booleans())
async def test_req_04_every_dispatched_request_can_be_rebuilt_from_the_log_alone(
    moves: list[Move], again: bool, heard: bool
) -> None:
    world, log = World(moves), Session.memory()
    for instance in range(2 if again else 1):
        first = ScriptedModel(
            otherwise=world.answer, provider="first", defaults={"max_tokens": 100}, context_window=1000
        )
        second = ScriptedModel(otherwise=world.answer, provider="second", defaults={"effort": "low"})
        session = log if instance == 0 else Session.seeded(log.events)
        async with scene(session=session, model=first, only=None if heard else ()) as s:
            world.enter(s, second)
            for turn in range(4):
                await s.say(f"prompt {turn} of {instance}")
        log = session

    assert rebuild(event.encode() for event in log.events) == [seen(request) for request in world.dispatched]
