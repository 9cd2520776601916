"""What a turn does: it opens, claims its input, stops, and closes with one reason."""

from __future__ import annotations

from lifecycle.definition.turn import Turn
from lifecycle.services.points import ClaimedPayload, ErrorPayload, TurnPayload
from lifecycle.vocabulary.events import TurnEnd, TurnStart
from lifecycle.vocabulary.failures import COMPLETED, Aborted, Errored, Failure, TurnEndReason, failure_of
from lifecycle.vocabulary.values import trusted

from ..program import Performers
from ..runs import AgentRun, StepRun, TurnRun
from .hooked import hooked, serial
from .proposal import STEP

TURN: Performers[TurnRun] = Performers(Turn)

_started, _ended = trusted(TurnStart), trusted(TurnEnd)


def begin_turn(agent: AgentRun) -> TurnRun:
    """The next turn, or the one that is parked; its signal is a new one (TRN-12)."""
    turn = TurnRun(agent, agent.session.last_turn + 1) if agent.parked is None else agent.parked.turn
    agent.turn, agent.signal = turn, turn.signal
    agent.unwatch()
    return turn


def begin_step(turn: TurnRun) -> StepRun:
    """The next proposed step, with what was claimed for it; or the one that is parked."""
    if turn.agent.parked is not None:
        turn.step, turn.agent.parked = turn.agent.parked, None
        return turn.step
    step = StepRun(turn, turn.steps + 1, turn.signal, turn.claimed, turn.owed)
    turn.step, turn.claimed = step, ()
    turn.proposals += 1
    return step


TURN.runs(STEP, begin_step)


@TURN("turn/start")
def start(turn: TurnRun) -> None:
    turn.agent.session.append(_started(turn=turn.number), proven=True)


@TURN("agent/inbox/spliced:claim first")
def claim_first(turn: TurnRun) -> None:
    turn.claimed = turn.agent.session.inbox.claim(first=True)


@TURN("claim", inner=["agent/inbox/spliced:claim next"])
def claim_next(turn: TurnRun) -> None:
    turn.claimed = turn.agent.session.inbox.claim(first=False)


@TURN("agent/inbox/claimed")
def announce_claim(turn: TurnRun) -> None:
    for message in turn.claimed:
        turn.agent.tell("agent/inbox/claimed", ClaimedPayload, message, turn.number)


def turn_payload(turn: TurnRun) -> TurnPayload:
    """The payload of a point that knows nothing but where it is."""
    return TurnPayload(turn.agent.handle, turn.number, turn.signal)


TURN.otherwise(hooked(turn_payload))

TURN("agent/turn-stopping", suspends=True)(serial("agent/turn-stopping", turn_payload))


@TURN("look")
def look(turn: TurnRun) -> str:
    """Go on if something waits or is owed. A proposed step that was not opened has ended by now (STB-07)."""
    return "proceed" if turn.owed or turn.agent.session.inbox.next_step else "rest"


@TURN("agent/error")
def announce_error(turn: TurnRun) -> None:
    """Tell what failed the turn; a failed turn stops the driver (TRN-09, TRN-10)."""
    turn.go_on = False
    if turn.error is not None:
        turn.agent.tell("agent/error", ErrorPayload, turn.number, turn.steps, turn.error)


@TURN("turn/end")
def end(turn: TurnRun) -> None:
    turn.step, reason = None, _reason(turn)
    turn.error = None  # it is told by now; a refused end is an error of its own (TRN-15)
    turn.agent.session.append(_ended(turn=turn.number, reason=reason), proven=reason is COMPLETED)


def _reason(turn: TurnRun) -> TurnEndReason:
    if turn.error is not None:
        return Errored(error=turn.error if isinstance(turn.error, Failure) else failure_of(turn.error))
    if turn.signal.cause is not None:
        return Aborted(reason=turn.signal.cause)
    return turn.reason
