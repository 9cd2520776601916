"""Measures one peer next to the floor and to us, in the peer's environment; prints rows of the report as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from floor import Observed  # noqa: E402  # found by what stands above
from installed import OURS  # noqa: E402  # found by what stands above
from ours import Ours  # noqa: E402  # found by what stands above
from timing import growth, in_turn, ratio, timed, typical  # noqa: E402  # found by what stands above
from workloads import F1, LIBRARIES, Row, imported, peak, sizes  # noqa: E402  # found by what stands above

STEPS, WIDTH, DELTAS, SESSIONS = 50, 64, 5_000, 1_000


def of(work, size):
    async def batch(count):
        for _ in range(count):
            await work(size)

    return batch


def rows_of(workload, unit, costs, units=1, **more):
    return [
        Row(
            workload,
            unit,
            who,
            typical(own).cpu * 1e6 / units,
            typical(own).wall * 1e6 / units,
            ratio(own, costs[F1]),
            **{name: by_who.get(who) for name, by_who in more.items()},
        )
        for who, own in costs.items()
    ]


async def measured(peer, name, distribution, samples):
    everybody = {F1: Observed(), "ours": Ours(), name: peer}

    async def told(workload, unit, batches, units, **more):
        return rows_of(workload, unit, await in_turn(batches, samples, 0.1), units, **more)

    rows = await told("W1 fresh turn", "turn", {who: one.turns for who, one in everybody.items()}, 1)
    grown = {}
    for who, one in everybody.items():
        stamps = [[] for _ in range(3)]
        for some in stamps:
            await one.steps(200, some)
        grown[who] = median(growth(some, 20) for some in stamps)
    steps = {who: of(one.steps, STEPS) for who, one in everybody.items()}
    rows += await told(f"W2 {STEPS} steps", "step", steps, STEPS, growth=grown)
    calls = {who: of(one.parallel, WIDTH) for who, one in everybody.items()}
    rows += await told(f"W3 {WIDTH} calls, each", "call", calls, WIDTH)
    for who, one in everybody.items():
        assert await one.deltas(DELTAS) == DELTAS, f"{who} lost deltas"
    rows += await told(
        f"W4 {DELTAS:,} deltas", "delta", {w: of(one.deltas, DELTAS) for w, one in everybody.items()}, DELTAS
    )

    costs = {}
    for _ in range(max(2, samples // 3)):
        for who, one in everybody.items():
            costs.setdefault(who, []).append(await timed(of(one.sessions, SESSIONS), 1))
    kib = {who: await peak(one, SESSIONS) / 1024 / SESSIONS for who, one in everybody.items()}
    rows += rows_of(f"W5 {SESSIONS:,} sessions", "session", costs, SESSIONS, kib=kib)

    rows += imported({"libraries": LIBRARIES, "ours": "from lifecycle import Agent", name: peer.imported}, samples)
    rows += [replace(row, who=who) for row, who in zip(sizes(OURS, distribution), ("ours", name), strict=True)]

    with tempfile.TemporaryDirectory(prefix="lifecycle-bench-") as folder:
        kept = {F1: of(everybody[F1].steps, STEPS), "ours": of(Ours(folder=Path(folder)).steps, STEPS)}
        if hasattr(peer, "kept"):  # on disk after each step; the floor keeps nothing

            async def batch(count):
                for _ in range(count):
                    await peer.kept(STEPS, Path(folder))

            rows += await told(f"W7 {STEPS} steps, on disk", "step", {**kept, name: batch}, STEPS)
    return rows


def main(module, distribution, samples):
    logging.disable(logging.WARNING)
    peer, name = import_module(module).Peer(), f"{distribution} {version(distribution)}"
    rows = asyncio.run(measured(peer, name, distribution, samples))
    print(json.dumps([row.as_json() for row in rows]))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
