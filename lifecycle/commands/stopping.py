"""Being asked to stop by a signal: the first one asks for a clean end, the second one ends the process.

The handlers are plain ones, not the event loop's: a second Ctrl-C must work while the loop is busy or blocked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import anyio

from lifecycle.vocabulary.failures import DISPOSED_CANCEL, USER_CANCEL, CancelCause

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stop:
    """Whether a signal has asked to stop. Until `begin`, it stops by cancelling the scope that it was made with."""

    def __init__(self, starting: anyio.CancelScope, last_words: Callable[[], object]) -> None:
        self._starting: anyio.CancelScope | None = starting
        self._last_words = last_words
        self._loop = asyncio.get_running_loop()
        self._asked = anyio.Event()
        self._number = 0

    @property
    def begun(self) -> bool:
        return self._starting is None

    @property
    def asked(self) -> bool:
        return self._number != 0

    @property
    def code(self) -> int:
        """The exit code of a process that was asked to stop."""
        return 128 + self._number

    @property
    def cause(self) -> CancelCause:
        """A person's Ctrl-C is a cancel by the user; anything else takes the host away."""
        return USER_CANCEL if self._number == signal.SIGINT else DISPOSED_CANCEL

    def begin(self) -> None:
        """From here on there is something to end cleanly: whoever waits for the signal does that."""
        self._starting = None

    async def wait(self) -> None:
        """Wait until it is asked for."""
        await self._asked.wait()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._number:
            self._last_words()
            os._exit(128 + number)
        self._number = number
        self._loop.call_soon_threadsafe(self._ask)

    def _ask(self) -> None:
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()


@contextmanager
def stopping(starting: anyio.CancelScope, last_words: Callable[[], object]) -> Generator[Stop]:
    """Within the block signals ask to stop; one that the caller ignores (`nohup`) stays ignored.

    Args:
        starting: What is cancelled if nothing has begun.
        last_words: Called in the signal handler before the process is ended.
    """
    stop = Stop(starting, last_words)
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.getsignal(number)
                # The system may hand a signal to any thread. This makes it wake the loop, which sleeps in this one.
                with suppress(NotImplementedError):  # on Windows the loop sees to that by itself
                    loop.add_signal_handler(number, _woken)
                signal.signal(number, stop.handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _woken() -> None:
    """The handler proper has run by then."""
