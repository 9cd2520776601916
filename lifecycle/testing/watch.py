"""Watching hooks: what each call of a listener does, and which contract of its point it breaks.

The listeners run as they are; nothing that they do is changed, except that `time.sleep` does not sleep, and that what
cannot be simulated is refused. Knows nothing of scenarios, and does not judge runs.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial
from types import FrameType, coroutine
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import anyio

from lifecycle.errors import HookError, IllegalPayloadError, SimulationError, TurnCancelledError
from lifecycle.proof.virtual_threads import real, spend, working
from lifecycle.services.callables import is_async_generator
from lifecycle.services.points import (
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Enter,
    HookPoint,
    Mode,
    Reject,
    Retry,
    ToolOutcome,
)
from lifecycle.services.signal import CancelSignal
from lifecycle.services.waterfall import Listener
from lifecycle.vocabulary.events import Event, InboxSpliced

from .actors import ScriptedFault
from .fingerprints import fingerprint, invalid
from .hook_calls import USUAL, Breach, HookCall, Hung, Interrupted, Limits, Moment, WatchedStream, causes
from .outside import alarm_every, listening, place_in, place_of

if TYPE_CHECKING:
    from lifecycle import Agent

_VERDICTS = (Accept, Allow, Ask, Block, Deny, Enter, Reject, Retry, ToolOutcome)
_MISTAKES = (TypeError, AttributeError, NameError, LookupError, ArithmeticError, AssertionError, RecursionError)
"""What a veto does not raise on purpose."""
_CLOSING = ("assistant/attempt", "assistant/message", "tool/result", "step/end", "turn/end")
"""What a veto leaves out, and something stays open: a stream, a call, a step or a turn."""
_INTERRUPTED = "interrupted"
_STRUCK = "the host of a watched listener is cancelled"
"""By this reason the cancellation of a listener is known from the deadlines within it."""


_current: ContextVar[HookCall | None] = ContextVar("watched_call", default=None)


def _leave(token: Token[HookCall | None]) -> None:
    """Reset it; what a run has left behind is closed in another context, where it does not matter any more."""
    with suppress(ValueError):
        _current.reset(token)


def blamed_now() -> HookCall | None:
    """The call of a watched listener that runs right now."""
    return _current.get()


class Watch:
    """What the listeners of one run do.

    Args:
        interrupt: Cancel a listener when listeners have been suspended so many times, as a host does that is cancelled.
    """

    def __init__(self, limits: Limits = USUAL, interrupt: int | None = None) -> None:
        self.breaches: list[Breach] = []
        self.moments: list[Moment] = []
        self.raised: list[BaseException] = []
        """What listeners raised as they may."""
        self.refused: list[str] = []
        """The types of the events that they vetoed."""
        self.authors: dict[int, HookCall] = {}
        """The call in which an event was recorded, by the event's number."""
        self.interrupted = False
        self.suspensions = 0
        self._limits, self._interrupt = limits, interrupt
        self._modules: list[dict[str, Any]] = []
        """The names in the modules of listeners."""
        self._seen: object = None
        self._spins = 0.0

    @property
    def calls(self) -> list[HookCall]:
        """Every call, in order."""
        return [one.call for one in self.moments if one.what == "called" and one.call is not None]

    @property
    def verdicts(self) -> set[tuple[str, str]]:
        """Hook points, each with what was answered there."""
        return {(call.point.name, call.verdict) for call in self.calls if call.verdict}

    def attend(self, agent: Agent) -> None:
        """Note who records what, from now on."""
        agent.session.observe(self._recorded)

    def breach(self, contract: str, reason: str, call: HookCall | None = None) -> None:
        """Note a broken rule; one within an interrupted call, and a second one of a kind, is no news."""
        made = Breach(contract, reason, call)
        if (not self.interrupted or contract == "cancellation") and made.key not in [one.key for one in self.breaches]:
            self.breaches.append(made)

    def _recorded(self, event: Event) -> None:
        call = _current.get()
        if call is not None:
            self.authors[event.seq] = call
            if isinstance(event.data, InboxSpliced):
                call.sent += len(event.data.inserted)
        self.moments.append(Moment("recorded", event=event))

    @contextmanager
    def blocking_forbidden(self) -> Generator[None]:
        """Within the block, `time.sleep` in a listener is a breach, and takes no time."""
        usual, thread = time.sleep, threading.get_ident()

        def sleep(seconds: SupportsIndex | float, /) -> None:
            call = _current.get()
            if call is None or threading.get_ident() != thread:
                usual(seconds)
            elif working():
                spend(float(seconds))
            else:
                self._blocks(call, seconds)

        names = [(module, name) for module in self._modules for name, value in module.items() if value is usual]
        time.sleep = sleep
        for module, name in names:  # it was imported by name
            module[name] = sleep
        try:
            every = min(1.0, self._limits.patience / 4)
            with listening(self._heard), alarm_every(every, partial(self._still_running, every)):
                yield
        finally:
            time.sleep = usual
            for module, name in names:
                module[name] = usual

    def _blocks(self, call: HookCall, seconds: object) -> None:
        self.breach("blocking", f"{call} blocks the event loop with time.sleep({seconds})", call)

    def _heard(self, event: str, what: object) -> None:
        """Python is about to do something that a simulated run cannot have."""
        call = _current.get()
        if call is None or (event == "time.sleep" and working()):
            return
        if event == "time.sleep":  # by a name that nobody knows of; from Python 3.13 on
            self._blocks(call, what)
            raise HookError(f"time.sleep({what}) blocks the event loop")
        refused = real(f"{event} of {what}")
        self.breach("io", f"{call} reaches for the world outside by {refused}", call)
        raise refused

    def _still_running(self, seconds: float, frame: FrameType | None) -> None:
        """So many seconds have gone by; a listener hangs if it has not given way for too many of them."""
        call = _current.get()
        now = call, self.suspensions, len(self.moments)
        self._spins = self._spins + seconds if now == self._seen else 0.0
        self._seen = now
        hung = any(one.contract == "hangs" for one in self.breaches)  # a second one is not waited for so long
        if call is not None and self._spins >= (seconds if hung else self._limits.patience):
            where = place_in(frame)
            self.breach("hangs", f"{call} runs on at {where}, and does not return or await anything", call)
            raise Hung(f"{call} does not give way")

    # -- one call -------------------------------------------------------------------------------------------------

    def wrapped(self, point: HookPoint, listener: Listener) -> Listener:
        """The listener, watched."""
        names = getattr(inspect.unwrap(listener.function), "__globals__", None)
        if names is not None and all(names is not known for known in self._modules):
            self._modules.append(names)

        def synchronous(payload: Any) -> Any:
            call, before = self._begin(point, listener, payload)
            token = _current.set(call)
            try:
                answer = listener.function(payload)
            except BaseException as error:
                self._raised(call, error, payload)
                raise
            finally:
                _leave(token)
                self._end(call, payload, before)
            self._answered(call, answer, payload)
            return answer

        async def alone(payload: Any) -> Any:
            return await self._awaited(point, listener, payload, None)

        async def around(payload: Any, next: Callable[..., Awaitable[Any]]) -> Any:
            return await self._awaited(point, listener, payload, next)

        match point.mode:
            case Mode.EMIT | Mode.VETO:
                return Listener(listener.name, synchronous)
            case Mode.WATERFALL:
                return Listener(listener.name, around)
            case _:
                return Listener(listener.name, alone)

    async def _awaited(
        self, point: HookPoint, listener: Listener, payload: Any, next: Callable[..., Awaitable[Any]] | None
    ) -> Any:
        call, before = self._begin(point, listener, payload)
        call.lazy = is_async_generator(listener.function)
        signal = getattr(payload, "signal", None)
        if isinstance(signal, CancelSignal):
            signal.call(lambda: setattr(call, "fired", anyio.current_time()), call)
        handed = (payload,) if next is None else (payload, self._next(call, next))
        answer: Any = None
        token = _current.set(call)
        try:
            if self._interrupt is None:
                answer = await self._run(call, listener, handed)
            else:
                with anyio.CancelScope() as call.scope:
                    answer = await self._run(call, listener, handed)
                if call.scope.cancelled_caught:
                    raise Interrupted
        except BaseException as error:
            self._raised(call, error, payload)
            raise
        finally:
            _leave(token)
            if isinstance(signal, CancelSignal):
                signal.forget(call)
            self._end(call, payload, before)
        self._answered(call, answer, payload)
        if call.delivered:
            raise Interrupted
        if hasattr(answer, "__anext__") and (call.given is None or answer is not call.given[0]):
            return WatchedStream(answer, partial(self._streaming, call))
        return answer

    @contextmanager
    def _streaming(self, call: HookCall) -> Generator[None]:
        """A chunk is asked of the stream that a listener has made."""
        token, call.since = _current.set(call), anyio.current_time()
        try:
            yield
        finally:
            call.own += anyio.current_time() - call.since
            _leave(token)
            self._in_time(call)

    @contextmanager
    def _away(self, call: HookCall) -> Generator[None]:
        """What happens meanwhile is not the listener's doing."""
        token = _current.set(None)
        call.own += anyio.current_time() - call.since
        try:
            yield
        finally:
            call.since = anyio.current_time()
            _leave(token)

    def _in_time(self, call: HookCall) -> bool:
        if call.own <= self._limits.seconds:
            return True
        self.breach("deadline", f"{call} takes {call.own:g} seconds, where {self._limits.seconds:g} are due", call)
        return False

    async def _run(self, call: HookCall, listener: Listener, handed: tuple[Any, ...]) -> Any:
        made = listener.function(*handed)
        if not hasattr(made, "__await__"):
            return made
        return await self._driven(call, made if inspect.iscoroutine(made) else _as_coroutine(made))

    @coroutine
    def _driven(self, call: HookCall, running: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Await it, and see each time that it is suspended and what it is resumed with."""
        value: Any = None
        thrown: BaseException | None = None
        while True:
            try:
                waits = running.send(value) if thrown is None else running.throw(thrown)
            except StopIteration as end:
                return end.value
            value = thrown = None
            self.suspensions += 1
            if self.suspensions == self._interrupt and call.scope is not None:
                call.struck = self.interrupted = True
                call.scope.cancel(reason=_STRUCK)
            try:
                value = yield waits
            except BaseException as error:
                thrown = error
            # asyncio throws it in; trio hands an outcome in, which is unwrapped within
            resumed_with = getattr(value, "error", None) if thrown is None else thrown
            if isinstance(resumed_with, BaseException):
                call.waits_at = place_of(running)
            if call.struck and isinstance(resumed_with, anyio.get_cancelled_exc_class()):
                call.delivered |= _STRUCK in str(resumed_with)  # or else it belongs to a deadline of the listener's own

    def _begin(self, point: HookPoint, listener: Listener, payload: Any) -> tuple[HookCall, object]:
        call = HookCall(point, listener.name, since=anyio.current_time(), tasks=_tasks())
        self.moments.append(Moment("called", call))
        return call, fingerprint(payload)

    def _end(self, call: HookCall, payload: Any, before: object) -> None:
        now = anyio.current_time()
        call.own += now - call.since
        call.tasks = _tasks() - call.tasks
        self.moments.append(Moment("returned", call))
        if fingerprint(payload) != before:
            self.breach("frozen", f"{call} changes the payload, which is frozen; return a changed copy instead", call)
        elif call.given is not None and fingerprint(call.given[0]) != call.given[1]:
            self.breach("frozen", f"{call} changes what next() returned, which is frozen; return a changed copy", call)
        if self._in_time(call) and call.fired is not None:
            late = now - max(call.fired, call.since)
            if late > self._limits.seconds_cancelled:
                self.breach("deadline", f"{call} goes on for {late:g} seconds after its turn was cancelled", call)
        for rest, below in call.rests if not call.lazy else ():
            state = inspect.getcoroutinestate(rest)
            if state == inspect.CORO_CREATED:
                rest.close()
                cast("Coroutine[Any, Any, Any]", below).close()
                self.breach("next", f"{call} calls next() and does not await it", call)
            elif state == inspect.CORO_SUSPENDED and not call.cancelled:
                self.breach("next", f"{call} ends while the next() that it began still runs", call)

    def _next(self, call: HookCall, next: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def rest(below: Awaitable[Any]) -> Any:
            with self._away(call):
                try:
                    answer = await below
                except BaseException as error:
                    call.inner.append(error)
                    raise
            if hasattr(answer, "__anext__"):
                answer = WatchedStream(answer, partial(self._away, call))
            call.given = answer, fingerprint(answer)
            return answer

        def called(payload: Any = None, /) -> Awaitable[Any]:
            call.nexts += 1
            if call.nexts > 1:
                self.breach("next", f"{call} calls next() twice; keep the first answer instead", call)
            elif call.verdict and not call.lazy:
                self.breach("next", f"{call} calls next() after it has returned", call)
            try:
                below = next(payload)
            except IllegalPayloadError as error:
                self.breach("payload", str(error), call)
                raise
            made = rest(below)
            call.rests.append((made, below))
            return made

        return called

    # -- how it ended ---------------------------------------------------------------------------------------------

    def _raised(self, call: HookCall, error: BaseException, payload: Any) -> None:
        call.verdict = f"raises {type(error).__name__}"
        if isinstance(error, (anyio.get_cancelled_exc_class(), GeneratorExit)):
            call.cancelled, call.verdict = True, "is cancelled"
        elif isinstance(error, Interrupted):
            call.verdict = _INTERRUPTED
        elif call.delivered:
            self.breach("cancellation", f"{call} is cancelled and raises {error!r} instead of ending", call)
        elif self._rightly(call, error, payload):
            self.raised.append(error)
            if call.point.mode is Mode.VETO and payload.event.type in _CLOSING:
                name = payload.event.type
                self.breach("veto", f"{call} keeps {name} out of the log, which closes what was begun", call)
            elif call.point.mode is Mode.VETO:
                self.refused.append(payload.event.type)
        elif refused := [one for one in causes(error) if isinstance(one, SimulationError)]:
            self.breach("io", f"{call} reaches for the world outside by {refused[0]}", call)
        elif isinstance(error, Hung):
            pass
        elif not isinstance(error, HookError) or not any(one.call is call for one in self.breaches):
            self.breach("raises", f"{call} raises {type(error).__name__}: {error}", call)

    def _rightly(self, call: HookCall, error: BaseException, payload: Any) -> bool:
        for one in causes(error):
            if isinstance(one, (ScriptedFault, Interrupted)) or any(one is other for other in call.inner):
                return True
        if isinstance(error, TurnCancelledError):
            return bool(payload.signal.fired) if hasattr(payload, "signal") else False
        if call.point.mode is Mode.VETO and isinstance(error, Exception):
            return not isinstance(error, _MISTAKES)
        return isinstance(error, self._limits.may_raise)

    def _answered(self, call: HookCall, answer: Any, payload: Any) -> None:
        point = call.point
        call.verdict = "None" if answer is None else type(answer).__name__
        if call.delivered:
            self.breach("cancellation", f"{call} swallows its cancellation: it goes on, and returns {answer!r}", call)
            return
        if point.mode is Mode.EMIT:
            call.verdict = "nothing"
            if hasattr(answer, "__await__"):
                self.breach("verdict", f"{call} returns an awaitable, which nobody awaits there", call)
            elif isinstance(answer, (*_VERDICTS, *(one for one in _VERDICTS if answer is one))):
                self.breach("verdict", f"{call} returns {answer!r}, which nobody reads there", call)
            return
        legal = any(answer is None if one is None else isinstance(answer, one) for one in point.verdicts)
        if not legal and (answer is not None or point.verdicts):
            kind = f"{answer!r} ({type(answer).__name__})" if answer is not None else "None"
            self.breach("verdict", f"{call} returns {kind}, where {' or '.join(point.legal)} is allowed", call)
            return
        if not point.verdicts:
            call.verdict = "nothing"
        elif hasattr(answer, "__anext__"):
            call.verdict = point.legal[0]
        given = call.given is not None and answer is call.given[0]
        wrong = None if given else invalid(answer)
        if wrong is not None:
            self.breach("verdict", f"{call} returns what is invalid: {wrong}", call)
        if isinstance(answer, Retry) and not given and payload.attempt >= self._limits.retries:
            self.breach("retry", f"{call} lets one step be requested again without end: {payload.attempt} times", call)


def _tasks() -> set[str]:
    return {task.name or "" for task in anyio.get_running_tasks()}


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
