"""The file of the SQLite store: its form, how it is opened, and what its failures mean in words."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from lifecycle.errors import SessionError, SessionFormatError, StoreBusyError, StoreError

from . import disk
from .reading import LONGEST_LINE

APPLICATION_ID = 0x7475726E
"""Stands in the file's header and tells our databases from those of others ("turn")."""
FORMAT = 1
"""The form of the tables. A reader refuses a higher one than it knows."""
SEQ_BITS = 32
"""An event's place is its session's key above its seq: one ordered integer key, so that a log lies together."""

LONG_WAIT = 10.0
"""Seconds that a worker thread may wait for another process's commit."""

_FULL = "{path} cannot be written: its disk is full; free some space and try again"
_NOT_WRITABLE = (
    "{path} cannot be written: the file, its folder or its disk is read-only; make it writable, or name another file"
)

_TABLES = (
    """CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        parent TEXT,
        prefix INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL DEFAULT 0,
        events INTEGER NOT NULL DEFAULT 0,
        turns INTEGER NOT NULL DEFAULT 0,
        title TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX children ON sessions (parent) WHERE parent IS NOT NULL",
    "CREATE TABLE events (place INTEGER PRIMARY KEY, line TEXT NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


def connect_to_write(path: Path, *, wait: float) -> sqlite3.Connection:
    """A connection that can write, waiting up to `wait` seconds for others; the file is made if there is none.

    Raises:
        StoreError: if it cannot be written.
        SessionFormatError: if it is not ours, or newer than we are.
    """
    return _connected(path, "mode=rwc", wait, write=True)


def connect_to_read(path: Path) -> sqlite3.Connection | None:
    """A connection that changes nothing; None if there is nothing to read yet. Raises as `connect_to_write`."""
    with explained(path):
        kind = _check_kind(path)
        if kind is None or not kind.st_size:
            return None
    try:
        return _connected(path, "mode=ro", 1.0, write=False)
    except StoreBusyError:
        raise
    except StoreError:
        # A WAL database in a folder that cannot be written: readable all the same, if there is no WAL to be read.
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        return _connected(path, "immutable=1", 1.0, write=False)


def _connected(path: Path, how: str, wait: float, *, write: bool) -> sqlite3.Connection:
    with explained(path):
        _check_kind(path)
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?{how}", uri=True, timeout=wait, isolation_level=None, check_same_thread=False
        )
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_LINE + 1_000)  # a row is a little more
        try:
            if write:
                _make(database)
            _check(database, path)
            if write:
                _prepare(database)
        except BaseException:
            database.close()
            raise
        return database


def _check_kind(path: Path) -> os.stat_result | None:
    """What stands there; None if nothing does. Raises StoreError if it can hold no database."""
    try:
        there = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(there.st_mode):
        raise StoreError(f"{path} is a directory; name a file in it, such as {path / 'sessions.db'}")
    if not stat.S_ISREG(there.st_mode):
        raise StoreError(f"{path} is no ordinary file, so it holds no sessions; name another file")
    return there


def _number(database: sqlite3.Connection, statement: str) -> int:
    return int(database.execute(statement).fetchone()[0])


def _is_new(database: sqlite3.Connection) -> bool:
    return not _number(database, "SELECT count(*) FROM sqlite_schema") and not _number(
        database, "PRAGMA application_id"
    )


def _make(database: sqlite3.Connection) -> None:
    """Make the tables, if the file is new; two processes may try at once."""
    if _is_new(database):
        database.execute("BEGIN IMMEDIATE")
        try:
            if _is_new(database):
                for statement in _TABLES:
                    database.execute(statement)
            database.execute("COMMIT")
        except BaseException:
            rolled_back(database)
            raise


def _check(database: sqlite3.Connection, path: Path) -> None:
    if _number(database, "PRAGMA application_id") != APPLICATION_ID:
        raise SessionFormatError(f"{path} is a database, but not one of sessions; name another file")
    version = _number(database, "PRAGMA user_version")
    if version != FORMAT:
        raise SessionFormatError(
            f"{path} has format {version}, and this version of the program knows format {FORMAT}; "
            "use a newer version of it, or name another file"
        )


def _prepare(database: sqlite3.Connection) -> None:
    if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Refused while another process reads; that process, or the next one to come, does it then.
        with suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("BEGIN IMMEDIATE")  # fails here, and not at the end of a turn, where the file cannot be written
    database.execute("ROLLBACK")


def rolled_back(database: sqlite3.Connection) -> None:
    """End a transaction that failed; SQLite may have done it already."""
    if database.in_transaction:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn failures of SQLite and of the system within the block into errors of ours."""
    try:
        yield
    except OSError as error:
        raise disk.failure(path, error, "file") from error
    except sqlite3.Error as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.Error) -> SessionError:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the higher bits say more than people need
        case sqlite3.SQLITE_NOTADB:
            return SessionFormatError(f"{path} is not a session store: it is no SQLite database; name another file")
        case sqlite3.SQLITE_CORRUPT:
            return SessionFormatError(f"{path} is damaged ({error}); restore it from a copy, or name another file")
        case sqlite3.SQLITE_TOOBIG:
            return SessionFormatError(
                f"{path} is damaged: it holds what is longer than {LONGEST_LINE >> 20} MiB, so it is no event; restore "
                "it from a copy, or name another file"
            )
        case sqlite3.SQLITE_FULL:
            return StoreError(_FULL.format(path=path))
        case sqlite3.SQLITE_READONLY:
            return StoreError(_NOT_WRITABLE.format(path=path))
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(_cannot_open(path))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(f"{path} is busy: another process is writing to it; try again")
        case sqlite3.SQLITE_IOERR if _is_full(path.absolute().parent):
            return StoreError(_FULL.format(path=path))
        case sqlite3.SQLITE_IOERR:
            return StoreError(
                f"{path} cannot be read or written: its disk fails, or a limit on its size is reached ({error}); "
                "check the disk, or name another file"
            )
        case _:
            return StoreError(f"{path} cannot be used: {error}")


def _cannot_open(path: Path) -> str:
    folder = path.absolute().parent
    if not os.path.isdir(folder):  # never raises, unlike Path.is_dir
        what = "is no folder" if os.path.lexists(folder) else "does not exist; make it"
        return f"{path} cannot be opened: its folder {folder} {what}, or name another file"
    if os.path.exists(path) and not os.access(path, os.R_OK):
        return f"{path} cannot be opened: no permission to read it; change that, or name another file"
    if _is_read_only(folder):
        return _NOT_WRITABLE.format(path=path)
    denied = path if os.access(folder, os.W_OK | os.X_OK) else folder
    return f"{path} cannot be opened: no permission to write {denied}; change that, or name another file"


def _is_read_only(folder: Path) -> bool:
    """Whether the disk of `folder` takes no writes, where the system says so."""
    return hasattr(os, "statvfs") and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _is_full(folder: Path) -> bool:
    """Whether what SQLite needs to begin with does not fit on the disk of `folder`, where the system says so."""
    if not hasattr(os, "statvfs") or not os.path.isdir(folder):
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < 1 << 16
