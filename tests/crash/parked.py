"""A process that is killed while somebody is asked about a call; and the tools and hooks of the one that takes over.

    python -m tests.crash.parked STORE FOLDER BACKEND

It says `asked` once the question is in the log and its neighbours are as far as they get, and then waits to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lifecycle import Agent, AgentOptions, Ask, Hooks, Tool, tool
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import ToolResultEvent

from .nursery import make_store

REASON = "it costs something"
CALLS: list[Any] = [("look", {"n": 1}, "c1"), ("hang", {}, "c2"), ("pay", {"n": 3}, "c3"), ("look", {"n": 4}, "c4")]


def the_model() -> ScriptedModel:
    """Asks for a call that ends, one that does not, one that is asked about, and one after it."""
    return ScriptedModel(Reply(calls=CALLS), Reply(text="done"))


def the_tools(ran: Callable[[str], None]) -> list[Tool]:
    """All of them overlap; each tells that its body began."""

    @tool(parallel=True)
    async def look(n: int) -> str:
        """Look."""
        ran(f"look {n}")
        return f"saw {n}"

    @tool(parallel=True)
    async def hang() -> str:
        """Never end by itself."""
        ran("hang")
        await anyio.sleep_forever()
        return "never"

    @tool(parallel=True)
    async def pay(n: int) -> str:
        """Pay."""
        ran(f"pay {n}")
        return f"paid {n}"

    return [look, hang, pay]


def the_hooks() -> Hooks:
    """Somebody is asked before anything is paid."""
    hooks = Hooks()

    @hooks.on("tools/pre-execute")
    async def ask(payload: Any, next: Any) -> Any:
        return Ask(REASON) if payload.call.name == "pay" else await next()

    return hooks


def unseen(line: str) -> None:
    """Nobody counts what runs in the process that is lost."""


async def live(kind: str, folder: Path) -> None:
    store, asked = make_store(kind, folder, "turn"), anyio.Event()

    async def approve(payload: object, reason: str) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    options = AgentOptions(approve=approve)
    tools, hooks, session = the_tools(unseen), the_hooks(), await store.create("s")
    async with Agent(the_model(), tools=tools, hooks=hooks, session=session, options=options) as agent:
        agent.followup("go")
        await asked.wait()
        while not any(isinstance(event.data, ToolResultEvent) for event in session.events):
            await checkpoint()
        for _ in range(10):  # what the pool does behind the result
            await checkpoint()
        sys.stdout.write("asked\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(live, sys.argv[1], Path(sys.argv[2]), backend=sys.argv[3])
