"""The bench: it still runs, and what does not depend on the machine does not get worse unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "tools" / "bench"
MOST = 1.1
"""A tenth more than what is written down is too much. What was made cheaper is written down with the change."""


def run(*arguments: str, output: Path) -> list[dict[str, Any]]:
    command = [sys.executable, str(BENCH / "run.py"), "--quick", "--json", str(output), *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "| workload | who |" in made.stdout
    rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["rows"]
    return rows


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Function calls a unit of the agent that somebody listens to, by workload."""
    rows = run("calls", output=tmp_path_factory.mktemp("bench") / "calls.json")
    return {row["workload"]: row["calls"] for row in rows if row["who"] == "ours"}


def test_a_step_makes_no_more_calls_late_in_a_turn_than_early(counted: dict[str, float]) -> None:
    assert counted["calls in 200 steps"] == pytest.approx(counted["calls in 50 steps"], rel=0.02)


def test_a_step_and_a_turn_make_no_more_calls_than_is_written_down(counted: dict[str, float]) -> None:
    written = json.loads((BENCH / "calls.json").read_text(encoding="utf-8"))
    if written["python"] != "{}.{}".format(*sys.version_info):
        pytest.skip(f"Python {written['python']} was counted; others make other calls for the same work")

    assert counted["calls in 50 steps"] < MOST * written["a step of 50"]
    assert counted["calls in a fresh turn"] < MOST * written["a fresh turn"]


def test_every_workload_still_runs(tmp_path: Path) -> None:
    rows = run("--least", output=tmp_path / "rows.json")

    assert {row["workload"].split()[0] for row in rows} == {
        *("W1", "W2", "W3", "W4", "W5", "W6", "W7", "monitor,", "calls"),
    }
