"""`lifecycle check`: is a recorded log legal, and if not, which event is not and what would have been."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Agent, tool
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing import Reply, ScriptedModel

from .child import LIFECYCLE, here, run


@tool
def look() -> str:
    """Look."""
    return "seen"


async def lines(store: Path, id: str = "demo") -> list[str]:
    """The log of a turn with a tool call, which is also kept in the store."""
    with anyio.fail_after(10):
        async with SqliteStore(store) as kept:
            model = ScriptedModel(Reply(text="so", calls=[("look", {})]), Reply(text="done"))
            async with Agent(model, tools=[look], session=await kept.create(id=id)) as agent:
                agent.followup("go")
                await agent.when_idle()
                return [event.encode() for event in agent.session.events]


def write(folder: Path, log: list[str], end: str = "\n") -> Path:
    path = folder / "log.jsonl"
    path.write_text("\n".join(log) + end, encoding="utf-8")
    return path


def renumbered(log: list[str]) -> list[str]:
    return [json.dumps({**json.loads(line), "seq": n}) for n, line in enumerate(log)]


@pytest.fixture
def log(store: Path) -> list[str]:
    return anyio.run(lines, store)


def said_twice(log: list[str]) -> list[str]:
    return [*log[:3], log[2], *log[3:]]


def without_one(log: list[str]) -> list[str]:
    return [*log[:3], *log[4:]]


def with_nonsense(log: list[str]) -> list[str]:
    return [*log[:3], "nonsense", *log[3:]]


def test_a_legal_log_is_told_in_one_line(log: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, log)

    ended = here("check", path)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{path}: legal under revision 000: {len(log)} records, 1 whole turn\n"


def test_a_version_that_is_no_number_is_told(log: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, ['{"type":"session","version":"new","id":"x"}', *log])

    ended = here("check", path)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"lifecycle check: {path}, line 1: a log's version is a number, not 'new'\n"


def test_several_logs_are_told_one_after_another_and_counted(log: list[str], tmp_path: Path) -> None:
    legal = write(tmp_path, log)
    wrong = legal.rename(tmp_path / "wrong.jsonl")
    wrong.write_text("\n".join(renumbered(said_twice(log))), encoding="utf-8")
    legal = write(tmp_path, log)

    fine, mixed, broken = here("check", legal, legal), here("check", wrong, legal), here("check", "nowhere", legal)

    assert (fine.code, mixed.code, broken.code) == (0, 1, 2)
    assert fine.out.splitlines()[-1] == "2 logs: 2 legal"
    assert mixed.out.splitlines()[-1] == "2 logs: 1 legal, 1 not legal"
    assert broken.out.splitlines()[-1] == "2 logs: 1 legal, 1 no log"
    assert "there is no file 'nowhere'" in broken.err
    assert [json.loads(line)["accepted"] for line in here("check", wrong, legal, "--json").out.splitlines()] == [
        False,
        True,
    ]


def test_a_stored_session_is_checked_by_its_id(log: list[str], store: Path) -> None:
    ended = here("check", "demo", "--store", store)

    assert (ended.code, ended.out) == (0, f"session demo: legal under revision 000: {len(log)} records, 1 whole turn\n")


def test_standard_input_is_checked(log: list[str]) -> None:
    ended = run(*LIFECYCLE, "check", "-", input="\n".join(log).encode())

    assert (ended.code, ended.out.partition(":")[0]) == (0, "standard input")


def test_the_first_illegal_event_is_told_with_what_would_have_been_legal(log: list[str], tmp_path: Path) -> None:
    at = next(n for n, line in enumerate(log) if '"tool/call"' in line)
    path = write(tmp_path, renumbered(log[:at] + log[at + 1 :]))

    ended = here("check", path)

    told = ended.out.splitlines()
    assert ended.code == 1
    assert told[0].startswith(f"{path}, line {at + 1} (event {at}): tool/result does not fit: it is of ")
    assert told[1] == "  the run was in running/stepping/tooling (turn 1, step 1)"
    assert told[2] == "  legal there   step/end, tool/call, user/message"
    assert told[3].startswith(f"  before it     line {at - 4}: ")
    assert f"line {at}: assistant/message" in told[7]
    assert told[-1] == f"  good up to    line {at}: {at} records, 0 whole turns"


def test_a_log_whose_turn_waits_for_an_approval_is_legal_and_says_so(log: list[str], tmp_path: Path) -> None:
    at = next(n for n, line in enumerate(log) if '"tool/call"' in line)
    call = json.loads(log[at])["data"]
    asked = {"id": "a1", "callId": call["callId"], "toolName": call["name"], "reason": "it writes"}
    path = write(
        tmp_path, [*log[: at + 1], json.dumps({"seq": at + 1, "time": 0, "type": "approval/asked", "data": asked})]
    )

    ended, told = here("check", path), json.loads(here("check", path, "--json").out)

    assert (ended.code, ended.out) == (
        0,
        f"{path}: legal under revision 000: {at + 2} records, 0 whole turns; turn 1 waits for an approval\n",
    )
    assert (told["accepted"], told["parkedTurn"]) == (True, 1)
    assert "parkedTurn" not in json.loads(here("check", write(tmp_path, log), "--json").out)


def test_as_json_it_says_the_same(log: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, renumbered([log[0], *log[2:]]))

    ended = here("check", path, "--json")

    told: dict[str, Any] = json.loads(ended.out)
    assert (ended.code, told["accepted"], told["line"], told["seq"], told["goodLine"]) == (1, False, 2, 1, 1)
    assert told["divergence"]["phases"] == ["idle"]
    assert told["divergence"]["expected"] == ["agent/inbox/spliced", "session/end-seed", "turn/start"]
    assert [one["type"] for one in told["before"]] == ["agent/inbox/spliced"]


def test_the_sequence_shows_the_turn_up_to_the_divergence(log: list[str], tmp_path: Path) -> None:
    at = next(n for n, line in enumerate(log) if '"step/end"' in line)
    path = write(tmp_path, renumbered(log[:at] + log[at + 1 :]))

    ended = here("check", path, "--sequence")

    picture = ended.out.partition("\n\n")[2]
    assert ended.code == 1
    assert picture.startswith("sequenceDiagram\n")
    assert "tool/call" in picture
    assert "here the run diverges: step/start cannot follow here" in picture.splitlines()[-1]


def test_another_revision_is_named_where_it_knows_the_event(log: list[str], tmp_path: Path) -> None:
    chunk = json.dumps({"type": "assistant/chunk", "data": {"turn": 1, "step": 1}, "seq": 0, "time": 0})
    path = write(tmp_path, renumbered([*log[:4], chunk]))

    ended = here("check", path)

    assert ended.code == 1
    assert "assistant/chunk is recorded by revision 2026-08, 001, 002; see --revision" in ended.out
    assert "the log ends while" in here("check", path, "--revision", "2026-08").out


def test_a_foreign_event_needs_its_plug_in_to_be_known(log: list[str], tmp_path: Path) -> None:
    foreign = json.dumps({"type": "mine/noted", "data": {}})
    path = write(tmp_path, renumbered([log[0], foreign, *log[1:]]))

    ended = here("check", path)

    assert ended.code == 1
    assert "mine/noted is declared by nobody" in ended.out
    assert "--plugin" in ended.out
    assert here("check", path, "--plugin", "mine/").code == 0
    marked = write(tmp_path, renumbered([log[0], foreign[:-1] + ', "ignorable": true}', *log[1:]]))
    assert here("check", marked).code == 0


def test_a_log_that_ends_in_an_open_turn_is_not_whole(log: list[str], tmp_path: Path) -> None:
    ended = here("check", write(tmp_path, log[:-1]))

    assert ended.code == 1
    assert f"line {len(log) - 1}: the log ends while turn 1 is open" in ended.out


def test_a_torn_tail_is_told_with_how_far_it_was_good(log: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, [*log[:-1], log[-1][:20]], end="")

    ended = here("check", path)

    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{path}, line {len(log)}: the last line was torn",
        f"  good up to    line {len(log) - 1}: {len(log) - 1} records, 0 whole turns",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (said_twice, "line 4: event 2 comes again; here event 3 would follow"),
        (without_one, "line 4: event 4 comes too early: lines are missing"),
        (with_nonsense, "line 4: 'nonsense' is no JSON, so this is no event"),
    ],
)
def test_where_it_cannot_be_read_on_it_is_told_how_far_it_was_good(
    log: list[str], tmp_path: Path, change: Callable[[list[str]], list[str]], said: str
) -> None:
    ended = here("check", write(tmp_path, change(log)))

    assert (ended.code, ended.err) == (1, "")
    assert said in ended.out
    assert "good up to    line 3: 3 records, 0 whole turns" in ended.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\x7fELF\0\0\0", "it is no text"),
        (b'{"hello": "world"}\n', "this is no event of a session"),
        (b"Dear diary,\n", "is no JSON"),
        (b'{"type": "session", "version": 9}\n', "was written in version 9"),
    ],
)
def test_what_is_no_log_is_a_wrong_call(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)

    ended = here("check", path)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.jsonl"], "there is no file 'nowhere.jsonl'"),
        (["x", "--revision", "01"], "there is no revision '01' (did you mean '001'?)"),
        (["x", "--json", "--sequence"], "choose one"),
        (["x", "--plugin", ""], "an empty one is all of them"),
        (["x", "--revision", "nowhere:Turn"], "there is no module 'nowhere' here"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], said: str) -> None:
    ended = here("check", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
