"""`lifecycle fuzz MODULE:FACTORY`: drive the whole lifecycle with somebody's hooks in it through random scenarios."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lifecycle.errors import HookCheckError

from .calls import CallError
from .console import Console
from .jsonlines import dump
from .output import Output, own_output, printable
from .targets import object_at

if TYPE_CHECKING:  # the other commands do without what tests are made of
    from lifecycle.testing import Fixture, Report
    from lifecycle.testing.factories import Factory
    from lifecycle.testing.properties import Property

BACKENDS = ("asyncio", "trio")


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "fuzz",
        help="search for scenarios in which hooks break a rule of the lifecycle",
        description="Drive the whole lifecycle with your hooks in it through random scenarios, in virtual time. A "
        "failure is made as small as possible, and told as a program, as a file for --replay, and as a picture. "
        "Properties that stand beside the factory, made by @invariant, must hold, too. Work for worker threads is done "
        "on the spot, files among it; sockets and processes are outside of virtual time: hand in what talks to the "
        "world, and fake it in the function that makes the hooks.",
        epilog="Exit code: 0 if no rule is broken; 1 if one is; 2 if the call was wrong or there are no such hooks.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "hooks",
        metavar="MODULE:FACTORY",
        nargs="?",
        help="a function without arguments that returns Hooks, fresh ones each time; with --replay, by default whose"
        " hooks the file names",
    )
    parser.add_argument("--examples", metavar="N", type=int, default=500, help="how many to try (default: 500)")
    parser.add_argument(
        "--seed", metavar="S", type=int, help="makes the search repeatable (default: another each time)"
    )
    parser.add_argument("--backend", metavar="NAME", help="asyncio or trio (default: asyncio)")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run one case again instead, from its file")
    parser.add_argument("--save", metavar="FILE", type=Path, help="keep a failing case in this file, for --replay")
    parser.add_argument(
        "--may-raise",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="an exception that the hooks raise on purpose, such as builtins:PermissionError; may be said repeatedly",
    )
    parser.add_argument("--alone", action="store_true", help="let no scripted hooks stand behind yours")
    parser.add_argument("--json", action="store_true", help="tell what came of it as one JSON object")
    parser.set_defaults(perform=perform, name="lifecycle fuzz")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    from lifecycle.testing.factories import factory_of

    if args.examples < 1:
        raise CallError(f"--examples {args.examples} tries nothing; give a number from 1 on")
    if args.backend not in (None, *BACKENDS):
        raise CallError(f"there is no backend {args.backend!r}; there are {' and '.join(BACKENDS)}")
    if args.replay is not None and (args.seed is not None or args.backend is not None):
        raise CallError("the file says what --replay runs; leave --seed and --backend out")
    if args.save is not None and not args.save.absolute().parent.is_dir():
        raise CallError(f"there is no folder {str(args.save.parent)!r} for --save {args.save}; make it first")
    with own_output() as out:  # what somebody's hooks print is not part of it
        fixture = None if args.replay is None else _read(args.replay)
        target = args.hooks or (fixture.hooks if fixture is not None else None)
        if target is None:
            why = "" if fixture is None else ": the file does not say whose hooks they are"
            raise CallError(f"name the function that makes the hooks, as MODULE:FACTORY{why}")
        factory = factory_of(object_at(target))
        return _search(args, out, factory) if fixture is None else _replay(args, out, factory, fixture)


def _search(args: argparse.Namespace, out: Output, factory: Factory) -> int:
    from lifecycle.testing import check_hooks

    console = Console(out, Output(sys.stderr))
    last: list[Report] = []

    def progress(report: Report) -> None:
        last[:] = [report]
        if report.examples % max(1, args.examples // 20) == 0:
            console.place(f"{report.examples} of {args.examples} examples")

    try:
        report = check_hooks(
            factory,
            examples=args.examples,
            seed=args.seed,
            invariants=_beside(factory),
            backends=(args.backend or "asyncio",),
            may_raise=_exceptions(args),
            other_hooks=not args.alone,
            progress=progress,
        )
    except HookCheckError as failed:
        console.close()
        return _failed(args, out, failed, last[-1] if last else None)
    finally:
        console.close()
    out.write(dump({"ok": True, **_told(report)}) + "\n" if args.json else printable(f"{report}\n"))
    return 0


def _replay(args: argparse.Namespace, out: Output, factory: Factory, fixture: Fixture) -> int:
    from lifecycle.testing import check_case

    try:
        check_case(factory, fixture.case, invariants=_beside(factory), may_raise=_exceptions(args))
    except HookCheckError as failed:
        if fixture.contract and (fixture.contract, fixture.point) != (failed.contract, failed.point):
            was = f"{fixture.contract}{f' at {fixture.point}' if fixture.point else ''}: {fixture.reason}"
            print(printable(f"{args.name}: it fails in another way than the file says ({was})"), file=sys.stderr)
        return _failed(args, out, failed, None)
    out.write(dump({"ok": True}) + "\n" if args.json else "the case passes\n")
    return 0


def _failed(args: argparse.Namespace, out: Output, failed: HookCheckError, report: Report | None) -> int:
    from lifecycle.testing import Fixture

    if args.save is not None:
        try:
            args.save.write_text(failed.fixture + "\n", encoding="utf-8")
        except OSError as wrong:  # what was found is told all the same
            print(printable(f"{args.name}: {args.save} cannot be written ({wrong.strerror})"), file=sys.stderr)
    if not args.json:
        out.write(printable(f"{failed}\n"))
        return 1
    failure = {
        name: getattr(failed, name)
        for name in ("contract", "reason", "point", "listener", "moves", "program", "picture")
        if getattr(failed, name) is not None
    }
    fixture = Fixture.loads(failed.fixture).model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    told = {} if report is None else {**_told(report), "examples": failed.examples_tried}
    out.write(dump({"ok": False, **told, "failure": {**failure, "fixture": fixture}}) + "\n")
    return 1


def _exceptions(args: argparse.Namespace) -> list[type[BaseException]]:
    """What the hooks may raise."""
    found = [(one, object_at(one)) for one in cast("list[str]", args.may_raise)]
    for name, one in found:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise CallError(f"--may-raise {name} is no exception; name a class, such as builtins:PermissionError")
    return cast("list[type[BaseException]]", [one for _, one in found])


def _told(report: Report) -> dict[str, object]:
    coverage = report.coverage
    return {
        "hooks": report.hooks,
        "examples": report.examples,
        "seed": report.seed,
        "moves": report.moves,
        "calls": report.calls,
        "seconds": round(report.seconds, 3),
        "coverage": {
            "arrows": sorted(coverage.arrows),
            "missing": sorted(coverage.missing_arrows),
            "pairs": len(coverage.pairs),
            "verdicts": [[point, verdict] for point, verdict in sorted(coverage.verdicts)],
            "unanswered": [[point, verdict] for point, verdict in sorted(coverage.missing_verdicts)],
        },
    }


def _beside(factory: Callable[..., object]) -> list[Property]:
    """The properties that stand in the factory's module."""
    from lifecycle.testing.properties import Property

    module = sys.modules.get(str(getattr(factory, "__module__", "")))
    return (
        [one for one in cast("dict[str, object]", vars(module)).values() if isinstance(one, Property)] if module else []
    )


def _read(path: Path) -> Fixture:
    from lifecycle.testing import Fixture

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CallError(f"{path} is no fixture of a check: it is no text") from None
    except OSError as wrong:
        raise CallError(f"{path} cannot be read ({wrong.strerror})") from None
    return Fixture.loads(text, str(path))
