"""Measures one peer next to the floor and to us, in the peer's environment; prints rows as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from floor import Observed  # noqa: E402  # found by what stands above
from ours import Ours  # noqa: E402  # found by what stands above
from timing import growth, in_turn, ratio, typical  # noqa: E402  # found by what stands above


async def main(module: str, distribution: str, samples: int) -> None:
    logging.disable(logging.WARNING)
    peer, name = import_module(module).Peer(), f"{distribution} {version(distribution)}"
    everybody = {"F1": Observed(), "ours": Ours(), name: peer}
    rows = []

    def of(work, size):
        async def batch(count):
            for _ in range(count):
                await work(size)

        return batch

    async def told(workload, unit, batches, units):
        costs = await in_turn(batches, samples, 0.1)
        for who, own in costs.items():
            rows.append(
                {
                    "workload": workload,
                    "unit": unit,
                    "who": who,
                    "cpu": typical(own).cpu * 1e6 / units,
                    "to_f1": ratio(own, costs["F1"]),
                    "peer": distribution,
                }
            )

    await told("W1 fresh turn", "turn", {who: one.turns for who, one in everybody.items()}, 1)
    await told("W2 50 steps", "step", {who: of(one.steps, 50) for who, one in everybody.items()}, 50)
    for who, one in everybody.items():
        grown = []
        for _ in range(3):
            stamps: list[float] = []
            await one.steps(200, stamps)
            grown.append(growth(stamps, 20))
        rows.append(
            {
                "workload": "W2 growth over 200 steps",
                "unit": "",
                "who": who,
                "growth": median(grown),
                "peer": distribution,
            }
        )
    await told("W3 64 calls, each", "call", {who: of(one.parallel, 64) for who, one in everybody.items()}, 64)
    for who, one in everybody.items():
        assert await one.deltas(5_000) == 5_000, f"{who} lost deltas"
    await told("W4 5,000 deltas", "delta", {who: of(one.deltas, 5_000) for who, one in everybody.items()}, 5_000)
    print(json.dumps(rows))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
