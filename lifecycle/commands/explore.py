"""`lifecycle explore [TARGET]`: search a definition from every side, and every run of it with the outside world."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle
from lifecycle.errors import DefinitionError
from lifecycle.pictures.markdown import fenced
from lifecycle.proof.counterexample import drawn, stages, told
from lifecycle.proof.explorer import Progress, Search, explore
from lifecycle.proof.outside import Play
from lifecycle.proof.scxml import scxml
from lifecycle.proof.survey import Survey, survey
from lifecycle.proof.world import SCOPES, WIDE, Bounds

from .calls import CallError
from .jsonlines import dump
from .output import Output, own_output, printable
from .targets import OURS, lifecycle_at, meant

FORMATS = ("text", "scxml")
_CLEAR = "\r\x1b[2K"


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explore",
        help="search a lifecycle for what is wrong with it",
        description="Look at every phase with every event and all facts: what cannot be reached, arrows that are never"
        " taken, guards whose order decides, phases that nothing leads on from. A lifecycle that the driver can run is"
        " then run in every way, together with an outside world: input, cancels, failures, tools in any order, hooks"
        " that interfere, refused appends, crashes. What breaks an invariant is shown as a shortest run.",
        epilog="Exit code: 0 if nothing is wrong; 1 if something is; 2 if the call was wrong or TARGET cannot be used.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        default="Agent",
        help=f"module:Name, or one of {', '.join(OURS)} (default: Agent)",
    )
    parser.add_argument("--depth", metavar="N", type=int, help="at most N moves deep (default: all there are)")
    parser.add_argument("--wide", action="store_true", help="a wider outside world; takes some minutes")
    parser.add_argument("--format", metavar="NAME", help="text (the default), or scxml: the lifecycle for other tools")
    parser.add_argument("--json", action="store_true", help="the findings as one JSON object")
    parser.set_defaults(perform=perform, name="lifecycle explore")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    format = args.format or "text"
    if format not in FORMATS:
        raise CallError(f"there is no format {format!r}{meant(format, FORMATS)}; there are {', '.join(FORMATS)}")
    if args.json and args.format:
        raise CallError("--json is a format of its own; leave --format out")
    if args.depth is not None and args.depth < 1:
        raise CallError(f"--depth is the number of moves, from 1, not {args.depth}")
    if format == "scxml" and (args.depth is not None or args.wide):
        raise CallError("--format scxml searches nothing; leave --depth and --wide out")
    with own_output() as out:  # what a user's module prints is not part of it
        lifecycle = lifecycle_at(args.target)
        if format == "scxml":
            out.write(scxml(lifecycle))
            return 0
        report = Report(args.target, out, quiet=args.json)
        report.surveyed([survey(one, args.depth) for one in family(lifecycle)])
        report.search(lifecycle, WIDE if args.wide else SCOPES, args.depth)
        if args.json:
            out.write(dump(report.as_json()) + "\n")
        else:
            report.conclude()
    return 1 if report.wrong else 0


class Report:
    """What was found, told as it comes; with `quiet` only in the end."""

    def __init__(self, target: str, out: Output, *, quiet: bool) -> None:
        self._target, self._out, self._quiet = target, out, quiet
        self._surveys: list[Survey] = []
        self._searches: dict[str, Search] = {}
        self._alone = ""
        self.wrong: list[str] = []

    def surveyed(self, surveys: list[Survey]) -> None:
        """What the definition alone shows."""
        self._surveys = surveys
        for one in surveys:
            self.wrong += one.faults
            self._say(*_surveyed(one))

    def search(self, lifecycle: type[Lifecycle], scopes: Mapping[str, Bounds], depth: int | None) -> None:
        """Search every run, scope by scope, up to the first that breaks something."""
        try:
            Play(lifecycle)
        except DefinitionError as error:
            self._alone = str(error)
            self._say("", f"Its runs are not searched: {self._alone}.")
            return
        self._say("", "Its runs, with an outside world:")
        for name, bounds in scopes.items():
            play = Play(lifecycle, bounds)
            with _Progress(name) as progress:
                found = explore(play, depth=depth, progress=progress)
            self._searches[name] = found
            self._say(f"  {name}: {_size(found)}")
            if found.broken is not None:
                self.wrong.append(str(found.broken))
                run = stages(play, found.run)
                self._say("", *told(run, found.broken), "", fenced("mermaid", drawn(run, found.broken)))
                return

    def conclude(self) -> None:
        """What was never taken, and what is wrong."""
        untaken = self._untaken()
        if untaken and not any(found.broken for found in self._searches.values()):  # else it was not searched whole
            self._say("", f"Within these bounds {len(untaken)} arrows were never taken:")
            self._say(*(f"  {arrow}" for arrow in untaken))
        fine = "Fine, as far as the definition alone shows." if self._alone else "Fine."
        self._say("", f"{len(self.wrong)} wrong:" if self.wrong else fine)
        self._say(*(f"  {one}" for one in self.wrong))

    def as_json(self) -> dict[str, object]:
        """All of it as one object."""
        return {
            "target": self._target,
            "wrong": self.wrong,
            "lifecycles": [{**dataclasses.asdict(one), "faults": one.faults} for one in self._surveys],
            "runs": [{"scope": name, **_search_json(found)} for name, found in self._searches.items()],
            "untaken": self._untaken(),
            **({"notSearched": self._alone} if self._alone else {}),
        }

    def _untaken(self) -> list[str]:
        """Arrows that no search has taken."""
        found = [search.untaken for search in self._searches.values()]
        return [arrow for arrow in found[0] if all(arrow in other for other in found)] if found else []

    def _say(self, *lines: str) -> None:
        if not self._quiet:
            self._out.write(printable("".join(f"{line}\n" for line in lines)))


def _surveyed(one: Survey) -> Iterator[str]:
    bound = "" if one.complete else ", which is the bound"
    yield (
        f"{one.name}: {one.phases} phases, {one.events} events, {one.arrows} arrows; {one.open_cells} of {one.cells}"
        f" cells of phase, event and facts are open; depth {one.depth}{bound}"
    )
    for overlap in one.overlaps:
        facts = ", ".join(f"{name}={value}" for name, value in overlap.facts.items())
        yield f"  order decides: {overlap.phase} {overlap.event}, as with {facts}"
    yield from (f"  wrong: {fault}" for fault in one.faults)


def _size(found: Search) -> str:
    bound = "" if found.complete or found.broken else ", as far as the bound on the depth"
    said = "an invariant is broken" if found.broken else "nothing is broken"
    return f"{found.states:,} states, {found.arrows:,} moves, depth {found.depth}, {found.seconds:.1f} s{bound}: {said}"


def _search_json(found: Search) -> dict[str, object]:
    return {
        "states": found.states,
        "moves": found.arrows,
        "depth": found.depth,
        "seconds": round(found.seconds, 3),
        "complete": found.complete,
        "rests": found.rests,
        **({"broken": found.broken._asdict(), "run": found.run} if found.broken is not None else {}),
    }


class _Progress:
    """How far a search is, on standard error: one live line on a terminal, nothing elsewhere before it is long."""

    PATIENCE = 10.0
    """Seconds between two lines where standard error is no terminal."""

    def __init__(self, scope: str) -> None:
        self._scope, self._told, self._live = scope, 0.0, sys.stderr.isatty()

    def __call__(self, now: Progress) -> None:
        line = f"{self._scope}: {now.states:,} states, {now.waiting:,} to go on from, depth {now.depth}"
        if self._live:
            print(_CLEAR + printable(line), end="", file=sys.stderr, flush=True)
        elif now.seconds - self._told >= self.PATIENCE:
            self._told = now.seconds
            print(printable(line), file=sys.stderr, flush=True)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
