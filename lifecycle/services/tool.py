"""A tool: a function that a model can call, what its body is handed, and how it is run to its end.

Knows nothing of hooks and of the order in which calls run; that is the pipeline's and the scheduler's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from typing import Any, Literal, TypeAlias

import anyio
from pydantic import ValidationError

from lifecycle.errors import ToolDefinitionError, ToolError
from lifecycle.vocabulary.events import Event, EventData
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import ToolCallBlock, UserMessage, user_message
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import FrozenDict, mend

from .callables import is_async, is_async_generator, is_generator, name_of
from .cancellation import failure_in
from .points import AgentHandle, ToolOutcome
from .results import error_outcome, outcome_of, thaw
from .schema import Check
from .signal import CancelSignal

Parallel: TypeAlias = bool | Callable[[FrozenDict], object]
"""Whether a call may run beside others: always, never, or a function of its arguments that returns exactly True."""
When: TypeAlias = Callable[[AgentHandle], bool]
"""Whether the tool is offered in a step; it may read `agent.step`."""
Replay: TypeAlias = Literal["never", "safe"]
"""What becomes of a call whose process was lost while it ran: never again, or run once more, which is harmless."""

Recover: TypeAlias = "Callable[[ToolContext], Any]"
"""What came of a call, as its body would have returned it, or None if that cannot be said; it may be async."""

_logger = logging.getLogger("lifecycle")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(slots=True)
class ToolContext:
    """What a tool's body may know and do besides its arguments. A parameter annotated with it is handed it.

    Its methods may be called from the worker thread of a plain function. The agent's own may not; there, use
    `anyio.from_thread`.
    """

    agent: AgentHandle
    call: ToolCallBlock
    signal: CancelSignal
    seq: int = 0
    """Of the call's record in the log."""
    deferred: list[UserMessage] = field(default_factory=lambda: [], init=False)
    concludes: bool = field(default=False, init=False)
    _thread: int = field(default_factory=get_ident, init=False, repr=False)

    @property
    def key(self) -> str:
        """Names this call among all, the same one if it is replayed after a crash: an idempotency key for services.

        In a store with `durability="none"` a crash may lose the call's record, and a later call then gets its key.
        """
        return f"{self.agent.session.id}:{self.seq}"

    def defer(self, message: UserMessage | str) -> None:
        """Give the model `message` in the next step, after all results of this one (TLS-13)."""
        if isinstance(message, str):
            source = FrozenDict(kind="tool", tool=mend(self.call.name), callId=mend(self.call.id))
            message = user_message(mend(message), source=source)
        self.deferred.append(message)

    def conclude(self) -> None:
        """Ask to end the turn after this step, if the call succeeds (TLS-12)."""
        self.concludes = True

    def append(self, data: EventData, *, ignorable: bool = True) -> Event:
        """Record an event of the tool's own in the agent's session.

        Unlike the session's own default it is `ignorable`, so that the log can be read without the tool's package.
        """
        append = partial(self.agent.session.append, data, ignorable=ignorable)
        if get_ident() == self._thread:
            return append()
        return anyio.from_thread.run_sync(append)


class Tool:
    """A function that a model can call. Made by `tool`; made by hand for a tool that is described elsewhere.

    Args:
        spec: What the model is told. Its schema is not checked again if `check` is given.
        body: Called with the keyword arguments, and the context under the name `context` if that is not None.
        check: Turns a JSON object into keyword arguments, or raises pydantic.ValidationError; None takes the object
            as it is, and leaves it to the body to refuse it with a ToolError of code INVALID_ARGUMENTS.
        context: The name of the parameter that is handed the context.
        parallel: See `Parallel`.
        when: See `When`; None is always.
        replay: See `Replay`.
        recover: Finds out what came of a call whose process was lost while it ran; see `tool`.
    """

    __slots__ = ("_check", "_context", "function", "is_async", "parallel", "recover", "replay", "spec", "when")

    def __init__(
        self,
        spec: ToolSpec,
        body: Callable[..., Any],
        *,
        check: Check | None = None,
        context: str | None = None,
        parallel: Parallel = False,
        when: When | None = None,
        replay: Replay = "never",
        recover: Recover | None = None,
    ) -> None:
        if not _NAME.fullmatch(spec.name):
            raise ToolDefinitionError(
                f"{name_of(body)}: {spec.name!r} cannot be a tool's name; give it one of letters, digits, '_', '.' and "
                "'-', at most 128"
            )
        if is_generator(body) or is_async_generator(body):
            raise ToolDefinitionError(f"{name_of(body)} is a generator; collect what it yields and return that")
        for asked in (parallel, when):
            if is_async(asked):
                raise ToolDefinitionError(f"{name_of(asked)} of the tool {spec.name} is async, but nobody waits for it")
        if replay not in ("never", "safe"):
            raise ToolDefinitionError(f"the tool {spec.name} has replay={replay!r}; it is 'never' or 'safe'")
        self.spec, self.function, self.parallel, self.when = spec, body, parallel, when
        self.replay, self.recover = replay, recover
        self._check, self._context, self.is_async = check, context, is_async(body)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def description(self) -> str:
        return self.spec.description

    def __repr__(self) -> str:
        return f"<Tool {self.name} of {name_of(self.function)}>"

    def validate(self, arguments: FrozenDict | str) -> Mapping[str, Any] | ToolOutcome:
        """Keyword arguments for `run`; or the error INVALID_ARGUMENTS, which tells the model what is wrong."""
        if isinstance(arguments, str):
            return error_outcome("INVALID_ARGUMENTS", f"{self.name}: the arguments are not a JSON object")
        thawed = {name: thaw(value) for name, value in arguments.items()}
        if self._check is None:
            return thawed
        try:
            return self._check(thawed)
        except ValidationError as wrong:
            told = "; ".join(_told(error) for error in wrong.errors(include_url=False, include_context=False))
            return error_outcome("INVALID_ARGUMENTS", f"{self.name}: {told}")
        except Exception as wrong:  # a validator of the tool's own
            return error_outcome("INVALID_ARGUMENTS", f"{self.name}: {render_chain(wrong)}", type(wrong).__name__)

    async def run(self, kwargs: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Run the body to its end, a plain function in a worker thread; the context's signal cancels it.

        Never raises an Exception: what the body raises is an error outcome (a ToolError's code, else TOOL_FAILED with
        the exception's name; `SystemExit` too). Once the signal has fired, a success becomes ABORTED, or
        ABORTED_BEFORE_DISPATCH if the body never began; a failure of its own stays (TLP-04). What the body deferred
        is kept, also if it fails. Cancellation of a scope around it is raised.
        """
        if context.signal.fired:
            return self._aborted(began=False)
        begun = _Begun(self.function, self._with(kwargs, context))
        outcome: ToolOutcome | None = None
        with context.signal.scope():
            outcome = await self._outcome(begun if self.is_async else partial(anyio.to_thread.run_sync, begun), {})
        return self._concluded(outcome, context, began=begun.began)

    async def run_uncut(self, kwargs: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """`run` of an async body, whose caller cancels it when the signal fires. `cut` then makes its outcome."""
        outcome = await self._outcome(self.function, self._with(kwargs, context))
        return self._concluded(outcome, context, began=True)

    def cut(self, context: ToolContext) -> ToolOutcome:
        """The outcome of a body that was cancelled."""
        return self._concluded(None, context, began=True)

    def _with(self, kwargs: Mapping[str, Any], context: ToolContext) -> Mapping[str, Any]:
        return kwargs if self._context is None else {**kwargs, self._context: context}

    async def _outcome(self, begin: Callable[..., Awaitable[Any]], kwargs: Mapping[str, Any]) -> ToolOutcome:
        try:
            return outcome_of(await begin(**kwargs), self.spec.name)
        except ToolError as error:
            return error_outcome(error.code, error.message or error.code, type(error).__name__)
        except SystemExit as error:
            return _failed(error)
        except BaseException as error:
            failure = failure_in(error)
            if failure is None:
                raise
            return _failed(failure)

    def _concluded(self, outcome: ToolOutcome | None, context: ToolContext, *, began: bool) -> ToolOutcome:
        """The outcome with what the context asked for; None where the body was cancelled."""
        if outcome is None or (context.signal.fired and outcome.error is None):
            outcome = self._aborted(began=began)
        if context.deferred or context.concludes:
            return replace(
                outcome,
                contexts=(*context.deferred, *outcome.contexts),
                conclude=outcome.conclude or context.concludes,
            )
        return outcome

    async def recovered(self, context: ToolContext) -> ToolOutcome | None:
        """What `recover` finds out about a call whose process was lost; None if it cannot say, or fails."""
        assert self.recover is not None
        try:
            with context.signal.scope():
                if is_async(self.recover):
                    returned = await self.recover(context)
                else:
                    returned = await anyio.to_thread.run_sync(self.recover, context)
                return None if returned is None else outcome_of(returned, self.name)
        except ToolError as error:
            return error_outcome(error.code, error.message or error.code, type(error).__name__)
        except Exception:
            _logger.exception("%s could not find out what came of call %r", name_of(self.recover), context.call.id)
        return None

    def _aborted(self, *, began: bool) -> ToolOutcome:
        if began:
            return error_outcome("ABORTED", f"{self.name} was stopped: the turn was cancelled")
        return error_outcome("ABORTED_BEFORE_DISPATCH", f"{self.name} did not run: the turn was cancelled")


class _Begun:
    """A call of a body that knows whether it began: a worker thread may be cancelled while it waits for its turn."""

    __slots__ = ("_function", "_kwargs", "began")

    def __init__(self, function: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        self._function, self._kwargs, self.began = function, kwargs, False

    def __call__(self) -> Any:
        self.began = True
        return self._function(**self._kwargs)


def _failed(error: BaseException) -> ToolOutcome:
    return error_outcome("TOOL_FAILED", render_chain(error), type(error).__name__)


def _told(error: Any) -> str:
    """One thing that is wrong with arguments, as a model can mend it."""
    path = ".".join(str(part) for part in error["loc"])
    what = "there is no such argument" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{path}: {what}" if path else str(what)
