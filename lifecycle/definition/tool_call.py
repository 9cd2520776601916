"""The lifecycle of one tool call, from its record to its result (group TLP). `tooling` of Step runs a pool of these."""

from __future__ import annotations

from lifecycle.vocabulary.events import ApprovalOutcome

from .effects import DRIVER, HOOKS, SDK, SESSION, TOOLS, Message, answer, ask, hook, note, notify, record, tell
from .machine import ANYWHERE, Lifecycle, Phase, Sources

TOOL_OWNED = tell(SESSION, "tool-owned events when applicable", sender=TOOLS, times="*", inner=True)
"""What a body records by itself, whenever it likes."""
RESULT = notify("tools/result", "{ call, result }")
UNDISPATCHED = tell(DRIVER, "the call becomes an error result", "aborted", name="aborted")
FAULTED = tell(DRIVER, "the call becomes an error result", "what was raised", name="faulted")


def _decided(outcome: ApprovalOutcome) -> Message:
    return record("approval/decided", detail=outcome, act=outcome)


class ToolCall(Lifecycle):
    """One call: allowed, guarded, checked, executed, and looked at once more.

    `called` and `prepared` come one at a time in model order, `executing` may overlap with other calls, and
    `posting` comes in model order again (TLS-08). In `asking` a person is asked, who may take days: no other call
    starts meanwhile, those that have started end and are committed, and if the process is lost the next one asks again.
    """

    called = Phase(
        hook("tools/pre-execute", "waterfall", times="?"),  # nobody is asked about a tool that there is not (TLP-07)
        answer(HOOKS, "allow, deny or ask", name="pre-execute verdict"),
        initial=True,
    )
    asking = Phase(
        ask(SDK, "approve(call, reason)", "of the host", name="approve"),
        note(DRIVER, SDK, text="a turn whose process is lost here stays parked, and is asked about again", drawn=False),
        answer(SDK, "yes or no", name="approval"),
        parks=True,
    )
    prepared = Phase(
        hook("tools/guard", "serial", "monotonic guards"),
        answer(HOOKS, "deny or nothing", name="guard verdict"),
    )
    guarded = Phase(
        ask(TOOLS, "check the arguments", "against the tool's schema"),
    )
    executing = Phase(
        hook("tools/execute", "waterfall", "around the body"),
        ask(TOOLS, "body", sender=HOOKS, times="?", inner=True),
        TOOL_OWNED,
        answer(TOOLS, "outcome"),
        lane="body",
    )
    posting = Phase(
        hook("tools/post-execute", "waterfall"),
        answer(HOOKS, "accept or block", name="post-execute verdict"),
        lane="commit",
        settles=True,
    )
    finished = Phase(final=True)

    permit = called.to(prepared, when="the call is allowed")
    inquire = called.to(asking, when="a hook asks for an approval", emits=[record("approval/asked")])
    approve = asking.to(prepared, when="approved", emits=[_decided("approved")])
    deny = asking.to(posting, when="not approved", emits=[_decided("denied")])
    refuse = Sources(called, prepared, guarded).to(posting, when="denied, unknown tool, or arguments that do not fit")
    clear = prepared.to(guarded, when="no guard denies")
    run = guarded.to(executing, when="the arguments fit")
    settle = executing.to(posting, when="the body has ended")
    publish = posting.to(finished, emits=[RESULT])
    abort = (
        executing.to(posting, when="cancelled while the body ran", drawn=False, emits=[UNDISPATCHED])
        | asking.to(
            finished,
            when="cancelled while nobody had answered",
            drawn=False,
            emits=[_decided("canceled"), UNDISPATCHED, RESULT],
        )
        | ANYWHERE.to(finished, when="cancelled before the body started", drawn=False, emits=[UNDISPATCHED, RESULT])
    )
    fault = (
        Sources(prepared, guarded, executing).to(
            posting, when="a guard or the body's wrapper raised", drawn=False, emits=[FAULTED]
        )
        | asking.to(finished, when="whoever was asked raised", drawn=False, emits=[_decided("failed"), FAULTED, RESULT])
        | ANYWHERE.to(finished, when="a hook raised", drawn=False, emits=[FAULTED, RESULT])
    )
