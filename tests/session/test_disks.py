"""Full and read-only disks under the stores that keep files, as Python hears of them; tests/commands has the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from lifecycle.errors import StoreError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.testing.stores import write_turn

from .disks import fill, remount_read_only

pytestmark = pytest.mark.anyio
KINDS: dict[str, Callable[[Path], Store]] = {"sqlite": SqliteStore, "jsonl": JsonlStore}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_disk_is_one_clear_sentence_and_nothing_is_lost_once_there_is_room(
    kind: str, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = KINDS[kind](small_disk / "store")
    session = await store.create("s")
    write_turn(session, 1, "one")
    filler = fill(small_disk)
    with caplog.at_level(logging.WARNING, "lifecycle"):
        for turn in range(2, 20):
            write_turn(session, turn, f"turn {turn}")
    complaint = "cannot be written: its disk is full; free some space and try again"
    assert caplog.text.count(complaint) == 1
    for attempt in (session.flush(), store.fork("s", 1, new_id="child")):
        with pytest.raises(StoreError, match=f"{small_disk}/store.* {complaint}"):
            await attempt
    seen = (await store.open("s", read_only=True)).events
    assert seen == session.events[: len(seen)]

    filler.unlink()
    await session.flush()

    assert (await store.open("s", read_only=True)).events == session.events[:]
    assert [info.id for info in await store.list()] == ["s"]
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_read_only_disk_can_be_read_and_says_that_it_cannot_be_written(kind: str, small_disk: Path) -> None:
    store = KINDS[kind](small_disk / "store")
    async with await store.create("s") as session:
        write_turn(session, 1, "one")
    await store.close()
    remount_read_only(small_disk)

    store = KINDS[kind](small_disk / "store")
    assert (await store.open("s", read_only=True)).next_seq == 8
    for attempt in (store.create("t"), store.open("s"), store.delete("s"), store.fork("s", 1)):
        with pytest.raises(
            StoreError, match=r"cannot be written: .*disk is read-only; make it writable, or name another"
        ):
            await attempt
    await store.close()
