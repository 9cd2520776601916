"""The kit that checks stores: ours pass it, and a store with a mistake is told which."""

from __future__ import annotations

import dataclasses
import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
import anyio.lowlevel
import pytest

from lifecycle.errors import SessionNotFoundError, StoreCheckError, StoreError
from lifecycle.session.fork import Lineage
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.log import Session
from lifecycle.session.memory import MemoryStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import SessionInfo, Store
from lifecycle.testing import STORE_CHECKS, check_store
from lifecycle.vocabulary.messages import user_message

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
    only = [*STORE_CHECKS] if usual else ["order", "batches", "hindered", "forks", "readers"]
    report = await check_store(
        lambda name: KINDS[kind](tmp_path / name),
        durable=kind != "memory",
        hinder=None if kind == "memory" else hinder,
        sessions=20,
        megabytes=2,
        only=only,
    )

    assert list(report.seconds) == only
    assert f"{len(only)} checks passed" in str(report)


@contextmanager
def hinder(store: Store) -> Generator[None]:
    """SQLite: somebody has taken the tables away. JSONL: the disk is full, before the last byte of a write."""
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store.path)) as other:
            other.execute("ALTER TABLE events RENAME TO elsewhere")
            other.execute("CREATE VIEW events AS SELECT * FROM elsewhere")  # to be read, and not written
            yield
            other.execute("DROP VIEW events")
            other.execute("ALTER TABLE elsewhere RENAME TO events")
    else:
        write = os.write

        def full(file: int, content: bytes) -> int:
            if len(content) > 1:
                return write(file, content[:-1])
            raise OSError(errno.ENOSPC, "No space left on device")

        with patch.object(os, "write", full):
            yield


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
async def test_our_stores_bear_ten_thousand_sessions_and_an_event_of_fifty_megabytes(kind: str, tmp_path: Path) -> None:
    report = await check_store(lambda name: KINDS[kind](tmp_path / name), durable=kind != "memory")
    sys.stdout.write(f"{report}\n")  # shown by -s


class Forgetful(MemoryStore):
    """Forgets the last event."""

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


class Confusing(MemoryStore):
    """Keeps the newest session in the place of all others."""

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        session = await super().create(id, parent=parent)
        session.observe(lambda event: self.kept.update(dict.fromkeys(self.kept, self.kept[session.id])))
        return session


class Silent(MemoryStore):
    """Says nothing of who is meant."""

    def not_found(self, id: str) -> SessionNotFoundError:
        return SessionNotFoundError("no such session")


class Talkative(MemoryStore):
    """Says it in many lines."""

    def not_found(self, id: str) -> SessionNotFoundError:
        return SessionNotFoundError(f"there is no session {id!r}\nat all")


class Clinging(MemoryStore):
    """Holds on to a session whose opener has given up."""

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        session = await super().open(id, read_only=read_only)
        await anyio.lowlevel.checkpoint()
        return session


class Generous(MemoryStore):
    """Lets a fork have what waits for its parent."""

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        child = await super().fork(id, turn, step, new_id)
        child.inbox.insert("next-turn", user_message("mine"))
        return child


class Late(MemoryStore):
    """Forks at a step, and leaves the turn open."""

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        if step is None:
            return await super().fork(id, turn, step, new_id)
        return Session.seeded((await super().open(id, read_only=True)).events[:15], new_id, lineage=Lineage(id, 15))


class Wordy(MemoryStore):
    """Takes all that a person typed for a title."""

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        infos = await super().list(limit=limit, offset=offset)
        return [dataclasses.replace(info, title=f"{info.title} and so on") for info in infos]


class Paged(MemoryStore):
    """Counts pages where it is given an offset."""

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        return await super().list(limit=limit, offset=offset * (limit or 1))


class Immortal(MemoryStore):
    """Leaves its sessions open when it is closed."""

    async def close(self) -> None:
        self._closed = True


class Hasty(JsonlStore):
    """Says that it has kept what it could not keep."""

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        session = await super().create(id, parent=parent)

        async def flush() -> None:
            with suppress(StoreError):
                await writer.flush()

        writer: Any = session._writer  # pyright: ignore[reportPrivateUsage]
        object.__setattr__(session, "_writer", SimpleNamespace(write=writer.write, flush=flush, close=writer.close))
        return session


MISTAKES: list[tuple[type[MemoryStore] | type[JsonlStore], str, str]] = [
    (Forgetful, "order", "gives back other events"),
    (Motherless, "order", "forgets where a session comes from"),
    (Confusing, "side by side", "mixes sessions that are written at once"),
    (Welcoming, "one writer", "lets two write one session"),
    (Hasty, "hindered", "says that it has kept what it cannot keep"),
    (Clinging, "cancellation", "is already open for writing"),
    (Careless, "nothing", "finds a session that is not there"),
    (Silent, "nothing", "names nobody: no such session"),
    (Talkative, "nothing", "where one sentence is due"),
    (Wordy, "listing", "and so on"),
    (Paged, "listing", "gives pages that do not make up the list"),
    (Ruthless, "deletion", "deletes what others were forked from"),
    (Late, "forks", "leaves a turn open that it forks within"),
    (Generous, "forks", "lets a fork inherit"),
    (Immortal, "closing", "leaves a session open when it is closed"),
]


@pytest.mark.parametrize(("kind", "check", "said"), MISTAKES, ids=[kind.__name__ for kind, _, _ in MISTAKES])
async def test_a_store_with_a_mistake_is_told_which(
    kind: type[MemoryStore] | type[JsonlStore], check: str, said: str, tmp_path: Path
) -> None:
    durable = issubclass(kind, JsonlStore)
    with pytest.raises(StoreCheckError, match=said) as failed:
        await check_store(
            lambda name: kind(tmp_path / name) if issubclass(kind, JsonlStore) else kind(),
            durable=durable,
            hinder=hinder if durable else None,
            sessions=5,
            megabytes=1,
            only=[check],
        )

    assert failed.value.check == check
    assert isinstance(failed.value, AssertionError)


async def test_an_unknown_check_is_a_wrong_call() -> None:
    with pytest.raises(ValueError, match="there is no check 'speed' of stores; there are: order, batches"):
        await check_store(lambda name: MemoryStore(), only=["speed"])
