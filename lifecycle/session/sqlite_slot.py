"""Where one session is kept in the SQLite store: a row about it, and a row an event. One transaction a batch.

A commit is not synced (`synchronous=NORMAL`): when the process dies nothing is lost that was committed, and when the
power fails the newest commits may be, but never out of order. `sync` makes all commits so far survive that, too: it
syncs the write-ahead log, in any thread, as a commit with `synchronous=FULL` would.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lifecycle.errors import SessionHasChildrenError, StoreError

from .base import Kept
from .fork import Lineage
from .loading import decoded
from .rows import COLUMNS, Row
from .sqlite_file import (
    LONG_WAIT,
    SEQ_BITS,
    connect_to_read,
    connect_to_write,
    explained,
    rolled_back,
)
from .store import Summary
from .writing import BatchWriter

if TYPE_CHECKING:
    from .sqlite import SqliteStore


_LINES = "SELECT CAST(line AS BLOB) FROM events WHERE place >= ? AND place < ? ORDER BY place"
"""As bytes: what is no text is damage, and who reads it says so."""


_MOVE_ON = (
    "UPDATE sessions SET events = ?, updated_at = ?, turns = ?, title = ? WHERE key = ? AND id = ? AND events = ?"
)
"""Changes nothing where the session does not stand where we left it."""


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


class SqliteSlot:
    """The rows of one session."""

    __slots__ = ("_commit", "_key", "_lineage", "_store", "id")
    quick = True

    def __init__(self, store: SqliteStore, id: str) -> None:
        self._store, self.id = store, id
        self._lineage: Lineage | None = None
        self._commit = 0
        self._key: int | None = None
        """Of its row, once this slot has committed something to it."""

    # -- by whom it is written ------------------------------------------------------------------------------------

    def reserve(self) -> None:
        self._lock()
        assert self._store.database is not None
        try:
            with explained(self._store.path):
                if self._row(self._store.database) is not None:
                    raise self._store.exists(self.id)
        except BaseException:
            self.let_go()
            raise

    def acquire(self) -> None:
        if self._store.database is None:  # there is no file
            raise self._store.not_found(self.id)
        self._lock()

    def _lock(self) -> None:
        with explained(self._store.path):
            self._store.locks.acquire(self.id)

    def let_go(self) -> None:
        self._store.opened.pop(self.id, None)
        self._store.locks.release(self.id)

    # -- reading and removing, in a worker thread -----------------------------------------------------------------

    def load(self) -> Kept:
        path = self._store.path
        with explained(path):
            database = connect_to_read(path)
            if database is None:
                raise self._store.not_found(self.id)
            with closing(database):
                database.execute("BEGIN")  # both reads see the same moment
                row = self._row(database)
                if row is None:
                    raise self._store.not_found(self.id)
                lines: list[Any] = database.execute(_LINES, _places(row)).fetchall()
        return Kept(row.lineage, row.summary(), decoded([line for (line,) in lines], row.events, self.id, str(path)))

    def lines(self) -> Iterator[bytes]:
        with explained(self._store.path):
            database = connect_to_read(self._store.path)
            row = None if database is None else self._row(database)
            if database is None or row is None:
                raise self._store.not_found(self.id)
            with closing(database):
                for (line,) in database.execute(_LINES, _places(row)):
                    yield line + b"\n"

    def _row(self, database: sqlite3.Connection) -> Row | None:
        row = database.execute(f"SELECT {COLUMNS} FROM sessions WHERE id = ?", (self.id,)).fetchone()
        return None if row is None else Row(*row)

    def remove(self) -> None:
        with closing(connect_to_write(self._store.path, wait=LONG_WAIT)) as database, explained(self._store.path):
            database.execute("BEGIN IMMEDIATE")
            try:
                row = self._row(database)
                if row is None:
                    raise self._store.not_found(self.id)
                children = database.execute("SELECT id FROM sessions WHERE parent = ? ORDER BY key", (self.id,))
                if ids := [id for (id,) in children]:
                    raise SessionHasChildrenError(self.id, ids)
                database.execute("DELETE FROM sessions WHERE key = ?", (row.key,))
                database.execute("DELETE FROM events WHERE place >= ? AND place < ?", _places(row))
                database.execute("COMMIT")
            except BaseException:
                rolled_back(database)
                raise

    # -- writing --------------------------------------------------------------------------------------------------

    def writer(self, kept: Kept, *, held: bool = False) -> BatchWriter:
        self._lineage = kept.lineage
        return self._store.batches(self, self.id, kept, held=held)

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
        """Put `batch` into the file. Where the file ends is seen within the transaction."""
        self._store.check_process()
        end, key, there = first + len(batch), self._key, first
        told = end, summary.updated_at, summary.turns, summary.title
        database.execute("BEGIN IMMEDIATE")
        try:
            if key is None or not database.execute(_MOVE_ON, (*told, key, self.id, there)).rowcount:
                key, there = self._place(database, summary)
                if not first <= there <= end:
                    raise StoreError(
                        f"session {self.id!r} in {self._store.path} was changed behind our back: it holds {there} "
                        f"events where {first} were kept; close it with discard=True and open it again"
                    )
                database.execute(_MOVE_ON, (*told, key, self.id, there))
            places = range(key << SEQ_BITS | there, (key << SEQ_BITS | first) + len(batch))
            database.executemany("INSERT INTO events VALUES (?, ?)", zip(places, batch[there - first :], strict=True))
            database.execute("COMMIT")
        except BaseException:
            rolled_back(database)
            raise
        self._key = key

    def _place(self, database: sqlite3.Connection, summary: Summary) -> tuple[int, int]:
        """The key of the session, and how many events are there; its row is made if there is none."""
        row = database.execute("SELECT key, events FROM sessions WHERE id = ?", (self.id,)).fetchone()
        return self._new_row(database, summary) if row is None else (int(row[0]), int(row[1]))

    def _new_row(self, database: sqlite3.Connection, summary: Summary) -> tuple[int, int]:
        parent, prefix = (None, 0) if self._lineage is None else (self._lineage.parent, self._lineage.prefix)
        row = database.execute(
            "INSERT INTO sessions (id, parent, prefix, created_at) VALUES (?, ?, ?, ?) RETURNING key",
            (self.id, parent, prefix, summary.created_at),
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


def _places(row: Row) -> tuple[int, int]:
    """Where the events of a session stand: from here, and up to there."""
    return row.key << SEQ_BITS, row.key + 1 << SEQ_BITS
