"""Invariants: what holds of every run, whatever the hooks do. Each is a function that says what is wrong with a run.

They look at the log and at what was told, and know nothing of the definition; the checker judges the log by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    InboxSpliced,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.messages import ToolCallBlock, ToolResultBlock

from .simulation import Simulated

Invariant: TypeAlias = Callable[[Simulated], Iterator[str]]
"""Yields a sentence for each thing that is wrong."""


def turns_close_once(run: Simulated) -> Iterator[str]:
    """Turns and steps are numbered in order, nested, and each is closed exactly once."""
    turn = step = 0
    open_turn = open_step = False
    refused = Counter(run.vetoed)  # an end that a veto prevented is missing, and nothing is made up for it
    for event in run.events:
        match event.data:
            case TurnStart(turn=number):
                if open_turn and not _spend(refused, "turn/end"):
                    yield f"turn {number} starts at seq {event.seq} while turn {turn} is open"
                if open_step and not _spend(refused, "step/end"):
                    yield f"turn {number} starts at seq {event.seq} while step {step} of turn {turn} is open"
                if number != turn + 1:
                    yield f"turn {number} follows turn {turn} at seq {event.seq}"
                turn, step, open_turn, open_step = number, 0, True, False
            case StepStart(turn=of, step=number):
                if open_step and not _spend(refused, "step/end"):
                    yield f"step {number} starts at seq {event.seq} while step {step} is open"
                if (of, number) != (turn, step + 1) or not open_turn:
                    yield f"step {of}.{number} starts at seq {event.seq} after step {turn}.{step}"
                step, open_step = number, True
            case StepEnd(turn=of, step=number):
                if not open_step or (of, number) != (turn, step):
                    yield f"step {of}.{number} ends at seq {event.seq}, where it is not open"
                open_step = False
            case TurnEnd(turn=number):
                if open_step and not _spend(refused, "step/end"):
                    yield f"turn {number} ends at seq {event.seq} while its step {step} is open"
                if not open_turn or number != turn:
                    yield f"turn {number} ends at seq {event.seq}, where it is not open"
                open_turn = open_step = False
            case ToolCallEvent() | ToolResultEvent() | AssistantMessageEvent() if not open_step:
                yield f"{event.type} stands at seq {event.seq} outside of a step"
            case _:
                pass
    if open_step and not _spend(refused, "step/end"):
        yield f"step {turn}.{step} was never closed"
    if open_turn and not _spend(refused, "turn/end"):
        yield f"turn {turn} was never closed"


def _spend(refused: Counter[str], name: str) -> bool:
    refused[name] -= 1
    return refused[name] >= 0


def results_answer_calls(run: Simulated) -> Iterator[str]:
    """Calls are those of the answer, in its order; each result answers the oldest call that has none."""
    asked: list[ToolCallBlock] = []
    open: list[tuple[int, str]] = []
    for event in run.events:
        match event.data:
            case StepStart():
                asked, open = [], []
            case AssistantMessageEvent(message=message):
                asked = [block for block in message.content if isinstance(block, ToolCallBlock)]
            case ToolCallEvent(call_id=id):
                if not asked or asked.pop(0).id != id:
                    yield f"call {id} at seq {event.seq} is not the next one that the model asked for"
                open.append((event.seq, id))
            case ToolResultEvent(message=message):
                ids = [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]
                if not open or ids != [open[0][1]] or event.sources != (open[0][0],):
                    yield f"the result at seq {event.seq} answers {ids}, where {open[:1]} is due"
                open = open[1:]
            case TurnEnd(reason=reason) if reason.kind != "error":
                if (open or asked) and not run.vetoed and reason.kind != "aborted":
                    yield f"turn {event.data.turn} ended {reason.kind} with calls that have no result: {open or asked}"
                if open and not run.vetoed:
                    yield f"turn {event.data.turn} ended {reason.kind} with started calls that have no result: {open}"
            case _:
                pass


def nothing_accepted_is_lost(run: Simulated) -> Iterator[str]:
    """Every accepted message is pending, admitted once, discarded, or spent by a proposal; and told as such."""
    lists: dict[str, list[str]] = {"next-step": [], "next-turn": []}
    state: dict[str, str] = {}
    inserted: list[str] = []
    discarded: list[str] = []
    claimed: dict[str, int] = {}
    turn = 0
    for event in run.events:
        match event.data:
            case TurnStart(turn=turn):
                pass
            case InboxSpliced(target=target, start=start, removed_count=count, inserted=new, outcome=outcome):
                waiting = lists[target]
                gone = waiting[start : start + (count or 0)]
                if len(gone) != (count or 0):
                    yield f"seq {event.seq} removes {count} messages from {waiting} at {start}"
                waiting[start : start + (count or 0)] = [message.id for message in new]
                for id in gone:
                    state[id] = "claimed" if outcome is None else "discarded"
                    if outcome is None:
                        claimed[id] = turn
                    else:
                        discarded.append(id)
                for message in new:
                    state[message.id] = "pending"
                    inserted.append(message.id)
            case UserMessageEvent(message=message) if message.id in state:
                if state[message.id] != "claimed":
                    yield f"message {message.id} is admitted at seq {event.seq}, but it is {state[message.id]}"
                state[message.id] = "admitted"
            case _:
                pass
    left = tuple(tuple(message.id for message in messages) for messages in run.pending)
    if run.end == "idle" and left != (tuple(lists["next-step"]), tuple(lists["next-turn"])):
        yield f"the inbox holds {left}, but the log says {lists}"
    reasons = {event.data.turn: event.data.reason.kind for event in run.events if isinstance(event.data, TurnEnd)}
    may_drop = run.vetoed or (run.agent is not None and run.agent.hooks.listeners("agent/pre-step"))
    for id, where in claimed.items():
        if state[id] == "claimed" and reasons.get(where) in ("completed", "max-tokens") and not may_drop:
            yield f"message {id} was claimed by turn {where}, which {reasons[where]}, and never admitted"
    if not run.vetoed:
        yield from _told(run, "agent/inbox/inserted", inserted)
        yield from _told(run, "agent/inbox/claimed", list(claimed))
        yield from _told(run, "agent/inbox/discarded", discarded)


def _told(run: Simulated, name: str, ids: list[str]) -> Iterator[str]:
    told = Counter(one.payload.message.id for one in run.live(name))
    if told != Counter(ids):
        yield f"{name} was told of {sorted(told.elements())}, but the log says {sorted(ids)}"


def attempts_settle_once(run: Simulated) -> Iterator[str]:
    """Every dispatched stream has one live start, one live end, and at most one settlement."""
    frames: Counter[tuple[str, str]] = Counter()
    for one in run.live("agent/assistant-stream"):
        frame = one.payload.frame
        if frame.type != "chunk":
            frames[frame.attempt_id, frame.type] += 1
    for (attempt, kind), times in frames.items():
        if times != 1 or (attempt, "end") not in frames or (attempt, "start") not in frames:
            yield f"attempt {attempt} was told its {kind} {times} times"
    starts = sum(1 for _, kind in frames if kind == "start")
    settled = sum(event.type in ("assistant/message", "assistant/attempt") for event in run.events)
    if settled != starts and not run.vetoed:
        yield f"{starts} streams were dispatched, and {settled} settled"


def steps_outlive_their_parts(run: Simulated) -> Iterator[str]:
    """When a step ends, its stream is closed, and the bodies of its calls have ended."""
    for seq in run.outlived:
        yield f"the step that ends at seq {seq} left a body or a stream behind"


def comes_to_rest(run: Simulated) -> Iterator[str]:
    """Everything that was asked for is done in the end, the agent is idle, and nothing of the run is left."""
    if run.end != "idle":
        yield f"the run is {run.end} in phase {run.phase or '?'}: {run.error!r}"
        return
    if run.statuses != ("running", "idle") * (len(run.statuses) // 2):
        yield f"the status went {' '.join(run.statuses)}"
    left = {
        "things that wait": run.waiting,
        "tasks": run.leaked,
        "open streams": run.streaming,
        "running bodies": run.bodies,
        "tool sets": run.open_sets,
        "published steps": run.published,
    }
    for what, remains in left.items():
        if remains:
            yield f"there are {what} left: {remains}"


def healthy_turns_go_on(run: Simulated) -> Iterator[str]:
    """A prompt waits only if the turn before it failed, was rejected or cancelled, or the agent is disposed of."""
    acts = [*run.scenario.moves, *(act for hook in run.scenario.hooks for act in hook.acts)]
    acts += [act for tool in run.scenario.tools for act in tool.does]
    if run.end != "idle" or any(act.verb in ("dispose", "abandon") or act.cause == "disposed" for act in acts):
        return
    if run.vetoed or (run.agent is not None and run.agent.hooks.listeners("agent/pre-step")):
        return
    if run.pending[1] and run.reasons and run.reasons[-1].kind in ("completed", "max-tokens"):
        yield f"the prompts {[message.id for message in run.pending[1]]} wait, but the last turn was in order"


INVARIANTS: Mapping[str, Invariant] = MappingProxyType(
    {
        invariant.__name__: invariant
        for invariant in (
            turns_close_once,
            results_answer_calls,
            nothing_accepted_is_lost,
            attempts_settle_once,
            steps_outlive_their_parts,
            comes_to_rest,
            healthy_turns_go_on,
        )
    }
)
"""The built-in invariants by name."""


def problems(run: Simulated, invariants: Mapping[str, Invariant] = INVARIANTS) -> list[str]:
    """What is wrong with a run, each with the name of the invariant that says so. Empty if nothing is."""
    return [f"{name}: {said}" for name, invariant in invariants.items() for said in invariant(run)]
