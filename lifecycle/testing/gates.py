"""Gates: a place where a scripted thing waits until the test lets it go on. Nothing here sleeps or knows a clock."""

from __future__ import annotations

import anyio


class Gate:
    """Stops whoever passes until it is opened, and tells when somebody stands before it.

        gate = Gate("first chunk")
        ...
        await gate.reached()    # the script stands here now
        agent.cancel()          # so this happens between two chunks, and nowhere else
        gate.open()

    An open gate stays open. Being cancelled before the gate is ordinary cancellation.
    """

    __slots__ = ("_arrived", "_opened", "name", "passed", "waiting")

    def __init__(self, name: str = "gate", *, opened: bool = False) -> None:
        self.name = name
        self.waiting = 0
        """How many stand before it now."""
        self.passed = 0
        """How many have gone through."""
        self._arrived = anyio.Event()
        self._opened = anyio.Event()
        if opened:
            self._opened.set()

    def __repr__(self) -> str:
        return f"<Gate {self.name!r} {'open' if self.opened else 'shut'}, {self.waiting} waiting>"

    @property
    def opened(self) -> bool:
        return self._opened.is_set()

    def open(self) -> None:
        """Let everybody through, now and later."""
        self._opened.set()

    async def reached(self) -> None:
        """Wait until somebody has come to the gate, for the first time."""
        await self._arrived.wait()

    async def go(self) -> None:
        """Come to the gate and wait until it is open. An open one is passed at once, without a checkpoint."""
        self._arrived.set()
        if not self._opened.is_set():
            self.waiting += 1
            try:
                await self._opened.wait()
            finally:
                self.waiting -= 1
        self.passed += 1
