"""How a run looks: on a terminal, in a pipe, and in a pipe that breaks."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from threading import Event

import pytest

from lifecycle.commands.console import Console
from lifecycle.commands.output import Output, fit, printable, shorten

from .child import BOUND, HOST, LIFECYCLE, Child, here, run
from .provider import serving, streaming

CLEAR = "\r\x1b[2K"


def on_terminal(*command: str | os.PathLike[str], columns: int = 80, env: Mapping[str, str] | None = None) -> str:
    """What a command writes to a terminal, to its end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    full = {**os.environ, "TERM": "xterm", **(env or {})}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=full) as process:
        os.close(theirs)
        written = bytearray()
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError as end:
                if end.errno != errno.EIO:  # how a terminal says that nobody writes to it any more
                    raise
                break
            if not piece:
                break
            written += piece
        os.close(ours)
        process.wait(BOUND)
    return written.decode()


def seen(written: str) -> list[str]:
    """The lines that stay on the screen."""
    return [line.rpartition(CLEAR)[2] for line in written.split("\r\n")]


def test_on_a_terminal_the_place_is_one_line_that_is_overwritten_and_taken_away(store: Path, workspace: Path) -> None:
    written = on_terminal(*HOST, "plain", "run", "see README.md", "--workspace", str(workspace))

    for place in ("turn 1: opening", "step 1: requesting", "step 1: retrying", "step 1: tooling", "turn 1: closing"):
        assert f"[{place}]{CLEAR}" in written
    screen = seen(written)
    assert not any(line.startswith("[") for line in screen)
    assert screen[0].startswith("No provider was named")
    assert screen[1].startswith("! request failed (OVERLOADED): ")
    assert screen[1].endswith("; asking again in 0.001 s")
    assert screen[2:10] == [
        "I am a script, not a model; I follow a fixed plan so that you can see a turn run. First I look around.",
        '→ list_files {"path": "."}',
        '→ read_file {"path": "README.md"}',
        "← list_files: README.md (35)",
        "← read_file: # Greenhouse (+1 line)",
        "Now I search for a word, on its own.",
        '→ search_text {"query": "Greenhouse"}',
        "← search_text: README.md:1: # Greenhouse",
    ]
    assert screen[-5] == "For an answer of a real model, give `--base-url` and `--model`."
    assert screen[-4] == "The turn completed."
    assert screen[-3].startswith("It took 3 steps, 4 requests (1 failed), 3 tool calls, ")
    assert screen[-2].startswith("Read it again: lifecycle sessions show ")
    assert screen[-1] == ""


def test_a_narrow_terminal_is_not_overrun(store: Path, workspace: Path) -> None:
    written = on_terminal(*HOST, "plain", "run", "hi", "--workspace", str(workspace), columns=12)

    places = [place for place in written.split(CLEAR)[:-1] if place.startswith("[")]
    assert places
    assert {len(place) for place in places} == {11}


def test_on_a_dumb_terminal_places_are_lines(store: Path, workspace: Path) -> None:
    written = on_terminal(*HOST, "plain", "run", "hi", "--workspace", str(workspace), env={"TERM": "dumb"})

    assert "\x1b" not in written
    assert "[step 1: requesting]\r\n" in written


def test_in_pipes_the_answer_and_the_tools_go_out_and_all_else_beside(store: Path, workspace: Path) -> None:
    ended = run(*HOST, "plain", "run", "see README.md", "--workspace", workspace)

    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err
    assert ended.out.startswith("I am a script")
    assert ended.out.endswith("`--model`.\n")
    assert "[" not in ended.out.replace("[cut", "")
    lines = ended.err.splitlines()
    assert lines[1:8] == [
        "[agent: running]",
        "[turn 1: opening]",
        "[turn 1: opened]",
        "[step 1: claimed]",
        "[step 1: entered]",
        "[step 1: requesting]",
        "[step 1: retrying]",
    ]


def test_a_store_that_was_named_is_named_in_what_to_do_next(tmp_path: Path, workspace: Path) -> None:
    store = tmp_path / "my sessions.db"

    told = run(*HOST, "plain", "run", "hi", "--workspace", workspace, "--store", store).err.splitlines()[-1]

    advice = told.removeprefix("Read it again: ")
    assert advice.startswith(f"lifecycle sessions show --store '{store}' ")
    shown = run("sh", "-c", f"{' '.join(LIFECYCLE)} {advice.removeprefix('lifecycle ')}")
    assert shown.code == 0
    assert shown.out.endswith("--- turn 1 completed\n")


def test_a_model_cannot_drive_the_terminal(store: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 \x9b31m a\rb \u202edesrever\u202c ok 漢字 e\u0301 👩\u200d🚀\u3000\n"
    with serving(streaming([evil])) as url:
        written = on_terminal(*LIFECYCLE, "run", "hi", "--base-url", url, "--model", "evil\x1b[2J")

    assert written.replace(CLEAR, "").count("\x1b") == 0
    assert not set(written) & set("\x07\x9b\u202e\u202c")
    assert "ok 漢字 e\u0301 👩\u200d🚀\u3000" in written


# -- outputs that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("together", [False, True])
def test_a_pipe_that_nobody_reads_ends_the_run_quietly(form: tuple[str, ...], together: bool, store: Path) -> None:
    gate = Event()
    ours, theirs = os.pipe()
    with serving(streaming(["one\n", gate, *(["two\n"] * 5)])) as url:
        command = (*LIFECYCLE, "run", *form, "hi", "--base-url", url, "--model", "m")
        with Child(*command, stdout=theirs, stderr=subprocess.STDOUT if together else subprocess.PIPE) as child:
            os.close(theirs)
            read = b""
            while b"one" not in read:
                piece = os.read(ours, 65536)
                assert piece
                read += piece
            os.close(ours)
            gate.set()
            ended = child.end()

    assert ended.code == 1
    assert not re.search("Traceback|Broken|Exception|The turn", ended.err)
    (listed,) = here("sessions", "list", "--json").out.splitlines()
    shown = here("sessions", "show", listed.split('"')[3]).out
    assert shown.splitlines()[-1] == "--- turn 1 was cancelled by a hook: nobody reads the output any more"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_standard_output_on_a_full_disk(form: tuple[str, ...], store: Path, workspace: Path) -> None:
    with (
        open("/dev/full", "wb") as full,
        Child(*HOST, "plain", "run", *form, "hi", "--workspace", workspace, stdout=full) as child,
    ):
        ended = child.end()

    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "lifecycle run: standard output cannot be written (No space left on device); send it elsewhere"
    )
    assert "Traceback" not in ended.err


def test_descriptors_that_are_closed_are_not_taken_by_the_store(store: Path, workspace: Path) -> None:
    closing = 'exec "$@" <&- >&- 2>&-'

    ended = run("sh", "-c", closing, "sh", *HOST, "bad-tools", "run", "see README.md", "--workspace", workspace)

    assert ended == (0, "", "")
    assert here("sessions", "list").code == 0
    assert b"by a tool" not in store.read_bytes()


# -- the parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\r\nb\r", "a\nb"),
        ("\x00\x1b[0m\x7f\x80\x9f", "\ufffd\ufffd[0m\ufffd\ufffd\ufffd"),
        ("\u202e\u2066\ud800", "\ufffd\ufffd\ufffd"),
        ("漢\u00a0\u3000ü👩\u200d🚀", "漢\u00a0\u3000ü👩\u200d🚀"),
    ],
)
def test_text_keeps_all_but_what_drives_a_terminal(said: str, shown: str) -> None:
    assert printable(said) == shown


def test_wide_characters_take_two_cells() -> None:
    assert fit("漢字漢字", 5) == "漢字"
    assert fit("abc", 3) == "abc"
    assert fit("abc", 0) == ""


def test_a_shortened_line_is_one_line() -> None:
    assert shorten(" a \n b ") == "a b"
    assert shorten("x" * 1_000_000, 10) == "x" * 9 + "…"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_running_text_and_the_live_line_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    console = Console(Output(screen), Output(screen))

    console.place("step 1: requesting")
    console.text("half a ")
    console.place("step 1: tooling")
    console.text("line")
    console.line("→ tool")
    console.say("note")
    console.close()

    assert screen.getvalue() == (
        f"[step 1: requesting]{CLEAR}half a line\n→ tool\n[step 1: tooling]{CLEAR}note\n[step 1: tooling]{CLEAR}"
    )
