"""Traces: what one agent did, durable records and live events in the one order in which they happened.

Listens only: a trace changes no verdict and no order. It writes ids as labels (`m1` is the first user message that
was seen), so that two runs of one story have equal traces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from pydantic.alias_generators import to_camel

from lifecycle.services.hooks import Hooks
from lifecycle.services.points import Mode, ToolOutcome
from lifecycle.vocabulary.events import Event, Opaque
from lifecycle.vocabulary.failures import Failure
from lifecycle.vocabulary.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
)
from lifecycle.vocabulary.requests import Request
from lifecycle.vocabulary.values import Value

Domain: TypeAlias = Literal["D", "L"]
"""D for a durable record, L for a live event."""

STREAM = "agent/assistant-stream"
CHUNK = f"{STREAM} chunk"


class Observable(Protocol):
    """What a trace needs of a session."""

    def observe(self, cb: Callable[[Event], object], /) -> Callable[[], None]: ...


class Entry(NamedTuple):
    """One thing that happened. `data` is what tells it from others of its name, spelled as on the wire."""

    domain: Domain
    name: str
    data: Mapping[str, object]

    def __str__(self) -> str:
        return f"{self.domain} {self.name}{' ' + _spelt(self.data) if self.data else ''}"


class Trace:
    """Records an agent's hook points and its session from now on, until it is closed; usable as a context manager.

        with Trace(hooks, session) as trace:
            ...
        assert trace.names("D") == ["agent/inbox/spliced", "turn/start", ...]
        print(trace)

    A frame of the answer's stream is named with its type (`agent/assistant-stream end`). A run of chunk frames is one
    entry in `names` and `lines`, so that a trace does not depend on how the answer was cut; `entries` has them all.

    Args:
        hooks: The registry of the agent. The trace listens in front, hence sees what happens before others change it.
        session: The agent's session, if it is known already; `follow` takes it up later.
        only: The hook points to listen at; all of them if None. `session/append` and `session/event` are never
            listened at, for the session tells the same.
    """

    def __init__(
        self, hooks: Hooks | None = None, session: Observable | None = None, *, only: Iterable[str] | None = None
    ) -> None:
        self.entries: list[Entry] = []
        self._labels: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._removers: list[Callable[[], None]] = []
        if hooks is not None:
            self.listen(hooks, only=only)
        if session is not None:
            self.follow(session)

    def listen(self, hooks: Hooks, *, only: Iterable[str] | None = None) -> None:
        """Record the live events of `hooks` too."""
        names = [name for name in hooks.points if name not in ("session/append", "session/event")]
        for name in names if only is None else only:
            listener = self._wrapper(name) if hooks.points[name].mode is Mode.WATERFALL else self._listener(name)
            self._removers.append(hooks.listen(name, listener, prepend=True).remove)

    def follow(self, session: Observable) -> None:
        """Record the durable events of `session` too."""
        self._removers.append(session.observe(self._durable))

    def close(self) -> None:
        """Record no more. What was recorded stays."""
        removers, self._removers = self._removers, []
        for remove in removers:
            remove()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- reading it -----------------------------------------------------------------------------------------------

    def names(self, domain: Domain | None = None) -> list[str]:
        """The names, of one domain or of both."""
        return [entry.name for entry in self._folded(domain)]

    def lines(self, domain: Domain | None = None) -> list[str]:
        """The entries as lines of text: `D turn/start {turn:1}`."""
        return [CHUNK_LINE if entry.name == CHUNK else str(entry) for entry in self._folded(domain)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def clear(self) -> None:
        """Forget what was recorded; labels go on counting."""
        self.entries.clear()

    def _folded(self, domain: Domain | None) -> Iterator[Entry]:
        before = ""
        for entry in self.entries:
            if domain is not None and entry.domain != domain:
                continue
            if entry.name != CHUNK or before != CHUNK:
                yield entry
            before = entry.name

    # -- recording ------------------------------------------------------------------------------------------------

    def _listener(self, name: str) -> Callable[[Any], None]:
        def trace(payload: Any) -> None:
            self.entries.append(self.entry(name, payload))

        return trace

    def _wrapper(self, name: str) -> Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        def trace(payload: Any, next: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
            self.entries.append(self.entry(name, payload))
            return next()

        return trace

    def _durable(self, event: Event) -> None:
        data = {} if isinstance(event.data, Opaque) else self._fields(event.data)
        self.entries.append(Entry("D", event.type, data))

    def entry(self, name: str, payload: Any) -> Entry:
        """The entry of a live event, as the trace writes it; it is not recorded."""
        if name == STREAM:
            frame = self._fields(payload.frame)
            return Entry("L", f"{STREAM} {frame.pop('type')}", frame)
        return Entry("L", name, self._fields(payload))

    def _fields(self, value: object) -> dict[str, object]:
        """The telling fields of a record, a payload, a frame or a plain value."""
        names = [field.name for field in dataclasses.fields(cast("Any", value))]
        found = ((name, getattr(value, name)) for name in names if name not in UNTOLD)
        return {to_camel(name): self._brief(item) for name, item in found if item is not None}

    def _brief(self, value: object) -> object:
        match value:
            case UserMessage() | AssistantMessage() | SystemMessage():
                return self._label(value)
            case ToolCallBlock():
                return value.id
            case Request():
                return {"turn": value.turn, "step": value.step, "attempt": value.attempt}
            case Failure():
                return value.code
            case BaseException():
                return type(value).__name__
            case ToolOutcome():
                return "ok" if value.error is None else value.error.code
            case tuple():
                return [self._brief(item) for item in cast("tuple[object, ...]", value)]
            case dict():
                return {name: self._brief(item) for name, item in cast("dict[str, object]", value).items()}
            case Value():
                return self._fields(value)
            case bool() | int() | float():
                return value
            case _:
                return str(value)

    def _label(self, message: UserMessage | AssistantMessage | SystemMessage) -> str:
        label = self._labels.get(message.id)
        if label is None:
            kind = message.role[0] if not isinstance(message, UserMessage) else "m"
            if any(isinstance(block, ToolResultBlock) for block in message.content):
                kind = "r"
            self._counts[kind] = self._counts.get(kind, 0) + 1
            label = self._labels[message.id] = f"{kind}{self._counts[kind]}"
        return label


CHUNK_LINE = f"L {CHUNK} *"

UNTOLD = frozenset(
    {"agent", "signal", "attempt_id", "chunk", "time", "stream", "usage", "header", "value", "tool", "tools"}
    | {"retry_policy", "retry_id", "event", "session"}
)
"""Fields that are objects, differ from run to run, or are too long to tell."""


def _spelt(value: object) -> str:
    """`value` as in the reference traces: JSON without quotes."""
    match value:
        case dict():
            pairs = cast("dict[str, object]", value)
            return "{" + ", ".join(f"{name}:{_spelt(item)}" for name, item in pairs.items()) + "}"
        case list():
            return "[" + ", ".join(map(_spelt, cast("list[object]", value))) + "]"
        case bool():
            return str(value).lower()
        case _:
            return str(value)
