"""A timeline for a terminal: the turns of a log, their steps, attempts and tool calls as bars with durations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lifecycle.vocabulary.failures import TurnEndReason

from .history import Attempt, Call, Other, Part, Step, Turn, Wait
from .output import cells, fit, shorten
from .transcript import count, told

_DURATION = 9
_LEAST = 10
"""Cells that a bar needs; where there are fewer, bars are left out."""
_reason: TypeAdapter[TurnEndReason] = TypeAdapter(TurnEndReason)


@dataclass(frozen=True, slots=True)
class Art:
    """What bars are made of."""

    step: str
    waiting: str
    streaming: str
    calling: str
    delay: str
    event: str


PLAIN = Art("-", ".", "#", "=", "~", "*")
DRAWN = Art("─", "░", "█", "▓", "·", "◆")


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    began: int
    ended: int | None
    bar: str
    first: int | None = None
    """From here on the bar is of another kind."""
    before: str = ""


def timeline(turns: Iterable[Turn], columns: int, art: Art = PLAIN) -> Iterator[str]:
    """The lines, none wider than `columns` cells. Each turn has a scale of its own."""
    any_turn = False
    for turn in turns:
        if turn.number is not None:
            any_turn = True
            yield from (fit(line, columns) for line in _turn(turn, columns, art))
    if any_turn:
        yield from _wrapped([f"{sign} {words}" for sign, words in _legend(art)], "   ", columns)
    else:
        yield "no turn was run"


def _turn(turn: Turn, columns: int, art: Art) -> Iterator[str]:
    yield shorten(f"turn {turn.number} {ended(turn)}", columns)
    yield from _wrapped(came_to(turn), ", ", columns, "  ")
    if turn.prompt:
        yield f"  > {shorten(turn.prompt, max(columns - 4, 8))}"
    rows = [row for step in turn.steps for row in _step(step, art)]
    rows += [_event(other, art, "  ") for other in turn.outside]
    width = min(max((cells(row.label) for row in rows), default=0), max(16, columns * 2 // 5))
    room = columns - width - _DURATION - 2
    for row in rows:
        label = _cut(row.label, width)
        spent = lasted(row.began, row.ended, turn.timed) if row.bar != art.event else ""
        line = f"{label}{' ' * (width - cells(label))} {spent:>{_DURATION}}"
        yield f"{line} {_bar(row, turn, room)}".rstrip() if room >= _LEAST else line.rstrip()
    yield ""


def ended(turn: Turn) -> str:
    """How a turn ended, and after how long."""
    spent = lasted(turn.began, turn.ended, turn.timed) if turn.timed else ""
    return "has no end" if turn.reason is None else f"{ending(turn.reason)}{f' after {spent}' if spent else ''}"


def came_to(turn: Turn) -> list[str]:
    """What a turn came to, in numbers."""
    failed = sum(attempt.outcome != "answered" for attempt in turn.attempts)
    wrong = sum(bool(call.error) for call in turn.calls)
    parts = [count(len(turn.steps), "step"), count(len(turn.attempts), "request", failed)]
    parts.append(count(len(turn.calls), "tool call", wrong))
    taken, given = (sum(getattr(one, f"{way}_tokens") for one in turn.attempts) for way in ("input", "output"))
    return parts + ([f"{taken} tokens in, {given} out"] if taken or given else [])


def _legend(art: Art) -> Iterator[tuple[str, str]]:
    yield art.step, "step"
    yield art.waiting, "waits for the answer"
    yield art.streaming, "the answer comes"
    yield art.calling, "tool"
    yield art.delay, "waits to retry"
    yield art.event, "other event"


def _wrapped(parts: Iterable[str], between: str, columns: int, indent: str = "") -> Iterator[str]:
    """Parts in a row, on as many lines as they need."""
    line = ""
    for part in parts:
        longer = f"{line}{between}{part}" if line else part
        if line and cells(indent + longer) > columns:
            yield f"{indent}{line}{between}".rstrip()
            longer = part
        line = longer
    if line:
        yield indent + line


def ending(reason: Any) -> str:
    """How a turn ended, in words, also if the log has a reason of its own."""
    try:
        return told(_reason.validate_python(reason))
    except ValidationError:
        return f"ended: {reason.get('kind', 'no reason given')}"


def _step(step: Step, art: Art) -> Iterator[_Row]:
    yield _Row(f"  step {step.number}", step.began, step.ended, art.step)
    for part in step.parts:
        yield _part(part, art)


def _part(part: Part, art: Art) -> _Row:
    match part:
        case Attempt():
            said = "" if part.outcome == "answered" else f" {part.outcome}"
            said += f" ({part.failure.partition(':')[0]})" if part.failure else ""
            tokens = f" {part.input_tokens} in, {part.output_tokens} out" if part.input_tokens else ""
            label = f"    attempt {part.number}{said}{tokens}"
            return _Row(label, part.began, part.ended, art.streaming, part.first, art.waiting)
        case Call():
            failed = f" failed ({part.error})" if part.error else ""
            return _Row(f"    {shorten(part.name, 40)}{failed}", part.began, part.ended, art.calling)
        case Wait():
            return _Row(f"    waits for retry {part.retry}", part.began, part.ended, art.delay)
        case Other():
            return _event(part, art, "    ")


def _event(other: Other, art: Art, indent: str) -> _Row:
    return _Row(f"{indent}{shorten(other.type, 60)}", other.at, other.at, art.event)


def _cut(label: str, width: int) -> str:
    return label if cells(label) <= width else f"{fit(label, width - 1).rstrip()}…"


def _bar(row: _Row, turn: Turn, room: int) -> str:
    whole = max(turn.last - turn.began, 1)

    def column(moment: int) -> int:
        return min(max((moment - turn.began) * room // whole, 0), room)

    begin = min(column(row.began), room - 1)
    end = max(column(turn.last if row.ended is None else row.ended), begin + 1)
    if row.before:
        middle = end if row.first is None else min(max(column(row.first), begin), end - 1)
        bar = row.before * (middle - begin) + row.bar * (end - middle)
    else:
        bar = row.bar * (end - begin)
    return " " * begin + bar + (">" if row.ended is None and end < room else "")


def lasted(began: int, ended: int | None, timed: bool) -> str:
    """How long something took; nothing if it has no end. A clock that was set back makes it nothing long."""
    if ended is None:
        return ""
    spent = max(ended - began, 0)
    if not timed:
        return count(spent, "event")
    if spent < 1000:
        return f"{spent} ms"
    seconds = spent / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02}" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"
