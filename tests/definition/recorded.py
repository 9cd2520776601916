"""Logs to judge, as the acceptor and the matcher see them; and what could have gone wrong in one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lifecycle.definition.acceptor import Acceptor, Divergence
from lifecycle.definition.revisions.records import PLUGINS
from lifecycle.session.reading import open_log
from lifecycle.vocabulary.events import Event

from .matcher import Rec

_BESIDE = Path(__file__).parents[3] / "shared" / "dsh-logs"
SNAPSHOT = os.environ.get("LIFECYCLE_SNAPSHOT_LOGS") or (str(_BESIDE) if _BESIDE.is_dir() else "")
"""A folder with the logs that the public project's own end-to-end tests wrote in August 2026. They are not ours to
keep here; tests that want them are skipped where the environment does not say where they are."""


class Mutant(NamedTuple):
    """A log in which one lifecycle event went wrong."""

    kind: str
    name: str
    """The events that it is about."""
    records: Sequence[Rec]


def of_file(path: Path) -> list[Rec]:
    """A recorded log, with runs of chunks cut down to two: they are all alike."""
    found: list[Rec] = []
    with open_log(path) as log:
        for record in log:
            made = Rec(record.type, record.data, isinstance(record.envelope.get("surfaceOp"), dict))
            if record.type != "assistant/chunk" or [one.name for one in found[-2:]] != [record.type] * 2:
                found.append(made)
    return found


def of_events(events: Iterable[Event]) -> list[Rec]:
    """The log of a session of ours, as a file would hold it."""
    lines: Iterator[dict[str, Any]] = (json.loads(event.encode()) for event in events)
    return [Rec(line["type"], line["data"], isinstance(line.get("surfaceOp"), dict)) for line in lines]


def mutants(records: Sequence[Rec]) -> Iterator[Mutant]:
    """Every lifecycle event dropped, said twice, swapped with the next one, and numbered otherwise."""
    places = [n for n, record in enumerate(records) if not record.name.startswith(tuple(PLUGINS))]
    for at, n in enumerate(places):
        one = records[n]
        before, after = list(records[:n]), list(records[n + 1 :])
        yield Mutant("drop", one.name, [*before, *after])
        yield Mutant("duplicate", one.name, [*before, one, one, *after])
        if at + 1 < len(places):
            other = places[at + 1]
            swapped = list(records)
            swapped[n], swapped[other] = swapped[other], swapped[n]
            yield Mutant("swap", f"{one.name} and {records[other].name}", swapped)
        for field in ("turn", "step"):
            for by in (-1, 1):
                if field in one.data:
                    data: Mapping[str, Any] = {**one.data, field: one.data[field] + by}
                    yield Mutant("renumber", f"{one.name} by {field}", [*before, one._replace(data=data), *after])


def judged(records: Sequence[Rec], revision: str) -> int | None:
    """The place at which the acceptor sees a log diverge; its length if it ends too early; None if it is legal."""
    place, _ = judgement(records, revision)
    return place


def judgement(records: Sequence[Rec], revision: str) -> tuple[int | None, Divergence | None]:
    """The place, and what was said there."""
    acceptor = Acceptor(revision)
    doubted: int | None = None
    for n, record in enumerate(records):
        wrong = acceptor.take(record.name, record.data, replaces=record.replaces)
        if wrong is not None:
            return n, wrong
        if acceptor.doubt is None:
            doubted = None
        elif doubted is None:
            doubted = n
    wrong = acceptor.end()
    if wrong is None:
        return None, None
    return (len(records) if doubted is None or wrong.why == "end" else doubted), wrong
