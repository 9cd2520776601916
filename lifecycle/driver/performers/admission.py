"""What an entered step does up to its request: tools, prompt, configuration, admission (groups ADM, REQ, PRP).

From `system/message` to `request/context` nothing here suspends: admission is one block (ADM-04).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal

from lifecycle.errors import ModelError
from lifecycle.services.model import BoundCall
from lifecycle.services.points import AssemblePayload, Enter, PromptAssembly, PromptText, RequestPayload
from lifecycle.services.prompt import render, render_contexts
from lifecycle.session.surface import RUNTIME_CONTEXT
from lifecycle.vocabulary.events import (
    Event,
    Replace,
    RequestContext,
    RequestHeader,
    SystemMessageEvent,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.messages import SystemMessage, UserMessage, text, text_of
from lifecycle.vocabulary.requests import CallConfig, Header, ModelSelection, Request
from lifecycle.vocabulary.values import FrozenDict, freeze_object

from ..runs import AgentRun, StepRun
from .proposal import STEP


@STEP("resolve")
def resolve_tools(step: StepRun) -> None:
    """Fix which tools this step has (ADM-02)."""
    step.tools = step.agent.tools.resolve(step.agent.handle, step.signal)


@STEP("system-prompt/assemble", suspends=True)
def assemble(step: StepRun) -> Coroutine[Any, Any, None] | None:
    """Assemble the prompt, once per step (ADM-03)."""
    agent, specs = step.agent, _tools(step).specs
    if not agent.hooks.listeners("system-prompt/assemble"):
        _assembled(step, agent.prompt.assemble(agent.handle, specs))
        return None
    return _assemble(step)


async def _assemble(step: StepRun) -> None:
    agent = step.agent

    def default(payload: AssemblePayload) -> PromptAssembly:
        return agent.prompt.assemble(agent.handle, payload.tools)

    payload = AssemblePayload(agent.handle, step.turn.number, step.number, step.signal, _tools(step).specs)
    _assembled(step, await agent.hooks.waterfall("system-prompt/assemble", payload, default))


def _assembled(step: StepRun, assembly: PromptAssembly) -> None:
    step.sections, step.contexts = render(assembly), render_contexts(assembly)
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
    return _shape(step) if agent.hooks.listeners("agent/request") else None


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
            options=freeze_object(options.request_options, "request_options"),
        )
    logged, filled = header.config, header.defaults or ()
    return CallConfig(
        provider=selection.provider,
        model=selection.model,
        effort=selection.effort,
        max_tokens=None if "max_tokens" in filled else logged.max_tokens,
        temperature=None if "temperature" in filled else logged.temperature,
        options=logged.options,
    )


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

    A provider that keeps its prefix cache gets a changed section at the tail, except where a request series starts;
    everywhere else the section's own node is replaced. A section that is gone leaves an empty node behind, which
    derivation skips.
    """
    surface = step.agent.session.surface
    if not step.sections and not surface.system:
        return
    in_place = step.starts_series or step.bound is None or step.bound.prepared.system_update == "rewrite"
    for order, section in enumerate(step.sections):
        node = surface.heads.get(section.name) if step.starts_series else surface.system.get(section.name)
        if node is None:
            _admit_section(step, section, order)
        elif not _says(node, section, order, in_place=in_place) or (
            step.starts_series and surface.system[section.name] is not node
        ):
            _admit_section(step, section, order, surface.heads.get(section.name), in_place=in_place)
    rendered = {section.name for section in step.sections}
    for name, node in [*surface.heads.items()]:
        if name not in rendered and text_of(_message(node)):
            _admit_section(step, PromptText(name, ""), -1, node)


def _says(node: Event, section: PromptText, order: int, *, in_place: bool) -> bool:
    message = _message(node)
    return text_of(message) == section.text and (not in_place or message.source.get("order") == order)


def _message(node: Event) -> SystemMessage:
    assert isinstance(node.data, SystemMessageEvent)
    return node.data.message


def _admit_section(
    step: StepRun, section: PromptText, order: int, head: Event | None = None, *, in_place: bool = True
) -> None:
    session = step.agent.session
    placement = {} if in_place else {"placement": "in-history"}
    message = SystemMessage(
        id=f"s{session.next_seq}",
        content=text(section.text),
        source=FrozenDict(kind="prompt", section=section.name, order=order, **placement),
    )
    data = SystemMessageEvent(turn=step.turn.number, step=step.number, message=message)
    if head is None or not in_place:
        session.append(data, surface="append")
    else:
        session.append(data, surface=Replace(start=head.seq, end=head.seq), sources=[head.seq])


@STEP("user/message")
def admit_users(step: StepRun) -> None:
    """Admit the entered messages in the order of the decision, once per step (ADM-07, ADM-10), then the snapshot."""
    assert isinstance(step.decision, Enter)
    for message in step.decision.messages:
        step.agent.session.append(UserMessageEvent(message=message), surface="append")


@STEP("user/message:snapshot")
def admit_snapshot(step: StepRun) -> None:
    """Admit the runtime context if the surface does not hold it as it is now (ADM-08, ADM-09)."""
    session = step.agent.session
    retained = session.surface.snapshot
    contexts = [context for context in step.contexts if context.text]
    if not contexts and retained is None:
        return
    sections = tuple(FrozenDict(name=context.name, text=context.text) for context in contexts)
    if retained is not None and retained.source.get("sections") == sections:
        return
    told = "\n\n".join(context.text for context in contexts) or "There is no runtime context any more."
    message = UserMessage(
        id=f"c{session.next_seq}",
        content=text(f"Current runtime context. It supersedes earlier runtime context.\n\n{told}"),
        source=FrozenDict(kind=RUNTIME_CONTEXT, sections=sections),
    )
    session.append(UserMessageEvent(message=message), surface="append")


@STEP("request/header")
def admit_header(step: StepRun) -> None:
    """Log what the request is made with, where that has changed (REQ-07, REQ-08)."""
    agent, session, config = step.agent, step.agent.session, _effective(step)
    prepared = None if step.bound is None else step.bound.prepared
    header = Header(
        config=config,
        tools=step.specs or None,
        defaults=(prepared.defaults or None) if prepared is not None else None,
    )
    if not agent.requested or session.header != header:
        reason: Literal["initial", "resume", "change"] = "change"
        if not agent.requested:
            reason = "initial" if session.header is None else "resume"
        session.append(RequestHeader(header=header, reason=reason))
    window = None if prepared is None else prepared.context_window
    context = RequestContext(provider=config.provider or "", model=config.model or "", context_window=window)
    if session.context != context:
        session.append(context)
    agent.requested = True


@STEP("derive")
def derive(step: StepRun) -> None:
    """Derive the request from the log, and remember what the next one is compared with (REQ-04)."""
    agent, session = step.agent, step.agent.session
    step.request = Request(
        session.derive_messages(),
        step.specs,
        _effective(step),
        step.turn.number,
        step.number,
        step.attempts,
        step.starts_series,
    )
    agent.last_specs, agent.last_generation = step.specs, session.surface.generation


def _tools(step: StepRun) -> Any:
    assert step.tools is not None
    return step.tools
