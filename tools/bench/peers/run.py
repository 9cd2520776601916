#!/usr/bin/env python3
"""Measures other frameworks, each next to the floor and to us in an environment of its own.

    python3 tools/bench/peers/run.py ENVIRONMENTS            makes what is missing there, and measures all
    python3 tools/bench/peers/run.py ENVIRONMENTS langgraph  only this one
    python3 tools/bench/peers/run.py ENVIRONMENTS --json out.json  also everything for programs, and for plots.py

A peer that cannot be installed, or fails, is named and left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = {
    "agent-framework": ("agent_framework_peer", "agent-framework-core", ["agent-framework-core"]),
    "openai-agents": ("openai_agents_peer", "openai-agents", ["openai-agents"]),
    "pydantic-ai": ("pydantic_ai_peer", "pydantic-ai-slim", ["pydantic-ai-slim"]),
    "langgraph": ("langgraph_peer", "langgraph", ["langgraph", "langchain", "langgraph-checkpoint-sqlite"]),
    "google-adk": ("google_adk_peer", "google-adk", ["google-adk"]),
}
"""By name: the module that drives it, the distribution whose version is told, and what to install."""


def environment(folder: Path, name: str) -> Path:
    """The Python of a peer's environment, made if there is none."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        print(f"making an environment for {name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    wanted = [*PEERS[name][2], "-e", str(HERE.parent.parent.parent)]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True, stdout=sys.stderr)
    return python


def measured(python: Path, name: str, samples: int) -> list[dict[str, Any]]:
    module, distribution, _ = PEERS[name]
    command = [str(python), str(HERE / "measure.py"), module, distribution, str(samples)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
    return rows


def told(rows: list[dict[str, Any]]) -> None:
    """A line a workload: how many times F1 (or the libraries) the peer and we take, and what grows."""
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine, theirs = (
            next((row for row in rows if row["workload"] == workload and wanted(row["who"])), None)
            for wanted in (lambda who: who == "ours", lambda who: who not in ("F1, observed loop", "libraries", "ours"))
        )
        if mine is None or theirs is None:
            continue
        times = [row["to_f1"] or row["to_base"] for row in (theirs, mine)]
        cells = ["" if one is None else f"{one:.1f}" for one in times]
        cells.append(f"{theirs['cpu'] / mine['cpu']:.1f}" if mine["cpu"] else "")
        for what, places in (("growth", 2), ("kib", 1)):
            both = theirs[what], mine[what]
            cells.append("" if None in both else "{:.{p}f}, {:.{p}f}".format(*both, p=places))
        print(f"| {theirs['who']} | {workload} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench/peers/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", type=Path, help="a folder; some hundred MB go there")
    parser.add_argument("peers", nargs="*", choices=[*PEERS, []], help="which ones; all by default")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows as JSON, too")
    asked = parser.parse_args()
    print("| peer | workload | peer × F1 | ours × F1 | peer ÷ ours | growth, ours | KiB, ours |")
    print("|---|---|---:|---:|---:|---:|---:|")
    everything: list[dict[str, Any]] = []
    for name in asked.peers or PEERS:
        try:
            rows = measured(environment(asked.environments, name), name, asked.samples)
        except (subprocess.CalledProcessError, OSError, ValueError) as failed:
            print(f"{name} is left out: {failed}", file=sys.stderr)
            continue
        told(rows)
        everything += rows
    if asked.json is not None:
        asked.json.write_text(json.dumps({"rows": everything}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
