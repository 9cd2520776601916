"""Durable session events: one frozen model each, named by its wire name, and the envelope they stand in.

A class with a `type` is known from then on: a plug-in declares its own by subclassing `EventData`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from lifecycle.errors import DefinitionError, SessionFormatError, UnknownEventError

from .chunks import FinishKind, Usage
from .failures import Failure, TurnEndReason
from .messages import AssistantMessage, SystemMessage, TextBlock, UserMessage
from .requests import Header
from .rules import FREE, Form, Rules
from .stream import TimedStream
from .values import EMPTY, FrozenDict, Json, JsonObject, Mended, Value, freeze_object

InboxTarget: TypeAlias = Literal["next-turn", "next-step"]


class Replace(Value, frozen=True):
    """The event takes the place of the surface's nodes from seq `start` to seq `end`, inclusive (LOG-05)."""

    op: Literal["replace"] = "replace"
    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace
"""What a message-bearing event does to the surface."""

_kinds: dict[str, type[EventData]] = {}
_quoted = lru_cache(json.dumps)  # of wire names, of which there are few


@cache
def _surface_ops() -> TypeAdapter[SurfaceOp]:
    """What reads surface operations; made when the first one is read."""
    return TypeAdapter(SurfaceOp)


class EventData(Value, frozen=True):
    """The base of every durable event's data. A subclass gives its wire name as `type`."""

    type: ClassVar[str] = ""
    on_surface: ClassVar[bool] = False
    """Whether it bears a message and must say what it does to the surface (LOG-04)."""
    rules: ClassVar[Rules] = FREE
    """What it says of other records (LOG-07)."""

    def __init_subclass__(cls) -> None:
        if "type" not in cls.__dict__:
            return
        known = _kinds.setdefault(cls.type, cls)
        if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
            raise DefinitionError(f"{cls.__qualname__}: the event type {cls.type!r} belongs to {known.__qualname__}")
        _kinds[cls.type] = cls

    def encode(self) -> str:
        """The data as JSON text."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def decode(cls, data: object) -> Self:
        """The data from parsed JSON. Raises pydantic.ValidationError."""
        return cls.model_validate(data)


class TurnStart(EventData, frozen=True):
    type: ClassVar[str] = "turn/start"
    rules: ClassVar[Rules] = Rules(counts="turn")
    turn: int


_NATURAL = ("completed", "max-tokens")
_REASONS = (*_NATURAL, "blocked", "aborted", "error", "interrupted")


class TurnEnd(EventData, frozen=True):
    type: ClassVar[str] = "turn/end"
    rules: ClassVar[Rules] = Rules(refers_to=("turn",), closes="turn", natural=_NATURAL, reasons=_REASONS)
    turn: int
    reason: TurnEndReason


class StepStart(EventData, frozen=True):
    type: ClassVar[str] = "step/start"
    rules: ClassVar[Rules] = Rules(counts="step", refers_to=("turn",))
    turn: int
    step: int


class StepEnd(EventData, frozen=True):
    type: ClassVar[str] = "step/end"
    rules: ClassVar[Rules] = Rules(refers_to=("turn", "step"), closes="step", waits="undecided")
    turn: int
    step: int


class InboxSpliced(EventData, frozen=True):
    """The durable inbox changed: at `start`, `removed_count` messages went and `inserted` came (INB-04)."""

    type: ClassVar[str] = "agent/inbox/spliced"
    rules: ClassVar[Rules] = Rules(
        lists="target", forms=(Form("claim", has=("removedCount",), lacks=("inserted", "outcome")),)
    )
    target: InboxTarget
    start: int
    removed_count: int | None = None
    inserted: tuple[UserMessage, ...] = ()
    outcome: Literal["canceled"] | None = None


class SystemMessageEvent(EventData, frozen=True):
    type: ClassVar[str] = "system/message"
    on_surface: ClassVar[bool] = True
    rules: ClassVar[Rules] = Rules(refers_to=("turn", "step"))
    turn: int
    step: int
    message: SystemMessage


class UserMessageEvent(EventData, frozen=True):
    """Its data on the wire is the message itself."""

    type: ClassVar[str] = "user/message"
    on_surface: ClassVar[bool] = True
    rules: ClassVar[Rules] = Rules(replacing="anywhere", hooked=True)
    message: UserMessage

    def encode(self) -> str:
        return self.message.model_dump_json(exclude_none=True)

    @classmethod
    def decode(cls, data: object) -> Self:
        return cls(message=UserMessage.model_validate(data))


class RequestHeader(EventData, frozen=True):
    type: ClassVar[str] = "request/header"
    header: Header
    reason: Literal["initial", "resume", "change"]


class RequestContext(EventData, frozen=True):
    type: ClassVar[str] = "request/context"
    provider: str
    model: str
    context_window: int | None = None


class AssistantMessageEvent(EventData, frozen=True):
    """A provider call that finished, or the visible prefix of one that was cancelled (`interrupted`)."""

    type: ClassVar[str] = "assistant/message"
    on_surface: ClassVar[bool] = True
    rules: ClassVar[Rules] = Rules(
        refers_to=("turn", "step"),
        key="message.content",
        adds="unstarted",
        answers=True,
        replacing="step",
        forms=(Form("interrupted", has=("interrupted",), bars=("assistant/message", "assistant/attempt")),),
    )
    turn: int
    step: int
    message: AssistantMessage
    stream: TimedStream
    finish: FinishKind
    usage: Usage | None = None
    interrupted: Literal[True] | None = None


class AssistantAttempt(EventData, frozen=True):
    """A provider call that left no message: failed, raised, or cancelled with nothing visible (SET-03)."""

    type: ClassVar[str] = "assistant/attempt"
    rules: ClassVar[Rules] = Rules(refers_to=("turn", "step"))
    turn: int
    step: int
    stream: TimedStream


class ToolCallEvent(EventData, frozen=True):
    """A call starts. `arguments` is the model's raw text (TLS-02)."""

    type: ClassVar[str] = "tool/call"
    rules: ClassVar[Rules] = Rules(
        refers_to=("turn", "step"),
        key="callId",
        takes="unstarted",
        adds="unsettled",
        ordered_by="assistant/message",
        waits="undecided",
    )
    turn: int
    step: int
    call_id: str
    name: str
    arguments: str


class ToolFault(Value, frozen=True):
    """Why a result is an error: `code` for programs, `name` of the exception if there was one."""

    code: str
    name: str | None = None


class ToolResultEvent(EventData, frozen=True):
    """The result of a call; the envelope's `sources` cites the call's record (TLS-09)."""

    type: ClassVar[str] = "tool/result"
    on_surface: ClassVar[bool] = True
    rules: ClassVar[Rules] = Rules(
        refers_to=("turn", "step"),
        key="message.source.callId",
        takes="unsettled",
        ordered_by="tool/call",
        unstarted="TOOL_NOT_STARTED",
        replacing="turn",
    )
    turn: int
    step: int
    message: UserMessage
    error: ToolFault | None = None
    value: Json = None
    """What the tool returned, where that is more than its text."""


class ApprovalAsked(EventData, frozen=True):
    """Somebody is asked whether the call that started last may run; no other one starts meanwhile (TLP-02)."""

    type: ClassVar[str] = "approval/asked"
    rules: ClassVar[Rules] = Rules(key="id", adds="undecided", about="unsettled", about_key="callId")
    id: str
    call_id: str
    tool_name: str
    reason: str


ApprovalOutcome: TypeAlias = Literal["approved", "denied", "canceled", "failed"]


class ApprovalDecided(EventData, frozen=True):
    """What came of an ask: the answer, or that a cancel or an exception came first."""

    type: ClassVar[str] = "approval/decided"
    rules: ClassVar[Rules] = Rules(key="id", takes="undecided", ordered_by="approval/asked")
    id: str
    outcome: ApprovalOutcome


class LlmRetry(EventData, frozen=True):
    """A retry is scheduled. Times in milliseconds."""

    type: ClassVar[str] = "llm/retry"
    rules: ClassVar[Rules] = Rules(refers_to=("turn", "step"))
    retry_id: str
    turn: int
    step: int
    provider: str
    retry: int
    delay_ms: int
    failure: Failure
    mode: str | None = None
    policy_key: str | None = None
    max_retries: int | None = None
    shown: Literal[True] | None = None
    """The failed attempt had streamed something to see; whoever shows it is to begin again."""


class LlmRetryStarted(EventData, frozen=True):
    type: ClassVar[str] = "llm/retry-started"
    rules: ClassVar[Rules] = Rules(refers_to=("turn", "step"))
    retry_id: str
    turn: int
    step: int
    retry: int


class CompactionStart(EventData, frozen=True):
    """The conversation is about to be shortened; `compaction/end` of the same id follows, whatever comes of it."""

    type: ClassVar[str] = "compaction/start"
    compaction_id: str
    trigger: Literal["pressure", "overflow", "manual"]
    turn: int | None = None
    """The open turn; None outside of turns."""


class CompactionSummary(EventData, frozen=True):
    """What a model made of a part of the conversation. The `user/message` that takes that part's place follows."""

    type: ClassVar[str] = "compaction/summary"
    compaction_id: str
    summary: tuple[TextBlock, ...]
    shadowed_seqs: tuple[int, ...]
    """The events whose place is taken, in surface order."""
    shadowed_token_count: int
    """An estimate of what they weigh."""
    provider: str
    model: str
    usage: Usage | None = None


class CompactionEnd(EventData, frozen=True):
    type: ClassVar[str] = "compaction/end"
    compaction_id: str
    turn: int | None = None
    error: Mended | None = None
    """Why nothing was shortened, in a sentence; None if it was."""


class CompactionPrune(EventData, frozen=True):
    """An old tool result is too long to be kept; the shorter one that takes its place follows."""

    type: ClassVar[str] = "compaction/prune"
    turn: int
    call_id: str
    shadowed_seq: int
    shadowed_token_count: int


class EndSeed(EventData, frozen=True):
    """What came before was adopted from another log (RSM-01)."""

    type: ClassVar[str] = "session/end-seed"
    rules: ClassVar[Rules] = Rules(adopts=True)


class Opaque(EventData, frozen=True):
    """An ignorable event of a type that nobody here declared: kept, and skipped by every projection (LOG-08)."""

    name: str
    payload: JsonObject = EMPTY

    def encode(self) -> str:
        return json.dumps(self.payload, ensure_ascii=False, separators=(",", ":"))


SurfaceEvent: TypeAlias = SystemMessageEvent | UserMessageEvent | AssistantMessageEvent | ToolResultEvent


class Event(NamedTuple):
    """One durable event: `seq` counts from 0 without gaps, `time` is in epoch milliseconds."""

    seq: int
    time: int
    data: EventData
    surface: SurfaceOp | None = None
    sources: tuple[int, ...] | None = None
    ignorable: bool = False

    @property
    def type(self) -> str:
        """The wire name."""
        data = self.data
        return data.type or cast("Opaque", data).name

    def encode(self) -> str:
        """The event as one line of JSON text, without the line's end."""
        parts = [f'{{"seq":{self.seq},"time":{self.time},"type":{_quoted(self.type)},"data":{self.data.encode()}']
        if self.sources is not None:
            parts.append(f'"sourceEventSeqs":[{",".join(map(str, self.sources))}]')
        if self.surface == "append":
            parts.append('"surfaceOp":"append"')
        elif self.surface is not None:
            parts.append(f'"surfaceOp":{self.surface.model_dump_json()}')
        if self.ignorable:
            parts.append('"ignorable":true')
        return ",".join(parts) + "}"

    def to_json(self) -> FrozenDict:
        """The event as frozen JSON."""
        return freeze_object(json.loads(self.encode()), self.type)


def decode_event(line: str | bytes) -> Event:
    """The event that one line of JSON spells.

    Raises:
        UnknownEventError: for a type that nobody declared and that is not marked ignorable.
        SessionFormatError: for anything else that is no event of ours.
    """
    try:
        raw = _parsed(line)
        seq, time, name, data = raw["seq"], raw["time"], raw["type"], raw["data"]
        if not (type(seq) is type(time) is int and type(name) is str):
            seq, time, name = int(seq), int(time), str(name)
    except RecursionError:
        raise SessionFormatError("not a session event: it is nested too deeply") from None
    except (ValueError, TypeError, KeyError) as wrong:
        shown = line[:60] if isinstance(line, str) else line[:60].decode("utf-8", "replace")
        raise SessionFormatError(f"not a session event: {shown!r} ({wrong})") from wrong
    ignorable = bool(raw.get("ignorable", False))
    kind = _kinds.get(name)
    if kind is None and not ignorable:
        raise UnknownEventError(
            f"event {seq} has the type {name!r}, which nobody here declares; it needs the plug-in that wrote it"
        )
    try:
        decoded = Opaque(name=name, payload=data) if kind is None else kind.decode(data)
        if len(raw) == _BARE:
            return event_of((seq, time, decoded, None, None, False))
        surface = raw.get("surfaceOp")
        sources = raw.get("sourceEventSeqs")
        if surface is not None and surface != "append":
            surface = _surface_ops().validate_python(surface)
        if sources is not None:
            sources = tuple([int(source) for source in sources])
        return event_of((seq, time, decoded, surface, sources, ignorable))
    except (ValidationError, TypeError, ValueError) as wrong:
        raise SessionFormatError(f"event {seq} is no {name!r} as we know it: {wrong}") from wrong


_BARE = 4
"""How many fields every event has."""
event_of: Callable[[tuple[Any, ...]], Event] = partial(cast("Any", tuple).__new__, Event)
"""The event of these fields: what the named tuple's own constructor comes to, at half the price."""


def _parsed(line: str | bytes) -> Any:
    """What a line of JSON spells. The quick parser gives up where one that is nested deeply is still sound."""
    try:
        return from_json(line)
    except ValueError:
        return json.loads(line)


def event_types() -> tuple[str, ...]:
    """The wire names of all durable events declared so far, sorted."""
    return tuple(sorted(_kinds))


def event_rules() -> dict[str, Rules]:
    """What each durable event declared so far says of others, by its wire name."""
    return {name: kind.rules for name, kind in _kinds.items()}
