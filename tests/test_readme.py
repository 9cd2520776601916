"""The README keeps its word: its commands are those that CI runs, and its example is Python."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [found.strip() for found in re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]


def test_there_are_two_commands_of_one_line_each_that_set_everything_up_themselves() -> None:
    commands = blocks("sh")

    assert len(commands) == 2
    assert [command for command in commands if "\n" in command] == []
    assert all(command.startswith("python3 -m venv .venv && .venv/bin/pip install ") for command in commands)
    assert ".venv/bin/lifecycle run " in commands[0]
    assert commands[1].endswith(" && .venv/bin/python tools/check")


def test_ci_runs_the_second_command_word_for_word() -> None:
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]

    assert lines.count(blocks("sh")[1]) == 1


def test_contributors_are_given_the_same_command() -> None:
    assert blocks("sh")[1] in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("script", [".ci/run", "tools/check"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


def test_the_example_is_python() -> None:
    (example,) = blocks("python")

    compile(example, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
