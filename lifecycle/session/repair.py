"""Repair: what the log of a lost process still owes, and how it is paid (RSM-03, DECISIONS on what may be lost).

A process that died in the middle of a turn leaves a log that ends anywhere. Repair appends, in this order, a result
for each call of the open step that has none, the input that the turn had claimed and nobody settled, put back where it
waited, the end of that step, and the end of the turn, `interrupted`. Each is owed as long as it is not in the log; so
repair may itself be cut off anywhere, and what is left of it is done the next time. (Input comes before the end of its
step, because a step that has ended has settled what it claimed.) A log at rest is owed nothing. Knows nothing of
files, of agents and of time.

A turn is *parked* if somebody was asked about a call and has not answered. That call has not started, so its turn can
go on: repair pays what is owed for the calls before it, and leaves the turn open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from lifecycle.vocabulary.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantAttempt,
    AssistantMessageEvent,
    Event,
    InboxSpliced,
    InboxTarget,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolFault,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import INTERRUPTED
from lifecycle.vocabulary.messages import ToolCallBlock, ToolResultBlock, UserMessage, text
from lifecycle.vocabulary.values import FrozenDict

from .inbox import TARGETS, Inbox

if TYPE_CHECKING:
    from .log import Session

NOT_STARTED = "TOOL_NOT_STARTED"
OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
_TOLD = {
    NOT_STARTED: "The process was lost before this call started. It had no effect.",
    OUTCOME_UNKNOWN: "The process was lost while this call ran. Whether it took effect is unknown: "
    "find out before you repeat it.",
}
_ADMITTED = (RequestHeader, RequestContext, AssistantMessageEvent, AssistantAttempt, StepEnd)
"""What a step records only after it has admitted all that was entered: what it had claimed is settled then."""


class Dangling(NamedTuple):
    """A call of the open step without a result. `record` is its `tool/call`, or None if it never started."""

    block: ToolCallBlock
    record: Event | None


class Parked(NamedTuple):
    """A call that somebody was asked about, and with it its turn. `waiting` are the calls after it."""

    block: ToolCallBlock
    record: Event
    asked: ApprovalAsked
    waiting: Sequence[ToolCallBlock]


class Torn(NamedTuple):
    """What a lost process left open."""

    turn: int
    step: int | None
    calls: Sequence[Dangling]
    """Those that are owed a result, in the order in which it is due."""
    claimed: Sequence[tuple[InboxTarget, tuple[UserMessage, ...]]]
    """What goes back into the inbox, at the head of each list."""
    parked: Parked | None = None
    """What the turn goes on with; it is not closed then."""


def torn(events: Sequence[Event], waiting: Iterable[UserMessage] = (), prefix: int = 0) -> Torn | None:
    """What is left open at the end of a log; None if it is at rest. Looks at all of it only if it is not.

    Args:
        events: The log.
        waiting: What waits in its inbox.
        prefix: How many of the events were inherited; their input is not this session's.
    """
    start = next((event.seq for event in reversed(events) if isinstance(event.data, (TurnStart, TurnEnd))), None)
    if start is None or isinstance(events[start].data, TurnEnd):
        return None
    turn, step = events[start].data, None
    assert isinstance(turn, TurnStart)
    blocks: list[ToolCallBlock] = []
    records: list[Event] = []
    asked: ApprovalAsked | None = None
    settled = unstarted = 0
    for event in events[start:]:
        match event.data:
            case StepStart(step=number):
                step, settled, unstarted = number, 0, 0
                blocks.clear()
                records.clear()
            case StepEnd():
                step = asked = None
            case AssistantMessageEvent(message=message) if event.surface == "append":
                blocks += [block for block in message.content if isinstance(block, ToolCallBlock)]
            case ToolCallEvent():
                records.append(event)
                asked = None
            case ApprovalAsked():
                asked = event.data
            case ApprovalDecided():
                asked = None
            case ToolResultEvent(error=error) if event.surface == "append":
                never = error is not None and error.code == NOT_STARTED
                settled, unstarted = settled + (not never), unstarted + never
            case _:
                pass
    # Calls start in the order of the answer, and their results come in that order, those that never started last.
    begun = zip(blocks, records, strict=False)
    calls = [Dangling(*one) for one in begun][settled:] if step is not None else []
    waiting_calls = blocks[len(records) + unstarted :]
    if asked is not None and calls:  # about the call that started last: no other one starts meanwhile
        block, record = calls.pop()
        assert record is not None
        return Torn(turn.turn, step, calls, (), Parked(block, record, asked, waiting_calls))
    if step is not None:
        calls += [Dangling(block, None) for block in waiting_calls]
    return Torn(turn.turn, step, calls, _unsettled(events, start, waiting, prefix))


def _unsettled(
    events: Sequence[Event], start: int, waiting: Iterable[UserMessage], prefix: int
) -> list[tuple[InboxTarget, tuple[UserMessage, ...]]]:
    """What the turn that opened at `start` had claimed, and nobody settled, by list."""
    inbox = Inbox(_append_nothing)
    claimed: dict[str, tuple[InboxTarget, UserMessage]] = {}
    for event in events[prefix:]:
        data = event.data
        if isinstance(data, InboxSpliced):
            if event.seq > start and data.removed_count and not data.inserted and data.outcome is None:
                taken = (inbox.next_step if data.target == "next-step" else inbox.next_turn)[data.start :]
                claimed |= {message.id: (data.target, message) for message in taken[: data.removed_count]}
            inbox.apply(data)
        elif event.seq > start:
            if isinstance(data, UserMessageEvent):
                claimed.pop(data.message.id, None)
            elif isinstance(data, _ADMITTED):
                claimed.clear()
    for message in waiting:  # a repair that was cut off has given it back already
        claimed.pop(message.id, None)
    lists: list[tuple[InboxTarget, tuple[UserMessage, ...]]]
    lists = [(target, tuple(message for at, message in claimed.values() if at == target)) for target in TARGETS]
    return [(target, messages) for target, messages in lists if messages]


def _append_nothing(record: InboxSpliced) -> None:
    """For an inbox that only follows what is in the log."""


def repair(session: Session, results: Mapping[int, ToolResultEvent] = MappingProxyType({})) -> Sequence[Event]:
    """Append what the log of a lost process still owes; returns it. For who has the session to himself.

    A parked turn stays open.

    Args:
        session: A session that nobody works on.
        results: What was found out about calls that had started, by the seq of their `tool/call`. All others get a
            result that says that the outcome is unknown.

    Raises:
        StoreError, and whatever else an append raises. Then it was done in part; call it again.
    """
    before = session.next_seq
    prefix = 0 if session.lineage is None else session.lineage.prefix
    if session.open_turn is None:
        return ()
    left = torn(session.events, (*session.inbox.next_step, *session.inbox.next_turn), prefix)
    assert left is not None
    if left.step is not None:
        for block, record in left.calls:
            found = None if record is None else results.get(record.seq)
            session.append(
                found or _unknown(left, block, record, session.next_seq),
                surface="append",
                sources=None if record is None else [record.seq],
            )
    if left.parked is not None:
        return session.events[before:]
    for target, messages in left.claimed:
        session.inbox.splice(target, 0, 0, messages)
    if left.step is not None:
        session.append(StepEnd(turn=left.turn, step=left.step))
    session.append(TurnEnd(turn=left.turn, reason=INTERRUPTED))
    return session.events[before:]


def _unknown(left: Torn, block: ToolCallBlock, record: Event | None, seq: int) -> ToolResultEvent:
    code = NOT_STARTED if record is None else OUTCOME_UNKNOWN
    assert left.step is not None
    told = ToolResultBlock(tool_call_id=block.id, content=text(_TOLD[code]), is_error=True)
    source = FrozenDict(kind="tool", callId=block.id)
    message = UserMessage(id=f"r{seq if record is None else record.seq}", content=(told,), source=source)
    return ToolResultEvent(turn=left.turn, step=left.step, message=message, error=ToolFault(code=code))
