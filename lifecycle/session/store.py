"""Stores: what keeps sessions. The protocol, and what every store tells about a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lifecycle.vocabulary.events import Event, TurnStart, UserMessageEvent
from lifecycle.vocabulary.messages import text_of

from .fork import Lineage
from .log import Session

_LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of a store, as it is kept there. Times in epoch milliseconds."""

    id: str
    created_at: int
    updated_at: int
    events: int
    turns: int
    """The number of the newest turn."""
    title: str
    """The first line that a person typed, shortened; empty if nobody has."""
    parent: Lineage | None = None
    locked: bool = False
    """Whether somebody has it open for writing."""


@runtime_checkable
class Store(Protocol):
    """Keeps sessions. One process at a time writes a session; reading is always possible.

    A session that was created and never got an event is not kept. Use one store from one event loop, and close it.
    """

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        """A new, empty session; `parent` names the session on whose behalf it works, if there is one.

        Raises:
            SessionExistsError: if `id` is kept already.
            SessionLockedError: if somebody is about to write it.
            SessionError: if `id` cannot be one.
            StoreError: if the store cannot be written.
        """
        ...

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        """A session as it is kept, to go on with or, with `read_only`, to look at.

        Raises:
            SessionNotFoundError: if there is none.
            SessionLockedError: if somebody writes it; never with `read_only`.
            SessionFormatError: if what is kept is no session of ours, or not whole.
            StoreError: if the store cannot be read or, without `read_only`, written.
        """
        ...

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        """Sessions, the newest change first: all, or at most `limit` of them behind the first `offset`.

        Raises StoreError and SessionFormatError.
        """
        ...

    async def delete(self, id: str) -> None:
        """Forget a session.

        Raises:
            SessionNotFoundError: if there is none.
            SessionLockedError: if somebody writes it.
            SessionHasChildrenError: if others were forked from it; it names them.
            StoreError: if the store cannot be written.
        """
        ...

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        """A new session with the beginning of another one, as `Session.fork` says; kept when this returns.

        Raises:
            SessionNotFoundError: if there is no session `id`.
            SessionExistsError: if `new_id` is kept already.
            ForkError: if there is no such boundary.
            StoreError: if the store cannot be written.
        """
        ...

    async def close(self) -> None:
        """Close the sessions that are still open, and let go of everything. Closing twice does nothing.

        Raises:
            StoreError: if a session had events that could not be kept. They are lost; everything is closed.
        """
        ...


def page(infos: Iterable[SessionInfo], limit: int | None, offset: int) -> Sequence[SessionInfo]:
    """What `list` returns of all sessions in whatever order."""
    ordered = sorted(infos, key=lambda info: (-info.updated_at, info.id))
    return ordered[offset : None if limit is None else offset + limit]


class Summary:
    """What `list` tells of a session, kept up to date event by event."""

    __slots__ = ("created_at", "title", "turns", "updated_at")

    def __init__(self, created_at: int, updated_at: int = 0, turns: int = 0, title: str = "") -> None:
        self.created_at = created_at
        self.updated_at = updated_at or created_at
        self.turns = turns
        self.title = title

    def info(self, id: str, events: int, lineage: Lineage | None, *, locked: bool) -> SessionInfo:
        """All that `list` tells."""
        return SessionInfo(id, self.created_at, self.updated_at, events, self.turns, self.title, lineage, locked)

    def add(self, event: Event) -> None:
        """Take one more event into account."""
        self.updated_at = event.time
        data = event.data
        if isinstance(data, TurnStart):
            self.turns = data.turn
        elif not self.title:
            self.title = title_of(event)


def title_of(event: Event) -> str:
    """What a session is called by this event: what a person typed, shortened; empty if nobody did."""
    data = event.data
    if isinstance(data, UserMessageEvent) and data.message.source.get("kind") == "user":
        return shortened(text_of(data.message))
    return ""


def shortened(text: str) -> str:
    """The first line of `text` that says something, in at most 80 printable characters."""
    line = next((line for line in text[:4000].splitlines() if line.strip()), "")
    line = "".join(char for char in " ".join(line.split()) if char.isprintable())
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1].rstrip() + "…"
