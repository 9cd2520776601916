"""Waterfalls: wrappers run one in another, and what they may hand in and give back.

Knows nothing of who registers them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from lifecycle.errors import IllegalPayloadError, IllegalVerdictError, NextCalledTwiceError

from .callables import close
from .points import HookPoint
from .signal import CancelSignal


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """A registered function and the name by which errors and `explain` call it."""

    name: str
    function: Callable[..., Any]
    of: str = ""
    """The name of the set of hooks that it came with."""


Chain = tuple[Listener, ...]


def judge(point: HookPoint, listener: Listener, answer: Any) -> Any:
    """`answer`, if the point allows it. Raises IllegalVerdictError, which names the listener."""
    for verdict in point.verdicts:
        if answer is None if verdict is None else isinstance(answer, verdict):
            return answer
    if answer is None and not point.verdicts:
        return None
    close(answer)
    raise IllegalVerdictError(point.name, listener.name, answer, point.legal)


async def descend(point: HookPoint, chain: Chain, index: int, payload: Any, default: Callable[[Any], Any]) -> Any:
    """Run the wrappers from `index` on, and the default below them."""
    if index == len(chain):
        made = default(payload)
        return await made if hasattr(made, "__await__") else made
    listener = chain[index]
    answer = listener.function(payload, _Next(point, chain, index + 1, payload, default))
    return judge(point, listener, await answer if hasattr(answer, "__await__") else answer)


class _Next:
    """The `next` of one listener in one dispatch."""

    __slots__ = ("_chain", "_default", "_index", "_payload", "_point", "_used")

    def __init__(self, point: HookPoint, chain: Chain, index: int, payload: Any, default: Callable[[Any], Any]) -> None:
        self._point, self._chain, self._index, self._payload, self._default = point, chain, index, payload, default
        self._used = False

    def __call__(self, payload: Any = None, /) -> Awaitable[Any]:
        if self._used:
            raise NextCalledTwiceError(self._point.name, self._chain[self._index - 1].name)
        if payload is None or payload is self._payload:
            self._used = True
            return descend(self._point, self._chain, self._index, self._payload, self._default)
        self._check(payload)
        self._used = True
        return self._descend_with(payload)

    def _check(self, payload: Any) -> None:
        """Refuse another kind of payload, another agent, and everything else that the point does not let go."""
        point, own = self._point, self._payload
        if type(payload) is not type(own):
            changed = [f"type, {type(payload).__name__},"]
        else:
            names = [field.name for field in dataclasses.fields(own)]
            changed = [name for name in names if getattr(payload, name) is not getattr(own, name)]
        if not set(changed) <= set(point.replaces):
            raise IllegalPayloadError(point.name, self._chain[self._index - 1].name, changed, point.replaces)

    async def _descend_with(self, payload: Any) -> Any:
        """The rest, with a replaced payload. Signals are fused: the caller's reaches every inner part (TLP-05)."""
        ours, theirs = getattr(self._payload, "signal", None), getattr(payload, "signal", None)
        if not isinstance(ours, CancelSignal) or not isinstance(theirs, CancelSignal) or ours is theirs:
            return await descend(self._point, self._chain, self._index, payload, self._default)
        with ours.fused(theirs) as fused:
            payload = dataclasses.replace(payload, signal=fused)
            return await descend(self._point, self._chain, self._index, payload, self._default)
