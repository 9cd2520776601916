"""`lifecycle fuzz`: exit codes, what is printed, and cases that are run again from their files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lifecycle.commands import main

MINE = """
from lifecycle import Hooks
from lifecycle.testing import invariant

def good():
    return Hooks()

def bad():
    hooks = Hooks()

    @hooks.on("tools/post-execute")
    async def look(payload, next):
        print("looking")
        await next()

    return hooks

def failing():
    raise OSError("no settings")

def nothing():
    pass
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "my_hooks.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_hooks", None)


def fuzz(*words: str) -> int:
    return main(["fuzz", *words])


def test_hooks_in_order_exit_with_0_and_tell_what_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("my_hooks:good", "--examples", "4", "--seed", "1") == 0

    told = capsys.readouterr()
    assert told.out.startswith("my_hooks.good: 4 examples")
    assert "arrows " in told.out
    assert "[4 of 4 examples]" in told.err


def test_a_failure_exits_with_1_and_fails_again_from_its_file(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("my_hooks:bad", "--save", "case.json") == 1
    first = capsys.readouterr().out
    assert first.startswith("look at tools/post-execute returns None, where Accept or Block is allowed\n")
    assert "sequenceDiagram" in first
    assert "looking" not in first

    assert fuzz("--replay", "case.json") == 1
    again = capsys.readouterr()
    assert again.out.splitlines()[0] == first.splitlines()[0]
    assert set(again.err.split()) == {"looking"}

    assert fuzz("my_hooks:good", "--replay", "case.json") == 0
    assert capsys.readouterr().out == "the case passes\n"


def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("my_hooks:bad", "--json", "--seed", "5") == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)

    assert (told["ok"], told["seed"], told["failure"]["point"]) == (False, 5, "tools/post-execute")
    assert told["failure"]["fixture"]["case"]["scenario"]["moves"] == [{}]

    assert fuzz("my_hooks:good", "--json", "--examples", "3") == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["my_hooks:failing"], "my_hooks.failing raises OSError: no settings"),
        (["my_hooks:nothing"], "returns None, and no Hooks"),
        (["my_hooks:absent"], "my_hooks has no 'absent'"),
        (["no_such_module:good"], "there is no module 'no_such_module'"),
        (["my_hooks"], "'my_hooks' names nothing; write module:Name"),
        ([], "name the function that makes the hooks, as MODULE:FACTORY"),
        (["my_hooks:good", "--examples", "0"], "tries nothing"),
        (["my_hooks:good", "--backend", "curio"], "there is no backend 'curio'; there are asyncio and trio"),
        (["my_hooks:good", "--replay", "absent.json"], "absent.json cannot be read"),
        (["my_hooks:good", "--replay", "my_hooks.py"], "my_hooks.py is no fixture of a check"),
        (["my_hooks:good", "--replay", "my_hooks.py", "--seed", "1"], "leave --seed and --backend out"),
    ],
)
def test_a_wrong_call_exits_with_2_and_one_sentence(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz(*words) == 2

    told = capsys.readouterr()
    assert told.out == ""
    assert says in told.err
    assert told.err.count("\n") == 1


def test_a_folder_that_is_not_there_is_refused_before_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("my_hooks:bad", "--save", "nowhere/case.json") == 2

    told = capsys.readouterr()
    assert "there is no folder 'nowhere'" in told.err
    assert told.out == ""


def test_what_was_found_is_told_even_if_it_cannot_be_kept(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("my_hooks:bad", "--save", str(mine), "--examples", "4") == 1

    told = capsys.readouterr()
    assert "cannot be written" in told.err
    assert "look at tools/post-execute returns None" in told.out


def test_hooks_may_raise_what_the_call_names(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mine / "my_hooks.py").write_text(
        "from lifecycle import Hooks\n\ndef strict():\n    hooks = Hooks()\n"
        "    @hooks.on('agent/model')\n    async def no(payload, next):\n        raise PermissionError('no')\n"
        "    return hooks\n"
    )
    assert fuzz("my_hooks:strict", "--examples", "30", "--seed", "1") == 1
    assert (
        fuzz("my_hooks:strict", "--examples", "30", "--seed", "1", "--alone", "--may-raise", "builtins:PermissionError")
        == 0
    )
    assert fuzz("my_hooks:strict", "--may-raise", "builtins:print") == 2
    assert "--may-raise builtins:print is no exception" in capsys.readouterr().err
