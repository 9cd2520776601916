"""The agent: the public handle of one session's lifecycle."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast, get_args

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from lifecycle.errors import AgentBusyError, AgentDisposedError, DuplicateMessageError, IllegalTransitionError
from lifecycle.services.cancellation import this_task
from lifecycle.services.hooks import Hooks, tell
from lifecycle.services.model import Model, Models
from lifecycle.services.points import EventPayload, Payload, SessionStartPayload
from lifecycle.services.prompt import Prompt
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, ToolRegistry
from lifecycle.session.log import Session
from lifecycle.session.store import Store
from lifecycle.vocabulary.events import Event, InboxTarget
from lifecycle.vocabulary.failures import DISPOSED_CANCEL, USER_CANCEL, CancelCause
from lifecycle.vocabulary.messages import Block, UserMessage, user_message
from lifecycle.vocabulary.requests import ModelSelection
from lifecycle.vocabulary.values import trusted

from .activity import Activity
from .feed import MOST, EventStream, Feeds
from .inbox import PendingInbox
from .monitor import Monitor, by_default
from .options import AgentOptions
from .performers.agent import announce_recorded
from .performers.hooked import check_point
from .programs import programs
from .recovery import recover
from .runs import AgentRun
from .walk import perform_now

log = logging.getLogger("lifecycle")

T = TypeVar("T")
_payload = trusted(EventPayload)
_CAUSES: tuple[type, ...] = get_args(get_args(CancelCause)[0])
_USUAL = AgentOptions()
Input = str | UserMessage | Iterable[Block]


class Agent:
    """One agent on one session. Use it as an async context manager; it runs under asyncio and trio.

    Args:
        model: The adapter, or several by provider name.
        route: The default selection, or `provider/model`; needed where there are several adapters, unless a listener of
            `agent/model` chooses for each step.
        tools: What the model may call.
        hooks: The listeners of this agent.
        session: The log to work on; a fresh one in memory if left out. It is closed with the agent. If a lost process
            has left a turn open in it, that turn is repaired when the agent is entered, as `resume` says.
        options: What is told once.
        task_group: A nursery of the host's, to work in instead of one of the agent's own (which is dearer).
        monitor: Whether the definition watches every append: one that no run of the lifecycle makes then raises
            DivergenceError, and nothing is appended. Where that is contained, leaving the context raises it. By
            default only where the environment has LIFECYCLE_MONITOR=1, which the pytest plug-in sets.

    Raises:
        TypeError: if the model is no adapter, or another argument is not of its kind. Tools, prompt and route raise as
            they do by themselves.

    Leaving the context cancels the open turn (`disposed`), waits for it to settle, flushes and closes the session.
    """

    def __init__(
        self,
        model: Model | Mapping[str, Model],
        *,
        route: ModelSelection | str | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        hooks: Hooks | None = None,
        session: Session | None = None,
        options: AgentOptions | None = None,
        task_group: TaskGroup | None = None,
        monitor: bool | None = None,
    ) -> None:
        _expect("hooks", hooks, Hooks)
        _expect("session", session, Session)
        _expect("options", options, AgentOptions)
        options = options or _USUAL
        models = Models(model, route)
        if options.effort is not None and models.selection.effort is None:
            models.selection = models.selection.model_copy(update={"effort": options.effort})
        program, call_program, points = programs(options.lifecycle, options.performers)
        hooks = hooks or Hooks()
        for point, payload in points.items():  # an error now, not in the middle of a turn
            hooks.listeners(point)  # known?
            check_point(hooks.points[point], payload)
        self._run = AgentRun(
            handle=self,
            program=program,
            call_program=call_program,
            session=session or Session.memory(),
            hooks=hooks,
            models=models,
            tools=ToolRegistry(tools, options.tool_order),
            prompt=Prompt.of(options.system),
            options=options,
            feeds=Feeds(),
        )
        self._activity = Activity(self._run)
        self._lent = task_group
        self._stack: AsyncExitStack | None = None
        self._unhook: tuple[Callable[[], None], ...] = ()
        self._monitored = by_default() if monitor is None else monitor
        self._monitor: Monitor | None = None

    def __repr__(self) -> str:
        return f"<Agent {self._run.session.id} {self._run.phase}>"

    # -- entering and leaving ------------------------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def resume(
        cls,
        store: Store,
        id: str,
        model: Model | Mapping[str, Model],
        *,
        route: ModelSelection | str | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        hooks: Hooks | None = None,
        options: AgentOptions | None = None,
        task_group: TaskGroup | None = None,
        monitor: bool | None = None,
    ) -> AsyncGenerator[Self]:
        """An agent that goes on with a stored session, entered: `async with Agent.resume(store, id, model) as agent`.

        A turn that a lost process has left open is closed as `interrupted` before anything else: calls that ran then
        are recovered as their tools say, and what had been claimed and not used waits again. Input that waits is taken
        up by the next wake. The other arguments are those of `Agent`.

        But a turn goes on by itself that is parked: the approver of `options` was asked about a call, and the process
        was lost before it answered. It is asked again, and the rest of the turn follows from its answer.

        Raises:
            SessionNotFoundError: if the store has no such session.
            SessionLockedError: if somebody works on it.
            SessionFormatError: if what is kept is no session of ours, or not whole.
            StoreError: if the store cannot be read or written.
        """
        async with await store.open(id) as session:
            agent = cls(
                model,
                route=route,
                tools=tools,
                hooks=hooks,
                session=session,
                options=options,
                task_group=task_group,
                monitor=monitor,
            )
            async with agent:
                yield agent

    async def __aenter__(self) -> Self:
        run = self._run
        if run.tasks is not None or run.phase != "idle":
            raise AgentDisposedError(f"{self!r} was entered before; make a new Agent on the session instead")
        resumed = run.session.last_turn > 0
        run.session.occupy(self)
        try:
            deferred = await recover(run) if run.session.open_turn is not None else ()
            self._listen()
            if run.hooks.chains["agent/created"]:
                run.hooks.emit("agent/created", Payload(self))
        except BaseException:
            self._unlisten()
            raise
        if self._lent is not None:
            run.tasks = self._lent
        else:
            self._stack = AsyncExitStack()
            run.tasks = await self._stack.enter_async_context(anyio.create_task_group())
        run.tell("agent/session-start", SessionStartPayload, "resume" if resumed else "new")
        for message in deferred:
            with suppress(DuplicateMessageError):  # it waits there already
                self.inject(message)
        if run.parked is not None:
            self._activity.take("resume")
        return self

    def _listen(self) -> None:
        run = self._run
        if self._monitored:  # before all others, so that it knows what they refuse
            self._monitor = Monitor(run.session, run.options.lifecycle)
            self._unhook = tuple(self._monitor.attach())
        self._unhook += (run.session.veto(self._veto), run.session.observe(self._observe))

    def _veto(self, event: Event) -> None:
        hooks = self._run.hooks
        if hooks.chains["session/append"]:
            hooks.veto("session/append", EventPayload(self, event))

    def _observe(self, event: Event) -> None:
        run = self._run
        hooks = run.hooks
        if heard := hooks.chains["session/event"]:
            tell(heard, hooks.points["session/event"], _payload(agent=self, event=event))
        if run.feeds.open:
            run.feeds.durable(event)

    def _unlisten(self) -> None:
        for remove in self._unhook:
            remove()
        self._unhook = ()
        self._run.session.vacate(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        run, suppressed = self._run, None
        cancelled = error if error is not None and isinstance(error, anyio.get_cancelled_exc_class()) else None
        try:
            cancelled = await self._dispose(cancelled)
        finally:
            try:
                if self._stack is not None:  # whatever else is raised passes as it is, in no group: all has settled
                    suppressed = await self._stack.__aexit__(
                        type(cancelled) if cancelled else None,
                        cancelled,
                        cancelled.__traceback__ if cancelled else None,
                    )
            finally:
                run.tasks = None
                if run.session.kept:
                    with anyio.CancelScope(shield=True):
                        await run.session.close()
                else:  # nothing to wait for
                    await run.session.close()
        if cancelled is not None and cancelled is not error and not suppressed:
            raise cancelled
        if self._monitor is not None and kind is None:
            self._monitor.settle()
        return suppressed

    async def _dispose(self, cancelled: BaseException | None) -> BaseException | None:
        """Settle and fall silent. `cancelled` is what the context is left with; returns that, or what came meanwhile.

        A cancellation reaches hooks too, also in tasks of a group that it does not reach by itself. Then it waits.
        """
        run = self._run
        self._need_life()
        run.leaving = run.disposing = True
        if not self._activity.resting:
            self.cancel(DISPOSED_CANCEL, keep_inbox=True)
        while not self._activity.resting:
            if cancelled is not None:
                run.interrupt()
            try:
                with anyio.CancelScope(shield=cancelled is not None):  # asyncio's own cancel heeds none, hence the loop
                    if run.drive is not None and not run.drive.live:  # and a task that it meets unbegun never begins
                        await self._activity.perform(run.drive)
                    await self.when_idle()
            except anyio.get_cancelled_exc_class() as late:
                cancelled = late
        perform_now(run.program, run, "dispose")
        run.feeds.close()
        self._unlisten()
        return cancelled

    # -- input ---------------------------------------------------------------------------------------------------

    def followup(self, content: Input) -> UserMessage:
        """Queue a prompt for a turn of its own and wake the driver (INB-01, INB-03).

        Returns the message that was queued, at once: an idle agent has opened the turn and claimed it by then.

        Raises:
            TypeError: if it is neither a text, nor a message, nor content blocks. Nothing was queued.
            NotJsonError: if the message is no lossless JSON. Nothing was queued.
            DuplicateMessageError: if a message of that id is pending. Nothing was queued.
            AgentDisposedError: outside the agent's context.
        """
        return self._send(content, "next-turn", wakeup=True)

    def steer(self, content: Input) -> UserMessage:
        """Add input to the open turn's next step, or else to the next turn's first one, and wake the driver.

        Raises as `followup`.
        """
        return self._send(content, "next-step", wakeup=True)

    def inject(self, content: Input) -> UserMessage:
        """Add context to the next step, whoever starts it; wakes nobody (INB-07). Raises as `followup`."""
        return self._send(content, "next-step", wakeup=False)

    def send(self, message: UserMessage, target: InboxTarget, *, wakeup: bool) -> None:
        """What the three verbs come to. Raises as `followup`."""
        self._send(message, target, wakeup=wakeup)

    def _send(self, content: Input, target: InboxTarget, *, wakeup: bool) -> UserMessage:
        run = self._run
        self._need_life()
        message = self._message(content)
        run.sending = (message, target)
        self._activity.take("submit" if wakeup else "stage")
        return message

    def _message(self, content: Input) -> UserMessage:
        if isinstance(content, UserMessage):
            return content
        try:
            return user_message(content, id=f"m{self._run.session.next_seq}")
        except (TypeError, ValidationError) as wrong:
            raise TypeError(
                f"{self!r} takes a text, a UserMessage or content blocks, "
                f"not this {type(content).__name__}: {content!r:.80}"
            ) from wrong

    def _need_life(self) -> None:
        if self._run.tasks is None:
            raise AgentDisposedError(f"{self!r} takes input only inside its context: async with Agent(...) as agent")

    # -- control -------------------------------------------------------------------------------------------------

    def cancel(self, cause: CancelCause = USER_CANCEL, *, keep_inbox: bool = False) -> bool:
        """Stop the open turn or the maintenance task, and discard pending input unless `keep_inbox` (group CAN).

        Returns at once; everything that runs is awaited to its end before the agent is idle. From inside an append
        nothing can be recorded: then what is pending is discarded as soon as that is over.

        Returns:
            Whether this call stops something: False if nothing runs, or was cancelled before, by whatever cause.

        Raises:
            TypeError: if `cause` is none of the causes. Nothing was cancelled.
            AgentDisposedError: outside the agent's context.
        """
        run = self._run
        self._need_life()
        if not isinstance(cast("object", cause), _CAUSES):
            raise TypeError(
                f"{self!r} is cancelled by UserCancel(), ParentCancel() or HookCancel(reason=...), not by {cause!r:.80}"
            )
        stops = run.phase != "idle" and not run.signal.fired
        if run.session.appending is not None and not keep_inbox:
            run.session.after_append(partial(self._cancel_again, cause))
            keep_inbox = True
        before = run.cancelling, run.keeping
        run.cancelling, run.keeping = run.cancelling or cause, keep_inbox  # a cancel within a cancel is the later one
        # To cancel an idle agent arms nothing (CAN-07), also for a wake by who is told of what it discards.
        run.disposing = run.leaving or (run.phase != "idle" and (run.disposing or cause == DISPOSED_CANCEL))
        try:
            self._activity.take("cancel")
        finally:
            run.cancelling, run.keeping = before
        self._activity.watch()
        return stops

    def _cancel_again(self, cause: CancelCause) -> None:
        """Discard what a cancel from inside an append had to leave (CAN-12)."""
        announce_recorded(self._run)
        if self._run.tasks is not None:
            self.cancel(cause)

    async def when_idle(self) -> None:
        """Wait until the current activity, and any that replaces it, has settled; never raises for a failed turn.

        Raises:
            AgentBusyError: if it is a hook or a tool of this agent that would wait: it is a part of what it waits for.
        """
        if self._run.workers and this_task() in self._run.workers:
            raise AgentBusyError(f"{self!r} is awaited by a hook or a tool of its own, which would wait for itself")
        await self._activity.wait()

    async def flush(self) -> bool:
        """Have everything kept that has happened: `session/flush` listeners first, all at once, then the session.

        Returns:
            Whether a listener took part.

        Raises:
            AgentDisposedError: outside the agent's context.
            StoreError: if the store cannot keep it. The events are still queued.
            Exception: the first failure of a listener, once all of them have ended (PST-01).
        """
        run = self._run
        self._need_life()
        taking_part = bool(run.hooks.chains["session/flush"])
        if taking_part:
            await run.hooks.parallel("session/flush", Payload(self))
        await run.session.flush()
        return taking_part

    async def run_maintenance(self, task: Callable[[CancelSignal], Awaitable[T]]) -> T:
        """Run a task while no turn can: it starts at once, in the caller's task, with a signal of its own (group MNT).

        The status stays idle; input that comes meanwhile waits, and is taken up afterwards.

        Raises:
            AgentBusyError: if the agent is not idle. The task was not started.
        """
        run = self._run
        self._need_life()
        try:
            perform_now(run.program, run, "maintain")
        except IllegalTransitionError as busy:
            raise AgentBusyError(f"{self!r} is not idle; await when_idle() before a maintenance task") from busy
        run.signal = CancelSignal()
        try:
            return await task(run.signal)
        finally:
            self._activity.take("maintained")
            self._activity.rest()

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Literal["idle", "running"]:
        """What was last told as `agent/status`; maintenance is idle."""
        return self._run.status

    @property
    def phase(self) -> str:
        """The phase of the agent, and of the open turn, step, if there is one: `running/stepping/requesting`."""
        run, turn = self._run, self._run.turn
        if run.drive is None or turn is None or run.phase not in ("running", "converging", "latched"):
            return run.phase
        return "/".join([run.phase, turn.phase, *([turn.step.phase] if turn.step is not None else [])])

    @property
    def step(self) -> ModelSelection | None:
        """The model selection of the proposed or open step, from its choice to the step's end; otherwise None."""
        turn = self._run.turn
        return None if turn is None or turn.step is None else turn.step.published

    @property
    def inbox(self) -> PendingInbox:
        """The pending input, to look at and to edit."""
        return PendingInbox(self._run, self._activity.take, self._need_life)

    @property
    def session(self) -> Session:
        """The log."""
        return self._run.session

    @property
    def hooks(self) -> Hooks:
        """The listeners of this agent."""
        return self._run.hooks

    @property
    def models(self) -> Models:
        """The adapters, and the default selection of the next step."""
        return self._run.models

    @property
    def tools(self) -> ToolRegistry:
        """The tools; a change counts from the next step on."""
        return self._run.tools

    def events(
        self, since: int | None = None, until: Literal["idle", "disposed"] = "idle", *, most: int = MOST
    ) -> EventStream:
        """Everything that happens from now on, durable and live, in order.

        Subscribes at the call: take it before `followup`. The stream ends after the next idle status, or with
        `until="disposed"` follows on; after the agent's end it ends at once. `since` first replays the durable events
        from that seq. At most `most` occurrences wait for a slow reader, who is told by a `Missed` of those that were
        let go of; the log has them.

        Raises:
            ValueError: if `until` is neither of the two, `since` is negative, or `most` is less than 1.
        """
        if since is not None and since < 0:
            raise ValueError(f"events are replayed since a seq, which is 0 or more, not since {since}")
        replay = () if since is None else self._run.session.events[since:]
        return EventStream(self._run.feeds, until, replay, most)


def _expect(name: str, given: object, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"Agent({name}=...) takes an object of the class {kind.__name__}, not {given!r:.80}")
