"""Sessions in PostgreSQL, shared by the workers of many machines. Needs the `postgres` extra.

Whoever writes a session holds a lease on it, which a thread of the store renews. A lease ends when it is given back,
when the connection of its store breaks, as it does with the process, or when it was not renewed for `lease_seconds`:
then another worker may take over. It gets a higher fence, and each batch says its fence within its own transaction; so
a writer that was paused and has lost its lease cannot append, whatever it believes.

All calls to the database are made in worker threads, so it runs on asyncio and trio alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio.to_thread
from psycopg import Connection

from lifecycle.errors import (
    SessionFormatError,
    SessionHasChildrenError,
    SessionLockedError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.session.fork import Lineage, cut
from lifecycle.session.ids import check_id, fresh_id
from lifecycle.session.loading import without_collections
from lifecycle.session.log import Session, epoch_ms
from lifecycle.session.opened import Opened
from lifecycle.session.store import SessionInfo, Summary
from lifecycle.session.writing import BatchWriter, Durability, check_durability
from lifecycle.vocabulary.events import Event, decode_event

from .postgres_database import HELD, Database, Holder, Lease

_Events: TypeAlias = "list[Event]"
_Infos: TypeAlias = "list[SessionInfo]"
_COLUMNS = "s.key, s.id, s.parent, s.prefix, s.created_at, s.updated_at, s.events, s.turns, s.title"


class PostgresStore:
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
        self._database = Database(conninfo, schema)
        self._holder = Holder(self._database, lease_seconds)
        self._open = Opened(self._database.where)
        self._durability: Durability = check_durability(durability)
        self._clock = epoch_ms if clock is None else clock

    def __repr__(self) -> str:
        return f"<PostgresStore {self._database.where}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The protocol

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        id = fresh_id(id)
        self._open.check()
        lineage = None if parent is None else Lineage(parent)
        summary = Summary(self._clock())
        sink = await anyio.to_thread.run_sync(self._reserve, id, lineage, summary)
        writer = self._writer(sink, summary, 0)
        return self._open.add(Session(id, lineage=lineage, writer=writer, clock=self._clock))

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        check_id(id)
        self._open.check()
        if read_only:
            info, events = await anyio.to_thread.run_sync(self._load, id)
            return Session.restored(events, id, lineage=info.parent, read_only=True, clock=self._clock)
        sink = await anyio.to_thread.run_sync(self._acquire, id)
        try:
            info, events = await anyio.to_thread.run_sync(self._load, id)
            summary = Summary(info.created_at, info.updated_at, info.turns, info.title)
            writer = self._writer(sink, summary, len(events))
            return self._open.add(Session.restored(events, id, lineage=info.parent, writer=writer, clock=self._clock))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(sink.let_go)
            raise

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        self._open.check()
        return await anyio.to_thread.run_sync(self._list, limit, offset)

    async def delete(self, id: str) -> None:
        check_id(id)
        self._open.check()
        sink = await anyio.to_thread.run_sync(self._acquire, id)
        try:
            await anyio.to_thread.run_sync(self._delete, id)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(sink.let_go)

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        check_id(id)
        child = fresh_id(new_id)
        self._open.check()
        await self._open.flush(id)
        _, source = await anyio.to_thread.run_sync(self._load, id)
        summary = Summary(self._clock())
        sink = await anyio.to_thread.run_sync(self._reserve, child, Lineage(id), summary)
        try:
            events, prefix = cut(source, turn, step, id, self._clock())
            sink.lineage = lineage = Lineage(id, prefix)
            writer = self._writer(sink, summary, 0, held=True)
            session = Session.seeded(events, child, lineage=lineage, writer=writer, clock=self._clock)
            await session.flush()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(sink.let_go)
            raise
        return self._open.add(session)

    async def close(self) -> None:
        failure = await self._open.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._holder.close)
            await anyio.to_thread.run_sync(self._database.close)
        if failure is not None:
            raise failure

    # Within

    def _writer(self, sink: _Sink, summary: Summary, stored: int, *, held: bool = False) -> BatchWriter:
        return BatchWriter(
            sink, sink.id, summary, stored, hands=self._open.hands, durability=self._durability, held=held
        )

    def _sink(self, id: str, lineage: Lineage | None, lease: Lease) -> _Sink:
        return _Sink(self._database, self._holder, self._open, id, lineage, lease, synced=self._durability == "strict")

    def _reserve(self, id: str, lineage: Lineage | None, summary: Summary) -> _Sink:
        parent = None if lineage is None else lineage.parent
        return self._sink(id, lineage, self._holder.create(id, parent, summary.created_at))

    def _acquire(self, id: str) -> _Sink:
        return self._sink(id, None, self._holder.acquire(id))

    def _list(self, limit: int | None, offset: int) -> _Infos:
        database = self._database
        with database.connection() as connection:
            if not database.exists(connection):
                return []
            rows = connection.execute(
                database.statement(
                    f"SELECT {_COLUMNS}, {HELD} FROM {{schema}}.sessions s WHERE s.events > 0"
                    " ORDER BY s.updated_at DESC, s.id LIMIT %s OFFSET %s"
                ),
                [limit, offset],
            ).fetchall()
        return [_info(row) for row in rows]

    def _load(self, id: str) -> tuple[SessionInfo, _Events]:
        database = self._database
        with database.connection() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # both reads see the same moment
            row = None
            if database.exists(connection):
                row = connection.execute(
                    database.statement(
                        f"SELECT {_COLUMNS}, false FROM {{schema}}.sessions s WHERE s.id = %s AND s.events > 0"
                    ),
                    [id],
                ).fetchone()
            if row is None:
                raise SessionNotFoundError(f"{database.where} holds no session {id!r}")
            lines = connection.execute(
                database.statement("SELECT line FROM {schema}.events WHERE session = %s ORDER BY seq"), [row[0]]
            ).fetchall()
        info = _info(row)
        if len(lines) != info.events:
            raise SessionFormatError(
                f"session {id!r} in {database.where} is not whole: {info.events} events were kept, and {len(lines)} "
                "are there"
            )
        try:
            with without_collections():
                return info, [decode_event(line) for (line,) in lines]
        except SessionFormatError as wrong:
            raise type(wrong)(f"session {id!r} in {database.where}: {wrong}") from wrong

    def _delete(self, id: str) -> None:
        statement = self._database.statement
        with self._database.connection() as connection:
            children = connection.execute(
                statement("SELECT id FROM {schema}.sessions WHERE parent = %s AND events > 0 ORDER BY key"), [id]
            ).fetchall()
            if children:
                raise SessionHasChildrenError(id, [child for (child,) in children])
            row = connection.execute(
                statement("DELETE FROM {schema}.sessions WHERE id = %s RETURNING key"), [id]
            ).fetchone()
            if row is not None:
                connection.execute(statement("DELETE FROM {schema}.events WHERE session = %s"), [row[0]])


class _Sink:
    """The rows of one session."""

    quick = False  # a network lies between

    def __init__(
        self,
        database: Database,
        holder: Holder,
        opened: Opened,
        id: str,
        lineage: Lineage | None,
        lease: Lease,
        *,
        synced: bool,
    ) -> None:
        self._database, self._holder, self._opened = database, holder, opened
        self.id, self.lineage, self._lease = id, lineage, lease
        self._synced = synced

    def keep(self, lines: Sequence[str], first: int, summary: Summary, *, here: bool) -> None:
        self._opened.check_process()
        key, statement = self._lease.key, self._database.statement
        with self._database.connection() as connection:
            if not self._synced:
                connection.execute("SET LOCAL synchronous_commit TO off")
            there = self._there(connection)
            if not first <= there <= first + len(lines):
                raise StoreError(
                    f"session {self.id!r} in {self._database.where} was changed behind our back: it holds {there} "
                    f"events where {first} were kept; close it with discard=True and open it again"
                )
            connection.execute(
                statement(
                    "INSERT INTO {schema}.events SELECT %s, %s + n - 1, line"
                    " FROM unnest(%s::text[]) WITH ORDINALITY AS told (line, n)"
                ),
                [key, there, list(lines[there - first :])],
            )
            connection.execute(
                statement(
                    "UPDATE {schema}.sessions SET events = %s, updated_at = %s, turns = %s, title = %s, prefix = %s"
                    " WHERE key = %s"
                ),
                [
                    first + len(lines),
                    summary.updated_at,
                    summary.turns,
                    summary.title,
                    0 if self.lineage is None else self.lineage.prefix,
                    key,
                ],
            )

    def _there(self, connection: Connection[Any]) -> int:
        """How many events are there. Raises SessionLockedError if somebody else has the session by now."""
        row = connection.execute(
            self._database.statement("SELECT events, fence FROM {schema}.sessions WHERE key = %s FOR UPDATE"),
            [self._lease.key],
        ).fetchone()
        if row is None or row[1] != self._lease.fence:
            what = "was deleted" if row is None else "was taken over"
            raise SessionLockedError(
                f"session {self.id!r} in {self._database.where} {what} by another process while this one was silent; "
                "close it with discard=True and open it again"
            )
        return int(row[0])

    def sync(self) -> None:
        """A commit that is flushed has all commits before it flushed."""
        if not self._synced:
            with self._database.connection() as connection:
                connection.execute(
                    self._database.statement(
                        "UPDATE {schema}.sessions SET turns = turns WHERE key = %s AND fence = %s"
                    ),
                    self._lease,
                )

    def let_go(self) -> None:
        self._opened.discard(self.id)
        with suppress(StoreError):  # a lease that cannot be given back runs out
            self._holder.release(self._lease)


def _info(row: Sequence[Any]) -> SessionInfo:
    _, id, parent, prefix, created_at, updated_at, events, turns, title, locked = row
    lineage = None if parent is None else Lineage(parent, prefix)
    return SessionInfo(id, created_at, updated_at, events, turns, title, lineage, locked)
