#!/usr/bin/env python3
"""What it costs to keep a session, and how long it takes to take one over.

    python3 tools/bench/durability.py                    both, on SQLite and JSONL
    python3 tools/bench/durability.py --events 1000000   a longer log to take over
    python3 tools/bench/durability.py --postgres "host=..."   also there, in a schema `bench`

A turn of many steps with a tool call each is run with each durability, one after another, over and over; told is the
time of a step, and the median of its ratios to `none` of the same round. Then a log whose last turn is open is opened
and repaired, and the best time of several is told.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from lifecycle import Agent, tool
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.session.writing import Durability
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.testing.stores import write_turn
from lifecycle.vocabulary.events import TurnStart

DURABILITIES: tuple[Durability, ...] = ("none", "turn", "strict")
Make = Callable[[Path, Durability], Store]


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


async def step_seconds(store: Store, steps: int) -> float:
    """How long a step takes in a turn of so many, its end and the flush included."""
    script = [Reply(calls=[("look", {"n": n})]) for n in range(steps - 1)]
    model = ScriptedModel(*script, Reply(text="done"))
    session = await store.create()
    async with Agent(model, tools=[look], session=session, monitor=False) as agent:
        began = time.perf_counter()
        agent.followup("go")
        await agent.when_idle()
        await session.flush()
        return (time.perf_counter() - began) / steps


async def steps(make: Make, folder: Path, name: str, many: int, rounds: int) -> None:
    taken: dict[Durability, list[float]] = {durability: [] for durability in DURABILITIES}
    for _ in range(rounds):
        for durability in DURABILITIES:
            store = make(folder / "steps", durability)
            taken[durability].append(await step_seconds(store, many))
            await store.close()
    base = taken["none"]
    for durability in DURABILITIES:
        ratio = statistics.median(one / none for one, none in zip(taken[durability], base, strict=True))
        micro = statistics.median(taken[durability]) * 1e6
        print(f"| {name} | {durability} | {micro:,.0f} us | {ratio:.2f} |")


async def recovery(make: Make, folder: Path, name: str, events: int, rounds: int) -> None:
    store = make(folder / "recovery", "none")
    session = await store.create("s")
    while session.next_seq < events:
        write_turn(session, session.last_turn + 1, "What is in this folder?")
    session.append(TurnStart(turn=session.last_turn + 1))
    await session.close()
    walls: list[float] = []
    processors: list[float] = []
    for _ in range(rounds):
        wall, processor = time.perf_counter(), time.process_time()
        session = await store.open("s")
        owed = session.repair()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
        assert owed or walls[1:]
        await session.close(discard=True)
        del session
    await store.close()
    print(f"| {name} | {events:,} | {min(walls):.2f} s | {min(processors):.2f} s |")


async def bench(args: argparse.Namespace, folder: Path) -> None:
    makes: dict[str, Make] = {
        "SQLite": lambda path, durability: SqliteStore(path.with_suffix(".db"), durability=durability),
        "JSONL": lambda path, durability: JsonlStore(path, durability=durability),
    }
    if args.postgres is not None:
        from lifecycle_adapters.postgres import PostgresStore

        makes["PostgreSQL"] = lambda path, durability: PostgresStore(
            args.postgres, schema=f"bench {path.name}", durability=durability
        )
    print("| store | durability | a step | ratio to none |\n|---|---|---:|---:|")
    for name, make in makes.items():
        await steps(make, folder, name, args.steps, args.rounds)
    print("\n| store | events | open and repair | CPU time |\n|---|---:|---:|---:|")
    for name, make in makes.items():
        await recovery(make, folder, name, args.events, args.rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--postgres", metavar="CONNINFO")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench"))
    try:
        anyio.run(bench, args, folder)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
