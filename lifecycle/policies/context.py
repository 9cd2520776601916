"""Runtime context: what the model should know of the world right now, told only where it has changed (ADM-08, ADM-09).

The lifecycle admits the snapshot behind a step's input, writes it only if the surface does not hold it, and opens no
step for it (PRE-08). What is left to do is to know the texts cheaply: that is this policy.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from inspect import isawaitable
from math import inf
from typing import TypeAlias
from weakref import WeakKeyDictionary

import anyio

from lifecycle.errors import PolicyError, TurnCancelledError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import AgentHandle, AssemblePayload, PromptAssembly, PromptText
from lifecycle.services.prompt import verbatim
from lifecycle.services.signal import CancelSignal

from .checks import check_numbers

log = logging.getLogger("lifecycle.policies")

Told: TypeAlias = Callable[[AgentHandle], "str | Awaitable[str | None] | None"]
"""What there is to say; None or an empty text if there is nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to know.

    Args:
        name: What the context is called; no two of one agent may be called the same.
        text: Asked for what there is to say. An async function may wait; a plain one stops everything while it works.
        every_seconds: It is asked again only after so long; meanwhile what it said holds. By default in every step;
            `math.inf` asks once.
        most_seconds: How long an async function may take. After that it is cancelled, and what it said before holds.

    Raises:
        PolicyError: if it has no name, or is to be asked in less than no time.
    """

    name: str
    text: Told
    every_seconds: float = 0.0
    most_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not callable(self.text):
            raise PolicyError(f"Source {self.name!r}: text={self.text!r:.60} is not a function that says it")
        check_numbers(self, real=("every_seconds", "most_seconds"))
        if not self.name:
            raise PolicyError("Source: a context needs a name, by which it is told from others")
        if not 0 <= self.every_seconds <= inf:
            raise PolicyError(f"Source {self.name!r}: every_seconds={self.every_seconds} is no time; give 0 or more")
        if not self.most_seconds > 0:
            raise PolicyError(
                f"Source {self.name!r}: most_seconds={self.most_seconds} leaves no time to answer; give more than 0"
            )


@dataclass(slots=True)
class _Known:
    """What a source has said last, and when."""

    text: str | None = None
    asked: float = -inf


def runtime_context(*sources: Source) -> Hooks:
    """Hooks that add what the sources say to the contexts of each step, behind those that are there.

    A source that raises or takes too long is logged, and what it said before holds; the others are told as they are.
    One that is cut off by a cancel of the turn is asked again in the next step.

    Raises:
        PolicyError: if there is no source, or two are called the same.
    """
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PolicyError(f"runtime_context: two sources are called {twice[0]!r}; give each a name of its own")
    if not sources:
        raise PolicyError("runtime_context: there is no source, so there is nothing to tell; leave the policy out")
    known: WeakKeyDictionary[AgentHandle, dict[str, _Known]] = WeakKeyDictionary()

    async def tell_context(payload: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
        assembly = await next()
        kept = known.setdefault(payload.agent, {source.name: _Known() for source in sources})
        told: list[PromptText] = []
        for source in sources:
            text = await _asked(source, kept[source.name], payload)
            if text:
                told.append(PromptText(source.name, verbatim(text)))
        return replace(assembly, contexts=(*assembly.contexts, *told)) if told else assembly

    hooks = Hooks(name="runtime-context")
    hooks.listen("system-prompt/assemble", tell_context)
    return hooks


async def _asked(source: Source, known: _Known, payload: AssemblePayload) -> str | None:
    now = anyio.current_time()
    if now - known.asked < source.every_seconds or payload.signal.fired:
        return known.text
    before, known.asked = known.asked, now
    try:
        said = source.text(payload.agent)
        text = await _waited(source, said, payload.signal) if isawaitable(said) else said
        if not isinstance(text, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # somebody else's function
            raise TypeError(f"it says {text!r:.60}, which is no text")
        known.text = text
    except TurnCancelledError:
        known.asked = before
    except Exception as wrong:
        log.warning("the runtime context %r is as it was before: %s: %s", source.name, type(wrong).__name__, wrong)
    return known.text


async def _waited(source: Source, said: Awaitable[str | None], signal: CancelSignal) -> str | None:
    with signal.scope(), anyio.move_on_after(source.most_seconds):
        return await said
    signal.raise_if_fired()
    raise TimeoutError(f"it has not answered within {source.most_seconds:g} s")
