"""The report: rows as a Markdown table, or as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version

from workloads import Row

_HEAD = ("workload", "who", "CPU µs", "wall µs", "× F1", "× base", "growth", "calls", "KiB", "per")


def markdown(rows: Iterable[Row]) -> str:
    """A table; what was not measured is left empty."""
    lines = [f"| {' | '.join(_HEAD)} |", f"|---|---|{'---:|' * 7}---|"]
    last = ""
    for row in rows:
        shown = "" if row.workload == last else row.workload
        last = row.workload
        numbers = [*map(_short, (row.cpu, row.wall, row.to_f1, row.to_base)), _short(row.growth, 2)]
        numbers += map(_short, (row.calls, row.kib))
        lines.append(f"| {shown} | {row.who} | {' | '.join(numbers)} | {row.unit} |")
    return "\n".join(lines)


def _short(number: float | None, places: int | None = None) -> str:
    if number is None:
        return ""
    if places is None:
        places = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{number:,.{places}f}"


def as_json(rows: Iterable[Row]) -> str:
    """Everything, with what it was measured with."""
    made = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("turn-lifecycle", "anyio", "pydantic")},
        "rows": [row.as_json() for row in rows],
    }
    return json.dumps(made, indent=2, ensure_ascii=False)
