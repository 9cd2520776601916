"""Floor 7: the command line, one module per command.

Exit codes: 0 fine, 1 the answer is no, 2 the call was wrong or something it needs cannot be used, 130 ended by Ctrl-C
(143 and 129 likewise by SIGTERM and SIGHUP).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import version

from lifecycle.errors import LifecycleError

from .calls import CallError, lone
from .output import OutputClosedError, complain, hold_descriptors

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` is without the program's name. Returns the exit code.

    Raises:
        SystemExit: if the arguments cannot be parsed, with 2; for `--help`, with 0.
    """
    try:
        hold_descriptors()
        return _perform(_parser().parse_args(argv))
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    from . import (  # within reach of the handler of Ctrl-C
        check,
        decode,
        diagrams,
        diff,
        explore,
        fuzz,
        hooks,
        providers,
        replay,
        run,
        sessions,
    )

    parser = argparse.ArgumentParser(
        prog="lifecycle",
        description="Run an agent turn from its declared lifecycle, look after the sessions that it leaves, show them "
        "again, judge them by the definition, and draw, compare and search the lifecycle.",
        epilog="lifecycle COMMAND --help says more, also what the exit codes mean.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lifecycle {version('turn-lifecycle')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (run, sessions, replay, check, diagrams, diff, explore, fuzz, hooks, decode, providers):
        command.declare(commands)
    return parser


def _perform(args: argparse.Namespace) -> int:
    try:
        return int(args.perform(args))
    except BaseException as raised:
        error = lone(raised)
        if isinstance(error, OutputClosedError):
            return 1
        if isinstance(error, (CallError, LifecycleError, OSError)):
            complain(f"{args.name}: {error}")
            return 2
        if error is raised:
            raise
        raise error from error.__cause__
