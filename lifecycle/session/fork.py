"""Forks: where a session comes from, and with which events of its parent it begins. Pure functions of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle.errors import ForkError
from lifecycle.vocabulary.events import Event, StepEnd, TurnEnd
from lifecycle.vocabulary.failures import INTERRUPTED


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a session comes from: the id of its parent, and how many of its first events are the parent's."""

    parent: str
    prefix: int = 0


def cut(events: Sequence[Event], turn: int | None, step: int | None, id: str, now: int) -> tuple[list[Event], int]:
    """The events that a fork of session `id` begins with, and how many of them are the parent's own.

    Raises:
        ForkError: if `events` hold no such end.
    """
    if turn is None and step is not None:
        raise ForkError(f"session {id!r}: step {step} of which turn? name the turn beside the step")
    for event in reversed(events):
        match event.data:
            case TurnEnd() if step is None and turn in (None, event.data.turn):
                return list(events[: event.seq + 1]), event.seq + 1
            case StepEnd() if step is not None and (event.data.turn, event.data.step) == (turn, step):
                prefix = event.seq + 1
                closing = Event(prefix, now, TurnEnd(turn=event.data.turn, reason=INTERRUPTED))
                return [*events[:prefix], closing], prefix
            case _:
                pass
    raise ForkError(f"session {id!r} cannot be forked {_at(turn, step)}: {_ends(events, turn)}")


def _at(turn: int | None, step: int | None) -> str:
    if turn is None:
        return "where a turn has ended"
    return f"at turn {turn}" if step is None else f"at step {step} of turn {turn}"


def _ends(events: Sequence[Event], turn: int | None) -> str:
    """Where a fork would be possible, in words."""
    turns = [event.data.turn for event in events if isinstance(event.data, TurnEnd)]
    steps = [str(event.data.step) for event in events if isinstance(event.data, StepEnd) and event.data.turn == turn]
    ended = "no turn of it has ended" if not turns else f"turns {turns[0]} to {turns[-1]} have ended"
    if not steps:
        return ended
    return f"{ended}, and of turn {turn} the steps {', '.join(steps)}"
