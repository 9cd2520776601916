"""`lifecycle replay LOG`: a recorded session again, as a timeline or as the sequence diagram of that very run."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from lifecycle.definition.machine import Lifecycle
from lifecycle.errors import LogFormatError, SessionError
from lifecycle.session.reading import LogReader, open_log, read_log

from .calls import CallError
from .history import Attempt, Call, Other, Step, Turn, Wait, history
from .jsonlines import dump
from .output import Output, complain, own_output, printable
from .sessions import resolve
from .stores import add_store, open_store, store_name
from .targets import meant
from .timeline import DRAWN, PLAIN, timeline

LOG_HELP = (
    "a file with an event a line, - for standard input, the id of a stored session (with --store, always), or"
    " demo:POLICY for a session that shows that policy"
)
_DEMO = "demo:"
_WIDTH = 100
"""Columns of a line where there is no terminal."""


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="show a recorded session again, as a timeline or as a sequence diagram",
        description="Show a recorded session again: its turns, steps, requests and tool calls as bars with durations,"
        " or with --sequence as the diagram of that very run.",
        epilog="Exit code: 0 if it was shown, also without a last line that was torn; 2 if the call was wrong or LOG"
        " cannot be read.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "log",
        metavar="LOG",
        help=LOG_HELP,
    )
    parser.add_argument("--turn", metavar="N", type=_turn_number, help="only this turn")
    parser.add_argument("--sequence", action="store_true", help="a Mermaid sequence diagram instead")
    parser.add_argument("--json", action="store_true", help="one object per turn instead, a line each")
    parser.add_argument(
        "--lifecycle", metavar="TARGET", help="with --sequence: the lifecycle that was run (default: ours, as it fits)"
    )
    add_store(parser)
    parser.set_defaults(perform=perform, name="lifecycle replay")


def _turn_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is no turn; write its number, such as 2")
    return int(text)


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.json and args.sequence:
        raise CallError("--json and --sequence are two ways to show it; choose one")
    if args.lifecycle and not args.sequence:
        raise CallError("--lifecycle says whose participants --sequence draws; give both")
    with own_output() as out, recorded(args.log, args.store) as log:
        _show(args, log, out)
        if log.torn is not None:
            sentence = f"{log.name}, line {log.torn}: the last line was torn, and is left out"
            complain(f"lifecycle replay: {sentence}")
    return 0


def _show(args: argparse.Namespace, log: LogReader, out: Output) -> None:
    if args.sequence:
        from .run_picture import run_picture

        out.write(run_picture(_chosen(args, log), _lifecycle(args.lifecycle)))
    elif args.json:
        for turn in _chosen(args, log):
            if turn.number is not None:
                out.write(dump(as_json(turn)) + "\n")
    else:
        columns, art = (_columns(out), DRAWN) if out.file.isatty() else (_width(), PLAIN)
        for line in timeline(_chosen(args, log), columns, art):
            out.write(printable(line) + "\n")


def _lifecycle(target: str | None) -> type[Lifecycle] | None:
    from .targets import lifecycle_at

    return None if target is None else lifecycle_at(target)


def _chosen(args: argparse.Namespace, log: LogReader) -> Iterator[Turn]:
    numbers: list[str] = []
    found = False
    for turn in history(log):
        numbers += [] if turn.number is None else [str(turn.number)]
        if args.turn in (None, turn.number):
            found = True
            yield turn
    if args.turn is not None and not found:
        raise CallError(f"{log.name} has no turn {args.turn}; it has {', '.join(numbers) or 'none'}")


# -- where it is kept --------------------------------------------------------------------------------------------


@contextmanager
def recorded(name: str, store: str | None, *, unpack: bool = True) -> Generator[LogReader]:
    """The log of that name: a file, standard input, a demo, or a stored session; with a store given, always that."""
    if name == "-":
        yield read_log(sys.stdin.buffer, "standard input", unpack=unpack)
    elif store is None and os.path.lexists(name):
        with open_log(Path(name), unpack=unpack) as log:
            yield log
    elif store is None and name.startswith(_DEMO):
        yield _played(name.removeprefix(_DEMO), unpack)
    else:
        yield anyio.run(_stored, name, store)


def _played(name: str, unpack: bool) -> LogReader:
    from .policy_demos import DEMOS, demo_log  # brings scripted models and the simulation along

    if name not in DEMOS:
        raise CallError(f"there is no demo {name!r}{meant(name, DEMOS)}; there are {', '.join(DEMOS)}")
    return demo_log(name, unpack=unpack)


async def _stored(name: str, given: str | None) -> LogReader:
    async with open_store(store_name(given)) as store:
        try:
            info = await resolve(store, name)
        except CallError as wrong:
            if given is not None:
                raise
            raise CallError(f"there is no file {name!r}, and {wrong}") from wrong
        lines, failure = await store.raw(info.id)  # what stands before a damage is shown and judged, too
        return LogReader(_as_log(f"session {info.id}", lines, failure), f"session {info.id}")


def _as_log(name: str, lines: Sequence[bytes], failure: SessionError | None) -> Iterator[bytes]:
    yield from lines
    if failure is not None:
        raise LogFormatError(name, len(lines) + 1, str(failure)) from failure


# -- how it is shown ---------------------------------------------------------------------------------------------


def _columns(out: Output) -> int:
    try:
        return os.get_terminal_size(out.file.fileno()).columns or 80
    except OSError:
        return 80


def _width() -> int:
    """Without a terminal: what `COLUMNS` says, as people set it for other programs."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns if os.environ.get("COLUMNS", "").isdigit() else _WIDTH


def as_json(turn: Turn) -> dict[str, object]:
    """A turn for programs. `unit` says what the moments are: epoch milliseconds, or numbers of events."""
    told: dict[str, object] = {
        "turn": turn.number,
        "unit": "ms" if turn.timed else "event",
        "began": turn.began,
        "ended": turn.ended,
        "reason": turn.reason,
        "prompt": turn.prompt,
        "steps": [_step_json(step) for step in turn.steps],
        "inputTokens": sum(attempt.input_tokens for attempt in turn.attempts),
        "outputTokens": sum(attempt.output_tokens for attempt in turn.attempts),
    }
    if turn.outside:
        told["others"] = [_part_json(other) for other in turn.outside]
    return _given(told)


def _step_json(step: Step) -> dict[str, object]:
    kinds: dict[str, type[Any]] = {"attempts": Attempt, "calls": Call, "waits": Wait, "others": Other}
    parts: dict[str, object] = {
        name: [_part_json(part) for part in step.parts if isinstance(part, kind)] for name, kind in kinds.items()
    }
    return _given({"step": step.number, "began": step.began, "ended": step.ended, **parts})


_NAMES: dict[str, str] = {"first": "firstChunk", "input_tokens": "inputTokens", "output_tokens": "outputTokens"}
_INNER = frozenset(("after", "begins", "ends"))
"""Fields that are for drawing only."""


def _part_json(part: Attempt | Call | Wait | Other) -> dict[str, object]:
    return _given(
        {_NAMES.get(name, name): value for name, value in dataclasses.asdict(part).items() if name not in _INNER}
    )


def _given(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}
