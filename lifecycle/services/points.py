"""The hook points as data: mode, payload, legal verdicts, failure policy, and what a listener may change.

Every payload also carries `agent`. An observer never decides; a decider's illegal return is an
`IllegalVerdictError`. Knows nothing of how they are dispatched (`hooks.py`) or when (the lifecycles).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from lifecycle.vocabulary.events import Event, InboxTarget, ToolFault
from lifecycle.vocabulary.failures import USER_CANCEL, CancelCause, Failure
from lifecycle.vocabulary.messages import Content, ToolCallBlock, UserMessage
from lifecycle.vocabulary.requests import CallConfig, ModelSelection, Request, ToolSpec
from lifecycle.vocabulary.values import EMPTY, FrozenDict

from .frames import Frame
from .signal import CancelSignal

if TYPE_CHECKING:
    from lifecycle.session.log import Session

    from .model import Models
    from .tools import Tool


class AgentHandle(Protocol):
    """What a listener may do with the agent whose event it hears."""

    @property
    def session(self) -> Session: ...
    @property
    def models(self) -> Models: ...
    @property
    def status(self) -> Literal["idle", "running"]: ...
    @property
    def phase(self) -> str: ...
    @property
    def step(self) -> ModelSelection | None: ...
    def followup(self, content: str | UserMessage) -> UserMessage: ...
    def steer(self, content: str | UserMessage) -> UserMessage: ...
    def inject(self, content: str | UserMessage) -> UserMessage: ...
    def send(self, message: UserMessage, target: InboxTarget, *, wakeup: bool) -> None: ...
    def cancel(self, cause: CancelCause = USER_CANCEL, *, keep_inbox: bool = False) -> bool: ...


# -- verdicts: what a decider may answer -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enter:
    """Open the step with these messages, in this order."""

    messages: tuple[UserMessage, ...]
    starts_request_series: bool = False

    enters = True

    def with_messages(self, messages: Iterable[UserMessage]) -> Enter:
        """The same decision with other messages; the series flag is kept (PRE-05)."""
        return replace(self, messages=tuple(messages))


@dataclass(frozen=True, slots=True)
class Reject:
    """Open no step; the turn ends `blocked`."""

    reason: str = ""

    enters = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Request again, in the open step."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Run the call; with other arguments if given."""

    arguments: FrozenDict | str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not run the call; the model is told `reason`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Run the call only if the approver says so."""

    reason: str


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of a call. `error` makes it an error result; `conclude` asks to end the turn after this step."""

    content: Content
    value: Any = None
    error: ToolFault | None = None
    contexts: tuple[UserMessage, ...] = ()
    conclude: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """Keep the outcome; with other `content` or another `value` (not both), and with further contexts."""

    content: Content | None = None
    value: Any = None
    contexts: tuple[UserMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Make the outcome an error that tells the model `feedback`; contexts that the body deferred are dropped."""

    feedback: str
    contexts: tuple[UserMessage, ...] = ()


# -- the prompt ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptText:
    """A rendered section or context of the prompt."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptAssembly:
    """The rendered prompt of one step."""

    sections: tuple[PromptText, ...] = ()
    variables: Mapping[str, str] = EMPTY
    contexts: tuple[PromptText, ...] = ()
    tools: tuple[ToolSpec, ...] = ()


# -- payloads -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Payload:
    """What every listener gets."""

    agent: AgentHandle


@dataclass(frozen=True, slots=True)
class SessionStartPayload(Payload):
    source: Literal["new", "resume"]


@dataclass(frozen=True, slots=True)
class StatusPayload(Payload):
    status: Literal["idle", "running"]


@dataclass(frozen=True, slots=True)
class InboxPayload(Payload):
    message: UserMessage


@dataclass(frozen=True, slots=True)
class ClaimedPayload(Payload):
    message: UserMessage
    turn: int


@dataclass(slots=True)  # as StreamChunk
class StreamPayload:
    agent: AgentHandle
    frame: Frame


@dataclass(frozen=True, slots=True)
class ErrorPayload(Payload):
    """`step` is the last step that was opened, 0 if none (PRE-10); `error` is the original object."""

    turn: int
    step: int
    error: BaseException | Failure


@dataclass(frozen=True, slots=True)
class OverduePayload(Payload):
    """A turn was cancelled `seconds` ago, and still runs: what was started is awaited to its end (CAN-11).

    `calls` are those whose tools go on; if there are none, a hook or the adapter does, and `agent.phase` says where.
    """

    turn: int
    step: int
    seconds: float
    calls: tuple[ToolCallBlock, ...]


@dataclass(frozen=True, slots=True)
class StepPayload(Payload):
    """`step` is the number of the proposed or open step."""

    turn: int
    step: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class PreStepPayload(StepPayload):
    messages: tuple[UserMessage, ...]


@dataclass(frozen=True, slots=True)
class AssemblePayload(StepPayload):
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class RequestPayload(StepPayload):
    attempt: int
    starts_series: bool


@dataclass(frozen=True, slots=True)
class LlmStreamPayload(Payload):
    request: Request


@dataclass(frozen=True, slots=True)
class RequestErrorPayload(StepPayload):
    attempt: int
    provider: str
    failure: Failure
    retry_policy: Any
    """What the prepared call says about retrying; None if it says nothing."""


@dataclass(frozen=True, slots=True)
class TurnPayload(Payload):
    turn: int
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class CallPayload(Payload):
    """`tool` is None if no tool of that name is visible. `arguments`: the parsed object, or the raw text (TLS-02)."""

    call: ToolCallBlock
    arguments: FrozenDict | str
    tool: Tool | None
    signal: CancelSignal


@dataclass(frozen=True, slots=True)
class PostCallPayload(CallPayload):
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class ResultPayload(Payload):
    call: ToolCallBlock
    result: UserMessage
    error: ToolFault | None


@dataclass(frozen=True, slots=True)
class EventPayload(Payload):
    event: Event


# -- the points ---------------------------------------------------------------------------------------------------


class Mode(StrEnum):
    """How the listeners of a point are called (group DSP)."""

    EMIT = "emit"
    """Called one after another; the result is ignored, a fault is contained."""
    SERIAL = "serial"
    """Awaited one after another; the first value that is neither None nor False ends the round."""
    PARALLEL = "parallel"
    """Started together and all awaited; then the first failure is raised."""
    WATERFALL = "waterfall"
    """Wrapped one in another, the first registered outermost, around the default; each may call `next()` once."""
    VETO = "synchronous veto"
    """Called one after another before the fact; one that raises prevents it."""


class OnFault(StrEnum):
    """What an exception of a listener leads to (group ERR)."""

    CONTAINED = "contained and logged"
    VETOES_PUBLICATION = "the agent is not published"
    FAILS_TURN = "fails the turn"
    FAILS_TURN_UNRECOVERED = "fails the turn, no recovery"
    ERROR_RESULT = "error result of the call"
    ERROR_RESULT_WITHOUT_POST = "error result of the call, post skipped"
    APPEND_RAISES = "the append raises"
    RAISED_AFTER_ALL = "the first failure is raised after all have ended"


_BY_MODE = cast("OnFault", None)
"""Stands where nobody says what a fault leads to."""


@dataclass(frozen=True, slots=True)
class HookPoint:
    """One place where the lifecycle asks its hooks.

    `verdicts` are the types that a listener may return, with None spelled `None`; empty means that the result is
    ignored or must be nothing. `on_fault` says what an exception of a listener leads to: left out, it is contained
    where nobody waits for an answer, and fails the turn where somebody does. `may_change` says in words what a listener
    may change, and how. `replaces` names the fields of the payload that a waterfall listener may replace for its inner
    part, by `next(payload)`.

    Raises:
        ValueError: if faults are to be contained at a point that is awaited: only `emit` contains them.
    """

    name: str
    mode: Mode
    payload: type[Any] = Payload
    verdicts: tuple[type[Any] | None, ...] = ()
    on_fault: OnFault = _BY_MODE
    may_change: str = "nothing"
    replaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.on_fault is _BY_MODE:
            object.__setattr__(self, "on_fault", _USUAL_FAULT[self.mode])
        elif self.on_fault is OnFault.CONTAINED and self.mode is not Mode.EMIT:
            raise ValueError(
                f"the hook point {self.name!r} of mode {self.mode.value} cannot contain what its listeners raise; "
                f"only emit does, and here it usually is OnFault.{_USUAL_FAULT[self.mode].name}"
            )

    @property
    def legal(self) -> tuple[str, ...]:
        """The verdicts by name."""
        return tuple("None" if verdict is None else verdict.__name__ for verdict in self.verdicts) or ("nothing",)


_USUAL_FAULT: Mapping[Mode, OnFault] = {
    Mode.EMIT: OnFault.CONTAINED,
    Mode.SERIAL: OnFault.FAILS_TURN,
    Mode.WATERFALL: OnFault.FAILS_TURN,
    Mode.PARALLEL: OnFault.RAISED_AFTER_ALL,
    Mode.VETO: OnFault.APPEND_RAISES,
}


def _points() -> Iterable[HookPoint]:
    emit, serial, waterfall = Mode.EMIT, Mode.SERIAL, Mode.WATERFALL
    fails = OnFault.FAILS_TURN
    yield HookPoint("agent/created", emit, on_fault=OnFault.VETOES_PUBLICATION)
    yield HookPoint("agent/disposed", emit)
    yield HookPoint("agent/session-start", emit, SessionStartPayload)
    yield HookPoint("agent/status", emit, StatusPayload)
    yield HookPoint("agent/inbox/inserted", emit, InboxPayload)
    yield HookPoint("agent/inbox/claimed", emit, ClaimedPayload)
    yield HookPoint("agent/inbox/discarded", emit, InboxPayload)
    yield HookPoint("agent/assistant-stream", emit, StreamPayload)
    yield HookPoint("agent/error", emit, ErrorPayload)
    yield HookPoint("agent/overdue", emit, OverduePayload)
    yield HookPoint(
        "agent/step-boundary", serial, StepPayload, (), fails, "state of its own, before the model is chosen"
    )
    yield HookPoint("agent/model", waterfall, StepPayload, (ModelSelection,), fails, "the selection of the step")
    yield HookPoint(
        "agent/pre-step", waterfall, PreStepPayload, (Enter, Reject), fails, "whether the step opens, and its messages"
    )
    yield HookPoint(
        "system-prompt/assemble", waterfall, AssemblePayload, (PromptAssembly,), fails, "the prompt of the step"
    )
    yield HookPoint(
        "agent/request", waterfall, RequestPayload, (CallConfig,), fails, "the configuration of the attempt"
    )
    yield HookPoint(
        "llm/stream",
        waterfall,
        LlmStreamPayload,
        (AsyncIterator,),
        OnFault.FAILS_TURN_UNRECOVERED,
        "the stream of the attempt",
    )
    yield HookPoint(
        "agent/request-error", waterfall, RequestErrorPayload, (Retry, None), fails, "whether the attempt is made again"
    )
    yield HookPoint(
        "tools/pre-execute",
        waterfall,
        CallPayload,
        (Allow, Deny, Ask),
        OnFault.ERROR_RESULT_WITHOUT_POST,
        "whether the call runs, and its arguments",
    )
    yield HookPoint("tools/guard", serial, CallPayload, (Deny, None), OnFault.ERROR_RESULT, "whether the call runs")
    yield HookPoint(
        "tools/execute",
        waterfall,
        CallPayload,
        (ToolOutcome,),
        OnFault.ERROR_RESULT,
        "the outcome; the signal of its inner part",
        ("signal",),
    )
    yield HookPoint(
        "tools/post-execute",
        waterfall,
        PostCallPayload,
        (Accept, Block),
        OnFault.ERROR_RESULT,
        "what the model sees of the outcome",
    )
    yield HookPoint("tools/result", emit, ResultPayload)
    yield HookPoint("agent/turn-stopping", serial, TurnPayload, (), fails, "nothing; it may send next-step input")
    yield HookPoint(
        "session/append", Mode.VETO, EventPayload, (), OnFault.APPEND_RAISES, "whether the event is appended"
    )
    yield HookPoint("session/event", emit, EventPayload)
    yield HookPoint("session/flush", Mode.PARALLEL, Payload, (), OnFault.RAISED_AFTER_ALL)


POINTS: Mapping[str, HookPoint] = MappingProxyType({point.name: point for point in _points()})
"""Every hook point of the newest revision."""
