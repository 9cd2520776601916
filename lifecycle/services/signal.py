"""The signal of one turn: fired at most once, with the first cause; read by everything that runs in the turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial

import anyio

from lifecycle.errors import TurnCancelledError
from lifecycle.vocabulary.failures import CancelCause


class CancelSignal:
    """Tells that the turn is to stop, and why.

    All extension points of one turn get the same object; the next turn gets a new one (CAN-11). Hooks only read it
    and are awaited to their end. Tool bodies and adapter streams also run in a scope that it cancels.
    """

    __slots__ = ("_callbacks", "_cause")

    def __init__(self) -> None:
        self._cause: CancelCause | None = None
        self._callbacks: dict[object, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"<CancelSignal {'open' if self._cause is None else self._cause.kind}>"

    @property
    def cause(self) -> CancelCause | None:
        """Why it fired; None while it has not."""
        return self._cause

    @property
    def fired(self) -> bool:
        return self._cause is not None

    def fire(self, cause: CancelCause) -> bool:
        """Fire it. The first cause stays (CAN-01); returns whether this was the first."""
        if self._cause is not None:
            return False
        self._cause = cause
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback()
        return True

    def raise_if_fired(self) -> None:
        """Raises TurnCancelledError once it has fired."""
        if self._cause is not None:
            raise TurnCancelledError(self._cause)

    async def wait(self) -> None:
        """Wait until it fires."""
        if self._cause is None:
            event = anyio.Event()
            with self.calling(event.set):
                await event.wait()

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Generator[None]:
        """Call `callback`, which must not raise, when it fires within the block; at once if it has."""
        key = object()
        if self._cause is None:
            self._callbacks[key] = callback
        else:
            callback()
        try:
            yield
        finally:
            self._callbacks.pop(key, None)

    @contextmanager
    def fused(self, *others: CancelSignal) -> Generator[CancelSignal]:
        """A signal that fires, within the block, when this one or any of `others` does (TLP-05)."""
        fused = CancelSignal()
        with ExitStack() as stack:
            for signal in (self, *others):
                stack.enter_context(signal.calling(partial(_pass_on, signal, fused)))
            yield fused

    @contextmanager
    def scope(self) -> Generator[anyio.CancelScope]:
        """An anyio scope that is cancelled when it fires."""
        with anyio.CancelScope() as scope, self.calling(scope.cancel):
            yield scope


def _pass_on(signal: CancelSignal, to: CancelSignal) -> None:
    assert signal.cause is not None
    to.fire(signal.cause)
