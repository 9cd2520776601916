"""Timing: several things in one process, sample by sample in turn, so that a noisy machine hits all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeAlias

Batch: TypeAlias = Callable[[int], Awaitable[object]]
"""Does the work that often."""
_MOST = 100_000


class Cost(NamedTuple):
    """Seconds for one piece of work. `cpu` counts all threads of the process."""

    cpu: float
    wall: float


async def timed(batch: Batch, count: int) -> Cost:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await batch(count)
    return Cost((time.process_time() - cpu) / count, (time.perf_counter() - wall) / count)


async def often(batch: Batch, seconds: float) -> int:
    """How often the work must be done to take about `seconds`. Also warms it up."""
    await batch(1)
    count = 1
    while True:
        took = (await timed(batch, count)).wall * count
        if took >= seconds or count >= _MOST:
            return count
        count = min(_MOST, max(count + 1, int(count * min(10.0, 1.2 * seconds / max(took, 1e-6)))))


async def in_turn(batches: Mapping[str, Batch], samples: int, seconds: float) -> dict[str, list[Cost]]:
    """A B C A B C ...: the costs of each, in the order in which the samples were taken."""
    counts = {name: await often(batch, seconds) for name, batch in batches.items()}
    costs: dict[str, list[Cost]] = {name: [] for name in batches}
    for _ in range(samples):
        for name, batch in batches.items():
            costs[name].append(await timed(batch, counts[name]))
    return costs


def typical(costs: list[Cost]) -> Cost:
    return Cost(median(cost.cpu for cost in costs), median(cost.wall for cost in costs))


def ratio(costs: list[Cost], to: list[Cost]) -> float:
    """The median of the ratios of samples that were taken one after another; of CPU time."""
    return median(one.cpu / other.cpu for one, other in zip(costs, to, strict=True))


def growth(stamps: list[float], edge: int) -> float:
    """The median of the last `edge` intervals over that of the first."""
    took = [after - before for before, after in pairwise(stamps)]
    return median(took[-edge:]) / median(took[:edge])
