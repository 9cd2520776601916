"""Gated tools: bodies that begin, stand still, and end when and how the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from lifecycle.services.tools import Parallel, Tool, ToolContext, When
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import FrozenDict

from .gates import Gate

ANY_OBJECT = FrozenDict(type="object")


class GatedTool(Tool):
    """A tool whose every call waits to be let go, so that a test decides in which order bodies end.

        slow = GatedTool("slow")
        ...
        await slow.started("call-1-1")
        slow.release("call-1-1", "done")

    Calls are named by the id that the model gave them. A call may be released before it starts; it then runs through.

    Args:
        name: What the model calls it.
        answer: What a body returns that is released without an answer of its own; called with the arguments if it
            can be called, raised if it is an exception.
        parallel, when: As for every tool.
        free: Whether calls run through without being released.
    """

    __slots__ = (
        "_answers",
        "_gates",
        "_overs",
        "answer",
        "calls",
        "cancelled",
        "contexts",
        "ended",
        "free",
        "most",
        "running",
    )

    def __init__(
        self,
        name: str = "work",
        answer: object = "done",
        *,
        parallel: Parallel = True,
        when: When | None = None,
        free: bool = False,
    ) -> None:
        spec = ToolSpec(name=name, description="Does as the test says.", input_schema=ANY_OBJECT)
        super().__init__(spec, self._work, context="context", parallel=parallel, when=when)
        self.answer = answer
        self.free = free
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        """Id and arguments of every call whose body began, in the order in which they began."""
        self.contexts: list[ToolContext] = []
        """What each body was handed, in the same order."""
        self.ended: list[str] = []
        """The ids of the bodies that are over, in the order in which they ended, however they did."""
        self.cancelled: list[str] = []
        """Those that ended because they were cancelled."""
        self.running = 0
        """How many bodies run now."""
        self.most = 0
        """How many ran at once at most."""
        self._gates: dict[str, Gate] = {}
        self._answers: dict[str, object] = {}
        self._overs: dict[str, anyio.Event] = {}

    def gate(self, call: str) -> Gate:
        """The gate before which the body of the call with this id stands."""
        gate = self._gates.get(call)
        if gate is None:
            gate = self._gates[call] = Gate(f"{self.name} {call}", opened=self.free)
        return gate

    async def started(self, *calls: str) -> None:
        """Wait until the bodies of all these calls have begun."""
        for call in calls:
            await self.gate(call).reached()

    async def finished(self, *calls: str) -> None:
        """Wait until the bodies of all these calls are over."""
        for call in calls:
            await self._overs.setdefault(call, anyio.Event()).wait()

    def release(self, call: str, answer: object = None) -> None:
        """Let the call end: with `answer`, or with the tool's usual one if that is None; an exception is raised."""
        if answer is not None:
            self._answers[call] = answer
        self.gate(call).open()

    def release_all(self) -> None:
        """Let every call end, also those that are still to come."""
        self.free = True
        for gate in self._gates.values():
            gate.open()

    async def _work(self, *, context: ToolContext, **arguments: Any) -> object:
        call = context.call.id
        self.calls.append((call, arguments))
        self.contexts.append(context)
        self.running += 1
        self.most = max(self.most, self.running)
        through = False
        try:
            await self.gate(call).go()
            through = True
        finally:
            self.running -= 1
            self.ended.append(call)
            self._overs.setdefault(call, anyio.Event()).set()
            if not through:
                self.cancelled.append(call)
        answer = self._answers.get(call, self.answer)
        if isinstance(answer, Exception):
            raise answer
        return _called(answer, arguments)


def _called(answer: object, arguments: Mapping[str, Any]) -> object:
    function: Callable[[Mapping[str, Any]], object] | None = answer if callable(answer) else None
    return answer if function is None else function(arguments)
