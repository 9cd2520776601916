"""Hooks: who listens at which point, and the five ways to call them (group DSP).

What a point is called, asks and allows is data in `points.py`. Knows nothing of when a point is dispatched.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar, cast, overload
from weakref import WeakSet

import anyio

from lifecycle.errors import (
    HookError,
    HookRegistrationError,
    UnknownHookPointError,
)

from .callables import close, is_async, is_async_generator, is_generator, name_of
from .listeners import AnyListener, Listening
from .ordering import Order, Place, arranged, check, merged
from .points import POINTS, HookPoint, Mode, OnFault
from .waterfall import Chain, Listener, descend, judge

P = TypeVar("P")
T = TypeVar("T")

log = logging.getLogger("lifecycle.hooks")

_SYNCHRONOUS = (Mode.EMIT, Mode.VETO)


class Registration:
    """One listener's place at its point. As a context manager it is removed at the end of the block."""

    __slots__ = ("_remove", "listener", "point")

    def __init__(self, point: str, listener: Listener, remove: Callable[[], None]) -> None:
        self.point, self.listener, self._remove = point, listener, remove

    def remove(self) -> None:
        """Take the listener away; a dispatch that has begun still calls it. The second time does nothing."""
        self._remove()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Who runs at a point and by which rules; `str()` is for people, `dataclasses.asdict()` for programs."""

    point: str
    mode: str
    payload: tuple[str, ...]
    may_return: tuple[str, ...]
    on_fault: str
    may_change: str
    may_replace: tuple[str, ...]
    listeners: tuple[str, ...]
    """In the order in which they are called; of a waterfall, the outermost first."""

    def __str__(self) -> str:
        lines = [
            f"{self.point}: {self.mode}",
            f"  payload        {', '.join(self.payload)}",
            f"  may return     {' or '.join(self.may_return)}",
            f"  may change     {self.may_change}",
            f"  if it raises   {self.on_fault}",
        ]
        if self.may_replace:
            lines.append(f"  next(payload)  may replace {' and '.join(self.may_replace)}")
        runs = [*self.listeners, *(["the default"] if self.mode == Mode.WATERFALL else [])] or ["nobody"]
        lines += [f"  {'runs' if n == 0 else '':15}{n + 1}. {name}" for n, name in enumerate(runs)]
        return "\n".join(lines)


class _Chains(dict[str, Chain]):
    def __missing__(self, name: str) -> Chain:
        raise UnknownHookPointError(name, self)


class Hooks(Listening):
    """A registry of listeners. An agent hears its own; registries add up, and stay live in their sum.

    Listeners take `(payload)`; those of a waterfall take `(payload, next)`. They are called in the order of their
    registration, `prepend=True` goes in front. Those who are called are fixed when a dispatch begins.

    Args:
        points: Those that can be listened at; add your own with `{**POINTS, point.name: point}`.
        name: What others call this set when they say where they come.
        before, after: The names of sets before or after whose listeners those of this one come wherever the sets are
            added up, at every point, whichever is added first. A name that is not there says nothing.

    Raises:
        HookError: if it has a place and no name.
        HookOrderError: if it is to come before or after itself.
    """

    def __init__(
        self,
        *,
        points: Mapping[str, HookPoint] = POINTS,
        name: str = "",
        before: Iterable[str] = (),
        after: Iterable[str] = (),
    ) -> None:
        self.points: Mapping[str, HookPoint] = MappingProxyType(dict(points))
        self.name = name
        place = Place(_names(before), _names(after))
        if not name and any(place):
            told = ", ".join(sorted(place.before | place.after))
            raise HookError(f"hooks that say where they come (beside {told}) need a name; give them `name=`")
        self.order: Order = {name: place} if name else {}
        """What this set, and each that it was added up from, says of its place."""
        check(self.order)
        self.chains: Mapping[str, Chain] = _Chains.fromkeys(self.points, ())
        """Who listens, by point, in the order in which they are called: the one look-up of a dispatch."""
        self._front: dict[str, Chain] = {}
        self._back: dict[str, Chain] = {}
        self._parts: tuple[Hooks, ...] = ()
        self._sums: WeakSet[Hooks] = WeakSet()

    # -- who listens ----------------------------------------------------------------------------------------------

    def listen(self, name: str, function: AnyListener, *, prepend: bool = False) -> Registration:
        """Let `function` listen at `name`, last or first of all. The same function may listen more than once.

        Raises:
            UnknownHookPointError: if there is no such point; it names the nearest.
            HookRegistrationError: if the function cannot take what the point hands it, or cannot run there:
                `async def` where nobody waits, or a generator.
        """
        point = self._point(name)
        listener = Listener(name_of(function), function, self.name)
        _check_listener(point, listener)
        side = self._front if prepend else self._back
        old = side.get(name, ())
        side[name] = (listener, *old) if prepend else (*old, listener)
        self._refresh(name)

        def remove() -> None:
            side[name] = tuple(one for one in side[name] if one is not listener)
            self._refresh(name)

        return Registration(name, listener, remove)

    def listeners(self, name: str) -> tuple[Listener, ...]:
        """Those who listen at `name`, in the order in which they are called. Empty is false, and costs one look-up."""
        return self.chains[name]

    def __add__(self, other: Hooks) -> Hooks:
        """A registry of both: the left one's listeners first. Later changes of either show up in it.

        What `before` and `after` say comes first.

        Raises:
            HookError: if the two mean different points by one name.
            HookOrderError: if what they say of their order forms a circle; it names the sets.
        """
        for name in self.points.keys() & other.points.keys():
            if self.points[name] != other.points[name]:
                raise HookError(
                    f"the hook point {name!r} is declared in two ways; give both registries the same points"
                )
        both = Hooks(points={**self.points, **other.points})
        both.order = merged(self.order, other.order)
        both._parts = (self, other)
        for part in both._parts:
            part._sums.add(both)
        for name in both.points:
            both._refresh(name)
        return both

    def explain(self, name: str) -> Explanation:
        """Who runs at `name`, in which order, and by which rules."""
        point = self._point(name)
        return Explanation(
            point=name,
            mode=point.mode.value,
            payload=tuple(field.name for field in dataclasses.fields(point.payload)),
            may_return=("anything, which is ignored",) if point.mode is Mode.EMIT else point.legal,
            on_fault=point.on_fault.value,
            may_change=point.may_change,
            may_replace=point.replaces,
            listeners=tuple(listener.name for listener in self.chains[name]),
        )

    def _point(self, name: str) -> HookPoint:
        point = self.points.get(name)
        if point is None:
            raise UnknownHookPointError(name, self.points)
        return point

    def _refresh(self, name: str) -> None:
        chain = self._front.get(name, ())
        for part in self._parts:
            chain += part.chains.get(name, ())
        cast("_Chains", self.chains)[name] = arranged(chain + self._back.get(name, ()), self.order)
        for other in self._sums:
            other._refresh(name)

    def _dispatched(self, name: str, mode: Mode) -> HookPoint:
        point = self.points[name]
        if point.mode is not mode:
            raise HookError(
                f"the hook point {name!r} is dispatched as {mode.value}, but is declared {point.mode.value}"
            )
        return point

    # -- calling them ---------------------------------------------------------------------------------------------

    def emit(self, name: str, payload: object) -> None:
        """Tell everybody, one after another. What they return is ignored; what they raise is logged (DSP-01).

        At a point whose fault is not contained (`agent/created`), the first exception is raised instead.
        """
        chain = self.chains[name]
        if chain:
            tell(chain, self._dispatched(name, Mode.EMIT), payload)

    def veto(self, name: str, payload: object) -> None:
        """Ask everybody, one after another, whether something may happen; who raises prevents it (ERR-05).

        Raises:
            IllegalVerdictError: if a listener returns anything: it might have been meant as a veto.
        """
        chain = self.chains[name]
        if not chain:
            return
        point = self._dispatched(name, Mode.VETO)
        for listener in chain:
            judge(point, listener, listener.function(payload))

    async def serial(self, name: str, payload: object) -> object | None:
        """Ask one after another, each awaited, until one answers (DSP-02).

        Returns:
            The first answer that is neither None nor False, which ends the round; None if there is none.

        Raises:
            IllegalVerdictError: if an answer is not among the verdicts of the point.
        """
        chain = self.chains[name]
        if not chain:
            return None
        point = self._dispatched(name, Mode.SERIAL)
        for listener in chain:
            answer = listener.function(payload)
            if hasattr(answer, "__await__"):
                answer = await answer
            if answer is None or answer is False:
                continue
            stopped: object = judge(point, listener, answer)
            return stopped
        return None

    async def parallel(self, name: str, payload: object) -> None:
        """Start everybody together and wait for all; then raise the failure that came first (DSP-04)."""
        chain = self.chains[name]
        if not chain:
            return
        point = self._dispatched(name, Mode.PARALLEL)
        if len(chain) == 1:
            await _answer(point, chain[0], payload)
            return
        failures: list[BaseException] = []

        async def run(listener: Listener) -> None:
            try:
                await _answer(point, listener, payload)
            except Exception as failure:
                failures.append(failure)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as failure:  # Ctrl-C and the like end the others, and come out as they are
                failures.insert(0, failure)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for listener in chain:
                group.start_soon(run, listener)
        if failures:
            raise failures[0]

    @overload
    async def waterfall(self, name: str, payload: P, default: Callable[[P], Awaitable[T]]) -> T: ...
    @overload
    async def waterfall(self, name: str, payload: P, default: Callable[[P], T]) -> T: ...
    async def waterfall(self, name: str, payload: P, default: Callable[[P], Any]) -> Any:
        """Wrap the listeners one in another around `default`, the first outermost, and run that (DSP-03).

        `default` is a plain or an async function of the payload. Exceptions pass outward through the wrappers.

        Returns:
            What the outermost returned.

        Raises:
            IllegalVerdictError: into the next wrapper out, if a listener returns what the point does not allow.
            NextCalledTwiceError, IllegalPayloadError: out of `next()`.
        """
        chain = self.chains[name]
        if not chain:
            made = default(payload)
            return await made if hasattr(made, "__await__") else made
        return await descend(self._dispatched(name, Mode.WATERFALL), chain, 0, payload, default)


def tell(chain: Chain, point: HookPoint, payload: object) -> None:
    """What `Hooks.emit` does at a point where somebody listens."""
    for listener in chain:
        try:
            returned = listener.function(payload)
        except Exception:
            if point.on_fault is not OnFault.CONTAINED:
                raise
            log.exception("%s failed at %r; the failure is contained", listener.name, point.name)
            continue
        if returned is not None and hasattr(returned, "__await__"):
            close(returned)
            log.error(
                "%s returned an awaitable at %r, where nobody waits for it; it does not run", listener.name, point.name
            )


# -- helpers ------------------------------------------------------------------------------------------------------


def _names(given: Iterable[str]) -> frozenset[str]:
    return frozenset((given,) if isinstance(given, str) else given)


def _check_listener(point: HookPoint, listener: Listener) -> None:
    function = listener.function

    def refuse(reason: str) -> HookRegistrationError:
        return HookRegistrationError(point.name, listener.name, reason)

    if not callable(function):
        raise refuse(f"it is a {type(function).__name__}, which cannot be called")
    if is_generator(function):
        raise refuse("it is a generator, whose body would not run; take the yield out")
    if is_async_generator(function) and not any(hasattr(verdict, "__anext__") for verdict in point.verdicts):
        raise refuse("it is an async generator, whose body would not run; take the yield out")
    if is_async(function) and point.mode in _SYNCHRONOUS:
        raise refuse(f"nobody waits at a point of mode {point.mode.value}; make it a plain def")
    takes = ("payload", "next") if point.mode is Mode.WATERFALL else ("payload",)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some functions written in C do not tell
    try:
        signature.bind(*takes)
    except TypeError as wrong:
        raise refuse(f"it is called with ({', '.join(takes)}), but takes {signature}: {wrong}") from None


async def _answer(point: HookPoint, listener: Listener, payload: object) -> None:
    answer = listener.function(payload)
    judge(point, listener, await answer if hasattr(answer, "__await__") else answer)
