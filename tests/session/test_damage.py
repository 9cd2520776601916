"""Bytes that changed on the disk: what is read is what was written, or an error of ours, and never something else."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import pytest

from lifecycle.errors import SessionError, SessionFormatError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.memory import MemoryStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.testing.stores import write_turn
from lifecycle.vocabulary.events import Event

pytestmark = pytest.mark.anyio


async def two_sessions(path: Path) -> dict[str, tuple[Event, ...]]:
    """A file with two sessions; their events."""
    kept: dict[str, tuple[Event, ...]] = {}
    async with SqliteStore(path) as store:
        for id in ("one", "two"):
            async with await store.create(id) as session:
                for turn in range(1, 20):
                    write_turn(session, turn, "What is in this folder?")
                kept[id] = tuple(session.events)
    return kept


async def test_no_page_of_sqlite_that_was_damaged_passes_for_events(tmp_path: Path) -> None:
    kept = await two_sessions(tmp_path / "whole.db")
    content = (tmp_path / "whole.db").read_bytes()
    size = int(struct.unpack(">H", content[16:18])[0])
    refused, readable = list[str](), 0
    for page in range(len(content) // size):
        path = tmp_path / f"damaged {page}.db"
        path.write_bytes(content[: page * size] + b"\xff" * size + content[(page + 1) * size :])
        async with SqliteStore(path) as store:
            for id, events in kept.items():
                try:
                    session = await store.open(id, read_only=True)
                except SessionError as failed:
                    refused.append(str(failed))
                else:
                    readable += 1
                    assert tuple(session.events) == events
    assert refused
    assert all("damaged" in said or "database" in said for said in refused)
    assert readable  # where the damage is another session's, this one stays readable


async def test_no_byte_of_a_jsonl_file_that_was_damaged_makes_it_something_else_than_events(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "whole") as store, await store.create("s") as session:
        write_turn(session, 1, "go")
    content = (tmp_path / "whole" / "s.jsonl").read_bytes()
    for at in range(0, len(content) - 1, 7):
        folder = tmp_path / "damaged"
        folder.mkdir()
        (folder / "s.jsonl").write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        async with JsonlStore(folder) as store:
            with pytest.raises(SessionFormatError, match=r"s\.jsonl"):
                await store.open("s")
        shutil.rmtree(folder)


Make = Callable[[Path, Callable[[], int]], Store]
MAKES: dict[str, Make] = {
    "memory": lambda path, clock: MemoryStore(clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path, clock=clock),
    "jsonl": lambda path, clock: JsonlStore(path, clock=clock),
}


@pytest.mark.parametrize("kind", MAKES)
async def test_a_clock_that_jumps_back_changes_times_and_nothing_else(kind: str, tmp_path: Path) -> None:
    times = chain([2_000_000], (1_000 - n for n in range(30)), repeat(5))
    store = MAKES[kind](tmp_path / "store", lambda: next(times))
    async with await store.create("s") as session:
        write_turn(session, 1, "one")
        write_turn(session, 2, "two")
    async with await store.open("s") as again:
        assert again.events == session.events
        write_turn(again, 3, "three")
    (info,) = await store.list()
    assert (info.created_at, info.updated_at, info.events) == (2_000_000, again.events[-1].time, 24)
    await store.close()
