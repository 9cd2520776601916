"""What an agent does: it takes input, wakes, is cancelled, and says whether it runs (groups INB, CAN, MNT)."""

from __future__ import annotations

import logging

from lifecycle.definition.agent import Agent
from lifecycle.services.points import InboxPayload, OverduePayload, Payload, StatusPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.events import InboxTarget
from lifecycle.vocabulary.messages import USER, TextBlock, UserMessage

from ..program import Performers
from ..runs import AgentRun
from .turn import TURN, begin_turn

log = logging.getLogger("lifecycle")

AGENT: Performers[AgentRun] = Performers(Agent)
AGENT.runs(TURN, begin_turn)


@AGENT("agent/inbox/spliced:insert")
def insert(agent: AgentRun) -> None:
    """Record the input; if that is refused, nothing has happened (INB-02)."""
    assert agent.sending is not None
    message, target = agent.sending
    _insert(agent, message, target)


@AGENT("agent/inbox/spliced:insert late")
def insert_late(agent: AgentRun) -> None:
    """Record input that wakes while a cancelled turn settles: a turn of its own, also where it steers (CAN-04)."""
    assert agent.sending is not None
    _insert(agent, agent.sending[0], "next-turn")


def _insert(agent: AgentRun, message: UserMessage, target: InboxTarget) -> None:
    announce_edit(agent)
    before, agent.inserted = agent.inserted, (message,)  # set now: what follows the append may discard it (CAN-12)
    try:
        agent.session.inbox.insert(target, message, proven=_plain(message))
    except BaseException:
        agent.inserted = before
        raise


def _plain(message: UserMessage) -> bool:
    """Whether it is a line of ASCII that a person typed, which any log can hold."""
    if message.source is not USER or len(message.content) != 1 or type(message) is not UserMessage:
        return False
    (block,) = message.content
    return type(block) is TextBlock and block.text.isascii() and message.id.isascii()


@AGENT("agent/inbox/inserted")
def announce_insertion(agent: AgentRun) -> None:
    inserted, agent.inserted = agent.inserted, ()
    for message in inserted:
        agent.tell("agent/inbox/inserted", InboxPayload, message)


@AGENT("agent/inbox/spliced:edit")
def edit(agent: AgentRun) -> None:
    """Record the edit; if that is refused, nothing has happened."""
    assert agent.editing is not None
    announce_edit(agent)
    id, new = agent.editing
    old = agent.session.inbox.waiting(id)
    agent.edited_out, agent.edited_in = (() if old is None else (old,)), new  # now, as for an insertion
    try:
        agent.session.inbox.swap(id, new)
    except BaseException:
        agent.edited_out = agent.edited_in = ()
        raise


def announce_edit(agent: AgentRun) -> None:
    """Announce what an edit has recorded: who hears the first half of it may ask for what comes after it."""
    announce_edited_out(agent)
    announce_edited_in(agent)


@AGENT("agent/inbox/discarded:edit")
def announce_edited_out(agent: AgentRun) -> None:
    """Announce what the edit took away, and nothing else: it may come while something is still being inserted."""
    discarded, agent.edited_out = agent.edited_out, ()
    for message in discarded:
        agent.tell("agent/inbox/discarded", InboxPayload, message)


@AGENT("agent/inbox/inserted:edit")
def announce_edited_in(agent: AgentRun) -> None:
    inserted, agent.edited_in = agent.edited_in, ()
    for message in inserted:
        agent.tell("agent/inbox/inserted", InboxPayload, message)


@AGENT("agent/inbox/spliced:clear next-step")
def clear_next_step(agent: AgentRun) -> None:
    _clear(agent, "next-step")


@AGENT("agent/inbox/spliced:clear next-turn")
def clear_next_turn(agent: AgentRun) -> None:
    _clear(agent, "next-turn")


def _clear(agent: AgentRun, target: InboxTarget) -> None:
    """Discard what is pending in one list, unless the cancel keeps it (CAN-02, CAN-03)."""
    if agent.keeping:
        return
    announce_edit(agent)
    inbox, before = agent.session.inbox, agent.discarded
    agent.discarded = inbox.waiting_in(target)  # now, as for an insertion
    try:
        inbox.clear(target)
    except BaseException:
        agent.discarded = before
        raise


def announce_recorded(agent: AgentRun) -> None:
    """Announce what a cancel from inside an append finds recorded: what comes next comes after it (CAN-02, CAN-12).

    What was refused is neither inserted nor discarded.
    """
    waiting = [id(message) for message in (*agent.session.inbox.next_step, *agent.session.inbox.next_turn)]
    agent.edited_out = tuple(message for message in agent.edited_out if id(message) not in waiting)
    agent.edited_in = tuple(message for message in agent.edited_in if id(message) in waiting)
    announce_edit(agent)
    agent.inserted = tuple(message for message in agent.inserted if id(message) in waiting)
    announce_insertion(agent)
    agent.discarded = tuple(message for message in agent.discarded if id(message) not in waiting)
    announce_discard(agent)


@AGENT("agent/inbox/discarded")
def announce_discard(agent: AgentRun) -> None:
    discarded, agent.discarded = agent.discarded, ()
    for message in discarded:
        agent.tell("agent/inbox/discarded", InboxPayload, message)


@AGENT("fire")
def fire(agent: AgentRun) -> None:
    """Fire the signal of the open turn or of the maintenance task; the first cause stays (CAN-01)."""
    assert agent.cancelling is not None
    agent.signal.fire(agent.cancelling)


@AGENT("wake")
def wake(agent: AgentRun) -> None:
    """Ask for an activity. A cancel that comes before its turn has opened fires no signal of an earlier turn."""
    agent.woken, agent.signal = True, CancelSignal()


@AGENT("agent/status:running")
def say_running(agent: AgentRun) -> None:
    agent.status = "running"
    agent.tell("agent/status", StatusPayload, "running")


@AGENT("agent/status:idle")
def say_idle(agent: AgentRun) -> None:
    agent.status = "idle"
    agent.tell("agent/status", StatusPayload, "idle")


@AGENT("converge")
def converge(agent: AgentRun) -> str:
    """The wake was cancelled before its turn was opened: there is nothing to settle (CAN-08)."""
    return "turned"


@AGENT("agent/overdue")
def say_overdue(agent: AgentRun) -> None:
    """Tell what holds up the cancelled turn: by name, if it is a tool (CAN-11)."""
    turn, seconds = agent.turn, agent.options.grace_seconds
    if turn is None:
        return
    step = turn.step
    calls = () if step is None or step.pool is None else step.pool.running
    names = ", ".join(f"the tool {call.name!r} (call {call.id!r})" for call in calls)
    log.warning(
        "turn %d of session %r was cancelled %g s ago and has not ended yet: %s",
        turn.number,
        agent.session.id,
        seconds,
        f"it waits for {names}" if names else f"it is in {agent.handle.phase}",
    )
    agent.tell("agent/overdue", OverduePayload, turn.number, turn.steps, seconds, calls)


@AGENT("agent/disposed")
def say_disposed(agent: AgentRun) -> None:
    agent.tell("agent/disposed", Payload)
