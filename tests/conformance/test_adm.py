"""Group ADM: what an entered step does before its request, and the one block in which its input is admitted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import (
    CallConfig,
    CancelSignal,
    Enter,
    ModelSelection,
    PreparedCall,
    PromptAssembly,
    PromptText,
    Reject,
    Retry,
    user_message,
)
from lifecycle.services.points import (
    AgentHandle,
    AssemblePayload,
    PreStepPayload,
    RequestErrorPayload,
)
from lifecycle.session.surface import RUNTIME_CONTEXT
from lifecycle.testing import Gate, GatedTool, Reply, ScriptedModel
from lifecycle.vocabulary.events import Replace, RequestHeader, SystemMessageEvent, UserMessageEvent
from lifecycle.vocabulary.failures import USER_CANCEL, Aborted, Completed, Errored
from lifecycle.vocabulary.messages import SystemMessage, UserMessage, text_of
from lifecycle.vocabulary.requests import Request, SystemUpdate

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

ASKS = Reply(calls=[("work", {})])
DONE = Reply(text="done")
EMPTY_STEP = [
    "agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "step/start", "step/end", "turn/end",
]  # fmt: skip
"""The log of one prompt whose step was opened and admitted nothing."""


class Weather:
    """A prompt that a test changes while it runs: its sections (`a1` is section `a`), and one context."""

    def __init__(self, sections: str = "", context: str | None = None) -> None:
        self.sections, self.context = sections, context

    async def assemble(self, _: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
        default = await next()
        texts = tuple(PromptText(word[0], word) for word in self.sections.split())
        contexts = () if self.context is None else (PromptText("weather", self.context),)
        return PromptAssembly(texts, default.variables, contexts, default.tools)

    def at(self, s: Scene) -> None:
        s.hooks.listen("system-prompt/assemble", self.assemble)


def system(request: Request) -> list[str]:
    """The system text of a request, in order."""
    return [text_of(message) for message in request.messages if isinstance(message, SystemMessage)]


def said(request: Request) -> list[str]:
    """Everything in a request, in order, as texts."""
    return [text_of(message) for message in request.messages]


def snapshots(s: Scene) -> list[str]:
    """The last line of every snapshot that was logged, in order."""
    messages = [data.message for data in s.data(UserMessageEvent)]
    return [text_of(m).splitlines()[-1] for m in messages if m.source["kind"] == RUNTIME_CONTEXT]


def replace(s: Scene, *seqs: int, by: UserMessage | None = None) -> None:
    """A summary takes the place of neighbours on the surface."""
    message = by or user_message("summary", source={"kind": "compaction"})
    s.session.append(UserMessageEvent(message=message), surface=Replace(start=seqs[0], end=seqs[-1]), sources=seqs)


async def test_adm_01_the_step_opens_before_tools_prompt_configuration_and_call_are_prepared() -> None:
    order: list[str] = []

    def when(_: AgentHandle) -> bool:
        order.append("resolve")
        return True

    async with scene(tools=[GatedTool(when=when)]) as s:
        Weather("a1", "rain").at(s)
        _preparing(s, lambda: order.append("prepareCall"))
        for point in ("system-prompt/assemble", "agent/request", "llm/stream"):
            _wrapping(point)(s, partial(order.append, point))
        s.session.observe(lambda event: order.append(event.type))
        await s.say("hello")

        assert order[order.index("step/start") :][:11] == [
            "step/start",
            "resolve",
            "system-prompt/assemble",
            "agent/request",
            "prepareCall",
            "system/message",
            "user/message",
            "user/message",
            "request/header",
            "request/context",
            "llm/stream",
        ]
        assert s.trace.names().index("agent/pre-step") == s.trace.names().index("step/start") - 1


async def test_adm_02_a_tool_registered_after_the_resolution_is_the_next_steps() -> None:
    asks_late = Reply(calls=[("late", {}, "c1")])
    async with scene(Reply.failure(), asks_late, asks_late, DONE) as s:

        @s.hooks.on("system-prompt/assemble")
        async def register(_: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
            if not list(s.agent.tools):
                s.agent.tools.register(GatedTool("late", free=True))
            return await next()

        @s.hooks.on("agent/request-error")
        async def again(_: RequestErrorPayload, next: object) -> Retry:
            return Retry()

        await s.say("hello")

        assert [[tool.name for tool in request.tools] for request in s.model.requests] == [[], [], ["late"], ["late"]]
        results = [event.data for event in s.session.events if event.type == "tool/result"]
        assert [getattr(result, "error", None) is None for result in results] == [False, True]
        assert [[tool.name for tool in data.header.tools or ()] for data in s.data(RequestHeader)] == [[], ["late"]]


async def test_adm_03_the_prompt_is_assembled_once_however_many_attempts_the_step_makes() -> None:
    async with scene(Reply.failure(), Reply.failure(), DONE, DONE) as s:
        payloads: list[AssemblePayload] = []

        @s.hooks.on("system-prompt/assemble")
        async def look(payload: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
            payloads.append(payload)
            return PromptAssembly(
                (PromptText("a", "{{word}} {{model}}"),),
                {**(await next()).variables, "word": "hello"},
                (PromptText("where", "at {{word}}"),),
                payload.tools,
            )

        @s.hooks.on("agent/request-error")
        async def again(_: RequestErrorPayload, next: object) -> Retry:
            return Retry()

        s.agent.tools.register(GatedTool())
        await s.say("hello")

        assert [(payload.turn, payload.step) for payload in payloads] == [(1, 1)]
        assert [tool.name for tool in payloads[0].tools] == ["work"]
        assert [system(request) for request in s.model.requests] == [["hello script-1"]] * 3
        assert snapshots(s) == ["at hello"]
        assert "system-prompt/prepare" not in s.hooks.points


async def test_adm_04_nothing_comes_between_the_records_of_one_admission() -> None:
    gate, over = Gate(), anyio.Event()
    async with scene(model=ScriptedModel((over,), otherwise=DONE, preparing=[gate])) as s:
        Weather("a1 b1", "rain").at(s)

        async def chat() -> None:
            while "request/context" not in s.durable:
                s.agent.inject("chatter")
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            s.agent.followup("hello")
            await gate.reached()
            tasks.start_soon(chat)
            await anyio.lowlevel.checkpoint()
            gate.open()

        block = s.durable.index("system/message")
        assert s.durable[block - 1] == "agent/inbox/spliced", "somebody was chattering all the time"
        assert s.durable[block : block + 6] == [
            "system/message",
            "system/message",
            "user/message",
            "user/message",
            "request/header",
            "request/context",
        ]
        assert "hello" in said(s.model.requests[0])
        assert "chatter" not in said(s.model.requests[0])
        s.agent.cancel()


def _resolving(s: Scene, act: Callable[[], None]) -> None:
    def when(_: AgentHandle) -> bool:
        act()
        return True

    s.agent.tools.register(GatedTool(when=when))


def _wrapping(point: str) -> Callable[[Scene, Callable[[], None]], None]:
    def arrange(s: Scene, act: Callable[[], None]) -> None:
        async def wrapper(_: object, next: Next[Any]) -> Any:
            act()
            return await next()

        s.hooks.listen(point, wrapper)

    return arrange


@dataclass
class _Acting:
    """A model that does something before it prepares."""

    inner: ScriptedModel
    act: Callable[[], None]
    provider: str = "scripted"
    model: str | None = "script-1"

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall | Awaitable[PreparedCall]:
        self.act()
        return self.inner.prepare(config, signal)


def _preparing(s: Scene, act: Callable[[], None]) -> None:
    s.agent.models.register("scripted", _Acting(s.model, act))


PLACES = {
    "resolve": _resolving,
    "assemble": _wrapping("system-prompt/assemble"),
    "request": _wrapping("agent/request"),
    "prepare": _preparing,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["cancel", "raise", "both"])
async def test_adm_05_a_cancel_or_failure_before_the_admission_leaves_no_input(place: str, how: str) -> None:
    async with scene() as s:

        def act() -> None:
            if how != "raise":
                s.agent.cancel()
            if how != "cancel":
                raise LookupError(place)

        PLACES[place](s, act)
        await s.say("hello")

        assert s.durable == EMPTY_STEP
        assert [type(reason) for reason in s.reasons] == [Errored if how == "raise" else Aborted]
        assert s.trace.names("L").count("agent/error") == (1 if how == "raise" else 0)
        assert "llm/stream" not in s.trace.names()
        assert s.model.requests == []


async def test_adm_05_a_cancel_while_the_call_is_prepared_leaves_no_input() -> None:
    gate = Gate()
    async with scene(model=ScriptedModel(otherwise=DONE, preparing=[gate])) as s:
        Weather("a1", "rain").at(s)
        s.agent.followup("hello")
        await gate.reached()
        s.agent.cancel()
        await s.idle()

        assert s.durable == EMPTY_STEP
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        await s.say("again")
        assert said(s.model.requests[0])[:2] == ["a1", "again"], "what was claimed for that step is gone"


# -- the prompt on the surface -------------------------------------------------------------------------------------

PROMPTS = [
    # what is rendered; the sections that get a record, where the provider rewrites, and where it keeps its history
    ("a1 b1 c1", "a1 b1 c1", "a1 b1 c1"),
    ("a1 b1 c1", "", ""),
    ("a1 b2 c1", "b2", "b2"),
    ("a1 d1 b2 c1", "d1", "d1"),
    ("a1 d1 c1", "-b", "-b"),
    ("c1 a1 d1", "c1", ""),
    ("c1 a1 d1 b3", "b3", "b3"),
]


@pytest.mark.parametrize("update", ["rewrite", "in-history"])
async def test_adm_06_only_nodes_that_changed_came_went_or_moved_are_recorded(update: SystemUpdate) -> None:
    async with scene(model=ScriptedModel(otherwise=DONE, system_update=update)) as s:
        weather = Weather()
        weather.at(s)
        for sections, rewritten, said_again in PROMPTS:
            weather.sections = sections
            before = len(s.data(SystemMessageEvent))
            await s.say("hello")

            records = s.data(SystemMessageEvent)[before:]
            written = [text_of(r.message) or f"-{r.message.source['section']}" for r in records]
            assert " ".join(written) == (rewritten if update == "rewrite" else said_again)
            assert all((r.turn, r.step) == (s.session.last_turn, 1) for r in records)
            if update == "rewrite":
                assert said(s.model.requests[-1])[: len(sections.split()) + 1] == [*sections.split(), "hello"]
                assert system(s.model.requests[-1]) == sections.split()


async def test_adm_06_a_provider_that_keeps_its_prefix_gets_changes_at_the_tail_until_a_series_starts() -> None:
    async with scene(model=ScriptedModel(otherwise=DONE, system_update="in-history")) as s:
        weather, asked = Weather("a1 b1"), False
        weather.at(s)

        @s.hooks.on("agent/pre-step")
        async def series(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            return Enter(payload.messages, starts_request_series=asked)

        await s.say("one")
        weather.sections = "a1 b2"
        await s.say("two")
        assert said(s.model.requests[-1]) == ["a1", "b1", "one", "done", "b2", "two"]
        node = s.session.surface.system["b"]
        assert isinstance(node.data, SystemMessageEvent)
        assert node.data.message.source == {"kind": "prompt", "section": "b", "order": 1, "placement": "in-history"}

        asked = True
        await s.say("three")
        assert said(s.model.requests[-1])[:3] == ["a1", "b2", "one"]
        assert system(s.model.requests[-1]) == ["a1", "b2"], "what was said in history is void now"

        asked, weather.sections = False, "a2 b2"
        await s.say("four")
        assert said(s.model.requests[-1])[-2:] == ["a2", "four"]
        s.agent.tools.register(GatedTool())
        await s.say("five")
        assert system(s.model.requests[-1]) == ["a2", "b2"], "another tool set starts a series too"
        assert [request.starts_series for request in s.model.requests] == [True, False, True, False, True]


async def test_adm_06_a_provider_that_rewrites_takes_over_from_one_that_keeps_its_prefix() -> None:
    other = ScriptedModel(otherwise=DONE, provider="other", system_update="rewrite")
    async with scene(model=ScriptedModel(otherwise=DONE, system_update="in-history")) as s:
        s.agent.models.register("other", other)
        weather = Weather("a1 b1")
        weather.at(s)
        await s.say("one")
        weather.sections = "a2 b1 c1"
        await s.say("two")

        s.agent.models.selection = ModelSelection(provider="other", model="m")
        await s.say("three")

        assert not other.requests[-1].starts_series
        assert said(other.requests[-1])[:4] == ["a2", "b1", "c1", "one"]
        assert system(other.requests[-1]) == ["a2", "b1", "c1"]


@pytest.mark.parametrize("update", ["rewrite", "in-history"])
@pytest.mark.parametrize("where", ["agent/request-error", "agent/pre-step", "agent/request"])
async def test_adm_06_nodes_that_a_replacement_swallowed_stand_again_before_the_request(
    update: SystemUpdate, where: str
) -> None:
    script = (DONE, Reply.failure(), DONE) if where == "agent/request-error" else (DONE, DONE)
    async with scene(model=ScriptedModel(*script, system_update=update)) as s:
        weather = Weather("a1 b1")
        weather.at(s)
        await s.say("one")
        weather.sections = "a1 b2"

        async def summarise(_: object, next: Next[Any]) -> Any:
            replace(s, *[*s.session.surface.nodes][:3])
            return Retry() if where == "agent/request-error" else await next()

        s.hooks.listen(where, summarise)
        await s.say("two")

        last = s.model.requests[-1]
        assert said(last)[:3] == ["a1", "b2", "summary"]
        assert system(last) == ["a1", "b2"]
        assert last.starts_series
        assert isinstance(s.reasons[-1], Completed)


async def test_adm_07_entered_messages_are_admitted_in_the_order_of_the_decision() -> None:
    async with scene() as s:
        a, b = (user_message(name, id=name, source={"kind": "test", "name": name}) for name in "ab")

        @s.hooks.on("agent/pre-step")
        async def reverse(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            return Enter((b, *payload.messages, a))

        c = s.agent.followup("c")
        await s.idle()

        admitted = [event for event in s.session.events if event.type == "user/message"]
        assert [event.data for event in admitted] == [UserMessageEvent(message=message) for message in (b, c, a)]
        assert [event.surface for event in admitted] == ["append"] * 3


# -- runtime context ----------------------------------------------------------------------------------------------


async def test_adm_08_a_snapshot_follows_the_input_and_only_if_it_differs_from_the_retained_one() -> None:
    async with scene(ASKS, DONE, DONE, DONE, tools=[GatedTool(free=True)]) as s:
        weather = Weather("a1", "rain")
        weather.at(s)

        await s.say("one", "two")
        assert snapshots(s) == ["rain"]
        assert said(s.model.requests[0])[1] == "one"
        assert said(s.model.requests[0])[2].endswith("rain")

        weather.context = "snow"
        await s.say("three")
        assert snapshots(s) == ["rain", "snow"]
        assert said(s.model.requests[-1])[-2] == "three"
        assert said(s.model.requests[-1])[-1].endswith("snow")


async def test_adm_08_a_tool_continuation_without_input_admits_a_changed_snapshot_alone() -> None:
    async with scene(ASKS, DONE, tools=[GatedTool(free=True)]) as s:
        weather = Weather("a1", "rain")
        weather.at(s)

        @s.hooks.on("tools/result")
        def change(_: object) -> None:
            weather.context = "snow"

        await s.say("one")

        second = s.durable[s.durable.index("step/end") :]
        assert second[:4] == ["step/end", "step/start", "user/message", "assistant/message"]
        assert snapshots(s) == ["rain", "snow"]


async def test_adm_09_a_snapshot_that_a_replacement_shadowed_is_written_again() -> None:
    async with scene() as s:
        Weather(context="rain").at(s)
        await s.say("one")
        shadowed = s.event("user/message", 1)
        replace(s, shadowed.seq)
        await s.say("two")

        assert snapshots(s) == ["rain", "rain"]
        assert said(s.model.requests[-1])[-1].endswith("rain")


async def test_adm_09_a_context_that_becomes_empty_is_cleared_once() -> None:
    async with scene() as s:
        weather = Weather(context="rain")
        weather.at(s)
        await s.say("one")
        for context in (None, "", None):
            weather.context = context
            await s.say("more")

        assert snapshots(s) == ["rain", "There is no runtime context any more."]
        weather.context = "rain"
        await s.say("again")
        assert snapshots(s)[2:] == ["rain"]


async def test_adm_09_a_context_that_never_was_is_not_cleared() -> None:
    async with scene() as s:
        Weather().at(s)
        await s.say("one", "two")

        assert snapshots(s) == []


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ({}, "malformed"),
        ({"sections": "rain"}, "malformed"),
        ({"sections": ()}, "malformed"),
        ({"sections": ({"name": "weather", "text": "rain"},)}, "malformed"),
        ({"sections": ({"name": "weather", "text": "snow"},)}, None),
        ({"sections": None}, None),
    ],
    ids=["no sections", "no list", "cleared", "another text", "another section", "only the text"],
)
async def test_adm_09_a_malformed_snapshot_is_superseded(source: dict[str, object], content: str | None) -> None:
    async with scene() as s:
        Weather(context="rain").at(s)
        await s.say("one")
        kept = s.event("user/message", 1)
        assert isinstance(kept.data, UserMessageEvent)
        malformed = user_message(content or kept.data.message.content, source={"kind": RUNTIME_CONTEXT, **source})
        replace(s, kept.seq, by=malformed)
        await s.say("two", "three")

        assert snapshots(s) == ["rain", content or "rain", "rain"]


async def test_adm_09_an_unrelated_replacement_and_a_changed_context_touch_neither_snapshot_nor_prompt() -> None:
    async with scene() as s:
        weather = Weather("a1", "rain")
        weather.at(s)
        await s.say("one")
        replace(s, s.event("assistant/message").seq)
        await s.say("two")
        assert snapshots(s) == ["rain"]

        weather.context = "snow"
        await s.say("three")
        assert snapshots(s) == ["rain", "snow"]
        assert s.durable.count("system/message") == 1, "system text is never rewritten because of a context"


@pytest.mark.parametrize("shadows", [False, True])
async def test_adm_10_a_retry_admits_no_input_again_and_a_snapshot_only_if_it_was_shadowed(shadows: bool) -> None:
    async with scene(Reply.failure(), Reply.failure(), DONE) as s:
        Weather("a1", "rain").at(s)

        @s.hooks.on("agent/request-error")
        async def again(payload: RequestErrorPayload, next: object) -> Retry:
            if shadows and payload.attempt == 1:
                replace(s, *[event.seq for event in s.session.events if event.type == "user/message"][1:])
            return Retry()

        s.agent.inject("context")
        await s.say("hello")

        kinds = [data.message.source["kind"] for data in s.data(UserMessageEvent)]
        assert kinds.count("user") == 2
        assert kinds.count(RUNTIME_CONTEXT) == (2 if shadows else 1)
        first, second, third = (said(request) for request in s.model.requests)
        snapshot = first[-1]
        assert first == ["a1", "context", "hello", snapshot]
        assert second == third == (["a1", "context", "summary", snapshot] if shadows else first)


# -- searches -----------------------------------------------------------------------------------------------------

RENDERED = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 2)), unique_by=lambda section: section[0], max_size=4
).map(lambda made: " ".join(f"{name}{n}" for name, n in made))


@dataclass
class Plan:
    """What a search draws for one turn."""

    sections: str
    update: SystemUpdate
    series: bool
    swallow: tuple[int, int] | None
    """The range of nodes that a summary takes the place of, if the first attempt fails."""
    fails: bool


UPDATES: st.SearchStrategy[SystemUpdate] = st.sampled_from(("rewrite", "in-history"))
PLANS = st.builds(
    Plan,
    RENDERED,
    UPDATES,
    st.booleans(),
    st.none() | st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.booleans(),
)


@given(plans=st.lists(PLANS, min_size=1, max_size=6))
async def test_adm_06_the_derived_system_text_is_the_rendered_prompt_after_any_history(plans: Sequence[Plan]) -> None:
    async with scene(only=()) as s:
        weather, plan = Weather(), plans[0]
        weather.at(s)

        @s.hooks.on("agent/pre-step")
        async def series(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
            return Enter(payload.messages, starts_request_series=plan.series)

        @s.hooks.on("agent/request-error")
        async def recover(_: RequestErrorPayload, next: object) -> Retry:
            if plan.swallow is not None:
                start, more = plan.swallow
                if nodes := [*s.session.surface.nodes][start : start + more + 1]:
                    replace(s, *nodes)
            return Retry()

        for plan in plans:
            weather.sections, s.model.system_update = plan.sections, plan.update
            before = s.model.requests[-1:]
            s.model.script += [Reply.failure(), DONE] if plan.fails else [DONE]
            first = len(s.model.requests)
            await s.say("hello")

            for request in s.model.requests[first:]:
                texts = plan.sections.split()
                if request.starts_series or plan.update == "rewrite":
                    assert said(request)[: len(texts)] == texts
                    assert system(request) == texts
                else:
                    assert _holding(request) == texts_by_section(texts)
                    gone = {name for name in _holding(before[0]) if name not in texts_by_section(texts)}
                    if not gone:
                        assert said(request)[: len(before[0].messages)] == said(before[0]), "the prefix survives"
                before = [request]


def texts_by_section(texts: Sequence[str]) -> dict[str, str]:
    return {text[0]: text for text in texts}


def _holding(request: Request) -> dict[str, str]:
    """What each section of the prompt says last, as the model reads it."""
    return texts_by_section(system(request))
