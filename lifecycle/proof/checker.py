"""The checker: is a recorded log a word of a revision's language?

Reads a log record by record, has each judged by the acceptor, and says where the first illegal one stands and what
would have been legal there. It keeps the last few records and nothing else, however long the log is.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lifecycle.definition.acceptor import Acceptor, Alphabet, Divergence
from lifecycle.errors import LogFormatError
from lifecycle.session.reading import LogReader, Record

BEFORE = 5
"""How many records before the illegal one are told."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of checking a log.

    Args:
        log: What it is called.
        records: How many records were legal, rows of chunks counted as one.
        turns: How many turns ended among them.
        good: The last line up to which all was legal; 0 if none was.
        divergence: The first illegal record, or what is missing at the end.
        line: Its line; for a log that ends too early, the last one there is.
        seq: Its number among the events.
        before: The records that came last before it, the oldest first.
        turn: The records of the open turn, if they were asked for, and the illegal one.
        unreadable: What could not be read, where the checker stopped.
        torn: The line that was torn in the middle, if the last one was.
        fragment: It is no session, but something that may be a log of its own.
        parked: The turn that is open at its end, and may be: somebody is asked about one of its calls.
        note: What else there is to know.
    """

    log: str
    records: int
    turns: int
    good: int
    divergence: Divergence | None = None
    line: int | None = None
    seq: int | None = None
    before: tuple[Record, ...] = ()
    turn: tuple[Record, ...] = ()
    unreadable: LogFormatError | None = None
    torn: int | None = None
    fragment: bool = False
    parked: int | None = None
    note: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the log is legal as a whole."""
        return self.divergence is None and self.unreadable is None and self.torn is None


def check_log(log: LogReader, alphabet: Alphabet, *, keep_turn: bool = False) -> Report:
    """Judge a whole log. Never raises for what stands in it: what cannot be read is reported, too.

    Args:
        log: Best made with `unpack=False`: a row of chunks is then judged at once.
        keep_turn: Whether the report has the records of the open turn, for a picture.
    """
    return _Check(log, Acceptor(alphabet), keep_turn).report()


@dataclass(slots=True)
class _Check:
    log: LogReader
    acceptor: Acceptor
    keep_turn: bool
    records: int = 0
    turns: int = 0
    last: Record | None = None
    doubted: Record | None = None
    """From this record on, the log is legal only if it was adopted from another one."""
    before: deque[Record] = field(default_factory=lambda: deque(maxlen=BEFORE))
    turn: list[Record] = field(default_factory=lambda: [])

    def report(self) -> Report:
        acceptor, take, before = self.acceptor, self.acceptor.take, self.before
        count = 0
        try:
            for record in self.log:
                envelope = record.envelope
                wrong = take(
                    record.type,
                    record.data,
                    replaces=type(envelope.get("surfaceOp")) is dict,
                    ignorable=envelope.get("ignorable") is True,
                )
                if wrong is not None:
                    self.records = count
                    return self._diverged(wrong, record)
                count += 1
                before.append(record)
                if acceptor.doubt is not None:
                    self.doubted = self.doubted or record
                elif self.doubted is not None:
                    self.doubted = None
                if record.type == "turn/end":
                    self.turns += 1
                if self.keep_turn:
                    self._keep(record)
        except LogFormatError as wrong:
            self.records = count
            return self._made(unreadable=wrong)
        self.records = count
        return self._ended()

    def _keep(self, record: Record) -> None:
        if record.type == "turn/start" or (self.acceptor.turn is None and record.type != "turn/end"):
            self.turn = [one for one in self.turn[-BEFORE:] if one.type == "agent/inbox/spliced"]
        self.turn.append(record)

    def _diverged(self, wrong: Divergence, record: Record) -> Report:
        note = ""
        if self.doubted is not None:
            note = (
                f"line {self.doubted.line} is legal only where a log was adopted from another one, "
                "which session/end-seed would have to say further on"
            )
        return self._made(wrong, record, note)

    def _ended(self) -> Report:
        if self.log.torn is not None:
            return self._made()
        wrong = self.acceptor.end()
        if wrong is None:
            return self._made(parked=self.acceptor.turn)
        return self._made(wrong, self.doubted if wrong.why != "end" else None)

    def _made(
        self,
        divergence: Divergence | None = None,
        at: Record | None = None,
        note: str = "",
        unreadable: LogFormatError | None = None,
        parked: int | None = None,
    ) -> Report:
        before = tuple(self.before)
        last = before[-1] if before else None
        if at is not None:
            before = tuple(record for record in before if record.seq < at.seq)
        return Report(
            log=self.log.name,
            records=self.records,
            turns=self.turns,
            good=last.line if last is not None else 0,
            divergence=divergence,
            line=at.line if at is not None else last.line if divergence is not None and last is not None else None,
            seq=at.seq if at is not None else None,
            before=before,
            turn=(*self.turn, *([at] if at is not None and self.keep_turn else [])),
            unreadable=unreadable,
            torn=self.log.torn,
            fragment=self.acceptor.fragment,
            parked=parked,
            note=note,
        )


def sketch(record: Record, most: int = 90) -> str:
    """A record in one line: its type, and its data as far as that fits."""
    told = {name: value for name, value in record.data.items() if not isinstance(value, (dict, list))}
    text = json.dumps(told, ensure_ascii=False, separators=(", ", ": "), default=_opaque)
    line = f"{record.type} {text}"
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _opaque(value: Any) -> str:
    return type(value).__name__
