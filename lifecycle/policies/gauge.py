"""The gauge: how many tokens a conversation weighs, from what providers have reported and an estimate of the rest.

It follows the log, and looks at each event once. Beside the weight it remembers what compaction must know of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lifecycle.session.log import Session
from lifecycle.session.surface import AnyMessage
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    CompactionEnd,
    CompactionStart,
    EndSeed,
    Event,
    Replace,
    RequestContext,
    SystemMessageEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.messages import Block, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

Estimate: TypeAlias = Callable[[AnyMessage], int]
"""How many tokens a message weighs, roughly."""

_IMAGE = 1_000
_OVERHEAD = 4


def estimated(message: AnyMessage) -> int:
    """About four letters a token, fewer in scripts that need more bytes for each; a picture counts as a thousand."""
    return _OVERHEAD + sum(map(_weight, message.content))


def _weight(block: Block) -> int:
    match block:
        case TextBlock() | ReasoningBlock():
            return weight_of(block.text)
        case ToolCallBlock():
            return _OVERHEAD + weight_of(block.name) + weight_of(block.arguments)
        case ToolResultBlock():
            return _OVERHEAD + sum(map(_weight, block.content))
        case _:
            return _IMAGE


def weight_of(text: str) -> int:
    """The estimate for plain text."""
    letters = len(text) if text.isascii() else 2 * len(text.encode("utf-8", "replace")) - len(text)
    return -(-letters // 4)


class Gauge:
    """What is known of one session, up to the event that was looked at last."""

    __slots__ = ("_estimate", "_next", "bracket", "recoveries", "tokens", "windows")

    def __init__(self, estimate: Estimate) -> None:
        self._estimate, self._next = estimate, 0
        self.tokens = 0
        """The weight of the conversation, as the next request would have it."""
        self.bracket: str | None = None
        """The compaction that has started and not ended."""
        self.windows: dict[tuple[str | None, str | None], int | None] = {}
        """How many tokens each route takes, by provider and model, as far as its adapter has said."""
        self.recoveries = 0
        """How many overflows were recovered from since the last answer. Whoever recovers counts it up."""

    def follow(self, session: Session) -> None:
        """Take in what was recorded since the last time."""
        while self._next < len(session.events):
            event = session.events[self._next]
            self._next += 1
            self._take(event, session)

    def weigh(self, events: Iterable[Event]) -> int:
        """The estimate for the messages that some events bear."""
        return sum(self.weight(event) for event in events)

    def weight(self, event: Event) -> int:
        """The same for one; 0 if it bears none."""
        match event.data:
            case UserMessageEvent() | AssistantMessageEvent() | ToolResultEvent() | SystemMessageEvent():
                return self._estimate(event.data.message)
            case _:
                return 0

    def _take(self, event: Event, session: Session) -> None:
        match event.data:
            case AssistantMessageEvent(usage=usage, interrupted=None):
                self.recoveries = 0
                if usage is not None and usage.input_tokens:
                    self.tokens = usage.input_tokens + usage.output_tokens
                    return
            case RequestContext(provider=provider, model=model, context_window=window):
                self.windows[provider, model] = window
            case CompactionStart(compaction_id=id):
                self.bracket = id
            case CompactionEnd() | EndSeed() | TurnStart() | TurnEnd():
                # Nothing that belongs to one turn, or to the rest between two, goes on beyond it: a start without an
                # end is what a process left that was lost, and must not forbid compaction for ever.
                self.bracket = None
            case _:
                pass
        if event.surface is None:
            return
        self.tokens += self.weight(event)
        if isinstance(event.surface, Replace):
            replaced = (session.events[seq] for seq in event.sources or ())
            self.tokens = max(self.tokens - self.weigh(one for one in replaced if one.surface is not None), 0)
