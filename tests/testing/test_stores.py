"""The kit that checks stores: ours pass it, and a store with a mistake is told which."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lifecycle.errors import SessionNotFoundError, StoreCheckError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.log import Session
from lifecycle.session.memory import MemoryStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.testing import STORE_CHECKS, check_store

pytestmark = pytest.mark.anyio

KINDS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda path: MemoryStore(),
    "sqlite": SqliteStore,
    "jsonl": JsonlStore,
    "sqlite strict": lambda path: SqliteStore(path, durability="strict"),
    "jsonl strict": lambda path: JsonlStore(path, durability="strict"),
    "sqlite none": lambda path: SqliteStore(path, durability="none"),
    "jsonl none": lambda path: JsonlStore(path, durability="none"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_our_stores_pass_every_check(kind: str, tmp_path: Path) -> None:
    usual = kind in ("memory", "sqlite", "jsonl")  # the others write at other times, and no other things
    only = [*STORE_CHECKS] if usual else ["order", "batches", "one writer", "forks", "readers", "repair"]
    report = await check_store(
        lambda name: KINDS[kind](tmp_path / name), durable=kind != "memory", sessions=20, megabytes=2, only=only
    )

    assert list(report.seconds) == only
    assert f"{len(only)} checks passed" in str(report)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
async def test_our_stores_bear_ten_thousand_sessions_and_an_event_of_fifty_megabytes(kind: str, tmp_path: Path) -> None:
    report = await check_store(lambda name: KINDS[kind](tmp_path / name), durable=kind != "memory")
    sys.stdout.write(f"{report}\n")  # shown by -s


class Forgetful(MemoryStore):
    """Forgets the order of its events."""

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        session = await super().open(id, read_only=read_only)
        session._events.pop()  # pyright: ignore[reportPrivateUsage]
        return session


class Welcoming(MemoryStore):
    """Lets everybody write."""

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        self.opened.pop(id, None)
        return await super().open(id, read_only=read_only)


class Ruthless(MemoryStore):
    """Deletes the parents of forks."""

    async def delete(self, id: str) -> None:
        self.kept = {id: kept._replace(lineage=None) for id, kept in self.kept.items()}
        await super().delete(id)


class Motherless(MemoryStore):
    """Forgets lineage."""

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        return await super().create(id)


class Careless(MemoryStore):
    """Takes anything for an id that is not there."""

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        try:
            return await super().open(id, read_only=read_only)
        except SessionNotFoundError:
            return Session.memory("s")


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (Forgetful, "order", "gives back other events"),
        (Welcoming, "one writer", "lets two write one session"),
        (Ruthless, "deletion", "deletes what others were forked from"),
        (Motherless, "order", "forgets where a session comes from"),
        (Careless, "nothing", "finds a session that is not there"),
    ],
)
async def test_a_store_with_a_mistake_is_told_which(kind: type[MemoryStore], check: str, said: str) -> None:
    with pytest.raises(StoreCheckError, match=said) as failed:
        await check_store(lambda name: kind(), durable=False, sessions=5, megabytes=1)

    assert failed.value.check == check
    assert isinstance(failed.value, AssertionError)


async def test_an_unknown_check_is_a_wrong_call() -> None:
    with pytest.raises(ValueError, match="there is no check 'speed' of stores; there are: order, batches"):
        await check_store(lambda name: MemoryStore(), only=["speed"])
