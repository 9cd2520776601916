"""Sessions in PostgreSQL, shared by the workers of many machines. Needs the `postgres` extra.

Whoever writes a session holds a lease on it, which a thread of the store renews. A lease ends when it is given back,
when the connection of its store breaks, as it does with the process, or when it was not renewed for `lease_seconds`:
then another worker may take over. It gets a higher fence, and each batch says its fence within its own transaction; so
a writer that was paused and has lost its lease cannot append, whatever it believes.

All calls to the database are made in worker threads, so it runs on asyncio and trio alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import anyio.to_thread
from psycopg import Connection

from lifecycle.errors import SessionFormatError, SessionHasChildrenError, SessionLockedError, StoreError
from lifecycle.session.base import Kept, StoreBase
from lifecycle.session.loading import decoded
from lifecycle.session.reading import LONGEST_LINE
from lifecycle.session.rows import COLUMNS, Row
from lifecycle.session.store import SessionInfo, Summary
from lifecycle.session.writing import BatchWriter, Durability

from .postgres_database import HELD, Database, Holder, Lease


class PostgresStore(StoreBase):
    """Sessions in a schema of a PostgreSQL database, which is made with the first one. `async with` closes the store.

    Args:
        conninfo: How to connect, as libpq understands it; passwords belong into its environment or password file.
        schema: Where the tables are.
        durability: What a crash and a loss of power may take; see `lifecycle.session.writing`. "written" means that the
            server has it; "synced" that it has flushed it (`synchronous_commit`).
        lease_seconds: How long a writer may be silent before another one may take its session over.
        clock: Gives the time in epoch milliseconds.

    Raises:
        StoreError: for a durability that there is not, or a lease without a duration.
    """

    def __init__(
        self,
        conninfo: str = "",
        *,
        schema: str = "lifecycle",
        durability: Durability = "turn",
        lease_seconds: float = 30.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        if not lease_seconds > 0:
            raise StoreError(f"a lease lasts some seconds, not {lease_seconds}")
        self.database = Database(conninfo, schema)
        super().__init__(self.database.where, durability=durability, clock=clock)
        self.holder = Holder(self.database, lease_seconds)

    def _slot(self, id: str) -> _Slot:
        return _Slot(self, id)

    def _infos(self, limit: int | None, offset: int) -> Sequence[SessionInfo]:
        database = self.database
        with database.connection() as connection:
            if not database.exists(connection):
                return []
            rows = connection.execute(
                database.statement(
                    f"SELECT {COLUMNS}, {HELD} FROM {{schema}}.sessions s WHERE events > 0"
                    " ORDER BY updated_at DESC, id LIMIT %s OFFSET %s"
                ),
                [limit, offset],
            ).fetchall()
        found = ((Row(*row), locked) for *row, locked in rows)
        return [row.summary().info(row.id, row.events, row.lineage, locked=locked) for row, locked in found]

    async def _shut(self) -> None:
        await anyio.to_thread.run_sync(self.holder.close)
        await anyio.to_thread.run_sync(self.database.close)


class _Slot:
    """The rows of one session. Everything here runs in worker threads."""

    __slots__ = ("_kept", "_lease", "_store", "id")
    quick = False  # a network lies between

    def __init__(self, store: PostgresStore, id: str) -> None:
        self._store, self.id = store, id
        self._lease: Lease
        self._kept: Kept
        """What the session began with when it was opened."""

    # -- by whom it is written ------------------------------------------------------------------------------------

    def reserve(self) -> None:
        self._lease = self._store.holder.create(self.id)

    def acquire(self) -> None:
        self._lease = self._store.holder.acquire(self.id)

    def let_go(self) -> None:
        self._store.opened.pop(self.id, None)
        with suppress(StoreError):  # a lease that cannot be given back runs out
            self._store.holder.release(self._lease)

    # -- reading and removing -------------------------------------------------------------------------------------

    def load(self) -> Kept:
        row, lines = self._read()
        if None in lines:
            raise self._too_long(lines.index(None))
        events = decoded([line for line in lines if line is not None], row.events, self.id, self._store.where)
        return Kept(row.lineage, row.summary(), events)

    def lines(self) -> Iterator[bytes]:
        for seq, line in enumerate(self._read()[1]):
            if line is None:
                raise self._too_long(seq)
            yield f"{line}\n".encode()

    def _read(self) -> tuple[Row, Sequence[str | None]]:
        """What is kept, with None in the place of a line that is too long."""
        database = self._store.database
        with database.connection() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # both reads see the same moment
            found = None
            if database.exists(connection):
                found = connection.execute(
                    database.statement(f"SELECT {COLUMNS} FROM {{schema}}.sessions WHERE id = %s AND events > 0"),
                    [self.id],
                ).fetchone()
            if found is None:
                raise self._store.not_found(self.id)
            row = Row(*found)
            lines = connection.execute(
                database.statement(
                    "SELECT CASE WHEN octet_length(line) <= %s THEN line END FROM {schema}.events WHERE session = %s"
                    " ORDER BY seq"
                ),
                [LONGEST_LINE, row.key],
            ).fetchall()
        return row, [line for (line,) in lines]

    def _too_long(self, seq: int) -> SessionFormatError:
        return SessionFormatError(
            f"session {self.id!r} in {self._store.where} is damaged: event {seq} is longer than {LONGEST_LINE >> 20} "
            "MiB, so it is none"
        )

    def remove(self) -> None:
        statement = self._store.database.statement
        with self._store.database.connection() as connection:
            children = connection.execute(
                statement("SELECT id FROM {schema}.sessions WHERE parent = %s AND events > 0 ORDER BY key"), [self.id]
            ).fetchall()
            if children:
                raise SessionHasChildrenError(self.id, [child for (child,) in children])
            self._there(connection)
            connection.execute(statement("DELETE FROM {schema}.sessions WHERE key = %s"), [self._lease.key])
            connection.execute(statement("DELETE FROM {schema}.events WHERE session = %s"), [self._lease.key])

    # -- writing --------------------------------------------------------------------------------------------------

    def writer(self, kept: Kept, *, held: bool = False) -> BatchWriter:
        self._kept = kept
        return self._store.batches(self, self.id, kept, held=held)

    @property
    def _synced(self) -> bool:
        """Whether every commit is flushed by itself."""
        return self._store.durability == "strict"

    def keep(self, lines: Sequence[str], first: int, summary: Summary, *, here: bool) -> None:
        self._store.check_process()
        key, statement = self._lease.key, self._store.database.statement
        with self._store.database.connection() as connection:
            if not self._synced:
                connection.execute("SET LOCAL synchronous_commit TO off")
            there = self._there(connection)
            if not first <= there <= first + len(lines):
                raise StoreError(
                    f"session {self.id!r} in {self._store.where} was changed behind our back: it holds {there} "
                    f"events where {first} were kept; close it with discard=True and open it again"
                )
            connection.execute(
                statement(
                    "INSERT INTO {schema}.events SELECT %s, %s + n - 1, line"
                    " FROM unnest(%s::text[]) WITH ORDINALITY AS told (line, n)"
                ),
                [key, there, list(lines[there - first :])],
            )
            lineage = self._kept.lineage
            connection.execute(
                statement(
                    "UPDATE {schema}.sessions SET parent = %s, prefix = %s, created_at = %s, updated_at = %s,"
                    " events = %s, turns = %s, title = %s WHERE key = %s"
                ),
                [
                    None if lineage is None else lineage.parent,
                    0 if lineage is None else lineage.prefix,
                    summary.created_at,
                    summary.updated_at,
                    first + len(lines),
                    summary.turns,
                    summary.title,
                    key,
                ],
            )

    def _there(self, connection: Connection[Any]) -> int:
        """How many events are there. Raises SessionLockedError if somebody else has the session by now."""
        row = connection.execute(
            self._store.database.statement("SELECT events, fence FROM {schema}.sessions WHERE key = %s FOR UPDATE"),
            [self._lease.key],
        ).fetchone()
        if row is None or row[1] != self._lease.fence:
            what = "was deleted" if row is None else "was taken over"
            raise SessionLockedError(
                f"session {self.id!r} in {self._store.where} {what} by another process while this one was silent; "
                "close it with discard=True and open it again"
            )
        return int(row[0])

    def sync(self) -> None:
        """A commit that is flushed has all commits before it flushed."""
        if not self._synced:
            with self._store.database.connection() as connection:
                connection.execute(
                    self._store.database.statement(
                        "UPDATE {schema}.sessions SET turns = turns WHERE key = %s AND fence = %s"
                    ),
                    self._lease,
                )
