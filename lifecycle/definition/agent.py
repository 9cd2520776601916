"""The lifecycle of an agent: woken, running turns, converging after a cancel, maintained, disposed.

Events come from outside at any time, also while a turn runs; `turned` and `maintained` come from the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle.vocabulary.events import InboxTarget

from .effects import AGENT, DRIVER, SDK, USER, Message, ask, note, notify, record, tell
from .machine import Lifecycle, Phase, Sources
from .turn import Turn


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent's guards may read."""

    pending: bool = False
    """Input is pending in either list."""
    healthy: bool = False
    """The last turn ended in a way that lets the next one follow at once (TRN-08, TRN-10, TRN-12)."""
    keeping: bool = False
    """The cancel keeps the inbox."""
    disposing: bool = False
    """The agent is being disposed: nothing wakes it, and input is parked (CAN-06)."""
    undecided: bool = False
    """A lost process has left a turn parked: somebody was asked about a call, and has not answered."""


def _insertion(call: str, drawn: bool = False, detail: str = "", act: str = "insert") -> tuple[Message, ...]:
    """Input comes in: recorded, then announced (INB-01, INB-02)."""
    return (
        ask(AGENT, call, sender=USER, drawn=drawn),
        record("agent/inbox/spliced", detail=detail, to=SDK, sender=AGENT, act=act, drawn=drawn),
        notify("agent/inbox/inserted", "{ message }", sender=AGENT, drawn=drawn),
    )


def _discard(target: InboxTarget) -> tuple[Message, ...]:
    """One list is cleared: recorded, then announced, before the other one is (CAN-02)."""
    return (
        record(
            "agent/inbox/spliced",
            detail=f"{target}, canceled",
            to=SDK,
            sender=AGENT,
            act=f"clear {target}",
            times="?",
            drawn=False,
        ),
        notify("agent/inbox/discarded", "{ message }", sender=AGENT, times="*", drawn=False),
    )


SUBMIT = _insertion("followup(content)", drawn=True)
QUEUE = _insertion("followup(content)")
LATE = _insertion("followup(content)", detail="a turn of its own, also for a steer", act="insert late")
STAGE = _insertion("inject(content)")
WAKE = ask(DRIVER, "queued work wakes driver", sender=AGENT, name="wake")
RUNNING = notify("agent/status", "running", act="running")
IDLE = notify("agent/status", "idle", act="idle")
EDIT = (
    ask(AGENT, "inbox.replace(id, message)", sender=USER, name="edit", drawn=False),
    record("agent/inbox/spliced", to=SDK, sender=AGENT, act="edit", times="?"),
    notify("agent/inbox/discarded", "{ message }", sender=AGENT, act="edit", times="?"),
    notify("agent/inbox/inserted", "{ message }", sender=AGENT, act="edit", times="?"),
)
STOP = ask(AGENT, "cancel(cause)", sender=USER, drawn=False)
CLEAR = (STOP, *_discard("next-step"), *_discard("next-turn"))
FIRE = tell(DRIVER, "the signal fires", "{ cause }", sender=AGENT, name="fire", drawn=False)
SETTLED = tell(DRIVER, "no turn is open", name="converge", drawn=False)


class Agent(Lifecycle):
    """An agent. `converging` and `latched` last while a cancelled turn settles; a wake then is latched (CAN-04)."""

    facts = AgentFacts

    idle = Phase(initial=True)
    running = Phase(
        runs=Turn,
        then={"close": "turned", "abort": "turned", "fault": "turned"},
        loops="the turns from a wake to the next rest",
    )
    converging = Phase(SETTLED)
    latched = Phase(SETTLED)
    maintenance = Phase(note(AGENT, text="the maintenance task runs, with a signal of its own"))
    maintenance_latched = Phase(note(AGENT, text="the maintenance task runs, and input waits for its end"))
    disposed = Phase(final=True)

    submit = (
        idle.again(cond="disposing", when="input comes at the end of disposal", emits=QUEUE, drawn=False)
        | idle.to(running, when="input comes to an idle agent", emits=[*SUBMIT, WAKE, RUNNING])
        | running.again(when="input comes while a turn runs", emits=QUEUE, drawn=False)
        | converging.to(latched, unless="disposing", when="input comes after the cancel", emits=LATE, drawn=False)
        | converging.again(when="input comes during disposal", emits=QUEUE, drawn=False)
        | latched.again(when="more input comes after the cancel", emits=LATE, drawn=False)
        | maintenance.to(maintenance_latched, when="input comes during maintenance", emits=QUEUE, drawn=False)
        | maintenance_latched.again(when="more input comes during maintenance", emits=QUEUE, drawn=False)
    )
    resume = idle.to(running, cond="undecided", when="a parked turn goes on", drawn=False, emits=[WAKE, RUNNING])
    stage = Sources(idle, running, converging, latched, maintenance, maintenance_latched).again(
        when="context is injected, which wakes nobody", emits=STAGE, drawn=False
    )
    edit = Sources(idle, running, converging, latched, maintenance, maintenance_latched).again(
        when="pending input is edited", emits=EDIT, drawn=False
    )
    cancel = (
        idle.again(when="an idle agent is cancelled", emits=CLEAR, drawn=False)
        | running.to(converging, when="the turn is cancelled", emits=[*CLEAR, FIRE], drawn=False)
        | converging.again(when="cancelled once more", emits=[*CLEAR, FIRE], drawn=False)
        | latched.again(
            cond="keeping and not disposing", when="cancelled, keeping the inbox", emits=[STOP, FIRE], drawn=False
        )
        | latched.to(converging, when="the latched wake is withdrawn", emits=[*CLEAR, FIRE], drawn=False)
        | maintenance.again(when="the maintenance task is cancelled", emits=[*CLEAR, FIRE], drawn=False)
        | maintenance_latched.again(
            cond="keeping and not disposing", when="cancelled, keeping the inbox", emits=[STOP, FIRE], drawn=False
        )
        | maintenance_latched.to(maintenance, when="the held wake is withdrawn", emits=[*CLEAR, FIRE], drawn=False)
    )
    outlast = Sources(converging, latched).again(
        when="a cancelled turn outlasts its grace period",
        drawn=False,
        emits=[notify("agent/overdue", "{ turn, step, seconds, calls }", sender=AGENT, drawn=False)],
    )
    turned = (
        running.to(running, cond="pending and healthy and not disposing", when="more input is pending", drawn=False)
        | running.to(idle, when="nothing is left to do", emits=[IDLE])
        | converging.to(idle, when="the cancelled turn has settled", emits=[IDLE], drawn=False)
        | latched.to(
            running, cond="pending", when="a wake was latched meanwhile", emits=[IDLE, WAKE, RUNNING], drawn=False
        )
        | latched.to(idle, when="the latched input is gone", emits=[IDLE], drawn=False)
    )
    maintain = idle.to(
        maintenance,
        when="a maintenance task starts",
        drawn=False,
        emits=[ask(AGENT, "run_maintenance(task)", sender=USER, drawn=False)],
    )
    maintained = (
        maintenance.to(idle, when="the maintenance task has ended", drawn=False)
        | maintenance_latched.to(
            running,
            cond="pending and not disposing",
            when="input came during maintenance",
            emits=[WAKE, RUNNING],
            drawn=False,
        )
        | maintenance_latched.to(idle, when="the held input is gone", drawn=False)
    )
    dispose = idle.to(
        disposed, when="the agent is disposed", drawn=False, emits=[notify("agent/disposed", sender=AGENT, drawn=False)]
    )
