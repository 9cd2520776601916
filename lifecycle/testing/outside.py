"""What a watched listener does to the world outside of a run: it blocks, it never gives way, it opens a connection.

Python itself tells of that: by audit events, and by a clock that rings in the main thread. Knows nothing of contracts.
"""

from __future__ import annotations

import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

Heard: TypeAlias = Callable[[str, object], None]

_ear: ContextVar[Heard | None] = ContextVar("audit_ear", default=None)
_EVENTS = frozenset(
    {"time.sleep", "subprocess.Popen", "os.system", "os.posix_spawn", "socket.connect", "socket.getaddrinfo"}
)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        heard = _ear.get()
        if heard is not None and not (event == "socket.connect" and args[0].type != socket.SOCK_STREAM):
            heard(event, args[1] if event == "socket.connect" else args[0])


@cache
def _install() -> None:
    """There is no way to take one away; it hears nothing unless somebody listens."""
    sys.addaudithook(_audit)


@contextmanager
def listening(heard: Heard) -> Generator[None]:
    """Within the block, and in the tasks begun there, `heard` is told of every audit event that matters.

    What it raises comes out of what was about to be done.
    """
    _install()
    token = _ear.set(heard)
    try:
        yield
    finally:
        _ear.reset(token)


@contextmanager
def alarm_every(seconds: float, ring: Callable[[FrameType | None], None]) -> Generator[None]:
    """Within the block, call `ring` every so many real seconds, in the midst of whatever runs; it may raise there.

    Only in the main thread of a POSIX system; elsewhere nothing rings. Somebody else's alarm is put off meanwhile.
    """
    usual = signal.getsignal(signal.SIGALRM) if hasattr(signal, "setitimer") else None
    if usual is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def rings(_: int, frame: FrameType | None) -> None:
        ring(frame)

    signal.signal(signal.SIGALRM, rings)
    begun = time.monotonic()
    due, every = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        if due:
            signal.setitimer(signal.ITIMER_REAL, max(due - (time.monotonic() - begun), 0.001), every)


# -- places in somebody's code ------------------------------------------------------------------------------------

_NOBODYS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = str(Path(__file__).parent.parent)


def place_of(awaited: Any) -> str:
    """Where a suspended coroutine waits, as `file:line`: the innermost place that is in nobody's library."""
    places: list[tuple[CodeType, int]] = []
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            places.append((frame.f_code, frame.f_lineno))
        inner = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        awaited = inner or getattr(awaited, "ag_await", None)
    return _told(places)


def place_in(frame: FrameType | None) -> str:
    """Where running code is, likewise."""
    places: list[tuple[CodeType, int]] = []
    while frame is not None:
        places.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return _told(places[::-1])


def _told(places: list[tuple[CodeType, int]]) -> str:
    own = [one for one in places if not one[0].co_filename.startswith((*_NOBODYS, _OURS, "<"))]
    return "".join(f"{Path(code.co_filename).name}:{line}" for code, line in (own or places[:1])[-1:])
