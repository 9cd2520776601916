"""The sequence diagram of one recorded run: what the log says happened, told by those whom the definition lets tell it.

Who speaks with whom is looked up in the effects of the definition that has a record of that name: the newest revision
first, then the earlier ones, so that logs of any of them can be drawn. Beside the records, a log proves requests
and the answers to them, and calls of tools and their outcomes; nothing else is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import (
    AGENT,
    DRIVER,
    HOOKS,
    LLM,
    SESSION,
    TOOLS,
    USER,
    Effect,
    Kind,
    Line,
    Message,
    Note,
)
from lifecycle.definition.effects import record as recorded
from lifecycle.definition.family import family, within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import REVISIONS
from lifecycle.pictures.blocks import Block, Branch, Par, Say
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.session.reading import Record

from .calls import CallError
from .history import Attempt, Call, Step, Turn, member, objects, text_in
from .output import printable, shorten
from .timeline import ended, ending, lasted

_MOST = 60
"""Characters of a text that a label shows."""
_LONGEST_NOTE = 400
_POLICIES = ("llm/retry", "compaction/")
"""How the types of the records begin that policies of ours make."""


def run_picture(turns: Iterable[Turn], lifecycle: type[Lifecycle] | None = None, last: str = "") -> str:
    """The Mermaid text of some turns of a log.

    Args:
        lifecycle: What was run: a lifecycle of the newest revision, or one derived from it. By default whichever of
            our revisions has a record of the name.
        last: A note below it all.

    Raises:
        DefinitionError: if the lifecycle has no place in the newest revision.
        CallError: if there is nothing to draw.
    """
    wholes = list(REVISIONS.values())
    if lifecycle is not None:
        wholes = [lifecycle if lifecycle in wholes else within(Agent, lifecycle)]
    script = _Script(wholes)
    blocks = tuple(block for turn in turns for block in _Scene(script, turn).blocks())
    if last:
        blocks += (Say(Note((DRIVER, SESSION), _plain(last, _LONGEST_NOTE))),)
    if not blocks:
        raise CallError("the log holds no event that could be drawn")
    return sequence_text(blocks)


class _Script:
    """Who says what to whom, by the name of a record."""

    def __init__(self, wholes: Iterable[type[Lifecycle]]) -> None:
        self.records: dict[str, list[Message]] = {}
        self.request: Message | None = None
        """What is asked of the model before its answer comes."""
        self.call: Message | None = None
        """What is asked of the tools for each call."""
        for whole in wholes:
            known = frozenset(self.records)
            for effects in _spoken(whole):
                self._learn(effects, known)

    def _learn(self, effects: tuple[Effect, ...], known: frozenset[str]) -> None:
        said = [effect for effect in effects if isinstance(effect, Message)]
        for n, effect in enumerate(said):
            if effect.durable:
                for name in effect.names:
                    self.records.setdefault(name, []).extend([] if name in known else [effect])
            elif effect.kind is Kind.ANSWER and effect.sender is LLM and self.request is None:
                self.request = next((one for one in reversed(said[:n]) if one.receiver is LLM), None)
            elif effect.lane == "start" and self.call is None:
                self.call = effect

    def record(self, name: str, sender: object = None) -> Message | None:
        """The effect that makes a record; by a certain one, if several do. Policies record as hooks, which they are."""
        found = self.records.get(name, [])
        if not found and name.startswith(_POLICIES):
            return recorded(name, sender=HOOKS)
        return next((one for one in found if one.sender is sender), found[0] if found else None)


def _spoken(whole: type[Lifecycle]) -> Iterator[tuple[Effect, ...]]:
    """What is said together, phase by phase and arrow by arrow."""
    for one in family(whole):
        for phase in one.spec.phases.values():
            yield phase.does
            for arrow in phase.arrows:
                yield arrow.emits


@dataclass(slots=True)
class _Group:
    """Calls that overlap, from the number of the first one's event to that of the last one's result."""

    first: int
    last: int
    calls: list[Call]


class _Scene:
    """One turn."""

    def __init__(self, script: _Script, turn: Turn) -> None:
        self._script, self._turn = script, turn
        self._requests = {attempt.after: attempt for attempt in turn.attempts}
        self._answers = {attempt.ends: attempt for attempt in turn.attempts if attempt.ends is not None}
        self._calls = {call.begins: call for call in turn.calls}
        self._results = {call.ends: call for call in turn.calls if call.ends is not None}
        self._groups = {group.first: group for step in turn.steps for group in _groups(step) if len(group.calls) > 1}
        self._cancelled = _cancelled(turn)

    def blocks(self) -> Iterator[Block]:
        if self._turn.number is not None:
            yield Say(Note((DRIVER, SESSION), f"turn {self._turn.number} {ended(self._turn)}"))
        yield from self._told(self._turn.records)

    def _told(self, records: Iterable[Record]) -> Iterator[Block]:
        todo = list(records)
        foreign: list[str] = []
        while todo:
            record = todo.pop(0)
            foreign += [] if self._known(record) else [record.type]
            group = self._groups.pop(record.seq, None)
            if group is not None:
                inside = [one for one in todo if one.seq <= group.last]
                todo = todo[len(inside) :]
                said: list[Block] = [self._side_by_side(group, [record, *inside])]
            else:
                said = list(self._one(record))
            if said and foreign:
                yield _aside(foreign)
                foreign = []
            yield from said
        if foreign:
            yield _aside(foreign)

    def _side_by_side(self, group: _Group, records: list[Record]) -> Par:
        """Calls that overlap, each in a branch of its own; what else was recorded meanwhile has one, too."""
        branches: list[Branch] = []
        of = {number: call for call in group.calls for number in (call.begins, call.ends)}
        for call in group.calls:
            own = [record for record in records if of.get(record.seq) is call]
            when = f"{call.name} {self._span(call)}".strip()
            branches.append(Branch(when, tuple(self._told(own))))
        rest = tuple(self._told([record for record in records if record.seq not in of]))
        return Par((*branches, *([Branch("meanwhile", rest)] if rest else [])))

    def _span(self, call: Call) -> str:
        if not self._turn.timed or call.ended is None:
            return ""
        return f"({self._when(call.began)} to {self._when(call.ended)})"

    def _known(self, record: Record) -> bool:
        return self._script.record(record.type) is not None

    def _one(self, record: Record) -> Iterator[Block]:
        if record.seq == self._cancelled:
            yield Say(Note((AGENT, DRIVER), f"here the turn {ending(self._turn.reason)}"))
        answered = self._answers.get(record.seq)
        if answered is not None and self._script.request is not None:
            yield Say(_answer(answered, self._turn.timed))
        result = self._results.get(record.seq)
        if result is not None and not _unstarted(result):
            outcome = f"failed ({result.error})" if result.error else "ended"
            spent = lasted(result.began, result.ended, self._turn.timed) if self._turn.timed else ""
            words = f"{result.name} {outcome}{f' after {spent}' if spent else ''}"
            yield Say(Message(Kind.ANSWER, TOOLS, DRIVER, Line.DASHED, _plain(words)))
        yield from self._recorded(record)
        call = self._calls.get(record.seq)
        if call is not None and self._script.call is not None and not _unstarted(call):
            yield Say(replace(self._script.call, detail=_plain(call.name)))
        request = self._requests.get(record.seq)
        if request is not None and self._script.request is not None:
            yield Say(replace(self._script.request, detail=f"attempt {request.number}", times="1"))

    def _recorded(self, record: Record) -> Iterator[Block]:
        inserted = record.data.get("inserted")
        sender = AGENT if inserted or record.data.get("outcome") == "canceled" else DRIVER
        effect = self._script.record(record.type, sender)
        if effect is not None and _replaces(record) and record.type in ("user/message", "tool/result"):
            effect = recorded(record.type, sender=HOOKS)  # the driver replaces nothing but the prompt
        if effect is None or record.type == "assistant/chunk":
            return
        if record.type == "agent/inbox/spliced":
            for message in objects(record.data, "inserted"):
                if _kind(message) == "user":
                    words = f"{record.data.get('target')}: {text_in(message)}"
                    yield Say(Message(Kind.ASK, USER, AGENT, Line.SOLID, _plain(words)))
        detail = _detail(record)
        when = f" [{self._when(record.time)}]" if record.time is not None else ""
        yield Say(replace(effect, text=f"`{record.type}`", detail=f"{detail}{when}".strip(), times="1"))

    def _when(self, time: int) -> str:
        """A time as seconds since the turn began."""
        return f"{(time - self._turn.began) / 1000:+.3f} s"


def _groups(step: Step) -> Iterator[_Group]:
    """The calls of a step, those together that overlap or are linked by others that do."""
    last = max((call.ends or call.begins for call in step.calls), default=0)
    group: _Group | None = None
    for call in sorted(step.calls, key=lambda call: call.begins):
        ends = last if call.ends is None else call.ends
        if group is not None and call.begins < group.last:
            group.calls.append(call)
            group.last = max(group.last, ends)
        else:
            if group is not None:
                yield group
            group = _Group(call.begins, ends, [call])
    if group is not None:
        yield group


def _unstarted(call: Call) -> bool:
    """A cancel came before the call started: its events were recorded in one go."""
    return call.error == "ABORTED_BEFORE_DISPATCH" and call.ends == call.begins + 1


def _cancelled(turn: Turn) -> int | None:
    """The number of the first event by which a cancel is seen; None if there was none."""
    if turn.reason is None or turn.reason.get("kind") != "aborted":
        return None
    cut = {attempt.ends for attempt in turn.attempts if attempt.outcome in ("interrupted", "cut off")}
    cut |= {call.ends for call in turn.calls if call.error.startswith("ABORTED")}
    for record in turn.records:
        if record.seq in cut or record.data.get("outcome") == "canceled":
            return record.seq
    closing = [record.seq for record in turn.records if record.type in ("step/end", "turn/end")]
    return closing[-2] if turn.steps and turn.steps[-1].ended is not None and len(closing) > 1 else closing[-1]


def _answer(attempt: Attempt, timed: bool) -> Message:
    if attempt.failure:
        words = f"failed ({attempt.failure.partition(':')[0]})"
    else:
        words = f"StreamChunk* {attempt.chunks}" + ("" if attempt.outcome == "answered" else f", {attempt.outcome}")
    spent = lasted(attempt.began, attempt.ended, timed) if timed else ""
    return Message(Kind.ANSWER, LLM, DRIVER, Line.DASHED, _plain(f"{words}{f' after {spent}' if spent else ''}"))


def _aside(types: list[str]) -> Say:
    counts = {type: types.count(type) for type in types}
    return Say(Note((SESSION,), ", ".join(f"{type} x{n}" if n > 1 else type for type, n in counts.items())))


def _detail(record: Record) -> str:
    """What tells a record from others of its type."""
    data = record.data
    match record.type:
        case "turn/start":
            words = str(data.get("turn"))
        case "step/start" | "step/end":
            words = f"{data.get('step')}"
        case "user/message":
            kind = _kind(data)
            words = text_in(data) if kind == "user" else f"({kind}) {text_in(data)}"
        case "assistant/message" | "system/message":
            words = text_in(member(data, "message")) + (" (interrupted)" if data.get("interrupted") else "")
        case "tool/call":
            words = f"{data.get('name')} {data.get('arguments')}"
        case "tool/result":
            words = "error" if data.get("error") else "in place of an earlier one" if _replaces(record) else ""
        case "turn/end":
            words = str(member(data, "reason").get("kind"))
        case "request/context":
            words = f"{data.get('provider')}/{data.get('model')}"
        case "llm/retry":
            words = f"{data.get('retry')}, after {_seconds(data)} s"
        case "llm/retry-started":
            words = f"{data.get('retry')}"
        case "compaction/start":
            words = f"{data.get('trigger') or ''}"
        case "compaction/end":
            words = f"{data.get('error') or ''}"
        case "compaction/prune":
            words = f"{data.get('callId') or ''}"
        case "agent/inbox/spliced":
            words = f"{data.get('target')}" + (", canceled" if data.get("outcome") == "canceled" else "")
        case _:
            words = ""
    return _plain(words)


def _replaces(record: Record) -> bool:
    return isinstance(record.envelope.get("surfaceOp"), dict)


def _seconds(data: Mapping[str, Any]) -> str:
    delay = data.get("delayMs")
    return f"{delay / 1000:g}" if isinstance(delay, (int, float)) else "?"


def _plain(words: str, most: int = _MOST) -> str:
    """A text for a label: short, and without backticks, between which a picture takes text for a wire name."""
    return shorten(printable(words).replace("`", "'"), most)


def _kind(message: Mapping[str, Any]) -> object:
    return member(message, "source").get("kind")
