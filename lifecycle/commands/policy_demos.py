"""A demo session for each policy: a scripted model, virtual time, and a story in which the policy has its say.

`lifecycle replay demo:retry` plays one and shows it; its page holds the picture.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from types import MappingProxyType

import anyio

from lifecycle.driver.agent import Agent
from lifecycle.driver.options import AgentOptions
from lifecycle.policies.compaction import CompactionOptions, compacting
from lifecycle.policies.context import Source, runtime_context
from lifecycle.policies.limits import LimitOptions, limiting
from lifecycle.policies.plan import EXIT, PlanMode
from lifecycle.policies.retry import RetryOptions, retrying
from lifecycle.policies.selection import ModelSwitch
from lifecycle.proof.simulation import Backend, tell_virtually
from lifecycle.services.hooks import Hooks
from lifecycle.services.tools import Tool, tool
from lifecycle.session.log import Session
from lifecycle.session.reading import LogReader
from lifecycle.testing.models import Line, Reply, ScriptedModel
from lifecycle.vocabulary.messages import identities
from lifecycle.vocabulary.requests import ModelSelection

EPOCH = 1_700_000_000_000


def demo(name: str, backend: Backend = "asyncio") -> Session:
    """The session that the demo of a policy leaves: the same events each time, on both backends."""
    ids = count(1)
    token = identities.set(lambda: f"x{next(ids)}")
    try:
        return tell_virtually(DEMOS[name], backend=backend)
    finally:
        identities.reset(token)


def demo_log(name: str, *, unpack: bool = True) -> LogReader:
    """The same as a log to read."""
    lines = (event.encode().encode() + b"\n" for event in demo(name).events)
    return LogReader(lines, f"the demo of {name}", unpack=unpack)


def _now() -> int:
    return EPOCH + round(1_000 * anyio.current_time())


async def _played(
    model: ScriptedModel,
    hooks: Hooks,
    *acts: str | Callable[[], object],
    tools: Iterable[Tool] = (),
    options: AgentOptions | None = None,
) -> Session:
    """A session after these acts, one after another: a text is a prompt, whose turn is awaited."""
    session = Session.memory("demo", clock=_now)
    async with Agent(model, hooks=hooks, tools=tools, options=options, session=session) as agent:
        for act in acts:
            if isinstance(act, str):
                agent.followup(act)
                await agent.when_idle()
            else:
                act()
    return session


@tool(kind="read")
async def read_file(path: str) -> str:
    """Read a file."""
    return f"{path} says: " + "tomatoes want water. " * 120


@tool(kind="write")
async def write_file(path: str) -> str:
    """Write a file."""
    return f"{path} was written"


def _reads(*paths: str) -> Line:
    return Reply(calls=[("read_file", {"path": path}) for path in paths])


async def retry() -> Session:
    """Two failures of two classes, of which one says how long to wait; then the answer."""
    model = ScriptedModel(
        Reply.failure("TRANSPORT", "the connection was cut", text="It is a green"),
        Reply.failure("RATE_LIMIT", "slow down", retry_after=7.0),
        Reply(text="It is a greenhouse."),
    )
    return await _played(model, retrying(RetryOptions(chance=lambda: 1.0)), "What is this?")


async def compaction() -> Session:
    """Pressure, which pruning and a summary relieve, and then an overflow."""
    model = ScriptedModel(
        _reads("a.md"),
        _reads("b.md"),
        Reply(text="Both speak of tomatoes."),
        Reply.failure("CONTEXT_OVERFLOW", "the request is too long"),
        Reply(text="They want water."),
        context_window=1_600,
    )
    notes = ScriptedModel(otherwise=Reply(text="a.md and b.md were read."), provider="notes", model="small")
    by = CompactionOptions(notes, at=0.5, keep=0.2, summary_tokens=100)
    prompts = "Read a.md and b.md.", "What do they want?"
    return await _played(model, compacting(by), *prompts, tools=[read_file])


async def context() -> Session:
    """A context that changes once in three turns."""
    days = iter(["Monday", "Monday", "Tuesday"])
    hooks = runtime_context(Source("day", lambda agent: f"It is {next(days)}."))
    return await _played(ScriptedModel(otherwise=Reply(text="Yes.")), hooks, "Is it light?", "Still?", "And now?")


async def selection() -> Session:
    """Another model is chosen between two turns."""
    switch = ModelSwitch({"deep": ModelSelection(model="large", effort="high")})
    model = ScriptedModel(otherwise=Reply(text="A greenhouse."), model="small")
    return await _played(model, switch.hooks, "What is this?", lambda: switch.select("deep"), "Think again.")


async def plan() -> Session:
    """A plan is made with the tools that only look, approved, and carried out."""
    mode = PlanMode(active=True)
    model = ScriptedModel(
        Reply(calls=[("read_file", {"path": "a.md"})]),
        Reply(calls=[(EXIT, {"plan": "Write b.md."})]),
        Reply(calls=[("write_file", {"path": "b.md"})]),
        Reply(text="Done."),
    )
    options = AgentOptions(approve=lambda payload, reason: True)
    return await _played(model, mode.hooks, "Copy a.md.", tools=[read_file, write_file, mode.tool], options=options)


async def limits() -> Session:
    """A model that goes round in circles: the call that it repeats is denied, and the turn ends at its limit."""
    model = ScriptedModel(_reads("a.md"), _reads("a.md"), _reads("b.md"), otherwise=_reads("c.md"))
    by = LimitOptions(max_steps=3, same_calls=1)
    return await _played(model, limiting(by), "Read everything.", tools=[read_file])


DEMOS: Mapping[str, Callable[[], Awaitable[Session]]] = MappingProxyType(
    {
        "retry": retry,
        "compaction": compaction,
        "runtime-context": context,
        "model-switch": selection,
        "plan-mode": plan,
        "limits": limits,
    }
)
"""The story of each policy, by the name of its page."""
