#!/usr/bin/env python3
"""What it costs to check a long log: time next to `json.loads` of the same lines, and the memory that it takes.

    python3 tools/bench/checking.py                    a generated log of 100 MB
    python3 tools/bench/checking.py --megabytes 1000   a longer one
    python3 tools/bench/checking.py --log FILE         a log of yours

The log is written to a temporary file. Each way of reading it runs in a process of its own, and so has its own memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lifecycle.definition.acceptor import alphabet_of
from lifecycle.proof.checker import check_log
from lifecycle.session.reading import open_log

_WORDS = "the tomatoes in the greenhouse want water and the shutters want oil before the frost comes "


def turns(revision: str) -> Iterator[str]:
    """Lines of a log without end: turns of three steps with two calls each, of the sizes that agents write."""
    seq = 0
    for turn in range(1, sys.maxsize):
        for name, data in _turn(turn, revision):
            yield json.dumps({"seq": seq, "time": 1_700_000_000_000 + seq, "type": name, "data": data})
            seq += 1


def _turn(turn: int, revision: str) -> Iterator[tuple[str, dict[str, object]]]:
    sent: dict[str, object] = {
        "role": "user",
        "id": f"m{turn}",
        "content": [{"type": "text", "text": _WORDS}],
        "source": {"kind": "user"},
    }
    yield "agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [sent]}
    yield "turn/start", {"turn": turn}
    yield "agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
    for step in (1, 2, 3):
        at: dict[str, object] = {"turn": turn, "step": step}
        calls = [f"call-{turn}-{step}-{n}" for n in range(2 if step < 3 else 0)]
        yield "step/start", at
        if step == 1:
            yield "user/message", sent
        if revision == "2026-08":
            for n in range(20):
                yield "assistant/chunk", {**at, "chunk": {"type": "text-delta", "index": 0, "text": _WORDS[n : n + 12]}}
        blocks = [{"type": "tool-call", "id": call, "name": "read", "arguments": '{"path":"a"}'} for call in calls]
        message = {"role": "assistant", "id": f"a{turn}.{step}", "content": [{"type": "text", "text": _WORDS}, *blocks]}
        more: dict[str, object] = {} if revision == "2026-08" else {"stream": _stream(), "finish": "stop"}
        yield "assistant/message", {**at, "message": message, **more}
        for call in calls:
            yield "tool/call", {**at, "callId": call, "name": "read", "arguments": '{"path":"a"}'}
            block = {"type": "tool-result", "toolCallId": call, "content": [{"type": "text", "text": _WORDS * 12}]}
            source = {"kind": "tool", "callId": call}
            yield "tool/result", {**at, "message": {"role": "user", "id": call, "source": source, "content": [block]}}
        yield "step/end", at
    yield "turn/end", {"turn": turn, "reason": {"kind": "completed"}}


def _stream() -> dict[str, object]:
    row = {"type": "text-delta", "index": 0, "dt": [9] * 20, "texts": [_WORDS[n : n + 5] for n in range(20)]}
    return {"start": 1_700_000_000_000, "rows": [row]}


# -- measured, each in a process of its own ---------------------------------------------------------------------


def _loads(path: Path, _: str) -> int:
    lines = 0
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
            lines += 1
    return lines


def _check(path: Path, revision: str) -> int:
    with open_log(path, unpack=False) as log:
        report = check_log(log, alphabet_of(revision))
    if report.divergence is not None and report.divergence.why != "end":
        raise SystemExit(f"the log is not legal: {report.divergence}")
    return report.records


WAYS = {"json.loads": _loads, "check": _check}


def _measure(way: str, path: Path, revision: str) -> tuple[float, int, float]:
    """CPU seconds, lines, and the peak of memory in MB."""
    command = [sys.executable, __file__, "--way", way, "--log", str(path), "--revision", revision]
    seconds, lines, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(lines), float(memory)


def _one(way: str, path: Path, revision: str) -> None:
    began = time.process_time()
    lines = WAYS[way](path, revision)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.process_time() - began, lines, peak)


def _write(path: Path, revision: str, size: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in turns(revision):
            file.write(line + "\n")
            if file.tell() > size and '"turn/end"' in line:
                break


def _report(path: Path, revision: str, times: int) -> None:
    size = path.stat().st_size / 1e6
    ratios: list[float] = []
    for _ in range(times):
        plain, checked = _measure("json.loads", path, revision), _measure("check", path, revision)
        ratios.append(checked[0] / plain[0])
        print(
            f"{revision}, {size:.0f} MB, {checked[1]} records: json.loads {plain[0]:.2f} s in {plain[2]:.0f} MB, "
            f"check {checked[0]:.2f} s in {checked[2]:.0f} MB: {ratios[-1]:.2f} times",
            flush=True,
        )
    print(f"{revision}: median {sorted(ratios)[len(ratios) // 2]:.2f} times")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--times", type=int, default=3, help="how often each is measured")
    parser.add_argument("--revision", help="only this one (default: 000 and 2026-08)")
    parser.add_argument("--log", type=Path, help="a log that is there already")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.way:
        _one(asked.way, asked.log, asked.revision)
        return 0
    for revision in [asked.revision] if asked.revision else ["000", "2026-08"]:
        if asked.log is not None:
            _report(asked.log, revision, asked.times)
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.jsonl")
            _write(path, revision, int(asked.megabytes * 1e6))
            _report(path, revision, asked.times)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
