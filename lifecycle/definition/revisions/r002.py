"""Revision 002: a prompt is submitted to the hooks before the turn's first step, and a turn ends with a flush.

Pending input is not durable yet, nothing is claimed, and no request is made twice. Its document draws neither cancels
nor failures; there this revision does what the newest one does, as far as it has the words for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import agent as newest_agent
from .. import step as newest_step
from .. import turn as newest_turn
from ..effects import (
    AGENT,
    DRIVER,
    HOOKS,
    PERSISTENCE,
    PROMPT,
    USER,
    Line,
    answer,
    ask,
    hook,
    notify,
    record,
)
from ..machine import ANYWHERE, Lifecycle, Phase, Sources
from . import r001
from .r001 import CALL, CLOSE

STEERED = record("steering/message", detail="of what was sent meanwhile", times="*", drawn=False)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the step's guards may read."""

    unstarted: bool = False
    """A tool call has not started."""
    unsettled: bool = False
    """A started tool call has no result yet."""


class Step(Lifecycle):
    """One step: the prompt assembled, one request whose result the hooks may replace, and the tools asked for."""

    facts = StepFacts

    prompting = Phase(ask(PROMPT, "`system-prompt/assemble`", "waterfall"), initial=True)
    prompted = Phase(replace(hook("agent/pre-step", "serial", "checkpoint"), receiver=DRIVER, line=Line.DASHED))
    opening = Phase(record("step/start"))
    requesting = r001.Step.requesting.but()
    answered = Phase(hook("agent/step-result", "waterfall"))
    tooling = newest_step.Step.tooling.but()
    ended = Phase(final=True)

    assemble = prompting.to(prompted)
    enter = prompted.to(opening)
    open = opening.to(requesting)
    fail = requesting.to(ended, when="the request failed", drawn=False, emits=[CLOSE])
    succeed = requesting.to(answered, when="model request succeeded")
    commit = answered.to(tooling, emits=[record("assistant/message")])
    start = tooling.again(cond="unstarted", when="call starts", emits=CALL)
    settle = tooling.again(cond="unsettled", when="next model-order result ready", emits=newest_step.RESULT)
    finish = tooling.to(
        ended, cond="not (unstarted or unsettled)", when="every call has settled", emits=[STEERED, CLOSE]
    )

    abort = (
        Sources(prompting, prompted, opening).to(ended, when="cancelled before the step began", drawn=False)
        | requesting.to(
            ended, when="cancelled while requesting", drawn=False, emits=[newest_step.VISIBLE_PREFIX, CLOSE]
        )
        | tooling.to(ended, when="cancelled while tools ran", drawn=False, emits=[*newest_step.DRAIN, CLOSE])
        | ANYWHERE.to(ended, when="cancelled in the open step", drawn=False, emits=[CLOSE])
    )
    fault = (
        Sources(prompting, prompted, opening).to(ended, when="something raised before the step began", drawn=False)
        | tooling.to(ended, when="the scheduler failed", drawn=False, emits=[newest_step.ABANDON, CLOSE])
        | ANYWHERE.to(ended, when="something raised in the open step", drawn=False, emits=[CLOSE])
    )


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What the turn's guards may read."""

    allowed: bool = False
    """The hooks let the prompt in."""
    continued: bool = False
    """The turn goes on: tool results owe another request, input came in meanwhile, or a hook says so."""


class Turn(Lifecycle):
    """One turn, from `turn/start` to `turn/end` and the flush behind it."""

    facts = TurnFacts

    opening = newest_turn.Turn.opening.but()
    opened = Phase(
        hook("agent/prompt-submit", "waterfall", times="*"),
        answer(HOOKS, "allow, block, or add context", name="prompt verdict", times="*"),
    )
    stepping = Phase(
        runs=Step,
        then={"fail": "failed", "finish": "stepped", "abort": "abort", "fault": "failed"},
        loops="the steps of the turn",
    )
    continuing = Phase(hook("agent/turn-continuation", "waterfall"))
    stopping = Phase(hook("agent/turn-stop", "serial", "terminal checkpoint"))
    closing = newest_turn.Turn.closing.but()
    flushing = Phase(replace(hook("session/flush", "parallel", "checkpoint"), receiver=PERSISTENCE), settles=True)
    closed = Phase(final=True)

    open = opening.to(opened)
    # The picture has one line for both ways, so it stands on the first, and the second is not drawn.
    submitted = opened.to(
        stepping,
        cond="allowed",
        when="the prompt is allowed",
        emits=[record("user/message", detail="or rejected `turn/end`", times="*")],
    ) | opened.to(closing, unless="allowed", when="the prompt is blocked", drawn=False)
    stepped = stepping.to(continuing)
    failed = stepping.to(closing, when="the step failed", drawn=False, emits=[newest_turn.ERROR])
    decide = continuing.to(stepping, cond="continued", when="the turn goes on", drawn=False) | continuing.to(
        stopping, unless="continued", when="the turn is to stop"
    )
    stop = stopping.to(closing)
    close = closing.to(flushing)
    flush = flushing.to(closed)
    abort = Sources(opening, closing, flushing).to(closed, when="cancelled at the boundary", drawn=False) | ANYWHERE.to(
        closing, when="the turn is cancelled", drawn=False
    )
    fault = Sources(opening, closing, flushing).to(
        closed, when="the boundary was refused", drawn=False, emits=[newest_turn.ERROR]
    ) | ANYWHERE.to(closing, when="something raised", drawn=False, emits=[newest_turn.ERROR])


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent's guards may read."""

    pending: bool = False
    """Input is pending."""
    disposing: bool = False
    """The agent is being disposed."""


QUEUED = notify("agent/queued", sender=AGENT)
SUBMIT = (ask(AGENT, "send(content)", sender=USER), QUEUED)
QUEUE = tuple(replace(effect, drawn=False) for effect in SUBMIT)


class Agent(Lifecycle):
    """An agent, whose queue is told live and kept nowhere. A failed turn does not hold the next one up."""

    facts = AgentFacts

    idle = Phase(initial=True)
    running = Phase(
        runs=Turn,
        then={"flush": "turned", "abort": "turned", "fault": "turned"},
        loops="the turns from a wake to the next rest",
    )
    converging = Phase(newest_agent.SETTLED)
    disposed = Phase(final=True)

    submit = idle.to(
        running,
        when="input comes to an idle agent",
        emits=[*SUBMIT, newest_agent.WAKE, newest_agent.RUNNING],
    ) | Sources(running, converging).again(when="input comes while a turn runs", emits=QUEUE, drawn=False)
    cancel = idle.again(when="an idle agent is cancelled", drawn=False) | Sources(running, converging).to(
        converging, when="the turn is cancelled", emits=[newest_agent.FIRE], drawn=False
    )
    turned = (
        Sources(running, converging).to(
            running, cond="pending and not disposing", when="more input is pending", drawn=False
        )
        | running.to(idle, when="nothing is left to do", emits=[newest_agent.IDLE])
        | converging.to(idle, when="the cancelled turn has settled", emits=[newest_agent.IDLE], drawn=False)
    )
    dispose = idle.to(disposed, when="the agent is disposed", drawn=False)
