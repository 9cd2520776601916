"""What is known of the calls of watched listeners, and of the rules that they break."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import anyio

from lifecycle.services.points import HookPoint
from lifecycle.vocabulary.events import Event


class Interrupted(Exception):
    """Ends a run in which a listener was cancelled, which is all that the run was for."""


class Hung(BaseException):
    """Ends a listener that does not give way; no `except Exception` of its own may keep it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a check is with a listener."""

    seconds: float = 120.0
    """Virtual seconds that one call may take by itself, without what `next()` takes."""
    seconds_cancelled: float = 10.0
    """The same once the signal of its turn has fired."""
    retries: int = 10
    """How many attempts of one step it may follow by another."""
    may_raise: tuple[type[BaseException], ...] = ()
    """What it raises on purpose."""
    patience: float = 20.0
    """Real seconds for which it may run without giving way."""


USUAL = Limits()


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken rule: `contract` names it, `reason` is a sentence; the call of a listener that did it, if one did."""

    contract: str
    reason: str
    call: HookCall | None = None

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        """What makes two breaches one."""
        call = self.call
        return (self.contract, None, None) if call is None else (self.contract, call.point.name, call.listener)


@dataclass(eq=False, slots=True)
class HookCall:
    """One call of one listener."""

    point: HookPoint
    listener: str
    verdict: str = ""
    """How it ended: the name of what it returned, or of what it raised; empty as long as it runs."""
    nexts: int = 0
    sent: int = 0
    """How many messages it has put into the inbox."""
    given: Any = None
    """What `next()` returned."""
    cancelled: bool = False
    """A cancellation has ended it."""
    lazy: bool = False
    """It is an async generator, which goes on after it was called."""
    inner: list[BaseException] = field(default_factory=lambda: [])
    rests: list[tuple[Coroutine[Any, Any, Any], Awaitable[Any]]] = field(default_factory=lambda: [])
    scope: anyio.CancelScope | None = None
    struck: bool = False
    delivered: bool = False
    tasks: set[str] = field(default_factory=lambda: set())
    """The names of the tasks that were begun meanwhile."""
    own: float = 0.0
    since: float = 0.0
    fired: float | None = None
    waits_at: str = ""
    """Where it was waiting when something was thrown in, as `file:line`."""

    @property
    def short(self) -> str:
        """The listener's name without its module and the functions around it."""
        return self.listener.rpartition("<locals>.")[2].rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.short} at {self.point.name}"


class Moment(NamedTuple):
    """Something that happened: a listener was called or returned, or an event was recorded."""

    what: Literal["called", "returned", "recorded"]
    call: HookCall | None = None
    event: Event | None = None


class WatchedStream:
    """A stream, each of whose chunks is asked for within a block."""

    def __init__(self, stream: Any, within: Callable[[], AbstractContextManager[None]]) -> None:
        self._stream, self._within = stream, within

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        with self._within():
            return await self._stream.__anext__()

    def __getattr__(self, name: str) -> Any:  # it may be closed, for example, or may not
        return getattr(self._stream, name)


def causes(error: BaseException) -> Iterable[BaseException]:
    """The error, and all those that led to it."""
    seen: list[BaseException] = []
    todo = [error]
    while todo:
        one = todo.pop()
        if not any(one is other for other in seen):
            seen.append(one)
            more = (one.__cause__, one.__context__, *cast("tuple[BaseException, ...]", getattr(one, "exceptions", ())))
            todo += [other for other in more if other is not None]
    return seen
