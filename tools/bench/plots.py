#!/usr/bin/env python3
"""Draws rows of the report as SVG: how many times the floor each contender takes, and what grows with the work.

    python3 tools/bench/plots.py FOLDER rows.json more.json

The files are what `run.py --json` and `peers/run.py --json` wrote. What has several is drawn by its median.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias
from xml.sax.saxutils import escape

Point: TypeAlias = tuple[float, float]
WIDTH, LEFT, RIGHT, TOP, LINE = 860, 330, 70, 46, 18
COLOURS = ("#1664a7", "#b8520c", "#3a7d1e", "#8b3fa0", "#a01030", "#5b5b5b", "#0e7c7b", "#7a6a00", "#444cc0")
_SIZED = re.compile(r"(W\d) ([\d,]+) (\w+)")


def _text(x: float, y: float, said: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(said)}</text>'


def _line(start: Point, end: Point, colour: str = "#ddd") -> str:
    return f'<path d="M{start[0]:.1f} {start[1]:.1f} L{end[0]:.1f} {end[1]:.1f}" stroke="{colour}"/>'


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    size = f"0 0 {WIDTH} {height:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="12">'
    back = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    name = _text(12, 22, title, more=' font-size="15" font-weight="bold"')
    return "\n".join([head, back, name, *parts, "</svg>"]) + "\n"


def _scale(values: Sequence[float], start: float, end: float) -> tuple[range, Mapping[float, float]]:
    """A logarithmic scale: the powers of ten around the values, and the place of each of those and of these."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    powers = range(low, max(high, low + 1) + 1)
    span = powers[-1] - powers[0]
    shown = {*values, *(10.0**power for power in powers)}
    return powers, {one: start + (math.log10(one) - low) / span * (end - start) for one in shown}


def bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """A bar for each number, on one logarithmic scale; `groups` holds the numbers by workload and contender."""
    values = [value for group in groups.values() for value in group.values()]
    powers, place = _scale([*values, 1.0], LEFT, WIDTH - RIGHT)
    rows = sum(len(group) + 1.4 for group in groups.values())
    bottom = TOP + rows * LINE + 6
    parts: list[str] = []
    for power in powers:
        at = place[10.0**power]
        parts += [_line((at, TOP), (at, bottom)), _text(at, bottom + 14, f"{10.0**power:g}", "middle")]
    y = float(TOP)
    for workload, group in groups.items():
        y += LINE
        parts.append(_text(12, y, workload, more=' font-weight="bold"'))
        for who, value in sorted(group.items(), key=lambda one: one[1]):
            y += LINE
            colour = COLOURS[0] if who.startswith("ours") else "#b9b9b9"
            first, last = sorted((place[1.0], place[value]))
            parts += [
                _text(LEFT - 8, y, who, "end"),
                f'<rect x="{first:.1f}" y="{y - 11:.1f}" width="{last - first:.1f}" height="13" fill="{colour}"/>',
                _text(last + 5, y, f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"),
            ]
        y += 0.4 * LINE
    return _svg(title, bottom + 26, parts)


def curves(title: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """A line for each contender, both scales logarithmic."""
    bottom = TOP + 300.0
    wide, x = _scale([point[0] for points in lines.values() for point in points], 70, WIDTH - 250)
    high, y = _scale([point[1] for points in lines.values() for point in points], bottom, TOP)
    parts: list[str] = []
    for power in wide:
        at = x[10.0**power]
        parts += [_line((at, TOP), (at, bottom)), _text(at, bottom + 16, f"{10**power:,}", "middle")]
    for power in high:
        at = y[10.0**power]
        parts += [_line((70, at), (WIDTH - 250, at)), _text(64, at + 4, f"{10.0**power:g}", "end")]
    for n, (who, points) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        path = " L".join(f"{x[size]:.1f} {y[price]:.1f}" for size, price in sorted(points))
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x[size]:.1f}" cy="{y[price]:.1f}" r="3" fill="{colour}"/>' for size, price in points]
        parts.append(_text(WIDTH - 235, TOP + 14 + n * LINE, f"— {who}", more=f' fill="{colour}"'))
    return _svg(title, bottom + 28, parts)


def _middle(by: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median for each contender. A difference that was lost in noise may be 0 or less, and no scale has that."""
    return {who: value for who, some in by.items() if (value := median(some)) > 0}


def plots(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The pictures by file name: `times.svg`, `memory.svg`, and one for each workload that has several sizes."""
    times: dict[str, dict[str, list[float]]] = {}
    memory: dict[str, dict[str, list[float]]] = {}
    sized: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        value = row["to_f1"] if row["to_f1"] is not None else row["to_base"]
        if value is not None and row["who"] not in ("F1, observed loop", "libraries"):
            times.setdefault(row["workload"], {}).setdefault(row["who"], []).append(value)
        if row["kib"] is not None and row["unit"] == "session":
            memory.setdefault(row["workload"], {}).setdefault(row["who"], []).append(row["kib"])
        size = _SIZED.match(row["workload"])
        if size is not None and row["cpu"] is not None and row["to_f1"] is not None:
            name = f"{size[1]}: CPU µs a {row['unit']}, by the number of {size[3]}"
            sized.setdefault(name, {}).setdefault(row["who"], []).append((int(size[2].replace(",", "")), row["cpu"]))
    drawn = {
        f"{name[:2].lower()}-growth.svg": curves(name, lines)
        for name, lines in sized.items()
        if any(len({size for size, _ in points}) > 1 for points in lines.values())
    }
    for name, title, numbers in (
        ("times", "How many times the loop written by hand (W6: the libraries), CPU time", times),
        ("memory", "KiB a session at the peak", memory),
    ):
        middle = {workload: _middle(by) for workload, by in numbers.items()}
        middle = {workload: by for workload, by in middle.items() if by}
        if middle:
            drawn[f"{name}.svg"] = bars(title, dict(sorted(middle.items())))
    return drawn


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench/plots.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the pictures go")
    parser.add_argument("rows", type=Path, metavar="ROWS", nargs="+", help="what --json wrote")
    asked = parser.parse_args(arguments)
    rows = [row for file in asked.rows for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in plots(rows).items():
        (asked.folder / name).write_text(drawing, encoding="utf-8")
        print(asked.folder / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
