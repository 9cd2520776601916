"""Where a conversation may be cut: which nodes of the surface a summary may take the place of (CMP-06).

A decision over values: appends nothing, asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lifecycle.vocabulary.events import AssistantMessageEvent, Event, SystemMessageEvent, ToolResultEvent
from lifecycle.vocabulary.messages import ToolCallBlock, ToolResultBlock


def older_part(nodes: Sequence[Event], keep: int, weight: Callable[[Event], int]) -> Sequence[Event]:
    """The nodes that a summary may take the place of, so that those behind them weigh at most `keep`.

    The prompt that leads the conversation stays, and so does at least the last node. Where the cut would split what
    belongs together, it moves toward the head: then more than `keep` stays. Empty if nothing may go.
    """
    first = next((n for n, node in enumerate(nodes) if not isinstance(node.data, SystemMessageEvent)), len(nodes))
    cut, left = len(nodes), keep
    while cut > first and weight(nodes[cut - 1]) <= left:
        cut -= 1
        left -= weight(nodes[cut])
    cut = min(cut, len(nodes) - 1)
    forbidden = split_by(nodes)
    while cut > first and cut in forbidden:
        cut -= 1
    return nodes[first:cut]


def split_by(nodes: Sequence[Event]) -> frozenset[int]:
    """The cuts that split something: cut n is the one before node n.

    Together belong a call and its result, with all that stands between them, and answers that follow one another with
    nothing between: the provider goes on in the second with what it was thinking in the first.
    """
    forbidden: set[int] = set()
    open: dict[str, int] = {}
    for n, node in enumerate(nodes):
        data = node.data
        if isinstance(data, AssistantMessageEvent):
            if n and isinstance(nodes[n - 1].data, AssistantMessageEvent):
                forbidden.add(n)
            open.update({block.id: n for block in data.message.content if isinstance(block, ToolCallBlock)})
        elif isinstance(data, ToolResultEvent):
            for block in data.message.content:
                asked = open.pop(block.tool_call_id, None) if isinstance(block, ToolResultBlock) else None
                if asked is not None:
                    forbidden.update(range(asked + 1, n + 1))
    return frozenset(forbidden)
