"""What every store that keeps sessions for good does alike: it knows which of them it has open, and closes them."""

from __future__ import annotations

import os

from lifecycle.errors import SessionFormatError, SessionLockedError, StoreError

from .log import Session
from .writing import Hands


class Opened:
    """The sessions that a store has open for writing. `where` names the store in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.hands = Hands()
        self._sessions: dict[str, Session] = {}
        self._closed = False
        self._process = os.getpid()

    def check(self) -> None:
        """Raises StoreError once the store is closed, and what `check_process` raises."""
        self.check_process()
        if self._closed:
            raise StoreError(f"the store {self.where} is closed")

    def check_process(self) -> None:
        """Raises SessionLockedError in a process forked from the one that made the store: the locks stayed there."""
        if os.getpid() != self._process:
            raise SessionLockedError(
                f"the store {self.where} belongs to process {self._process}, from which this one was forked; "
                "make a store of its own here"
            )

    def add(self, session: Session) -> Session:
        """A session was opened."""
        self._sessions[session.id] = session
        return session

    def discard(self, id: str) -> None:
        """A session was closed."""
        self._sessions.pop(id, None)

    async def flush(self, id: str) -> None:
        """Have a session written, if it is open. Raises as `Session.flush`."""
        if id in self._sessions:
            await self._sessions[id].flush()

    async def close(self) -> Exception | None:
        """Close all sessions, even those that cannot be kept; returns the first failure. Closing twice does nothing."""
        failure: Exception | None = None
        if not self._closed:
            for session in tuple(self._sessions.values()):
                try:
                    await session.close()
                except (StoreError, SessionFormatError, SessionLockedError) as failed:
                    failure = failure or failed
                    await session.close(discard=True)
            self._closed = True
            self.hands.close()
        return failure
