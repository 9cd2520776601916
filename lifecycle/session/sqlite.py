"""The default store: sessions in one SQLite file, many processes reading, one writing each session."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread

from lifecycle.errors import StoreError

from .base import StoreBase
from .locks import Locks
from .rows import COLUMNS, Row
from .sqlite_file import LONG_WAIT, connect_to_read, connect_to_write, explained
from .sqlite_slot import SqliteSlot, Syncs
from .store import SessionInfo
from .writing import Durability

_SHORT_WAIT = 0.05
"""Seconds that the event loop's thread may wait for another process's commit."""


class SqliteStore(StoreBase):
    """Sessions in the SQLite file at `path`, which is made with the first session. `async with` closes it at the end.

    The locks that say who writes a session stand beside it, in `path` + "-lock".

    Args:
        durability: What a crash and a loss of power may take; see `lifecycle.session.writing`.
        clock: Gives the time in epoch milliseconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "turn",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = Path(path)
        if self.path.name == ":memory:":
            raise StoreError("SqliteStore keeps sessions in a file; for sessions in memory use MemoryStore")
        super().__init__(str(self.path), durability=durability, clock=clock)
        self.database: sqlite3.Connection | None = None
        """The connection of the event loop's thread, from the first write on; worker threads make their own."""
        self.syncs = Syncs()
        self.locks = Locks(f"{self.path}-lock", self.where)
        self._opening = anyio.Lock()

    def _slot(self, id: str) -> SqliteSlot:
        return SqliteSlot(self, id)

    async def _ready(self, *, make: bool) -> None:
        """Connect; not to a file that is not there, unless something is to be made in it."""
        if self.database is not None or not (make or self.path.exists()):
            return
        async with self._opening:
            if self.database is None:
                database = await anyio.to_thread.run_sync(lambda: connect_to_write(self.path, wait=LONG_WAIT))
                database.execute(f"PRAGMA busy_timeout = {int(_SHORT_WAIT * 1000)}")
                self.database = database

    def _infos(self, limit: int | None, offset: int) -> Sequence[SessionInfo]:
        with explained(self.path):
            database = connect_to_read(self.path)
            if database is None:
                return ()
            with closing(database):
                rows = [
                    Row(*row)
                    for row in database.execute(
                        f"SELECT {COLUMNS} FROM sessions ORDER BY updated_at DESC, id LIMIT ? OFFSET ?",
                        (-1 if limit is None else limit, offset),
                    )
                ]
            held = self.locks.held(row.id for row in rows)
        return [row.summary().info(row.id, row.events, row.lineage, locked=row.id in held) for row in rows]

    async def _shut(self) -> None:
        if self.database is not None:
            self.database.close()
            self.database = None
        self.locks.leave()
