"""The default store: sessions in one SQLite file, many processes reading, one writing each session."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio
import anyio.to_thread

from lifecycle.errors import (
    SessionExistsError,
    SessionFormatError,
    SessionHasChildrenError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.vocabulary.events import Event, decode_event

from .fork import Lineage, cut
from .ids import check_id, fresh_id
from .loading import without_collections
from .locks import LockFile
from .log import Session, epoch_ms
from .opened import Opened
from .sqlite_file import LONG_WAIT, SEQ_BITS, connect_to_read, connect_to_write, explained, rolled_back
from .sqlite_writer import SqliteSink, Syncs
from .store import SessionInfo, Summary
from .writing import BatchWriter, Durability, check_durability

_SHORT_WAIT = 0.05
"""Seconds that the event loop's thread may wait for another process's commit."""
_Rows: TypeAlias = "list[Any]"
_Events: TypeAlias = "list[Event]"
_COLUMNS = "key, id, parent, prefix, created_at, updated_at, events, turns, title"


class SqliteStore:
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
        self.database: sqlite3.Connection | None = None
        """The connection of the event loop's thread; worker threads make their own."""
        self.syncs = Syncs()
        self._clock = epoch_ms if clock is None else clock
        self._locks: LockFile | None = None
        self._open = Opened(str(self.path))
        self._durability: Durability = check_durability(durability)
        self._opening = anyio.Lock()
        if self.path.name == ":memory:":
            raise StoreError("SqliteStore keeps sessions in a file; for sessions in memory use MemoryStore")

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The protocol

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        id = fresh_id(id)
        await self._reserve(id)
        lineage = None if parent is None else Lineage(parent)
        writer = self._writer(id, lineage, Summary(self._clock()), 0)
        return self._open.add(Session(id, lineage=lineage, writer=writer, clock=self._clock))

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        check_id(id)
        self._open.check()
        if read_only:
            info, events = await anyio.to_thread.run_sync(self._load, id)
            return Session.restored(events, id, lineage=info.parent, read_only=True, clock=self._clock)
        locks = await self._writable(id)
        locks.acquire(id, str(self.path))
        try:
            info, events = await anyio.to_thread.run_sync(self._load, id)
            summary = Summary(info.created_at, info.updated_at, info.turns, info.title)
            writer = self._writer(id, info.parent, summary, len(events))
            return self._open.add(Session.restored(events, id, lineage=info.parent, writer=writer, clock=self._clock))
        except BaseException:
            locks.release(id)
            raise

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        self._open.check()
        rows = await anyio.to_thread.run_sync(self._rows, limit, offset)
        if not rows:
            return ()
        with explained(self.path):
            locks = LockFile.use(self._lock_path, create=False)
        try:
            return [_info(row, locked=locks is not None and locks.locked(row[1])) for row in rows]
        finally:
            if locks is not None:
                locks.leave()

    async def delete(self, id: str) -> None:
        check_id(id)
        self._open.check()
        locks = await self._writable(id)
        locks.acquire(id, str(self.path))
        try:
            await anyio.to_thread.run_sync(self._delete, id)
        finally:
            locks.release(id)

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        check_id(id)
        child = fresh_id(new_id)
        self._open.check()
        await self._open.flush(id)
        _, source = await anyio.to_thread.run_sync(self._load, id)
        locks = await self._reserve(child)
        try:
            events, prefix = cut(source, turn, step, id, self._clock())
            lineage = Lineage(id, prefix)
            writer = self._writer(child, lineage, Summary(self._clock()), 0, held=True)
            session = Session.seeded(events, child, lineage=lineage, writer=writer, clock=self._clock)
            await session.flush()
        except BaseException:
            locks.release(child)
            raise
        return self._open.add(session)

    async def close(self) -> None:
        failure = await self._open.close()
        if self.database is not None:
            self.database.close()
            self.database = None
        if self._locks is not None:
            self._locks.leave()
            self._locks = None
        if failure is not None:
            raise failure

    # For its writers

    def check_process(self) -> None:
        """Raises SessionLockedError in a process forked from the one that made the store: the locks stayed there."""
        self._open.check_process()

    def let_go(self, id: str) -> None:
        """A session was closed."""
        self._open.discard(id)
        if self._locks is not None:
            self._locks.release(id)

    # Within

    @property
    def _lock_path(self) -> str:
        return f"{self.path}-lock"

    def _writer(
        self, id: str, lineage: Lineage | None, summary: Summary, stored: int, *, held: bool = False
    ) -> BatchWriter:
        sink = SqliteSink(self, id, lineage)
        return BatchWriter(sink, id, summary, stored, hands=self._open.hands, durability=self._durability, held=held)

    async def _writable(self, id: str | None = None) -> LockFile:
        """The locks, with the file open for writing. With `id`, only if the file exists; it would be in vain else."""
        self._open.check()
        if self._locks is None:
            if id is not None and not self.path.exists():
                raise _not_found(id, self.path)
            async with self._opening:
                if self.database is None:
                    database = await anyio.to_thread.run_sync(lambda: connect_to_write(self.path, wait=LONG_WAIT))
                    database.execute(f"PRAGMA busy_timeout = {int(_SHORT_WAIT * 1000)}")
                    self.database = database
                with explained(self.path):
                    self._locks = self._locks or LockFile.use(self._lock_path, create=True)
        assert self._locks is not None
        return self._locks

    async def _reserve(self, id: str) -> LockFile:
        """Become the writer of a session that is to be made."""
        locks = await self._writable()
        locks.acquire(id, str(self.path))
        assert self.database is not None
        try:
            with explained(self.path):
                row = self.database.execute("SELECT 1 FROM sessions WHERE id = ?", (id,)).fetchone()
            if row is not None:
                raise SessionExistsError(f"{self.path} holds a session {id!r} already; open it, or choose another id")
        except BaseException:
            locks.release(id)
            raise
        return locks

    def _rows(self, limit: int | None, offset: int) -> _Rows:
        with explained(self.path):
            database = connect_to_read(self.path)
            if database is None:
                return []
            with closing(database):
                return database.execute(
                    f"SELECT {_COLUMNS} FROM sessions ORDER BY updated_at DESC, id LIMIT ? OFFSET ?",
                    (-1 if limit is None else limit, offset),
                ).fetchall()

    def _load(self, id: str) -> tuple[SessionInfo, _Events]:
        """A session as the file holds it. Runs in a worker thread."""
        with explained(self.path):
            database = connect_to_read(self.path)
            if database is None:
                raise _not_found(id, self.path)
            with closing(database):
                database.execute("BEGIN")  # both reads see the same moment
                row = database.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (id,)).fetchone()
                if row is None:
                    raise _not_found(id, self.path)
                lines: _Rows = database.execute(
                    "SELECT line FROM events WHERE place >= ? AND place < ? ORDER BY place",
                    (row[0] << SEQ_BITS, row[0] + 1 << SEQ_BITS),
                ).fetchall()
        info = _info(row)
        if len(lines) != info.events:
            raise SessionFormatError(
                f"session {id!r} in {self.path} is not whole: {info.events} events were kept, "
                f"and {len(lines)} are there"
            )
        try:
            with without_collections():
                return info, [decode_event(line) for (line,) in lines]
        except SessionFormatError as wrong:
            raise type(wrong)(f"session {id!r} in {self.path}: {wrong}") from wrong

    def _delete(self, id: str) -> None:
        with closing(connect_to_write(self.path, wait=LONG_WAIT)) as database, explained(self.path):
            database.execute("BEGIN IMMEDIATE")
            try:
                row = database.execute("SELECT key FROM sessions WHERE id = ?", (id,)).fetchone()
                if row is None:
                    raise _not_found(id, self.path)
                children = database.execute("SELECT id FROM sessions WHERE parent = ? ORDER BY key", (id,)).fetchall()
                if children:
                    raise SessionHasChildrenError(id, [child for (child,) in children])
                database.execute("DELETE FROM sessions WHERE key = ?", (row[0],))
                database.execute(
                    "DELETE FROM events WHERE place >= ? AND place < ?",
                    (row[0] << SEQ_BITS, row[0] + 1 << SEQ_BITS),
                )
                database.execute("COMMIT")
            except BaseException:
                rolled_back(database)
                raise


def _info(row: Any, *, locked: bool = False) -> SessionInfo:
    _, id, parent, prefix, created_at, updated_at, events, turns, title = row
    lineage = None if parent is None else Lineage(parent, prefix)
    return SessionInfo(id, created_at, updated_at, events, turns, title, lineage, locked)


def _not_found(id: str, path: Path) -> SessionNotFoundError:
    return SessionNotFoundError(f"{path} holds no session {id!r}")
