"""What must hold of a log after any crash, whatever was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lifecycle.definition.acceptor import Acceptor
from lifecycle.session.log import Session
from lifecycle.session.repair import torn
from lifecycle.vocabulary.events import Event, InboxSpliced, ToolCallEvent, UserMessageEvent


def illegal(events: Sequence[Event], *, whole: bool = True) -> str:
    """Why the definition does not make this log; empty if it does."""
    acceptor = Acceptor()
    for event in events:
        wrong = acceptor.take_event(event)
        if wrong is not None:
            return f"event {event.seq} ({event.type}): {wrong}"
    wrong = acceptor.end() if whole else None
    return "" if wrong is None else f"at the end: {wrong}"


def accepted(events: Sequence[Event]) -> set[str]:
    """The ids of all input that the log took in."""
    return {m.id for event in events if isinstance(event.data, InboxSpliced) for m in event.data.inserted}


def entered(events: Sequence[Event]) -> Counter[str]:
    """How often each message was admitted."""
    return Counter(event.data.message.id for event in events if isinstance(event.data, UserMessageEvent))


def discarded(events: Sequence[Event]) -> set[str]:
    """The ids that a cancel has discarded."""
    session, gone = Session.memory(), set[str]()
    for event in events:
        if isinstance(event.data, InboxSpliced):
            waiting = session.inbox.next_step if event.data.target == "next-step" else session.inbox.next_turn
            if event.data.outcome is not None:
                taken = waiting[event.data.start : event.data.start + (event.data.removed_count or 0)]
                gone |= {message.id for message in taken}
            session.inbox.apply(event.data)
    return gone


def lost(session: Session) -> set[str]:
    """Input that the log took in, and that neither waits, nor was entered, nor discarded.

    No hook of the story rejects or rewrites; so there should be none.
    """
    waiting = {message.id for message in (*session.inbox.next_step, *session.inbox.next_turn)}
    return accepted(session.events) - waiting - set(entered(session.events)) - discarded(session.events)


def problems(session: Session) -> list[str]:
    """All that is wrong with a log after it was repaired."""
    found = [illegal(session.events)] if illegal(session.events) else []
    found += [f"lost {id}" for id in sorted(lost(session))]
    found += [f"{id} was entered {n} times" for id, n in entered(session.events).items() if n > 1]
    if torn(session.events) is not None:
        found.append("a turn is open")
    starts = Counter(event.data.call_id for event in session.events if isinstance(event.data, ToolCallEvent))
    found += [f"call {id} started {n} times" for id, n in starts.items() if n > 1]
    return found
