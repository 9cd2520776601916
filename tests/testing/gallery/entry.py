"""What the galleries are made of: small hook sets, each with a name and one sentence, and what must hold with them.

Knows nothing of how they are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import anyio

from lifecycle import Hooks
from lifecycle.testing import Invariant

F = TypeVar("F", bound=Callable[..., object])
Next = Callable[..., Awaitable[Any]]
Factory = Callable[[], Hooks]


class Fill(Protocol):
    """A named function that registers listeners."""

    __name__: str
    __qualname__: str

    def __call__(self, hooks: Hooks, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A hook set of a gallery."""

    name: str
    says: str
    """What is wrong with it, or what is unusual about it."""
    factory: Factory
    points: tuple[str, ...] = ()
    """Where the guilty hook listens."""
    finds: str = ""
    """What is to be found."""
    holds: tuple[Invariant, ...] = ()
    """What its author says must hold: nobody else could know it."""

    def __str__(self) -> str:
        return self.name


FAULTY: dict[str, Entry] = {}
"""Mistakes that people make, by name. Filled by the modules that `everything` imports."""
CORRECT: dict[str, Entry] = {}
"""Unusual, and in order."""


def faulty(
    says: str, *points: str, finds: str, holds: tuple[Invariant, ...] = (), fresh: bool = True
) -> Callable[[Fill], Factory]:
    """Make a function that registers the listeners of a faulty set a factory, and enter that.

    Args:
        fresh: Make a registry for each example, as a factory should.
    """

    def enter(fill: Fill) -> Factory:
        factory = _factory(fill, fresh=fresh)
        _enter(FAULTY, Entry(fill.__name__.replace("_", " "), says, factory, points, finds, holds))
        return factory

    return enter


def correct(says: str, *, holds: tuple[Invariant, ...] = ()) -> Callable[[Fill], Factory]:
    """Make a function that registers the listeners of a set that is in order a factory, and enter that."""

    def enter(fill: Fill) -> Factory:
        factory = _factory(fill)
        _enter(CORRECT, Entry(fill.__name__.replace("_", " "), says, factory, holds=holds))
        return factory

    return enter


def _enter(gallery: dict[str, Entry], entry: Entry) -> None:
    assert entry.name not in gallery, entry.name
    gallery[entry.name] = entry


def _factory(fill: Fill, *, fresh: bool = True) -> Factory:
    """A factory that can be imported by the name of `fill`."""

    def build() -> Hooks:
        hooks = Hooks()
        fill(hooks)
        return hooks

    only = None if fresh else build()

    def factory() -> Hooks:
        return build() if only is None else only

    factory.__name__, factory.__qualname__ = fill.__name__, fill.__qualname__
    factory.__module__, factory.__doc__ = fill.__module__, fill.__doc__
    return factory


def at(hooks: Hooks, name: str) -> Callable[[F], F]:
    """As `hooks.on`, but without its types: they refuse half of these mistakes before anything runs."""

    def listening(function: F) -> F:
        hooks.listen(name, function)
        return function

    return listening


async def idle_away() -> None:
    """What a forgotten task does."""
    await anyio.sleep(10_000)


def forget_a_task() -> None:
    """Start a task that belongs to nobody."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        trio.lowlevel.spawn_system_task(idle_away)
    else:
        _forgotten.add(asyncio.ensure_future(idle_away()))


_forgotten: set[object] = set()
"""Keeps forgotten tasks from being collected, which would end them and be reported by the backend."""
