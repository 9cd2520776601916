"""Judging a watched run: the contracts that its listeners broke, then what is wrong with the run as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lifecycle.definition.acceptor import Acceptor, alphabet_of
from lifecycle.definition.revisions import NEWEST
from lifecycle.errors import HookError, SimulationError, TurnCancelledError
from lifecycle.vocabulary.events import TurnEnd, TurnStart, UserMessageEvent
from lifecycle.vocabulary.failures import Failure

from .actors import ScriptedFault
from .hook_calls import Breach, HookCall, Interrupted, Limits, causes
from .invariants import INVARIANTS, Invariant
from .properties import Property
from .simulation import Simulated
from .watch import Watch

_TURNS = 8
"""How many failed turns in a row a hook may follow by another."""
_NUMBER = re.compile(r"\bseq (\d+)")


def judged(run: Simulated, watch: Watch, limits: Limits, properties: Iterable[Property] = ()) -> Iterator[Breach]:
    """Every broken rule, the most telling first."""
    spinning = [call for call in watch.calls if call.delivered and not call.verdict]
    if spinning:
        yield Breach("cancellation", f"{spinning[0]} swallows its cancellation, and goes on for ever", spinning[0])
    yield from watch.breaches
    if watch.interrupted or _refused_to_live(run, watch):
        return
    run = replace(run, vetoed=(*run.vetoed, *watch.refused))
    yield from _at_rest(run, watch)
    yield from _failed_turns(run, watch, limits)
    yield from _broken_calls(run, watch, limits)
    yield from _wrong(run, watch, {name: one for name, one in INVARIANTS.items() if name != "comes_to_rest"})
    yield from _wrong(run, watch, OURS)
    yield from _wrong(run, watch, {"log": log_is_legal})
    for one in properties:
        for said in one.problems(run):
            yield Breach(one.name, said, _last(watch, said))


def _refused_to_live(run: Simulated, watch: Watch) -> bool:
    """A listener has vetoed the agent's publication, as it may."""
    return run.error is not None and any(run.error is one for one in watch.raised)


def _at_rest(run: Simulated, watch: Watch) -> Iterator[Breach]:
    """Where the run does not come to rest: the listener that holds it up, or keeps it going."""
    for said in INVARIANTS["comes_to_rest"](run):
        guilty, reason = _last(watch, said), said
        calls = watch.calls
        if run.leaked and run.end == "idle":
            begun = [call for call in calls if call.tasks & {*run.leaked}]
            guilty = begun[-1] if begun else guilty
            reason = f"{guilty} begins a task that is still there when the agent is left" if begun else said
        elif run.end == "stuck":
            held = [call for call in calls if call.cancelled or not call.verdict or call.fired is not None]
            guilty = held[-1] if held else guilty
            stands = f"nothing can move any more, and the agent stands in {run.phase or 'no phase'}"
            reason = f"{guilty} waits for what never comes{_at(guilty)}" if held else stands
        elif run.end == "failed" and (gave_up := _gave_up(run)):
            held = [call for call in calls if call.cancelled or not call.verdict]
            guilty = held[-1] if held else guilty
            reason = f"{guilty or 'the run'} does not come to an end{_at(guilty)}: {gave_up}"
        elif run.end == "endless" and calls:
            sent = Counter[tuple[str, str]]()
            for call in calls:
                sent[call.point.name, call.listener] += call.sent
            busiest, times = sent.most_common(1)[0]
            if times:
                guilty = next(call for call in reversed(calls) if (call.point.name, call.listener) == busiest)
                reason = f"{guilty} keeps the agent going for ever: it has sent {times} messages"
            else:
                reason = f"the agent goes on for ever: it has not ended after {len(run.moves)} moves"
        yield Breach("comes_to_rest", reason, guilty)


def _at(call: HookCall | None) -> str:
    return f", at {call.waits_at}" if call is not None and call.waits_at else ""


def _gave_up(run: Simulated) -> SimulationError | None:
    """Why the simulation could not go on, if that is what ended the run."""
    return next((one for one in causes(run.error) if isinstance(one, SimulationError)), None) if run.error else None


def _failed_turns(run: Simulated, watch: Watch, limits: Limits) -> Iterator[Breach]:
    """A turn fails for what the model, the tools and the scripted hooks do, and for nothing else."""
    known = {call.listener for call in watch.calls}
    for one in run.live("agent/error"):
        error: BaseException | Failure = one.payload.error
        if isinstance(error, Failure) or _expected(error, watch, limits, known):
            continue
        said = f"turn {one.payload.turn} fails with {type(error).__name__}: {error}"
        yield Breach("turn_fails", said, _before(watch, "turn/end", one.payload.turn))


def _expected(error: BaseException, watch: Watch, limits: Limits, known: set[str]) -> bool:
    for one in causes(error):
        if isinstance(one, (ScriptedFault, Interrupted, TurnCancelledError, *limits.may_raise)):
            return True
        if any(one is other for other in watch.raised):
            return True
        if isinstance(one, HookError) and getattr(one, "listener", None) not in known:
            return True
    return False


def _broken_calls(run: Simulated, watch: Watch, limits: Limits) -> Iterator[Breach]:
    """A call fails as a call of a hook's only where a hook raises, and that is judged where it does."""
    told = {ScriptedFault.__name__, "IllegalVerdictError", *(type(one).__name__ for one in watch.raised)}
    told |= {one.__name__ for one in limits.may_raise}
    for one in run.live("tools/result"):
        fault = one.payload.error
        if fault is None or fault.name is None:  # who blocks a call that has failed takes the failure's name away
            continue
        if fault.code == "HOOK_FAILED" and fault.name not in told:
            said = f"call {one.payload.call.id} fails with {fault.name} because of what a hook answered"
            calls = [call for call in watch.calls if call.point.name.startswith("tools/") and call.point.verdicts]
            yield Breach("call_fails", said, calls[-1] if calls else None)


def _wrong(run: Simulated, watch: Watch, invariants: Mapping[str, Invariant]) -> Iterator[Breach]:
    for name, invariant in invariants.items():
        for said in invariant(run):
            yield Breach(name, said, _last(watch, said))


def _last(watch: Watch, said: str) -> HookCall | None:
    """The call that a sentence is about: the one that recorded the event it names, or was the last one before."""
    number = _NUMBER.search(said)
    at = None if number is None else int(number[1])
    if at is not None and at in watch.authors:
        return watch.authors[at]
    last: HookCall | None = None
    for one in watch.moments:
        if at is not None and one.event is not None and one.event.seq >= at:
            break
        if one.what == "called" and one.call is not None and (last is None or one.call.verdict != "nothing"):
            last = one.call
    return last


def _before(watch: Watch, type: str, turn: int) -> HookCall | None:
    """The last call that answered something before a turn ended."""
    last: HookCall | None = None
    for one in watch.moments:
        if one.event is not None and one.event.type == type and getattr(one.event.data, "turn", None) == turn:
            break
        if one.what == "returned" and one.call is not None and one.call.verdict not in ("nothing", "None"):
            last = one.call
    return last


# -- invariants that only checked hooks can break ------------------------------------------------------------------


def ids_are_unique(run: Simulated) -> Iterator[str]:
    """No two messages of a log have one id."""
    seen: dict[str, int] = {}
    for event in run.events:
        if isinstance(event.data, UserMessageEvent):
            id = event.data.message.id
            if id in seen:
                yield f"message {id} is admitted at seq {event.seq}, and was at {seen[id]} already"
            seen.setdefault(id, event.seq)


def failed_turns_end(run: Simulated) -> Iterator[str]:
    """Turns that fail one after another are not followed by further ones for ever."""
    row = begun = 0
    asked = sum(move.verb in ("followup", "steer", "inject") for move in run.scenario.moves)
    asked += sum(len(one.acts) for one in run.scenario.hooks) + sum(len(tool.does) for tool in run.scenario.tools)
    for event in run.events:
        if isinstance(event.data, TurnStart):
            begun = event.seq
        elif isinstance(event.data, TurnEnd):
            row = row + 1 if event.data.reason.kind == "error" else 0
            if row > asked + _TURNS:
                yield f"the turn of seq {begun} is the {row}. in a row that fails, and each was followed by another one"
                return


def log_is_legal(run: Simulated) -> Iterator[str]:
    """The log is one that the declared lifecycle can make; one from which a veto took records may not be."""
    if run.vetoed:
        return
    acceptor = Acceptor(alphabet_of(NEWEST))
    for event in run.events:
        wrong = acceptor.take_event(event)
        if wrong is not None:
            yield f"{event.type} at seq {event.seq} is no record of the lifecycle: {wrong.reason}"
            return


OURS: Mapping[str, Invariant] = {"ids_are_unique": ids_are_unique, "failed_turns_end": failed_turns_end}
