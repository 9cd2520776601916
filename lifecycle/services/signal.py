"""The signal of one turn: fired at most once, with the first cause; read by everything that runs in the turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import TracebackType

import anyio

from lifecycle.errors import TurnCancelledError
from lifecycle.vocabulary.failures import CancelCause


class CancelSignal:
    """Tells that the turn is to stop, and why.

    All extension points of one turn get the same object; the next turn gets a new one (CAN-11). Hooks only read it
    and are awaited to their end. Tool bodies and adapter streams also run in a scope that it cancels.
    """

    __slots__ = ("_callbacks", "cause")

    def __init__(self) -> None:
        self.cause: CancelCause | None = None
        """Why it fired; None while it has not. Only `fire` sets it; an attribute, because it is read all the time."""
        self._callbacks: dict[object, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"<CancelSignal {'open' if self.cause is None else self.cause.kind}>"

    @property
    def fired(self) -> bool:
        return self.cause is not None

    def fire(self, cause: CancelCause) -> bool:
        """Fire it. The first cause stays (CAN-01); returns whether this was the first."""
        if self.cause is not None:
            return False
        self.cause = cause
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback()
        return True

    def raise_if_fired(self) -> None:
        """Raises TurnCancelledError once it has fired."""
        if self.cause is not None:
            raise TurnCancelledError(self.cause)

    async def wait(self) -> None:
        """Wait until it fires."""
        if self.cause is None:
            event = anyio.Event()
            with self.calling(event.set):
                await event.wait()

    def calling(self, callback: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `callback`, which must not raise, when it fires within the block; at once if it has."""
        return _Calling(self, callback)

    def call(self, callback: Callable[[], object], key: object) -> None:
        """For `calling` and `scope`: call `callback` when it fires, unless `key` is forgotten by then."""
        if self.cause is None:
            self._callbacks[key] = callback
        else:
            callback()

    def forget(self, key: object) -> None:
        """For the same: call nothing for `key` any more."""
        self._callbacks.pop(key, None)

    @contextmanager
    def fused(self, *others: CancelSignal) -> Generator[CancelSignal]:
        """A signal that fires, within the block, when this one or any of `others` does (TLP-05)."""
        fused = CancelSignal()
        with ExitStack() as stack:
            for signal in (self, *others):
                stack.enter_context(signal.calling(partial(_pass_on, signal, fused)))
            yield fused

    def scope(self) -> AbstractContextManager[anyio.CancelScope, bool]:
        """An anyio scope that is cancelled when it fires."""
        return _Scope(self)


# Blocks as classes: every request and every tool call is in one, and a generator makes it twice as dear.


class _Calling(AbstractContextManager[None]):
    __slots__ = ("_callback", "_signal")

    def __init__(self, signal: CancelSignal, callback: Callable[[], object]) -> None:
        self._signal, self._callback = signal, callback

    def __enter__(self) -> None:
        self._signal.call(self._callback, self)

    def __exit__(self, *_: object) -> None:
        self._signal.forget(self)


class _Scope(AbstractContextManager[anyio.CancelScope, bool]):
    __slots__ = ("_scope", "_signal")

    def __init__(self, signal: CancelSignal) -> None:
        self._signal, self._scope = signal, anyio.CancelScope()

    def __enter__(self) -> anyio.CancelScope:
        scope = self._scope.__enter__()
        self._signal.call(scope.cancel, self)
        return scope

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self._signal.forget(self)
        return self._scope.__exit__(kind, error, at)


def _pass_on(signal: CancelSignal, to: CancelSignal) -> None:
    assert signal.cause is not None
    to.fire(signal.cause)
