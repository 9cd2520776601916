"""What an entered step does up to its request: tools, prompt, configuration, admission (groups ADM, REQ, PRP).

From `system/message` to `request/context` nothing here suspends: admission is one block (ADM-04).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal

from lifecycle.errors import ModelError
from lifecycle.services.model import BoundCall
from lifecycle.services.points import AssemblePayload, Enter, PromptAssembly, RequestPayload
from lifecycle.session.surface import RUNTIME_CONTEXT
from lifecycle.vocabulary.events import (
    Replace,
    RequestContext,
    RequestHeader,
    SystemMessageEvent,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.messages import SystemMessage, UserMessage, text
from lifecycle.vocabulary.requests import CallConfig, Header, ModelSelection, Request
from lifecycle.vocabulary.values import EMPTY, FrozenDict, freeze_object, trusted

from ..reconciliation import reconcile
from ..runs import AgentRun, StepRun
from .proposal import STEP

_said, _headed, _request = trusted(UserMessageEvent), trusted(RequestHeader), trusted(Request)


@STEP("resolve")
def resolve_tools(step: StepRun) -> None:
    """Fix which tools this step has (ADM-02)."""
    step.tools = step.agent.tools.resolve(step.agent.handle, step.signal)


@STEP("system-prompt/assemble", suspends=True)
def assemble(step: StepRun) -> Coroutine[Any, Any, None] | None:
    """Assemble the prompt, once per step (ADM-03)."""
    agent, specs = step.agent, _tools(step).specs
    if agent.hooks.chains["system-prompt/assemble"]:
        return _assemble(step)
    if agent.prompt.empty:
        step.specs = specs
    else:
        _assembled(step, agent.prompt.assemble(agent.handle, specs))
    return None


async def _assemble(step: StepRun) -> None:
    agent = step.agent

    def default(payload: AssemblePayload) -> PromptAssembly:
        return agent.prompt.assemble(agent.handle, payload.tools)

    payload = AssemblePayload(agent.handle, step.turn.number, step.number, step.signal, _tools(step).specs)
    _assembled(step, await agent.hooks.waterfall("system-prompt/assemble", payload, default))


def _assembled(step: StepRun, assembly: PromptAssembly) -> None:
    step.sections, step.contexts = step.agent.prompt.render(assembly)
    step.specs = tuple(assembly.tools)


@STEP("agent/request", suspends=True)
def shape(step: StepRun) -> Coroutine[Any, Any, None] | None:
    """Shape the configuration of the next attempt (REQ-01). Each attempt starts from the step's selection."""
    agent = step.agent
    step.attempts += 1
    step.retry, step.bound, step.request, step.attempt = False, None, None, None
    asked = step.attempts == 1 and isinstance(step.decision, Enter) and step.decision.starts_request_series
    step.starts_series = (
        asked or agent.last_specs != step.specs or agent.last_generation != agent.session.surface.generation
    )
    step.config = _default_config(agent, step.selection or ModelSelection())
    return _shape(step) if agent.hooks.chains["agent/request"] else None


async def _shape(step: StepRun) -> None:
    config = step.config

    def default(_: RequestPayload) -> CallConfig | None:
        return config

    payload = RequestPayload(
        step.agent.handle, step.turn.number, step.number, step.signal, step.attempts, step.starts_series
    )
    step.config = await step.agent.hooks.waterfall("agent/request", payload, default)


def _default_config(agent: AgentRun, selection: ModelSelection) -> CallConfig:
    """The route of the step; the rest as it was last logged, without what an adapter filled in (REQ-02)."""
    header = agent.session.header
    if not agent.requested or header is None:
        options = agent.options
        return CallConfig(
            provider=selection.provider,
            model=selection.model,
            effort=selection.effort,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            options=_own_options(agent),
        )
    logged, filled = header.config, header.defaults or ()
    route = selection.provider, selection.model, selection.effort
    if not filled and route == (logged.provider, logged.model, logged.effort):
        return logged  # the very one, so that what compares it sees at once that nothing has changed
    return CallConfig(
        provider=selection.provider,
        model=selection.model,
        effort=selection.effort,
        max_tokens=None if "max_tokens" in filled else logged.max_tokens,
        temperature=None if "temperature" in filled else logged.temperature,
        options=EMPTY if "options" in filled else logged.options,
    )


def _own_options(agent: AgentRun) -> FrozenDict:
    return freeze_object(agent.options.request_options, "request_options")


@STEP("prepareCall", suspends=True)
def prepare(step: StepRun) -> Coroutine[Any, Any, None] | None:
    """Bind the call to its adapter (PRP-01). Nobody serving the route is tolerated: a hook may serve it (PRP-05)."""
    assert step.config is not None
    try:
        bound = step.agent.models.prepare_call(step.config, step.signal)
    except ModelError as error:
        if error.failure.code != FailureCode.NO_ADAPTER:
            raise
        return None
    if isinstance(bound, BoundCall):
        step.bound = bound
        return None

    async def prepared() -> None:
        with step.signal.scope():
            step.bound = await bound

    return prepared()


def _effective(step: StepRun) -> CallConfig:
    assert step.config is not None
    return step.config if step.bound is None else step.bound.prepared.config


# -- admission ----------------------------------------------------------------------------------------------------


@STEP("system/message")
def admit_system(step: StepRun) -> None:
    """Bring the prompt sections on the surface in line with the rendered prompt, node by node (ADM-06).

    A provider that keeps its prefix cache gets a changed section at the tail, except where a request series starts.
    """
    session = step.agent.session
    if step.agent.last_generation != session.surface.generation:
        step.starts_series = True  # also if the surface was replaced while the request was being shaped (REQ-11)
    in_place = step.starts_series or step.bound is None or step.bound.prepared.system_update == "rewrite"
    for edit in reconcile(session.surface, step.sections, in_place=in_place):
        placement = {"placement": "in-history"} if edit.in_history else {}
        message = SystemMessage(
            id=f"s{session.next_seq}",
            content=text(edit.section.text),
            source=FrozenDict(kind="prompt", section=edit.section.name, order=edit.order, **placement),
        )
        data = SystemMessageEvent(turn=step.turn.number, step=step.number, message=message)
        if edit.head is None:
            session.append(data, surface="append")
        else:
            session.append(data, surface=Replace(start=edit.head.seq, end=edit.head.seq), sources=[edit.head.seq])


@STEP("user/message")
def admit_users(step: StepRun) -> None:
    """Admit the entered messages in the order of the decision, once per step (ADM-07, ADM-10), then the snapshot."""
    assert isinstance(step.decision, Enter)
    claimed = step.decision.messages is step.batch  # then the inbox has them, and so has the log
    for message in step.decision.messages:
        step.agent.session.append(_said(message=message), surface="append", proven=claimed)


@STEP("user/message:snapshot")
def admit_snapshot(step: StepRun) -> None:
    """Admit the runtime context if the surface does not hold it as it is now (ADM-08, ADM-09)."""
    session = step.agent.session
    retained = session.surface.snapshot
    if not step.contexts and retained is None:
        return
    sections = tuple(FrozenDict(name=context.name, text=context.text) for context in step.contexts)
    told = "\n\n".join(context.text for context in step.contexts) or "There is no runtime context any more."
    content = text(f"Current runtime context. It supersedes earlier runtime context.\n\n{told}")
    if retained is not None and retained.content == content and retained.source.get("sections") == sections:
        return
    source = FrozenDict(kind=RUNTIME_CONTEXT, sections=sections)
    message = UserMessage(id=f"c{session.next_seq}", content=content, source=source)
    session.append(_said(message=message), surface="append")


@STEP("request/header")
def admit_header(step: StepRun) -> None:
    """Log what the request is made with, where that has changed (REQ-07, REQ-08)."""
    agent, session, config = step.agent, step.agent.session, _effective(step)
    prepared = None if step.bound is None else step.bound.prepared
    said = config, step.specs or None, None if prepared is None else tuple(prepared.defaults) or None
    logged = session.header
    if not agent.requested or logged is None or (logged.config, logged.tools, logged.defaults) != said:
        reason: Literal["initial", "resume", "change"] = "change"
        if not agent.requested:
            reason = "initial" if logged is None else "resume"
        header = Header(config=said[0], tools=said[1], defaults=said[2])
        session.append(_headed(header=header, reason=reason))
    capacity = config.provider or "", config.model or "", None if prepared is None else prepared.context_window
    known = session.context
    if known is None or (known.provider, known.model, known.context_window) != capacity:
        made = RequestContext(provider=capacity[0], model=capacity[1], context_window=capacity[2])
        session.append(made, proven=made.provider.isascii() and made.model.isascii())
    agent.requested = True


@STEP("derive")
def derive(step: StepRun) -> None:
    """Derive the request from the log, and remember what the next one is compared with (REQ-04)."""
    agent, session = step.agent, step.agent.session
    step.request = _request(
        messages=session.derive_messages(),
        tools=step.specs,
        config=_effective(step),
        turn=step.turn.number,
        step=step.number,
        attempt=step.attempts,
        starts_series=step.starts_series,
    )
    agent.last_specs, agent.last_generation = step.specs, session.surface.generation


def _tools(step: StepRun) -> Any:
    assert step.tools is not None
    return step.tools
