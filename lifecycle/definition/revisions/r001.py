"""Revision 001: input is claimed and looked at before a turn opens, and the chunks of an answer are durable.

Its document draws neither cancels nor failures of hooks, nor the steps that tool results owe; there this revision does
what the newest one does, in its own order. What is the same is taken from the newest revision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import agent as newest_agent
from .. import step as newest_step
from .. import tool_call as newest_call
from .. import turn as newest_turn
from ..effects import DRIVER, HOOKS, LLM, PROMPT, SESSION, TOOLS, answer, ask, hook, notify, record, tell
from ..machine import ANYWHERE, Lifecycle, Phase, Sources

STREAM = (
    answer(LLM, "StreamChunk*", times="*"),
    replace(record("assistant/chunk", times="*"), text="`assistant/chunk`*"),
    notify("session/event", "`assistant/chunk`*", sender=SESSION, times="*", inner=True),
)
"""Each chunk of an answer is recorded, and announced as every record is."""
CALL = (
    record("tool/call"),
    ask(TOOLS, "ordered pre, concurrent execute", name="pre and execute", lane="start"),
    newest_call.TOOL_OWNED,
)
CLOSE = record("step/end")
NO_TURN = tell(DRIVER, "claimed batch stays removed, no turn opens", name="no turn")
"""What becomes of a proposal that opens no turn."""
NO_STEP = replace(newest_step.NO_STEP, drawn=False)
"""What becomes of a later proposal that enters no step: its turn is open already."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the step's guards may read."""

    retryable: bool = False
    """A hook asked for the request to be made again."""
    unstarted: bool = False
    """A tool call has not started."""
    unsettled: bool = False
    """A started tool call has no result yet."""


class Step(Lifecycle):
    """One entered step: its messages, one request, and the tools that the answer asks for.

    A step whose request failed has ended before a hook is asked for a retry, which is therefore a turn of its own.
    """

    facts = StepFacts

    opening = Phase(record("step/start"), initial=True)
    entered = Phase(
        record("user/message", detail="per entered message", times="*"),
        ask(PROMPT, "`system-prompt/assemble`", "waterfall"),
    )
    requesting = Phase(
        ask(LLM, "`agent/request` waterfall, then `llm/stream` waterfall", name="request"),
        *STREAM,
    )
    retrying = newest_step.Step.retrying.but()
    tooling = newest_step.Step.tooling.but()
    ended = Phase(final=True)

    open = opening.to(entered)
    request = entered.to(requesting)
    fail = requesting.to(retrying, when="final adapter or terminal in-band request failure", emits=[CLOSE])
    retry = retrying.to(ended, cond="retryable", when="a hook returns a retry action")
    surrender = retrying.to(ended, unless="retryable", when="the original error stands")
    succeed = requesting.to(tooling, when="model request succeeded", emits=[record("assistant/message")])
    start = tooling.again(cond="unstarted", when="call starts", emits=CALL)
    settle = tooling.again(cond="unsettled", when="next model-order result ready", emits=newest_step.RESULT)
    finish = tooling.to(ended, cond="not (unstarted or unsettled)", when="every call has settled", emits=[CLOSE])

    abort = (
        opening.to(ended, when="cancelled at the boundary", drawn=False)
        | retrying.to(ended, when="cancelled after the failed step", drawn=False)
        | requesting.to(
            ended, when="cancelled while requesting", drawn=False, emits=[newest_step.VISIBLE_PREFIX, CLOSE]
        )
        | tooling.to(ended, when="cancelled while tools ran", drawn=False, emits=[*newest_step.DRAIN, CLOSE])
        | ANYWHERE.to(ended, when="cancelled in the open step", drawn=False, emits=[CLOSE])
    )
    fault = (
        opening.to(ended, when="the boundary was refused", drawn=False)
        | retrying.to(ended, when="a hook raised after the failed step", drawn=False)
        | tooling.to(ended, when="the scheduler failed", drawn=False, emits=[newest_step.ABANDON, CLOSE])
        | ANYWHERE.to(ended, when="something raised in the open step", drawn=False, emits=[CLOSE])
    )


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What the turn's guards may read."""

    admitted: bool = False
    """The decision enters the step, and there is something to enter or something owed."""
    owed: bool = False
    """The last step owes another request, for its tool results."""
    waiting: bool = False
    """Next-step input is pending."""


class Turn(Lifecycle):
    """One turn, or a proposal that opens none. The turn is open once its first proposal has been entered."""

    facts = TurnFacts

    claiming = newest_turn.Turn.opened.but(initial=True)
    claimed = Phase(
        hook("agent/pre-step", "waterfall"),
        answer(HOOKS, "authoritative reject or enter(messages)", name="pre-step verdict"),
    )
    # A phase of its own: the turn is open by now, so that whatever ends a later proposal must close the turn.
    reclaimed = claimed.but()
    opening = newest_turn.Turn.opening.but(initial=False)
    stepping = newest_turn.Turn.stepping.but(
        runs=Step,
        then={"retry": "retried", "surrender": "failed", "finish": "stepped", "abort": "abort", "fault": "failed"},
    )
    stopping = newest_turn.Turn.stopping.but()
    settled = newest_turn.Turn.settled.but()
    closing = newest_turn.Turn.closing.but()
    closed = Phase(final=True)

    claim = claiming.to(claimed)
    reject = claimed.to(
        closed, unless="admitted", when="proposed step rejected or pre-step failed", emits=[NO_TURN]
    ) | reclaimed.to(closing, unless="admitted", when="later step rejected", emits=[NO_STEP])
    enter = claimed.to(opening, cond="admitted", when="enter proposed step") | reclaimed.to(
        stepping, cond="admitted", when="enter later step", drawn=False
    )
    open = opening.to(stepping)
    failed = stepping.to(closing, when="the step failed", emits=[newest_turn.ERROR])
    retried = stepping.to(closing, when="a fresh turn makes the request again")
    stepped = stepping.to(
        stopping, cond="not (owed or waiting)", when="natural stop and next-step inbox empty"
    ) | stepping.to(settled)
    stop = stopping.to(settled)
    proceed = settled.to(
        reclaimed, cond="waiting", when="next-step input is pending", emits=newest_turn.CLAIM_NEXT
    ) | settled.to(reclaimed, cond="owed and not waiting", when="tool results owe another request", drawn=False)
    rest = settled.to(closing, unless="owed or waiting")
    close = closing.to(closed)
    abort = (
        Sources(claiming, claimed).to(closed, when="cancelled before a turn opened", drawn=False, emits=[NO_TURN])
        | Sources(opening, closing).to(closed, when="cancelled at the boundary", drawn=False)
        | reclaimed.to(closing, when="cancelled before the step was entered", drawn=False, emits=[NO_STEP])
        | ANYWHERE.to(closing, when="the turn is cancelled", drawn=False)
    )
    fault = (
        Sources(claiming, claimed).to(
            closed, when="a hook of the proposal raised", drawn=False, emits=[NO_TURN, newest_turn.ERROR]
        )
        | Sources(opening, closing).to(closed, when="the boundary was refused", drawn=False, emits=[newest_turn.ERROR])
        | reclaimed.to(closing, when="a hook of the proposal raised", drawn=False, emits=[NO_STEP, newest_turn.ERROR])
        | ANYWHERE.to(closing, when="something raised", drawn=False, emits=[newest_turn.ERROR])
    )


@dataclass(frozen=True, slots=True)
class AgentFacts(newest_agent.AgentFacts):
    """What the agent's guards may read."""

    retried: bool = False
    """A hook asked for the failed request of the last turn to be made again."""


class Agent(newest_agent.Agent):
    """The newest revision's agent, running turns of this one. A retry is a turn of its own."""

    facts = AgentFacts

    running = newest_agent.Agent.running.but(
        runs=Turn, then={"close": "turned", "reject": "turned", "abort": "turned", "fault": "turned"}
    )

    turned = (
        running.to(
            running,
            cond="retried and not (pending and healthy) and not disposing",
            when="a fresh turn makes the request again",
            drawn=False,
        )
        | newest_agent.Agent.spec.declared["turned"]
    )
