"""Adopting: how a session takes in the events of a log that was written before, its own or another one's.

They are held against the rules of a log one by one, as when they were appended; but nobody is asked, nobody is told,
and pending input is not inherited: what the first events of a fork say of the inbox was its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lifecycle.errors import DuplicateMessageError, NotJsonError, SessionError, SessionFormatError
from lifecycle.vocabulary.events import EndSeed, Event, InboxSpliced

if TYPE_CHECKING:
    from .log import Session
    from .writing import Writer


def adopt(session: Session, events: Iterable[Event], commit: Callable[[Event], None]) -> None:
    """Take `events` into `session`, by what commits an event to it.

    Raises:
        SessionFormatError: if they are no log; it says which event is wrong and why.
    """
    own = 0 if session.lineage is None else session.lineage.prefix
    for due, event in enumerate(events):
        if event.seq != due:
            raise SessionFormatError(
                f"session {session.id!r} is not whole: event {event.seq} stands where {due} is due"
            )
        try:
            session.surface.check(event)
            commit(event)
            if isinstance(event.data, InboxSpliced) and event.seq >= own:
                session.inbox.check(event.data)
                session.inbox.apply(event.data)
        except (SessionError, DuplicateMessageError) as wrong:
            raise SessionFormatError(f"session {session.id!r}, event {event.seq} ({event.type}): {wrong}") from wrong


def seed(session: Session, events: Iterable[Event], commit: Callable[[Event], None], writer: Writer | None) -> None:
    """Begin a new `session` with `events`, and close them by one `session/end-seed` unless they end with it (RSM-01).

    Raises:
        SessionFormatError: as `adopt`.
        NotJsonError: if one of them cannot be written. In both cases nothing was.
    """
    lines = [(event, encoded(event)) for event in events]
    adopt(session, (event for event, _ in lines), commit)
    if writer is not None:
        for event, line in lines:
            writer.write(event, line)
    if not lines or not isinstance(lines[-1][0].data, EndSeed):
        session.append(EndSeed())


def encoded(event: Event) -> str:
    """The line of an event. Raises NotJsonError."""
    try:
        return event.encode()
    except (ValueError, TypeError, RecursionError) as wrong:
        raise NotJsonError(event.type, "", f"cannot be written without loss: {wrong}") from wrong
