"""`lifecycle run --session`: a later turn, also after the process of an earlier one was lost."""

from __future__ import annotations

import json
from pathlib import Path

from .child import here


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


def test_an_unknown_session_is_a_wrong_call(store: Path) -> None:
    here("run", "hello")
    ended = here("run", "hello", "--session", "unheard-of")

    assert ended.code == 2
    assert "holds no session 'unheard-of'" in ended.err
