"""A run as people read it: the answer as it streams, the calls and what came of them, where it is, how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from lifecycle.services.hooks import Hooks
from lifecycle.services.points import (
    AgentHandle,
    EventPayload,
    RequestErrorPayload,
    StepPayload,
    StreamChunk,
    StreamPayload,
)
from lifecycle.vocabulary.chunks import TextDelta, Usage
from lifecycle.vocabulary.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    Event,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import Aborted, Errored, TurnEndReason
from lifecycle.vocabulary.messages import TextBlock, ToolResultBlock, text_of

from .output import Console, shorten


@dataclass(slots=True)
class Tally:
    """What a run has come to."""

    steps: int = 0
    requests: int = 0
    failed: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reason: TurnEndReason | None = None
    _names: dict[str, str] = field(default_factory=lambda: {})

    def add(self, event: Event) -> None:
        """Count one event."""
        match event.data:
            case TurnStart():
                self.reason = None
            case StepStart():
                self.steps += 1
            case AssistantAttempt():
                self.requests += 1
                self.failed += 1
            case AssistantMessageEvent(usage=usage):
                self.requests += 1
                self._spend(usage)
            case ToolCallEvent(call_id=call_id, name=name):
                self.calls += 1
                self._names[call_id] = name
            case TurnEnd(reason=reason):
                self.reason = reason
            case _:
                pass

    def _spend(self, usage: Usage | None) -> None:
        if usage is not None:
            self.input_tokens += usage.input_tokens
            self.output_tokens += usage.output_tokens

    def name_of(self, call_id: str) -> str:
        """The tool that a call is for."""
        return self._names.get(call_id, "?")

    def __str__(self) -> str:
        parts = [_count(self.steps, "step"), _count(self.requests, "request")]
        parts[-1] += f" ({self.failed} failed)" if self.failed else ""
        parts.append(_count(self.calls, "tool call"))
        if self.input_tokens or self.output_tokens:
            parts.append(f"{self.input_tokens} tokens in, {self.output_tokens} out")
        return ", ".join(parts)


class Transcript:
    """Writes a live run to a console by listening to its agent."""

    def __init__(self, console: Console, hooks: Hooks) -> None:
        self._console = console
        self.tally = Tally()
        hooks.listen("session/event", self._event)
        hooks.listen("agent/assistant-stream", self._stream)
        hooks.listen("agent/step-boundary", self._boundary)
        hooks.listen("agent/request-error", self._failure, prepend=True)

    def _boundary(self, payload: StepPayload) -> None:
        self._console.place(_place(payload.agent))

    def _stream(self, payload: StreamPayload) -> None:
        frame = payload.frame
        if isinstance(frame, StreamChunk):
            self._console.place(_place(payload.agent))
            if isinstance(frame.chunk, TextDelta):
                self._console.text(frame.chunk.text)
        else:
            self._console.end_text()

    async def _failure(self, payload: RequestErrorPayload, next: Callable[[], Awaitable[Any]]) -> Any:
        answer = await next()
        told = f"request failed ({payload.failure.code}): {payload.failure.message}"
        self._console.line(f"! {told}" if answer is None else f"! {told}; asking again")
        return answer

    def _event(self, payload: EventPayload) -> None:
        self.tally.add(payload.event)
        self._console.place(_place(payload.agent))
        for line in tool_lines(payload.event, self.tally):
            self._console.line(line)


def _place(agent: AgentHandle) -> str:
    """The phases of the turn and the step; the agent's own while no turn is open."""
    agents_own, *rest = agent.phase.split("/")
    return " › ".join(rest) if rest else agents_own


def tool_lines(event: Event, tally: Tally) -> Iterable[str]:
    """The lines for a call that starts and for its result."""
    match event.data:
        case ToolCallEvent(name=name, arguments=arguments):
            yield f"→ {name} {shorten(arguments or '{}')}"
        case ToolResultEvent(message=message, error=error):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    said = "".join(part.text for part in block.content if isinstance(part, TextBlock))
                    failed = "" if error is None else f" failed ({error.code})"
                    more = said.count("\n")
                    tail = f" (+{more} lines)" if more and not error else ""
                    yield f"← {tally.name_of(block.tool_call_id)}{failed}: {shorten(said.partition(chr(10))[0])}{tail}"
        case _:
            pass


def story_lines(events: Iterable[Event]) -> Iterable[str]:
    """A recorded session, line by line."""
    tally = Tally()
    for event in events:
        tally.add(event)
        match event.data:
            case TurnStart(turn=turn):
                yield f"--- turn {turn}"
            case UserMessageEvent(message=message):
                kind = message.source.get("kind")
                yield f"> {text_of(message)}" if kind == "user" else f"> ({kind}) {shorten(text_of(message))}"
            case AssistantAttempt():
                yield "! request failed"
            case AssistantMessageEvent(message=message, interrupted=interrupted):
                if said := text_of(message):
                    yield said + (" [interrupted]" if interrupted else "")
            case TurnEnd(turn=turn, reason=reason):
                yield f"--- turn {turn} {told(reason)}"
            case _:
                yield from tool_lines(event, tally)


def told(reason: TurnEndReason) -> str:
    """How a turn ended, in words."""
    match reason:
        case Errored(error=failure):
            return f"failed ({failure.code}): {failure.message}"
        case Aborted(reason=cause):
            return f"was cancelled by {cause.kind}"
        case _:
            return {
                "completed": "completed",
                "max-tokens": "was cut off by the token ceiling",
                "blocked": "was blocked by a hook",
                "interrupted": "was interrupted",
            }[reason.kind]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
