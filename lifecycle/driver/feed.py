"""The feed: both domains of one agent in one order, for `agent.events()`.

What happens is a named tuple, because thousands of deltas happen in one answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from weakref import ref

import anyio

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


class Missed(NamedTuple):
    """A reader was so slow that `lost` occurrences, older than what comes next, were let go of unread.

    The log has those that are durable: they begin at seq `since`, which is None if there are none among them.
    """

    lost: int
    since: int | None
    name: str = "missed"
    domain: Literal["missed"] = "missed"


Occurrence: TypeAlias = Durable | Live | Missed
MOST = 65_536
"""How many occurrences wait for a slow reader, by default."""
_new: Any = cast("Any", tuple).__new__  # what a named tuple's own constructor comes to, at half the price


class EventStream:
    """What happens to one agent, in order, from the moment it is made.

    A plain iterator: it holds no scope and no task, and may be dropped at any time; then nothing is kept for it. It
    ends after the next idle status, or with the agent. Several tasks may read it: each gets what the others do not.

    What has arrived waits to be read. If more than `most` wait, and more than were replayed, the oldest are let go of,
    and the reader is told so by one `Missed` in their place: nobody who reads slowly makes the agent wait or fills the
    memory.

    Raises:
        ValueError: if `until` is neither "idle" nor "disposed", or `most` is less than 1.
    """

    def __init__(
        self,
        feeds: Feeds,
        until: Literal["idle", "disposed"],
        replay: Iterable[Event] = (),
        most: int = MOST,
    ) -> None:
        if most < 1:
            raise ValueError(f"at least 1 occurrence must be able to wait for its reader, not {most}")
        if until not in ("idle", "disposed"):  # a misspelt one would follow for ever
            raise ValueError(f"events are followed until 'idle' or 'disposed', not until {until!r}")
        self._feeds, self._until = feeds, until
        self._queue: deque[Occurrence] = deque(Durable(event.type, event) for event in replay)
        self._most = max(most, len(self._queue))
        self._missed, self._missed_since = 0, cast("int | None", None)
        self._arrived: anyio.Event | None = None
        self._ended = feeds.closed
        if not self._ended:
            feeds.add(self)

    def __aiter__(self) -> AsyncIterator[Occurrence]:
        return self

    async def __anext__(self) -> Occurrence:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            if self._arrived is None:  # another reader may wait for it already
                self._arrived = anyio.Event()
            await self._arrived.wait()
        if self._missed:
            told = Missed(self._missed, self._missed_since)
            self._missed, self._missed_since = 0, None
            return told
        return self._queue.popleft()

    def put(self, occurrence: Occurrence) -> None:
        """Add what has happened; wakes whoever waits."""
        queue = self._queue
        if len(queue) >= self._most:
            self._let_go()
        queue.append(occurrence)
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    def rest(self) -> None:
        """The agent is idle: end here, if that is what is waited for."""
        if self._until == "idle":
            self.close()

    def _let_go(self) -> None:
        oldest = self._queue.popleft()
        self._missed += 1
        if self._missed_since is None and isinstance(oldest, Durable):
            self._missed_since = oldest.event.seq

    def close(self) -> None:
        """Take nothing more; what has arrived can still be read."""
        self._ended = True
        self._feeds.remove(self)
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None


class Feeds:
    """The open streams of one agent. It does not keep them alive: what nobody can read any more is not filled."""

    __slots__ = ("closed", "open")

    def __init__(self) -> None:
        self.open: tuple[ref[EventStream], ...] = ()
        self.closed = False

    def add(self, stream: EventStream) -> None:
        """Hand `stream` what happens from now on, for as long as somebody has it."""
        self.open = (*self.open, ref(stream, self._forget))

    def remove(self, stream: EventStream) -> None:
        """Hand `stream` nothing more."""
        self.open = tuple(known for known in self.open if known() is not stream)

    def _forget(self, dropped: ref[EventStream]) -> None:
        self.open = tuple(known for known in self.open if known is not dropped)

    def live(self, name: str, payload: Any) -> None:
        """Hand a live event to every open stream; an idle status ends those that go no further."""
        occurrence = _new(Live, (name, payload, "live"))
        resting = name == "agent/status" and payload.status == "idle"
        for known in self.open:
            stream = known()
            if stream is not None:
                stream.put(occurrence)
                if resting:
                    stream.rest()

    def durable(self, event: Event) -> None:
        """Hand a durable event to every open stream."""
        occurrence = _new(Durable, (event.type, event, "durable"))
        for known in self.open:
            stream = known()
            if stream is not None:
                stream.put(occurrence)

    def close(self) -> None:
        """End every stream, also those that are made later."""
        self.closed = True
        for known in self.open:
            stream = known()
            if stream is not None:
                stream.close()
