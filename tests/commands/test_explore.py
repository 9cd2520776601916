"""`lifecycle explore`: the definition from every side, its runs, what breaks as a run and a picture, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lifecycle.proof.scxml import scxml
from lifecycle.proof.world import SCOPES

from .child import LIFECYCLE, Ended, here, run

FAULTY = '''
"""A user's agent whose latched wake is forgotten, and a lifecycle of its own with a gap."""
from dataclasses import dataclass
from lifecycle.definition.agent import IDLE, Agent
from lifecycle.definition.effects import DRIVER, HOOKS, hook, tell
from lifecycle.definition.machine import Lifecycle, Phase
from lifecycle.definition.step import Step

print("said at import")

class Forgetful(Agent):
    turned = (
        Agent.running.to(Agent.running, cond="pending and healthy and not disposing")
        | Agent.running.to(Agent.idle, emits=[IDLE])
        | Agent.converging.to(Agent.idle, emits=[IDLE])
        | Agent.latched.to(Agent.idle, emits=[IDLE])
    )

class Reviewed(Step):
    reviewing = Phase(hook("mine/review", "serial"))
    enter = Step.modelled.to(reviewing, cond="admitted", emits=Step.spec.declared["enter"].transitions[0].emits)
    reviewed = reviewing.to(Step.entered)

@dataclass(frozen=True)
class Facts:
    ready: bool = False

class Torn(Lifecycle):
    facts = Facts
    begun = Phase(tell(DRIVER, "begin"), initial=True)
    done = Phase(final=True)
    go = begun.to(done, cond="ready")
'''


def sentence(ended: Ended, *parts: str) -> None:
    """It was refused, in one sentence."""
    assert (ended.code, ended.out) == (2, "")
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle explore: ")
    for part in parts:
        assert part in said


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FAULTY, encoding="utf-8")
    return tmp_path


def test_ours_is_fine_within_a_bound() -> None:
    ended = here("explore", "--depth", "6")

    lines = ended.out.splitlines()
    assert (ended.code, lines[-1]) == (0, "Fine.")
    assert [line.partition(":")[0] for line in lines[:20] if line.endswith(("depth 3", "depth 5"))] == [
        "Agent", "Turn", "Step", "ToolCall",
    ]  # fmt: skip
    for scope in SCOPES:
        assert any(line.startswith(f"  {scope}: ") and "as far as the bound" in line for line in lines)


def test_json_is_one_object() -> None:
    ended = here("explore", "Turn", "--depth", "3", "--json")

    told = json.loads(ended.out)
    assert (ended.code, ended.out.count("\n"), told["wrong"]) == (0, 1, [])
    assert [one["name"] for one in told["lifecycles"]] == ["Turn", "Step", "ToolCall"]
    assert [one["scope"] for one in told["runs"]] == list(SCOPES)
    assert told["runs"][0]["complete"] is False


def test_a_broken_invariant_is_told_as_a_shortest_run_and_drawn(mine: Path) -> None:
    ended = run(*LIFECYCLE, "explore", "mine:Forgetful", cwd=mine)

    assert ended.code == 1
    assert "said at import" not in ended.out
    assert "=> a latched wake is started: the held wake was not started" in ended.out
    assert ended.out.count("```mermaid\nsequenceDiagram\n") == 1
    assert ended.out.rstrip().endswith("1 wrong:\n  a latched wake is started: the held wake was not started")


def test_a_phase_that_a_user_adds_is_run_as_well(mine: Path) -> None:
    ended = run(*LIFECYCLE, "explore", "mine:Reviewed", "--depth", "12", "--json", cwd=mine)

    told = json.loads(ended.out)
    assert (ended.code, told["wrong"]) == (0, [])
    assert told["lifecycles"][0]["phases"] == 9
    assert "Reviewed.reviewed: reviewing -> entered" not in told["untaken"]


def test_a_lifecycle_of_its_own_is_looked_at_alone(mine: Path) -> None:
    ended = run(*LIFECYCLE, "explore", "mine:Torn", cwd=mine)

    assert ended.code == 1
    assert "Torn.begun: nothing leads on with ready=False" in ended.out
    assert "Its runs are not searched: Torn has no place in Agent" in ended.out


def test_scxml_is_the_whole_output() -> None:
    from lifecycle.definition.turn import Turn

    assert here("explore", "Turn", "--format", "scxml") == (0, scxml(Turn), "")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["Trun"], ["Trun", "did you mean 'Turn'"]),
        (["nowhere:Thing"], ["nowhere"]),
        (["--depth", "0"], ["--depth", "from 1"]),
        (["--format", "scxlm"], ["did you mean 'scxml'"]),
        (["--format", "text", "--json"], ["--json"]),
        (["--format", "scxml", "--depth", "2"], ["searches nothing"]),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], parts: list[str]) -> None:
    sentence(here("explore", *arguments), *parts)
