"""Sessions in PostgreSQL, on a throw-away server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import count

import anyio
import anyio.to_thread
import pytest

from lifecycle import Agent
from lifecycle.errors import SessionLockedError, SessionNotFoundError, StoreError
from lifecycle.session.log import Session
from lifecycle.session.store import Store
from lifecycle.session.writing import Durability
from lifecycle.testing import STORE_CHECKS, Reply, ScriptedModel, check_store
from lifecycle.testing.stores import write_turn

from .postgres_server import IN_CI, demand

if not IN_CI:
    pytest.importorskip("psycopg", reason="needs the `postgres` extra")
from lifecycle_adapters.postgres import PostgresStore  # only where psycopg is there

pytestmark = pytest.mark.anyio
_numbers = count()


@pytest.fixture
def schema() -> str:
    """One that nobody has used."""
    return f"test {next(_numbers)}"


async def usurp(store: Store, id: str) -> Session:
    """Open the session although another store holds its lease, by the database's leave: as if it had run out."""
    assert isinstance(store, PostgresStore)
    with store.database.connection() as connection:
        statement = "UPDATE {schema}.sessions SET lease_until = clock_timestamp() - interval '1 second'"
        connection.execute(store.database.statement(statement))
    return await store.open(id)


@contextmanager
def hinder(store: Store) -> Generator[None]:
    """No event can be inserted."""
    assert isinstance(store, PostgresStore)
    database = store.database
    with database.connection() as connection:
        connection.execute(
            database.statement(
                "CREATE OR REPLACE FUNCTION {schema}.no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$"
            )
        )
        connection.execute(
            database.statement("CREATE TRIGGER no BEFORE INSERT ON {schema}.events EXECUTE FUNCTION {schema}.no()")
        )
    yield
    with database.connection() as connection:
        connection.execute(database.statement("DROP TRIGGER no ON {schema}.events"))


async def test_the_store_passes_every_check(postgres_server: str, schema: str) -> None:
    report = await check_store(
        lambda name: PostgresStore(postgres_server, schema=f"{schema} {name}"),
        usurp=usurp,
        hinder=hinder,
        sessions=20,
        megabytes=2,
    )

    assert list(report.seconds) == list(STORE_CHECKS)


@pytest.mark.parametrize("durability", ["strict", "none"])
async def test_the_store_keeps_and_fences_with_every_durability(
    postgres_server: str, schema: str, durability: Durability
) -> None:
    await check_store(
        lambda name: PostgresStore(postgres_server, schema=f"{schema} {name}", durability=durability),
        usurp=usurp,
        hinder=hinder,
        only=["order", "batches", "fencing", "hindered", "forks"],
    )


@pytest.mark.slow
async def test_the_store_bears_ten_thousand_sessions_and_an_event_of_fifty_megabytes(
    postgres_server: str, schema: str
) -> None:
    await check_store(lambda name: PostgresStore(postgres_server, schema=f"{schema} {name}"), usurp=usurp)


async def test_an_agent_works_and_is_resumed(postgres_server: str, schema: str) -> None:
    with anyio.fail_after(30):
        async with (
            PostgresStore(postgres_server, schema=schema) as store,
            Agent(ScriptedModel(Reply(text="ok")), session=await store.create("s")) as agent,
        ):
            agent.followup("one")
            await agent.when_idle()
        async with (
            PostgresStore(postgres_server, schema=schema) as store,
            Agent.resume(store, "s", ScriptedModel(Reply(text="ok"))) as agent,
        ):
            agent.followup("two")
            await agent.when_idle()
            assert agent.session.last_turn == 2


async def test_a_lease_ends_with_the_connection_that_renews_it(postgres_server: str, schema: str) -> None:
    first, second = PostgresStore(postgres_server, schema=schema), PostgresStore(postgres_server, schema=schema)
    session = await first.create("s")
    write_turn(session, 1, "one")
    await session.flush()
    with pytest.raises(SessionLockedError, match="already open for writing"):
        await second.open("s")

    first.holder.close()  # as when its process dies

    taken: Session | None = None
    with anyio.fail_after(10):
        while taken is None:
            with suppress(SessionLockedError):  # the server may still be about to see it
                taken = await second.open("s")
    write_turn(session, 2, "late")
    with pytest.raises(SessionLockedError, match="was taken over by another process"):
        await session.flush()
    write_turn(taken, 2, "mine")
    await second.close()
    await session.close(discard=True)
    await first.close()


async def test_a_lease_that_is_renewed_is_kept(postgres_server: str, schema: str) -> None:
    first = PostgresStore(postgres_server, schema=schema, lease_seconds=1.5)
    second = PostgresStore(postgres_server, schema=schema)
    session = await first.create("s")
    write_turn(session, 1, "one")
    await session.flush()
    lease = begun = lease_end(first)
    with anyio.fail_after(20):
        while lease - begun < timedelta(seconds=1.5):  # it would have run out
            lease = await anyio.to_thread.run_sync(lease_end, first)
    with pytest.raises(SessionLockedError):
        await second.open("s")
    await first.close()
    await second.close()


def lease_end(store: PostgresStore) -> datetime:
    with store.database.connection() as connection:
        row = connection.execute(store.database.statement("SELECT lease_until FROM {schema}.sessions")).fetchone()
    assert row is not None
    until: datetime = row[0]
    return until


async def test_what_cannot_be_reached_or_used_is_one_clear_sentence(postgres_server: str, schema: str) -> None:
    async with PostgresStore("host=/nowhere user=postgres", schema=schema) as store:
        for attempt in (store.create("s"), store.open("s"), store.list(), store.delete("s")):
            with pytest.raises(StoreError, match=r"PostgreSQL /nowhere/postgres, schema .* cannot be reached or fails"):
                await attempt
    async with PostgresStore(postgres_server, schema=schema) as store:
        assert not await store.list()
        with pytest.raises(SessionNotFoundError):
            await store.open("s")
        async with await store.create("s") as session:
            write_turn(session, 1, "one")
        with store.database.connection() as connection:
            connection.execute(store.database.statement("UPDATE {schema}.format SET version = 7"))
        with pytest.raises(StoreError, match="has format 7, and this version of the program knows format 1"):
            await store.list()
    with pytest.raises(StoreError, match="a lease lasts some seconds"):
        PostgresStore(postgres_server, lease_seconds=0)
    with pytest.raises(StoreError, match="is no way to connect to PostgreSQL"):
        PostgresStore("nonsense here")


def test_a_machine_without_a_server_skips_these_tests_and_in_ci_fails_them() -> None:
    demand(None, in_ci=True)
    with pytest.raises(pytest.skip.Exception, match="no initdb"):
        demand("no initdb", in_ci=False)
    with pytest.raises(pytest.fail.Exception, match="CI tries every store, and no initdb"):
        demand("no initdb", in_ci=True)
