"""`lifecycle run --session`: a later turn, also after the process of an earlier one was lost."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from .child import HOST, LIFECYCLE, Child, here, run


def listed() -> str:
    """The id of the only session."""
    (line,) = here("sessions", "list", "--json").out.splitlines()
    return str(json.loads(line)["id"])


def kinds(id: str) -> list[str]:
    return [json.loads(line)["type"] for line in here("sessions", "show", "--json", id).out.splitlines()]


def test_a_second_turn_goes_on_with_the_session_that_is_named(store: Path, workspace: Path) -> None:
    assert here("run", "hello", "--workspace", str(workspace)).code == 0
    id = listed()

    ended = here("run", "and again", "--session", id[:8], "--workspace", str(workspace))

    assert ended.code == 0
    assert listed() == id
    assert kinds(id).count("turn/end") == 2


def test_a_turn_whose_process_was_killed_is_closed_and_its_calls_have_results(store: Path, workspace: Path) -> None:
    with Child(*HOST, "hanging", "run", "hi", "--workspace", workspace) as child:
        child.notes("hanging")
        child.send(signal.SIGKILL)
        child.end()
    id = listed()
    assert "turn/end" not in kinds(id)

    ended = here("run", "go on", "--session", id, "--workspace", str(workspace))

    assert ended.code == 0
    assert "Turn 1 was never ended: its process was lost. It is closed as interrupted." in ended.err
    shown = here("sessions", "show", "--json", id).out
    assert '"code":"TOOL_OUTCOME_UNKNOWN"' in shown
    assert '"kind":"interrupted"' in shown
    assert kinds(id).count("turn/end") == 2


@pytest.mark.parametrize(("answer", "outcome"), [("y", "approved"), ("n", "denied")])
def test_a_turn_whose_process_was_killed_while_it_asked_asks_again(
    answer: str, outcome: str, store: Path, workspace: Path
) -> None:
    run = (*LIFECYCLE, "run", "see README.md", "--workspace", workspace)
    with Child(*run, "--ask", stdin=subprocess.PIPE) as child:
        child.notes("May list_files")
        child.send(signal.SIGKILL)
        child.end()
    id = listed()
    assert kinds(id)[-1] == "approval/asked"

    with Child(*run, "--session", id, stdin=subprocess.PIPE) as child:
        child.notes("Turn 1 goes on: its process was lost while it asked whether list_files may run.")
        child.notes("May list_files")
        assert child.process.stdin is not None
        child.process.stdin.write(f"{answer}\n".encode())
        child.process.stdin.flush()
        assert child.end().code == 0

    shown = here("sessions", "show", "--json", id).out
    assert f'"outcome":"{outcome}"' in shown
    assert ('"code":"DENIED"' in shown) is (outcome == "denied")
    assert kinds(id).count("turn/end") == 2


def test_without_anybody_to_answer_an_ask_is_a_no(store: Path, workspace: Path) -> None:
    ended = run(*LIFECYCLE, "run", "see README.md", "--ask", "--workspace", workspace)

    assert ended.code == 0
    assert "There is no more input to answer with, so it may not." in ended.err


def test_an_unknown_session_is_a_wrong_call(store: Path) -> None:
    here("run", "hello")
    ended = here("run", "hello", "--session", "unheard-of")

    assert ended.code == 2
    assert "holds no session 'unheard-of'" in ended.err
