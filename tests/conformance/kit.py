"""The scene of a conformance test: one agent, its scripted model, and the trace of both domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import anyio

from lifecycle import Agent, AgentOptions, Hooks, Session, Tool
from lifecycle.testing import Line, Reply, ScriptedModel, Trace
from lifecycle.vocabulary.events import Event, EventData, TurnEnd
from lifecycle.vocabulary.failures import TurnEndReason

D = TypeVar("D", bound=EventData)
T = TypeVar("T")
Next: TypeAlias = Callable[[], Awaitable[T]]
"""The `next` that a waterfall listener is handed."""


@dataclass(slots=True)
class Scene:
    """What a test looks at."""

    agent: Agent
    model: ScriptedModel
    hooks: Hooks
    trace: Trace

    @property
    def session(self) -> Session:
        return self.agent.session

    @property
    def durable(self) -> list[str]:
        """The wire names of the log, in order."""
        return [event.type for event in self.session.events]

    def data(self, kind: type[D]) -> list[D]:
        """The data of every event of one type, in order."""
        return [event.data for event in self.session.events if isinstance(event.data, kind)]

    def event(self, type: str, nth: int = 0) -> Event:
        """The nth event of a wire name."""
        return [event for event in self.session.events if event.type == type][nth]

    @property
    def reasons(self) -> list[TurnEndReason]:
        """How the turns ended, in order."""
        return [end.reason for end in self.data(TurnEnd)]

    async def idle(self) -> None:
        """Wait until everything has settled."""
        await self.agent.when_idle()

    async def say(self, *prompts: str) -> None:
        """Queue the prompts and wait until everything has settled."""
        for prompt in prompts:
            self.agent.followup(prompt)
        await self.idle()


@asynccontextmanager
async def scene(
    *script: Line,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    hooks: Hooks | None = None,
    options: AgentOptions | None = None,
    session: Session | None = None,
    model: ScriptedModel | None = None,
    only: Sequence[str] | None = None,
    seconds: float = 5,
    monitor: bool | None = None,
) -> AsyncGenerator[Scene]:
    """An entered agent with a scripted model; without a script every request is answered with `ok`.

    `only` narrows the trace's live side to some points (listening there has no effect on the run).
    """
    model = model or (ScriptedModel(*script) if script else ScriptedModel(otherwise=Reply(text="ok")))
    hooks = hooks or Hooks()
    agent = Agent(model, tools=tools, hooks=hooks, options=options, session=session, monitor=monitor)
    with anyio.fail_after(seconds):
        async with agent:
            with Trace(hooks, agent.session, only=only) as trace:
                yield Scene(agent, model, hooks, trace)
