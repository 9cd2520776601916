"""What a proposed step does before it is opened: boundary, model, pre-step (groups STB and PRE)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from lifecycle.definition.step import Step
from lifecycle.services.points import Enter, PreStepPayload, Reject, StepPayload
from lifecycle.vocabulary.events import StepEnd, StepStart
from lifecycle.vocabulary.failures import BLOCKED
from lifecycle.vocabulary.messages import UserMessage
from lifecycle.vocabulary.requests import ModelSelection
from lifecycle.vocabulary.values import trusted

from ..program import Performers
from ..runs import StepRun
from .hooked import hooked, serial

STEP: Performers[StepRun] = Performers(Step)

_started, _ended = trusted(StepStart), trusted(StepEnd)


def step_payload(step: StepRun) -> StepPayload:
    """The payload of a point that knows nothing but where it is."""
    return StepPayload(step.agent.handle, step.turn.number, step.number, step.signal)


STEP.otherwise(hooked(step_payload))

STEP("agent/step-boundary", suspends=True)(serial("agent/step-boundary", step_payload))


@STEP("agent/model", suspends=True)
def choose_model(step: StepRun) -> Coroutine[Any, Any, None] | None:
    """Choose the model and publish the choice as `agent.step` (STB-04, STB-05)."""
    agent = step.agent
    if not agent.hooks.chains["agent/model"]:
        step.selection = step.published = agent.models.selection
        return None
    return _choose_model(step)


async def _choose_model(step: StepRun) -> None:
    agent = step.agent

    def default(_: StepPayload) -> ModelSelection:
        return agent.models.selection

    step.selection = await agent.hooks.waterfall("agent/model", step_payload(step), default)
    step.published = step.selection


@STEP("agent/pre-step", suspends=True)
def decide(step: StepRun) -> Coroutine[Any, Any, str] | str:
    """Ask whether the step opens, and with which messages; what comes back is authoritative (PRE-03).

    What was claimed is kept by the store first (PST-03).
    """
    kept = step.agent.session.barrier()
    if kept is not None:
        return _decide_kept(step, kept)
    if not step.agent.hooks.chains["agent/pre-step"]:
        return _entered(step, Enter(step.batch))
    return _decide(step)


async def _decide_kept(step: StepRun, kept: Coroutine[Any, Any, None]) -> str:
    await kept
    return "reject" if step.signal.fired else await _decide(step)  # the walk then aborts, whatever is said


async def _decide(step: StepRun) -> str:
    def default(payload: PreStepPayload) -> Enter | Reject:
        return Enter(payload.messages)

    payload = PreStepPayload(step.agent.handle, step.turn.number, step.number, step.signal, step.batch)
    return _decided(step, await step.agent.hooks.waterfall("agent/pre-step", payload, default))


def _decided(step: StepRun, decision: Enter | Reject) -> str:
    turn = step.turn
    if isinstance(decision, Enter):
        messages = tuple(decision.messages)
        for message in messages:
            if not isinstance(message, UserMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # from a hook
                raise TypeError(f"'agent/pre-step' entered {message!r}; enter UserMessage values only")
        return _entered(step, Enter(messages, decision.starts_request_series))
    step.decision = decision
    turn.reason, turn.go_on = BLOCKED, False
    return "reject"


def _entered(step: StepRun, decision: Enter) -> str:
    step.decision = decision
    if decision.messages or step.owed:
        return "enter"
    if step.turn.proposals == 1:  # the first batch was emptied: what else waits is parked until somebody wakes
        step.turn.go_on = False
    return "reject"


@STEP("no step")
def spend_no_step(step: StepRun) -> None:
    """The claimed batch stays removed (CLM-04)."""
    step.published = None


@STEP("step/start")
def start(step: StepRun) -> None:
    step.agent.session.append(_started(turn=step.turn.number, step=step.number), proven=True)
    step.opened = True
    step.turn.steps = step.number


@STEP("dispose")
def dispose_tools(step: StepRun) -> None:
    """Dispose the step's tool set, once, whichever way the step ends and however often that is tried (TLS-15)."""
    if step.tools is not None and not step.tools.disposals:
        step.tools.dispose()


@STEP("step/end")
def end(step: StepRun) -> None:
    """Close the step if it was opened, in one attempt (END-01). Observers still see `agent.step`; nobody later does."""
    if step.opened and not step.closed:
        step.closed = True
        try:
            step.agent.session.append(_ended(turn=step.turn.number, step=step.number), proven=True)
        finally:
            step.published = step.pool = None  # a pool knows its step: neither would go before the collector comes
