"""The actors of a simulated run: model, tools and hooks that do as their script says, and wait as the schedule says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from lifecycle.errors import AgentBusyError, LifecycleError, ToolError
from lifecycle.proof.simulation import Simulation
from lifecycle.services.hooks import Hooks
from lifecycle.services.model import PreparedCall, close_stream
from lifecycle.services.points import (
    POINTS,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Enter,
    Mode,
    PromptText,
    Reject,
    Retry,
    ToolOutcome,
)
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, ToolContext
from lifecycle.vocabulary.chunks import Chunk, TextDelta
from lifecycle.vocabulary.events import Event, Opaque, StepEnd
from lifecycle.vocabulary.failures import (
    DISPOSED_CANCEL,
    PARENT_CANCEL,
    USER_CANCEL,
    CancelCause,
    HookCancel,
)
from lifecycle.vocabulary.messages import text, text_of, user_message
from lifecycle.vocabulary.requests import CallConfig, Request, ToolSpec
from lifecycle.vocabulary.values import FrozenDict

from .models import Reply
from .scenario import Act, Answer, Cause, HookScript, Scenario, ToolScript

if TYPE_CHECKING:
    from lifecycle import Agent

CAUSES: dict[Cause, CancelCause] = {
    "user": USER_CANCEL,
    "parent": PARENT_CANCEL,
    "hook": HookCancel(reason="as scripted"),
    "disposed": DISPOSED_CANCEL,
}
OTHERWISE = Answer(text=("ok",))


class ScriptedFault(Exception):
    """What a scripted part raises."""


class EndlessError(BaseException):
    """Ends a run that goes on and on within one move, in which nothing waits that could be left waiting."""


MOST_RECORDS = 500
"""So many records within one move are made by what never ends."""


@dataclass(slots=True)
class Refusal:
    """Something that was asked of the agent, and what it raised."""

    move: int
    act: Act
    error: Exception


@dataclass
class Stage:
    """What the actors of one run share."""

    scenario: Scenario
    sim: Simulation
    agent: Agent = field(init=False)
    refusals: list[Refusal] = field(default_factory=lambda: [])
    vetoed: list[str] = field(default_factory=lambda: [])
    """The types of the events that a scripted veto prevented."""
    struck: list[HookScript] = field(default_factory=lambda: [])
    """The scripted hooks that have done what they do, in that order."""
    streaming: int = 0
    bodies: int = 0
    outlived: list[int] = field(default_factory=lambda: [])
    """The seqs of steps' ends that came while a body or a stream was open."""
    _moved: tuple[int, int] = (0, 0)
    """How many moves there were at the newest record, and the seq of the first record since that move."""

    def look_at(self, event: Event) -> None:
        """An observer of the log. Raises EndlessError where a move does not come to an end."""
        moves, since = self._moved
        if len(self.sim.moves) != moves:
            self._moved = len(self.sim.moves), event.seq
        elif event.seq - since > MOST_RECORDS:
            raise EndlessError(f"{event.seq - since} records after move {moves}")
        if isinstance(event.data, StepEnd) and (self.streaming or self.bodies):
            self.outlived.append(event.seq)

    def perform(self, act: Act) -> None:
        """Do something to the agent. What it refuses is noted, and nothing else."""
        try:
            self._perform(act)
        except Exception as refused:
            self.refusals.append(Refusal(len(self.sim.moves), act, refused))

    def _perform(self, act: Act) -> None:
        agent = self.agent
        match act.verb:
            case "followup":
                agent.followup(act.text)
            case "steer":
                agent.steer(act.text)
            case "inject":
                agent.inject(act.text)
            case "cancel":
                agent.cancel(CAUSES[act.cause], keep_inbox=act.keep_inbox)
            case "remove" | "replace":
                pending = (*agent.inbox.next_step, *agent.inbox.next_turn)
                if pending and act.verb == "remove":
                    agent.inbox.remove(pending[0].id)
                elif pending:
                    agent.inbox.replace(pending[0].id, user_message(act.text, id=f"e{agent.session.next_seq}"))
            case "maintain" | "dispose" | "abandon":
                raise LifecycleError(f"only the outside world can {act.verb}")

    async def maintain(self, act: Act) -> None:
        """Run a maintenance task."""

        async def task(signal: CancelSignal) -> None:
            for _ in range(act.lasts):
                await self.sim.pause("maintenance")
                if signal.fired:
                    return

        try:
            await self.agent.run_maintenance(task)
        except AgentBusyError as busy:
            self.refusals.append(Refusal(len(self.sim.moves), act, busy))
        except LifecycleError as refused:
            self.refusals.append(Refusal(len(self.sim.moves), act, refused))


# -- the model ----------------------------------------------------------------------------------------------------


class SimulatedModel:
    """Answers as the scenario says. Every chunk, and a preparation that comes later, waits for the schedule."""

    provider = "scripted"
    model = "script-1"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._prepared = 0
        self._opened = 0

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall | Awaitable[PreparedCall]:
        scenario, n = self._stage.scenario, self._prepared
        self._prepared += 1
        how = scenario.preparing[n] if n < len(scenario.preparing) else "now"
        if how == "raise":
            raise ScriptedFault(f"preparation {n + 1} fails")
        made = PreparedCall(config, self._open, system_update=scenario.system_update)
        return self._later(made, n + 1) if how == "later" else made

    async def _later(self, made: PreparedCall, n: int) -> PreparedCall:
        await self._stage.sim.pause(f"preparation {n}")
        return made

    def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        self._opened += 1
        answers = self._stage.scenario.answers
        return self._stream(answers[self._opened - 1] if self._opened <= len(answers) else OTHERWISE, self._opened)

    async def _stream(self, answer: Answer, n: int) -> AsyncGenerator[Chunk]:
        stage, whole = self._stage, False
        stage.streaming += 1
        try:
            for at, chunk in enumerate(chunks_of(answer, n)):
                await stage.sim.pause(f"request {n} chunk {at}")
                if at == answer.breaks_at:
                    raise ScriptedFault(f"request {n} breaks")
                if at == answer.ends_at:
                    break
                yield chunk
            whole = True
        finally:
            try:
                if not whole and answer.lingers:
                    with anyio.CancelScope(shield=True):
                        for _ in range(answer.lingers):
                            await stage.sim.pause(f"request {n} closes")
            finally:
                stage.streaming -= 1


def chunks_of(answer: Answer, request: int) -> tuple[Chunk, ...]:
    """All chunks of an answer to the request of this number."""
    reply = Reply(
        text=answer.text,
        reasoning=answer.reasoning,
        calls=[(call.tool, call.arguments, call.id or f"call-{request}-{n}") for n, call in enumerate(answer.calls, 1)],
        usage=answer.usage,
        finish=answer.finish,
        error=answer.failure,
    )
    return reply.chunks(request)


# -- the tools ----------------------------------------------------------------------------------------------------

ANY_OBJECT = FrozenDict(type="object")


def tool_of(script: ToolScript, stage: Stage) -> Tool:
    """The tool that a script describes. Its body begins, works and ends as the schedule says."""
    sim = stage.sim

    async def body(*, context: ToolContext, **arguments: object) -> str:
        call, through = context.call.id, False
        stage.bodies += 1
        try:
            for n in range(script.lasts):
                await sim.pause(f"{call} {'works' if n else 'begins'}")
            through = True
        finally:
            try:
                if not through and script.lingers:
                    with anyio.CancelScope(shield=True):
                        for _ in range(script.lingers):
                            await sim.pause(f"{call} lingers")
            finally:
                stage.bodies -= 1
        for n in range(script.records):
            context.append(Opaque(name="scripted/progress", payload=FrozenDict(callId=call, n=n)))
        for n, said in enumerate(script.defers, 1):
            context.defer(user_message(said, id=f"{call}-context-{n}", source={"kind": "tool", "callId": call}))
        for act in script.does:
            stage.perform(act)
        if script.concludes:
            context.conclude()
        if script.raises is not None:
            raise ScriptedFault(script.raises) if script.code is None else ToolError(script.raises, script.code)
        return script.answer

    spec = ToolSpec(name=script.name, description="Does as the scenario says.", input_schema=ANY_OBJECT)
    return Tool(spec, body, context="context", parallel=script.parallel)


# -- the hooks ----------------------------------------------------------------------------------------------------


def scripted_hooks(stage: Stage, points: Hooks) -> Hooks:
    """The listeners that the scenario scripts, in a registry of the same points."""
    hooks = Hooks(points=points.points)
    for n, script in enumerate(stage.scenario.hooks):
        hooks.listen(script.point, _listener(script, stage, f"hook {n} at {script.point}"))
    return hooks


def gates(stage: Stage, points: Hooks) -> tuple[Hooks, Hooks]:
    """Two registries to put before and behind listeners of `tools/execute`: they let calls begin and end one by one.

    Calls run side by side, and so do the listeners around them; what those do must not depend on the backend.
    """
    before, behind = Hooks(points=points.points), Hooks(points=points.points)

    async def begin(payload: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        await stage.sim.pause(f"{payload.call.id} is executed")
        return await next()

    async def end(payload: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        outcome = await next()
        await stage.sim.pause(f"{payload.call.id} was executed")
        return outcome

    before.listen("tools/execute", begin)
    behind.listen("tools/execute", end)
    return before, behind


def _listener(script: HookScript, stage: Stage, name: str) -> Callable[..., Any]:
    times = 0

    def due(payload: Any) -> bool:
        nonlocal times
        if script.event is not None and payload.event.type != script.event:
            return False
        times += 1
        return script.nth in (0, times)

    async def wait() -> None:
        if script.does == "slow":
            for _ in range(script.lasts):
                await stage.sim.pause(name)
        elif script.does == "sleep":
            await anyio.sleep(script.seconds)

    def strike(payload: Any) -> None:
        stage.struck.append(script)
        if script.does == "raise":
            if script.point == "session/append":
                stage.vetoed.append(payload.event.type)
            raise ScriptedFault(f"{name} raises")
        for act in script.acts if script.does == "act" else ():
            stage.perform(act)

    def synchronous(payload: Any) -> object:
        if not due(payload):
            return None
        strike(payload)
        return 17 if script.does == "nonsense" else None

    async def serial(payload: Any) -> object:
        if not due(payload):
            return None
        await wait()
        strike(payload)
        return 17 if script.does == "nonsense" else Deny("as scripted") if script.does == "deny" else None

    async def waterfall(payload: Any, next: Callable[[], Awaitable[Any]]) -> Any:
        if not due(payload):
            return await next()
        if script.does in ("raise", "act", "slow", "sleep"):
            answer = await next() if script.after else None
            await wait()
            strike(payload)
            return answer if script.after else await next()
        strike(payload)
        return await _verdict(script, next)

    match POINTS[script.point].mode:
        case Mode.WATERFALL:
            return waterfall
        case Mode.EMIT | Mode.VETO:
            return synchronous
        case _:
            return serial


async def _verdict(script: HookScript, next: Callable[[], Awaitable[Any]]) -> Any:
    """What a scripted wrapper answers. One that overrules its inner part asks it only if it acts `after`."""
    given = await next() if script.after or script.does in ("rewrite", "add", "change", "cut") else None
    match script.point, script.does:
        case _, "nonsense":
            return 17
        case "agent/pre-step", "reject":
            return Reject("as scripted")
        case "agent/pre-step", "empty":
            return Enter(())
        case "agent/request-error", "retry":
            return Retry()
        case "tools/pre-execute", "deny":
            return Deny("as scripted")
        case "tools/pre-execute", "ask":
            return Ask("as scripted")
        case "tools/pre-execute", "rewrite":
            return Allow(FrozenDict(rewritten=True))
        case "tools/execute", "replace":
            return ToolOutcome(text("replaced"))
        case "tools/post-execute", "block":
            return Block("as scripted")
        case "tools/post-execute", "rewrite":
            return Accept(content=text("rewritten"))
        case _:
            return _changed(script, given)


def _changed(script: HookScript, answer: Any) -> Any:
    """What a scripted wrapper makes of the answer of its inner part."""
    match script.point, script.does:
        case "agent/pre-step", _ if not answer.enters:
            return answer
        case "agent/pre-step", "rewrite":
            return answer.with_messages(
                message.model_copy(update={"content": text(text_of(message).upper())}) for message in answer.messages
            )
        case "agent/pre-step", "add":
            more = user_message("added", source={"kind": "hook"})
            return answer.with_messages((*answer.messages, more))
        case "agent/model", _:
            return answer.model_copy(update={"effort": "high"})
        case "agent/request", _:
            return answer.model_copy(update={"max_tokens": 99})
        case "system-prompt/assemble", _:
            return replace(
                answer, sections=(*answer.sections, PromptText(f"scripted {len(answer.sections)}", "as scripted"))
            )
        case _:
            return _restreamed(cast("AsyncIterator[Chunk]", answer), cut=script.does == "cut")


async def _restreamed(chunks: AsyncIterator[Chunk], *, cut: bool) -> AsyncGenerator[Chunk]:
    try:
        async for chunk in chunks:
            yield chunk._replace(text=chunk.text.upper()) if isinstance(chunk, TextDelta) else chunk
            if cut:
                return
    finally:
        await close_stream(chunks)
