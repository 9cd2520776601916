"""The story that is cut off anywhere: retries, parallel and exclusive tools, steering, a pending prompt, a cancel.

The model is a function of what it is asked, so that it goes on sensibly whoever asks and after whatever was lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from lifecycle import Agent, Ask, Hooks, Retry, Tool, ToolContext, tool
from lifecycle.services.points import CallPayload, RequestErrorPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.session.log import Session
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import Event
from lifecycle.vocabulary.messages import ToolResultBlock, UserMessage, text_of
from lifecycle.vocabulary.requests import Request

Witness = Callable[[str], None]
"""Writes down what happened outside the log, at once and for good."""

STEERED = "steered"
PROMPTS = ("one", "two", "three")


def the_model(witness: Witness) -> ScriptedModel:
    """Answers `one` in its second attempt, with three calls; `two` with a call that hangs; all else with a text."""

    def answer(request: Request, signal: CancelSignal) -> Reply:
        newest = [message for message in request.messages if isinstance(message, UserMessage)][-1]
        said = text_of(newest)
        witness(f"asked {newest.id}")
        if any(isinstance(block, ToolResultBlock) for block in newest.content):
            return Reply(text="so it is")
        if said == "one":
            if request.attempt == 1:
                return Reply.failure("OVERLOADED", text="al", retryable=True)
            calls = [("probe", {"n": 1}, "p1"), ("probe", {"n": 2}, "p2"), ("charge", {"n": 3}, "c3")]
            return Reply(text=["let me", " see"], calls=calls)
        if said == "two":
            return Reply(calls=[("hang", {}, "h4"), ("charge", {"n": 5}, "c5")])
        return Reply(text=f"to {said}")

    return ScriptedModel(otherwise=answer)


def the_tools(witness: Witness, started: Callable[[], Awaitable[Any]] | None = None) -> list[Tool]:
    """`probe` may be run again, `charge` and `hang` never; each writes down that its body began."""

    @tool(parallel=True, replay="safe")
    async def probe(n: int, context: ToolContext) -> str:
        """Look."""
        witness(f"body probe {context.key}")
        await anyio.lowlevel.checkpoint()
        return f"saw {n}"

    @tool
    async def charge(n: int, context: ToolContext) -> str:
        """Pay."""
        witness(f"body charge {context.key}")
        await anyio.lowlevel.checkpoint()
        if n == 3:
            context.agent.steer(STEERED)
        return f"paid {n}"

    @tool
    async def hang(context: ToolContext) -> str:
        """Never end by itself."""
        witness(f"body hang {context.key}")
        if started is not None:
            await started()
        await anyio.sleep_forever()
        return "never"

    return [probe, charge, hang]


def the_hooks(*, asking: bool = False) -> Hooks:
    """Any failed request is made again; `asking`, somebody is asked about the first `charge`."""
    hooks = Hooks()

    if asking:

        @hooks.on("tools/pre-execute")
        async def ask(payload: CallPayload, next: Any) -> Any:
            return Ask("may it?") if payload.arguments == {"n": 3} else await next()

    @hooks.on("agent/request-error")
    async def again(payload: RequestErrorPayload, next: Any) -> Retry | None:
        return Retry()

    return hooks


async def approve(payload: CallPayload, reason: str) -> bool:
    """Says yes, after some thought."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return True


async def live(agent: Agent, witness: Witness, hanging: anyio.Event) -> None:
    """What the person does: two prompts at once, a cancel in the midst of the second, and a third prompt."""
    _prompt(agent, witness, "one")
    _prompt(agent, witness, "two")
    await hanging.wait()
    agent.cancel(keep_inbox=True)
    _prompt(agent, witness, "three")
    await agent.when_idle()


async def finish(agent: Agent, witness: Witness) -> None:
    """What the person does after a crash: goes on until nothing waits. Calls that hang cancel the turn themselves."""
    _prompt(agent, witness, "finish")
    await agent.when_idle()
    while agent.inbox.pending:
        _prompt(agent, witness, "go on")
        await agent.when_idle()


def _prompt(agent: Agent, witness: Witness, said: str) -> None:
    witness(f"accepted {agent.followup(said).id}")


async def tell(session: Session) -> Sequence[Event]:
    """Live the story on a session, without a crash; returns all its events."""
    hanging = anyio.Event()

    async def started() -> None:
        hanging.set()

    def unseen(line: str) -> None:
        pass

    async with Agent(the_model(unseen), tools=the_tools(unseen, started), hooks=the_hooks(), session=session) as agent:
        with anyio.fail_after(5):
            await live(agent, unseen, hanging)
    return session.events
