"""`lifecycle diff OLD NEW`: what changed between two lifecycles, as a list and as a picture."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from lifecycle.definition.machine import Lifecycle
from lifecycle.pictures.difference import Change, differences, told
from lifecycle.pictures.markdown import fenced
from lifecycle.pictures.marked import marked
from lifecycle.pictures.sequence import VIEWS

from .calls import CallError
from .jsonlines import dump
from .output import Output, own_output, printable
from .targets import OURS, lifecycle_at, meant

FORMATS = ("markdown", "text", "mermaid")


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="say and draw what changed between two lifecycles",
        description="Say what was added (+), removed (-) and changed (~) between two lifecycles and what they run, and"
        " draw the new one with the changed parts marked.",
        epilog="Exit code: 0 if both say the same; 1 if they differ; 2 if the call was wrong or one of them cannot be"
        " used.",
        allow_abbrev=False,
    )
    for name in ("old", "new"):
        parser.add_argument(name, metavar=name.upper(), help=f"module:Name, or one of {', '.join(OURS)}")
    parser.add_argument("--view", metavar="NAME", help=f"one of {', '.join(VIEWS)} (default: overview)")
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="markdown: the list and the picture (the default); text: the list; mermaid: the picture",
    )
    parser.add_argument("--json", action="store_true", help="the list as one JSON object instead")
    parser.set_defaults(perform=perform, name="lifecycle diff")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    view, format = args.view or "overview", args.format or "markdown"
    if view not in VIEWS:
        raise CallError(f"there is no view {view!r} to compare{meant(view, VIEWS)}; there are {', '.join(VIEWS)}")
    if format not in FORMATS:
        raise CallError(f"there is no format {format!r}{meant(format, FORMATS)}; there are {', '.join(FORMATS)}")
    if args.json and (args.view or args.format):
        raise CallError("--json is the list; leave --view and --format out")
    if args.view and format == "text":
        raise CallError("--format text is the list; leave --view out")
    with own_output() as out:  # what a user's module prints is not part of it
        old, new = lifecycle_at(args.old), lifecycle_at(args.new)
        changes = differences(old, new)
        if args.json:
            out.write(dump(_as_json(args, changes)) + "\n")
        else:
            _write(out, old, new, changes, view, format)
    return 1 if changes else 0


def _write(
    out: Output, old: type[Lifecycle], new: type[Lifecycle], changes: Sequence[Change], view: str, format: str
) -> None:
    if not changes and format != "mermaid":
        out.write(printable(f"{old.spec.name} and {new.spec.name} say the same.\n"))
        return
    if format != "mermaid":
        out.write(printable("\n".join(told(changes))) + "\n")
    if format != "text":
        picture = marked(old, new, view)
        if changes and not picture.marks:
            sentence = f"lifecycle diff: the view {view!r} shows nothing of what changed; another --view may"
            print(printable(sentence), file=sys.stderr)
        out.write(picture.text if format == "mermaid" else f"\n{fenced('mermaid', picture.text)}")


def _as_json(args: argparse.Namespace, changes: Sequence[Change]) -> dict[str, object]:
    listed = [{name: value for name, value in dataclasses.asdict(one).items() if value} for one in changes]
    return {"old": args.old, "new": args.new, "equal": not changes, "changes": listed}
