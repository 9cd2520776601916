"""Public failures of other agents in which several parts meet, each with the value that is right."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from lifecycle_adapters import http_failures
from lifecycle_adapters.http_failures import Site, of_response

from lifecycle import Allow, Deny, Hooks, tool
from lifecycle.policies.compaction import CompactionOptions, compact, compacting
from lifecycle.policies.retry import RetryOptions, retrying
from lifecycle.proof.simulation import Backend
from lifecycle.services.points import CallPayload
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import FinishKind, TextDelta, failed
from lifecycle.vocabulary.events import CompactionStart, LlmRetry, ToolCallEvent, ToolResultEvent, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED, Errored, Failure
from lifecycle.vocabulary.messages import UserMessage, text_of
from lifecycle.vocabulary.values import FrozenDict

from ..conformance.kit import Next, scene
from .kit import each_backend, played
from .test_compaction import LONG, lost, notes, torn

SITE = Site("https://example.test")
WHOLE = RetryOptions(chance=lambda: 1.0)
OK = Reply(text="ok")


def refused(status: int, body: object = "", **headers: str) -> Reply:
    """The reply of a provider that answers so, as the adapter over HTTP makes it."""
    lower = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(error=of_response(SITE, status, lower, body))


# -- http-retry --------------------------------------------------------------------------------------------------


@each_backend
@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "Sat, 14 Mar 2026 12:00:07 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry_after": "2", "retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "Sat, 14 Mar 2026 11:00:00 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 2.0),
        ({"retry_after": "soon"}, 2.0),
        ({"retry_after": "-5"}, 2.0),
        ({"retry_after": "1e3"}, 2.0),
        ({"retry_after": "0x10"}, 2.0),
    ],
)
def test_c082_every_form_of_a_wait_is_kept_or_one_of_our_own(
    backend: Backend, headers: dict[str, str], waited: float
) -> None:
    s = played(backend, refused(429, **headers), OK, hooks=retrying(WHOLE))

    assert [one.delay_ms for one in s.data(LlmRetry)] == [waited * 1000]
    assert s.reasons == [COMPLETED]


@each_backend
def test_c083_come_back_tomorrow_ends_the_turn_at_once_and_says_when(backend: Backend) -> None:
    s = played(backend, refused(429, retry_after="86400"), OK, hooks=retrying(WHOLE))

    (reason,) = s.reasons
    assert isinstance(reason, Errored)
    assert (reason.error.code, reason.error.retry_after) == ("RATE_LIMIT", 86_400.0)
    assert len(s.model.requests) == 1


@each_backend
def test_c085_overloaded_is_retried_with_growing_waits_and_one_user_message(backend: Backend) -> None:
    overloaded = refused(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    s = played(backend, overloaded, overloaded, OK, hooks=retrying(WHOLE))

    assert [one.delay_ms for one in s.data(LlmRetry)] == [2_000, 4_000]
    assert (s.reasons, len(s.data(UserMessageEvent))) == ([COMPLETED], 1)


OVERFLOWS = (
    (400, {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8 maximum"}},
    ),
    (413, ""),
)
OTHERS = (
    (400, {"error": {"message": "max_tokens must be at least 1", "type": "invalid_request_error"}}),
    (401, {"error": {"message": "wrong key", "code": "invalid_api_key"}}),
)


@each_backend
@pytest.mark.parametrize(("status", "body"), [*OVERFLOWS, *OTHERS])
def test_c086_an_overflow_in_any_words_is_compacted_and_nothing_else_is(
    backend: Backend, status: int, body: object
) -> None:
    hooks = compacting(CompactionOptions(notes(), summary_tokens=100)) + retrying(WHOLE)
    script = [Reply(text=LONG), Reply(text=LONG), refused(status, body), OK]
    s = played(backend, *script, hooks=hooks, prompts=3)

    overflow = (status, body) in OVERFLOWS
    assert [one.trigger for one in s.data(CompactionStart)] == (["overflow"] if overflow else [])
    assert s.reasons[-1].kind == ("completed" if overflow else "error")
    assert s.data(LlmRetry) == []


PAYLOADS = Path(__file__).parents[3] / "shared" / "cases" / "payloads"


@pytest.mark.skipif(not PAYLOADS.is_dir(), reason="no folder of payloads beside the checkout")
def test_c086_every_row_of_the_table_is_recovered_from_retried_or_left_alone_by_its_class() -> None:
    rows = json.loads((PAYLOADS / "C086.json").read_text(encoding="utf-8"))
    expected = json.loads((PAYLOADS / "C086.expected.json").read_text(encoding="utf-8"))["expect"]["rows"]
    for row, right in zip(rows, expected, strict=True):
        hooks = compacting(CompactionOptions(notes(), summary_tokens=100)) + retrying(WHOLE)
        script = [Reply(text=LONG), Reply(text=LONG), refused(row["status"], row["body"]), OK]
        s = played("asyncio", *script, hooks=hooks, prompts=3)

        overflow = right["class"] == "context_overflow"
        assert bool(s.data(CompactionStart)) == overflow, row
        assert bool(s.data(LlmRetry)) == right["retry"], row
        assert s.reasons[-1].kind == ("completed" if overflow or right["retry"] else "error"), row


@each_backend
def test_c091_a_connection_that_is_cut_is_made_again_and_the_half_answer_stands_nowhere(backend: Backend) -> None:
    cut: Line = [TextDelta(0, "Half"), failed(Failure(message="cut", code="TRANSPORT", retryable=True))]
    s = played(backend, cut, Reply(text="Whole"), hooks=retrying(WHOLE))

    assert s.data(LlmRetry)[0].shown is True
    assert [text_of(message) for message in s.session.derive_messages()] == ["ping", "Whole"]


AS_FAILURES = {
    "c034 an event that is no JSON": (http_failures.protocol("a broken event", retryable=True), True),
    "c088 a body that never ends": (of_response(SITE, 500, {}, ""), True),
    "c089 no stream of events": (http_failures.no_answer(SITE), False),
    "c092 nothing but keep-alives": (http_failures.timed_out(SITE, "while it waited for progress"), True),
}


@each_backend
@pytest.mark.parametrize("case", AS_FAILURES)
def test_what_a_wire_says_may_be_tried_again_is_and_nothing_else(backend: Backend, case: str) -> None:
    failure, again = AS_FAILURES[case]
    s = played(backend, Reply(error=failure), OK, hooks=retrying(WHOLE))

    assert len(s.data(LlmRetry)) == again
    assert s.reasons[0].kind == ("completed" if again else "error")


@tool
async def look() -> str:
    """Look."""
    return "seen"


@each_backend
def test_c173_empty_answers_after_tools_end_the_turn_and_the_tools_are_not_repeated(backend: Backend) -> None:
    empty = Reply(error=Failure(message="no content", code="EMPTY_RESPONSE", retryable=True), finish=FinishKind.ERROR)
    calls = Reply(calls=[("look", "{}")] * 3)
    s = played(backend, calls, *[empty] * 9, hooks=retrying(WHOLE), tools=[look])

    (reason,) = s.reasons
    assert isinstance(reason, Errored)
    assert (reason.error.code, len(s.model.requests), len(s.data(ToolCallEvent))) == ("EMPTY_RESPONSE", 4, 3)


# -- compaction --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("kept", range(1, 7))
async def test_c164_a_cut_never_comes_between_three_calls_and_their_results(kept: int) -> None:
    """Four prompts, each with a batch of three calls; so many tenths of it all stay as they are."""
    turn = [Reply(calls=[("look", "{}")] * 3), OK]
    options = CompactionOptions(notes(), summary_tokens=20, keep=kept / 10, quote_tokens=0)
    async with scene(*turn * 4, OK, tools=[look]) as s:
        await s.say(*["please look " * 20] * 4)
        done = await compact(s.agent, options)
        await s.say("go on")

        asked = s.model.requests[-1].messages
        assert done.replaced > 0
        assert torn(asked) == []
        assert isinstance(asked[0], UserMessage)
        assert asked[0].source["kind"] == "compaction"
        assert s.reasons == [COMPLETED] * 5


# -- steering ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("keep_inbox", [True, False])
async def test_c128_and_c130_what_was_said_before_a_cancel_is_somewhere_once(keep_inbox: bool) -> None:
    """The steer comes while a retry waits; then the turn is cancelled."""
    waiting = Reply.failure("RATE_LIMIT", retry_after=50.0)
    async with scene(waiting, OK, OK, hooks=retrying(WHOLE)) as s:
        recorded = Gate()
        s.session.observe(lambda event: recorded.open() if event.type == "llm/retry" else None)
        s.agent.followup("go")
        await recorded.go()
        s.agent.steer("use tabs")
        s.agent.cancel(keep_inbox=keep_inbox)
        await s.idle()
        await s.say("next")

        texts = [text_of(data.message) for data in s.data(UserMessageEvent)]
        assert texts == (["go", "use tabs", "next"] if keep_inbox else ["go", "next"])
        discarded = [event for event in s.session.events if "canceled" in event.encode()]
        assert len(discarded) == (0 if keep_inbox else 1)


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["steer", "followup"])
async def test_c133_while_a_summary_is_written_a_steer_joins_the_turn_and_a_followup_does_not(verb: str) -> None:
    gate = Gate()
    model = ScriptedModel(Reply(text="the notes").held(gate), otherwise=Reply(text="the notes"), model="n")
    hooks = compacting(CompactionOptions(model, summary_tokens=100))
    async with scene(model=ScriptedModel(otherwise=OK, context_window=2_000), hooks=hooks) as s:
        await s.say(*[LONG] * 6)
        s.agent.followup(LONG)
        await gate.reached()
        getattr(s.agent, verb)("and more")
        gate.open()
        await s.idle()

        assert s.durable.count("turn/start") == (7 if verb == "steer" else 8)
        assert [text_of(data.message) for data in s.data(UserMessageEvent)].count("and more") == 1
        assert lost(s.session) == []


# -- hooks -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("added", list(permutations(range(3))))
async def test_c137_two_rewrites_and_a_denial_come_to_the_same_in_whatever_order_they_were_added(
    added: tuple[int, ...],
) -> None:
    done: list[str] = []

    @tool
    async def write(path: str = "", flag: int = 0) -> str:
        """Write."""
        done.append(f"{path} {flag}")
        return "written"

    def changed(payload: CallPayload, verdict: Allow, **more: object) -> Allow:
        given = verdict.arguments if verdict.arguments is not None else payload.arguments
        assert isinstance(given, dict)
        return Allow(FrozenDict(given | more))

    path, flag = Hooks(name="path", after="flag"), Hooks(name="flag")
    deny = Hooks(name="deny", before=("path", "flag"))  # outermost: what it says last, holds

    @path.on("tools/pre-execute")
    async def set_path(payload: CallPayload, next: Next[Any]) -> Any:
        verdict = await next()
        return changed(payload, verdict, path="/a") if payload.call.id == "c1" else verdict

    @flag.on("tools/pre-execute")
    async def set_flag(payload: CallPayload, next: Next[Any]) -> Any:
        return changed(payload, await next(), flag=1)

    @deny.on("tools/pre-execute")
    async def deny_path(payload: CallPayload, next: Next[Any]) -> Any:
        verdict = await next()
        given = verdict.arguments if isinstance(verdict, Allow) else None
        return Deny("not there") if isinstance(given, FrozenDict) and given.get("path") == "/a" else verdict

    sets = (path, flag, deny)
    first, second, third = (sets[n] for n in added)
    script = (Reply(calls=[("write", {}, "c1"), ("write", {"path": "/b"}, "c2")]), OK)
    async with scene(*script, tools=[write], hooks=first + second + third) as s:
        await s.say("go")

        assert done == ["/b 1"]
        assert [data.error.code if data.error else None for data in s.data(ToolResultEvent)] == ["DENIED", None]


@pytest.mark.anyio
async def test_c143_every_start_has_its_end_also_where_a_policy_is_cut_off() -> None:
    gate = Gate()
    model = ScriptedModel(Reply(text="the notes").held(gate), model="n")
    hooks = compacting(CompactionOptions(model, summary_tokens=100)) + retrying(WHOLE)
    async with scene(model=ScriptedModel(otherwise=OK, context_window=2_000), hooks=hooks) as s:
        await s.say(*[LONG] * 6)
        s.agent.followup(LONG)
        await gate.reached()
        s.agent.cancel()
        await s.idle()

        for what in ("turn", "step", "compaction"):
            assert s.durable.count(f"{what}/start") == s.durable.count(f"{what}/end")
