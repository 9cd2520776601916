"""What must hold of every run, each once, as a predicate over what is known of it and what happens next.

An invariant returns None, or a sentence that says how it is broken. `broken` asks all that have to do with a
happening. What no single happening shows (deadlock, and that a cancelled agent comes to rest) the explorer finds in
the graph of all states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from .happenings import ANNOUNCEMENTS, CLAIMED, PARKED, PENDING, PROPOSALS, WAKING, Happening, Ledger

Predicate: TypeAlias = Callable[[Ledger, Happening], str | None]


class Broken(NamedTuple):
    """An invariant that does not hold, and how."""

    invariant: str
    how: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.how}"


INVARIANTS: dict[str, Predicate] = {}
"""Every invariant by its name; its docstring says what it demands."""
_BY_HAPPENING: dict[str, list[tuple[str, Predicate]]] = {}


def invariant(*names: str) -> Callable[[Predicate], Predicate]:
    """Declare an invariant that happenings of these names may break."""

    def declare(predicate: Predicate) -> Predicate:
        told = predicate.__name__.replace("_", " ")
        INVARIANTS[told] = predicate
        for name in names:
            _BY_HAPPENING.setdefault(name, []).append((told, predicate))
        return predicate

    return declare


def broken(seen: Ledger, now: Happening) -> Broken | None:
    """The first invariant that `now` breaks, for a run of which `seen` is known; None if all hold."""
    for name, predicate in _BY_HAPPENING.get(now.name, ()):
        how = predicate(seen, now)
        if how is not None:
            return Broken(name, how)
    return None


def first_broken(story: Iterable[Happening]) -> tuple[int, Broken] | None:
    """The first happening of a whole run that breaks an invariant, by its place, and how; None if all hold."""
    seen = Ledger()
    for place, now in enumerate(story):
        how = broken(seen, now)
        if how is not None:
            return place, how
        seen.note(now)
    return None


# -- input ----------------------------------------------------------------------------------------------------------


@invariant("proposal", "turn/end", "rest")
def nothing_accepted_is_lost(seen: Ledger, now: Happening) -> str | None:
    """Every accepted message is pending, admitted, discarded, or its proposal was rejected, emptied, rewritten, failed
    or cancelled.
    """
    if now.name == "proposal":
        lost = tuple(id for id in seen.having(CLAIMED) if now.detail == "enter" and id not in now.ids)
    elif now.name == "rest":
        lost = seen.having(CLAIMED)
    elif now.detail in ("completed", "max-tokens"):
        lost = (*seen.having(CLAIMED), *seen.dropped)
    else:
        lost = ()
    return f"{', '.join(lost)} was claimed, and nothing became of it" if lost else None


@invariant("agent/inbox/spliced", "user/message")
def nothing_accepted_runs_twice(seen: Ledger, now: Happening) -> str | None:
    """A message is claimed only while it waits, is never put back, and is admitted once, by the claim that took it."""
    for id in now.ids:
        fate = seen.fate(id)
        if now.name == "user/message":
            if fate and (fate != CLAIMED or id not in seen.entered):
                return f"{id} is admitted, but it is {fate or 'unknown'}"
            if fate and seen.entered[0] != id:
                return f"{id} is admitted before {seen.entered[0]}"
            continue
        put = now.detail == "insert" or (now.detail == "replace" and id == now.ids[-1])
        if put and fate in (PENDING, PARKED, CLAIMED):
            return f"{id} is put into {now.target}, but it is {fate} already"
        if not put and fate not in (PENDING, PARKED):
            return f"{id} is taken from {now.target}, but it is {fate or 'unknown'}"
    return None


@invariant(*ANNOUNCEMENTS, "rest")
def what_becomes_of_input_is_announced_once(seen: Ledger, now: Happening) -> str | None:
    """What is inserted, claimed and discarded is announced after its record, once, each message's story in order, and
    all of it before the agent rests (INB-02, CLM-05, CAN-02).
    """
    if now.name == "rest":
        return f"{' and '.join(map(' '.join, seen.untold))} was never told" if seen.untold else None
    for id in now.ids:
        due = next((name for name, message in seen.untold if message == id), "nothing")
        if due != now.name:
            return f"{now.name} is told of {id}, of which {due} is due"
    return None


@invariant("agent/inbox/spliced")
def a_turn_claims_one_prompt(seen: Ledger, now: Happening) -> str | None:
    """Input is claimed inside a turn, and a turn takes at most one message of next-turn."""
    if now.detail != "claim":
        return None
    if not seen.turn_open:
        return f"{', '.join(now.ids)} is claimed outside a turn"
    if now.target == "next-turn" and seen.prompts + len(now.ids) > 1:
        return f"{', '.join(now.ids)} joins a turn that has its prompt"
    return None


# -- the wake latch -------------------------------------------------------------------------------------------------


@invariant("agent/inbox/spliced")
def a_late_wake_gets_a_turn_of_its_own(seen: Ledger, now: Happening) -> str | None:
    """What wakes while a cancel takes effect goes into next-turn, also a steer (CAN-04)."""
    late = now.detail == "insert" and seen.sent in WAKING and seen.converging and not seen.disposing
    return f"{', '.join(now.ids)} is put into {now.target}" if late and now.target != "next-turn" else None


@invariant("rest")
def a_latched_wake_is_started(seen: Ledger, now: Happening) -> str | None:
    """A wake that was held while a cancel took effect or during maintenance starts a turn afterwards (CAN-04)."""
    return "the held wake was not started" if seen.owed else None


@invariant("turn/start")
def no_turn_starts_unasked(seen: Ledger, now: Happening) -> str | None:
    """A turn needs a wake, or a turn before it that ended well: a wake that was withdrawn starts none, and neither does
    one that came during disposal (CAN-03, CAN-05, CAN-06, CAN-08).
    """
    if seen.converging:
        return f"turn {now.number} starts while a cancel takes effect"
    return None if seen.due else f"turn {now.number} starts, and nobody has asked for it"


@invariant("rest")
def no_wake_is_forgotten(seen: Ledger, now: Happening) -> str | None:
    """Input that wakes gets a turn, unless a cancel, a failure, a rejection or disposal has parked it."""
    waiting = seen.having(PENDING)
    return f"{', '.join(waiting)} waits, and the agent rests" if waiting else None


# -- turns and steps ------------------------------------------------------------------------------------------------


@invariant("turn/start", "turn/end", "agent/status", "rest")
def every_turn_closes_once(seen: Ledger, now: Happening) -> str | None:
    """Turns are numbered without a gap, and each is closed before anything else begins, exactly once."""
    match now.name:
        case "turn/start" if seen.turn_open:
            return f"turn {now.number} starts in turn {seen.turn}"
        case "turn/start" if now.number != seen.turn + 1:
            return f"turn {now.number} follows turn {seen.turn}"
        case "turn/end" if not seen.turn_open:
            return f"turn {now.number} is closed, but none is open"
        case "turn/end" if now.number != seen.turn:
            return f"turn {now.number} is closed in turn {seen.turn}"
        case "turn/end" if seen.step_open:
            return f"turn {now.number} is closed, and step {seen.step} is not"
        case "rest" | "agent/status" if seen.turn_open and not seen.parked:
            return f"{now.detail or 'rest'} is told, and turn {seen.turn} is still open"
        case _:
            return None


@invariant("turn/end")
def a_turn_has_the_reason_of_what_befell_it(seen: Ledger, now: Happening) -> str | None:
    """A failed turn ends `error`, a cancelled one `aborted` with its first cause, and no other one does."""
    due: tuple[str, ...]
    if seen.failed:
        due = ("error",)
    elif seen.cause:
        due = (f"aborted {seen.cause}",)
    else:
        due = ("completed", "max-tokens", "blocked")
    return None if now.detail in due else f"turn {now.number} ends {now.detail!r} where {' or '.join(due)} is due"


@invariant("step/start", "step/end")
def every_step_closes_once(seen: Ledger, now: Happening) -> str | None:
    """Steps are numbered without a gap within their turn, and each is closed before the next and before its turn."""
    match now.name:
        case "step/start" if not seen.turn_open or seen.step_open:
            return f"step {now.number} starts {f'in step {seen.step}' if seen.step_open else 'outside a turn'}"
        case "step/start" if now.number != seen.step + 1:
            return f"step {now.number} follows step {seen.step}"
        case "step/end" if not seen.step_open or now.number != seen.step:
            return f"step {now.number} is closed, but {f'step {seen.step} is' if seen.step_open else 'none is'} open"
        case _:
            return None


@invariant(*PROPOSALS, "step/start")
def a_proposal_asks_in_order(seen: Ledger, now: Happening) -> str | None:
    """Each proposal goes through boundary, model and pre-step once, in this order, and outside a step."""
    at = len(PROPOSALS) if now.name == "step/start" else PROPOSALS.index(now.name)
    if seen.step_open:
        return f"{now.name} comes inside step {seen.step}"
    return None if at in (0, seen.proposing) else f"{now.name} comes after {seen.proposing} of {', '.join(PROPOSALS)}"


PUBLISHED = (
    "agent/pre-step", "step/start", "system-prompt/assemble", "agent/request", "system/message", "user/message",
    "request/header", "llm/stream", "assistant/message", "assistant/attempt", "agent/request-error", "tool/call",
    "tools/pre-execute", "tools/guard", "tools/execute", "tools/post-execute", "tool/result", "step/end",
)  # fmt: skip
UNPUBLISHED = ("turn/start", "agent/step-boundary", "agent/model", "agent/turn-stopping", "turn/end", "rest")


@invariant(*PUBLISHED, *UNPUBLISHED)
def agent_step_is_published_from_the_choice_to_the_end(seen: Ledger, now: Happening) -> str | None:
    """`agent.step` is there exactly between the choice of the model and the end of the step (STB-05, STB-07)."""
    if now.step is None or now.step is (now.name in PUBLISHED):
        return None
    return f"it is {'there' if now.step else 'missing'} at {now.name}"


SUSPENDING = (
    *PROPOSALS, "system-prompt/assemble", "agent/request", "llm/stream", "agent/request-error", "agent/turn-stopping",
    "tools/pre-execute", "tools/guard", "tools/execute",
)  # fmt: skip


@invariant(*SUSPENDING, "step/start")
def nothing_new_starts_after_a_cancel(seen: Ledger, now: Happening) -> str | None:
    """Once the signal has fired no hook is asked, no step opened, no request made, no tool started."""
    return f"{now.name} comes after the cancel" if seen.turn_open and seen.cause else None


# -- answers and tools ----------------------------------------------------------------------------------------------


@invariant(
    "agent/assistant-stream start",
    "agent/assistant-stream end",
    "assistant/message",
    "assistant/attempt",
    "agent/request-error",
    "step/end",
)
def every_stream_settles_once(seen: Ledger, now: Happening) -> str | None:
    """A dispatched stream is settled by one record, then its end is told, and only then anything else begins."""
    due = {"assistant/message": "open", "assistant/attempt": "open", "agent/assistant-stream end": "settled"}
    if seen.streaming == due.get(now.name, ""):
        return None
    return f"{now.name} comes, and the stream is {seen.streaming or 'over'}"


@invariant("assistant/message", "tool/call", "tool/result", "step/end")
def results_answer_their_calls_in_order(seen: Ledger, now: Happening) -> str | None:
    """Calls and results come in the order of the answer, each result after its call, and all before the step ends or
    has another answer.
    """
    match now.name:
        case "assistant/message" if seen.answered < seen.asked and not seen.excused:
            return f"an answer comes after {seen.answered} of {seen.asked} results of the one before"
        case "tool/call" if seen.streaming or now.number != seen.called + 1 or now.number > seen.asked:
            return f"call {now.number} comes after {seen.called} of {seen.asked} calls"
        case "tool/result" if now.number > seen.called:
            return f"result {now.number} comes, and its call has not"
        case "tool/result" if now.number != seen.answered + 1:
            return f"result {now.number} comes after {seen.answered} results"
        case "step/end" if seen.answered < seen.asked and not seen.excused:
            return f"step {now.number} ends with {seen.answered} of {seen.asked} results"
        case _:
            return None


@invariant("tools/dispose", "tools/resolve", "step/end")
def the_tool_set_is_disposed_once(seen: Ledger, now: Happening) -> str | None:
    """The tool set of a step is disposed of exactly once, before the step ends, whichever way that is (TLS-15)."""
    if now.name == "step/end":
        return "the tool set is not disposed of" if seen.tools else None
    if now.name == "tools/resolve":
        return "a second tool set is resolved" if seen.tools else None
    return None if seen.tools else "there is no tool set to dispose of"


# -- status ---------------------------------------------------------------------------------------------------------


@invariant("agent/status", "turn/start", "rest")
def idle_is_last(seen: Ledger, now: Happening) -> str | None:
    """Running and idle alternate, turns are within them, and an agent that rests has said idle (TRN-16)."""
    match now.name:
        case "agent/status" if now.detail == seen.status:
            return f"{now.detail} is told twice"
        case "turn/start" if seen.status != "running":
            return f"turn {now.number} starts while the status is {seen.status}"
        case "rest" if seen.status != "idle":
            return "the agent rests and has not said so"
        case _:
            return None
