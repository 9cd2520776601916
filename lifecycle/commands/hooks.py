"""`lifecycle hooks explain MODULE:HOOKS`: who runs at each point, in which order, and what looks wrong."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from lifecycle.proof.hook_reading import Reading, read, warnings
from lifecycle.services.hooks import Hooks
from lifecycle.services.points import HookPoint, Mode

from .calls import CallError
from .jsonlines import dump
from .output import own_output, printable
from .targets import hooks_at, meant


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "hooks",
        help="explain who runs at which hook point, and what looks wrong",
        description="Look at hooks without running them.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    explaining: argparse.ArgumentParser = actions.add_parser(
        "explain",
        help="tell who runs at each point, in which order, and what looks wrong",
        description="Tell for each hook point who runs there, in which order, what may be answered, and what an"
        " exception leads to. What is read off the source and looks wrong is told last: a listener that never runs, an"
        " order that decides and that nobody asked for, a verdict that no run comes to.",
        epilog="Exit code: 0 if it was told; 1 with --strict if something looks wrong; 2 if the call was wrong or there"
        " are no such hooks.",
        allow_abbrev=False,
    )
    explaining.add_argument(
        "hooks", metavar="MODULE:HOOKS", help="hooks, or a function without arguments that makes some"
    )
    explaining.add_argument("--point", metavar="NAME", help="only this point, also if nobody listens there")
    explaining.add_argument("--strict", action="store_true", help="exit with 1 if something looks wrong")
    explaining.add_argument("--json", action="store_true", help="one object per point, a line each, and per warning")
    explaining.set_defaults(perform=perform, name="lifecycle hooks explain")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    with own_output() as out:  # what a user's module prints is not part of it
        hooks = hooks_at(args.hooks)
        if args.point is not None and args.point not in hooks.points:
            known = ", ".join(hooks.points)
            raise CallError(
                f"there is no hook point {args.point!r}{meant(args.point, hooks.points)}; there are {known}"
            )
        names = [args.point] if args.point else [name for name in hooks.points if hooks.listeners(name)]
        wrong = [one for one in warnings(hooks) if one.point in names]
        if args.json:
            for name in names:
                out.write(dump(_as_json(hooks, name)) + "\n")
            for one in wrong:
                out.write(dump(dataclasses.asdict(one)) + "\n")
        else:
            for name in names:
                out.write(printable("\n".join(_told(hooks, name)) + "\n\n"))
            if not names:
                out.write(printable(f"{args.hooks} listens nowhere\n"))
            for one in wrong:
                out.write(printable(f"! {one.point}: {one.sentence}\n"))
            if names and not wrong:
                out.write("Nothing looks wrong.\n")
        return 1 if args.strict and wrong else 0


def _told(hooks: Hooks, name: str) -> Iterator[str]:
    explained, point = hooks.explain(name), hooks.points[name]
    yield f"{name}: {explained.mode}"
    yield f"  may answer     {' or '.join(explained.may_return)}"
    yield f"  if it raises   {explained.on_fault}"
    runs = [_row(point, reading, said) for reading, said in _rows(hooks, name)]
    runs += ["the default"] if point.mode is Mode.WATERFALL else []
    for n, said in enumerate(runs or ["nobody"]):
        yield f"  {'' if n else 'runs':15}{n + 1}. {said}"


def _rows(hooks: Hooks, name: str) -> Iterator[tuple[Reading | None, str]]:
    for listener in hooks.listeners(name):
        of = f"{listener.of}: " if listener.of else ""
        yield read(hooks.points[name], listener), f"{of}{listener.name}"


def _row(point: HookPoint, reading: Reading | None, said: str) -> str:
    if reading is None:
        return f"{said} (its source cannot be read)"
    words: list[str] = []
    if reading.verdicts:
        words.append(f"may answer {' or '.join(reading.verdicts)}{' without asking the rest' if reading.alone else ''}")
    elif point.mode is Mode.WATERFALL:
        words.append("may change the answer" if reading.changes else "passes the answer on")
    return f"{said} ({'; '.join(words)})" if words else said


def _as_json(hooks: Hooks, name: str) -> dict[str, object]:
    told: dict[str, Any] = dataclasses.asdict(hooks.explain(name))
    chain = hooks.listeners(name)
    told["listeners"] = [
        {
            "name": listener.name,
            "of": listener.of,
            "reading": None if (reading := read(hooks.points[name], listener)) is None else dataclasses.asdict(reading),
        }
        for listener in chain
    ]
    return told
