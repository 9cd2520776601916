"""Scenarios as data: what the model answers, what comes from outside, and who does what at which place of a run.

A *place* is everything that a lifecycle calls, appends or waits for: every hook point, a preparation, each chunk, each
body, a maintenance task. What is to be done there is a verb, so that a scenario can be read and a failing one printed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

import anyio
import anyio.lowlevel

from lifecycle import (
    Accept,
    Agent,
    AgentOptions,
    Allow,
    Ask,
    Block,
    CallConfig,
    CancelSignal,
    Deny,
    Enter,
    HookCancel,
    Hooks,
    ParentCancel,
    PreparedCall,
    Prompt,
    Reject,
    Retry,
    Section,
    Session,
    Tool,
    ToolContext,
    ToolOutcome,
    UserCancel,
    tool,
    user_message,
)
from lifecycle.definition.machine import Lifecycle
from lifecycle.driver.programs import Programs
from lifecycle.errors import LifecycleError
from lifecycle.services.points import Mode
from lifecycle.testing import Reply
from lifecycle.vocabulary.chunks import Chunk, FinishKind
from lifecycle.vocabulary.events import EventData, Replace, UserMessageEvent
from lifecycle.vocabulary.failures import DISPOSED_CANCEL
from lifecycle.vocabulary.messages import text
from lifecycle.vocabulary.requests import Request
from lifecycle.vocabulary.values import FrozenDict

from .recording import BODY, Recording

MEANWHILE = "meanwhile "
"""Before a verb: whoever is at the place waits, and another task does it."""
AFTER = " after next()"
UNVISITED = frozenset({"agent/created", "agent/session-start", "session/flush"})
"""Hook points at which a scenario does nothing: no input is taken yet, or nobody dispatches them."""

CANCELS: Mapping[str, Callable[[Agent], bool]] = {
    "cancel": lambda agent: agent.cancel(),
    "cancel, keeping": lambda agent: agent.cancel(UserCancel(), keep_inbox=True),
    "cancel by a hook": lambda agent: agent.cancel(HookCancel(reason="enough")),
    "cancel by a parent": lambda agent: agent.cancel(ParentCancel()),
    "cancel, disposed": lambda agent: agent.cancel(DISPOSED_CANCEL),
    "cancel, disposed, keeping": lambda agent: agent.cancel(DISPOSED_CANCEL, keep_inbox=True),
}
INPUTS: Mapping[str, Callable[[Agent], object]] = {
    "followup": lambda agent: agent.followup("next"),
    "steer": lambda agent: agent.steer("now"),
    "inject": lambda agent: agent.inject("by the way"),
    "queue": lambda agent: agent.followup(user_message("queued", id="queued")),
    "remove": lambda agent: agent.inbox.remove("queued"),
    "replace": lambda agent: agent.inbox.replace("queued", user_message("better", id="better")),
}
ANSWERS: Mapping[str, Mapping[str, Callable[[Any], object]]] = {
    "agent/pre-step": {
        "reject": lambda payload: Reject("no"),
        "empty": lambda payload: Enter(()),
        "rewrite": lambda payload: Enter((user_message("rewritten"), *payload.messages), starts_request_series=True),
    },
    "agent/request-error": {"retry": lambda payload: Retry()},
    "tools/pre-execute": {
        "deny": lambda payload: Deny("no"),
        "ask": lambda payload: Ask("sure?"),
        "spoil": lambda payload: Allow("no object"),
    },
    "tools/guard": {"deny": lambda payload: Deny("no")},
    "tools/execute": {"answer": lambda payload: ToolOutcome(text("made up"))},
    "tools/post-execute": {
        "block": lambda payload: Block("no"),
        "add": lambda payload: Accept(contexts=(user_message("see also"),)),
    },
}
"""What the listener of a point answers in the place of the rest."""
REPLIES: Mapping[str, Reply] = {
    "text": Reply(text=["o", "k"]),
    "look": Reply(text="so", calls=[("look", {"which": 1})]),
    "looks": Reply(calls=[("look", {"which": 1}), ("look", {"which": 2}), ("look", {"which": 3})]),
    "acts": Reply(calls=[("act", {}), ("look", {"which": 1}), ("act", {})]),
    "unknown": Reply(calls=[("nothing", {})]),
    "unfit": Reply(calls=[("look", {"which": "none"})]),
    "fail": Reply.failure("OVERLOADED", text="par"),
    "pause": Reply(text="wait", finish=FinishKind.PAUSE),
    "max": Reply(text="cut", finish=FinishKind.MAX_TOKENS),
    "empty": Reply(),
}

Deeds: TypeAlias = Mapping[tuple[str, int], str]
"""Verbs by the place, and by how often the run came by it before."""


class Fault(Exception):
    """What a scenario raises."""


class Interrupt(BaseException):
    """What ends a process, as a Ctrl-C does."""


class Noticed(EventData, frozen=True):
    """An event of a tool's own."""

    type: ClassVar[str] = "tests.pictures/noticed"


@dataclass(frozen=True)
class Scenario:
    """What happens. `rounds` are verbs from outside; between two of them the agent comes to rest.

    Args:
        leaves: The last round is not waited for: the context is left while it runs.
        limit: How many bodies may overlap.
    """

    rounds: tuple[tuple[str, ...], ...] = (("followup",),)
    replies: tuple[str, ...] = ()
    deeds: Deeds = field(default_factory=dict[tuple[str, int], str])
    leaves: bool = False
    limit: int = 10


@dataclass(eq=False, repr=False)
class Play:
    """One run of a scenario."""

    scenario: Scenario
    agent: Agent = field(init=False)
    recording: Recording = field(init=False)
    done: list[str] = field(default_factory=list[str])
    """The verbs that were really done."""
    _times: Counter[str] = field(default_factory=Counter[str])
    _asked: int = 0
    _alone: bool = False
    """No task is left that could do anything meanwhile."""

    async def run(self, lifecycle: type[Lifecycle], programs: Programs, seconds: float = 5) -> None:
        """Run it, and record it."""
        self.agent = Agent(
            self,
            tools=self._tools(),
            hooks=self._hooks(),
            session=Session.memory(),
            options=AgentOptions(
                system=Prompt([Section("who", "be brief")], contexts=[Section("where", "here")]),
                approve=self._approve,
                max_parallel_tools=self.scenario.limit,
            ),
        )
        self.recording = Recording(self.agent, lifecycle, programs)
        with anyio.fail_after(seconds), anyio.CancelScope() as self._host, quiet():
            try:
                async with self.agent, anyio.create_task_group() as self._outside:
                    try:
                        await self._rounds()
                    finally:
                        self._alone = True
                    self._outside.cancel_scope.cancel()
            except BaseException as error:
                if not _only_interrupts(error):
                    raise

    async def _rounds(self) -> None:
        for n, verbs in enumerate(self.scenario.rounds, 1):
            for verb in verbs:
                await self._from_outside(verb)
            if n < len(self.scenario.rounds) or not self.scenario.leaves:
                await self.agent.when_idle()

    async def _from_outside(self, verb: str) -> None:
        if verb == "maintain":
            with suppress(Fault, LifecycleError):
                await self.agent.run_maintenance(self._maintenance)
        elif verb == "wait":
            await anyio.wait_all_tasks_blocked()
        else:
            with suppress(Fault):
                self._do(verb)

    async def _maintenance(self, signal: CancelSignal) -> None:
        await self._wait_at("maintenance")

    # -- doing --------------------------------------------------------------------------------------------------------

    def _due(self, place: str) -> str:
        nth = self._times[place]
        self._times[place] += 1
        return self.scenario.deeds.get((place, nth), "")

    def _do(self, verbs: str) -> None:
        """Do verbs, with `and` between them."""
        for verb in verbs.split(" and "):
            self.done.append(verb)
            if verb == "raise":
                raise Fault
            if verb == "interrupt":
                raise Interrupt
            if verb == "cancel of the host":
                self._host.cancel()
            elif verb in CANCELS:
                CANCELS[verb](self.agent)
            elif verb in INPUTS:
                with suppress(LifecycleError):
                    INPUTS[verb](self.agent)
            elif verb == "forget":
                self._forget()

    def _forget(self) -> None:
        """Put the newest input in the place of all that the surface holds."""
        session = self.agent.session
        nodes = list(session.surface.nodes)
        said = [node for node in session.surface.nodes.values() if isinstance(node.data, UserMessageEvent)]
        if said and session.appending is None:
            data = said[-1].data
            with self.recording.unseen(), suppress(LifecycleError):
                session.append(data, surface=Replace(start=nodes[0], end=nodes[-1]), sources=nodes)

    def _at(self, place: str) -> str:
        """Come by a place where nobody can wait."""
        verbs = self._due(place).removeprefix(MEANWHILE)
        if verbs:
            self._do(verbs)
        return verbs

    async def _wait_at(self, place: str) -> str:
        """Come by a place where one can wait."""
        verbs = self._due(place)
        if verbs.startswith(MEANWHILE) and not self._alone:
            over = anyio.Event()
            self._outside.start_soon(self._meanwhile, verbs.removeprefix(MEANWHILE), over)
            await over.wait()
        elif verbs:
            self._do(verbs.removeprefix(MEANWHILE))
        return verbs

    async def _meanwhile(self, verbs: str, over: anyio.Event) -> None:
        try:
            await anyio.wait_all_tasks_blocked()
            with suppress(Fault):
                self._do(verbs)
        finally:  # the host may have cancelled this task
            over.set()

    # -- places -------------------------------------------------------------------------------------------------------

    def _hooks(self) -> Hooks:
        hooks = Hooks()
        for name, point in hooks.points.items():
            if name in UNVISITED:
                continue
            if point.mode is Mode.WATERFALL:
                hooks.listen(name, self._rewrap if name == "llm/stream" else self._wrapper(name))
            elif point.mode in (Mode.EMIT, Mode.VETO):
                hooks.listen(name, self._watcher(name))
            else:
                hooks.listen(name, self._asker(name))
        return hooks

    def _watcher(self, name: str) -> Callable[[Any], None]:
        def watch(payload: Any) -> None:
            self._at(f"{name} {payload.event.type}" if hasattr(payload, "event") else name)

        return watch

    def _asker(self, name: str) -> Callable[[Any], Any]:
        async def ask(payload: Any) -> object:
            return _answer(name, await self._wait_at(name), payload)

        return ask

    def _wrapper(self, name: str) -> Callable[..., Any]:
        async def wrap(payload: Any, next: Callable[[], Any]) -> Any:
            answer = _answer(name, await self._wait_at(name), payload)
            if answer is None:
                answer = await next()
            await self._wait_at(name + AFTER)
            return answer

        return wrap

    async def _rewrap(self, payload: Any, next: Callable[[], Any]) -> AsyncIterator[Chunk]:
        await self._wait_at("llm/stream")
        return self._rechunk(await next())

    async def _rechunk(self, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        async for chunk in chunks:
            await self._wait_at("wrapped chunk")
            yield chunk

    async def _approve(self, payload: object, reason: str) -> bool:
        return await self._wait_at("approve") != "refuse"

    def _tools(self) -> list[Tool]:
        async def body(context: ToolContext) -> str:
            self.recording.note(BODY)
            verbs = await self._wait_at("body")
            for verb in verbs.removeprefix(MEANWHILE).split(" and "):
                match verb:
                    case "own":
                        context.append(Noticed())
                    case "defer":
                        context.defer("noticed")
                    case "conclude":
                        context.conclude()
                    case _:
                        pass
            await anyio.lowlevel.checkpoint()
            return "done"

        @tool(parallel=True)
        async def look(context: ToolContext, which: int) -> str:
            """Look."""
            return await body(context)

        @tool
        async def act(context: ToolContext) -> str:
            """Act."""
            return await body(context)

        return [_Checked(look, self._at), _Checked(act, self._at)]

    # -- the model ----------------------------------------------------------------------------------------------------

    provider = "scripted"
    model = "script-1"

    async def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        await self._wait_at("prepare")
        return PreparedCall(config, self._open)

    def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        self._at("open")
        replies = self.scenario.replies
        reply = REPLIES[replies[self._asked] if self._asked < len(replies) else "text"]
        self._asked += 1
        return self._stream(reply.chunks(self._asked))

    async def _stream(self, chunks: tuple[Chunk, ...]) -> AsyncGenerator[Chunk]:
        for chunk in chunks:
            await self._wait_at("chunk")
            yield chunk


class _Checked(Tool):
    """A tool at whose check of the arguments a scenario can do something."""

    __slots__ = ("_at", "_made")

    def __init__(self, made: Tool, at: Callable[[str], str]) -> None:
        super().__init__(made.spec, made.function, parallel=made.parallel)
        self._made, self._at = made, at

    def validate(self, arguments: FrozenDict | str) -> Mapping[str, Any] | ToolOutcome:
        self._at("check")
        return self._made.validate(arguments)

    async def run(self, kwargs: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await self._made.run(kwargs, context)


def _answer(point: str, verbs: str, payload: Any) -> object:
    answers = ANSWERS.get(point, {})
    made = [answers[verb](payload) for verb in verbs.removeprefix(MEANWHILE).split(" and ") if verb in answers]
    return made[-1] if made else None


def _only_interrupts(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(_only_interrupts(inner) for inner in group.exceptions)
    return isinstance(error, Interrupt)


@contextmanager
def quiet() -> Generator[None]:
    """What a scenario raises on purpose is logged by whoever contains it, and would drown a real failure."""
    log = logging.getLogger("lifecycle")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
