"""The SQLite store beyond what every store must do: write-behind, processes, and what is wrong with files."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import fail_after

from lifecycle.errors import (
    SessionError,
    SessionFormatError,
    SessionLockedError,
    SessionNotFoundError,
    StoreError,
    UnknownEventError,
)
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.sqlite_slot import SqliteSlot
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import user_message

from .disks import fill
from .logs import a_turn, shown

anyio_test = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def stored(path: Path, id: str = "s") -> int:
    """How many events of a session the file holds."""
    with closing(sqlite3.connect(path)) as database:
        row = database.execute(
            "SELECT s.events, count(e.place) FROM sessions s LEFT JOIN events e ON e.place >> 32 = s.key WHERE id = ?",
            (id,),
        ).fetchone()
    assert row[0] in (None, row[1])
    return int(row[1])


@contextmanager
def writing(path: Path) -> Generator[sqlite3.Connection]:
    """Somebody else is in the middle of writing to the file."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
        if other.in_transaction:
            other.execute("ROLLBACK")


# Write-behind


@anyio_test
async def test_lines_are_committed_at_the_end_of_a_turn_and_when_64_wait(path: Path) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        session.append(ev.TurnStart(turn=1))
        assert stored(path) == 0
        session.append(ev.TurnEnd(turn=1, reason=COMPLETED))
        assert stored(path) == 2
        for _ in range(63):
            session.append(ev.EndSeed())
        assert stored(path) == 2
        session.append(ev.EndSeed())
        assert stored(path) == 66
        session.append(ev.EndSeed())
        await session.flush()
        assert stored(path) == 67


@anyio_test
async def test_pst_04_a_failed_commit_keeps_its_batch_is_logged_once_and_a_flush_raises_then_retries(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        a_turn(session, 1, "one")
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE events RENAME TO elsewhere")
            with caplog.at_level(logging.WARNING, "lifecycle"):
                for turn in range(2, 30):
                    a_turn(session, turn, f"turn {turn}")
            assert caplog.text.count("no such table") == 1
            assert "session 's'" in caplog.text
            with pytest.raises(StoreError, match="no such table"):
                await session.flush()
            with pytest.raises(StoreError, match="no such table"):
                await session.close()
            assert not session.closed
            session.append(ev.EndSeed())
            other.execute("ALTER TABLE elsewhere RENAME TO events")
        await session.close()

    assert stored(path) == 8 * 29 + 1
    async with SqliteStore(path) as store:
        assert (await store.open("s")).events == session.events[:]


@anyio_test
async def test_closing_a_store_lets_go_of_everything_even_of_what_cannot_be_kept(path: Path) -> None:
    store = SqliteStore(path)
    session = await store.create("s")
    a_turn(session, 1, "one")
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE events RENAME TO elsewhere")
        session.append(ev.EndSeed())
        with pytest.raises(StoreError, match="no such table"):
            await store.close()
        other.execute("ALTER TABLE elsewhere RENAME TO events")
    await store.close()

    assert session.closed
    async with SqliteStore(path) as again:
        assert (await again.open("s")).next_seq == 8


@anyio_test
async def test_a_busy_file_delays_a_commit_and_a_flush_waits_for_it_in_a_thread(path: Path) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        a_turn(session, 1, "one")
        with writing(path) as other:
            a_turn(session, 2, "two")
            assert stored(path) == 8
            async with anyio.create_task_group() as group:
                with fail_after(5):
                    group.start_soon(session.flush)
                    await anyio.wait_all_tasks_blocked()
                    session.append(ev.EndSeed())
                    other.execute("ROLLBACK")
        assert stored(path) == 17


@anyio_test
async def test_lines_that_come_while_a_thread_commits_wait_their_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[object] = []
    started = anyio.Event()
    run_sync = anyio.to_thread.run_sync

    async def counted(function: Any, *args: Any, **options: Any) -> Any:
        threads.append(function)
        started.set()
        return await run_sync(function, *args, **options)

    async with SqliteStore(path, durability="none") as store:
        session = await store.create("s")
        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
        session.append(ev.UserMessageEvent(message=user_message("x" * 1_000_001)), surface="append")
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(session.flush)
            with fail_after(5):
                await started.wait()
            for turn in range(1, 20):
                a_turn(session, turn, f"turn {turn}")
        assert len(threads) == 1
        await session.flush()
        assert len(threads) == 1

    assert stored(path) == 1 + 19 * 8


@anyio_test
async def test_one_sync_is_for_all_sessions_that_were_committed_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    async with SqliteStore(path, durability="strict") as store:
        sessions = [await store.create(f"s{number}") for number in range(5)]
        for session in sessions:
            session.append(ev.EndSeed())
            barrier = session.barrier()
            assert barrier is not None
            await barrier
        each = len(synced)
        for session in sessions:
            for _ in range(64):  # these are committed, and synced by nobody
                session.append(ev.EndSeed())
        for session in sessions:
            await session.flush()

        assert each == len(sessions)
        assert len(synced) == each + 1


@anyio_test
async def test_what_somebody_else_changed_is_not_written_over(path: Path) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        a_turn(session, 1, "one")
        with closing(sqlite3.connect(path)) as other:
            other.execute("DELETE FROM sessions")
            other.execute("DELETE FROM events")
            other.commit()
        session.append(ev.EndSeed())
        with pytest.raises(StoreError, match="changed behind our back: it holds 0 events where 8 were kept"):
            await session.close()
        await session.close(discard=True)
        assert not await store.list()


@anyio_test
async def test_lines_that_an_abandoned_thread_has_kept_are_not_kept_twice(path: Path) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        a_turn(session, 1, "one")
        event = session.append(ev.EndSeed())
        with closing(sqlite3.connect(path)) as other:  # what such a thread does
            other.execute("INSERT INTO events VALUES (? , ?)", (1 << 32 | 8, event.encode()))
            other.execute("UPDATE sessions SET events = 9")
            other.commit()
        session.append(ev.EndSeed())
        await session.flush()

        assert stored(path) == 10


# Processes


def run(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)


_OTHER = """
import sys, anyio
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.sqlite_slot import SqliteSlot
from lifecycle.vocabulary.events import EndSeed

async def main():
    store = SqliteStore(sys.argv[1])
    session = await store.open("s")
    session.append(EndSeed())
    await session.flush()
    session.append(EndSeed())
    print("ready", flush=True)
    sys.stdin.readline()
    await store.close()

anyio.run(main)
"""


@contextmanager
def another_process(path: Path) -> Generator[subprocess.Popen[str]]:
    """Another process that has session `s` open for writing, until a line comes or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


async def made(path: Path) -> None:
    async with SqliteStore(path) as store:
        a_turn(await store.create("s"), 1, "one")


@anyio_test
async def test_two_processes_cannot_write_one_session_and_are_told_who_does(path: Path) -> None:
    await made(path)
    async with SqliteStore(path) as store:
        with another_process(path) as process:
            for attempt in (store.open, store.create, store.delete):
                with pytest.raises(SessionLockedError, match=rf"being written by process {process.pid};"):
                    await attempt("s")
            assert [info.locked for info in await store.list()] == [True]
            assert (await store.open("s", read_only=True)).next_seq == 9
            async with await store.create("other") as other:  # another session is nobody's business
                a_turn(other, 1, "x")
            process.communicate("go\n")
        assert [info.locked for info in await store.list()] == [False, False]
        assert (await store.open("s")).next_seq == 10


@anyio_test
async def test_a_killed_process_holds_nothing_and_what_it_committed_is_there(path: Path) -> None:
    await made(path)
    async with SqliteStore(path) as store:
        with another_process(path) as process:
            process.kill()
            process.wait()
            session = await store.open("s")
            assert session.next_seq == 9
            session.append(ev.EndSeed())
    assert stored(path) == 10


@anyio_test
async def test_a_second_store_of_this_process_does_not_loosen_the_locks_of_the_first(path: Path) -> None:
    await made(path)
    async with SqliteStore(path) as store:
        session = await store.open("s")
        async with SqliteStore(path) as second:
            with pytest.raises(
                SessionLockedError, match=f"already open for writing in this process \\({os.getpid()}\\)"
            ):
                await second.open("s")
            await second.list()
        refused = run(_OTHER, path)
        assert f"being written by process {os.getpid()}" in refused.stderr
        await session.close()
        assert run(_OTHER, path).stdout == "ready\n"


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is what is tried
@anyio_test
async def test_a_forked_process_has_none_of_the_locks(path: Path) -> None:
    async with SqliteStore(path) as store:
        session = await store.create("s")
        child = os.fork()
        if not child:
            code = 1
            try:
                session.append(ev.TurnEnd(turn=1, reason=COMPLETED))
                await session.flush()
            except SessionLockedError as refused:
                code = 0 if "from which this one was forked" in str(refused) else 2
            finally:
                os._exit(code)
        assert exit_code(child) == 0
        a_turn(session, 1, "one")
        assert stored(path) == 8


@anyio_test
async def test_many_processes_make_the_file_at_once(path: Path) -> None:
    code = _OTHER.replace('store.open("s")', "store.create(sys.argv[2])").replace("sys.stdin.readline()", "pass")
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(anyio.to_thread.run_sync, run, code, path, f"s{number}")
    async with SqliteStore(path) as store:
        assert len(await store.list()) == 5


# Files that are not what they should be


def write(path: Path, text: str) -> bytes:
    path.write_text(text)
    return read(path)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def every_way_in(store: SqliteStore) -> list[SessionError]:
    """What each way into the store is refused with."""
    failures: list[SessionError] = []
    for attempt in (
        store.create("s"),
        store.open("s"),
        store.open("s", read_only=True),
        store.list(),
        store.delete("s"),
    ):
        with pytest.raises(SessionError) as refused:
            await attempt
        failures.append(refused.value)
    await store.close()
    return failures


@anyio_test
async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    before = write(path, "dear diary, " * 100)

    for failure in await every_way_in(SqliteStore(path)):
        assert isinstance(failure, SessionFormatError)
        assert str(failure) == f"{path} is not a session store: it is no SQLite database; name another file"
    assert read(path) == before


@anyio_test
async def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name)")
    before = read(path)

    for failure in await every_way_in(SqliteStore(path)):
        assert isinstance(failure, SessionFormatError)
        assert str(failure) == f"{path} is a database, but not one of sessions; name another file"
    assert read(path) == before


@anyio_test
async def test_a_newer_format_is_refused(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")

    for failure in await every_way_in(SqliteStore(path)):
        assert isinstance(failure, SessionFormatError)
        assert "has format 2, and this version of the program knows format 1; use a newer version" in str(failure)


@anyio_test
async def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    for failure in await every_way_in(SqliteStore(tmp_path)):
        assert type(failure) is StoreError
        assert str(failure) == f"{tmp_path} is a directory; name a file in it, such as {tmp_path / 'sessions.db'}"


@anyio_test
async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "no" / "sessions.db")

    with pytest.raises(StoreError, match=f"its folder {tmp_path / 'no'} does not exist; make it"):
        await store.create("s")
    assert not await store.list()
    with pytest.raises(SessionNotFoundError):
        await store.open("s")
    await store.close()


@anyio_test
async def test_looking_makes_no_file(path: Path) -> None:
    async with SqliteStore(path) as store:
        assert not await store.list()
        for attempt in (store.open("s"), store.open("s", read_only=True), store.delete("s"), store.fork("s")):
            with pytest.raises(SessionNotFoundError, match=f"{path} holds no session 's'"):
                await attempt

    assert os.listdir(path.parent) == []


@anyio_test
async def test_an_empty_file_is_a_store_without_sessions(path: Path) -> None:
    write(path, "")
    async with SqliteStore(path) as store:
        assert not await store.list()
        with pytest.raises(SessionNotFoundError):
            await store.open("s", read_only=True)
        a_turn(await store.create("s"), 1, "one")


@anyio_test
async def test_a_name_with_odd_characters_is_only_a_name(tmp_path: Path) -> None:
    path = tmp_path / "what? 100%#ü.db"
    await made(path)
    async with SqliteStore(path) as store:
        assert shown(await store.open("s")) == ["one", "to one"]
    assert sorted(os.listdir(tmp_path)) == [path.name, path.name + "-lock"]


def test_a_store_in_memory_is_another_one() -> None:
    with pytest.raises(StoreError, match="use MemoryStore"):
        SqliteStore(":memory:")


@pytest.mark.parametrize(
    ("damage", "kind", "complaint"),
    [
        (
            "DELETE FROM events WHERE place % 10 = 3",
            SessionFormatError,
            "'s' in .* is not whole: 8 events were kept, and",
        ),
        (
            "UPDATE events SET line = 'x' WHERE place % 10 = 3",
            SessionFormatError,
            "'s' in .*: not a session event: 'x'",
        ),
        (
            "UPDATE events SET line = replace(line, 'step/start', 'x/y')",
            UnknownEventError,
            r"'s' in .*: event \d has the type 'x/y'",
        ),
        (
            "UPDATE events SET line = replace(line, '\"seq\":3', '\"seq\":4')",
            SessionFormatError,
            "event 4 stands where 3",
        ),
    ],
)
@anyio_test
async def test_a_damaged_session_is_refused_with_its_place(
    path: Path, damage: str, kind: type[SessionError], complaint: str
) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(damage).rowcount
        database.commit()

    async with SqliteStore(path) as store:
        for read_only in (False, True):
            with pytest.raises(kind, match=complaint):
                await store.open("s", read_only=read_only)
        async with await store.create("other") as session:  # the others are well
            session.append(ev.EndSeed())


# Disks


@anyio_test
async def test_a_disk_that_is_full_from_the_start_holds_no_half_session(small_disk: Path) -> None:
    fill(small_disk)
    path = small_disk / "sessions.db"
    store = SqliteStore(path)

    with pytest.raises(StoreError, match="its disk is full"):
        await store.create("s")
    assert not await store.list()
    await store.close()


_LIMITED = """
import resource, sys, anyio
from lifecycle.errors import StoreError
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.sqlite_slot import SqliteSlot
from lifecycle.vocabulary.events import UserMessageEvent
from lifecycle.vocabulary.messages import user_message

async def main():
    store = SqliteStore(sys.argv[1])
    session = await store.create("s")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    session.append(UserMessageEvent(message=user_message("x" * 200_000)), surface="append")
    try:
        await session.flush()
    except StoreError as failed:
        print(failed)
    await session.close(discard=True)
    await store.close()

anyio.run(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit here")
def test_a_limit_on_the_size_of_files_is_one_clear_sentence(path: Path) -> None:
    result = run(_LIMITED, path)

    assert result.stdout.startswith(f"{path} cannot be ")
    assert "disk" in result.stdout
    assert result.stdout.count("\n") == 1


@anyio_test
@pytest.mark.parametrize(("length", "here"), [(10, True), (2_000_000, False)])
async def test_what_is_large_is_not_kept_on_the_thread_of_the_event_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch, length: int, here: bool
) -> None:
    told: list[bool] = []
    keep = SqliteSlot.keep

    def kept(slot: SqliteSlot, *args: Any, here: bool) -> None:
        told.append(here)
        keep(slot, *args, here=here)

    monkeypatch.setattr(SqliteSlot, "keep", kept)
    with fail_after(10):
        async with SqliteStore(path) as store:
            session = await store.create("s")
            session.append(ev.TurnStart(turn=1))
            session.append(ev.UserMessageEvent(message=user_message("x" * length)), surface="append")
            session.append(ev.TurnEnd(turn=1, reason=COMPLETED))
            await session.flush()
            assert (told, stored(path)) == ([here], 3)
