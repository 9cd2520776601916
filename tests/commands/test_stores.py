"""Where sessions are kept: the names of stores, and every store with what cannot work, from the command line.

Each is refused with one sentence and exit code 2, and what is good of it stays readable.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from lifecycle.commands.stores import open_store, shown_name
from lifecycle.session import base, jsonl_file, reading, sqlite_file
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing.stores import write_turn

from ..session.disks import fill, remount_read_only
from .child import HOST, Child, Ended, here, run

KINDS = ("sqlite", "jsonl", "postgres")
_numbers = count()


@dataclass
class Place:
    """Where a store is, and how somebody else gets at what it keeps."""

    kind: str
    name: str
    """What `--store` is given."""

    def __call__(self, *args: str) -> Ended:
        """Run a command on it."""
        return here(*args, "--store", self.name)

    def make(self) -> None:
        """Have two sessions there, of two turns each."""

        async def made() -> None:
            async with open_store(self.name) as store:
                for id in ("good", "s"):
                    async with await store.create(id) as session:
                        write_turn(session, 1, "one")
                        write_turn(session, 2, "two")

        anyio.run(made)

    def spoil(self, seq: int, line: str | None) -> None:
        """Put `line` in the place of an event of session `s`; None takes it away."""
        if self.kind == "jsonl":
            path = Path(self.name) / "s.jsonl"
            lines = path.read_text(encoding="utf-8").splitlines()
            lines[seq + 1 : seq + 2] = [] if line is None else [line]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        elif self.kind == "sqlite":
            with closing(sqlite3.connect(self.name)) as database:
                (key,) = database.execute("SELECT key FROM sessions WHERE id = 's'").fetchone()
                if line is None:
                    database.execute("DELETE FROM events WHERE place = ?", [key << 32 | seq])
                else:
                    database.execute("UPDATE events SET line = ? WHERE place = ?", [line, key << 32 | seq])
                database.commit()
        else:
            where = "session = (SELECT key FROM lifecycle.sessions WHERE id = 's') AND seq = %s"
            if line is None:
                sql(self.name, f"DELETE FROM lifecycle.events WHERE {where}", seq)
            else:
                sql(self.name, f"UPDATE lifecycle.events SET line = %s WHERE {where}", line, seq)


def sql(conninfo: str, statement: str, *values: object) -> None:
    import psycopg  # only where a server is

    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(statement.encode(), values or None)


def database_url(server: str, name: str, user: str = "postgres") -> str:
    host = dict(part.split("=", 1) for part in server.split())["host"]
    return f"postgresql://{user}@/{name}?host={quote(host, safe='')}"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = str(request.param)
    if kind == "sqlite":
        return Place(kind, str(tmp_path / "store.db"))
    if kind == "jsonl":
        return Place(kind, f"{tmp_path / 'store'}/")
    server: str = request.getfixturevalue("postgres_server")
    name = f"place{next(_numbers)}"
    sql(server, f"CREATE DATABASE {name}")
    return Place(kind, database_url(server, name))


def sentence(ended: Ended, *parts: str) -> None:
    """It was refused in one sentence."""
    assert (ended.code, ended.out) == (2, ""), ended
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle ")
    for part in parts:
        assert part in said


def kept(place: Place) -> dict[str, int]:
    """The sessions that are listed, and how many events they have."""
    listed = place("sessions", "list", "--json")
    assert listed.code == 0
    infos = [json.loads(line) for line in listed.out.splitlines()]
    return {info["id"]: info["events"] for info in infos}


# -- names --------------------------------------------------------------------------------------------------------


def test_a_file_is_sqlite_and_a_folder_is_a_file_of_json_lines_a_session(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / ".lock").touch()
    (tmp_path / "used" / "s.jsonl").touch()
    (tmp_path / "there.db").touch()

    assert type(open_store(f"{tmp_path}/new.db")) is SqliteStore
    assert type(open_store(f"{tmp_path}/there.db")) is SqliteStore
    for name in ("new/", "empty", "empty/", "used", "used/"):
        assert type(open_store(f"{tmp_path}/{name}")) is JsonlStore
    assert type(open_store(f"{tmp_path}/")) is JsonlStore  # whoever writes the / means it


def test_a_url_is_a_store_that_another_distribution_may_offer(postgres_server: str) -> None:
    from lifecycle_adapters.postgres import PostgresStore

    assert type(open_store(database_url(postgres_server, "postgres"))) is PostgresStore


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{}/", "is a folder, and holds other things than sessions; write {}/ to keep them there all the same"),
        ("{}/log.jsonl", "a folder with a file for each; name a folder, such as {}/log/"),
        ("redis://here", "redis:// leads to no store; name a file, a folder with a / at its end, or a URL that begins"),
        ("postgresql://h?nonsense=1", "is no way to connect to PostgreSQL"),
        ("", "--store is empty; name a file"),
    ],
)
def test_a_name_that_is_none_is_refused_with_what_would_have_worked(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    sentence(here("sessions", "list", "--store", name.format(tmp_path).removesuffix("/")), said.format(tmp_path))


def test_a_store_that_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("lifecycle_adapters.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    ended = here("sessions", "list", "--store", "postgresql://host/db")

    sentence(ended, "postgresql:// needs psycopg, which is not installed: pip install 'turn-lifecycle[postgres]'")


def test_a_password_is_shown_nowhere() -> None:
    for name in ("postgresql://me:secret@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?user=me&password=secret"):
        ended = here("sessions", "list", "--store", name)
        sentence(ended, "PostgreSQL 127.0.0.1/db, schema 'lifecycle' cannot be reached")
        assert "secret" not in ended.err
        assert "secret" not in shown_name(name)
    assert shown_name("postgresql://me:secret@host/db?x=y") == "postgresql://me:***@host/db?x=y"
    assert shown_name("a:b@c.db") == "a:b@c.db"


def test_the_environment_names_a_store_just_as_well(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.make()
    monkeypatch.setenv("LIFECYCLE_STORE", place.name)

    assert here("check", "good", "s").out.splitlines()[-1] == "2 logs: 2 legal"


# -- every command on every store ---------------------------------------------------------------------------------


def test_a_session_is_run_listed_shown_checked_replayed_forked_resumed_and_deleted(
    place: Place, workspace: Path
) -> None:
    assert here("sessions", "list", "--store", place.name).code == 0
    ran = run(*HOST, "plain", "run", "hi", "--workspace", workspace, "--store", place.name)
    assert ran.code == 0
    (id,) = kept(place)
    assert ran.err.splitlines()[-1].endswith(f"{id}")
    assert place("sessions", "show", id).out.count("--- turn 1") == 2
    assert "legal under revision" in place("check", id).out
    assert place("replay", id).out.startswith("turn 1")
    assert place("sessions", "fork", id, "--id", "a/b").out == "a/b\n"
    assert (
        run(*HOST, "plain", "run", "on", "--session", "a/b", "--store", place.name, "--workspace", workspace).code == 0
    )
    assert "2 whole turns" in place("check", "a/b").out
    sentence(place("sessions", "delete", id), "'a/b'", "delete them first")
    assert place("sessions", "delete", id, "a/b").code == 0
    assert kept(place) == {}


def test_an_id_is_only_a_name_whatever_is_in_it(place: Place) -> None:
    place.make()
    for id in ("../../etc/passwd", "/", "s/../good"):
        sentence(place("sessions", "show", id), f"holds no session {id!r}")
        assert place("sessions", "fork", "s", "--id", id).code == 0
        assert "2 whole turns" in place("check", id).out
    sentence(place("sessions", "fork", "s", "--id", "a\nb"), "holds no control characters, line ends")
    sentence(place("sessions", "fork", "s", "--id", "x" * 201), "has 1 to 200 characters, not 201")
    assert set(kept(place)) == {"good", "s", "../../etc/passwd", "/", "s/../good"}


# -- damage -------------------------------------------------------------------------------------------------------

DEEP = f'{{"seq":9,"time":1,"type":"x/y","ignorable":true,"data":{"[" * 100_000 + "]" * 100_000}}}'
DAMAGES: list[tuple[str, str | None, str]] = [
    ("text", "dear diary", "not a session event: 'dear diary"),
    (
        "alien",
        '{"seq":9,"time":1,"type":"alien/thing","data":{}}',
        "has the type 'alien/thing', which nobody",
    ),
    ("deep", DEEP, "nested too deeply"),
    ("bomb", "x" * 400_000, "longer than"),
    ("gap", None, ""),
]


@pytest.mark.parametrize(("line", "said"), [damage[1:] for damage in DAMAGES], ids=[damage[0] for damage in DAMAGES])
def test_a_damaged_event_is_said_and_what_stands_before_it_stays_readable(
    place: Place, line: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make()
    place.spoil(9, line)
    shorten(monkeypatch)

    for command in (("sessions", "show", "s"), ("run", "hi", "--session", "s"), ("sessions", "fork", "s")):
        sentence(place(*command), said)

    assert place("check", "good").code == 0
    assert set(kept(place)) == {"good", "s"}
    checked = place("check", "s")
    assert checked.code == 1
    assert re.match(r"session s, line (10|9)\b", checked.out)  # SQLite looks a row ahead
    assert place("replay", "s").out.startswith("turn 1")
    assert place("sessions", "delete", "s").code == 0
    assert kept(place) == {"good": 16}


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the longest line be short, so that a bomb need not be large."""
    monkeypatch.setattr(reading, "LONGEST_LINE", 300_000)
    monkeypatch.setattr(sqlite_file, "LONGEST_LINE", 300_000)
    monkeypatch.setattr(jsonl_file, "_LONGEST", 300_001)
    if "lifecycle_adapters.postgres" in sys.modules:
        monkeypatch.setattr(sys.modules["lifecycle_adapters.postgres"], "LONGEST_LINE", 300_000)


def test_a_damaged_page_of_the_file_is_said_and_the_rest_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    place = Place("sqlite", str(path))
    place.make()
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as database:  # the page where the last events stand
        pages = [int(page) for (page,) in database.execute("SELECT pageno FROM dbstat WHERE name = 'events'")]
    content[(pages[-1] - 1) * 4096 : pages[-1] * 4096] = b"\xff" * 4096
    path.write_bytes(content)

    sentence(place("sessions", "show", "s"), f"{path} is damaged (database disk image is malformed); restore it")
    assert set(kept(place)) == {"good", "s"}
    assert "2 whole turns" in place("check", "good").out
    checked = place("check", "s")
    assert (checked.code, "good up to" in checked.out) == (1, True)


# -- somebody else's ----------------------------------------------------------------------------------------------


def test_files_of_somebody_else_in_the_folder_are_named_and_left_out(tmp_path: Path) -> None:
    place = Place("jsonl", f"{tmp_path}/")
    place.make()
    (tmp_path / "notes.jsonl").write_text('{"dear": "diary"}\n')
    (tmp_path / "packed.jsonl").write_bytes(b"\x1f\x8b\0")
    (tmp_path / "newer.jsonl").write_text('{"type":"session","version":99,"id":"newer","createdAt":1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    shutil.copy(tmp_path / "s.jsonl", tmp_path / "copy.jsonl")
    with (tmp_path / "hole.jsonl").open("wb") as hole:
        hole.truncate(1 << 40)  # takes no room
    before = told(tmp_path)

    said = run(*HOST, "plain", "sessions", "list", "--store", place.name)

    assert set(kept(place)) == {"good", "s"}
    assert (said.code, len(said.out.splitlines()), len(said.err.splitlines())) == (0, 2, 6)
    for name in ("notes", "packed", "newer", "folder", "copy", "hole"):
        assert f"{name}.jsonl" in said.err
    assert "holds session 's', whose file is called s.jsonl; give the file its own name back" in said.err
    assert place("check", "s").code == 0
    assert told(tmp_path) == before


def told(folder: Path) -> dict[str, tuple[int, int]]:
    """The size of each file, and when it was changed."""
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_tables_of_somebody_else_are_left_alone(postgres_server: str) -> None:
    name = f"theirs{next(_numbers)}"
    sql(postgres_server, f"CREATE DATABASE {name}")
    place = Place("postgres", database_url(postgres_server, name))
    sql(place.name, "CREATE SCHEMA lifecycle")
    sql(place.name, "CREATE TABLE lifecycle.events (theirs text)")
    assert kept(place) == {}
    sentence(place("run", "hi"), "schema 'lifecycle' holds tables of somebody else; name another database or schema")

    sql(place.name, "CREATE TABLE lifecycle.format (version text)")
    sql(place.name, "INSERT INTO lifecycle.format VALUES ('1')")
    for command in (("run", "hi"), ("sessions", "list"), ("sessions", "delete", "s")):
        sentence(place(*command), "has format '1', and this version of the program knows format 1")


# -- disks and permissions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("file", "is no ordinary file, so it holds no sessions; name another file"),
        ("parent", "cannot be opened: its folder {} does not exist; make it, or name another file"),
        ("parent/", "cannot be made: its folder {} does not exist; make it, or name another folder"),
        ("file/", "is a file; a JSONL store is a folder with a file for each session"),
        ("long", "cannot be used: File name too long; name another file"),
        ("long/", "cannot be used: File name too long; name another folder"),
    ],
)
def test_what_stands_in_the_place_of_a_store(kind: str, complaint: str, tmp_path: Path) -> None:
    names = {
        "file": "/dev/null",
        "parent": f"{tmp_path}/none/store.db",
        "parent/": f"{tmp_path}/none/store/",
        "file/": f"{tmp_path}/notes.txt/",
        "long": f"{tmp_path}/{'x' * 300}",
        "long/": f"{tmp_path}/{'x' * 300}/",
    }
    (tmp_path / "notes.txt").touch()
    sentence(here("run", "hi", "--store", names[kind]), complaint.format(tmp_path / "none"))
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


@pytest.mark.parametrize("name", ["store.db", "store/"])
def test_a_read_only_disk_can_be_read_and_is_said_to_be_one(name: str, small_disk: Path) -> None:
    place = Place("", f"{small_disk}/{name}")
    place.make()
    remount_read_only(small_disk)

    writes_are_refused(place, "cannot be written: ", "disk is read-only; make it writable, or name another")


def test_a_read_only_database_can_be_read_and_is_said_to_be_one(postgres_server: str) -> None:
    name = f"frozen{next(_numbers)}"
    sql(postgres_server, f"CREATE DATABASE {name}")
    place = Place("postgres", database_url(postgres_server, name))
    place.make()
    sql(postgres_server, f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    writes_are_refused(place, "cannot be written: the database is read-only; make it writable, or name another one")


def writes_are_refused(place: Place, *parts: str) -> None:
    for command in (
        ("run", "hi"),
        ("run", "hi", "--session", "s"),
        ("sessions", "fork", "s"),
        ("sessions", "delete", "s"),
    ):
        sentence(place(*command), *parts)
    assert kept(place) == {"good": 16, "s": 16}
    assert place("check", "good", "s").code == 0


@pytest.mark.parametrize("name", ["store.db", "store/"])
def test_a_full_disk_is_said_and_holds_nothing_half_written(name: str, small_disk: Path, workspace: Path) -> None:
    place = Place("", f"{small_disk}/{name}")
    place.make()
    filler = fill(small_disk)

    full(place, workspace, "cannot be written: its disk is full; free some space and try again")

    filler.unlink()
    assert place("run", "hi", "--session", "s", "--workspace", str(workspace)).code == 0
    assert place("check", "s").code == 0


def test_a_full_disk_of_the_server_is_said_and_holds_nothing_half_written(
    postgres_server: str, shared_folder: Path, workspace: Path
) -> None:
    with server_disk(shared_folder):
        name = f"full{next(_numbers)}"
        sql(postgres_server, f"CREATE TABLESPACE {name} LOCATION '{shared_folder}'")
        sql(postgres_server, f"CREATE DATABASE {name} TABLESPACE {name}")
        place = Place("postgres", database_url(postgres_server, name))
        place.make()
        fill(shared_folder)
        full(place, workspace, "cannot be written: the disk of its server is full; free some space there and try again")
        sql(postgres_server, f"DROP DATABASE {name}")
        sql(postgres_server, f"DROP TABLESPACE {name}")


def full(place: Place, workspace: Path, complaint: str) -> None:
    """The disk is full: a turn with a long prompt is not kept whole, and what is kept is what was kept before it."""
    prompt = "".join(map(chr, range(0x4E00, 0x9F00))) * 10  # hard to pack
    ended = place("run", prompt, "--session", "s", "--workspace", str(workspace))
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith("lifecycle run: ")
    assert ended.err.splitlines()[-1].endswith(complaint)
    events = kept(place)
    assert events["good"] == 16
    assert place("check", "good").code == 0
    shown = place("sessions", "show", "s", "--json").out.splitlines()
    assert len(shown) == events["s"]
    assert [json.loads(line)["seq"] for line in shown] == list(range(len(shown)))


@contextmanager
def server_disk(folder: Path) -> Generator[None]:
    """A disk of 16 MiB there, which the server may write."""
    mounted = run("mount", "-t", "tmpfs", "-o", "size=16m,uid=65534,mode=700", "tmpfs", folder)
    if mounted.code:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield
    finally:
        run("umount", "--lazy", folder)


def as_nobody(place: Place, *args: str) -> Ended:
    return run(*HOST, "nobody", *args, "--store", place.name)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions here")
@pytest.mark.parametrize("name", ["store.db", "store/"])
def test_without_the_permission_to_write_it_can_be_read(name: str, shared_folder: Path) -> None:
    place = Place("", f"{shared_folder}/{name}")
    place.make()
    for path in (*shared_folder.rglob("*"), shared_folder):
        path.chmod(0o555 if path.is_dir() else 0o444)

    assert as_nobody(place, "check", "good", "s").code == 0
    refused = as_nobody(place, "run", "hi", "--session", "s")
    sentence(refused, "name another")
    assert "no permission; change that" in refused.err or "read-only; make it writable" in refused.err
    shared_folder.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions here")
def test_without_the_permission_to_read_it_is_said_and_the_rest_of_a_folder_can_be_read(shared_folder: Path) -> None:
    file, folder = Place("", f"{shared_folder}/store.db"), Place("", f"{shared_folder}/store/")
    for place in (file, folder):
        place.make()
    for path in ("store.db", "store/s.jsonl"):
        (shared_folder / path).chmod(0)

    sentence(as_nobody(file, "sessions", "list"), "store.db cannot be opened: no permission to read it; change that")
    listed = as_nobody(folder, "sessions", "list")
    assert (listed.code, len(listed.out.splitlines())) == (0, 1)
    assert (
        listed.err
        == f"{shared_folder}/store/s.jsonl cannot be used: no permission; change that, or name another folder\n"
    )


def test_a_role_without_rights_is_told_which_it_lacks(postgres_server: str) -> None:
    name = f"rights{next(_numbers)}"
    sql(postgres_server, f"CREATE DATABASE {name}")
    sql(postgres_server, f"CREATE ROLE {name} LOGIN")
    owner = Place("postgres", database_url(postgres_server, name))
    reader = Place("postgres", database_url(postgres_server, name, name))
    owner.make()

    sentence(reader("sessions", "list"), "permission denied for schema lifecycle; grant that, or use another role")
    sql(owner.name, f"GRANT USAGE ON SCHEMA lifecycle TO {name}")
    sql(owner.name, f"GRANT SELECT ON ALL TABLES IN SCHEMA lifecycle TO {name}")
    assert reader("check", "good", "s").code == 0
    for command in (("run", "hi"), ("run", "hi", "--session", "s"), ("sessions", "delete", "s")):
        sentence(reader(*command), "permission denied for table sessions; grant that, or use another role")


# -- others, and the time -----------------------------------------------------------------------------------------


def test_a_session_that_another_process_writes_can_be_read_and_not_written(place: Place, workspace: Path) -> None:
    with Child(*HOST, "hanging", "run", "hi", "--workspace", workspace, "--store", place.name) as child:
        child.notes("hanging")
        (id,) = kept(place)

        for command in (("run", "hi", "--session", id), ("sessions", "delete", id)):
            sentence(
                place(*command), f"session {id!r} in ", "close it there" if place.kind == "postgres" else "process"
            )
        assert place("sessions", "show", id).out.endswith("--- turn 1 is going on\n")
        assert place("sessions", "fork", id).code == 2  # no turn of it has ended
        place.make()  # other sessions are nobody's business
        child.send(signal.SIGKILL)
        child.end()
    ended = run(*HOST, "plain", "run", "on", "--session", id, "--workspace", workspace, "--store", place.name)
    assert ended.code == 0
    assert "Turn 1 was never ended: its process was lost. It is closed as interrupted." in ended.err
    assert place("check", id).code == 0


def test_a_clock_that_jumps_back_changes_times_and_nothing_else(
    place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([*range(2_000_000_000_000, 2_000_000_000_010), *range(1_000, 500, -1), *repeat(5, 1_000)])
    monkeypatch.setattr(base, "epoch_ms", times.__next__)

    assert place("run", "hi", "--workspace", str(workspace)).code == 0
    (id,) = kept(place)
    assert place("run", "on", "--session", id, "--workspace", str(workspace)).code == 0

    assert "2 whole turns" in place("check", id).out
    assert place("sessions", "list").out.startswith(id)
    assert place("replay", id).code == 0
