"""What one tool call does: allowed, guarded, checked, executed, and looked at once more (group TLP)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from inspect import isawaitable
from typing import Any, get_args

from lifecycle.definition.tool_call import ToolCall
from lifecycle.errors import StoreError
from lifecycle.services.points import (
    Accept,
    Allow,
    Ask,
    Block,
    CallPayload,
    Deny,
    PostCallPayload,
    ResultPayload,
    ToolOutcome,
)
from lifecycle.services.results import error_outcome, outcome_of, shortened
from lifecycle.services.tools import Tool, ToolContext
from lifecycle.session.repair import OUTCOME_UNKNOWN
from lifecycle.vocabulary.events import ApprovalAsked, ApprovalDecided, ApprovalOutcome, ToolResultEvent
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import ToolResultBlock, UserMessage
from lifecycle.vocabulary.values import freeze_object, mend, sealed, trusted

from ..options import Approver
from ..program import Performers
from ..runs import ToolCallRun
from ..walk import Cuttable, Flow
from .hooked import hooked

CALL: Performers[ToolCallRun] = Performers(ToolCall)

_block, _message, _resulted = trusted(ToolResultBlock), trusted(UserMessage), trusted(ToolResultEvent)


def result_message(call: ToolCallRun) -> UserMessage:
    """The message that the model sees; it answers the model's own call id, whatever hooks did (TLS-09)."""
    outcome, id = call.outcome, call.block.id
    assert outcome is not None
    block_of = _block if outcome is call.own else ToolResultBlock  # what a hook made is checked
    most = call.step.agent.options.max_result_chars
    content = outcome.content if most is None else shortened(outcome.content, most)
    block = block_of(tool_call_id=id, content=content, is_error=outcome.error is not None)
    seq = call.record.seq if call.record is not None else 0
    return _message(id=f"r{seq}", content=(block,), source=sealed({"kind": "tool", "callId": id}))


def result_event(call: ToolCallRun, outcome: ToolOutcome) -> ToolResultEvent:
    """The record of the call's result."""
    step = call.step
    event_of = _resulted if outcome is call.own else ToolResultEvent  # what a hook made is checked
    return event_of(
        turn=step.turn.number,
        step=step.number,
        message=call.result or result_message(call),
        error=outcome.error,
        value=outcome.value,
    )


def _payload(call: ToolCallRun) -> CallPayload:
    return CallPayload(call.step.agent.handle, call.block, call.arguments, call.tool, call.signal)


CALL.otherwise(hooked(_payload))


@CALL("tools/pre-execute", suspends=True)
def allow(call: ToolCallRun) -> Coroutine[None, None, str] | str:
    """Ask whether the call runs, and with which arguments (TLP-02). An unknown tool is not asked about (TLP-07)."""
    if call.tool is None:
        return _unknown(call, "refuse")
    return _allow(call) if call.step.agent.hooks.chains["tools/pre-execute"] else "permit"


def _unknown(call: ToolCallRun, event: str) -> str:
    known = ", ".join(spec.name for spec in call.step.specs) or "none"
    call.outcome = error_outcome("UNKNOWN_TOOL", f"There is no tool {call.block.name!r}. There are: {known}")
    return event


async def _allow(call: ToolCallRun) -> str:
    def default(_: CallPayload) -> Allow | Deny | Ask:
        return Allow()

    payload = _payload(call)
    verdict = await call.step.agent.hooks.waterfall("tools/pre-execute", payload, default)
    if isinstance(verdict, Allow):
        if verdict.arguments is not None:
            given = verdict.arguments
            call.arguments = given if isinstance(given, str) else freeze_object(given, "arguments")
        return "permit"
    if not isinstance(verdict, Ask):
        return _deny(call, verdict.reason)
    if call.step.agent.options.approve is None:
        return _deny(call, _not_approved(verdict.reason))
    id, reason = f"a{call.step.agent.session.next_seq}", mend(verdict.reason)
    call.asked = ApprovalAsked(id=id, call_id=call.block.id, tool_name=call.block.name, reason=reason)
    return "inquire"


def _not_approved(reason: str) -> str:
    return f"This call needs an approval, which was not given: {reason}"


def _deny(call: ToolCallRun, reason: str, event: str = "refuse") -> str:
    call.outcome = error_outcome("DENIED", reason or "This call was denied.")
    return event


@CALL("approval/asked")
def record_ask(call: ToolCallRun) -> None:
    """Record what somebody is about to be asked; if that is refused, nobody is."""
    assert call.asked is not None
    call.step.agent.session.append(call.asked)


@CALL("approve", suspends=True)
def ask_approver(call: ToolCallRun) -> Flow:
    """Ask the host, in this process or in the next one; a cancel is answer enough (TLP-02).

    The store keeps the question first: whoever answers may do so when this process is gone.
    """
    assert call.asked is not None
    kept, approve = call.step.agent.session.barrier(), call.step.agent.options.approve
    if kept is not None:
        yield kept
    if call.tool is None:  # it was there when the lost process asked
        return _unknown(call, "deny")
    if approve is not None and not call.signal.fired:
        verdict = yield Cuttable(_approved(approve, _payload(call), call.asked.reason), call.signal)
        if verdict != "deny":
            return verdict
    return _deny(call, _not_approved(call.asked.reason), "deny")


async def _approved(approve: Approver, payload: CallPayload, reason: str) -> str:
    answer = approve(payload, reason)
    return "approve" if (await answer if isawaitable(answer) else answer) is True else "deny"


def _decides(outcome: ApprovalOutcome) -> Callable[[ToolCallRun], None]:
    def record(call: ToolCallRun) -> None:
        assert call.asked is not None
        call.step.agent.session.append(ApprovalDecided(id=call.asked.id, outcome=outcome))

    return record


for _outcome in get_args(ApprovalOutcome):
    CALL(f"approval/decided:{_outcome}")(_decides(_outcome))


@CALL("tools/guard", suspends=True)
def guard(call: ToolCallRun) -> Coroutine[None, None, str] | str:
    """Let the guards deny; they run in the order of registration and see the arguments as they stand now."""
    return _guard(call) if call.step.agent.hooks.chains["tools/guard"] else "clear"


async def _guard(call: ToolCallRun) -> str:
    verdict = await call.step.agent.hooks.serial("tools/guard", _payload(call))
    return _deny(call, verdict.reason) if isinstance(verdict, Deny) else "clear"


@CALL("check the arguments")
def check(call: ToolCallRun) -> str:
    """What is about to run must be an object that fits the schema."""
    assert call.tool is not None
    checked = call.tool.validate(call.arguments)
    if isinstance(checked, ToolOutcome):
        call.outcome = checked
        return "refuse"
    call.kwargs = checked
    return "run"


@CALL("tools/execute", suspends=True, inner=["body", "tool-owned events when applicable"])
def execute(call: ToolCallRun) -> Coroutine[Any, Any, str | None] | Cuttable | Flow | str:
    """Run the body, inside its wrappers. A body that has started is always awaited to its end (TLP-05).

    The store keeps the call's record first (PST-03).
    """
    tool, agent = call.tool, call.step.agent
    assert tool is not None
    if not tool.is_async or call.lost or agent.hooks.chains["tools/execute"]:
        return _execute(call)
    try:
        kept = agent.session.barrier()
    except StoreError as failed:
        call.outcome = _not_kept(failed)
        return "settle"
    return _alone(call, tool) if kept is None else _alone_kept(call, tool, kept)


def _alone_kept(call: ToolCallRun, tool: Tool, kept: Coroutine[Any, Any, None]) -> Flow:
    try:
        yield kept
    except StoreError as failed:
        call.outcome = _not_kept(failed)
        return "settle"
    return None if call.signal.fired else (yield _alone(call, tool))


def _alone(call: ToolCallRun, tool: Tool) -> Cuttable:
    assert call.record is not None
    call.context = ToolContext(call.step.agent.handle, call.block, call.signal, call.record.seq)
    return Cuttable(_run_alone(call, tool, call.context), call.signal)


async def _run_alone(call: ToolCallRun, tool: Tool, context: ToolContext) -> None:
    """Run a body with nothing around it. If it is cut off, its context tells what it had deferred by then."""
    assert call.kwargs is not None
    call.invoked = True
    call.outcome = call.own = await tool.run_uncut(call.kwargs, context)


async def _execute(call: ToolCallRun) -> str:
    hooks, payload = call.step.agent.hooks, _payload(call)
    if hooks.chains["tools/execute"]:
        call.outcome = await hooks.waterfall("tools/execute", payload, lambda inner: _body(call, inner))
    else:
        call.outcome = await _body(call, payload)
    return "settle"


async def _body(call: ToolCallRun, payload: CallPayload) -> ToolOutcome:
    tool, kwargs = call.tool, call.kwargs
    assert tool is not None
    assert kwargs is not None
    try:
        kept = call.step.agent.session.barrier()
        if kept is not None:
            await kept
    except StoreError as failed:
        return _not_kept(failed)
    if payload.signal.fired:
        return _undispatched()
    assert call.record is not None
    context = ToolContext(payload.agent, call.block, payload.signal, call.record.seq)
    if call.lost and tool.recover is not None:
        found = await tool.recovered(context)
        call.invoked = found is not None
        return found or error_outcome(OUTCOME_UNKNOWN, "What came of this call is unknown.")
    call.invoked = True
    return await tool.run(kwargs, context)


def _not_kept(failed: StoreError) -> ToolOutcome:
    """A body that the log does not know of must not run (PST-03)."""
    return error_outcome("NOT_KEPT", f"The call did not run: {failed}", type(failed).__name__)


def _undispatched() -> ToolOutcome:
    return error_outcome("ABORTED_BEFORE_DISPATCH", "The call was aborted before it was dispatched.")


@CALL("aborted")
def abort(call: ToolCallRun) -> None:
    """Cancellation replaces only a would-be success; denials and genuine failures keep their own code (TLP-04)."""
    outcome = call.outcome
    if outcome is None and call.context is not None and call.tool is not None:
        outcome = call.outcome = call.tool.cut(call.context)
    if outcome is None or outcome.error is None:
        aborted = (
            error_outcome("ABORTED", f"{call.block.name} was stopped: the turn was cancelled")
            if call.invoked
            else _undispatched()
        )
        call.outcome = aborted if outcome is None else replace(aborted, contexts=outcome.contexts)


@CALL("faulted")
def fault(call: ToolCallRun) -> None:
    """What a hook of the call raised becomes its result (TLP-03)."""
    error, call.error = call.error, None  # a later hook may raise again
    assert error is not None
    call.outcome = error_outcome("HOOK_FAILED", f"The call failed: {render_chain(error)}", type(error).__name__)


@CALL("tools/post-execute", suspends=True)
def look(call: ToolCallRun) -> Coroutine[None, None, str] | str:
    """Let hooks decide what the model sees of the outcome (TLP-06)."""
    return _look(call) if call.step.agent.hooks.chains["tools/post-execute"] else "publish"


async def _look(call: ToolCallRun) -> str:
    outcome = call.outcome
    assert outcome is not None

    def default(_: PostCallPayload) -> Accept | Block:
        return Accept()

    payload = PostCallPayload(call.step.agent.handle, call.block, call.arguments, call.tool, call.signal, outcome)
    verdict = await call.step.agent.hooks.waterfall("tools/post-execute", payload, default)
    call.outcome = _blocked(outcome, verdict) if isinstance(verdict, Block) else _accepted(call, outcome, verdict)
    return "publish"


def _blocked(outcome: ToolOutcome, verdict: Block) -> ToolOutcome:
    code = outcome.error.code if outcome.error is not None else "BLOCKED"
    return replace(error_outcome(code, verdict.feedback), contexts=tuple(verdict.contexts))


def _accepted(call: ToolCallRun, outcome: ToolOutcome, verdict: Accept) -> ToolOutcome:
    if verdict.content is not None and verdict.value is not None:
        raise TypeError("'tools/post-execute' accepted with content and a value; give one of them")
    contexts = (*outcome.contexts, *verdict.contexts)
    if verdict.content is not None:
        return replace(outcome, content=tuple(verdict.content), contexts=contexts)
    if verdict.value is not None:
        shown = outcome_of(verdict.value, call.block.name)
        return replace(shown, contexts=contexts, conclude=outcome.conclude)
    return replace(outcome, contexts=contexts) if verdict.contexts else outcome


@CALL("tools/result")
def publish(call: ToolCallRun) -> None:
    """Tell what the model will see, exactly once (TLP-01)."""
    outcome = call.outcome
    assert outcome is not None
    call.result = result_message(call)
    call.step.agent.tell("tools/result", ResultPayload, call.block, call.result, outcome.error)
