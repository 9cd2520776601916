"""The type of the listeners of each point, so that a type checker finds a wrong one before it is registered.

A test holds these against `points.POINTS`: every point has its type, and the payload is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.requests import CallConfig, ModelSelection

from .points import (
    Accept,
    Allow,
    Ask,
    AssemblePayload,
    Block,
    CallPayload,
    ClaimedPayload,
    Deny,
    Enter,
    ErrorPayload,
    EventPayload,
    InboxPayload,
    LlmStreamPayload,
    OverduePayload,
    Payload,
    PostCallPayload,
    PreStepPayload,
    PromptAssembly,
    Reject,
    RequestErrorPayload,
    RequestPayload,
    ResultPayload,
    Retry,
    SessionStartPayload,
    StatusPayload,
    StepPayload,
    StreamPayload,
    ToolOutcome,
    TurnPayload,
)

P = TypeVar("P")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Next(Protocol[V_co]):
    """Runs the rest of a waterfall, down to the default; await what it returns.

    It may be called late, or not at all, and at most once: the second call raises NextCalledTwiceError. Hand it a
    payload only where the point lets a listener replace a part of it, made by `dataclasses.replace`; anything else
    raises IllegalPayloadError.
    """

    def __call__(self, payload: Any = None, /) -> Awaitable[V_co]: ...


Watcher: TypeAlias = Callable[[P], object]
"""Called and not awaited; what it returns is ignored."""
Guard: TypeAlias = Callable[[P], None]
"""Called and not awaited, before the fact; it raises in order to prevent it."""
Stop: TypeAlias = Callable[[P], V | Awaitable[V]]
"""Called and awaited in its turn."""
Wrapper: TypeAlias = Callable[[P, Next[V]], V | Awaitable[V]]
"""Called around the rest, which `next()` runs."""

AnyListener: TypeAlias = Callable[[Any], object] | Callable[[Any, Any], object]

Agent = TypeVar("Agent", bound=Watcher[Payload])
SessionStart = TypeVar("SessionStart", bound=Watcher[SessionStartPayload])
Status = TypeVar("Status", bound=Watcher[StatusPayload])
Inbox = TypeVar("Inbox", bound=Watcher[InboxPayload])
Claimed = TypeVar("Claimed", bound=Watcher[ClaimedPayload])
Stream = TypeVar("Stream", bound=Watcher[StreamPayload])
Error = TypeVar("Error", bound=Watcher[ErrorPayload])
Overdue = TypeVar("Overdue", bound=Watcher[OverduePayload])
Result = TypeVar("Result", bound=Watcher[ResultPayload])
Observer = TypeVar("Observer", bound=Watcher[EventPayload])
Veto = TypeVar("Veto", bound=Guard[EventPayload])
Boundary = TypeVar("Boundary", bound=Stop[StepPayload, None])
Stopping = TypeVar("Stopping", bound=Stop[TurnPayload, None])
Flush = TypeVar("Flush", bound=Stop[Payload, None])
ToolGuard = TypeVar("ToolGuard", bound=Stop[CallPayload, Deny | None])
ModelChoice = TypeVar("ModelChoice", bound=Wrapper[StepPayload, ModelSelection])
PreStep = TypeVar("PreStep", bound=Wrapper[PreStepPayload, Enter | Reject])
Assemble = TypeVar("Assemble", bound=Wrapper[AssemblePayload, PromptAssembly])
Shape = TypeVar("Shape", bound=Wrapper[RequestPayload, CallConfig])
LlmStream = TypeVar("LlmStream", bound=Wrapper[LlmStreamPayload, AsyncIterator[Chunk]])
Recovery = TypeVar("Recovery", bound=Wrapper[RequestErrorPayload, Retry | None])
PreExecute = TypeVar("PreExecute", bound=Wrapper[CallPayload, Allow | Deny | Ask])
Execute = TypeVar("Execute", bound=Wrapper[CallPayload, ToolOutcome])
PostExecute = TypeVar("PostExecute", bound=Wrapper[PostCallPayload, Accept | Block])


class Listening:
    """The decorator of a registry, which gives each listener back with the type it has."""

    @overload
    def on(
        self, name: Literal["agent/created", "agent/disposed"], *, prepend: bool = ...
    ) -> Callable[[Agent], Agent]: ...
    @overload
    def on(
        self, name: Literal["agent/session-start"], *, prepend: bool = ...
    ) -> Callable[[SessionStart], SessionStart]: ...
    @overload
    def on(self, name: Literal["agent/status"], *, prepend: bool = ...) -> Callable[[Status], Status]: ...
    @overload
    def on(
        self, name: Literal["agent/inbox/inserted", "agent/inbox/discarded"], *, prepend: bool = ...
    ) -> Callable[[Inbox], Inbox]: ...
    @overload
    def on(self, name: Literal["agent/inbox/claimed"], *, prepend: bool = ...) -> Callable[[Claimed], Claimed]: ...
    @overload
    def on(self, name: Literal["agent/assistant-stream"], *, prepend: bool = ...) -> Callable[[Stream], Stream]: ...
    @overload
    def on(self, name: Literal["agent/error"], *, prepend: bool = ...) -> Callable[[Error], Error]: ...
    @overload
    def on(self, name: Literal["agent/overdue"], *, prepend: bool = ...) -> Callable[[Overdue], Overdue]: ...
    @overload
    def on(self, name: Literal["agent/step-boundary"], *, prepend: bool = ...) -> Callable[[Boundary], Boundary]: ...
    @overload
    def on(self, name: Literal["agent/model"], *, prepend: bool = ...) -> Callable[[ModelChoice], ModelChoice]: ...
    @overload
    def on(self, name: Literal["agent/pre-step"], *, prepend: bool = ...) -> Callable[[PreStep], PreStep]: ...
    @overload
    def on(self, name: Literal["system-prompt/assemble"], *, prepend: bool = ...) -> Callable[[Assemble], Assemble]: ...
    @overload
    def on(self, name: Literal["agent/request"], *, prepend: bool = ...) -> Callable[[Shape], Shape]: ...
    @overload
    def on(self, name: Literal["llm/stream"], *, prepend: bool = ...) -> Callable[[LlmStream], LlmStream]: ...
    @overload
    def on(self, name: Literal["agent/request-error"], *, prepend: bool = ...) -> Callable[[Recovery], Recovery]: ...
    @overload
    def on(self, name: Literal["tools/pre-execute"], *, prepend: bool = ...) -> Callable[[PreExecute], PreExecute]: ...
    @overload
    def on(self, name: Literal["tools/guard"], *, prepend: bool = ...) -> Callable[[ToolGuard], ToolGuard]: ...
    @overload
    def on(self, name: Literal["tools/execute"], *, prepend: bool = ...) -> Callable[[Execute], Execute]: ...
    @overload
    def on(
        self, name: Literal["tools/post-execute"], *, prepend: bool = ...
    ) -> Callable[[PostExecute], PostExecute]: ...
    @overload
    def on(self, name: Literal["tools/result"], *, prepend: bool = ...) -> Callable[[Result], Result]: ...
    @overload
    def on(self, name: Literal["agent/turn-stopping"], *, prepend: bool = ...) -> Callable[[Stopping], Stopping]: ...
    @overload
    def on(self, name: Literal["session/append"], *, prepend: bool = ...) -> Callable[[Veto], Veto]: ...
    @overload
    def on(self, name: Literal["session/event"], *, prepend: bool = ...) -> Callable[[Observer], Observer]: ...
    @overload
    def on(self, name: Literal["session/flush"], *, prepend: bool = ...) -> Callable[[Flush], Flush]: ...
    @overload
    def on(self, name: str, *, prepend: bool = ...) -> Callable[[F], F]: ...
    def on(self, name: str, *, prepend: bool = False) -> Callable[[F], F]:
        """Decorate a function to listen at `name`; the function is given back as it is.

        Raises as `listen` does, for a misspelt name at the line that spells it.
        """
        self.listeners(name)

        def listening(function: F) -> F:
            self.listen(name, function, prepend=prepend)
            return function

        return listening

    def listen(self, name: str, function: AnyListener, *, prepend: bool = False) -> object:
        raise NotImplementedError

    def listeners(self, name: str) -> object:
        raise NotImplementedError
