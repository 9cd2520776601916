"""The write side of a session in the SQLite store: written behind, in batches, never with a gap.

Lines wait here and go to the file in one transaction at the end of a turn, or when 64 are waiting, on the thread of
the event loop (a thread hop costs more than such a commit). `flush` waits for all of them, in a worker thread when
they are many bytes or the file is busy. `synchronous=NORMAL`: when the process dies nothing is lost that was
committed; when the power fails the newest commits may be, but never out of order.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from lifecycle.errors import SessionFormatError, SessionLockedError, StoreError
from lifecycle.vocabulary.events import Event, TurnEnd

from .fork import Lineage
from .sqlite_file import LONG_WAIT, SEQ_BITS, StoreBusyError, connect_to_write, explained, rolled_back
from .store import Summary

_logger = logging.getLogger("lifecycle")
_BATCH = 64
_LARGE = 1_000_000
"""From this many characters on, a flush takes a worker thread."""


class WriterStore(Protocol):
    """What a writer needs of its store."""

    @property
    def path(self) -> Path: ...

    @property
    def database(self) -> sqlite3.Connection | None:
        """The connection of the event loop's thread; None once the store is closed."""
        ...

    def check_process(self) -> None:
        """Raises SessionLockedError in a process forked from the one that made the store."""
        ...

    def let_go(self, id: str) -> None:
        """Session `id` was closed."""
        ...


class Writer:
    """The write side of one session: the lines that wait, and how many the file holds."""

    __slots__ = (
        "_closed",
        "_due",
        "_elsewhere",
        "_failing",
        "_held",
        "_id",
        "_lineage",
        "_size",
        "_store",
        "_stored",
        "_summary",
        "_waiting",
    )

    def __init__(
        self, store: WriterStore, id: str, lineage: Lineage | None, summary: Summary, stored: int, *, held: bool = False
    ) -> None:
        self._store = store
        self._id = id
        self._lineage = lineage
        self._summary = summary
        self._stored = stored
        self._held = held
        """Whether nothing is committed before the first flush: a fork is kept whole or not at all."""
        self._waiting: list[str] = []
        self._size = 0
        self._due = _BATCH
        self._failing = False
        self._closed = False
        self._elsewhere: anyio.Event | None = None

    def write(self, event: Event, line: str) -> None:
        self._summary.add(event)
        self._waiting.append(line)
        self._size += len(line)
        due = len(self._waiting) >= self._due or isinstance(event.data, TurnEnd)
        if due and not self._held and self._elsewhere is None:
            self._commit_quietly()

    def _commit_quietly(self) -> None:
        try:
            self._commit()
        except (StoreError, SessionFormatError, SessionLockedError) as failed:
            self._due = len(self._waiting) + _BATCH  # not again at every line
            if not self._failing:
                self._failing = True
                _logger.warning("session %r: %s (its events wait in memory; a flush tries again)", self._id, failed)

    def _commit(self) -> None:
        """Commit what waits, on this thread."""
        database = self._store.database
        if database is None:
            raise StoreError(f"the store {self._store.path} is closed")
        with explained(self._store.path):
            self._keep(database, self._waiting, self._stored)
        self._kept(len(self._waiting))

    async def _commit_elsewhere(self) -> None:
        """Commit what waits in a worker thread, which may take its time; lines that come meanwhile wait behind."""
        batch, first = self._waiting[:], self._stored

        def work() -> None:
            path = self._store.path
            with closing(connect_to_write(path, wait=LONG_WAIT)) as database, explained(path):
                self._keep(database, batch, first)

        self._elsewhere = anyio.Event()
        try:
            await anyio.to_thread.run_sync(work)
            self._kept(len(batch))
        finally:
            self._elsewhere.set()
            self._elsewhere = None

    def _kept(self, count: int) -> None:
        self._stored += count
        if count == len(self._waiting):
            self._waiting.clear()
            self._size = 0
        else:
            self._size -= sum(map(len, self._waiting[:count]))
            del self._waiting[:count]
        self._due = _BATCH
        self._failing = self._held = False

    def _keep(self, database: sqlite3.Connection, batch: list[str], first: int) -> None:
        """Put `batch`, which begins at seq `first`, into the file. Runs on any thread; changes nothing in here.

        Where the file ends is read within the transaction. If a host has cancelled the wait for a worker thread, that
        thread may have put some of these lines there already; they are left out.
        """
        self._store.check_process()
        database.execute("BEGIN IMMEDIATE")
        try:
            row = database.execute("SELECT key, events FROM sessions WHERE id = ?", (self._id,)).fetchone()
            key, there = self._new_row(database) if row is None else (int(row[0]), int(row[1]))
            if not first <= there <= first + len(batch):
                raise StoreError(
                    f"session {self._id!r} in {self._store.path} was changed behind our back: it holds {there} events "
                    f"where {first} were kept; close it with discard=True and open it again"
                )
            places = range(key << SEQ_BITS | there, (key << SEQ_BITS | first) + len(batch))
            database.executemany("INSERT INTO events VALUES (?, ?)", zip(places, batch[there - first :], strict=True))
            summary = self._summary
            database.execute(
                "UPDATE sessions SET events = ?, updated_at = ?, turns = ?, title = ? WHERE key = ?",
                (first + len(batch), summary.updated_at, summary.turns, summary.title, key),
            )
            database.execute("COMMIT")
        except BaseException:
            rolled_back(database)
            raise

    def _new_row(self, database: sqlite3.Connection) -> tuple[int, int]:
        parent, prefix = (None, 0) if self._lineage is None else (self._lineage.parent, self._lineage.prefix)
        row = database.execute(
            "INSERT INTO sessions (id, parent, prefix, created_at) VALUES (?, ?, ?, ?) RETURNING key",
            (self._id, parent, prefix, self._summary.created_at),
        ).fetchone()
        return int(row[0]), 0

    async def flush(self) -> None:
        while self._waiting or self._elsewhere is not None:
            if self._elsewhere is not None:
                await self._elsewhere.wait()
            elif self._size > _LARGE:
                await self._commit_elsewhere()
            else:
                try:
                    self._commit()
                except StoreBusyError:
                    await self._commit_elsewhere()

    async def close(self, *, discard: bool) -> None:
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self.flush()
            except (StoreError, SessionFormatError, SessionLockedError) as failed:
                if not discard:
                    raise
                _logger.warning("session %r: %s (%d events are lost)", self._id, failed, len(self._waiting))
        if not self._closed:  # two tasks may have waited for the same flush
            self._closed = True
            self._store.let_go(self._id)
