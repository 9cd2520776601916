"""The surface: which messages of the log are history, in which order, and the message list derived from them.

A message-bearing event is appended to the surface or takes the place of a range of it (LOG-04, LOG-05). Derivation is
a pure function of the log; this module keeps its result up to date in constant time per event. No I/O, no clock.

The prompt stands on the surface as system messages, one node a section. A head node (no `placement` in its source)
leads the conversation, in the order of `order`; an in-history node stands where it was appended, until a newer head
node of its section makes it void. An empty system message is a section that was removed; an assistant message without
content is no history (SET-02).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from lifecycle.errors import SurfaceError
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    Event,
    Opaque,
    Replace,
    SurfaceEvent,
    SystemMessageEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from lifecycle.vocabulary.messages import AssistantMessage, SystemMessage, ToolResultBlock, UserMessage

from .view import View

AnyMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage
RUNTIME_CONTEXT = "runtime-context"
"""The `kind` of the source of a runtime-context snapshot."""

_BEARERS = (SystemMessageEvent, UserMessageEvent, AssistantMessageEvent, ToolResultEvent)
_seq = attrgetter("seq")
_NAMES = ", ".join(bearer.type for bearer in _BEARERS)


class Nodes(Mapping[int, Event]):
    """The events on the surface by seq, in surface order. A live view."""

    __slots__ = ("_at", "_order")

    def __init__(self, order: list[Event], at: Callable[[int], int | None]) -> None:
        self._order, self._at = order, at

    def __getitem__(self, seq: int) -> Event:
        place = self._at(seq)
        if place is None:
            raise KeyError(seq)
        return self._order[place]

    def __iter__(self) -> Iterator[int]:
        return (event.seq for event in self._order)

    def __len__(self) -> int:
        return len(self._order)


class Surface:
    """The surface of one log. `check` refuses what the rules forbid; `apply` takes in what was checked."""

    __slots__ = ("_dirty", "_heads", "_messages", "_order", "_place", "_snapshot", "_system", "generation")

    def __init__(self) -> None:
        self.generation = 0
        """How many replacements there have been."""
        self._order: list[Event] = []
        self._place: dict[int, int] | None = None
        """Where each event stands; None while they stand in the order of the log, where halving finds it."""
        self._heads: dict[str, Event] = {}
        self._system: dict[str, Event] = {}
        self._snapshot: Event | None = None
        self._messages: list[AnyMessage] = []
        self._dirty = False

    @property
    def nodes(self) -> Nodes:
        """The events on the surface by seq, in surface order. A live view."""
        return Nodes(self._order, self._at)

    def _at(self, seq: int) -> int | None:
        """The place of an event in the order; None if it is not on the surface."""
        if self._place is not None:
            return self._place.get(seq)
        place = bisect_left(self._order, seq, key=_seq)
        return place if place < len(self._order) and self._order[place].seq == seq else None

    @property
    def system(self) -> Mapping[str, Event]:
        """The node that holds for each prompt section: the newest one of its name. A live view."""
        return MappingProxyType(self._system)

    @property
    def heads(self) -> Mapping[str, Event]:
        """The node of each prompt section that leads the conversation. A live view."""
        return MappingProxyType(self._heads)

    @property
    def snapshot(self) -> UserMessage | None:
        """The newest runtime-context snapshot that is still on the surface."""
        return None if self._snapshot is None else cast("UserMessageEvent", self._snapshot.data).message

    def messages(self) -> Sequence[AnyMessage]:
        """The derived messages as of now, never to change. Constant time, except after a replacement."""
        if self._dirty:
            self._messages = arrange(self._order)  # a new list: views of the old one stay as they were
            self._dirty = False
        return View(self._messages, len(self._messages))

    def check(self, event: Event) -> None:
        """Raises SurfaceError if `event` breaks a rule of the surface. Changes nothing."""
        data, op = event.data, event.surface
        if event.sources is not None:
            _check_sources(event, event.sources)
        kind = type(data)
        if op == "append" and (kind is AssistantMessageEvent or kind is ToolResultEvent or kind is UserMessageEvent):
            return  # nearly all
        if kind is Opaque:
            return
        if not isinstance(data, _BEARERS):
            if op is not None:
                raise SurfaceError(
                    f"{_said(event)} bears no message, so it takes no surface operation; only {_NAMES} do"
                )
            return
        if op is None:
            raise SurfaceError(
                f"{_said(event)} bears a message and must say what it does to the surface: "
                "surface='append', or surface=Replace(start=..., end=...)"
            )
        first, last = self._range(event, op) if isinstance(op, Replace) else (1, 0)
        section = _head_section(event)
        head = None if section is None else self._heads.get(section)
        if head is not None and not first <= cast("int", self._at(head.seq)) <= last:
            raise SurfaceError(
                f"{_said(event)}: the prompt section {section!r} already has the node {head.seq} ahead of the "
                "conversation; replace that one, or append with placement 'in-history'"
            )

    def _range(self, event: Event, op: Replace) -> tuple[int, int]:
        """The places that a legal replacement covers."""
        first, last = self._at(op.start), self._at(op.end)
        if first is None or last is None:
            raise SurfaceError(
                f"{_said(event)} cannot replace {op.start} to {op.end}: no node "
                f"{op.start if first is None else op.end} is on the surface, which holds {self._listed()}"
            )
        if first > last:
            raise SurfaceError(
                f"{_said(event)} cannot replace {op.start} to {op.end}: on the surface {op.end} stands before "
                f"{op.start}; did you mean {op.end} to {op.start}?"
            )
        self._check_cover(event, first, last)
        if isinstance(event.data, ToolResultEvent):
            _check_result(event, event.data, self._order[first : last + 1])
        return first, last

    def _check_cover(self, event: Event, first: int, last: int) -> None:
        if isinstance(event.data, AssistantMessageEvent) and event.sources == ():
            return
        cited = frozenset(event.sources or ())
        missing = [node.seq for node in self._order[first : last + 1] if node.seq not in cited]
        if missing:
            raise SurfaceError(
                f"{_said(event)} takes the place of {_some(missing)} without citing it; put the seq of every node "
                "that it replaces into `sources`"
            )

    def _listed(self) -> str:
        return _some([event.seq for event in self._order]) if self._order else "nothing"

    def apply(self, event: Event) -> None:
        """Take in an event that was checked. Log-only events change nothing."""
        op = event.surface
        data: Any = event.data
        kind = cast("object", type(data))
        if op is None or kind is Opaque:
            return
        if op != "append":
            self._replace(event, op)
            return
        if self._place is not None:
            self._place[event.seq] = len(self._order)
        self._order.append(event)
        if kind is not AssistantMessageEvent and kind is not ToolResultEvent:
            self._note(event)
            if _head_section(event) is not None:
                self._dirty = True
                return
        if not self._dirty and _visible(data.message):
            self._messages.append(data.message)

    def _replace(self, event: Event, op: Replace) -> None:
        placed = self._place
        if placed is None:
            placed = self._place = {node.seq: place for place, node in enumerate(self._order)}
        first, last = placed[op.start], placed[op.end]
        gone = self._order[first : last + 1]
        self._order[first : last + 1] = [event]
        for node in gone:
            del placed[node.seq]
        if first == last:
            placed[event.seq] = first  # one for one moves nobody: the cost does not grow with the log
        else:
            for place in range(first, len(self._order)):
                placed[self._order[place].seq] = place
        self.generation += 1
        self._dirty = True
        if any(isinstance(node.data, SystemMessageEvent) or node is self._snapshot for node in gone):
            self._find_again()
        else:
            self._note(event)

    def _find_again(self) -> None:
        self._heads.clear()
        self._system.clear()
        self._snapshot = None
        for node in self._order:
            self._note(node)

    def _note(self, event: Event) -> None:
        """Remember where the prompt sections and the runtime context stand; the newest counts."""
        data = event.data
        if isinstance(data, SystemMessageEvent):
            section = _section(data.message)
            if section not in self._system or self._system[section].seq < event.seq:
                self._system[section] = event
            if _head_section(event) is not None:
                self._heads[section] = event
        elif (
            isinstance(data, UserMessageEvent)
            and data.message.source.get("kind") == RUNTIME_CONTEXT
            and (self._snapshot is None or self._snapshot.seq < event.seq)
        ):
            self._snapshot = event


def derive(events: Iterable[Event]) -> list[AnyMessage]:
    """The messages of a log, from scratch. What `Surface.messages` keeps up to date always equals this."""
    nodes: list[Event] = []
    for event in events:
        if isinstance(event.data, Opaque) or event.surface is None:
            continue
        if isinstance(event.surface, Replace):
            seqs = [node.seq for node in nodes]
            nodes[seqs.index(event.surface.start) : seqs.index(event.surface.end) + 1] = [event]
        else:
            nodes.append(event)
    return arrange(nodes)


def arrange(nodes: Iterable[Event]) -> list[AnyMessage]:
    """The messages of the nodes of a surface, given in surface order."""
    heads: dict[str, Event] = {}
    rest: list[Event] = []
    for node in nodes:
        section = _head_section(node)
        if section is None:
            rest.append(node)
        else:
            heads[section] = node
    lead = sorted((cast("SystemMessageEvent", node.data).message for node in heads.values()), key=_order)
    messages: list[AnyMessage] = [message for message in lead if _visible(message)]
    for node in rest:
        message = cast("SurfaceEvent", node.data).message
        if isinstance(message, SystemMessage):
            head = heads.get(_section(message))
            if head is not None and head.seq > node.seq:
                continue
        if _visible(message):
            messages.append(message)
    return messages


def _section(message: SystemMessage) -> str:
    """The name of the section; a system message that names none is a section of its own."""
    name = message.source.get("section")
    return name if isinstance(name, str) else f"message {message.id}"


def _head_section(event: Event) -> str | None:
    """The section of which `event` is the head node; None if it is no head node."""
    data = event.data
    if isinstance(data, SystemMessageEvent) and data.message.source.get("placement") != "in-history":
        return _section(data.message)
    return None


def _order(message: SystemMessage) -> float:
    order = message.source.get("order")
    return order if isinstance(order, (int, float)) else float("inf")


def _visible(message: AnyMessage) -> bool:
    if isinstance(message, SystemMessage):
        return any(block.text for block in message.content)
    return isinstance(message, UserMessage) or bool(message.content)


def _check_sources(event: Event, sources: tuple[int, ...]) -> None:
    if len(sources) == 1 and 0 <= sources[0] < event.seq:
        return  # nearly all cite one
    if len(set(sources)) != len(sources):
        raise SurfaceError(f"{_said(event)} cites {_some(list(sources))}: each source may be named once")
    foreign = [seq for seq in sources if not 0 <= seq < event.seq]
    if foreign:
        raise SurfaceError(
            f"{_said(event)} cites {_some(foreign)}; only earlier events, 0 to {event.seq - 1}, can be cited"
        )
    if not sources and not isinstance(event.data, AssistantMessageEvent):
        raise SurfaceError(
            f"{_said(event)} has an empty list of sources, which only assistant/message may; leave `sources` out"
        )


def _check_result(event: Event, data: ToolResultEvent, gone: list[Event]) -> None:
    old = gone[0].data
    if len(gone) != 1 or not isinstance(old, ToolResultEvent):
        kinds = ", ".join(f"{node.seq} ({node.type})" for node in gone[:8])
        raise SurfaceError(f"{_said(event)} can replace one tool/result and nothing else, not {kinds}")
    if _identity(old) != _identity(data):
        raise SurfaceError(
            f"{_said(event)} must be the result {gone[0].seq} with other content: "
            "same turn, step, call, error and source"
        )


def _identity(data: ToolResultEvent) -> tuple[object, ...]:
    """What a replacement may not change."""
    calls = [
        (block.tool_call_id, block.is_error) for block in data.message.content if isinstance(block, ToolResultBlock)
    ]
    return data.turn, data.step, data.error, data.message.source, calls


def _said(event: Event) -> str:
    return f"event {event.seq} ({event.type})"


def _some(seqs: list[int]) -> str:
    """A list of seqs for people, shortened."""
    shown = ", ".join(map(str, seqs[:12]))
    return shown if len(seqs) <= 12 else f"{shown} and {len(seqs) - 12} more up to {seqs[-1]}"
