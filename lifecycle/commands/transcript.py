"""A run as people read it: the answer as it streams, the calls and what came of them, where it is, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lifecycle.services.frames import StreamChunk
from lifecycle.services.hooks import Hooks
from lifecycle.services.points import AgentHandle, EventPayload, StepPayload, StreamPayload
from lifecycle.vocabulary.chunks import Finish, TextDelta, Usage
from lifecycle.vocabulary.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    Event,
    LlmRetry,
    Replace,
    RequestContext,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import Aborted, Errored, Failure, HookCancel, TurnEndReason
from lifecycle.vocabulary.messages import TextBlock, ToolResultBlock, text_of
from lifecycle.vocabulary.stream import Single, TimedStream

from .console import Console
from .output import shorten


@dataclass(slots=True)
class Tally:
    """What a run has come to."""

    turn: int = 0
    step: int = 0
    steps: int = 0
    requests: int = 0
    failed_requests: int = 0
    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reason: TurnEndReason | None = None
    """How the newest turn ended; None while it is open."""
    _names: dict[str, str] = field(default_factory=lambda: {})

    def add(self, event: Event) -> None:
        """Count one event."""
        match event.data:
            case TurnStart(turn=turn):
                self.turn, self.step, self.reason = turn, 0, None
            case StepStart(step=step):
                self.steps += 1
                self.step = step
            case AssistantAttempt():
                self.requests += 1
                self.failed_requests += 1
            case AssistantMessageEvent(usage=usage):
                self.requests += 1
                self._spend(usage)
            case ToolCallEvent(call_id=call_id, name=name):
                self.calls += 1
                self._names[call_id] = name
            case ToolResultEvent(error=error) if not isinstance(event.surface, Replace):
                self.failed_calls += error is not None
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
        parts = [
            count(self.steps, "step"),
            count(self.requests, "request", self.failed_requests),
            count(self.calls, "tool call", self.failed_calls),
        ]
        if self.input_tokens or self.output_tokens:
            parts.append(f"{self.input_tokens} tokens in, {self.output_tokens} out")
        return ", ".join(parts)


class Transcript:
    """Writes a live run to a console by listening to its agent, and keeps the tally."""

    def __init__(self, console: Console, hooks: Hooks, tally: Tally) -> None:
        self._console = console
        self._tally = tally
        self._step = 0
        hooks.listen("session/event", self._event)
        hooks.listen("agent/assistant-stream", self._stream)
        hooks.listen("agent/step-boundary", self._boundary)

    def _boundary(self, payload: StepPayload) -> None:
        self._step = payload.step
        self._place(payload.agent)

    def _stream(self, payload: StreamPayload) -> None:
        frame = payload.frame
        if isinstance(frame, StreamChunk):
            self._place(payload.agent)
            if isinstance(frame.chunk, TextDelta):
                self._console.text(frame.chunk.text)
        else:
            self._console.end_text()

    def _event(self, payload: EventPayload) -> None:
        self._tally.add(payload.event)
        self._place(payload.agent)
        for line in tool_lines(payload.event, self._tally):
            self._console.line(line)
        if isinstance(payload.event.data, LlmRetry):  # what was not mended is told at the end of the turn
            self._console.say(f"! request {_failed(payload.event.data.failure)}; {_again(payload.event.data)}")

    def _place(self, agent: AgentHandle) -> None:
        """The innermost run that is open, and its phase."""
        runs = ("agent", f"turn {self._tally.turn}", f"step {self._step}")
        phases = agent.phase.split("/")
        self._console.place(f"{runs[len(phases) - 1]}: {phases[-1]}")


def tool_lines(event: Event, tally: Tally) -> Iterable[str]:
    """The lines for a call that starts and for its result."""
    match event.data:
        case ToolCallEvent(name=name, arguments=arguments):
            yield f"→ {name} {shorten(arguments or '{}')}"
        case ToolResultEvent(message=message, error=error) if not isinstance(event.surface, Replace):
            failed = "" if error is None else f" failed ({error.code})"
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    yield f"← {tally.name_of(block.tool_call_id)}{failed}: {_gist(block)}"
        case _:
            pass


def _gist(result: ToolResultBlock) -> str:
    """The first line that says something, and how much more there is."""
    said = "".join(part.text for part in result.content if isinstance(part, TextBlock))
    lines = [line for line in said.splitlines() if line.strip()]
    parts = [shorten(lines[0])] if lines else []
    if len(lines) > 1:
        parts.append(f"(+{count(len(lines) - 1, 'line')})")
    images = sum(not isinstance(part, TextBlock) for part in result.content)
    if images:
        parts.append(f"({count(images, 'image')})")
    return " ".join(parts) or "(nothing)"


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
            case RequestContext(provider=provider, model=model):
                yield f"(asking {provider}/{model})"
            case AssistantAttempt(stream=stream):
                failure = _failure_in(stream)
                yield "! request was cut off" if failure is None else f"! request {_failed(failure)}"
            case LlmRetry():
                yield f"({_again(event.data)})"
            case AssistantMessageEvent(message=message, interrupted=interrupted):
                if said := text_of(message):
                    yield said + (" [interrupted]" if interrupted else "")
            case TurnEnd(turn=turn, reason=reason):
                yield f"--- turn {turn} {told(reason)}"
            case _:
                yield from tool_lines(event, tally)


def _failure_in(stream: TimedStream) -> Failure | None:
    last = stream.rows[-1] if stream.rows else None
    finish = last.chunk if isinstance(last, Single) else None
    return finish.failure if isinstance(finish, Finish) else None


def told(reason: TurnEndReason) -> str:
    """How a turn ended, in words."""
    match reason:
        case Errored(error=failure):
            wait = failure.retry_after or 0.0
            return _failed(failure) + (f"; it asks to wait {_seconds(wait)} before the next request" if wait else "")
        case Aborted(reason=HookCancel(reason=why)):
            return f"was cancelled by a hook: {why}"
        case Aborted(reason=cause):
            return {
                "user": "was cancelled by the user",
                "parent": "was cancelled by the agent that started it",
                "disposed": "was cancelled, as its agent was taken down",
            }[cause.kind]
        case _:
            return {
                "completed": "completed",
                "max-tokens": "was cut off by the token ceiling",
                "blocked": "was blocked by a hook",
                "interrupted": "was interrupted",
            }[reason.kind]


def _failed(failure: Failure) -> str:
    return f"failed ({failure.code}): {failure.message}"


def _again(retry: LlmRetry) -> str:
    begins = ", and the answer begins again" if retry.shown else ""
    return f"asking again in {_seconds(retry.delay_ms / 1_000)}{begins}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.3g} s"


def count(n: int, what: str, failed: int = 0) -> str:
    """`n` things, and how many of them failed."""
    return f"{n} {what}" + ("" if n == 1 else "s") + (f" ({failed} failed)" if failed else "")
