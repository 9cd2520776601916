#!/usr/bin/env python3
"""What a turn, a step, a call and a delta cost here, and how many times a loop written by hand.

    python3 tools/bench/run.py                  all workloads, some minutes
    python3 tools/bench/run.py --quick          a first impression in less than a minute
    python3 tools/bench/run.py w2 calls         only these
    python3 tools/bench/run.py --json out.json  also everything for programs

The table goes to standard output, progress to standard error. README.md beside this file says what the numbers mean.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from pathlib import Path

from report import as_json, markdown
from workloads import LEAST, QUICK, WORKLOADS, Effort, Row


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


async def _measure(names: list[str], effort: Effort) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        began = time.monotonic()
        rows += await WORKLOADS[name](effort, _tell)
        _tell(f"-- {name}: {time.monotonic() - began:.1f} s")
    return rows


def main(arguments: list[str] | None = None) -> int:
    told = "\n".join(f"    {name:6} {workload.__doc__}" for name, workload in WORKLOADS.items())
    parser = argparse.ArgumentParser(
        prog="tools/bench/run.py",
        description=f"{__doc__}\nWorkloads:\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"any of: {', '.join(WORKLOADS)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples; no turn of 1,000 steps")
    parser.add_argument("--least", action="store_true", help="so little of all that only its running tells anything")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows as JSON, too")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload is called {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    logging.disable(logging.WARNING)
    rows = asyncio.run(
        _measure(asked.workloads or list(WORKLOADS), LEAST if asked.least else QUICK if asked.quick else Effort())
    )
    print(markdown(rows))
    if asked.json is not None:
        asked.json.write_text(as_json(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
