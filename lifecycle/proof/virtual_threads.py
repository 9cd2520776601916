"""Worker threads of a virtual run: what is handed to one runs at once, on the spot, and takes as long as it sleeps.

Reading a file, say, is then as repeatable as the rest. Sockets and processes cannot be had so: they are refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, SupportsIndex

import anyio
import anyio.lowlevel

from lifecycle.errors import SimulationError

_here = threading.local()


def real(what: str) -> SimulationError:
    """The error of something that a virtual run cannot do."""
    return SimulationError(f"{what}: real I/O is outside of virtual time; hand it in, and fake it in the test")


def working() -> bool:
    """Whether what runs right now stands for the work of a thread, which may block."""
    return getattr(_here, "work", None) is not None


def spend(seconds: float) -> None:
    """Let the work that runs right now take so many virtual seconds more."""
    work: Work = _here.work
    work.seconds += float(seconds)


class Work:
    """Done work: what it returned or raised, and the virtual seconds that it takes."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.seconds = 0.0
        self.error: BaseException | None = None
        self.value: Any = None
        with self._sleeping_virtually():
            try:
                self.value = copy_context().run(function, *args)
            except BaseException as error:
                self.error = error

    def result(self) -> Any:
        """What it returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value

    @contextmanager
    def _sleeping_virtually(self) -> Generator[None]:
        usual, thread, outer = time.sleep, threading.get_ident(), getattr(_here, "work", None)

        def sleep(seconds: SupportsIndex | float, /) -> None:
            if threading.get_ident() == thread:
                spend(float(seconds))
            else:
                usual(seconds)

        time.sleep, _here.work = sleep, self
        try:
            yield
        finally:
            time.sleep, _here.work = usual, outer


async def run_inline(
    function: Callable[..., Any], args: tuple[Any, ...], abandon_on_cancel: bool = False, limiter: object = None
) -> Any:
    """Stands for a backend's way to run a function in a worker thread."""
    await anyio.lowlevel.checkpoint()
    work = Work(function, *args)
    with anyio.CancelScope(shield=not abandon_on_cancel):
        await anyio.sleep(work.seconds)
    return work.result()


@contextmanager
def inline_threads(backend: Any, is_virtual: Callable[[], bool]) -> Generator[None]:
    """Within the block, an AnyIO backend runs on the spot what virtual runs hand to worker threads.

    Args:
        is_virtual: Whether it is a virtual run that asks: there may be another one in another thread.
    """
    usual = backend.__dict__["run_sync_in_worker_thread"]
    real_run = backend.run_sync_in_worker_thread

    async def run(_: object, *args: Any, **named: Any) -> Any:
        return await (run_inline if is_virtual() else real_run)(*args, **named)

    backend.run_sync_in_worker_thread = classmethod(run)
    try:
        yield
    finally:
        backend.run_sync_in_worker_thread = usual
