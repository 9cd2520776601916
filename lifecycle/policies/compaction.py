"""Compaction: when a conversation outgrows the context window, its older part gives way to a summary (group CMP).

Two things ask for it: pressure, measured before a step is entered, and the overflow that a provider reports. Long tool
results are pruned first; a summary is made only if that is not enough. What takes the place of something cites it, so
the log keeps everything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lifecycle.errors import AgentBusyError, PolicyError, TurnCancelledError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.model import Model
from lifecycle.services.points import AgentHandle, Enter, PreStepPayload, Reject, RequestErrorPayload, Retry
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.failures import FailureCode

from .checks import check_kind, check_numbers
from .gauge import Estimate, Gauge, estimated
from .shortening import COMPACTION, Shortening
from .summarising import INSTRUCTION

if TYPE_CHECKING:
    from lifecycle.driver.agent import Agent

log = logging.getLogger("lifecycle.policies")


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """When and how a conversation is compacted.

    Args:
        model: The adapter that writes summaries. By default the agent's own, on the route of the open step.
        at: The part of the context window from which on there is pressure.
        keep: The part of the context window that the newest messages may take up and stay as they are.
        context_window: Tokens, for routes that do not say how many they take. Where neither is known, only an overflow
            and a manual run compact, and the parts are those of the conversation as it is.
        summary_tokens: The longest summary; shorter where the window is so small that it would bring no relief.
        quote_tokens: How much of what people said in the replaced part is repeated word by word, the newest first.
        prune_beyond: Tool results that weigh more are shortened first, behind the newest messages; None prunes none.
        recoveries: How many overflows in a row, without an answer between, are recovered from.
        instruction: What the model is told to write.
        estimate: How many tokens a message weighs, where no provider has told.

    Raises:
        PolicyError: where the options cannot work together.
    """

    model: Model | None = None
    at: float = 0.8
    keep: float = 0.3
    context_window: int | None = None
    summary_tokens: int = 2_000
    quote_tokens: int = 500
    prune_beyond: int | None = 500
    recoveries: int = 1
    instruction: str = INSTRUCTION
    estimate: Estimate = field(default=estimated)

    def __post_init__(self) -> None:
        counts = ("summary_tokens", "recoveries", "context_window", "prune_beyond")
        check_numbers(self, whole=(*counts, "quote_tokens"), real=("at", "keep"))
        if self.model is not None:
            check_kind(self, "model", self.model, Model, "an adapter")
        if not 0 < self.keep < self.at <= 1:
            raise PolicyError(
                f"CompactionOptions: at={self.at} and keep={self.keep} cannot work together: what stays must weigh "
                "less than what asks for compaction; give 0 < keep < at <= 1"
            )
        for name in counts:
            given = getattr(self, name)
            if given is not None and given < 1:
                raise PolicyError(f"CompactionOptions: {name}={given} leaves nothing to work with; give at least 1")
        if self.quote_tokens < 0:
            raise PolicyError(
                f"CompactionOptions: quote_tokens={self.quote_tokens} is no amount; give 0 to quote nobody"
            )
        window = self.context_window
        if window is not None and self.summary_tokens + self.keep * window > self.at * window:
            raise PolicyError(
                f"CompactionOptions: a summary of {self.summary_tokens} tokens and the {self.keep:.0%} that stay are "
                f"more than {self.at:.0%} of {window} tokens; lower summary_tokens or keep"
            )


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a manual compaction did: how many nodes of the surface gave way, and the weight before and after."""

    replaced: int
    tokens_before: int
    tokens_after: int
    summary: str


def compacting(options: CompactionOptions | None = None) -> Hooks:
    """Hooks that compact under pressure, and recover from an overflow.

    Pressure is looked for at `agent/pre-step`; if compaction fails there, a warning is logged and the step goes on. At
    `agent/request-error` only CONTEXT_OVERFLOW is taken up; the attempt is made again only if something on the surface
    has given way meanwhile, else the failure is the next listener's (CMP-03).
    """
    compactor = _Compactor(options or CompactionOptions())
    hooks = Hooks(name=COMPACTION)
    hooks.listen("agent/pre-step", compactor.before_step)
    hooks.listen("agent/request-error", compactor.on_failure)
    return hooks


async def compact(agent: Agent, options: CompactionOptions | None = None) -> Compacted:
    """Compact the agent's conversation now, as a maintenance task: it needs no turn, and none can begin meanwhile.

    Nothing is pruned, because a tool result is replaced only while a turn is open. What was done is flushed before this
    returns; input that came meanwhile is taken up then.

    Raises:
        AgentBusyError: if the agent is not idle, or a prompt waits for the next turn. Nothing has changed.
        CompactionError: if nothing can give way, or no shorter summary is to be had. The conversation is as it was.
        ModelError: if the summary model cannot be called; likewise.
        TurnCancelledError: if the agent is cancelled meanwhile; likewise.
        StoreError: if what was done cannot be kept.
    """
    if agent.inbox.next_turn:
        raise AgentBusyError(f"{agent!r} has a prompt waiting for its next turn; let that end before compacting")
    options = options or CompactionOptions()
    gauge = Gauge(options.estimate)
    session = agent.session

    async def task(signal: CancelSignal) -> Compacted:
        gauge.follow(session)
        run = Shortening(options, agent, gauge, signal, "manual", None)
        before = gauge.tokens
        replaced, summary = await run.summarise(before)
        gauge.follow(session)
        await agent.flush()
        return Compacted(replaced, before, gauge.tokens, summary)

    return await agent.run_maintenance(task)


class _Compactor:
    """The two listeners, and what they know of each agent."""

    def __init__(self, options: CompactionOptions) -> None:
        self._options = options
        self._gauges: WeakKeyDictionary[AgentHandle, Gauge] = WeakKeyDictionary()

    def _gauge(self, agent: AgentHandle) -> Gauge:
        gauge = self._gauges.get(agent)
        if gauge is None:
            gauge = self._gauges[agent] = Gauge(self._options.estimate)
        gauge.follow(agent.session)
        return gauge

    def _window(self, agent: AgentHandle) -> int | None:
        """How many tokens the route of the step takes; None if nobody has said."""
        step = agent.step
        known = None if step is None else self._gauge(agent).windows.get((step.provider, step.model))
        return known or self._options.context_window

    async def before_step(self, payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        """Relieve pressure, once it is known what the step would add (CMP-01)."""
        decision = await next()
        window = self._window(payload.agent)
        if not isinstance(decision, Enter) or window is None or payload.signal.fired:
            return decision
        gauge, options = self._gauge(payload.agent), self._options
        coming = sum(map(options.estimate, decision.messages))
        most = int(options.at * window)
        if gauge.tokens + coming > most:
            run = Shortening(options, payload.agent, gauge, payload.signal, "pressure", payload.turn)
            await _contained(partial(run.relieve, window, most - coming))
        return decision

    async def on_failure(self, payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
        """Recover from an overflow, if there is something left that can give way (CMP-02, CMP-03)."""
        agent, options = payload.agent, self._options
        if payload.failure.code != FailureCode.CONTEXT_OVERFLOW or payload.signal.fired:
            return await next()
        gauge = self._gauge(agent)
        if gauge.recoveries >= options.recoveries:
            return await next()
        before = agent.session.surface.generation
        whole = max(gauge.tokens, self._window(agent) or 0)  # whatever was estimated: it is too much
        gauge.tokens = whole
        run = Shortening(options, agent, gauge, payload.signal, "overflow", payload.turn)
        await _contained(partial(run.relieve, whole, int(options.at * whole)))
        if payload.signal.fired:
            return None
        if agent.session.surface.generation == before:
            return await next()
        gauge.recoveries += 1
        return Retry()


async def _contained(work: Callable[[], Awaitable[object]]) -> None:
    """Do it; if it fails, say so and go on."""
    try:
        await work()
    except TurnCancelledError:
        pass
    except Exception as wrong:
        log.warning("the conversation was not compacted: %s", wrong)
