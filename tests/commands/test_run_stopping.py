"""Ctrl-C and signals: once ends the turn cleanly, twice ends the process."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest

from .child import BOUND, HOST, Child, here
from .provider import serving, streaming


def stored(store: Path) -> list[dict[str, Any]]:
    """The events of the only session."""
    (listed,) = here("sessions", "list", "--json").out.splitlines()
    shown = here("sessions", "show", "--json", json.loads(listed)["id"])
    return [json.loads(line) for line in shown.out.splitlines()]


def test_ctrl_c_cancels_the_turn_and_keeps_it(store: Path, workspace: Path) -> None:
    with Child(*HOST, "hanging", "run", "hi", "--workspace", workspace) as child:
        child.notes("hanging")
        child.send(signal.SIGINT)
        ended = child.end()

    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert "Cancelling the turn; once more ends the process." in ended.err
    assert "The turn was cancelled by the user.\n" in ended.err
    assert ended.out.splitlines()[-1].startswith("← search_text failed (ABORTED): ")
    assert [event["type"] for event in stored(store)[-3:]] == ["tool/result", "step/end", "turn/end"]
    assert stored(store)[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}


def test_ctrl_c_closes_a_stream_and_keeps_what_was_seen(store: Path) -> None:
    gate = Event()
    with (
        serving(streaming(["seen\n", "and more", gate])) as url,
        Child(*HOST, "plain", "run", "hi", "--base-url", url, "--model", "m") as child,
    ):
        child.says("seen")
        child.send(signal.SIGINT)
        ended = child.end()
        gate.set()

    assert ended.code == 130
    assert ended.out in ("seen\n", "seen\nand more\n")
    (message,) = (event["data"] for event in stored(store) if event["type"] == "assistant/message")
    assert message["interrupted"] is True


def test_with_json_the_lines_stay_json_and_tell_the_end(store: Path, workspace: Path) -> None:
    with Child(*HOST, "hanging", "run", "--json", "hi", "--workspace", workspace) as child:
        child.notes("hanging")
        child.send(signal.SIGINT)
        ended = child.end()

    assert ended.code == 130
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert lines[-1] == {"domain": "live", "name": "agent/status", "status": "idle"}
    assert lines[-2]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
    said = "Cancelling the turn; once more ends the process.\nThe turn was cancelled by the user.\n"
    assert said in ended.err


def test_ctrl_c_twice_ends_the_process_though_a_tool_hangs_in_its_thread(store: Path, workspace: Path) -> None:
    with Child(*HOST, "stuck", "run", "hi", "--workspace", workspace) as child:
        child.notes("stuck")
        child.send(signal.SIGINT)
        child.notes("once more ends the process")
        deadline = monotonic() + BOUND
        while "(in use)" not in here("sessions", "list").out:  # it is kept at the first Ctrl-C, right after the note
            assert monotonic() < deadline
        child.send(signal.SIGINT)
        ended = child.end()

    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert "(in use)" not in here("sessions", "list").out
    # What has happened was kept before the process was ended; the turn is open, and says so.
    assert stored(store)[-1]["type"] == "tool/call"
    (listed,) = here("sessions", "list", "--json").out.splitlines()
    shown = here("sessions", "show", json.loads(listed)["id"]).out
    assert shown.endswith("--- turn 1 was never ended: its process was lost\n")


def test_ctrl_c_twice_ends_the_process_though_a_tool_blocks_the_event_loop(store: Path, workspace: Path) -> None:
    with Child(*HOST, "blocking", "run", "hi", "--workspace", workspace) as child:
        child.notes("blocking")
        for _ in range(100):  # two that come too close are one
            child.send(signal.SIGINT)
            try:
                child.process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                pass

        assert child.end().code == 130


def test_ctrl_c_before_the_turn_starts_keeps_nothing(store: Path) -> None:
    with Child(*HOST, "never-starts", "run", "hi") as child:
        child.notes("starting")
        child.send(signal.SIGINT)
        ended = child.end()

    assert ended == (130, "", "starting\nStopped before the turn began; nothing is kept.\n")
    assert here("sessions", "list", "--json").out == ""


def test_ctrl_c_while_the_prompt_is_typed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Typing:
        def read(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Typing())

    assert here("run", "-") == (130, "", "")
    assert not store.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_take_the_agent_down_cleanly(number: int, code: int, store: Path, workspace: Path) -> None:
    with Child(*HOST, "hanging", "run", "hi", "--workspace", workspace) as child:
        child.notes("hanging")
        child.send(number)
        ended = child.end()

    assert ended.code == code
    assert "The turn was cancelled, as its agent was taken down.\n" in ended.err
    assert stored(store)[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}


def test_a_signal_that_the_caller_ignores_stays_ignored(store: Path, workspace: Path) -> None:
    command = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *HOST, "hanging", "run", "hi", "--workspace", workspace)
    with Child(*command) as child:
        child.notes("hanging")
        child.send(signal.SIGHUP)
        child.send(signal.SIGTERM)
        ended = child.end()

    assert ended.code == 143
    assert "The turn was cancelled" in ended.err  # by the first signal that was heard, not ended by the second one
