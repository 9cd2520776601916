"""How an agent behaves where its hooks say nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Protocol, cast

from lifecycle.definition.machine import Lifecycle
from lifecycle.services.points import AgentHandle, CallPayload
from lifecycle.services.prompt import Prompt, Section
from lifecycle.vocabulary.values import EMPTY, FrozenDict

from .program import Perform


class Approver(Protocol):
    """Answers a call that a `tools/pre-execute` listener asks about.

    Awaited before the call goes on, however long that takes: meanwhile no other call starts. A cancel ends the
    waiting. An exception makes the call an error result; all but True itself, or no approver at all, counts as a denial
    (TLP-02).

    Both the question and what came of it are in the log (`approval/asked`, `approval/decided`). If the process is lost
    in between, `Agent.resume` asks the approver of the new process the same question again.
    """

    def __call__(self, payload: CallPayload, reason: str, /) -> bool | Awaitable[bool]: ...


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What an agent is told once, when it is made.

    Args:
        system: The prompt: a text, sections, or a whole `Prompt`.
        effort: The reasoning effort of the default selection.
        max_tokens: The token ceiling of a request; None leaves it to the adapter.
        temperature: The sampling temperature of a request; None leaves it to the adapter.
        request_options: Fields for the provider, by its own names.
        max_parallel_tools: How many tool bodies may overlap; 1 means one after another (TLS-05). A callable is asked
            each time a call could start.
        max_result_chars: How many characters of text one tool result may have for the model; what is too much is left
            out before the last quarter, where a mark says how much it was. The value that a tool returned is kept
            whole in the record. None sets no limit.
        tool_order: Tool names in the order in which the model sees them, with `*` for the rest; None sorts by name.
        approve: Who answers a call that a hook asks about.
        grace_seconds: How long a cancelled turn may take to settle before somebody is told what holds it up: a warning
            in the log, and `agent/overdue`. It is awaited all the same, however long that takes (CAN-11).
        max_pauses: How many steps in a row may end because the provider paused.
        lifecycle: A lifecycle derived from Agent, Turn, Step or ToolCall of the newest revision, in its place.
        performers: The performers of the effects that it adds, by their keys: functions of the run that return, for
            the last effect of a phase, the event that follows. They are awaited to their end, also when the turn is
            cancelled: look at `run.signal`. Serial hook points are dispatched without one.

    Raises:
        ValueError: if an option is of another kind than it says, or too small to work with.
    """

    system: str | Prompt | Iterable[Section] | None = None
    effort: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    request_options: FrozenDict | Mapping[str, object] = EMPTY
    max_parallel_tools: int | Callable[[AgentHandle], int] = 10
    max_result_chars: int | None = 500_000
    tool_order: Sequence[str] | None = None
    approve: Approver | None = None
    grace_seconds: float = 5.0
    max_pauses: int = 8
    lifecycle: type[Lifecycle] | None = None
    performers: Mapping[str, Perform] = EMPTY

    def __post_init__(self) -> None:
        for name, (fits, what) in _FIT.items():
            given: object = getattr(self, name)
            if not fits(given):
                raise ValueError(f"AgentOptions({name}=...) is {what}, not {given!r:.80}")


def _whole(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _names(given: object) -> bool:
    named = isinstance(given, Iterable) and not isinstance(given, str)
    return named and all(isinstance(one, str | EllipsisType) for one in cast("Iterable[object]", given))


def _lifecycle(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, Lifecycle)


_FIT: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "effort": (lambda given: given is None or isinstance(given, str), "a text or None"),
    "max_tokens": (lambda given: given is None or _whole(given, 1), "a whole number of at least 1, or None"),
    "temperature": (lambda given: given is None or _number(given), "a number or None"),
    "request_options": (lambda given: isinstance(given, Mapping), "a mapping of the provider's own fields"),
    "max_parallel_tools": (
        lambda given: callable(given) or _whole(given, 1),
        "a whole number of at least 1, or a function that says one",
    ),
    "max_result_chars": (lambda given: given is None or _whole(given, 0), "a whole number of at least 0, or None"),
    "tool_order": (lambda given: given is None or _names(given), "a list of the tools' names, or None"),
    "approve": (lambda given: given is None or callable(given), "a function that answers, or None"),
    "grace_seconds": (lambda given: _number(given) and cast("float", given) >= 0, "a number of at least 0"),
    "max_pauses": (lambda given: _whole(given, 0), "a whole number of at least 0"),
    "lifecycle": (lambda given: given is None or _lifecycle(given), "a class derived from a lifecycle, or None"),
    "performers": (
        lambda given: isinstance(given, Mapping) and all(map(callable, cast("Mapping[str, object]", given).values())),
        "a mapping of effects' keys to functions",
    ),
}
"""By option: whether a value fits, and what does. What `system` may be, `Prompt.of` says."""
