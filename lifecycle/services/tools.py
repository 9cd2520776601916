"""The decorator `tool`, the registry of an agent, and the set of tools that is resolved for a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import EllipsisType
from typing import Any, cast, overload

from lifecycle.errors import PromptError, ToolDefinitionError
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import FrozenDict, mend

from .callables import close, name_of
from .points import AgentHandle
from .results import parse_arguments
from .schema import read_signature
from .signal import CancelSignal
from .tool import Parallel, Recover, Replay, Tool, ToolContext, When

__all__ = [
    "Parallel",
    "Recover",
    "Replay",
    "StepTools",
    "Tool",
    "ToolContext",
    "ToolRegistry",
    "When",
    "parse_arguments",
    "tool",
]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    parallel: Parallel = ...,
    when: When | None = ...,
    kind: str | None = ...,
    replay: Replay = ...,
    recover: Recover | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: Parallel = False,
    when: When | None = None,
    kind: str | None = None,
    replay: Replay = "never",
    recover: Recover | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool. Its name, docstring, annotations and defaults are what the model is told.

    Parameters are described by `Field(description=...)` or in the docstring. A parameter annotated with ToolContext is
    handed the context and not told. `tool.function` is the function as it was.

    Args:
        name: Another name than the function's.
        description: Another description than the docstring's up to its first section.
        parallel: Whether calls may run beside others; a function of the arguments must return exactly True.
        when: Whether the tool is offered in a step.
        kind: What the tool does to the world (`read`, `write`, `execute`, ...), for policies such as plan mode.
        replay: What becomes of a call whose process was lost while it ran. "never": the model is told that the
            outcome is unknown. "safe": the body runs once more, with the same `ToolContext.key`, before the agent takes
            input; what it has to say to the model it returns or defers.
        recover: Asked instead what came of such a call: `recover(context)` returns what the body would have returned,
            or None if it cannot say. Plain functions are called in a worker thread.

    Raises:
        ToolDefinitionError: names the function and the parameter that a model could not fill in.
    """
    if function is not None:
        return _make(function, _scope(), name, description, parallel, when, kind, replay, recover)

    def making(function: Callable[..., Any]) -> Tool:
        return _make(function, _scope(), name, description, parallel, when, kind, replay, recover)

    return making


def _scope() -> Mapping[str, Any]:
    """The names that whoever decorates can use: a function in a function may use types that are defined beside it."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    return frame.f_locals if frame else {}


def _make(
    function: Callable[..., Any],
    scope: Mapping[str, Any],
    name: str | None,
    description: str | None,
    parallel: Parallel,
    when: When | None,
    kind: str | None,
    replay: Replay,
    recover: Recover | None,
) -> Tool:
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.name} is a tool already; decorate its function once")
    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"a tool is made of a function, not of {function!r:.80}")
    signature = read_signature(function, ToolContext, scope)
    own: str = getattr(function, "__name__", type(function).__name__)
    spec = ToolSpec(
        name=name or own,
        description=mend(signature.description if description is None else description),
        input_schema=signature.schema,
        kind=kind,
    )
    return Tool(
        spec,
        function,
        check=signature.check,
        context=signature.context,
        parallel=parallel,
        when=when,
        replay=replay,
        recover=recover,
    )


# -- the registry -------------------------------------------------------------------------------------------------


class StepTools:
    """The tools of one step. Membership is captured, definitions stay live (TLS-14).

    A tool that is unregistered meanwhile still runs as it was; one that was replaced runs as it is now.
    """

    __slots__ = ("_captured", "_registry", "disposals", "specs")

    def __init__(self, captured: Mapping[str, Tool], registry: ToolRegistry, specs: tuple[ToolSpec, ...]) -> None:
        self._captured, self._registry = captured, registry
        self.specs = specs
        """What the model is told, in order; the same object as in the step before while nothing changed."""
        self.disposals = 0
        """How often `dispose` was called."""

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None if the step has none (TLP-07)."""
        captured = self._captured.get(name)
        return None if captured is None else self._registry.get(name) or captured

    def parallel(self, name: str, arguments: FrozenDict | str) -> bool:
        """Whether the call may run beside others: only if the tool says exactly True of parsed arguments (TLS-03)."""
        found = self.get(name)
        if found is None or isinstance(arguments, str):
            return False
        answer: object = found.parallel
        if callable(answer):
            try:
                answer = answer(arguments)
            except Exception:
                return False
            close(answer)
        return answer is True

    def dispose(self) -> None:
        """Let go of the set. Once counts; more often does nothing (TLS-15)."""
        self.disposals += 1
        if self.disposals == 1:
            self._registry.open_sets -= 1


class ToolRegistry:
    """The tools that an agent may be offered, by name.

    Args:
        tools: Tools, or functions to make tools of.
        order: The names in the order in which the model is told of them, with `...` (or `"*"`) once for the rest, in
            name order; without the mark, the rest comes last. None is name order (REQ-09).
    """

    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]] = (), order: Iterable[str | EllipsisType] | None = None
    ) -> None:
        self._tools: Mapping[str, Tool] = {}
        """Another one after each change, so that a step may keep it as it was."""
        self._order = _order(order)
        self._last: tuple[Mapping[str, Tool], tuple[ToolSpec, ...]] | None = None
        self._conditional = False
        self.open_sets = 0
        """How many resolved sets are not disposed yet."""
        if isinstance(tools, (str, Mapping)) or not isinstance(cast("object", tools), Iterable):
            raise ToolDefinitionError(f"an agent's tools are a list of tools or functions, not {tools!r:.80}")
        for one in tools:
            self.register(one)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def register(self, one: Tool | Callable[..., Any]) -> Tool:
        """Offer a tool from the next step on. To replace one, unregister it first.

        Raises:
            ToolDefinitionError: if the name is taken, or the function cannot be a tool.
        """
        made = one if isinstance(one, Tool) else tool(one)
        taken = self._tools.get(made.name)
        if taken is not None:
            raise ToolDefinitionError(
                f"{name_of(made.function)}: {name_of(taken.function)} is already registered as {made.name!r}; "
                "unregister it first, or give this one another name"
            )
        self._change({**self._tools, made.name: made})
        return made

    def unregister(self, name: str) -> Tool | None:
        """Stop offering the tool from the next step on. Returns it; None if there was none."""
        gone = self._tools.get(name)
        if gone is not None:
            self._change({known: one for known, one in self._tools.items() if known != name})
        return gone

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None if there is none."""
        return self._tools.get(name)

    def _change(self, tools: Mapping[str, Tool]) -> None:
        self._tools, self._last = tools, None
        self._conditional = any(one.when is not None for one in tools.values())

    def resolve(self, agent: AgentHandle, signal: CancelSignal) -> StepTools:
        """The tools of the step that `agent` is in; called once a step (ADM-02).

        Raises:
            TurnCancelledError: if the signal has fired.
            PromptError: if the configured order names a tool that is not registered (REQ-10).
        """
        signal.raise_if_fired()
        last = self._last
        if last is None or self._conditional:
            last = self._resolve(agent)
        self.open_sets += 1
        return StepTools(last[0], self, last[1])

    def _resolve(self, agent: AgentHandle) -> tuple[Mapping[str, Tool], tuple[ToolSpec, ...]]:
        offered = self._tools
        if self._conditional:
            offered = {name: one for name, one in offered.items() if one.when is None or one.when(agent)}
        last = self._last
        if last is None or last[0] != offered:
            specs = tuple(offered[name].spec for name in self._ordered() if name in offered)
            last = self._last = offered, specs
        return last

    def _ordered(self) -> list[str]:
        before, after = self._order
        for name in (*before, *after):
            if name not in self._tools:
                known = ", ".join(sorted(self._tools)) or "none"
                raise PromptError(f"the order of the tools names {name!r}, which is not registered; there are: {known}")
        return [*before, *sorted(self._tools.keys() - {*before, *after}), *after]


def _order(order: Iterable[str | EllipsisType] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names before the rest, and those after it."""
    given = ["*" if one is ... else one for one in order or ()]
    if len(set(given)) != len(given):
        raise PromptError(f"the order of the tools names one twice: {', '.join(given)}")
    rest = given.index("*") if "*" in given else len(given)
    return tuple(given[:rest]), tuple(given[rest + 1 :])
