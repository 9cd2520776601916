"""The database behind the PostgreSQL store: connections, tables, leases, and what its failures mean in words."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from lifecycle.errors import SessionExistsError, SessionLockedError, SessionNotFoundError, StoreError

FORMAT = 1
"""The form of the tables. A reader refuses a higher one than it knows."""
_IDLE = 4
"""How many connections wait for the next call."""
_TABLES: tuple[LiteralString, ...] = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    """CREATE TABLE IF NOT EXISTS {schema}.sessions (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        parent text COLLATE "C",
        prefix integer NOT NULL DEFAULT 0,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL DEFAULT 0,
        events integer NOT NULL DEFAULT 0,
        turns integer NOT NULL DEFAULT 0,
        title text NOT NULL DEFAULT '',
        fence bigint NOT NULL DEFAULT 0,
        owner text,
        backend integer,
        backend_start timestamptz,
        lease_until timestamptz
    )""",
    "CREATE INDEX IF NOT EXISTS children ON {schema}.sessions (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS newest ON {schema}.sessions (updated_at DESC, id)",
    """CREATE TABLE IF NOT EXISTS {schema}.events (
        session bigint NOT NULL, seq integer NOT NULL, line text NOT NULL, PRIMARY KEY (session, seq)
    )""",
    "CREATE TABLE IF NOT EXISTS {schema}.format (version integer NOT NULL)",
    "INSERT INTO {schema}.format SELECT %(format)s WHERE NOT EXISTS (SELECT 1 FROM {schema}.format)",
)
HELD: LiteralString = (
    "(s.owner IS NOT NULL AND s.lease_until > clock_timestamp() AND EXISTS (SELECT 1 FROM pg_stat_activity a"
    " WHERE a.pid = s.backend AND (a.backend_start IS NULL OR a.backend_start = s.backend_start)))"
)
"""Whether somebody holds the lease of session `s`: not if the connection is gone that renews it."""


class Database:
    """Connections to one schema. May be used from any thread; every call takes a connection for itself."""

    def __init__(self, conninfo: str, schema: str) -> None:
        try:
            told = conninfo_to_dict(conninfo)
        except psycopg.Error as wrong:
            raise StoreError(
                f"{conninfo.partition(':')[0]!r}... is no way to connect to PostgreSQL: {_line(wrong)}"
            ) from None
        place = f"{told.get('host') or 'localhost'}/{told.get('dbname') or told.get('user') or ''}"
        self.where = f"PostgreSQL {place.rstrip('/')}, schema {schema!r}"
        self.schema = schema
        self._conninfo = conninfo
        self._idle: list[Connection[Any]] = []
        self._mutex = threading.Lock()
        self._made = self._closed = False

    def statement(self, text: LiteralString) -> sql.Composed:
        """`text` with `{schema}` in it as the name of ours."""
        return sql.SQL(text).format(schema=sql.Identifier(self.schema))

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """A connection in a transaction, which is committed at the end of the block. Raises StoreError."""
        with self._explained():
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = psycopg.connect(self._conninfo)
            try:
                with connection.transaction():
                    yield connection
            except BaseException:
                if connection.broken:
                    connection.close()
                raise
            finally:
                with self._mutex:
                    keep = not self._closed and not connection.closed and len(self._idle) < _IDLE
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def make(self) -> None:
        """Make the tables if there are none; several processes may try at once."""
        if not self._made:
            with self.connection() as connection:
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"lifecycle {self.schema}"])
                if not self.exists(connection):
                    if self._has(connection, "sessions") or self._has(connection, "events"):
                        raise StoreError(f"{self.where} holds tables of somebody else; name another database or schema")
                    for table in _TABLES:
                        filled = {"format": FORMAT} if "%(format)s" in table else None
                        connection.execute(self.statement(table), filled)
            self._made = True

    def exists(self, connection: Connection[Any]) -> bool:
        """Whether there are tables. Raises StoreError if they are not of our format."""
        if not self._has(connection, "format"):
            return False
        row = connection.execute(self.statement("SELECT version FROM {schema}.format")).fetchone()
        if row is None or row[0] != FORMAT:
            what = "no format" if row is None else f"format {row[0]!r}"
            raise StoreError(f"{self.where} has {what}, and this version of the program knows format {FORMAT}")
        return True

    def _has(self, connection: Connection[Any], table: str) -> bool:
        row = connection.execute("SELECT to_regclass(%s)", [sql.Identifier(self.schema, table).as_string()]).fetchone()
        return row is not None and row[0] is not None

    def connect(self) -> Connection[Any]:
        """A connection of the caller's own, without transactions."""
        with self._explained():
            return psycopg.connect(self._conninfo, autocommit=True)

    def close(self) -> None:
        """Close all connections."""
        with self._mutex:
            self._closed, idle = True, self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except psycopg.errors.DiskFull as error:
            raise StoreError(
                f"{self.where} cannot be written: the disk of its server is full; free some space there and try again"
            ) from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise StoreError(
                f"{self.where} cannot be written: the database is read-only; make it writable, or name another one"
            ) from error
        except psycopg.OperationalError as error:
            raise StoreError(f"{self.where} cannot be reached or fails: {_line(error)}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreError(f"{self.where} cannot be used: {_line(error)}; grant that, or use another role") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.where} cannot be used: {_line(error)}") from error


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class Lease(NamedTuple):
    """The right to write a session, until somebody has a higher fence."""

    key: int
    fence: int


class Holder:
    """Holds the leases of one store: takes them, renews them in a thread of its own, and gives them back."""

    def __init__(self, database: Database, seconds: float) -> None:
        self._database, self._seconds = database, seconds
        self._owner = uuid.uuid4().hex
        self._mutex = threading.Lock()
        self._renewing: Connection[Any] | None = None
        self._backend: tuple[int, object] = (0, None)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def create(self, id: str) -> Lease:
        """Reserve an id and hold its lease.

        Raises:
            SessionExistsError: if it is kept already.
            SessionLockedError: if somebody is about to write it.
            StoreError: if the database cannot be used.
        """
        self._begin()
        statement = self._database.statement
        with self._database.connection() as connection:
            connection.execute(
                statement("INSERT INTO {schema}.sessions (id, created_at) VALUES (%s, 0) ON CONFLICT DO NOTHING"), [id]
            )
            lease, events = self._take(connection, id)
            if events:
                raise SessionExistsError(
                    f"{self._database.where} holds a session {id!r} already; open it, or choose another id"
                )
            return lease

    def acquire(self, id: str) -> Lease:
        """Hold the lease of a session that is kept. Raises SessionNotFoundError, SessionLockedError and StoreError."""
        with self._database.connection() as connection:
            if not self._database.exists(connection):
                raise SessionNotFoundError(f"{self._database.where} holds no session {id!r}")
        self._begin()
        with self._database.connection() as connection:
            lease, events = self._take(connection, id)
            if not events:
                raise SessionNotFoundError(f"{self._database.where} holds no session {id!r}")
            return lease

    def _take(self, connection: Connection[Any], id: str) -> tuple[Lease, int]:
        where, statement = self._database.where, self._database.statement
        row = connection.execute(
            statement("SELECT s.key, s.events, " + HELD + " FROM {schema}.sessions s WHERE s.id = %s FOR UPDATE"), [id]
        ).fetchone()
        if row is None:
            raise SessionNotFoundError(f"{where} holds no session {id!r}")
        key, events, held = row
        if held:
            raise SessionLockedError(
                f"session {id!r} in {where} is already open for writing, or was until now in a process that may be "
                f"alive; close it there, wait {self._seconds:g} seconds, or open it with read_only=True"
            )
        fence = connection.execute(
            statement(
                "UPDATE {schema}.sessions SET fence = fence + 1, owner = %s, backend = %s, backend_start = %s,"
                " lease_until = clock_timestamp() + make_interval(secs => %s) WHERE key = %s RETURNING fence"
            ),
            [self._owner, *self._backend, self._seconds, key],
        ).fetchone()
        assert fence is not None
        return Lease(key, cast("int", fence[0])), events

    def release(self, lease: Lease) -> None:
        """Give a lease back, if it is still ours; a session that never got an event is forgotten."""
        statement = self._database.statement
        with self._database.connection() as connection:
            connection.execute(
                statement(
                    "UPDATE {schema}.sessions SET owner = NULL, lease_until = NULL WHERE key = %s AND fence = %s"
                ),
                lease,
            )
            connection.execute(
                statement("DELETE FROM {schema}.sessions WHERE key = %s AND fence = %s AND events = 0"), lease
            )

    def _begin(self) -> None:
        """Be ready to hold leases: the connection that renews them is also the sign that we are alive."""
        with self._mutex:
            if self._renewing is not None and not self._renewing.closed:
                return
            self._database.make()
            self._renewing = self._database.connect()
            row = self._renewing.execute(
                "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ).fetchone()
            assert row is not None
            self._backend = cast("int", row[0]), cast("object", row[1])
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="lifecycle-lease", daemon=True)
                self._thread.start()

    def _renew(self) -> None:
        renewal = self._database.statement(
            "UPDATE {schema}.sessions SET lease_until = clock_timestamp() + make_interval(secs => %s) WHERE owner = %s"
        )
        while not self._stop.wait(self._seconds / 3):
            with self._mutex:
                connection = self._renewing
            if connection is not None and not connection.closed:
                with suppress(psycopg.Error):  # then the leases run out, and writing says so
                    connection.execute(renewal, [self._seconds, self._owner])

    def close(self) -> None:
        """Stop renewing. What was not given back is free at once, because the connection is gone."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._renewing is not None:
            self._renewing.close()
            self._renewing = None
