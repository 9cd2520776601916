"""Virtual time and a chosen order on asyncio: the one module that leans on how its event loop works inside.

It leans on: `_run_once` is one round of the loop; `_ready` is the queue of what can run; a handle that was cancelled
says so in `_cancelled`; `call_later` goes through `call_at`, and both through `time`. A test notices if that changes.
Work for threads is done on the spot; real input and output is refused.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack

from anyio._backends._asyncio import AsyncIOBackend

from lifecycle.errors import SimulationError

from .choices import Choices
from .virtual_threads import Work, inline_threads, real

Ts = TypeVarTuple("Ts")

MOST_ROUNDS = 20_000
"""Rounds in a row in which something could run; more than that is a task that turns on the spot."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anything can run, and moves from timer to timer, one at a time.

    Args:
        order: If given, one callback runs a round, and this chooses which.
    """

    if TYPE_CHECKING:
        _ready: deque[asyncio.Handle]
        _stopping: bool

    def __init__(self, order: Choices | None = None) -> None:
        super().__init__()
        self._order = order
        self._held: list[asyncio.Handle] = []
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = count()
        self._settled: asyncio.Future[None] | None = None
        self._rounds = 0

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._made), timer))
        return timer

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        done, work = self.create_future(), Work(func, *args)

        def settle() -> None:
            if done.done():
                return
            if work.error is None:
                done.set_result(work.value)
            else:
                done.set_exception(work.error)

        if work.seconds:
            self.call_later(work.seconds, settle)
        else:
            self.call_soon(settle)
        return done

    def _run_once(self) -> None:
        if self._order is not None:
            self._held += [handle for handle in self._ready if not handle._cancelled]
            self._ready.clear()
            if self._held:
                self._ready.append(self._held.pop(self._order.pick(len(self._held))))
        if self._ready:
            self._rounds += 1
            if self._rounds > MOST_ROUNDS:
                self._rounds = 0
                raise SimulationError("a task turns on the spot: it runs again and again, and never waits")
        elif not self._stopping:
            self._rest()
        super()._run_once()  # type: ignore[misc]  # asyncio's own

    def _rest(self) -> None:
        """Nothing can run: tell who waits for that; else let time pass."""
        self._rounds = 0
        if self._settled is not None:
            settled, self._settled = self._settled, None
            if not settled.done():
                settled.set_result(None)
        elif self.next_deadline() < inf:
            self.advance()
        else:
            raise SimulationError("every task waits for another one, or for something outside of the simulation")

    # -- for the simulation ---------------------------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until nothing else can run. One task at a time may wait for that."""
        self._settled = self.create_future()
        await self._settled

    def next_deadline(self) -> float:
        """When the next timer ends; infinity if there is none."""
        while self._timers and self._timers[0][2]._cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else inf

    def advance(self) -> None:
        """Let time pass up to the next timer, and end that one; timers of one moment in the order of their start."""
        self._now = max(self._now, self.next_deadline())
        self._ready.append(heappop(self._timers)[2])


_REAL = (
    *("create_connection", "create_server", "create_datagram_endpoint", "create_unix_connection", "create_unix_server"),
    *("sock_connect", "sock_accept", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into"),
    *("sock_sendall", "sock_sendto", "sock_sendfile", "getaddrinfo", "getnameinfo", "add_reader", "add_writer"),
    *("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
)
"""The methods of a loop that deal with sockets, pipes and processes."""


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: VirtualLoop, *args: object, **named: object) -> Any:
        raise real(name)

    return refuse


for _name in _REAL:
    setattr(VirtualLoop, _name, _refusing(_name))


@contextmanager
def virtual_asyncio() -> Generator[None]:
    """A virtual loop runs within the block."""
    with inline_threads(AsyncIOBackend, lambda: isinstance(asyncio.get_running_loop(), VirtualLoop)):
        yield
