"""Group PRE: the pre-step waterfall decides whether a proposed step opens, and with which messages."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lifecycle import (
    AgentOptions,
    CallConfig,
    Enter,
    Prompt,
    Reject,
    Section,
    user_message,
)
from lifecycle.services.points import AgentHandle, InboxPayload, PreStepPayload, RequestPayload
from lifecycle.session.surface import RUNTIME_CONTEXT
from lifecycle.testing import Gate, GatedTool, Reply
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import InboxSpliced, UserMessageEvent
from lifecycle.vocabulary.failures import BLOCKED, COMPLETED, MAX_TOKENS, USER_CANCEL, Aborted, Errored
from lifecycle.vocabulary.messages import text, text_of

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

ASKS = Reply(calls=[("work", {})])
DONE = Reply(text="done")
Decision = Enter | Reject

NO_STEP = ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"]
"""The log of one prompt whose proposal spent no step."""
SPENT_BY_A_STEP = {"system-prompt/assemble", "agent/request", "llm/stream", "agent/turn-stopping"}


def admitted(s: Scene) -> list[str]:
    """The texts that became user messages, in order."""
    return [text_of(data.message) for data in s.data(UserMessageEvent)]


async def test_pre_01_a_listener_gets_the_claimed_batch_in_order_and_cannot_change_it() -> None:
    async with scene() as s:
        payloads: list[PreStepPayload] = []

        @s.hooks.on("agent/pre-step")
        async def look(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            payloads.append(payload)
            with pytest.raises(ValidationError):
                payload.messages[0].content = text("another")  # type: ignore[misc]  # what the test is about
            with pytest.raises(TypeError):
                payload.messages[0].source["kind"] = "another"
            return await next()

        sent = [s.agent.inject("context"), s.agent.followup("prompt")]
        await s.idle()

        (payload,) = payloads
        assert isinstance(payload.messages, tuple)
        assert [message.id for message in payload.messages] == [message.id for message in sent]
        assert all(given is mine for given, mine in zip(payload.messages, sent, strict=True)), "they keep identity"
        assert (payload.agent, payload.turn, payload.step) == (s.agent, 1, 1)
        assert not payload.signal.fired
        assert admitted(s) == ["context", "prompt"]


async def test_pre_01_the_number_is_that_of_the_proposed_step() -> None:
    async with scene(ASKS, DONE, DONE, tools=[GatedTool(free=True)]) as s:
        await s.say("one", "two")

        assert [line for line in s.trace.lines("L") if "pre-step" in line] == [
            "L agent/pre-step {turn:1, step:1, messages:[m1]}",
            "L agent/pre-step {turn:1, step:2, messages:[]}",
            "L agent/pre-step {turn:2, step:1, messages:[m2]}",
        ]


async def test_pre_02_by_default_the_step_is_entered_with_exactly_the_claim_and_no_context() -> None:
    weather = iter(["rain", "snow"])
    system = Prompt(contexts=[Section("weather", lambda _: next(weather))])
    async with scene(options=AgentOptions(system=system)) as s:
        decisions: list[Decision] = []

        @s.hooks.on("agent/pre-step")
        async def look(_: PreStepPayload, next: Next[Decision]) -> Decision:
            decisions.append(await next())
            return decisions[-1]

        first, second = s.agent.followup("one"), s.agent.followup("two")
        await s.idle()

        assert decisions == [Enter((first,)), Enter((second,))]
        contexts = [data for data in s.data(UserMessageEvent) if data.message.source["kind"] == RUNTIME_CONTEXT]
        assert len(contexts) == 2, "they changed, and came in by themselves"


async def test_pre_03_the_outermost_answer_is_the_decision_and_nothing_is_merged_into_it() -> None:
    async with scene() as s:
        inner: list[str] = []

        @s.hooks.on("agent/pre-step")
        async def outer(_: PreStepPayload, next: Next[Decision]) -> Decision:
            return Enter((user_message("only this"),))

        @s.hooks.on("agent/pre-step")
        async def silenced(_: PreStepPayload, next: Next[Decision]) -> Decision:
            inner.append("ran")
            return Reject()

        await s.say("hello")

        assert inner == []
        assert admitted(s) == ["only this"]
        assert [text_of(message) for message in s.model.requests[0].messages] == ["only this"]
        assert s.reasons == [COMPLETED]


async def test_pre_04_entered_messages_are_admitted_as_they_are_each_as_its_own_record() -> None:
    async with scene() as s:

        @s.hooks.on("agent/pre-step")
        async def rewrite(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            first, _dropped = payload.messages
            rewritten = first.model_copy(update={"content": text("rewritten")})
            return Enter((rewritten, user_message("extra", id="x1", source={"kind": "linter", "file": "a.py"})))

        first = s.agent.inject("original")
        s.agent.followup("to be dropped")
        await s.idle()

        assert [(data.message.id, text_of(data.message), data.message.source) for data in s.data(UserMessageEvent)] == [
            (first.id, "rewritten", {"kind": "user"}),
            ("x1", "extra", {"kind": "linter", "file": "a.py"}),
        ]
        assert [event.surface for event in s.session.events if event.type == "user/message"] == ["append", "append"]


@pytest.mark.parametrize("flag", [True, False])
async def test_pre_05_the_flag_of_the_inner_decision_survives_a_wrapper_and_reaches_the_request(flag: bool) -> None:
    async with scene() as s:
        started: list[bool] = []

        @s.hooks.on("agent/pre-step")
        async def outer(_: PreStepPayload, next: Next[Decision]) -> Decision:
            decision = await next()
            assert isinstance(decision, Enter)
            return decision.with_messages([*decision.messages, user_message("added")])

        @s.hooks.on("agent/pre-step")
        async def inner(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            return Enter(payload.messages, starts_request_series=flag and payload.turn == 2)

        @s.hooks.on("agent/request")
        async def look(payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
            started.append(payload.starts_series)
            return await next()

        await s.say("one", "two", "three")

        assert admitted(s) == ["one", "added", "two", "added", "three", "added"]
        assert started == [True, flag, False], "an agent's first request starts a series anyhow"
        assert [request.starts_series for request in s.model.requests] == started


async def test_pre_06_a_rejection_spends_no_step_and_ends_the_turn_blocked() -> None:
    resolved: list[str] = []

    def when(_: AgentHandle) -> bool:
        resolved.append("tools")
        return True

    async with scene(tools=[GatedTool(when=when)]) as s:

        @s.hooks.on("agent/pre-step")
        async def refuse(_: PreStepPayload, next: Next[Decision]) -> Decision:
            await next()
            return Reject("not today")

        await s.say("hello")

        assert s.durable == NO_STEP
        assert s.reasons == [BLOCKED]
        assert s.trace.lines()[-4:] == [
            "L agent/model {turn:1, step:1}",
            "L agent/pre-step {turn:1, step:1, messages:[m1]}",
            "D turn/end {turn:1, reason:{kind:blocked}}",
            "L agent/status {status:idle}",
        ]
        assert resolved == []
        assert s.model.prepared == 0


async def test_pre_07_an_emptied_first_batch_spends_no_step_and_parks_the_queue() -> None:
    async with scene() as s:

        @s.hooks.on("agent/pre-step")
        async def drop(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            decision = await next()
            return Enter(()) if text_of(payload.messages[-1]) == "drop me" else decision

        s.agent.followup("drop me")
        s.agent.followup("wait")
        await s.idle()

        assert [name for name in s.durable if name != "agent/inbox/spliced"] == ["turn/start", "turn/end"]
        assert s.reasons == [COMPLETED]
        assert SPENT_BY_A_STEP.isdisjoint(s.trace.names())
        assert [text_of(message) for message in s.session.inbox.next_turn] == ["wait"]
        assert s.agent.status == "idle"


async def test_pre_07_emptiness_is_that_of_the_decision_so_an_empty_claim_can_become_a_step() -> None:
    async with scene() as s:

        @s.hooks.on("agent/inbox/inserted")
        def take_back(payload: InboxPayload) -> None:
            removed.append(s.agent.inbox.remove(payload.message.id))

        @s.hooks.on("agent/pre-step")
        async def add(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            assert payload.messages == ()
            return Enter((user_message("made up"),))

        removed: list[bool] = []
        await s.say("hello")

        assert removed == [True]
        assert admitted(s) == ["made up"]
        assert s.durable.count("step/start") == 1
        assert s.reasons == [COMPLETED]


async def test_pre_08_a_changed_context_alone_opens_nothing() -> None:
    weather = "rain"
    system = Prompt(contexts=[Section("weather", lambda _: weather)])
    async with scene(options=AgentOptions(system=system)) as s:
        await s.say("hello")
        before = len(s.durable)
        weather = "snow"

        @s.hooks.on("agent/inbox/inserted")
        def take_back(payload: InboxPayload) -> None:
            s.agent.inbox.remove(payload.message.id)

        await s.say("never mind")

        assert s.durable[before:] == ["agent/inbox/spliced", "agent/inbox/spliced", "turn/start", "turn/end"]
        assert s.reasons == [COMPLETED, COMPLETED]


@pytest.mark.parametrize(
    ("first", "reason"),
    [(DONE, COMPLETED), (Reply(text="cut", finish=FinishKind.MAX_TOKENS), MAX_TOKENS)],
    ids=["stopped", "cut off"],
)
async def test_pre_09_an_emptied_batch_after_a_natural_end_closes_the_turn_with_its_reason(
    first: Reply, reason: object
) -> None:
    async with scene(first, DONE) as s:

        @s.hooks.on("agent/turn-stopping")
        def steer(_: object) -> None:
            if s.trace.names().count("agent/turn-stopping") == 1:
                s.agent.steer("to be dropped")

        @s.hooks.on("agent/pre-step")
        async def drop(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            return await next() if payload.step == 1 else Enter(())

        await s.say("hello")
        assert s.durable.count("step/start") == 1
        assert s.durable[-3:] == ["agent/inbox/spliced", "agent/inbox/spliced", "turn/end"]
        assert s.reasons == [reason]
        assert s.trace.names().count("agent/turn-stopping") == 1
        assert len(s.model.requests) == 1


async def test_pre_09_an_emptied_batch_after_tools_still_opens_the_step_that_they_owe() -> None:
    async with scene(ASKS, DONE, tools=[GatedTool(free=True)]) as s:

        @s.hooks.on("agent/pre-step")
        async def drop(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            return await next() if payload.step == 1 else Enter(())

        @s.hooks.on("tools/result")
        def steer(_: object) -> None:
            s.agent.steer("to be dropped")

        await s.say("hello")

        assert s.durable.count("step/start") == 2
        assert admitted(s) == ["hello"]
        assert len(s.model.requests) == 2
        assert s.reasons == [COMPLETED]


@pytest.mark.parametrize("at", [1, 2])
async def test_pre_10_an_exception_fails_the_proposal_and_not_the_loop(at: int) -> None:
    async with scene(ASKS, DONE, DONE, tools=[GatedTool(free=True)]) as s:

        @s.hooks.on("agent/pre-step")
        async def fail(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            if payload.turn == 1 and payload.step == at:
                raise LookupError("no decision")
            return await next()

        @s.hooks.on("tools/result")
        def steer(_: object) -> None:
            s.agent.steer("more")

        await s.say("hello")

        assert s.durable.count("step/start") == s.durable.count("step/end") == at - 1
        assert s.durable[-2:] == ["agent/inbox/spliced", "turn/end"], "the claim, and no step after it"
        assert not s.session.inbox.pending, "the claimed batch stays removed"
        assert [type(reason) for reason in s.reasons] == [Errored]
        assert [line for line in s.trace.lines("L") if "agent/error" in line] == [
            f"L agent/error {{turn:1, step:{at - 1}, error:LookupError}}"
        ]
        await s.say("again")
        assert s.reasons[1:] == [COMPLETED]


@pytest.mark.parametrize("verdict", [Enter((user_message("too late"),)), Reject("too late")], ids=["enter", "reject"])
async def test_pre_11_a_decision_that_comes_after_the_cancel_is_awaited_and_ignored(verdict: Decision) -> None:
    async with scene() as s:
        gate, returned = Gate(), list[bool]()

        @s.hooks.on("agent/pre-step")
        async def slow(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            await gate.go()
            returned.append(payload.signal.fired)
            return verdict

        s.agent.followup("hello")
        await gate.reached()
        s.agent.cancel()
        assert s.agent.status == "running", "the listener is not abandoned"
        gate.open()
        await s.idle()

        assert returned == [True]
        assert s.durable == NO_STEP
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
        assert "agent/error" not in s.trace.names()


@pytest.mark.parametrize("verb", ["steer", "inject"])
async def test_pre_12_steered_and_injected_messages_pass_the_same_gate(verb: str) -> None:
    async with scene() as s:

        @s.hooks.on("agent/pre-step")
        async def no_no(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            words = [text_of(message) for message in payload.messages]
            return Reject() if any("no" in word for word in words) else await next()

        @s.hooks.on("agent/turn-stopping")
        def send(_: object) -> None:
            (s.agent.steer if verb == "steer" else s.agent.inject)("no")

        await s.say("hello")

        assert [name for name in s.durable if name != "agent/inbox/spliced"][-2:] == ["step/end", "turn/end"]
        assert s.reasons == [BLOCKED]
        assert admitted(s) == ["hello"]
        claims = [data for data in s.data(InboxSpliced) if data.removed_count]
        assert [(data.target, data.removed_count, data.outcome) for data in claims] == [
            ("next-turn", 1, None),
            ("next-step", 1, None),
        ]


async def test_pre_12_a_decision_that_is_none_is_refused_and_fails_the_proposal() -> None:
    async with scene() as s:

        @s.hooks.on("agent/pre-step")
        async def enter_rubbish(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            return Enter(("text",))  # type: ignore[arg-type]  # what the test is about

        await s.say("hello")

        assert s.durable == NO_STEP
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert "enter UserMessage values only" in reason.error.message
