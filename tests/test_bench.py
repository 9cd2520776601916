"""The bench: it still runs, and what does not depend on the machine does not get worse unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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


def test_every_workload_still_runs_and_can_be_drawn(tmp_path: Path) -> None:
    rows = run("--least", output=tmp_path / "rows.json")

    draw = [sys.executable, str(BENCH / "plots.py"), str(tmp_path / "plots"), str(tmp_path / "rows.json")]
    drawn = subprocess.run(draw, capture_output=True, text=True, check=True).stdout.split()
    assert {Path(name).name for name in drawn} == {"times.svg", "memory.svg"}  # --least has one size of each
    assert all(ElementTree.parse(name).getroot().tag.endswith("svg") for name in drawn)
    assert {row["workload"].split()[0] for row in rows} == {
        *("W1", "W2", "W3", "W4", "W5", "W6", "W7", "monitor,", "calls"),
    }


def row(workload: str, who: str, cpu: float, to_f1: float, kib: float | None = None) -> dict[str, Any]:
    return {"workload": workload, "who": who, "unit": "step", "cpu": cpu, "to_f1": to_f1, "to_base": None, "kib": kib}


def plots(*rows: dict[str, Any]) -> dict[str, Any]:
    """The pictures of some rows, by name, as trees."""
    spec = util.spec_from_file_location("bench_plots", BENCH / "plots.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: ElementTree.fromstring(text) for name, text in module.plots(rows).items()}


SVG = "{http://www.w3.org/2000/svg}"


def test_a_bar_is_as_long_as_its_number_has_digits() -> None:
    drawn = plots(row("W2 50 steps", "ours", 1, 10), row("W2 50 steps", "a <peer>", 1, 100))
    _, *found = drawn["times.svg"].iter(f"{SVG}rect")
    ours, theirs = (float(bar.get("width") or 0) for bar in found)

    assert theirs == pytest.approx(2 * ours, abs=0.2)
    assert "a <peer>" in [text.text for text in drawn["times.svg"].iter(f"{SVG}text")]


def test_a_difference_that_was_lost_in_noise_and_the_size_of_an_installation_are_left_out() -> None:
    drawn = plots(
        row("W3 one more", "ours", 1, 8),
        row("W3 one more", "F0", 1, -0.2),
        row("W5 1,000 sessions", "ours", 1, 15, kib=20) | {"unit": "session"},
        row("W6 installed", "ours", 1, 1, kib=11_000),
    )
    told = {name: [text.text for text in tree.iter(f"{SVG}text")] for name, tree in drawn.items()}

    assert "F0" not in told["times.svg"]
    assert "W6 installed" not in told["memory.svg"]
    assert "W5 1,000 sessions" in told["memory.svg"]


def test_what_was_measured_more_than_once_is_drawn_by_its_median() -> None:
    drawn = plots(*(row("W2 50 steps", "ours", 1, times) for times in (2, 3, 90)))

    assert "3.00" in [text.text for text in drawn["times.svg"].iter(f"{SVG}text")]
    assert set(drawn) == {"times.svg"}


def test_several_sizes_are_drawn_as_a_line() -> None:
    session = row("W9", "ours", 1, 2, 8) | {"unit": "session"}
    drawn = plots(*(row(f"W2 {steps} steps", "ours", 5, 2) for steps in ("10", "1,000")), session)

    assert set(drawn) == {"times.svg", "memory.svg", "w2-growth.svg"}
