"""`lifecycle check LOG`: is a recorded log legal by the definition? If not, which event is not, and what was legal."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lifecycle.definition.acceptor import Alphabet, alphabet_of
from lifecycle.definition.agent import Agent
from lifecycle.definition.family import within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import NEWEST, REVISIONS
from lifecycle.errors import LifecycleError
from lifecycle.proof.checker import Report, check_log, sketch
from lifecycle.session.reading import LogReader, Record

from .calls import CallError
from .jsonlines import dump
from .output import Output, complain, own_output, printable
from .replay import LOG_HELP, recorded
from .stores import add_store
from .targets import lifecycle_at, meant
from .transcript import count

_CODES = ("legal", "not legal", "no log")
"""What each exit code says of a log."""


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="judge recorded sessions by the definition",
        description="Judge recorded sessions by the definition: the first event that no run of the lifecycle makes,"
        " the phase that the run was in, what would have been legal there, and the events before it.",
        epilog="Exit code: 0 if every log is legal as a whole; 1 if one is not, also if it ends in an open turn or its"
        " last line was torn; 2 if the call was wrong or a LOG is no log.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "logs",
        metavar="LOG",
        nargs="+",
        help=LOG_HELP,
    )
    parser.add_argument(
        "--revision",
        "--lifecycle",
        metavar="NAME",
        default=NEWEST,
        help=f"what it is judged by: {', '.join(REVISIONS)}, or your lifecycle as module:Name (default: {NEWEST})",
    )
    parser.add_argument(
        "--plugin",
        metavar="PREFIX",
        action="append",
        default=[],
        help="let events pass whose types begin so, such as mine/; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="the reports, one JSON object a log")
    parser.add_argument("--sequence", action="store_true", help="also the turn up to there as a Mermaid diagram")
    add_store(parser)
    parser.set_defaults(perform=perform, name="lifecycle check")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.json and args.sequence:
        raise CallError("--json is a report for programs and --sequence a picture; choose one")
    if "" in args.plugin:
        raise CallError("--plugin takes the beginning of event types, such as mine/; an empty one is all of them")
    with own_output() as out:
        lifecycle = _lifecycle(args.revision)
        alphabet = alphabet_of(args.revision if lifecycle is None else lifecycle, args.plugin)
        codes = Counter[int]()
        for name in args.logs:
            try:
                codes[_check(args, name, lifecycle, alphabet, out)] += 1
            except (LifecycleError, CallError, OSError) as wrong:
                if len(args.logs) == 1:
                    raise
                complain(f"{args.name}: {wrong}")
                codes[2] += 1
        if len(args.logs) > 1 and not args.json:
            said = [f"{codes[code]} {word}" for code, word in enumerate(_CODES) if codes[code]]
            out.write(f"{len(args.logs)} logs: {', '.join(said)}\n")
    return max(codes)


def _check(
    args: argparse.Namespace, name: str, lifecycle: type[Lifecycle] | None, alphabet: Alphabet, out: Output
) -> int:
    """Judge one log; returns 0 if it is legal, else 1."""
    with recorded(name, args.store, unpack=False) as log:
        report = check_log(log, alphabet, keep_turn=args.sequence)
    if report.unreadable is not None and report.records == 0:
        raise report.unreadable  # it is no log
    if args.json:
        out.write(dump(_as_json(report, args.revision)) + "\n")
    else:
        for line in _told(report, args.revision, alphabet):
            out.write(printable(line) + "\n")
        if args.sequence and report.divergence is not None:
            out.write(f"\n{_picture(report, lifecycle)}")
    return 0 if report.accepted else 1


def _lifecycle(target: str) -> type[Lifecycle] | None:
    """A user's lifecycle as a whole; None for a revision of ours."""
    if target in REVISIONS:
        return None
    if ":" not in target:
        raise CallError(
            f"there is no revision {target!r}{meant(target, REVISIONS)}; there are {', '.join(REVISIONS)},"
            " and a lifecycle of yours is named module:Name"
        )
    return within(Agent, lifecycle_at(target))


# -- telling -----------------------------------------------------------------------------------------------------


def _told(report: Report, revision: str, alphabet: Alphabet) -> Iterator[str]:
    if report.accepted:
        if report.fragment:
            yield f"{report.log}: no session, but the chunks of an answer alone; revision {revision} allows that"
        else:
            parked = "" if report.parked is None else f"; turn {report.parked} waits for an approval"
            yield f"{report.log}: legal under revision {revision}: {_size(report)}{parked}"
        return
    if report.divergence is not None:
        yield from _divergence(report, report.divergence, revision, alphabet)
    elif report.unreadable is not None:
        yield str(report.unreadable)
    else:
        yield f"{report.log}, line {report.torn}: the last line was torn"
    if report.good and (report.divergence is None or report.divergence.why != "end"):
        yield f"  good up to    line {report.good}: {_size(report)}"
    if report.note:
        yield f"  note          {report.note}"


def _divergence(report: Report, wrong: Any, revision: str, alphabet: Alphabet) -> Iterator[str]:
    place = f", line {report.line}" if report.line is not None else ""
    event = f" (event {report.seq})" if report.seq is not None else ""
    yield f"{report.log}{place}{event}: {wrong.reason}"
    step = f", step {wrong.step}" if wrong.step is not None else ""
    turn = f" (turn {wrong.turn}{step})" if wrong.turn else ""
    yield f"  the run was in {' or '.join(wrong.phases)}{turn}"
    yield f"  legal there   {', '.join(wrong.expected) or 'nothing'}"
    for n, record in enumerate(report.before):
        yield f"  {'before it     ' if n == 0 else ' ' * 14}line {record.line}: {sketch(record)}"
    if wrong.name and wrong.why == "order":
        knows = [
            name
            for name in REVISIONS
            if name != revision and wrong.name in _names(alphabet_of(name)) and wrong.name not in _names(alphabet)
        ]
        if knows:
            yield f"  note          {wrong.name} is recorded by revision {', '.join(knows)}; see --revision"
    if wrong.why == "unknown":
        yield "  note          if a plug-in of yours records it, say so with --plugin and the beginning of its types"


def _names(alphabet: Alphabet) -> frozenset[str]:
    return frozenset(letter.partition(":")[0] for letter in alphabet.language.names)


def _size(report: Report) -> str:
    return f"{count(report.records, 'record')}, {count(report.turns, 'whole turn')}"


def _as_json(report: Report, revision: str) -> dict[str, object]:
    told: dict[str, object] = {
        "log": report.log,
        "revision": revision,
        "accepted": report.accepted,
        "records": report.records,
        "turns": report.turns,
        "goodLine": report.good,
        "line": report.line,
        "seq": report.seq,
        "divergence": None if report.divergence is None else dataclasses.asdict(report.divergence),
        "before": [{"line": one.line, "seq": one.seq, "type": one.type, "data": one.data} for one in report.before],
        "unreadable": None if report.unreadable is None else str(report.unreadable),
        "tornLine": report.torn,
        "fragment": report.fragment,
        "parkedTurn": report.parked,
        "note": report.note,
    }
    if report.accepted:
        del told["before"]
    return {name: value for name, value in told.items() if value is not None and value != ""}


def _picture(report: Report, lifecycle: type[Lifecycle] | None) -> str:
    from .history import history
    from .run_picture import run_picture

    log = LogReader((_line(record) for record in report.turn), report.log)
    assert report.divergence is not None
    return run_picture(history(log), lifecycle, last=f"here the run diverges: {report.divergence}")


def _line(record: Record) -> bytes:
    return json.dumps(record.envelope).encode() + b"\n"
