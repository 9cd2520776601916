"""Strategies: scenarios for Hypothesis. The one module that imports it; it needs the `testing` extra.

Written for shrinking: fewer moves, hooks and choices are simpler, the first of several alternatives is the simplest,
and a scenario without choices runs in the order that everybody expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lifecycle.services.points import POINTS, Mode
from lifecycle.vocabulary.chunks import FinishKind, Usage
from lifecycle.vocabulary.failures import Failure, FailureCode

from .scenario import Act, Answer, AskedCall, Behaviour, HookScript, Move, Scenario, ToolScript, behaviours

TOOLS = ("work", "look", "act")
TEXTS = ("hello", "more", "wait")
CAUSES = ("user", "parent", "hook")
QUIET_POINTS = ("agent/assistant-stream", "session/flush", "agent/created", "agent/session-start", "agent/disposed")
"""Where scripted hooks do not listen by default: nothing follows from it there, or no turn can be open."""

_small = st.integers(0, 2)


T = TypeVar("T")


def _weighed(strategies: Mapping[SearchStrategy[T], int]) -> SearchStrategy[T]:
    """One of them, by weight; to name a strategy twice has no effect in Hypothesis."""
    weighed = [strategy for strategy, weight in strategies.items() for _ in range(weight)]
    return st.integers(0, len(weighed) - 1).flatmap(weighed.__getitem__)


@cache
def acts() -> SearchStrategy[Act]:
    """What hooks and tools do to the agent."""
    says = st.builds(Act, verb=st.sampled_from(("followup", "steer", "inject")), text=st.sampled_from(TEXTS))
    cancels = st.builds(Act, verb=st.just("cancel"), cause=st.sampled_from(CAUSES), keep_inbox=st.booleans())
    edits = st.builds(Act, verb=st.sampled_from(("remove", "replace")), text=st.sampled_from(TEXTS))
    return says | cancels | edits


@cache
def moves(latest: int = 24) -> SearchStrategy[Move]:
    """What the outside world does, up to that move of the run."""
    at = st.integers(0, latest // 4) | st.integers(0, latest)  # most runs are short
    says = st.builds(Move, at=at, verb=st.sampled_from(("followup", "steer", "inject")), text=st.sampled_from(TEXTS))
    cancels = st.builds(
        Move, at=at, verb=st.just("cancel"), cause=st.sampled_from((*CAUSES, "disposed")), keep_inbox=st.booleans()
    )
    others = st.builds(
        Move,
        at=at,
        verb=st.sampled_from(("remove", "replace", "maintain", "dispose", "abandon")),
        lasts=st.integers(0, 3),
    )
    return _weighed({says: 4, cancels: 2, others: 1})


@cache
def answers(tools: tuple[str, ...] = TOOLS) -> SearchStrategy[Answer]:
    """What the model streams to one request."""
    text = st.lists(st.sampled_from(("a", "b ")), max_size=2).map(tuple)
    names = st.sampled_from((*tools * 3, "unknown"))
    calls = st.builds(AskedCall, tool=names, arguments=st.sampled_from(("{}", "{}", "{}", '{"n":1}', "{")))
    asks = st.builds(Answer, text=text, calls=st.lists(calls, min_size=1, max_size=5).map(tuple))
    good = st.builds(Answer, text=text, calls=st.lists(calls, max_size=4).map(tuple), usage=st.none() | _usage())
    failed = st.builds(Answer, text=text, failure=_failures())
    odd = st.builds(
        Answer,
        text=text,
        reasoning=st.sampled_from(((), ("hm",))),
        calls=st.lists(calls, max_size=1).map(tuple),
        finish=st.none() | st.sampled_from(list(FinishKind)),
        breaks_at=st.none() | _small,
        ends_at=st.none() | _small,
        lingers=_small,
    )
    return _weighed({good: 2, asks: 5, failed: 1, odd: 1})  # what goes on says more than what ends


def _usage() -> SearchStrategy[Usage]:
    return st.just(Usage(input_tokens=3, output_tokens=2))


def _failures() -> SearchStrategy[Failure]:
    codes = st.sampled_from((FailureCode.SERVER, FailureCode.OVERLOADED, FailureCode.AUTH, FailureCode.ABORTED))
    return codes.map(lambda code: Failure(message="as scripted", code=code.value))


@cache
def tools(name: str) -> SearchStrategy[ToolScript]:
    """A tool of this name."""
    return st.builds(
        ToolScript,
        name=st.just(name),
        parallel=st.sampled_from((False, True, True, True)),
        lasts=st.integers(1, 3),
        lingers=_small,
        raises=st.sampled_from((None, None, None, "as scripted")),
        code=st.none() | st.just("SCRIPTED"),
        defers=st.sampled_from(((), ("context",))),
        concludes=st.sampled_from((False, False, True)),
        records=_small,
        does=st.lists(acts(), max_size=1).map(tuple),
    )


EVENTS = (
    "agent/inbox/spliced", "turn/start", "turn/end", "step/start", "step/end", "system/message", "user/message",
    "request/header", "request/context", "assistant/message", "assistant/attempt", "tool/call", "tool/result",
)  # fmt: skip


@cache
def hook_scripts(points: Sequence[str] | None = None, *, vetoes: bool = True) -> SearchStrategy[HookScript]:
    """A scripted hook at one of these points; by default at all where something follows from it."""
    names = points if points is not None else [name for name in POINTS if name not in QUIET_POINTS]
    names = [name for name in names if vetoes or POINTS[name].mode is not Mode.VETO]
    return st.sampled_from(names).flatmap(_hook_at)


@cache
def _hook_at(point: str) -> SearchStrategy[HookScript]:
    return st.sampled_from(behaviours(point)).flatmap(lambda does: _behaving(point, does))


@cache
def _behaving(point: str, does: Behaviour) -> SearchStrategy[HookScript]:
    of_events = point in ("session/append", "session/event")
    return st.builds(
        HookScript,
        point=st.just(point),
        does=st.just(does),
        nth=st.integers(1, 3) if does in ("act", "raise") or of_events else st.integers(0, 2),
        event=st.sampled_from(EVENTS) if of_events else st.none(),
        after=st.booleans() if POINTS[point].mode is Mode.WATERFALL else st.just(False),
        lasts=st.integers(1, 2) if does == "slow" else st.just(1),
        seconds=st.sampled_from((1.0, 0.5, 0.0)) if does == "sleep" else st.just(1.0),
        acts=st.lists(acts(), min_size=1, max_size=2).map(tuple) if does == "act" else st.just(()),
    )


@cache
def vetoes(events: Sequence[str] = EVENTS) -> SearchStrategy[HookScript]:
    """A veto of one event of these types."""
    return st.builds(
        HookScript,
        point=st.just("session/append"),
        does=st.just("raise"),
        nth=st.integers(1, 4),
        event=st.sampled_from(events),
    )


@cache
def choices(longest: int = 20) -> SearchStrategy[tuple[int, ...]]:
    """Which of the things that wait comes next."""
    return st.just(()) | st.lists(st.integers(0, 3), min_size=longest // 2, max_size=longest).map(tuple)


def scenarios(
    *,
    hooks: SearchStrategy[HookScript] | None = None,
    most_hooks: int = 2,
    most_moves: int = 4,
    tool_names: Iterable[str] = TOOLS,
    interleaved: bool = False,
) -> SearchStrategy[Scenario]:
    """Whole scenarios. They begin with a prompt.

    Args:
        hooks: The scripted hooks; by default `hook_scripts()`.
        most_hooks: How many of them at most; 0 where the hooks under test are to be alone.
        most_moves: What the outside world does besides the first prompt, at most.
        tool_names: One tool each.
        interleaved: Also choose the order of callbacks.
    """
    names = tuple(tool_names)
    first = st.builds(Move, text=st.sampled_from(TEXTS))
    more = st.lists(moves(), max_size=most_moves).map(tuple)
    return st.builds(
        Scenario,
        moves=st.tuples(first, more).map(lambda both: (both[0], *both[1])),
        answers=st.lists(answers(names), max_size=6).map(tuple),
        preparing=st.lists(st.sampled_from(("now", "now", "now", "now", "later", "later", "raise")), max_size=3).map(
            tuple
        ),
        tools=st.tuples(*(tools(name) for name in names)),
        hooks=st.lists(hook_scripts() if hooks is None else hooks, max_size=most_hooks).map(tuple),
        choices=choices(),
        interleaving=choices(40) if interleaved else st.none(),
        context=st.none() | st.just("here"),
        system_update=st.sampled_from(("rewrite", "in-history")),
        max_parallel_tools=st.sampled_from((10, 10, 2, 1)),
        approves=st.booleans(),
    )
