"""The workloads. Each compares contenders with F1, in the same process, and returns rows of the report."""

from __future__ import annotations

import cProfile
import gc
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from contender import Contender, Stamps
from floor import Bare, Observed
from installed import OURS, installed
from lifecycle.session.sqlite import SqliteStore
from ours import Ours
from timing import Batch, Cost, growth, in_turn, ratio, timed, typical

F1 = Observed.name


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    samples: int = 9
    seconds: float = 0.15
    """About how long one sample takes."""
    turns: int = 1000
    steps: Sequence[int] = (10, 50, 200, 1000)
    deltas: Sequence[int] = (5_000, 10_000, 20_000)
    widths: Sequence[int] = (64, 256)
    sessions: Sequence[int] = (1_000, 10_000)


QUICK = Effort(
    samples=3, seconds=0.04, turns=300, steps=(10, 50, 200), deltas=(2_000, 4_000), widths=(64,), sessions=(100, 400)
)
LEAST = Effort(samples=1, seconds=0.002, turns=30, steps=(50,), deltas=(500,), widths=(8,), sessions=(20,))
"""Enough to see that everything still runs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report. Times in microseconds of one unit; `growth` is 1 where a unit costs the same for ever."""

    workload: str
    unit: str
    who: str
    cpu: float | None = None
    wall: float | None = None
    to_f1: float | None = None
    growth: float | None = None
    calls: float | None = None
    to_base: float | None = None
    """How many times what the name of the workload says."""
    kib: float | None = None
    """Memory at its peak, in KiB a unit."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Tell: TypeAlias = Callable[[str], None]
Workload: TypeAlias = Callable[[Effort, Tell], Awaitable[list[Row]]]


def _again(work: Callable[[int], Awaitable[object]], size: int) -> Batch:
    """Work of one size as something that can be done often."""

    async def batch(count: int) -> None:
        for _ in range(count):
            await work(size)

    return batch


def _rows(
    workload: str,
    unit: str,
    costs: Mapping[str, list[Cost]],
    units: int = 1,
    growths: Mapping[str, float] | None = None,
) -> list[Row]:
    made: list[Row] = []
    for name, own in costs.items():
        cost = typical(own)
        grown = (growths or {}).get(name)
        made.append(
            Row(workload, unit, name, cost.cpu * 1e6 / units, cost.wall * 1e6 / units, ratio(own, costs[F1]), grown)
        )
    return made


async def w1(effort: Effort, tell: Tell) -> list[Row]:
    """A fresh turn of one step with its agent and session; one session continued for many turns."""
    everybody: list[Contender] = [Observed(), Bare(), Ours(), Ours(quiet=True), Ours(nursery=True)]
    tell("fresh turns")
    costs = await in_turn({one.name: one.turns for one in everybody}, effort.samples, effort.seconds)
    rows = _rows("W1 fresh turn", "turn", costs)
    tell(f"one session continued for {effort.turns} turns")
    grown: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    for _ in range(max(3, effort.samples // 2)):
        for one in (Observed(), Ours()):
            stamps: Stamps = []
            await one.continued(effort.turns, stamps)
            grown.setdefault(one.name, []).append(growth(stamps, min(100, effort.turns // 3)))
            spent.setdefault(one.name, []).append((stamps[-1] - stamps[0]) / effort.turns)
    for name, growths in grown.items():
        to_f1 = median(own / other for own, other in zip(spent[name], spent[F1], strict=True))
        workload = f"W1 continued, {effort.turns:,} turns"
        rows.append(Row(workload, "turn", name, median(spent[name]) * 1e6, None, to_f1, median(growths)))
    return rows


async def w2(effort: Effort, tell: Tell) -> list[Row]:
    """One turn of many steps with a tool call each."""
    everybody: list[Contender] = [Observed(), Bare(), Ours(), Ours(quiet=True), Ours(monitored=True)]
    rows: list[Row] = []
    for steps in effort.steps:
        tell(f"one turn of {steps} steps")
        costs = await in_turn({one.name: _again(one.steps, steps) for one in everybody}, effort.samples, effort.seconds)
        growths = await _step_growths(everybody, steps, effort.samples) if steps >= 40 else {}
        rows += _rows(f"W2 {steps:,} steps", "step", costs, steps, growths)
    return rows


async def _step_growths(everybody: list[Contender], steps: int, samples: int) -> dict[str, float]:
    grown: dict[str, list[float]] = {one.name: [] for one in everybody}
    for _ in range(samples):
        for one in everybody:
            stamps: Stamps = []
            await one.steps(steps, stamps)
            grown[one.name].append(growth(stamps, 20))
    return {name: median(ratios) for name, ratios in grown.items()}


async def w3(effort: Effort, tell: Tell) -> list[Row]:
    """What one more parallel call costs in a step of many."""
    everybody: list[Contender] = [Observed(), Bare(), Ours()]
    rows: list[Row] = []
    for width in effort.widths:
        tell(f"{width} parallel calls")
        batches = {(one.name, size): _again(one.parallel, size) for one in everybody for size in (1, width)}
        keyed = {f"{name}/{size}": batch for (name, size), batch in batches.items()}
        costs = await in_turn(keyed, effort.samples, effort.seconds)
        more = width - 1
        marginal = {
            one.name: [
                Cost((many.cpu - single.cpu) / more, (many.wall - single.wall) / more)
                for single, many in zip(costs[f"{one.name}/1"], costs[f"{one.name}/{width}"], strict=True)
            ]
            for one in everybody
        }
        rows += _rows(f"W3 one more of {width} calls", "call", marginal)
    return rows


async def w4(effort: Effort, tell: Tell) -> list[Row]:
    """A long answer, delta by delta, to a consumer."""
    everybody: list[Contender] = [Observed(), Bare(), Ours()]
    rows: list[Row] = []
    first: dict[str, list[Cost]] = {}
    for deltas in effort.deltas:
        tell(f"{deltas:,} deltas")
        for one in everybody:
            assert await one.deltas(deltas) == deltas, f"{one.name} lost deltas"
        costs = await in_turn(
            {one.name: _again(one.deltas, deltas) for one in everybody}, effort.samples, effort.seconds
        )
        first = first or costs
        longer = deltas / effort.deltas[0]
        growths = {name: ratio(own, first[name]) / longer for name, own in costs.items()}
        rows += _rows(f"W4 {deltas:,} deltas", "delta", costs, deltas, growths)
    return rows


async def w5(effort: Effort, tell: Tell) -> list[Row]:
    """Many sessions at once, each with a model that takes 50 ms: CPU time and peak memory a session."""
    everybody: list[Contender] = [Observed(), Bare(), Ours(), Ours(nursery=True)]
    rows: list[Row] = []
    first: dict[str, list[Cost]] = {}
    for count in effort.sessions:
        tell(f"{count:,} sessions")
        costs: dict[str, list[Cost]] = {}
        for _ in range(max(2, effort.samples // 3)):
            for one in everybody:
                costs.setdefault(one.name, []).append(await timed(_again(one.sessions, count), 1))
        first = first or costs
        longer = count / effort.sessions[0]
        growths = {name: ratio(own, first[name]) / longer for name, own in costs.items()}
        kib = {one.name: await peak(one, count) / 1024 / count for one in everybody}
        made = _rows(f"W5 {count:,} sessions", "session", costs, count, growths)
        rows += [replace(row, kib=kib[row.who]) for row in made]
    return rows


async def peak(one: Contender, count: int) -> int:
    """The memory that `count` sessions take at most, in bytes, beside what is there before."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await one.sessions(count)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most - before


LIBRARIES = "import statemachine, anyio, pydantic"
"""What this project stands on."""


async def w6(effort: Effort, tell: Tell) -> list[Row]:
    """`import lifecycle`, what an agent takes, and a first turn, next to the libraries that all this stands on."""
    tell("imports")
    statements = {
        "libraries": LIBRARIES,
        "import lifecycle": "import lifecycle",
        "from lifecycle import Agent": "from lifecycle import Agent",
        "the same, and a first turn": "import first_turn",
        "import json, asyncio": "import json, asyncio",
    }
    return [*imported(statements, effort.samples), *sizes(OURS)]


def sizes(*distributions: str) -> list[Row]:
    """How much each takes on disk with all that it requires."""
    return [Row("W6 installed", "installation", name, kib=installed(name) / 1024) for name in distributions]


def imported(statements: Mapping[str, str], samples: int) -> list[Row]:
    """What each statement costs in a process of its own, and how many times the libraries."""
    costs: dict[str, list[Cost]] = {}
    for statement in statements.values():  # once for the compiler
        _import(statement)
    for _ in range(samples):
        for name, statement in statements.items():
            costs.setdefault(name, []).append(_import(statement))
    return [
        Row(f"W6 to `{LIBRARIES}`", "process", name, cost.cpu * 1e6, cost.wall * 1e6, to_base=times)
        for name, own in costs.items()
        for cost, times in [(typical(own), ratio(own, costs["libraries"]))]
    ]


def _import(statement: str) -> Cost:
    program = (
        f"import sys, time; sys.path.append({str(Path(__file__).parent)!r}); "
        f"w, c = time.perf_counter(), time.process_time(); {statement}; "
        "print(time.process_time() - c, time.perf_counter() - w)"
    )
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run([sys.executable, "-c", program], env=compiled, capture_output=True, text=True, check=True)
    cpu, wall = map(float, told.stdout.split())
    return Cost(cpu, wall)


async def monitor(effort: Effort, tell: Tell) -> list[Row]:
    """What the monitor costs: a turn of 50 steps with it and without."""
    tell("50 steps with the monitor")
    plain, watched = Ours(), Ours(monitored=True)
    costs = await in_turn({one.name: _again(one.steps, 50) for one in (plain, watched)}, effort.samples, effort.seconds)
    cost, times = typical(costs[watched.name]), ratio(costs[watched.name], costs[plain.name])
    return [Row("monitor, to a run without", "step", watched.name, cost.cpu * 2e4, cost.wall * 2e4, to_base=times)]


async def w7(effort: Effort, tell: Tell) -> list[Row]:
    """A turn of 50 steps in a session that is kept on disk, and synced at its end. The floor keeps nothing."""
    tell("50 steps in a SQLite store")
    with tempfile.TemporaryDirectory(prefix="lifecycle-bench-") as name:
        folder = Path(name)
        async with SqliteStore(folder / "open.db") as store:
            everybody: list[Contender] = [Observed(), Ours(), Ours(store=store), Ours(folder=folder)]
            costs = await in_turn(
                {one.name: _again(one.steps, 50) for one in everybody}, effort.samples, effort.seconds
            )
    return _rows("W7 50 steps, kept", "step", costs, 50)


async def calls(effort: Effort, tell: Tell) -> list[Row]:
    """Function calls a step, those into C included: they do not depend on how busy the machine is."""
    rows: list[Row] = []
    for one in (Observed(), Bare(), Ours(), Ours(quiet=True)):
        tell(f"counting calls: {one.name}")
        await one.steps(5)
        rest = await _count(one, 0)  # what a turn costs without its steps
        counted = [(await _count(one, steps) - rest) / steps for steps in (50, 200)]
        for steps, count in zip((50, 200), counted, strict=True):
            rows.append(Row(f"calls in {steps} steps", "step", one.name, calls=count, growth=count / counted[0]))
        turns = (await _count(one, 60, turns=True) - await _count(one, 10, turns=True)) / 50
        rows.append(Row("calls in a fresh turn", "turn", one.name, calls=turns))
    return rows


async def _count(one: Contender, size: int, *, turns: bool = False) -> int:
    profile = cProfile.Profile()
    profile.enable()
    try:
        await (one.turns(size) if turns else one.steps(size))
    finally:
        profile.disable()
    return sum(int(entry.callcount) for entry in profile.getstats())


WORKLOADS: Mapping[str, Workload] = {
    "w1": w1, "w2": w2, "w3": w3, "w4": w4, "w5": w5, "w6": w6, "w7": w7, "monitor": monitor, "calls": calls
}  # fmt: skip
