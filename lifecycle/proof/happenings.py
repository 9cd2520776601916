"""What happens in a run, as plain values, and a ledger of what the invariants need to know of it.

The names are those of the wire. The explorer tells what its abstract runs do, and whoever watches a real agent can
tell the same of it. This module knows neither, and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from .flat import Flat


class Happening(NamedTuple):
    """One thing that happened.

    Besides wire names of records, hook points and live events there are: `followup`, `steer` and `inject`, said before
    their record; `cancel` and `dispose`, said before what they discard; `proposal`, what pre-step came to (`enter` as
    it was proposed, `rewrite`, or `reject`); `vetoed`, an append that was refused; `tools/resolve` and
    `tools/dispose`; `maintenance` and `maintained`; `rest`, when nothing is going on any more; `crash` (`parked` if its
    turn stays open), and the `returned` messages of its repair.
    """

    name: str
    detail: str = ""
    """Of a splice `insert`, `claim`, `canceled`, `replace`; of others the status, reason, cause, verdict, record."""
    ids: tuple[str, ...] = ()
    """The messages that it is about; of a proposal, those that it enters; of a replacement the old and the new one."""
    number: int = 0
    """The turn, the step or the call, counted from 1; of an answer, how many calls it asks for."""
    target: str = ""
    """Of a splice: the list."""
    keep: bool = False
    """Of a cancel: it keeps the inbox."""
    step: bool | None = None
    """Whether `agent.step` was published at that moment; None if nobody looked."""

    def __str__(self) -> str:
        words = (self.detail, self.target, *self.ids, str(self.number or ""), "keeping the inbox" if self.keep else "")
        return " ".join([self.name, *(word for word in words if word)])


WAKING = frozenset({"followup", "steer"})
PROPOSALS = ("agent/step-boundary", "agent/model", "agent/pre-step")
"""The hook points of one proposal, in their order."""

# Where an accepted message is. The first three are no ends yet.
PENDING = "pending"
"""It waits, and a wake has asked for a turn with it."""
PARKED = "parked"
"""It waits for the next wake."""
CLAIMED = "claimed"
"""A proposal has it, and nothing has been decided or admitted yet."""
ADMITTED = "admitted"
"""It is a `user/message` of the log."""
DISCARDED = "discarded"
"""It was canceled while it waited."""
SPENT = "spent"
"""Its proposal was rejected, emptied, rewritten, failed or cancelled."""


@dataclass
class Ledger(Flat):
    """What is known of one agent after all that has happened so far. Every field is an immutable value."""

    fates: tuple[tuple[str, str], ...] = ()
    """Every accepted message, and where it is."""
    sent: str = ""
    """The verb of the input whose record is due."""
    untold: tuple[tuple[str, str], ...] = ()
    """What was recorded and has not been announced: the name of the announcement and the message, in that order."""
    status: str = "idle"
    turn: int = 0
    """The number of the last turn that started."""
    turn_open: bool = False
    prompts: int = 0
    """How many prompts the open turn has claimed."""
    proposals: int = 0
    """How many steps were proposed in the open turn."""
    proposing: int = 0
    """How many of PROPOSALS were dispatched for the one that is proposed now."""
    step: int = 0
    """The number of the last step that started in this turn."""
    step_open: bool = False
    entered: tuple[str, ...] = ()
    """What the last decision enters and has not been admitted yet."""
    tools: bool = False
    """The tool set of the step is there."""
    dropped: tuple[str, ...] = ()
    """Messages of the turn that a step was entered with and has ended without."""
    streaming: str = ""
    """The newest attempt is `open` or `settled`; empty once its end was told."""
    asked: int = 0
    """How many calls the answer asks for."""
    called: int = 0
    answered: int = 0
    parked: bool = False
    """The turn is open, and goes on as soon as the agent says that it runs."""
    excused: bool = False
    """An append was refused in this turn, so that some of what is owed may be missing."""
    cause: str = ""
    """Why the turn or the task is cancelled: the first cause."""
    converging: bool = False
    """A cancel is taking effect."""
    maintained: bool = False
    """A maintenance task runs."""
    disposing: bool = False
    leaving: bool = False
    failed: bool = False
    """`agent/error` was told in this turn."""
    stops: bool = False
    """Its turn was rejected, or emptied before its first step: the next one waits for a wake."""
    latched: bool = False
    """A wake came after the cancel or during maintenance, and is held."""
    owed: bool = False
    """The held wake has come due: a turn follows."""
    due: bool = False
    """A turn may start."""

    def fate(self, id: str) -> str:
        """Where a message is; empty if it was never accepted."""
        return next((fate for known, fate in self.fates if known == id), "")

    def having(self, *fates: str) -> tuple[str, ...]:
        """The messages that are in one of these places."""
        return tuple(id for id, fate in self.fates if fate in fates)

    def move(self, ids: Iterable[str], fate: str) -> None:
        """Put accepted messages somewhere else."""
        moved = set(ids)
        if moved:
            self.fates = tuple((id, fate if id in moved else old) for id, old in self.fates)

    def note(self, now: Happening) -> None:
        """Take in what happened."""
        change = CHANGES.get(now.name)
        if change is not None:
            change(self, now)


Change: TypeAlias = Callable[[Ledger, Happening], None]

# -- input ----------------------------------------------------------------------------------------------------------


def _sent(seen: Ledger, now: Happening) -> None:
    seen.sent = now.name


def _spliced(seen: Ledger, now: Happening) -> None:
    match now.detail:
        case "insert":
            _accepted(seen, now.ids)
            _owe(seen, INSERTED, now.ids)
        case "claim":
            seen.move(now.ids, CLAIMED)
            seen.prompts += len(now.ids) if now.target == "next-turn" else 0
            _owe(seen, TAKEN, now.ids)
        case "replace":
            old, new = now.ids
            seen.fates = (*(pair for pair in seen.fates if pair[0] != new), (new, seen.fate(old)))
            seen.move([old], DISCARDED)
            _owe(seen, DROPPED, [old])
            _owe(seen, INSERTED, [new])
        case _:
            seen.move(now.ids, DISCARDED)
            _owe(seen, DROPPED, now.ids)


INSERTED, TAKEN, DROPPED = (f"agent/inbox/{end}" for end in ("inserted", "claimed", "discarded"))
ANNOUNCEMENTS = (INSERTED, TAKEN, DROPPED)
"""What is told of a message after its record."""


def _owe(seen: Ledger, name: str, ids: Iterable[str]) -> None:
    seen.untold = (*seen.untold, *((name, id) for id in ids))


def _announced(seen: Ledger, now: Happening) -> None:
    told = {(now.name, id) for id in now.ids}
    seen.untold = tuple(pair for pair in seen.untold if pair not in told)


def _accepted(seen: Ledger, ids: tuple[str, ...]) -> None:
    wakes, seen.sent = seen.sent in WAKING and not seen.disposing, ""
    known = tuple(pair for pair in seen.fates if pair[0] not in ids)
    seen.fates = (*known, *((id, PENDING if wakes else PARKED) for id in ids))
    if wakes and (seen.converging or seen.maintained):
        seen.latched = True
    elif wakes:
        seen.due = True


def _proposed(seen: Ledger, now: Happening) -> None:
    claimed = seen.having(CLAIMED)
    seen.entered = tuple(id for id in now.ids if id in claimed)
    seen.move(set(claimed) - set(seen.entered), SPENT)
    if now.detail == "reject" or (not now.ids and seen.proposals == 1):
        seen.stops = True


def _admitted(seen: Ledger, now: Happening) -> None:
    seen.move(now.ids, ADMITTED)
    seen.entered = tuple(id for id in seen.entered if id not in now.ids)


# -- turns and steps ------------------------------------------------------------------------------------------------


def _turn_started(seen: Ledger, now: Happening) -> None:
    seen.turn, seen.turn_open = now.number, True
    seen.step = seen.prompts = seen.proposals = seen.proposing = 0
    seen.failed = seen.excused = seen.stops = seen.owed = seen.due = False


def _turn_ended(seen: Ledger, now: Happening) -> None:
    seen.turn_open, seen.entered, seen.dropped, seen.cause = False, (), (), ""
    seen.move(seen.having(CLAIMED), SPENT)
    seen.due = not (seen.failed or seen.stops or seen.converging)


def _dispatched(seen: Ledger, now: Happening) -> None:
    if now.name == PROPOSALS[0]:
        seen.proposals, seen.proposing = seen.proposals + 1, 0
    seen.proposing += 1


def _step_started(seen: Ledger, now: Happening) -> None:
    seen.step, seen.step_open, seen.proposing = now.number, True, 0
    seen.asked = seen.called = seen.answered = 0


def _step_ended(seen: Ledger, now: Happening) -> None:
    seen.step_open, seen.tools = False, False
    seen.dropped, seen.entered = (*seen.dropped, *seen.entered), ()
    seen.move(seen.having(CLAIMED), SPENT)


def _resolved(seen: Ledger, now: Happening) -> None:
    seen.tools = now.name == "tools/resolve"


def _stream_started(seen: Ledger, now: Happening) -> None:
    seen.streaming = "open"


def _settled(seen: Ledger, now: Happening) -> None:
    seen.streaming = "settled"
    seen.asked, seen.called, seen.answered = now.number, 0, 0


def _stream_ended(seen: Ledger, now: Happening) -> None:
    seen.streaming = ""


def _called(seen: Ledger, now: Happening) -> None:
    seen.called = now.number


def _answered(seen: Ledger, now: Happening) -> None:
    seen.answered = now.number


def _vetoed(seen: Ledger, now: Happening) -> None:
    seen.excused, seen.sent = True, ""
    if now.detail == "turn/end":
        _turn_ended(seen, now)
    elif now.detail == "step/end":
        _step_ended(seen, now)
    elif now.detail in ("assistant/message", "assistant/attempt"):
        seen.streaming = "settled"


# -- the agent ------------------------------------------------------------------------------------------------------


def _failed(seen: Ledger, now: Happening) -> None:
    seen.failed = True


def _cancelled(seen: Ledger, now: Happening) -> None:
    if now.name == "dispose":
        seen.leaving = seen.disposing = True
    active = seen.maintained or seen.converging or seen.due or seen.status == "running"
    if not active:  # to cancel an idle agent arms nothing, and is the end of what an earlier one has armed (CAN-07)
        seen.disposing = seen.leaving
        return
    seen.disposing = seen.disposing or now.detail == "disposed"
    if seen.latched and now.keep and not seen.disposing:
        return
    seen.latched = seen.owed = seen.due = False
    seen.cause = seen.cause or now.detail
    if not seen.maintained:
        seen.converging = True
    if now.keep:
        seen.move(seen.having(PENDING), PARKED)


def _status(seen: Ledger, now: Happening) -> None:
    seen.status, seen.parked = now.detail, False
    if now.detail == "idle":
        if seen.disposing or seen.failed or seen.stops:
            seen.move(seen.having(PENDING), PARKED)
        _release(seen)
        seen.converging = seen.failed = seen.stops = False


def _release(seen: Ledger) -> None:
    """A held wake comes due, if something still waits."""
    seen.owed = seen.due = seen.latched and not seen.disposing and bool(seen.having(PENDING, PARKED))
    seen.latched, seen.cause = False, ""


def _maintenance(seen: Ledger, now: Happening) -> None:
    seen.maintained = True


def _maintained(seen: Ledger, now: Happening) -> None:
    seen.maintained = False
    if seen.disposing:
        seen.move(seen.having(PENDING), PARKED)
    _release(seen)


def _rested(seen: Ledger, now: Happening) -> None:
    seen.disposing = seen.leaving


def _crashed(seen: Ledger, now: Happening) -> None:
    """The process is gone, and the log is all there is."""
    gone = Ledger(fates=seen.fates, turn=seen.turn)
    if now.detail:  # its turn is parked
        for name in ("turn_open", "prompts", "proposals", "step", "step_open", "tools", "asked", "called", "answered"):
            setattr(gone, name, getattr(seen, name))
        gone.parked = True
    gone.move(gone.having(PENDING), PARKED)
    seen.__dict__.update(gone.__dict__)


def _returned(seen: Ledger, now: Happening) -> None:
    seen.move(now.ids, PARKED)


CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "followup": _sent,
        "steer": _sent,
        "inject": _sent,
        "agent/inbox/spliced": _spliced,
        **dict.fromkeys(ANNOUNCEMENTS, _announced),
        "proposal": _proposed,
        "user/message": _admitted,
        "turn/start": _turn_started,
        "turn/end": _turn_ended,
        **dict.fromkeys(PROPOSALS, _dispatched),
        "step/start": _step_started,
        "step/end": _step_ended,
        "tools/resolve": _resolved,
        "tools/dispose": _resolved,
        "agent/assistant-stream start": _stream_started,
        "assistant/message": _settled,
        "assistant/attempt": _settled,
        "agent/assistant-stream end": _stream_ended,
        "tool/call": _called,
        "tool/result": _answered,
        "vetoed": _vetoed,
        "agent/error": _failed,
        "cancel": _cancelled,
        "dispose": _cancelled,
        "agent/status": _status,
        "maintenance": _maintenance,
        "maintained": _maintained,
        "rest": _rested,
        "crash": _crashed,
        "returned": _returned,
    }
)
