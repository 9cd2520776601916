"""Group CMP: an older part of the conversation gives way to a summary, and nothing is torn or lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Agent, Hooks, Retry, Session, tool, user_message
from lifecycle.errors import AgentBusyError, CompactionError
from lifecycle.policies.compaction import CompactionOptions, compact, compacting
from lifecycle.policies.cutting import older_part, split_by
from lifecycle.policies.gauge import Gauge, estimated
from lifecycle.policies.retry import RetryOptions, retrying
from lifecycle.services.points import PreStepPayload, RequestErrorPayload
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Usage
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    EndSeed,
    Event,
    EventData,
    Replace,
    ToolResultEvent,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import COMPLETED, Errored
from lifecycle.vocabulary.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    text,
    text_of,
)
from lifecycle.vocabulary.stream import TimedStream

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

WINDOW = 2_000
LONG = "word " * 200
"""A prompt of some 250 tokens."""
OVERFLOW = Reply.failure("CONTEXT_OVERFLOW", "too long")
OK = Reply(text="ok")
NOTES = Reply(text="the notes")


@tool
def dump() -> str:
    """Say a great deal."""
    return "line " * 800


def options(*summaries: Line, **given: Any) -> CompactionOptions:
    """Options with a scripted summary model; without a script it says `the notes` each time."""
    model = ScriptedModel(*summaries, otherwise=NOTES, provider="short", model="notes-1")
    made: dict[str, Any] = {"summary_tokens": 100, **given}
    return CompactionOptions(model, **made)


@asynccontextmanager
async def compacted(
    *script: Line,
    by: CompactionOptions | None = None,
    behind: Hooks | None = None,
    window: int | None = WINDOW,
    **given: Any,
) -> AsyncGenerator[Scene]:
    """A scene with the policy in front of other hooks."""
    model = ScriptedModel(*script, otherwise=OK, context_window=window)
    hooks = compacting(by or options()) + (behind or Hooks())
    async with scene(model=model, hooks=hooks, **given) as s:
        yield s


def brackets(s: Scene) -> list[str]:
    """The names of what compaction records, in order, with the replacements."""
    return [
        f"{event.type}(replace)" if isinstance(event.surface, Replace) else event.type
        for event in s.session.events
        if event.type.startswith("compaction/") or isinstance(event.surface, Replace)
    ]


def ends(s: Scene) -> list[str | None]:
    return [end.error for end in s.data(CompactionEnd)]


SUMMARISED = ["compaction/start", "compaction/summary", "user/message(replace)", "compaction/end"]
PRUNED = ["compaction/prune", "tool/result(replace)"]


# -- CMP-01 -------------------------------------------------------------------------------------------------------


async def test_cmp_01_pressure_compacts_before_the_step_is_entered_and_its_input_admitted() -> None:
    async with compacted() as s:
        await s.say(*[LONG] * 6)
        assert brackets(s) == []
        await s.say(LONG)

        assert brackets(s) == SUMMARISED
        names = s.durable
        at = names.index("compaction/start")
        assert names[at - 1 : at + 6] == ["agent/inbox/spliced", *[one.partition("(")[0] for one in SUMMARISED],
                                          "step/start", "user/message"]  # fmt: skip
        assert s.reasons == [COMPLETED] * 7
        first = text_of(s.model.requests[-1].messages[0])
        assert "the notes" in first


async def test_cmp_01_what_a_provider_reports_counts_and_the_tail_is_estimated() -> None:
    heavy = Reply(text="ok", usage=Usage(input_tokens=1_500, output_tokens=200))
    async with compacted(OK, heavy, OK) as s:
        await s.say(LONG, "b")
        assert brackets(s) == []
        await s.say("c")

        (start,) = s.data(CompactionStart)
        assert (start.trigger, start.turn) == ("pressure", 3)


async def test_cmp_01_a_failure_is_a_warning_and_the_step_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with compacted(by=options(Reply.failure("AUTH", "no key"), NOTES)) as s:
        with caplog.at_level(logging.WARNING, "lifecycle"):
            await s.say(*[LONG] * 7)

        assert s.reasons == [COMPLETED] * 7
        assert ends(s) == ["the summary model short/notes-1 failed: no key (AUTH)"]
        assert s.session.surface.generation == 0
        assert [record.getMessage() for record in caplog.records if record.name == "lifecycle.policies"] == [
            "the conversation was not compacted: the summary model short/notes-1 failed: no key (AUTH)"
        ]


async def test_cmp_01_an_unknown_capacity_skips_it_unless_the_options_know() -> None:
    async with compacted(window=None) as s:
        await s.say(*[LONG] * 12)
        assert brackets(s) == []
    async with compacted(by=options(context_window=WINDOW), window=None) as s:
        await s.say(*[LONG] * 12)
        assert SUMMARISED[0] in brackets(s)


async def test_cmp_01_a_step_that_is_not_entered_needs_no_room() -> None:
    behind = Hooks()

    @behind.on("agent/pre-step")
    async def refuse(payload: PreStepPayload, next: Next[Any]) -> Any:
        decision = await next()
        return decision.with_messages(()) if len(s.data(UserMessageEvent)) == 6 else decision

    async with compacted(behind=behind) as s:
        await s.say(*[LONG] * 7)
        assert brackets(s) == []


async def test_cmp_01_a_cancel_ends_the_summary_and_closes_its_bracket() -> None:
    gate = Gate()
    async with compacted(by=options(NOTES.held(gate))) as s:
        for _ in range(7):
            s.agent.followup(LONG)
        await gate.reached()
        s.agent.cancel()
        await s.idle()

        assert s.reasons[-1].kind == "aborted"
        assert brackets(s) == ["compaction/start", "compaction/end"]
        assert ends(s) == ["the turn was cancelled by user"]
        assert "step/start" not in s.durable[s.durable.index("compaction/start") :]


# -- CMP-02 and CMP-03 --------------------------------------------------------------------------------------------


async def test_cmp_02_an_overflow_is_recovered_from_in_the_open_step() -> None:
    async with compacted(OK, OK, OVERFLOW, OK) as s:
        await s.say(LONG, LONG, "more")

        assert s.reasons == [COMPLETED] * 3
        assert brackets(s) == SUMMARISED
        (start,) = s.data(CompactionStart)
        assert (start.trigger, start.turn) == ("overflow", 3)
        assert s.durable.count("step/start") == 3
        assert len(s.model.requests) == 4
        assert [text_of(one) for one in s.model.requests[3].messages][-1] == "more"


@pytest.mark.parametrize("code", ["RATE_LIMIT", "INVALID_REQUEST", "SERVER", "QUOTA"])
async def test_cmp_02_every_other_failure_is_delegated_untouched(code: str) -> None:
    asked: list[str] = []
    behind = Hooks()

    @behind.on("agent/request-error")
    def listen(payload: RequestErrorPayload, next: Next[Retry | None]) -> None:
        asked.append(payload.failure.code)

    async with compacted(OK, Reply.failure(code), behind=behind) as s:
        await s.say(LONG, LONG)
        assert (asked, brackets(s)) == ([code], [])


@pytest.mark.parametrize(
    ("summary", "prunes", "requests", "kind"),
    [
        (NOTES, False, 3, "completed"),
        (Reply.failure("AUTH"), True, 4, "completed"),  # pruning has advanced the surface
        (Reply(text=LONG * 9), False, 2, "error"),  # it says it is done, and nothing was replaced
        (Reply.failure("AUTH"), False, 2, "error"),
        (RuntimeError("broken"), False, 2, "error"),
    ],
)
async def test_cmp_03_it_is_retried_only_if_the_surface_has_advanced(
    summary: Line, prunes: bool, requests: int, kind: str
) -> None:
    asked: list[str] = []
    behind = Hooks()

    @behind.on("agent/request-error")
    async def listen(payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
        asked.append(payload.failure.message)
        return await next()

    by = options(summary, prune_beyond=300 if prunes else None, at=0.31)
    first = [Reply(calls=[("dump", {})]), OK] if prunes else [Reply(text=LONG)]
    async with compacted(*first, OVERFLOW, OK, by=by, behind=behind, tools=[dump], window=None) as s:
        await s.say(LONG, LONG)

        assert len(s.model.requests) == requests
        assert s.reasons[-1].kind == kind
        assert asked == ([] if kind == "completed" else ["too long"])
        assert ("compaction/prune" in s.durable) == prunes
        if kind == "error":
            assert isinstance(s.reasons[-1], Errored)
            assert s.reasons[-1].error.code == "CONTEXT_OVERFLOW"


async def test_cmp_03_a_cancel_while_it_recovers_is_followed_by_no_request() -> None:
    gate = Gate()
    async with compacted(OK, OVERFLOW, OK, by=options(NOTES.held(gate))) as s:
        await s.say(LONG)
        s.agent.followup(LONG)
        await gate.reached()
        s.agent.cancel()
        await s.idle()

        assert (s.reasons[-1].kind, len(s.model.requests)) == ("aborted", 2)
        assert s.session.surface.generation == 0


# -- CMP-04 -------------------------------------------------------------------------------------------------------


async def test_cmp_04_pruning_alone_may_be_enough_and_then_no_summary_is_made() -> None:
    by = options(at=0.8, keep=0.3)
    async with compacted(Reply(calls=[("dump", {})]), OK, by=by, tools=[dump]) as s:
        await s.say(LONG, LONG, LONG, LONG)

        assert brackets(s) == PRUNED
        assert isinstance(by.model, ScriptedModel)
        assert by.model.requests == []
        shown = [block for m in s.model.requests[-1].messages for block in m.content if block.type == "tool-result"]
        assert len(shown) == 1
        assert "taken out to save room" in str(shown[0])


async def test_cmp_04_where_pruning_is_not_enough_a_summary_follows() -> None:
    async with compacted(Reply(calls=[("dump", {})]), OK, tools=[dump], window=2_400) as s:
        await s.say(LONG, *[LONG] * 8)

        assert brackets(s)[:6] == [*PRUNED, *SUMMARISED]


async def test_cmp_04_without_a_trigger_nothing_is_pruned() -> None:
    async with compacted(Reply(calls=[("dump", {})]), OK, Reply.failure("SERVER"), tools=[dump], window=9_000) as s:
        await s.say(LONG, "more")
        assert brackets(s) == []


# -- CMP-05 -------------------------------------------------------------------------------------------------------


async def test_cmp_05_the_bracket_names_what_gave_way_and_the_replacement_cites_it() -> None:
    async with compacted() as s:
        await s.say(*[LONG] * 7)

        (summary,) = s.data(CompactionSummary)
        replacing = next(event for event in s.session.events if isinstance(event.surface, Replace))
        assert isinstance(replacing.data, UserMessageEvent)
        assert replacing.surface == Replace(start=summary.shadowed_seqs[0], end=summary.shadowed_seqs[-1])
        cited = replacing.sources or ()
        assert cited[:2] == (s.event("compaction/start").seq, s.event("compaction/summary").seq)
        assert cited[2:] == summary.shadowed_seqs
        assert (summary.provider, summary.model) == ("short", "notes-1")
        (start,), (end,) = s.data(CompactionStart), s.data(CompactionEnd)
        cited_id = replacing.data.message.source["compactionId"]
        assert {start.compaction_id, summary.compaction_id, end.compaction_id} == {cited_id}


@pytest.mark.parametrize("marker", [True, False])
async def test_cmp_05_a_bracket_left_open_makes_compaction_busy_unless_it_was_adopted(marker: bool) -> None:
    session = Session.memory()
    for n in range(8):
        session.append(UserMessageEvent(message=user_message(f"{n} {LONG}")), surface="append")
    session.append(CompactionStart(compaction_id="lost", trigger="manual"))
    if marker:
        session.append(EndSeed())
    async with Agent(ScriptedModel(), session=session) as agent:
        if marker:
            assert (await compact(agent, options())).replaced > 0
        else:
            with pytest.raises(CompactionError, match=r"compaction 'lost' of session .* still goes on"):
                await compact(agent, options())
            assert session.surface.generation == 0


async def test_cmp_05_a_start_that_a_lost_process_left_in_its_turn_is_over_with_that_turn() -> None:
    gauge, session = Gauge(estimated), Session.memory()
    session.append(CompactionStart(compaction_id="lost", trigger="pressure", turn=1))
    gauge.follow(session)
    assert gauge.bracket == "lost"
    async with Agent(ScriptedModel(otherwise=OK), session=session) as agent:
        agent.followup("go on")
        await agent.when_idle()
        gauge.follow(session)
    assert gauge.bracket is None


# -- CMP-06 -------------------------------------------------------------------------------------------------------


def events(*datas: EventData) -> list[Event]:
    return [Event(seq, 0, data, "append") for seq, data in enumerate(datas)]


def asks(*ids: str) -> AssistantMessageEvent:
    calls = tuple(ToolCallBlock(id=id, name="look") for id in ids)
    message = AssistantMessage(content=(TextBlock(text="so"), *calls))
    return AssistantMessageEvent(turn=1, step=1, message=message, stream=TimedStream(0, ()), finish="tool-calls")  # type: ignore[arg-type]


def answers(id: str) -> ToolResultEvent:
    block = ToolResultBlock(tool_call_id=id, content=text("seen"))
    return ToolResultEvent(turn=1, step=1, message=UserMessage(content=(block,)))


def says(said: str) -> UserMessageEvent:
    return UserMessageEvent(message=user_message(said))


@pytest.mark.parametrize("keep", range(1, 7))
def test_cmp_06_no_cut_splits_a_batch_of_calls_from_its_results(keep: int) -> None:
    nodes = events(says("a"), asks("A", "B", "C"), answers("A"), answers("B"), answers("C"), says("b"))

    older = older_part(nodes, keep, lambda _: 1)

    assert len(older) == (1 if 1 < keep < 6 else 5 if keep == 1 else 0)


def test_cmp_06_answers_that_follow_one_another_stay_together() -> None:
    assert split_by(events(says("a"), asks(), asks(), says("b"))) == {2}


@given(st.lists(st.sampled_from(["says", "asks", "results", "more"]), max_size=12), st.integers(0, 12))
def test_cmp_06_whatever_is_kept_the_two_parts_are_whole(kinds: list[str], keep: int) -> None:
    made: list[EventData] = []
    waiting: list[str] = []
    for n, kind in enumerate(kinds):
        match kind:
            case "asks":
                waiting += (f"{n}a", f"{n}b")
                made.append(asks(*waiting[-2:]))
            case "results" if waiting:
                made += [answers(id) for id in waiting]
                waiting = []
            case "more":
                made.append(asks())
            case _:
                made.append(says(kind))
    nodes = events(*made)

    older = older_part(nodes, keep, lambda _: 1)

    rest = nodes[len(older) :]
    assert list(older) == nodes[: len(older)]
    assert rest or not nodes
    assert _results(older) <= _calls(older)
    assert _results(rest) <= _calls(rest)


def _calls(nodes: Iterable[Event]) -> set[str]:
    found = (node.data.message.content for node in nodes if isinstance(node.data, AssistantMessageEvent))
    return {block.id for content in found for block in content if isinstance(block, ToolCallBlock)}


def _results(nodes: Iterable[Event]) -> set[str]:
    found = (node.data.message.content for node in nodes if isinstance(node.data, ToolResultEvent))
    return {block.tool_call_id for content in found for block in content if isinstance(block, ToolResultBlock)}


async def test_cmp_06_a_conversation_that_has_changed_meanwhile_is_left_alone() -> None:
    gate = Gate()
    async with compacted(OK, OK, OVERFLOW, by=options(NOTES.held(gate))) as s:
        await s.say(LONG, LONG)
        s.agent.followup(LONG)
        await gate.reached()
        first = next(iter(s.session.surface.nodes))
        s.session.append(says("another"), surface=Replace(start=first, end=first), sources=[first])
        gate.open()
        await s.idle()

        assert ends(s) == ["the conversation has changed while its summary was written; nothing was replaced"]
        assert "compaction/summary" not in s.durable


@pytest.mark.parametrize("summary", [Reply(text=LONG * 9), Reply(text=" \n"), Reply(calls=[("look", {})])])
async def test_cmp_06_a_summary_that_does_not_shrink_or_says_nothing_is_refused(summary: Line) -> None:
    async with compacted(OK, OK, OVERFLOW, by=options(summary)) as s:
        await s.say(LONG, LONG, LONG)

        (error,) = ends(s)
        assert "no shorter than what it was made of" in str(error) or "returned no text" in str(error)
        assert s.session.surface.generation == 0
        assert s.reasons[-1].kind == "error"


# -- CMP-07 -------------------------------------------------------------------------------------------------------


async def test_cmp_07_overflows_have_a_budget_of_their_own_that_an_answer_renews() -> None:
    lost = Reply.failure("SERVER")
    behind = retrying(RetryOptions(chance=lambda: 0.0))
    script = [OK, OK, OVERFLOW, lost, lost, OK, Reply(text=LONG), OVERFLOW, OVERFLOW, OK]
    async with compacted(*script, behind=behind, window=None) as s:
        await s.say(LONG, LONG, LONG, LONG, LONG)

        assert [reason.kind for reason in s.reasons] == ["completed"] * 4 + ["error"]
        assert [start.trigger for start in s.data(CompactionStart)] == ["overflow"] * 2
        assert s.durable.count("llm/retry") == 2
        assert len(s.model.requests) == 9


async def test_cmp_07_c169_a_hopeless_request_is_made_twice_and_no_more() -> None:
    async with compacted(*[Reply(text=LONG)] * 3, *[OVERFLOW] * 9, window=6_000) as s:
        await s.say(LONG, LONG, LONG, LONG)
        assert len(s.session.surface.nodes) == 3  # a summary, an answer and the prompt: more could give way

        assert len(s.model.requests) == 5
        assert isinstance(s.reasons[-1], Errored)
        assert s.reasons[-1].error.code == "CONTEXT_OVERFLOW"


async def test_cmp_07_a_manual_run_is_a_maintenance_task_that_needs_no_turn_and_flushes() -> None:
    order: list[str] = []
    async with scene() as s:
        await s.say(*[LONG] * 6)
        s.session.observe(lambda event: order.append(event.type))
        s.hooks.listen("session/flush", lambda payload: order.append("flush"))
        done = await compact(s.agent, options())

        assert order == ["compaction/start", "compaction/summary", "user/message", "compaction/end", "flush"]
        assert (done.summary, done.replaced) == ("the notes", 9)
        assert done.tokens_after < done.tokens_before
        assert {start.turn for start in s.data(CompactionStart)} == {None}
        assert s.durable.count("turn/start") == 6
        await s.say("go on")
        assert s.reasons[-1] == COMPLETED


async def test_cmp_07_a_manual_run_is_refused_while_a_turn_runs_or_a_prompt_waits() -> None:
    gate = Gate()
    async with scene(Reply(text=LONG), OK.held(gate), OK) as s:
        await s.say(LONG)
        s.agent.followup(LONG)
        s.agent.followup(LONG)
        await gate.reached()
        with pytest.raises(AgentBusyError):
            await compact(s.agent, options())
        s.agent.cancel(keep_inbox=True)
        await s.idle()
        assert s.agent.status == "idle"
        with pytest.raises(AgentBusyError, match="has a prompt waiting for its next turn"):
            await compact(s.agent, options())
        assert brackets(s) == []


async def test_cmp_07_c166_input_that_comes_meanwhile_follows_the_summary() -> None:
    gate = Gate()
    async with scene() as s:
        await s.say(*[LONG] * 6)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact, s.agent, options(NOTES.held(gate)))
            await gate.reached()
            s.agent.followup("meanwhile")
            assert s.agent.phase == "maintenance_latched"
            gate.open()
        await s.idle()

        said = [text_of(message) for message in s.model.requests[-1].messages]
        assert "the notes" in said[0]
        assert said.count("meanwhile") == 1
        assert said[-1] == "meanwhile"
