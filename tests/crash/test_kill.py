"""Processes are killed at every append and at every await, and again while they repair; nothing is lost, nothing twice.

CI takes some points under a seed that it prints; `--run-slow` takes every one, with several second deaths each.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ..adapters.postgres_server import postgres

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
ROOT = Path(__file__).resolve().parents[2]
LAST = 70
"""About how many points a run of the story has."""
STORES = [(kind, backend) for kind in ("sqlite", "jsonl") for backend in ("asyncio", "trio")]
POSTGRES = [("postgres", "asyncio"), ("postgres", "trio")]


def perform(cases: Iterable[dict[str, Any]], postgres: str = "") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case with its findings; they are performed in a process that does nothing else, and can fork."""
    asked = list(cases)
    lines = "".join(json.dumps(case) + "\n" for case in asked)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.nursery"],
        input=lines,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=1800,
        env={**os.environ, "CRASH_POSTGRES": postgres},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(asked), done.stderr
    wrong = [(case, one["found"]) for case, one in zip(asked, found, strict=True) if one["found"]]
    assert not wrong, f"{wrong}\n{done.stderr}"
    return list(zip(asked, found, strict=True))


def seed() -> int:
    return int(os.environ.get("CRASH_SEED", time.time_ns() % 1_000_000))


def cases(folder: Path, points: Iterable[tuple[int, int]], kind: str, backend: str, durability: str = "turn") -> Any:
    for kill, again in points:
        place = str(folder / f"{kind}{backend}{durability}{kill}_{again}")
        yield {
            "store": kind,
            "backend": backend,
            "durability": durability,
            "kill": kill,
            "again": again,
            "folder": place,
        }


def length(folder: Path, kind: str, backend: str, durability: str = "turn", server: str = "") -> int:
    """How many points a run of the story has that is not cut off; a few more, because threads are quick or slow."""
    ((_, found),) = perform(cases(folder, [(0, 0)], kind, backend, durability), server)
    return int(found["points"]) + 8


def test_some_processes_are_killed_anywhere(tmp_path: Path) -> None:
    chosen = seed()
    sys.stdout.write(f"CRASH_SEED={chosen}\n")  # told if this fails
    chance = random.Random(chosen)
    asked = [
        case
        for kind, backend in STORES
        for durability, many in (("turn", 4), ("strict", 1), ("none", 1))
        for case in cases(
            tmp_path,
            [(kill, chance.randrange(1, 50)) for kill in chance.sample(range(1, LAST), many)],
            kind,
            backend,
            durability,
        )
    ]

    ended = [code for _, found in perform(asked) for code in found["ended"]]

    assert Counter(ended)[-9] >= len(asked)  # they do die


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_some_processes_are_killed_that_keep_their_sessions_in_postgresql(
    backend: str, tmp_path: Path, postgres_server: str
) -> None:
    chosen = seed()
    sys.stdout.write(f"CRASH_SEED={chosen}\n")
    chance = random.Random(chosen)
    points = [(kill, chance.randrange(1, 40)) for kill in chance.sample(range(1, LAST), 2)]

    done = perform(cases(tmp_path, points, "postgres", backend), postgres_server)

    assert Counter(code for _, found in done for code in found["ended"])[-9]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "backend"), [*STORES, *POSTGRES])
@pytest.mark.parametrize("durability", ["strict", "turn", "none"])
def test_all_processes_are_killed_everywhere(kind: str, backend: str, durability: str, tmp_path: Path) -> None:
    chosen = seed()
    sys.stdout.write(f"CRASH_SEED={chosen}\n")
    chance = random.Random(chosen)
    with ExitStack() as stack:
        server = ""
        if kind == "postgres":
            server = stack.enter_context(postgres())
        where = range(1, length(tmp_path, kind, backend, durability, server))
        points = [(kill, again) for kill in where for again in sorted({1, 4, chance.randrange(5, 50)})]
        done = perform(cases(tmp_path, points, kind, backend, durability), server)

    killed = [case for case, found in done if found["ended"][0] == -9]
    assert len(killed) < len(done), "there are more points than were tried"
    deaths = Counter(code for _, found in done for code in found["ended"])[-9]
    sys.stdout.write(f"{kind} on {backend}, {durability}: {len(killed)} runs cut off, {deaths} deaths, nothing lost\n")
