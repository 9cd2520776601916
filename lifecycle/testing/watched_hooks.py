"""Hooks that are watched: a registry in front of another one, which an agent hears in its place."""

from __future__ import annotations

from typing import cast

from lifecycle.services.hooks import Hooks
from lifecycle.services.points import HookPoint
from lifecycle.services.waterfall import Chain, Listener

from .watch import Watch


class WatchedHooks(Hooks):
    """A registry whose listeners are those of another one, now and later, each of them watched."""

    def __init__(self, hooks: Hooks, watch: Watch) -> None:
        super().__init__(points=hooks.points)
        self._inner, self._watch = hooks, watch
        self._known: dict[Listener, Listener] = {}
        hooks._sums.add(self)
        for name in self.points:
            self._refresh(name)

    def _refresh(self, name: str) -> None:
        point = self.points[name]
        cast("dict[str, Chain]", self.chains)[name] = tuple(
            self._of(point, listener) for listener in self._inner.listeners(name)
        )
        for other in self._sums:
            other._refresh(name)

    def _of(self, point: HookPoint, listener: Listener) -> Listener:
        made = self._known.get(listener)
        if made is None:
            made = self._known[listener] = self._watch.wrapped(point, listener)
        return made
