"""The lifecycle of one step: proposed, entered, requested from the model, its tools run, ended."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import DRIVER, HOOKS, LLM, PROMPT, SESSION, TOOLS, answer, ask, hook, note, notify, record, tell
from .machine import ANYWHERE, Fold, Lifecycle, Phase, Sources
from .tool_call import TOOL_OWNED, ToolCall


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the step's guards may read."""

    admitted: bool = False
    """The decision enters the step, and there is something to enter or something owed."""
    retryable: bool = False
    """A hook asked for the request to be made again."""
    unstarted: bool = False
    """A tool call has not started."""
    unsettled: bool = False
    """A started tool call has no result yet."""
    undecided: bool = False
    """Somebody was asked about a started call, and has not answered."""


NO_STEP = tell(DRIVER, "claimed batch stays removed, the open turn spends no step", name="no step")
"""What becomes of a proposal that enters no step while its turn is open (CLM-04)."""

CLOSE = (
    ask(TOOLS, "dispose the step tool set", name="dispose"),
    record("step/end"),
)
"""What every opened step owes, whichever way it ends (END-01, TLS-15)."""

VISIBLE_PREFIX = record(
    "assistant/message", detail="of the visible prefix, interrupted", act="interrupted", times="?", drawn=False
)
SETTLE_CUT = (
    VISIBLE_PREFIX,
    record("assistant/attempt", detail="where nothing is visible", act="cut", times="?", drawn=False),
    notify("agent/assistant-stream", "end", act="cut", times="?", drawn=False),
)
"""What a stream owes that was cut off: exactly one settlement and one live end, if it was dispatched (SET-06..09)."""

RESULT = (ask(TOOLS, "ordered post", name="post", lane="commit"), record("tool/result"))
DRAIN = (
    ask(TOOLS, "let started calls end", "and commit them in model order", name="drain"),
    record("tool/result", act="drained", times="*", inner=True),
    record("tool/call", detail="of each call that never started", act="undispatched", times="*", inner=True),
    record("tool/result", detail="aborted before dispatch", act="undispatched", times="*", inner=True),
)
"""What cancelled tools owe: started calls are waited for, and every call has a result."""
ABANDON = ask(TOOLS, "let started calls end", "and commit nothing", name="abandon")


class Step(Lifecycle):
    """One step of a turn: a proposal, at most one answered request, and the tools that the answer asks for."""

    facts = StepFacts

    claimed = Phase(
        hook("agent/step-boundary", "serial", "commits selections pending for this step"),
        initial=True,
    )
    boundary = Phase(
        hook("agent/model", "waterfall", "chooses provider, model, and effort, published as agent.step"),
    )
    modelled = Phase(
        hook("agent/pre-step", "waterfall", "reads agent.step"),
        answer(HOOKS, "authoritative reject or enter(messages)", name="pre-step verdict"),
    )
    entered = Phase(
        ask(TOOLS, "resolve({ agent, signal })", "once per step"),
        ask(PROMPT, "`system-prompt/assemble`", "contexts, variables, sections, and the step tool set"),
    )
    requesting = Phase(
        hook("agent/request", "waterfall", "with the step model selection"),
        ask(LLM, "prepareCall(config, signal)"),
        note(DRIVER, LLM, text="cancellation during preparation commits neither system nor users"),
        note(DRIVER, SESSION, text="synchronous admission using the prepared call capability"),
        record("system/message", detail="ordered per-node reconciliation", times="*"),
        record("user/message", detail="per entered message, then a changed runtime-context snapshot", times="once"),
        record("user/message", detail="of a changed runtime-context snapshot", act="snapshot", times="?", drawn=False),
        record("request/header", "request/context", detail="as needed", times="?"),
        ask(DRIVER, "derive and freeze request from the log", name="derive"),
        ask(LLM, "bound prepared call through `llm/stream` waterfall"),
        notify("agent/assistant-stream", "start", act="start", drawn=False, inner=True),
        answer(LLM, "StreamChunk*", times="*"),
        notify("agent/assistant-stream", "chunk*", act="chunk", times="*", inner=True),
        loops="the attempts of the request",
    )
    retrying = Phase(
        hook("agent/request-error", "waterfall"),
        answer(HOOKS, "return retry action or preserve the original error", name="request-error verdict"),
    )
    tooling = Phase(
        ask(TOOLS, "classify pending call by executionMode"),
        pool=ToolCall,
        loops="barriers and bounded rolling pool, reclassify before start",
    )
    ended = Phase(final=True)

    bind = claimed.to(boundary)
    select = boundary.to(modelled)
    reject = modelled.to(
        ended,
        unless="admitted",
        when="proposed step rejected, first batch empty, or pre-step failed",
        emits=[NO_STEP],
    )
    enter = modelled.to(entered, cond="admitted", when="enter proposed step", emits=[record("step/start")])
    request = entered.to(requesting)
    fail = requesting.to(
        retrying,
        when="final adapter or terminal in-band request failure",
        emits=[record("assistant/attempt"), notify("agent/assistant-stream", "committed end", act="end")],
    )
    retry = retrying.to(
        requesting,
        cond="retryable",
        when="a hook returns a retry action",
        fold=Fold(
            note=note(
                DRIVER,
                LLM,
                text="retry in the open step: request and prepare again with the same model selection, tool set,"
                " and prompt without repeating pre-step or users",
            )
        ),
    )
    surrender = retrying.to(ended, unless="retryable", when="the original error stands", drawn=False, emits=CLOSE)
    succeed = requesting.to(
        tooling,
        when="model request succeeded",
        emits=[record("assistant/message"), notify("agent/assistant-stream", "committed end", act="end")],
    )
    start = tooling.again(
        cond="unstarted",
        when="call starts",
        emits=[
            record("tool/call"),
            ask(
                TOOLS,
                "ordered pre, concurrent execute",
                "with the step tool set",
                name="pre and execute",
                lane="start",
            ),
            TOOL_OWNED,
        ],
    )
    reenter = tooling.again(
        cond="undecided",
        when="the call is taken up that a lost process had asked about",
        drawn=False,
        emits=[ask(TOOLS, "ask again, concurrent execute", name="take up"), TOOL_OWNED],
    )
    settle = tooling.again(
        cond="unsettled",
        when="next model-order result ready",
        emits=RESULT,
    )
    finish = tooling.to(ended, cond="not (unstarted or unsettled)", when="every call has settled", emits=CLOSE)

    abort = (
        Sources(claimed, boundary, modelled).to(
            ended,
            when="cancelled before the step was entered",
            drawn=False,
            emits=[NO_STEP],
        )
        | requesting.to(ended, when="cancelled while requesting", drawn=False, emits=[*SETTLE_CUT, *CLOSE])
        | tooling.to(
            ended,
            when="cancelled while tools ran",
            drawn=False,
            emits=[*DRAIN, *CLOSE],
        )
        | ANYWHERE.to(ended, when="cancelled in the open step", drawn=False, emits=CLOSE)
    )
    fault = (
        Sources(claimed, boundary, modelled).to(
            ended,
            when="a hook of the proposal raised",
            drawn=False,
            emits=[NO_STEP],
        )
        | requesting.to(
            ended,
            when="preparing or consuming the stream raised",
            drawn=False,
            emits=[
                record("assistant/attempt", detail="if it was dispatched", act="cut", times="?", drawn=False),
                notify("agent/assistant-stream", "end", act="cut", times="?", drawn=False),
                *CLOSE,
            ],
        )
        | tooling.to(
            ended,
            when="the scheduler failed",
            drawn=False,
            emits=[ABANDON, *CLOSE],
        )
        | ANYWHERE.to(ended, when="something raised in the open step", drawn=False, emits=CLOSE)
    )
