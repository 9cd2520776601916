"""Where the lines of one session go in the SQLite store: one transaction a batch.

A commit is not synced (`synchronous=NORMAL`): when the process dies nothing is lost that was committed, and when the
power fails the newest commits may be, but never out of order. `sync` makes all commits so far survive that, too: it
syncs the write-ahead log, in any thread, as a commit with `synchronous=FULL` would.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from lifecycle.errors import StoreError

from .fork import Lineage
from .sqlite_file import LONG_WAIT, SEQ_BITS, connect_to_write, explained, rolled_back
from .store import Summary


class Syncs:
    """Counts the commits to one write-ahead log: a sync is for all sessions whose commits came before it."""

    __slots__ = ("_committed", "_synced")

    def __init__(self) -> None:
        self._committed = self._synced = 0

    def committed(self) -> int:
        """The number of a commit that was just made."""
        self._committed += 1
        return self._committed

    def sync(self, number: int, work: Callable[[], None]) -> None:
        """Do `work`, which syncs the log, unless that was done since the commit of this number."""
        if self._synced < number:
            upto = self._committed
            work()
            self._synced = max(self._synced, upto)


class SinkStore(Protocol):
    """What a sink needs of its store."""

    @property
    def path(self) -> Path: ...

    @property
    def database(self) -> sqlite3.Connection | None:
        """The connection of the event loop's thread; None once the store is closed."""
        ...

    @property
    def syncs(self) -> Syncs:
        """Which commits were synced, of all sessions of the store."""
        ...

    def check_process(self) -> None:
        """Raises SessionLockedError in a process forked from the one that made the store."""
        ...

    def let_go(self, id: str) -> None:
        """Session `id` was closed."""
        ...


class SqliteSink:
    """The rows of one session."""

    __slots__ = ("_commit", "_id", "_lineage", "_store")
    quick = True

    def __init__(self, store: SinkStore, id: str, lineage: Lineage | None) -> None:
        self._store, self._id, self._lineage = store, id, lineage
        self._commit = 0

    def keep(self, lines: Sequence[str], first: int, summary: Summary, *, here: bool) -> None:
        path, database = self._store.path, self._store.database
        if database is None:
            raise StoreError(f"the store {path} is closed")
        if here:
            with explained(path):
                self._keep(database, lines, first, summary)
        else:
            with closing(connect_to_write(path, wait=LONG_WAIT)) as own, explained(path):
                self._keep(own, lines, first, summary)
        self._commit = self._store.syncs.committed()

    def _keep(self, database: sqlite3.Connection, batch: Sequence[str], first: int, summary: Summary) -> None:
        """Put `batch` into the file. Where the file ends is read within the transaction."""
        self._store.check_process()
        database.execute("BEGIN IMMEDIATE")
        try:
            row = database.execute("SELECT key, events FROM sessions WHERE id = ?", (self._id,)).fetchone()
            key, there = self._new_row(database, summary) if row is None else (int(row[0]), int(row[1]))
            if not first <= there <= first + len(batch):
                raise StoreError(
                    f"session {self._id!r} in {self._store.path} was changed behind our back: it holds {there} events "
                    f"where {first} were kept; close it with discard=True and open it again"
                )
            places = range(key << SEQ_BITS | there, (key << SEQ_BITS | first) + len(batch))
            database.executemany("INSERT INTO events VALUES (?, ?)", zip(places, batch[there - first :], strict=True))
            database.execute(
                "UPDATE sessions SET events = ?, updated_at = ?, turns = ?, title = ? WHERE key = ?",
                (first + len(batch), summary.updated_at, summary.turns, summary.title, key),
            )
            database.execute("COMMIT")
        except BaseException:
            rolled_back(database)
            raise

    def _new_row(self, database: sqlite3.Connection, summary: Summary) -> tuple[int, int]:
        parent, prefix = (None, 0) if self._lineage is None else (self._lineage.parent, self._lineage.prefix)
        row = database.execute(
            "INSERT INTO sessions (id, parent, prefix, created_at) VALUES (?, ?, ?, ?) RETURNING key",
            (self._id, parent, prefix, summary.created_at),
        ).fetchone()
        return int(row[0]), 0

    def sync(self) -> None:
        self._store.syncs.sync(self._commit, self._sync)

    def _sync(self) -> None:
        # Never the database itself: to close any descriptor of it drops all locks that SQLite holds on it here.
        path = self._store.path
        with explained(path):
            try:
                log = os.open(f"{path}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
            except FileNotFoundError:  # no write-ahead log: then each commit syncs by itself
                return
            try:
                os.fsync(log)
            finally:
                os.close(log)

    def let_go(self) -> None:
        self._store.let_go(self._id)
