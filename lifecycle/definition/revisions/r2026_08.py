"""Revision 2026-08: the lifecycle of August 2026, on its way from 001 to the newest.

It is 001 with four differences: a turn opens before its input is claimed; its end is recorded whatever became of the
proposal; a retry stays in the open step; the request's header and context are recorded before it is made.
"""

from __future__ import annotations

from .. import agent as newest_agent
from .. import step as newest_step
from .. import turn as newest_turn
from ..effects import DRIVER, LLM, ask, hook, note, record
from ..machine import ANYWHERE, Arrows, Fold, Lifecycle, Phase, Sources
from . import r001
from .r001 import CLOSE, NO_STEP, STREAM


class Step(r001.Step):
    """One entered step: its messages, at most one answered request, and the tools that the answer asks for."""

    opening, retrying = r001.Step.opening, r001.Step.retrying
    tooling, ended = r001.Step.tooling, r001.Step.ended
    requesting = Phase(
        hook("agent/request", "waterfall"),
        record("request/header", detail="as needed", times="?"),
        record("request/context", detail="as needed", times="?"),
        ask(LLM, "`llm/stream` waterfall"),
        *STREAM,
        loops="the attempts of the request",
    )

    fail = requesting.to(retrying, when="final adapter or terminal in-band request failure")
    retry = retrying.to(
        requesting,
        cond="retryable",
        when="a hook returns a retry action",
        fold=Fold(
            note=note(
                DRIVER, LLM, text="retry in the open step: request again without repeating pre-step, users or prompt"
            )
        ),
    )
    surrender = retrying.to(ended, unless="retryable", when="the original error stands", drawn=False, emits=[CLOSE])

    abort = (
        opening.to(ended, when="cancelled at the boundary", drawn=False)
        | requesting.to(
            ended, when="cancelled while requesting", drawn=False, emits=[newest_step.VISIBLE_PREFIX, CLOSE]
        )
        | tooling.to(ended, when="cancelled while tools ran", drawn=False, emits=[*newest_step.DRAIN, CLOSE])
        | ANYWHERE.to(ended, when="cancelled in the open step", drawn=False, emits=[CLOSE])
    )
    fault = (
        opening.to(ended, when="the boundary was refused", drawn=False)
        | tooling.to(ended, when="the scheduler failed", drawn=False, emits=[newest_step.ABANDON, CLOSE])
        | ANYWHERE.to(ended, when="something raised in the open step", drawn=False, emits=[CLOSE])
    )


class Turn(r001.Turn):
    """One turn, from `turn/start` to `turn/end`, whatever becomes of its proposals."""

    opening = r001.Turn.opening.but(initial=True)
    claiming = r001.Turn.claiming.but(initial=False)
    claimed, reclaimed = r001.Turn.claimed, r001.Turn.reclaimed
    stepping = r001.Turn.stepping.but(
        runs=Step,
        then={"surrender": "failed", "finish": "stepped", "abort": "abort", "fault": "failed"},
    )
    closing, closed = r001.Turn.closing, r001.Turn.closed

    open = opening.to(claiming)
    enter = claimed.to(stepping, cond="admitted", when="enter proposed step") | reclaimed.to(
        stepping, cond="admitted", when="enter later step", drawn=False
    )
    reject = claimed.to(
        closing, unless="admitted", when="proposed step rejected or pre-step failed", emits=[newest_step.NO_STEP]
    ) | reclaimed.to(closing, unless="admitted", when="later step rejected", emits=[NO_STEP])
    failed = stepping.to(closing, when="the step failed", emits=[newest_turn.ERROR])
    retried = Arrows()  # a retry does not leave the step
    abort = (
        Sources(opening, closing).to(closed, when="cancelled at the boundary", drawn=False)
        | Sources(claiming, claimed, reclaimed).to(
            closing, when="cancelled before the step was entered", drawn=False, emits=[NO_STEP]
        )
        | ANYWHERE.to(closing, when="the turn is cancelled", drawn=False)
    )
    fault = (
        Sources(opening, closing).to(closed, when="the boundary was refused", drawn=False, emits=[newest_turn.ERROR])
        | Sources(claiming, claimed, reclaimed).to(
            closing, when="a hook of the proposal raised", drawn=False, emits=[NO_STEP, newest_turn.ERROR]
        )
        | ANYWHERE.to(closing, when="something raised", drawn=False, emits=[newest_turn.ERROR])
    )


class Agent(r001.Agent):
    """The agent of 001, running turns of this revision. A retry needs no turn of its own."""

    running = newest_agent.Agent.running.but(runs=Turn)

    turned = newest_agent.Agent.spec.declared["turned"]


class AdoptedTurn(Turn):
    """A turn of a prefix that was adopted from another log, where the claim and what was sent may be missing: its
    messages then stand right behind its start.
    """

    adopted = Phase(record("user/message"), record("user/message", act="more", times="*"))

    adopt = Turn.opening.to(adopted, when="its messages were adopted without their claim", drawn=False)
    admit = adopted.to(Turn.claimed, drawn=False)


class Adopted(Agent):
    """The agent of an adopted prefix."""

    running = Agent.running.but(runs=AdoptedTurn)

    adopt = Agent.idle.to(running, when="a turn was adopted without what was sent", drawn=False)


class Chunks(Lifecycle):
    """No session: nothing but the chunks of one answer, recorded where the turn and the step were not."""

    streaming = Phase(record("assistant/chunk"), record("assistant/chunk", act="more", times="*"), initial=True)
    recorded = Phase(final=True)

    end = streaming.to(recorded)
