"""`lifecycle hooks explain`: who runs where, what looks wrong, and hooks that cannot be had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .child import here

MODULE = """
from lifecycle import Enter, Hooks, Reject

def build():
    hooks = Hooks(name="gate")

    @hooks.on("agent/pre-step")
    async def gate(payload, next):
        if payload.step > 9:
            return Reject("enough")
        return await next()

    return hooks

def build_all():
    counting = Hooks(name="counting")

    @counting.on("agent/pre-step")
    async def count(payload, next):
        return (await next()).with_messages(payload.messages)

    return build() + counting

def build_none():
    return Hooks()

async def build_later():
    return Hooks()

def build_circle():
    return Hooks(name="a", before="b") + Hooks(name="b", before="a")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gatehouse.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command puts the folder on it
    monkeypatch.delitem(sys.modules, "gatehouse", raising=False)


def test_each_point_tells_who_runs_in_which_order_and_what_an_exception_leads_to() -> None:
    ended = here("hooks", "explain", "gatehouse:build")

    assert ended == (
        0,
        "agent/pre-step: waterfall\n"
        "  may answer     Enter or Reject\n"
        "  if it raises   fails the turn\n"
        "  runs           1. gate: gatehouse.build.<locals>.gate (may answer Reject without asking the rest)\n"
        "                 2. the default\n"
        "\n"
        "Nothing looks wrong.\n",
        "",
    )


def test_what_looks_wrong_is_told_last_and_counts_with_strict() -> None:
    plain, strict = (here("hooks", "explain", "gatehouse:build_all", *more) for more in ((), ("--strict",)))

    assert (plain.code, strict.code) == (0, 1)
    assert plain.out == strict.out
    assert plain.out.splitlines()[-1] == (
        "! agent/pre-step: gatehouse.build.<locals>.gate may answer without asking "
        "gatehouse.build_all.<locals>.count, which decides too, and nothing says which of their sets comes first; "
        "say so with before= or after="
    )


def test_the_same_as_json_and_one_point_alone() -> None:
    ended = here("hooks", "explain", "gatehouse:build_all", "--json")
    point, warning = (json.loads(line) for line in ended.out.splitlines())

    assert [one["of"] for one in point["listeners"]] == ["gate", "counting"]
    assert point["listeners"][0]["reading"]["verdicts"] == ["Reject"]
    assert (point["on_fault"], warning["finding"]) == ("fails the turn", "order")
    alone = here("hooks", "explain", "gatehouse:build_all", "--point", "agent/model")
    assert "  runs           1. the default\n" in alone.out
    assert "!" not in alone.out


def test_hooks_that_listen_nowhere_say_so() -> None:
    assert here("hooks", "explain", "gatehouse:build_none").out == "gatehouse:build_none listens nowhere\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gatehouse:build", "--point", "agent/pre-stop"], "(did you mean 'agent/pre-step'?)"),
        (["gatehouse:built"], "gatehouse has no 'built' (did you mean 'build'?); it has build, build_all, "),
        (["gatehouse"], "'gatehouse' names nothing; write module:Name"),
        (["gatehouse:MODULE"], "gatehouse has no 'MODULE'; it has "),
        (["gatehouse:build.nothing"], "gatehouse has no 'build.nothing'"),
        (["gatehouse:build_later"], "gatehouse:build_later gives a coroutine, and no Hooks"),
        (["gatehouse:build_circle"], "they say 'a' before 'b' before 'a'; take one `before` or `after` back"),
    ],
)
def test_a_wrong_call_is_told_in_one_sentence(args: list[str], said: str) -> None:
    ended = here("hooks", "explain", *args)

    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("lifecycle hooks explain: ")
    assert said in line
