"""The command line as a whole: help, wrong calls, what it loads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lifecycle.commands import main
from lifecycle.commands.calls import lone
from lifecycle.errors import StoreError

from .child import LIFECYCLE, here, run


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("run",),
        ("diagrams",),
        ("sessions",),
        *(("sessions", action) for action in ("list", "show", "fork", "delete")),
    ],
)
def test_each_command_has_help(words: tuple[str, ...]) -> None:
    ended = here(*words, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: {' '.join(('lifecycle', *words))} ")
    assert "xit code" in ended.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "required: COMMAND"),
        (("sessions",), "required: ACTION"),
        (("sessions", "delete"), "required: id"),
        (("run",), "required: prompt"),
        (("run", "hi", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("run", "hi", "--js"), "unrecognized arguments: --js"),
        (("nonsense",), "invalid choice: 'nonsense'"),
    ],
)
def test_a_wrong_call_says_how_it_is_called(words: tuple[str, ...], part: str) -> None:
    ended = here(*words)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("usage: lifecycle")
    assert part in ended.err


def test_the_installed_command_and_the_module_are_the_same() -> None:
    installed = Path(sys.executable).with_name("lifecycle")

    assert run(installed, "--help") == run(*LIFECYCLE, "--help")


def test_help_loads_neither_http_nor_adapters_nor_a_database() -> None:
    script = (
        "import sys, lifecycle.commands\n"
        "try: lifecycle.commands.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('httpx', 'h11', 'lifecycle_adapters', 'sqlite3', 'trio') if name in sys.modules])\n"
    )

    assert run(sys.executable, "-c", script).out.endswith("[]\n")


def test_an_error_in_groups_comes_out_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    error = StoreError("it is full")

    def fail(*_: object) -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])

    monkeypatch.setattr("lifecycle.commands.sessions.open_store", fail)

    assert here("sessions", "list") == (2, "", "lifecycle sessions list: it is full\n")


def test_errors_that_are_several_stay_a_group() -> None:
    group = ExceptionGroup("two", [ValueError(), KeyError()])

    assert lone(group) is group


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ExceptionGroup("one", [ZeroDivisionError("a bug")])

    monkeypatch.setattr("lifecycle.commands.sessions.open_store", fail)

    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["sessions", "list"])


def test_an_error_of_the_system_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/some\x1bwhere")

    monkeypatch.setattr("lifecycle.commands.sessions.open_store", fail)

    ended = here("sessions", "list")
    assert ended == (2, "", "lifecycle sessions list: [Errno 13] Permission denied: '/some\\x1bwhere'\n")
