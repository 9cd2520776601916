"""What is compared: something that can run each workload."""

from __future__ import annotations

from typing import Protocol, TypeAlias

THINKING = 0.05
Stamps: TypeAlias = list[float]
"""CPU times in seconds, one at the start of each unit and one at the end of the last."""


class Contender(Protocol):
    """One way to run turns. Every method does all of its work, and asserts that it was done."""

    name: str

    async def turns(self, count: int) -> None:
        """`count` turns of one step, each in a session of its own."""
        ...

    async def continued(self, count: int, stamps: Stamps) -> None:
        """`count` turns of one step in one session; the time of each goes to `stamps`."""
        ...

    async def steps(self, count: int, stamps: Stamps | None = None) -> None:
        """One turn of `count` steps with a tool call each, and an answer; the time of each request goes to `stamps`."""
        ...

    async def parallel(self, count: int) -> None:
        """One turn with one step of `count` calls that may overlap, and an answer."""
        ...

    async def deltas(self, count: int) -> int:
        """One answer of `count` deltas of text to a consumer; returns how many it got."""
        ...

    async def sessions(self, count: int) -> None:
        """`count` sessions at once, each with a turn of one step whose model takes `THINKING` seconds."""
        ...
