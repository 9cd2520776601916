"""The pytest plug-in: its option, its fixtures, what it switches on, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lifecycle_adapters import pytest_plugin

from lifecycle.driver.monitor import VARIABLE
from lifecycle.testing.checking import SEED

TESTS = """
import os, sys

def test_nothing_is_imported_before_it_is_asked_for():
    assert "lifecycle" not in sys.modules

def test_a_seed_is_told(lifecycle_seed):
    assert lifecycle_seed == 11

def test_the_monitor_is_on():
    from lifecycle.driver.monitor import by_default
    assert by_default()

def test_a_check_takes_the_seed():
    from lifecycle import Hooks
    from lifecycle.testing import check_hooks
    assert check_hooks(Hooks, examples=2).seed == 11

def test_both_loops(lifecycle_backend, lifecycle_trace):
    from lifecycle import Hooks
    assert lifecycle_backend in ("asyncio", "trio") and not lifecycle_trace(Hooks()).entries
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(TESTS, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in (SEED, VARIABLE)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "lifecycle_adapters.pytest_plugin",
        *words,
    ]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_a_project_of_ones_own_gets_a_seed_the_monitor_and_fixtures(tmp_path: Path) -> None:
    done = run(tmp_path, "--lifecycle-seed", "11")

    assert "6 passed" in done.stdout, done.stdout
    assert "lifecycle: seed 11, monitor on" in done.stdout


def test_the_monitor_can_be_switched_off(tmp_path: Path) -> None:
    done = run(tmp_path, "--lifecycle-seed", "11", "--no-lifecycle-monitor")

    assert "1 failed, 5 passed" in done.stdout, done.stdout
    assert "test_the_monitor_is_on" in done.stdout


@pytest.mark.parametrize(("ours", "theirs"), [(pytest_plugin.SEED, SEED), (pytest_plugin.MONITOR, VARIABLE)])
def test_both_sides_mean_one_variable(ours: str, theirs: str) -> None:
    assert ours == theirs
