"""The feed: both domains of one agent in one order, for `agent.events()`.

What happens is a named tuple, because thousands of deltas happen in one answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import anyio

from lifecycle.services.points import StatusPayload
from lifecycle.vocabulary.events import Event


class Durable(NamedTuple):
    """An event of the session log; `name` is its wire name."""

    name: str
    event: Event
    domain: Literal["durable"] = "durable"


class Live(NamedTuple):
    """Something that was told to live listeners; `payload` is what they got."""

    name: str
    payload: Any
    domain: Literal["live"] = "live"


Occurrence: TypeAlias = Durable | Live


class EventStream:
    """What happens to one agent, in order, from the moment it is made.

    A plain iterator: it holds no scope and no task, and may be dropped at any time. It ends after the next idle
    status, or with the agent.
    """

    def __init__(self, feeds: Feeds, until: Literal["idle", "disposed"], replay: Iterable[Event] = ()) -> None:
        self._feeds, self._until = feeds, until
        self._queue: deque[Occurrence] = deque(Durable(event.type, event) for event in replay)
        self._arrived: anyio.Event | None = None
        self._ended = False
        feeds.open = (*feeds.open, self)

    def __aiter__(self) -> AsyncIterator[Occurrence]:
        return self

    async def __anext__(self) -> Occurrence:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._queue.popleft()

    def put(self, occurrence: Occurrence) -> None:
        """Add what has happened; wakes whoever waits."""
        self._queue.append(occurrence)
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None
        if occurrence.name == "agent/status" and self._until == "idle" and isinstance(occurrence, Live):
            payload = occurrence.payload
            if isinstance(payload, StatusPayload) and payload.status == "idle":
                self.close()

    def close(self) -> None:
        """Take nothing more; what has arrived can still be read."""
        self._ended = True
        self._feeds.open = tuple(stream for stream in self._feeds.open if stream is not self)
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None


class Feeds:
    """The open streams of one agent."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: tuple[EventStream, ...] = ()

    def live(self, name: str, payload: Any) -> None:
        """Hand a live event to every open stream."""
        occurrence = Live(name, payload)
        for stream in self.open:
            stream.put(occurrence)

    def durable(self, event: Event) -> None:
        """Hand a durable event to every open stream."""
        if self.open:
            occurrence = Durable(event.type, event)
            for stream in self.open:
                stream.put(occurrence)

    def close(self) -> None:
        """End every stream."""
        for stream in self.open:
            stream.close()
