"""The power fails: what had not reached the disk is cut off, at every byte and at every page; the rest stays whole."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from lifecycle.errors import SessionNotFoundError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.testing.stores import write_turn
from lifecycle.vocabulary.events import Event

from . import audit, story

pytestmark = pytest.mark.anyio


async def goes_on(store: Store, before: Sequence[Event]) -> int:
    """The session is there up to some event, is repaired, goes on, and is whole; how many events had survived."""
    try:
        seen = (await store.open("s", read_only=True)).events
    except SessionNotFoundError:
        return 0
    assert seen == before[: len(seen)]
    async with await store.open("s") as session:
        assert session.events == seen
        session.repair()
        write_turn(session, session.last_turn + 1, "after")
    again = (await store.open("s", read_only=True)).events
    assert again == session.events
    assert audit.illegal(again) == ""
    await store.close()
    return len(seen)


def lines_from_the_end(content: bytes, many: int) -> int:
    """Where the last lines begin."""
    at = len(content)
    for _ in range(many + 1):
        at = content.rfind(b"\n", 0, at)
    return at + 1


@pytest.mark.parametrize("zeros", [False, True], ids=["cut", "zeros"])
@pytest.mark.parametrize("lines", [2, pytest.param(45, marks=pytest.mark.slow)])
async def test_a_jsonl_file_is_cut_at_every_byte_of_its_last_records(lines: int, zeros: bool, tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "whole") as store:
        events = await story.tell(await store.create("s"))
    content = (tmp_path / "whole" / "s.jsonl").read_bytes()
    start = lines_from_the_end(content, lines)
    ends = [at + 1 for at in range(len(content)) if content[at : at + 1] == b"\n"]

    for at in range(start, len(content) + 1):
        folder = tmp_path / "cut"
        folder.mkdir()
        lost = b"\0" * (len(content) - at) if zeros else b""
        (folder / "s.jsonl").write_bytes(content[:at] + lost)

        survived = await goes_on(JsonlStore(folder, durability="none"), events)

        assert survived == len([end for end in ends if end <= at]) - 1, at
        assert b"\0" not in (folder / "s.jsonl").read_bytes()
        shutil.rmtree(folder)


async def test_pages_of_a_jsonl_file_that_never_came_to_the_disk_are_not_taken_for_events(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "whole") as store:
        events = await story.tell(await store.create("s"))
    content = bytearray((tmp_path / "whole" / "s.jsonl").read_bytes())
    at = lines_from_the_end(bytes(content), 1) + 10
    content[at : at + 20] = bytes(20)  # in the middle of the last record, whose end did reach it
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "s.jsonl").write_bytes(content)

    assert await goes_on(JsonlStore(tmp_path / "cut"), events) == len(events) - 1


@pytest.mark.parametrize("within", [0, 100], ids=["between frames", "within a frame"])
@pytest.mark.parametrize("turns", [4, pytest.param(40, marks=pytest.mark.slow)])
async def test_the_write_ahead_log_of_sqlite_is_cut_at_every_frame(turns: int, within: int, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    path, synced = tmp_path / "whole" / "sessions.db", dict[int, int]()
    async with SqliteStore(path) as store:
        events = await story.tell(await store.create("s"))
        async with await store.open("s") as session:
            for turn in range(turns):
                write_turn(session, session.last_turn + 1, f"more {turn}")
                await session.flush()  # which syncs
                synced[wal(path).stat().st_size] = session.next_seq
            events = tuple(session.events)
        content, database = wal(path).read_bytes(), path.read_bytes()
    page = int(struct.unpack(">I", content[8:12])[0])
    frames = (len(content) - 32) // (24 + page)
    assert frames > 10
    survivals: list[int] = []

    for frame in range(frames + 1):
        cut = 32 + frame * (24 + page) + (within if frame < frames else 0)
        folder = tmp_path / "cut"
        folder.mkdir()
        (folder / "sessions.db").write_bytes(database)
        wal(folder / "sessions.db").write_bytes(content[:cut])
        survivals.append(await goes_on(SqliteStore(folder / "sessions.db", durability="none"), events))
        promised = max((many for size, many in synced.items() if size <= cut), default=0)
        assert survivals[-1] >= promised, frame
        shutil.rmtree(folder)

    assert survivals == sorted(survivals)
    assert survivals[-1] == len(events)


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
