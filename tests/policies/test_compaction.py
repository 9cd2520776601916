"""Compaction: the public failures that it touches, a long session in a small window, bad options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import anyio
import pytest

from lifecycle import Agent, Hooks, ModelSelection, Session, tool
from lifecycle.errors import CompactionError, PolicyError
from lifecycle.policies.compaction import CompactionOptions, compact, compacting
from lifecycle.policies.gauge import Gauge, estimated
from lifecycle.policies.selection import ModelSwitch
from lifecycle.services.signal import CancelSignal
from lifecycle.session.surface import AnyMessage
from lifecycle.testing import (
    Answer,
    AskedCall,
    Case,
    Gate,
    HookScript,
    Move,
    Reply,
    Scenario,
    ScriptedModel,
    ToolScript,
    check_case,
    check_hooks,
)
from lifecycle.vocabulary.chunks import Usage
from lifecycle.vocabulary.events import (
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    Event,
    Replace,
    StepStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import Errored, Failure, FailureCode
from lifecycle.vocabulary.messages import ToolCallBlock, ToolResultBlock, text_of, user_message
from lifecycle.vocabulary.requests import Request

from ..conformance.kit import scene
from .kit import BACKENDS

LONG = "word " * 200


def notes(*script: Reply) -> ScriptedModel:
    return ScriptedModel(*script, otherwise=Reply(text="the notes"), provider="short", model="notes-1")


def options(**given: Any) -> CompactionOptions:
    made: dict[str, Any] = {"model": notes(), "summary_tokens": 100, **given}
    return CompactionOptions(**made)


# -- a long session ----------------------------------------------------------------------------------------------


class Strict:
    """A provider that looks at every request: what it is given must be whole, and must fit.

    It asks for tools, several at once, `steps` times a turn, and reports what the request weighed.
    """

    def __init__(self, window: int, steps: int, seed: int) -> None:
        self.window, self.steps, self.random = window, steps, Random(seed)
        self.overflows = self.heaviest = 0
        self._step = 0

    def __call__(self, request: Request, signal: CancelSignal) -> Reply:
        assert torn(request.messages) == []
        weight = sum(map(estimated, request.messages))
        if weight > self.window:
            self.overflows += 1
            return Reply.failure("CONTEXT_OVERFLOW", f"{weight} tokens are more than {self.window}")
        self.heaviest = max(self.heaviest, weight)
        usage = Usage(input_tokens=weight, output_tokens=20)
        self._step = (self._step + 1) % self.steps
        if self._step == 0:
            return Reply(text="done", usage=usage)
        calls = [("fetch", {"letters": self.random.randrange(4_000)}) for _ in range(self.random.randrange(1, 4))]
        return Reply(reasoning="let me see", text="looking", calls=calls, usage=usage)


def torn(messages: Sequence[AnyMessage]) -> list[str]:
    """The ids of calls without a result, and of results without a call before them."""
    waiting: list[str] = []
    alone: list[str] = []
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                waiting.append(block.id)
            elif isinstance(block, ToolResultBlock):
                waiting.remove(block.tool_call_id) if block.tool_call_id in waiting else alone.append(
                    block.tool_call_id
                )
    return waiting + alone


def lost(session: Session) -> list[int]:
    """The user messages that stand neither on the surface nor behind a replacement that stands there and cites them."""
    kept: set[int] = set()
    todo = list(session.surface.nodes)
    while todo:
        seq = todo.pop()
        if seq not in kept:
            kept.add(seq)
            todo += session.events[seq].sources or ()
    return [event.seq for event in session.events if isinstance(event.data, UserMessageEvent) and event.seq not in kept]


@tool(parallel=True)
def fetch(letters: int) -> str:
    """Say so much."""
    return "x" * letters


async def long_session(steps: int, window: int, seed: int) -> tuple[Strict, Session, list[str | None]]:
    provider = Strict(window, steps=25, seed=seed)
    model = ScriptedModel(otherwise=provider, context_window=window)
    summary_tokens = window // 16
    by = CompactionOptions(notes(Reply(text="n" * summary_tokens)), summary_tokens=summary_tokens)
    async with Agent(model, tools=[fetch], hooks=compacting(by), monitor=True) as agent:
        session = agent.session
        prompts = 0
        while sum(isinstance(event.data, StepStart) for event in session.events) < steps:
            agent.followup(f"request {prompts}: {'please ' * provider.random.randrange(60)}")
            agent.inject("by the way")
            await agent.when_idle()
            prompts += 1
        ends = [event.data.error for event in session.events if isinstance(event.data, CompactionEnd)]
        assert not [
            event for event in session.events if event.type == "turn/end" and "completed" not in str(event.data)
        ]
    return provider, session, ends


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("steps", "window", "seed"),
    [
        (100, 8_000, 1),
        (500, 32_000, 2),
        *(pytest.param(500, 32_000, seed, marks=pytest.mark.slow) for seed in range(3, 20)),
        pytest.param(5_000, 32_000, 1, marks=pytest.mark.slow),
    ],
)
async def test_a_long_session_in_a_small_window_tears_nothing_and_loses_nothing(
    steps: int, window: int, seed: int
) -> None:
    with anyio.fail_after(120):
        provider, session, ends = await long_session(steps, window, seed)

    replaced = [event for event in session.events if isinstance(event.surface, Replace)]
    summaries = [event for event in replaced if isinstance(event.data, UserMessageEvent)]
    assert len(summaries) >= 3
    assert ends == [None] * len(summaries)
    assert lost(session) == []
    assert torn(session.derive_messages()) == []
    assert provider.heaviest <= window
    assert provider.overflows == 0


def test_what_looks_for_torn_and_lost_messages_finds_them() -> None:
    session = Session.memory()
    first = session.append(UserMessageEvent(message=user_message("a")), surface="append")
    assert lost(session) == []
    second = session.append(
        UserMessageEvent(message=user_message("b")), surface=Replace(start=0, end=0), sources=[first.seq]
    )
    assert lost(session) == []
    session.surface.nodes._order[0] = second._replace(sources=())  # pyright: ignore[reportPrivateUsage]
    session._events[1] = second._replace(sources=())  # pyright: ignore[reportPrivateUsage]
    assert lost(session) == [first.seq]


# -- the gauge ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_gauge_looks_at_each_event_once_and_comes_to_what_a_fresh_one_does() -> None:
    gauge, looked = Gauge(estimated), 0

    def counted(message: AnyMessage) -> int:
        nonlocal looked
        looked += 1
        return estimated(message)

    following = Gauge(counted)
    async with scene(Reply(text="a", usage=Usage(input_tokens=40, output_tokens=2)), *[Reply(text="b")] * 2) as s:
        for _ in range(3):
            await s.say(LONG)
            following.follow(s.session)
            following.follow(s.session)
        before = looked
        following.follow(s.session)
        gauge.follow(s.session)

    assert looked == before == 5  # three prompts and two answers; the reported one is not estimated
    assert following.tokens == gauge.tokens == 42 + 2 * estimated(user_message(LONG)) + 2 * 5


# -- public failures ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["steer", "followup", "inject"])
async def test_c131_what_is_said_while_a_summary_is_written_follows_it_once(verb: str) -> None:
    gate = Gate()
    by = options(model=notes(Reply(text="the notes")))
    assert isinstance(by.model, ScriptedModel)
    by.model.script[0] = Reply(text="the notes").held(gate)
    async with scene(model=ScriptedModel(otherwise=Reply(text="ok"), context_window=2_000), hooks=compacting(by)) as s:
        await s.say(*[LONG] * 6)
        s.agent.followup(LONG)
        await gate.reached()
        getattr(s.agent, verb)("by the way")
        gate.open()
        await s.idle()
        await s.say("and so on")

        said = [text_of(message) for message in s.session.derive_messages()]
        assert "the notes" in said[0]
        assert said.count("by the way") == 1
        assert lost(s.session) == []


# -- who writes --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_where_no_model_is_named_the_agents_own_writes_the_summary_on_the_route_of_the_step() -> None:
    small = ScriptedModel(otherwise=Reply(text="ok"), provider="small", model="s")
    large = ScriptedModel(
        *[Reply(text="ok")] * 6, Reply(text="the notes"), otherwise=Reply(text="ok"), provider="large", model="l"
    )
    large.context_window = 2_000
    switch = ModelSwitch({"large": ModelSelection(provider="large", model="l", effort="high")})
    switch.select("large")
    hooks = compacting(CompactionOptions(summary_tokens=100)) + switch.hooks
    with anyio.fail_after(5):
        async with Agent({"small": small, "large": large}, route="small/s", hooks=hooks) as agent:
            for _ in range(7):
                agent.followup(LONG)
                await agent.when_idle()

            (summary,) = [event.data for event in agent.session.events if isinstance(event.data, CompactionSummary)]
            assert (summary.provider, summary.model) == ("large", "l")
            assert [request.config.effort for request in large.requests].count(None) == 1
            assert (await compact(agent)).summary == "ok"  # at rest: on the agent's own route
            assert len(small.requests) == 1


@pytest.mark.anyio
async def test_what_a_route_takes_is_known_again_when_the_agent_comes_back_to_it() -> None:
    small, large = (ScriptedModel(otherwise=Reply(text="ok"), provider=name, model="m") for name in ("small", "large"))
    small.context_window, large.context_window = 2_000, 100_000
    switch = ModelSwitch({name: ModelSelection(provider=name, model="m") for name in ("small", "large")})
    with anyio.fail_after(5):
        async with Agent(
            {"small": small, "large": large}, route="small/m", hooks=compacting(options()) + switch.hooks
        ) as agent:
            for route, prompt in [("small", "one"), *[("large", LONG)] * 9, ("small", "two")]:
                switch.select(route)
                agent.followup(prompt)
                await agent.when_idle()

            starts = [event.data for event in agent.session.events if isinstance(event.data, CompactionStart)]
            assert [start.trigger for start in starts] == ["pressure"]
            assert sum(map(estimated, small.requests[-1].messages)) < 1_600


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at": 0.3, "keep": 0.5}, "at=0.3 and keep=0.5 cannot work together"),
        ({"at": 1.5}, "at=1.5 and keep=0.3 cannot work together"),
        ({"keep": 0.0}, "at=0.8 and keep=0.0 cannot work together"),
        ({"recoveries": 0}, "recoveries=0 leaves nothing to work with"),
        ({"summary_tokens": 0}, "summary_tokens=0 leaves nothing to work with"),
        ({"prune_beyond": 0}, "prune_beyond=0 leaves nothing to work with"),
        ({"context_window": 0}, "context_window=0 leaves nothing to work with"),
        ({"quote_tokens": -1}, "quote_tokens=-1 is no amount"),
        ({"keep": "a third"}, "keep='a third' is not a number"),
        ({"keep": float("nan")}, "at=0.8 and keep=nan cannot work together"),
        ({"summary_tokens": 0.5}, "summary_tokens=0.5 is not a whole number"),
        ({"model": "gpt"}, "CompactionOptions: model='gpt' is not an adapter"),
        (
            {"context_window": 1_000, "summary_tokens": 900},
            "900 tokens and the 30% that stay are more than",
        ),
    ],
)
def test_options_that_cannot_work_together_are_refused_where_they_are_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        options(**given)
    assert said in str(refused.value)


@pytest.mark.anyio
async def test_a_conversation_that_cannot_give_way_says_so_and_stays_as_it_is() -> None:
    async with scene() as s:
        with pytest.raises(CompactionError, match="nothing of the conversation can give way"):
            await compact(s.agent, options())
        await s.say("hi")
        said = list(s.session.derive_messages())
        with pytest.raises(CompactionError, match="no shorter than what it was made of"):
            await compact(s.agent, options())
        assert list(s.session.derive_messages()) == said


@pytest.mark.anyio
async def test_a_prompt_that_cannot_be_made_to_fit_ends_its_turn_with_the_providers_words_and_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Strict(2_000, steps=1, seed=1)
    async with scene(model=ScriptedModel(otherwise=provider, context_window=2_000), hooks=compacting(options())) as s:
        await s.say(LONG, LONG * 10, "go on")

        assert [reason.kind for reason in s.reasons] == ["completed", "error"]
        assert isinstance(s.reasons[1], Errored)
        assert s.reasons[1].error.message == "2550 tokens are more than 2000"
        assert lost(s.session) == []
        assert "cannot be made to fit" in caplog.text
        await s.say("and on")
        assert s.reasons[-1].kind == "error"  # what was said is not taken back: it stands, and still does not fit


@pytest.mark.anyio
async def test_a_conversation_that_the_summary_model_cannot_read_says_so() -> None:
    async with scene() as s:
        await s.say(*[LONG] * 30)
        narrow = notes()
        narrow.context_window = 950
        with pytest.raises(CompactionError, match=r"cannot be made to fit into the \d+ tokens that the"):
            await compact(s.agent, options(model=narrow))
        narrow.context_window = 3_000
        assert (await compact(s.agent, options(model=narrow))).replaced > 0
        assert sum(map(estimated, narrow.requests[0].messages)) < 3_000


# -- the rules of the lifecycle ----------------------------------------------------------------------------------


def build_compacting() -> Hooks:
    """For the check of hooks: every message weighs much, so that there is pressure after a few."""
    return compacting(
        options(context_window=240, at=0.6, keep=0.2, summary_tokens=10, prune_beyond=2, estimate=weigh_much)
    )


def build_compacting_alone() -> Hooks:
    """The same with the agent's own model, whose answers are then no answers in a step."""
    return compacting(
        CompactionOptions(context_window=240, at=0.6, keep=0.2, summary_tokens=10, prune_beyond=2, estimate=weigh_much)
    )


def weigh_much(message: AnyMessage) -> int:
    return 10 if "taken out" in str(message.content) else 30


_OVERFLOW = Answer(failure=Failure(message="too long", code=FailureCode.CONTEXT_OVERFLOW.value))
_WORK = Answer(calls=(AskedCall(), AskedCall()))
CASES = [
    Scenario(moves=(Move(), Move(at=1)), answers=(_WORK, _OVERFLOW, Answer(text=("ok",))), tools=(ToolScript(),)),
    Scenario(moves=(Move(), Move(at=1)), answers=(_WORK, _WORK, *[_OVERFLOW] * 5), tools=(ToolScript(),)),
    *(
        Scenario(
            moves=(Move(), Move(at=1), Move(at=n, verb=verb)),
            answers=(_WORK, _OVERFLOW, _WORK, _OVERFLOW),
            tools=(ToolScript(),),
            hooks=hooks,
            context="here",
        )
        for n in (3, 5, 7)
        for verb in ("cancel", "dispose", "steer")
        for hooks in ((), (HookScript(point="session/append", does="raise", nth=1, event="compaction/summary"),))
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_policy_breaks_no_rule_where_requests_overflow(backend: Any) -> None:
    retried = 0
    for scenario in CASES:
        trial = check_case(build_compacting, Case(scenario=scenario, backend=backend))
        retried += ("agent/request-error", "Retry") in trial.watch.verdicts
    assert retried >= 5  # the others are cancelled or vetoed before


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    made: list[str] = []

    def hooks() -> Hooks:
        made.append("")
        return build_compacting()

    report = check_hooks(hooks, examples=80, seed=7, backends=BACKENDS, invariants=[whole])
    report.coverage.require(verdicts=[("agent/pre-step", "Enter"), ("agent/request-error", "None")])
    assert len(made) > 80


def whole(run: Any) -> Iterator[str]:
    """No request of a run that nobody vetoed holds a torn pair, and no bracket is left open."""
    events: Sequence[Event] = run.events
    if run.vetoed:
        return
    starts = [event.data.compaction_id for event in events if event.type == "compaction/start"]  # type: ignore[attr-defined]
    ends = [event.data.compaction_id for event in events if event.type == "compaction/end"]  # type: ignore[attr-defined]
    if starts != ends:
        yield f"compactions {starts} were begun, and {ends} ended"
