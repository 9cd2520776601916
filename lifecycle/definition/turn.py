"""The lifecycle of one turn: opened, its steps run one after another, stopped, closed with one reason."""

from __future__ import annotations

from dataclasses import dataclass

from .effects import AGENT, DRIVER, SDK, hook, note, notify, record, tell
from .machine import ANYWHERE, REPLAY, Lifecycle, Phase, Sources
from .step import Step


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What the turn's guards may read."""

    owed: bool = False
    """The last step owes another request, for its tool results or because the provider paused."""
    waiting: bool = False
    """Next-step input is pending."""


CLAIM_NEXT = (
    tell(DRIVER, "claim pending next-step input", name="claim"),
    record("agent/inbox/spliced", detail="pure deletion", to=SDK, act="claim next", times="?", drawn=False, inner=True),
    notify("agent/inbox/claimed", "{ message, turn } per message", times="*"),
)
"""A later step begins with what came in for it meanwhile (CLM-02)."""

ERROR = notify("agent/error", "{ turn, step, error }", drawn=False)


class Turn(Lifecycle):
    """One turn, from `turn/start` to `turn/end`."""

    facts = TurnFacts

    opening = Phase(record("turn/start"), initial=True)
    opened = Phase(
        note(AGENT, DRIVER, text="claim pending next-step input plus one queued prompt"),
        record("agent/inbox/spliced", detail="pure deletion", to=SDK, act="claim first", times="*"),
        notify("agent/inbox/claimed", "{ message, turn } per message", times="*"),
    )
    stepping = Phase(
        runs=Step,
        then={
            "reject": "rejected",
            "surrender": "failed",
            "finish": "stepped",
            "abort": "abort",
            "fault": "failed",
        },
        loops="the steps of the turn",
    )
    stopping = Phase(hook("agent/turn-stopping", "serial", "terminal checkpoint"))
    settled = Phase(tell(DRIVER, "look for next-step input", name="look", drawn=False))
    closing = Phase(record("turn/end"), settles=True)
    closed = Phase(final=True)

    open = opening.to(opened)
    claim = opened.to(stepping)
    rejected = stepping.to(closing)
    failed = stepping.to(closing, when="the step failed", drawn=False, emits=[ERROR])
    stepped = stepping.to(
        stopping, cond="not (owed or waiting)", when="natural stop and next-step inbox empty"
    ) | stepping.to(settled)
    stop = stopping.to(settled)
    proceed = settled.to(
        stepping,
        cond="waiting",
        when="next-step input is pending",
        fold=REPLAY,
        emits=CLAIM_NEXT,
    ) | settled.to(
        stepping,
        cond="owed and not waiting",
        when="tool results owe another request",
        fold=REPLAY,
        drawn=False,
    )
    rest = settled.to(closing, unless="owed or waiting")
    close = closing.to(closed)
    abort = Sources(opening, closing).to(closed, when="cancelled at the boundary", drawn=False) | ANYWHERE.to(
        closing, when="the turn is cancelled", drawn=False
    )
    fault = Sources(opening, closing).to(
        closed, when="the boundary was refused", drawn=False, emits=[ERROR]
    ) | ANYWHERE.to(closing, when="something raised", drawn=False, emits=[ERROR])
