"""What was done, told from the records of a log: turns, their steps, and what took its time in them.

Whatever the revision that wrote the log: what is not there is not told, and types of events that nobody here declares
are kept by their names. A moment is a time in epoch milliseconds; where a log keeps none, an event's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from lifecycle.session.reading import LogReader, Record

Outcome: TypeAlias = Literal["answered", "interrupted", "failed", "cut off", "open"]


@dataclass(slots=True)
class Attempt:
    """One request. `after` is the number of the event that it began after, `ends` of the one by which it had ended."""

    number: int
    began: int
    after: int
    first: int | None = None
    """When its first chunk came, if one did."""
    ended: int | None = None
    ends: int | None = None
    outcome: Outcome = "open"
    failure: str = ""
    """What went wrong: the code, and a sentence."""
    chunks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Call:
    """One tool call. `begins` and `ends` are the numbers of its events; `error` is the code of what went wrong."""

    id: str
    name: str
    arguments: str
    began: int
    begins: int
    ended: int | None = None
    ends: int | None = None
    error: str = ""


@dataclass(slots=True)
class Wait:
    """The time between a failed attempt and the next one."""

    retry: int
    began: int
    ended: int | None = None


@dataclass(slots=True)
class Other:
    """An event of a plug-in, or of another revision."""

    type: str
    at: int


Part: TypeAlias = Attempt | Call | Wait | Other


@dataclass(slots=True)
class Step:
    number: int
    began: int
    ended: int | None = None
    parts: list[Part] = field(default_factory=lambda: [])

    @property
    def attempts(self) -> list[Attempt]:
        return [part for part in self.parts if isinstance(part, Attempt)]

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]


@dataclass(slots=True)
class Turn:
    """One turn with its records, those before its start that belong to no other turn included.

    What follows the last turn comes in one that has no number.
    """

    number: int | None
    timed: bool
    began: int
    ended: int | None = None
    last: int = 0
    """The moment of its last record."""
    reason: Mapping[str, Any] | None = None
    """How it ended, as the log says it; None while it is open."""
    prompt: str = ""
    steps: list[Step] = field(default_factory=lambda: [])
    outside: list[Other] = field(default_factory=lambda: [])
    """Other events outside its steps."""
    records: list[Record] = field(default_factory=lambda: [])

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for step in self.steps for attempt in step.attempts]

    @property
    def calls(self) -> list[Call]:
        return [call for step in self.steps for call in step.calls]


QUIET = frozenset((
    "agent/inbox/spliced", "user/message", "system/message", "steering/message", "request/header", "request/context",
    "session/end-seed",
))  # fmt: skip
"""Events that take no time of their own."""


def history(log: LogReader) -> Iterator[Turn]:
    """The turns of a log, one after another as it is read.

    Raises:
        LogFormatError: if the log cannot be read, or an event of a turn, a step or a call does not say of which.
    """
    return _Historian(log).turns()


class _Historian:
    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._turn: Turn | None = None
        self._before: list[Record] = []
        self._step: Step | None = None
        self._attempt: Attempt | None = None
        self._calls: dict[str, Call] = {}
        self._since = 0, 0
        """The moment and the number of the last event of the step after which an attempt may have begun."""

    def turns(self) -> Iterator[Turn]:
        for record in self._log:
            if record.type == "turn/start":
                if self._turn is not None:
                    yield self._finished()
                self._open(self._number(record, "turn"), record)
            elif self._turn is None and record.type in ("step/start", "turn/end"):
                self._open(self._number(record, "turn"), record)  # the log begins in the middle
            if self._turn is None:
                self._before.append(record)
                continue
            self._take(record, self._turn)
            if record.type == "turn/end":
                yield self._finished()
        if self._turn is None and self._before:
            self._open(None, self._before[0])
        if self._turn is not None:
            yield self._finished()

    def _open(self, number: int | None, record: Record) -> None:
        self._turn = Turn(number, record.time is not None, _at(record))
        self._turn.last = self._turn.began
        for before in self._before:
            self._look(before, self._turn)
        self._turn.records, self._before = self._before, []

    def _finished(self) -> Turn:
        assert self._turn is not None
        turn, self._turn, self._step, self._attempt = self._turn, None, None, None
        self._calls.clear()
        return turn

    def _take(self, record: Record, turn: Turn) -> None:
        turn.records.append(record)
        at = _at(record)
        turn.last = max(turn.last, at)
        match record.type:
            case "turn/start":
                pass
            case "turn/end":
                turn.ended, turn.reason = at, member(record.data, "reason")
            case "step/start":
                self._step = Step(self._number(record, "step"), at)
                turn.steps.append(self._step)
            case _ if self._step is None:
                self._look(record, turn)
            case "step/end":
                self._step.ended = at
                self._close("cut off", record)
                self._step = None
            case _:
                self._within(record, at, self._step, turn)
        if record.type != "agent/inbox/spliced":
            self._since = at, record.seq

    def _look(self, record: Record, turn: Turn) -> None:
        """An event outside the steps."""
        if record.type == "user/message" and not turn.prompt:
            turn.prompt = _prompt(record.data)
        elif record.type == "agent/inbox/spliced" and not turn.prompt:
            prompts = (_prompt(message) for message in objects(record.data, "inserted"))
            turn.prompt = next((prompt for prompt in prompts if prompt), "")
        elif record.type not in QUIET:
            turn.outside.append(Other(record.type, _at(record)))

    def _within(self, record: Record, at: int, step: Step, turn: Turn) -> None:
        data = record.data
        match record.type:
            case "assistant/chunk":
                self._chunk(member(data, "chunk"), record)
            case "assistant/message" | "assistant/attempt":
                self._settled(record)
            case "tool/call":
                call = Call(
                    self._text(record, "callId"), self._text(record, "name"), _text(data, "arguments"), at, record.seq
                )
                self._calls[call.id] = call
                step.parts.append(call)
            case "tool/result":
                found = self._calls.get(_call_of(data))
                if found is not None and found.ended is None:  # a later one takes the place of the first
                    found.ended, found.ends = at, record.seq
                    found.error = _text(member(data, "error"), "code")
            case "llm/retry":
                self._close("failed", record)
                step.parts.append(Wait(_count(data, "retry"), at))
            case "llm/retry-started":
                waits = [part for part in step.parts if isinstance(part, Wait) and part.ended is None]
                if waits:
                    waits[-1].ended = at
            case "user/message":
                turn.prompt = turn.prompt or _prompt(data)
            case kind:
                if kind not in QUIET:
                    step.parts.append(Other(kind, at))

    # -- attempts ------------------------------------------------------------------------------------------------

    def _begun(self) -> Attempt:
        assert self._step is not None
        if self._attempt is None:
            self._attempt = Attempt(len(self._step.attempts) + 1, *self._since)
            self._step.parts.append(self._attempt)
        return self._attempt

    def _chunk(self, chunk: Mapping[str, Any], record: Record) -> None:
        attempt, at = self._begun(), _at(record)
        attempt.first = at if attempt.first is None else attempt.first
        attempt.chunks += 1
        attempt.ended = at
        self._spend(attempt, member(chunk, "usage"))
        if failure := _failure(chunk):
            attempt.failure = failure
            self._close("failed", record)

    def _settled(self, record: Record) -> None:
        attempt, data = self._begun(), record.data
        stream = member(data, "stream")
        for row in objects(stream, "rows"):
            steps: object = row.get("dt")
            attempt.chunks += len(cast("list[object]", steps)) if isinstance(steps, list) else 1
            attempt.failure = _failure(member(row, "chunk")) or attempt.failure
        began = stream.get("start")
        if attempt.first is None and isinstance(began, int) and began and record.time is not None:
            attempt.first = began
        if record.type == "assistant/message":
            self._spend(attempt, member(data, "usage"))
            self._close("interrupted" if data.get("interrupted") else "answered", record)
        else:
            self._close("failed" if attempt.failure else "cut off", record)

    def _close(self, outcome: Outcome, record: Record) -> None:
        if self._attempt is not None:
            self._attempt.outcome, self._attempt.ended, self._attempt.ends = outcome, _at(record), record.seq
            self._attempt = None

    def _spend(self, attempt: Attempt, usage: Mapping[str, Any]) -> None:
        if usage:
            attempt.input_tokens = _count(usage, "inputTokens")
            attempt.output_tokens = _count(usage, "outputTokens")

    # -- what must be there --------------------------------------------------------------------------------------

    def _number(self, record: Record, name: str) -> int:
        value = record.data.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._log.fault(f"{record.type} has no number `{name}`", record.line)
        return value

    def _text(self, record: Record, name: str) -> str:
        value = record.data.get(name)
        if not isinstance(value, str):
            raise self._log.fault(f"{record.type} has no text `{name}`", record.line)
        return value


def _at(record: Record) -> int:
    return record.seq if record.time is None else record.time


def member(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object of that name; an empty one if there is none."""
    value = data.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def objects(data: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """The objects in the list of that name; none if there is none."""
    values: object = data.get(name)
    for value in cast("list[object]", values) if isinstance(values, list) else ():
        if isinstance(value, dict):
            yield cast("Mapping[str, Any]", value)


def text_in(message: Mapping[str, Any]) -> str:
    """The text of a message, as a log holds it."""
    return "".join(_text(block, "text") for block in objects(message, "content") if block.get("type") == "text")


def _prompt(message: Mapping[str, Any]) -> str:
    """What a person typed; nothing if it was not a person."""
    return text_in(message) if member(message, "source").get("kind") == "user" else ""


def _call_of(data: Mapping[str, Any]) -> str:
    message = member(data, "message")
    ids = [
        _text(member(message, "source"), "callId"),
        *(_text(block, "toolCallId") for block in objects(message, "content")),
    ]
    return next((id for id in ids if id), "")


def _failure(chunk: Mapping[str, Any]) -> str:
    """What a chunk that ends a stream says went wrong; nothing if it is another one."""
    reason = member(chunk, "reason")
    failure = member(reason, "error") or member(reason, "failure")
    if reason.get("kind") != "error":
        return ""
    code, message = _text(failure, "code") or "UNKNOWN", _text(failure, "message")
    return f"{code}: {message}" if message else code
