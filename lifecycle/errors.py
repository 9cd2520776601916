"""Every error that this package raises, as one tree.

    LifecycleError
    ├── DefinitionError             a lifecycle is declared wrongly; raised at import
    ├── IllegalTransitionError      an event that the current phase does not take
    ├── DivergenceError             a live session is about to record what its lifecycle cannot have made
    ├── HookError
    │   ├── UnknownHookPointError   no hook point has that name
    │   ├── HookRegistrationError   the listener cannot serve at that point
    │   ├── IllegalVerdictError     a listener returned what its point does not allow
    │   ├── IllegalPayloadError     a listener handed `next()` a payload that its point does not allow
    │   ├── NextCalledTwiceError    a waterfall listener called `next()` a second time
    │   └── HookOrderError          the order constraints of hooks that are added up form a circle
    ├── NotJsonError                a value that lossless JSON cannot carry
    ├── SessionError
    │   ├── ReentrantAppendError    an observer of an append tried to append
    │   ├── SurfaceError            an append or replace that the surface rules forbid
    │   ├── SessionClosedError      an append to a session that was closed
    │   ├── SessionNotFoundError    the store holds no session of that id
    │   ├── SessionExistsError      the store already holds a session of that id
    │   ├── SessionLockedError      another writer holds the session
    │   ├── SessionHasChildrenError other sessions were forked from the one to delete
    │   ├── SessionFormatError      what was read is not a session of ours, or not whole
    │   ├── LogFormatError          what was read from a file is no log, or not whole; it names the line
    │   ├── UnknownEventError       a required event of a type that nobody declared
    │   ├── ForkError               the boundary of a fork lies inside an open turn
    │   └── StoreError              the store itself failed (full or read-only disk, ...)
    │       └── StoreBusyError      another process was writing to the store for longer than we wait
    ├── DuplicateMessageError       a message id that is already pending
    ├── AgentBusyError              what was asked for can only be had while the agent is idle
    ├── AgentDisposedError          the agent is disposed, or not entered yet
    ├── TurnCancelledError          the turn's signal has fired
    ├── StrayCancellationError      what was awaited in a turn was cancelled, but not by the turn
    ├── RouteError                  no provider or no model was chosen
    ├── PromptError                 the prompt cannot be assembled
    ├── ToolDefinitionError         a function that cannot be a tool; raised at registration
    ├── WorkspaceError              the folder that the built-in tools are to work in is none
    ├── ToolError                   raised by a tool's body: becomes an error result with its code
    ├── PolicyError                 the options of a policy cannot work, alone or together
    ├── CompactionError             the conversation could not be compacted; nothing of it has changed
    ├── ModelError                  a structured failure of a model request
    │   └── InvalidPreparedCallError
    ├── TooManyFactsError           the guards of a phase read more facts than can be tried out
    ├── SimulationError             a simulated run cannot go on, or was not possible
    ├── HookFactoryError            what should make hooks for a check does not
    ├── HookCheckError              a scenario in which checked hooks break a rule; also an AssertionError
    ├── CoverageError               a check did not reach what was asked for; also an AssertionError
    └── StoreCheckError             a store does what it must not; also an AssertionError

Each says who, what, where and what would have worked: in words, and in attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.vocabulary.failures import CancelCause, Failure


class LifecycleError(Exception):
    """The root of the tree."""


class DefinitionError(LifecycleError):
    """A lifecycle, its facts or its performers are declared wrongly. Raised at import."""


class IllegalTransitionError(LifecycleError):
    """`machine` in `phase` does not take `event` with the facts given; `legal` lists what it takes."""

    def __init__(self, machine: str, phase: str, event: str, legal: Iterable[str]) -> None:
        self.machine, self.phase, self.event, self.legal = machine, phase, event, tuple(legal)
        super().__init__(machine, phase, event, self.legal)

    def __str__(self) -> str:
        takes = ", ".join(self.legal) or "nothing: it is final"
        return f"{self.machine} cannot take {self.event!r} in phase {self.phase!r}, which takes {takes}"


class DivergenceError(LifecycleError):
    """A live session was about to record what its lifecycle cannot have made; nothing was appended.

    `event` is its wire name, empty where the agent was left too early, and `seq` the number that it would have had;
    `phases` says where the run was, `expected` what would have been legal there, and `before` which records came last.
    """

    def __init__(
        self,
        event: str,
        seq: int,
        reason: str,
        phases: Iterable[str],
        expected: Iterable[str],
        before: Iterable[str] = (),
    ) -> None:
        self.event, self.seq, self.reason = event, seq, reason
        self.phases, self.expected, self.before = tuple(phases), tuple(expected), tuple(before)
        where, legal = " or ".join(self.phases) or "nowhere", ", ".join(self.expected) or "nothing"
        told = f"; before it came {', '.join(self.before)}" if self.before else ""
        super().__init__(f"event {seq}: {reason}; the run was in {where}, where this is legal: {legal}{told}")


class HookError(LifecycleError):
    """Something is wrong with a hook."""


class UnknownHookPointError(HookError):
    """No hook point is called `name`; `legal` lists those that exist, `suggestion` is the one most like it."""

    def __init__(self, name: str, legal: Iterable[str]) -> None:
        from difflib import get_close_matches  # only a mistake pays for it

        self.name, self.legal = name, tuple(legal)
        self.suggestion = next(iter(get_close_matches(name, self.legal, 1)), None)
        meant = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        super().__init__(f"there is no hook point {name!r}{meant} (there are {', '.join(self.legal)})")


class HookRegistrationError(HookError):
    """`listener` cannot serve at `point`."""

    def __init__(self, point: str, listener: str, reason: str) -> None:
        self.point, self.listener = point, listener
        super().__init__(f"{listener} cannot listen at {point!r}: {reason}")


class IllegalVerdictError(HookError):
    """`listener` returned `verdict` at `point`, which allows only `legal`."""

    def __init__(self, point: str, listener: str, verdict: object, legal: Iterable[str]) -> None:
        self.point, self.listener, self.verdict, self.legal = point, listener, verdict, tuple(legal)
        super().__init__(
            f"{listener} returned {verdict!r} ({type(verdict).__name__}) at {point!r}, "
            f"which allows {' or '.join(self.legal)}"
        )


class IllegalPayloadError(HookError):
    """`listener` handed `next()` a payload with other `fields`; `point` lets it replace only `legal`."""

    def __init__(self, point: str, listener: str, fields: Iterable[str], legal: Iterable[str]) -> None:
        self.point, self.listener, self.fields, self.legal = point, listener, tuple(fields), tuple(legal)
        super().__init__(
            f"{listener} handed next() a payload with another {', '.join(self.fields)} at {point!r}, "
            f"which lets it replace {' and '.join(self.legal) or 'nothing'}"
        )


class NextCalledTwiceError(HookError):
    """`listener` called `next()` a second time within one dispatch of `point`."""

    def __init__(self, point: str, listener: str) -> None:
        self.point, self.listener = point, listener
        super().__init__(f"{listener} called next() twice at {point!r}; keep the first answer instead")


class HookOrderError(HookError):
    """Sets of hooks that were added up cannot all come where they say; `circle` names them, the first again last."""

    def __init__(self, circle: Iterable[str]) -> None:
        self.circle = tuple(circle)
        told = " before ".join(map(repr, self.circle))
        super().__init__(f"the hooks cannot be put in order: they say {told}; take one `before` or `after` back")


class NotJsonError(LifecycleError, TypeError):
    """The value at `path` cannot be carried by JSON without loss."""

    def __init__(self, where: str, path: str, reason: str) -> None:
        self.where, self.path, self.reason = where, path, reason
        super().__init__(f"{where}: {path or 'the value'} {reason}")


class SessionError(LifecycleError):
    """Something is wrong with a session or its store."""


class ReentrantAppendError(SessionError):
    """`refused` was appended from inside an observer of `during`."""

    def __init__(self, refused: str, during: str) -> None:
        self.refused, self.during = refused, during
        super().__init__(
            f"cannot append {refused!r} while {during!r} is being announced; append after the observer has returned"
        )


class SurfaceError(SessionError):
    """An operation on the surface that its rules forbid."""


class SessionClosedError(SessionError):
    """The session was closed."""


class SessionNotFoundError(SessionError):
    """The store holds no session of that id."""


class SessionExistsError(SessionError):
    """The store already holds a session of that id."""


class SessionLockedError(SessionError):
    """Another writer holds the session."""


class SessionHasChildrenError(SessionError):
    """Session `id` is not deleted, because `children` descend from it."""

    def __init__(self, id: str, children: Iterable[str]) -> None:
        self.id, self.children = id, tuple(children)
        super().__init__(f"session {id!r} has children: {', '.join(map(repr, self.children))}; delete them first")


class SessionFormatError(SessionError):
    """What was read is not a session of ours, or is not whole."""


class LogFormatError(SessionFormatError):
    """What was read as the log `name` is none, or is not whole; `line` is the number of the line, if it is one."""

    def __init__(self, name: str, line: int | None, reason: str) -> None:
        self.name, self.line, self.reason = name, line, reason
        super().__init__(f"{name}{'' if line is None else f', line {line}'}: {reason}")


class UnknownEventError(SessionFormatError):
    """An event of a type that nobody declared and that is not marked ignorable."""


class ForkError(SessionError):
    """A fork was asked for at a place where none is possible."""


class StoreError(SessionError):
    """The store itself failed; the message says where and what to do."""


class StoreBusyError(StoreError):
    """Another process was writing to the store for longer than we wait."""


class DuplicateMessageError(LifecycleError):
    """A message with `id` is already pending."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"message {id!r} is already pending; send a message with another id, or replace it")


class AgentBusyError(LifecycleError):
    """The agent is not idle; wait for `when_idle()`, unless you are what it waits for."""


class AgentDisposedError(LifecycleError):
    """The agent takes nothing any more, or not yet."""


class TurnCancelledError(LifecycleError):
    """The signal of the turn has fired; `cause` says why."""

    def __init__(self, cause: CancelCause) -> None:
        self.cause = cause
        super().__init__(f"the turn was cancelled by {cause.kind}")


class StrayCancellationError(LifecycleError):
    """A hook or an adapter awaited something that somebody else cancelled; it counts as its failure."""

    def __init__(self, cancelled: BaseException) -> None:
        self.__cause__ = cancelled
        super().__init__("something that was awaited here was cancelled, though the turn was not")


class RouteError(LifecycleError):
    """The call configuration names no provider or no model."""


class PromptError(LifecycleError):
    """The prompt cannot be assembled."""


class PolicyError(LifecycleError):
    """The options of a policy cannot work, alone or together. Raised where they are made, before anything runs."""


class CompactionError(LifecycleError):
    """The conversation could not be compacted; the surface is as it was."""


class ToolDefinitionError(LifecycleError):
    """A function cannot be made a tool."""


class WorkspaceError(LifecycleError):
    """The folder that the built-in tools are to work in is none."""


class ToolError(LifecycleError):
    """Raise it in a tool's body for an error result with a `code` of your own."""

    def __init__(self, message: str, code: str = "TOOL_FAILED") -> None:
        self.message, self.code = message, code
        super().__init__(message)


class ModelError(LifecycleError):
    """A structured failure of a model request; `failure` is copied into the turn's end."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class InvalidPreparedCallError(ModelError):
    """A prepared call was used twice, or with a configuration it was not prepared for."""


class TooManyFactsError(LifecycleError):
    """The guards of one phase read so many facts that their valuations cannot all be looked at."""


class SimulationError(LifecycleError):
    """A simulated run cannot go on: a task turns on the spot, or waits for something outside of the simulation."""


class HookFactoryError(LifecycleError):
    """The function or module that should make the hooks of a check does not; the sentence says why."""


class HookCheckError(LifecycleError, AssertionError):
    """Checked hooks break a rule in `scenario`, which is as small as the search could make it.

    Attributes:
        scenario: The run, as data (a `lifecycle.testing.Scenario`).
        contract: The rule that is broken, by name.
        reason: What is wrong, in one sentence.
        point: The hook point of the listener that did it; None if no listener can be named.
        listener: That listener's name; None likewise.
        moves: How many moves the outside world makes in the scenario.
        examples_tried: How many scenarios it took to find the first failing one.
        seed: What the search was begun with.
        fixture: The case as JSON text, for `lifecycle fuzz --replay`.
        program: The case as a small program.
        picture: The run as a Mermaid sequence diagram in which the listener is marked.
    """

    def __init__(
        self,
        reason: str,
        *,
        contract: str,
        point: str | None,
        listener: str | None,
        scenario: Any,
        moves: int,
        examples_tried: int,
        seed: int | None,
        fixture: str,
        program: str,
        picture: str,
    ) -> None:
        self.reason, self.contract, self.point, self.listener = reason, contract, point, listener
        self.scenario, self.moves, self.examples_tried, self.seed = scenario, moves, examples_tried, seed
        self.fixture, self.program, self.picture = fixture, program, picture
        super().__init__(reason)

    def __str__(self) -> str:
        found = "" if self.seed is None else f", found by example {self.examples_tried} of seed {self.seed}"
        return (
            f"{self.reason}\n({self.contract}{found})\n\n"
            f"Run it again:\n\n{self.program}\nor keep this as a file for `lifecycle fuzz --replay FILE`:\n\n"
            f"{self.fixture}\n\nWhat happened:\n\n{self.picture}"
        )


class CoverageError(LifecycleError, AssertionError):
    """A check did not reach what was asked for; `missing` names it."""

    def __init__(self, sentence: str, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(sentence)


class StoreCheckError(LifecycleError, AssertionError):
    """A store does what it must not: `check` is the name of the check, `what` says what it did."""

    def __init__(self, check: str, what: str) -> None:
        self.check, self.what = check, what
        super().__init__(f"the check {check!r} of stores failed: it {what}")
