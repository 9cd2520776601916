"""`lifecycle run --session`: a later turn, also after the process of an earlier one was lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from .child import HOST, Child, here


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


def test_an_unknown_session_is_a_wrong_call(store: Path) -> None:
    here("run", "hello")
    ended = here("run", "hello", "--session", "unheard-of")

    assert ended.code == 2
    assert "holds no session 'unheard-of'" in ended.err
