"""Mistakes with the log and the agent's existence: vetoes of what must be recorded, appends from within an append."""

from __future__ import annotations

from typing import Any

from lifecycle import Hooks
from lifecycle.vocabulary.events import Opaque, TurnEnd
from lifecycle.vocabulary.failures import Completed
from lifecycle.vocabulary.values import FrozenDict

from .entry import at, faulty
from .properties import every_attempt_is_settled, every_call_has_its_result


class NotNowError(Exception):
    """What these vetoes raise."""


@faulty("Keeps the ends of turns out of the log.", "session/append", finds="a turn is never closed")
def vetoes_the_end_of_a_turn(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "turn/end":
            raise NotNowError("the turn is to stay open")


@faulty("Takes all ends for noise.", "session/append", finds="a step is never closed")
def vetoes_the_end_of_a_step(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "step/end":
            raise NotNowError("noise")


@faulty(
    "Keeps error results out of the log.",
    "session/append",
    finds="a call without a result",
    holds=(every_call_has_its_result,),
)
def vetoes_error_results(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "tool/result" and payload.event.data.error is not None:
            raise NotNowError("the model need not know")


@faulty(
    "Keeps failed attempts out of the log.",
    "session/append",
    finds="an attempt is never settled",
    holds=(every_attempt_is_settled,),
)
def vetoes_failed_attempts(hooks: Hooks) -> None:
    @at(hooks, "session/append")
    def veto(payload: Any) -> None:
        if payload.event.type == "assistant/attempt":
            raise NotNowError("it will be tried again")


@faulty("Writes a line of its own for each event, from within the append.", "session/event", finds="it raises")
def appends_while_it_observes(hooks: Hooks) -> None:
    @at(hooks, "session/event")
    def note(payload: Any) -> None:
        if payload.event.type == "tool/result":
            payload.agent.session.append(Opaque(name="notes/seen", payload=FrozenDict(seq=payload.event.seq)))


@faulty("Claims the inbox for itself, behind the back of the turn.", "agent/step-boundary", finds="a message is lost")
def claims_from_the_inbox(hooks: Hooks) -> None:
    @at(hooks, "agent/step-boundary")
    async def take(payload: Any) -> None:
        if payload.step > 1:
            payload.agent.session.inbox.claim(first=True)


@faulty(
    "Writes down the end of the turn itself, which is not its to write.", "agent/turn-stopping", finds="an end too many"
)
def ends_the_turn_itself(hooks: Hooks) -> None:
    @at(hooks, "agent/turn-stopping")
    async def end(payload: Any) -> None:
        payload.agent.session.append(TurnEnd(turn=payload.turn, reason=Completed()))


@faulty("Wants the history of a session that has none yet.", "agent/created", finds="it raises")
def looks_for_history_when_created(hooks: Hooks) -> None:
    @at(hooks, "agent/created")
    def load(payload: Any) -> None:
        payload.agent.session.events[0]
