"""The JSONL store: its files, its locks, and disks and files that are not what they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from lifecycle.definition.acceptor import alphabet_of
from lifecycle.errors import SessionFormatError, SessionLockedError, SessionNotFoundError, StoreError, UnknownEventError
from lifecycle.proof.checker import check_log
from lifecycle.session import jsonl_file
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.jsonl_file import file_name
from lifecycle.session.reading import open_log
from lifecycle.testing.stores import write_turn
from lifecycle.vocabulary import events as ev

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


async def made(folder: Path, turns: int = 1) -> Path:
    """A session `s` of some turns; its file."""
    async with JsonlStore(folder) as store:
        session = await store.create("s")
        for turn in range(1, turns + 1):
            write_turn(session, turn, "prompt")
    return folder / "s.jsonl"


async def test_a_file_tells_about_its_session_and_then_has_an_event_a_line(folder: Path) -> None:
    path = await made(folder)

    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(head) == {"type": "session", "version": 0, "id": "s", "createdAt": json.loads(head)["createdAt"]}
    assert [json.loads(line)["seq"] for line in lines] == list(range(8))
    with open_log(path) as log:
        assert check_log(log, alphabet_of("000")).accepted


async def test_a_batch_is_one_write_at_the_end_so_that_tail_sees_whole_lines(folder: Path) -> None:
    path = await made(folder)
    with path.open(encoding="utf-8") as tail:
        tail.read()
        async with JsonlStore(folder) as store:
            session = await store.open("s")
            write_turn(session, 2, "more")
            new = tail.read()
    assert new.endswith("\n")
    assert len(new.splitlines()) == 8


def test_names_of_files_differ_where_ids_do_also_without_case() -> None:
    ids = ["a", "A", "a/b", "a%2Fb", "..", ".lock", "ü" * 200, "ü" * 199 + "v", "x" * 200, "%41", "con"]
    names = [file_name(id) for id in ids]

    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name.encode()) < 256 and "/" not in name and not name.startswith(".") for name in names)
    assert file_name("0b7c-x") == "0b7c-x.jsonl"


async def test_a_torn_line_is_not_there_and_is_cut_off_before_anything_follows(folder: Path) -> None:
    path = await made(folder)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":8,"time":1,"type":"turn/st')

    async with JsonlStore(folder) as store:
        assert (await store.open("s", read_only=True)).next_seq == 8
        assert [info.events for info in await store.list()] == [8]
        session = await store.open("s")
        assert path.read_bytes() != whole  # a look changes nothing
        write_turn(session, 2, "more")
    assert path.read_bytes().startswith(whole + b'{"seq":8,"time":')
    assert [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("block", [1, 7, 64, 1000, 1 << 16])
async def test_a_list_reads_a_file_from_its_end_in_whatever_blocks(
    folder: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(folder, turns=3)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    monkeypatch.setattr(jsonl_file, "_BLOCK", block)
    for events in range(len(lines)):
        kept = b"".join(lines[: events + 1])
        for torn in (b"", b'{"seq":', bytes(100)):
            path.write_bytes(kept + torn)
            async with JsonlStore(folder) as store:
                (info,) = await store.list()
            assert (info.events, info.turns) == (events, kept.count(b'"turn/start"')), (events, torn)


Damage: TypeAlias = Callable[[list[bytes]], list[bytes]]
DAMAGES: list[tuple[Damage, type[SessionFormatError], str]] = [
    (lambda lines: lines[:3] + lines[4:], SessionFormatError, "damaged in line 4: event 3 stands where 2 is due"),
    (lambda lines: [*lines[:3], b"x", *lines[4:]], SessionFormatError, "damaged in line 4: not a session event"),
    (lambda lines: [*lines[:8], b"x"], SessionFormatError, "damaged in line 9: not a session event: 'x"),
    (
        lambda lines: [line.replace(b"step/start", b"x/y") for line in lines],
        UnknownEventError,
        r"s\.jsonl, line \d: event \d has the type 'x/y'",  # the file is not called damaged
    ),
    (lambda lines: [*lines[:3], bytes(40), *lines[4:]], SessionFormatError, "damaged in line 4"),
    (lambda lines: lines[1:], SessionFormatError, "its first line does not tell about one"),
    (lambda lines: [b"dear diary"], SessionFormatError, "its first line does not tell about one"),
    (lambda lines: [], SessionFormatError, "its first line does not tell about one"),
    (
        lambda lines: [lines[0].replace(b'"version":0', b'"version":7'), *lines[1:]],
        SessionFormatError,
        "has version 7, and this program reads up to version 0",
    ),
    (
        lambda lines: [lines[0].replace(b'"id":"s"', b'"id":"t"'), *lines[1:]],
        SessionFormatError,
        r"holds session 't', whose file is called t\.jsonl; give the file its own name back",
    ),
]


@pytest.mark.parametrize(("damage", "kind", "complaint"), DAMAGES)
async def test_a_file_that_is_not_what_it_should_be_is_refused_with_its_line_and_left_alone(
    folder: Path,
    damage: Damage,
    kind: type[SessionFormatError],
    complaint: str,
) -> None:
    path = await made(folder)
    bad = b"".join(line + b"\n" for line in damage(path.read_bytes().splitlines()))
    path.write_bytes(bad)

    async with JsonlStore(folder) as store:
        for read_only in (False, True):
            with pytest.raises(kind, match=complaint):
                await store.open("s", read_only=read_only)
        async with await store.create("other") as session:  # the others are well
            session.append(ev.EndSeed())
        assert "other" in [info.id for info in await store.list()]
    assert path.read_bytes() == bad


async def test_what_stands_before_the_damage_stays_readable(folder: Path) -> None:
    path = await made(folder, turns=3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:17], b"x\n", *lines[18:]]))

    with open_log(path) as log:
        report = check_log(log, alphabet_of("000"))

    assert (report.good, report.turns) == (17, 2)


async def test_a_line_that_is_a_bomb_is_refused_before_it_is_all_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(folder)
    monkeypatch.setattr(jsonl_file, "_LONGEST", 1 << 20)
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + (1 << 40))  # a hole, which takes no room

    async with JsonlStore(folder) as store:
        with pytest.raises(
            SessionFormatError, match="damaged in line 10: it is longer than 256 MiB, so it is no event"
        ):
            await store.open("s")


def in_place(folder: Path, what: str) -> None:
    if what == "a file":
        folder.write_text("x")
    else:
        folder.unlink()
        (folder / "s.jsonl").mkdir(parents=True)


def names(folder: Path) -> list[str] | None:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else None


async def test_a_folder_and_a_file_that_stand_in_each_others_place(folder: Path) -> None:
    in_place(folder, "a file")
    store = JsonlStore(folder)
    for attempt in (store.create("s"), store.open("s"), store.list(), store.delete("s"), store.fork("s")):
        with pytest.raises(StoreError, match=f"{folder} is a file; a JSONL store is a folder"):
            await attempt
    in_place(folder, "a folder")
    for attempt in (store.open("s"), store.delete("s")):
        with pytest.raises(StoreError, match=r"s\.jsonl is no file; move it away, or name another folder"):
            await attempt
    await store.close()


async def test_a_folder_whose_own_folder_does_not_exist_is_named(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "no" / "folder")
    with pytest.raises(StoreError, match=r"no/folder cannot be made: its folder .*/no does not exist; make it"):
        await store.create("s")
    assert not await store.list()
    with pytest.raises(SessionNotFoundError):
        await store.open("s")


async def test_looking_makes_no_folder(folder: Path) -> None:
    store = JsonlStore(folder)
    assert not await store.list()
    with pytest.raises(SessionNotFoundError):
        await store.open("s")
    assert names(folder) is None
    async with await store.create("s"):
        pass
    assert names(folder) == [".lock"]
    await store.close()


async def test_a_file_that_somebody_else_changed_is_not_written_over(folder: Path) -> None:
    path = await made(folder)
    async with JsonlStore(folder) as store:
        session = await store.open("s")
        write_turn(session, 2, "mine")
        with path.open("a") as other:
            other.write("{}\n")
        session.append(ev.EndSeed())
        with pytest.raises(StoreError, match="was changed behind our back: it has"):
            await session.flush()
        path.unlink()
        with pytest.raises(StoreError, match="was changed behind our back: it is gone"):
            await session.close()
        await session.close(discard=True)


_OTHER = """
import sys, anyio
from lifecycle.session.jsonl import JsonlStore

async def main():
    store = JsonlStore(sys.argv[1])
    await store.open("s")
    print("ready", flush=True)
    sys.stdin.readline()

anyio.run(main)
"""


@contextmanager
def another_process(folder: Path) -> Generator[subprocess.Popen[str]]:
    """Another process that has session `s` open for writing."""
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


async def test_two_processes_cannot_write_one_session_and_a_killed_one_holds_nothing(folder: Path) -> None:
    await made(folder)
    async with JsonlStore(folder) as store:
        with another_process(folder) as process:
            for attempt in (store.open, store.create, store.delete):
                with pytest.raises(SessionLockedError, match=rf"being written by process {process.pid};"):
                    await attempt("s")
            assert [info.locked for info in await store.list()] == [True]
            process.kill()
            process.wait()
            assert (await store.open("s")).next_seq == 8
