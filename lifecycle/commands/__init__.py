"""Floor 7: the command line, one module per command.

Exit codes: 0 fine, 1 the answer is no, 2 the call was wrong or something it needs cannot be used, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lifecycle.errors import LifecycleError

from . import run, sessions
from .calls import CallError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` is without the program's name. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lifecycle",
        description="Run an agent turn from its declared lifecycle, and look after the sessions that it leaves.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (run, sessions):
        command.declare(commands)
    args = parser.parse_args(argv)
    try:
        return int(args.perform(args))
    except (CallError, LifecycleError) as wrong:
        print(f"{args.name}: {wrong}", file=sys.stderr)  # the command line speaks here
        return 2
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
