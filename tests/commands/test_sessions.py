"""`lifecycle sessions`: list, show, fork, delete."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from lifecycle.session.sqlite import SqliteStore
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import AssistantMessage, text, user_message
from lifecycle.vocabulary.stream import TimedStream

from .child import LIFECYCLE, Child, Ended, here, run
from .provider import refusing, serving, streaming


def turn(number: int, prompt: str, *, steps: int = 1, ended: bool = True) -> Iterable[ev.EventData]:
    """What a turn leaves."""
    yield ev.TurnStart(turn=number)
    for step in range(1, steps + 1):
        yield ev.StepStart(turn=number, step=step)
        if step == 1:
            yield ev.UserMessageEvent(message=user_message(prompt))
        message = AssistantMessage(id=f"a{number}.{step}", content=text(f"answer {number}.{step}"))
        yield ev.AssistantMessageEvent(
            turn=number, step=step, message=message, stream=TimedStream(), finish=FinishKind.STOP
        )
        yield ev.StepEnd(turn=number, step=step)
    if ended:
        yield ev.TurnEnd(turn=number, reason=COMPLETED)


def keep(store: Path, id: str, *turns: Iterable[ev.EventData]) -> None:
    """A session with these turns."""

    async def work() -> None:
        async with SqliteStore(store) as kept, await kept.create(id) as session:
            for events in turns:
                for data in events:
                    session.append(data, surface="append" if data.on_surface else None)

    anyio.run(work)


def sentence(ended: Ended, *parts: str, code: int = 2) -> None:
    """It was refused, in one sentence."""
    assert (ended.code, ended.out) == (code, "")
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle sessions ")
    for part in parts:
        assert part in said


# -- list -----------------------------------------------------------------------------------------------------------


def test_a_store_that_does_not_exist_is_not_made_by_looking(tmp_path: Path) -> None:
    store = tmp_path / "none.db"

    ended = here("sessions", "list", "--store", store)

    assert ended == (0, f"{store} does not exist yet; `lifecycle run` makes the first one\n", "")
    assert here("sessions", "list", "--json", "--store", store) == (0, "", "")
    sentence(here("sessions", "show", "x", "--store", store), f"{store} holds no session 'x'")
    sentence(here("sessions", "delete", "x", "--store", store), f"{store} holds no session 'x'")
    sentence(here("sessions", "fork", "x", "--store", store), f"{store} holds no session 'x'")
    assert list(tmp_path.iterdir()) == []


def test_the_default_store_is_in_the_data_folder_and_not_made_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIFECYCLE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("sys.platform", "linux")

    assert f"{tmp_path}/data/turn-lifecycle/sessions.db does not exist" in here("sessions", "list").out
    assert not (tmp_path / "data").exists()


def test_a_user_without_a_home_is_told_to_name_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("LIFECYCLE_STORE", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pathlib.Path.home", no_home)

    sentence(here("sessions", "list"), "no home folder", "--store")
    assert here("sessions", "list", "--help").code == 0


def test_the_newest_change_comes_first(store: Path) -> None:
    keep(store, "old", turn(1, "the first words"))
    keep(store, "a-new-one", turn(1, "漢字"), turn(2, "more"))

    rows = here("sessions", "list").out.splitlines()
    listed = [json.loads(line) for line in here("sessions", "list", "--json").out.splitlines()]

    assert [row.split()[0] for row in rows] == ["a-new-one", "old"]
    assert rows[0].endswith("2 turns  漢字")
    assert rows[1].startswith("old        20")
    assert rows[1].endswith(" 1 turn  the first words")
    assert [(row["id"], row["turns"], row["title"], row["inUse"]) for row in listed] == [
        ("a-new-one", 2, "漢字", False),
        ("old", 1, "the first words", False),
    ]


def test_an_empty_store(store: Path) -> None:
    keep(store, "s", turn(1, "x"))
    here("sessions", "delete", "s")

    assert here("sessions", "list").out == f"{store} holds no sessions; `lifecycle run` makes the first one\n"
    assert here("sessions", "list", "--json").out == ""


# -- ids ------------------------------------------------------------------------------------------------------------


def test_an_id_may_be_shortened(store: Path) -> None:
    for id in ("apple", "apricot", "apri"):
        keep(store, id, turn(1, f"about {id}"))

    assert "about apple" in here("sessions", "show", "app").out
    assert "about apri\n" in here("sessions", "show", "apri").out  # exact, though another one begins so
    sentence(here("sessions", "show", "ap"), "'ap' begins 3 sessions", "give more of the id")
    sentence(here("sessions", "show", "pear"), f"{store} holds no session 'pear'", "sessions list")
    sentence(here("sessions", "show", ""), f"{store} holds no session ''")
    sentence(here("sessions", "delete", "apple", "nope"), "holds no session 'nope'")
    assert len(here("sessions", "list").out.splitlines()) == 3


# -- show -----------------------------------------------------------------------------------------------------------


def test_a_session_is_told_again(store: Path) -> None:
    keep(store, "s", turn(1, "one\x1b[2J", steps=2), turn(2, "two", ended=False))

    first, *lines = here("sessions", "show", "s").out.splitlines()

    assert first.startswith("session s of 20")
    assert lines == [
        "--- turn 1",
        "> one\ufffd[2J",
        "answer 1.1",
        "answer 1.2",
        "--- turn 1 completed",
        "--- turn 2",
        "> two",
        "answer 2.1",
        "--- turn 2 was never ended: its process was lost",
    ]
    events = [json.loads(line) for line in here("sessions", "show", "--json", "s").out.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert "\x1b" not in here("sessions", "show", "--json", "s").out


def test_a_log_that_is_not_whole(store: Path) -> None:
    keep(store, "s", turn(1, "one"))
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("DELETE FROM events WHERE place = (SELECT max(place) FROM events)")

    sentence(here("sessions", "show", "s"), "session 's'", "is not whole")


# -- fork -----------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_the_turns_up_to_a_place(store: Path) -> None:
    keep(store, "parent", turn(1, "one", steps=2), turn(2, "two"))
    fork = partial(here, "sessions", "fork", "par")

    assert fork("--id", "all").out == "all\n"
    assert fork("--at", "1", "--id", "turn").out == "turn\n"
    assert fork("--at", "1.1", "--id", "step").out == "step\n"
    fresh = fork().out.strip()

    shown = {id: here("sessions", "show", id).out for id in ("all", "turn", "step", fresh)}
    assert all(", forked from parent\n" in story for story in shown.values())
    assert shown["all"].endswith("--- turn 2 completed\n")
    assert shown["turn"].endswith("answer 1.2\n--- turn 1 completed\n")
    assert shown["step"].endswith("answer 1.1\n--- turn 1 was interrupted\n")
    rows = {row.split()[0]: row for row in here("sessions", "list").out.splitlines()}
    assert rows["turn"].endswith("(fork of parent)")


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("3", ["'parent' cannot be forked at turn 3", "turns 1 to 2 have ended"]),
        ("0", ["at turn 0"]),
        ("1.3", ["at step 3 of turn 1", "of turn 1 the steps 1, 2"]),
        ("3.1", ["at step 1 of turn 3", "turns 1 to 2 have ended"]),
    ],
)
def test_an_impossible_place_is_answered_with_the_possible_ones(place: str, parts: list[str], store: Path) -> None:
    keep(store, "parent", turn(1, "one", steps=2), turn(2, "two"), turn(3, "three", ended=False, steps=0))

    sentence(here("sessions", "fork", "parent", "--at", place), *parts)
    assert len(here("sessions", "list").out.splitlines()) == 1


@pytest.mark.parametrize("place", ["", "x", "1.", ".1", "1.1.1", "-1", "١", "9" * 5000])
def test_what_is_no_place_is_a_wrong_call(place: str) -> None:
    ended = here("sessions", "fork", "s", f"--at={place}")

    assert ended.code == 2
    assert "is no place; write TURN or TURN.STEP, such as 2 or 2.1" in ended.err


def test_a_fork_needs_an_id_of_its_own(store: Path) -> None:
    keep(store, "s", turn(1, "one"))

    sentence(here("sessions", "fork", "s", "--id", "s"), "holds a session 's' already")
    sentence(here("sessions", "fork", "s", "--id", "a\nb"), "a session id holds no control characters")


# -- delete -----------------------------------------------------------------------------------------------------------


def test_a_parent_stays_while_it_has_forks_and_may_go_with_them(store: Path) -> None:
    keep(store, "parent", turn(1, "one"))
    keep(store, "other", turn(1, "one"))
    for parent, child in (("parent", "child"), ("parent", "second"), ("child", "grandchild")):
        here("sessions", "fork", parent, "--id", child)

    sentence(here("sessions", "delete", "parent"), "'parent'", "'child', 'second'", "delete them first")
    ended = here("sessions", "delete", "parent", "child", "second", "grandchild", "grand")

    assert ended.code == 0
    assert ended.out.splitlines() == ["deleted grandchild", "deleted child", "deleted second", "deleted parent"]
    assert here("sessions", "list").out.split()[0] == "other"


def test_a_session_that_another_process_writes(store: Path) -> None:
    keep(store, "s", turn(1, "one"))
    hold = (
        "import anyio, sys\n"
        "from lifecycle.session.sqlite import SqliteStore\n"
        "async def hold():\n"
        "    async with SqliteStore(sys.argv[1]) as store, await store.open('s'):\n"
        "        print('held', flush=True)\n"
        "        await anyio.to_thread.run_sync(sys.stdin.read)\n"
        "anyio.run(hold)\n"
    )
    with Child(LIFECYCLE[0], "-c", hold, store, stdin=subprocess.PIPE) as child:
        child.says("held")

        sentence(here("sessions", "delete", "s"), "'s'", f"is being written by process {child.process.pid}", "wait")
        assert here("sessions", "list").out.rstrip().endswith("(in use)")
        assert json.loads(here("sessions", "list", "--json").out)["inUse"] is True
        assert "answer 1.1" in here("sessions", "show", "s").out
        assert here("sessions", "fork", "s", "--id", "f").out == "f\n"

    assert here("sessions", "delete", "f", "s").code == 0


# -- output ------------------------------------------------------------------------------------------------------------


def test_a_pipe_that_breaks_ends_quietly(store: Path) -> None:
    keep(store, "s", turn(1, "x" * 200_000), turn(2, "y" * 200_000))

    ended = run("sh", "-c", '"$@" | head -c 1', "sh", *LIFECYCLE, "sessions", "show", "s")

    assert ended == (0, "s", "")


# -- compact ------------------------------------------------------------------------------------------------------


def compacting(url: str, *rest: str) -> Ended:
    return here("sessions", "compact", *rest, "--model", "m", "--base-url", url)


def test_a_session_is_compacted_by_a_model_and_goes_on_from_the_summary(store: Path) -> None:
    keep(store, "long", *(turn(n, "word " * 300) for n in range(1, 7)))

    with serving(streaming(["they talked ", "of words"])) as url:
        ended = compacting(url, "long")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == "long: 9 messages gave way to a summary"
    assert ended.out.endswith("\n\nthey talked of words\n")
    shown = here("sessions", "show", "long")
    assert "> (compaction) The older part of this conversation was replaced" in shown.out


def test_a_summary_that_is_not_to_be_had_leaves_the_session_as_it_is(store: Path) -> None:
    keep(store, "long", *(turn(n, "word " * 300) for n in range(1, 7)))
    keep(store, "open", turn(1, "word " * 300, ended=False))
    before = here("sessions", "show", "long", "--json").out

    with serving(refusing(401, message="wrong key", code="invalid_api_key")) as url:
        sentence(compacting(url, "long"), "the summary model openai-chat/m failed: ", ": wrong key (AUTH)", code=1)
        sentence(compacting(url, "open"), "turn 1 of session 'open' is still open")
        sentence(compacting(url, "none"), "holds no session 'none'")
        sentence(here("sessions", "compact", "long", "--model", "m", "--wire", "tin"), "there is no wire 'tin'")
        assert "'90' is no share that can stay" in compacting(url, "long", "--keep", "90").err
    with serving(streaming(["word " * 3_000])) as url:
        sentence(compacting(url, "long"), "the summary is no shorter than what it was made of", code=1)

    after = here("sessions", "show", "long", "--json").out.removeprefix(before)
    assert [json.loads(line)["type"] for line in after.splitlines()] == ["compaction/start", "compaction/end"] * 2
