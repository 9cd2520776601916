"""The agent as a guest: the host's cancellation, task groups and exceptions pass through it, once all is settled.

A cancelled scope around the agent, and asyncio's own `Task.cancel`, count as a cancel `disposed`.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
import sniffio
import trio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from lifecycle import Agent, Hooks, Next, Retry, Session, Tool, tool
from lifecycle.errors import AgentDisposedError
from lifecycle.services.model import PreparedCall
from lifecycle.services.points import Mode, RequestErrorPayload, TurnPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.testing import Gate, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind, TextDelta
from lifecycle.vocabulary.events import AssistantMessageEvent, ToolResultEvent, TurnEnd
from lifecycle.vocabulary.failures import COMPLETED, DISPOSED_CANCEL, USER_CANCEL, Aborted
from lifecycle.vocabulary.messages import text_of, user_message
from lifecycle.vocabulary.requests import CallConfig, Request

pytestmark = pytest.mark.anyio

OK = Reply(text="ok")
QUEUED = user_message("queued", id="queued")
WORK = ("work", dict[str, object]())
HOOKS = {
    "proposal": "agent/pre-step",
    "assembly": "system-prompt/assemble",
    "request": "agent/request",
    "before the tool": "tools/pre-execute",
    "around the tools": "tools/execute",
    "after the tool": "tools/post-execute",
    "stop": "agent/turn-stopping",
}
PLACES = [*HOOKS, "stream", "adapter", "prepare", "tool", "tools", "thread"]


class Stage:
    """An agent whose first turn comes to one place, and stands there until it is cancelled."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.session, self.hooks = Session.memory(), Hooks()
        self.made: Agent | None = None
        self.cleaned = 0
        """How many of those that stood there have tidied up."""
        self._gate, self._arrived, self._released = Gate(place), anyio.Event(), threading.Event()

    def agent(self, task_group: TaskGroup | None = None) -> Agent:
        scripts: dict[str, Line] = {
            "stream": Reply(text=["half an ", "answer"]).held(self._gate, before=1),
            "adapter": self._answer,
            "tools": Reply(calls=[WORK, WORK, WORK]),
            "around the tools": Reply(calls=[WORK, WORK, WORK]),
            "thread": Reply(calls=[("block", {})]),
        }
        calls = "tool" in self.place
        model = ScriptedModel(
            scripts.get(self.place, Reply(calls=[WORK]) if calls else OK),
            otherwise=OK,
            preparing=[self._gate] if self.place == "prepare" else [],
        )
        if self.place in HOOKS:
            self._stand_in(HOOKS[self.place])

        @tool(parallel=True)
        async def work() -> str:
            """Works."""
            if self.place in ("tool", "tools"):
                await self._stand()
            return "done"

        @tool
        def block() -> str:
            """Works in a thread, which nothing can cancel."""
            anyio.from_thread.run_sync(self._arrived.set)
            self._released.wait(5)
            self.cleaned += 1
            return "done"

        self.made = Agent(model, tools=[work, block], hooks=self.hooks, session=self.session, task_group=task_group)
        return self.made

    async def _stand(self) -> None:
        try:
            await self._gate.go()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
            self.cleaned += 1

    async def _answer(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        yield TextDelta(0, "half an ")
        await self._stand()
        yield Finish(FinishKind.STOP)

    def _stand_in(self, point: str) -> None:
        async def serial(payload: Any) -> None:
            await self._stand()

        async def waterfall(payload: Any, next: Callable[..., Awaitable[Any]]) -> Any:
            await self._stand()
            return await next()

        self.hooks.listen(point, serial if self.hooks.points[point].mode is Mode.SERIAL else waterfall)

    async def reached(self) -> None:
        """Wait until the turn stands there; of several tools, until all of them do."""
        if self.place == "thread":
            await self._arrived.wait()
            return
        await self._gate.reached()
        while self.place.endswith("tools") and self._gate.waiting < 3:
            await checkpoint()

    def release(self) -> None:
        """Let the thread end, which otherwise would be waited for."""
        self._released.set()

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.session.events]

    @property
    def reasons(self) -> list[object]:
        return [event.data.reason for event in self.session.events if isinstance(event.data, TurnEnd)]

    def check_settled(self, after: int = 0) -> None:
        """All that was opened is closed, all that was asked is answered, and nothing was begun anew.

        `after` events came after the turn had ended.
        """
        assert self.made is not None
        assert self.made.phase == "disposed"
        assert self.session.closed
        assert self.reasons == [Aborted(reason=DISPOSED_CANCEL)]
        assert self.types.count("turn/start") == 1
        assert [message.id for message in self.session.inbox.next_turn] == ["queued"], "what is queued stays"
        assert self.types.count("step/start") == self.types.count("step/end")
        assert self.types.count("tool/call") == self.types.count("tool/result")
        assert self.types.count("assistant/message") + self.types.count("assistant/attempt") <= 1
        assert self.types[-1 - after] == "turn/end"
        stood = {"stream": 0, "prepare": 0, "tools": 3, "around the tools": 3}.get(self.place, 1)
        assert self.cleaned == stood


def heedless(begun: Gate, stubborn: Gate) -> Tool:
    """A tool that takes its time when it is cancelled."""

    @tool(name="heedless")
    async def body() -> None:
        """Works until it is cancelled, and then on."""
        try:
            await begun.go()
        finally:
            with anyio.CancelScope(shield=True):
                await stubborn.go()

    return body


@contextmanager
def no_task_left() -> Generator[None]:
    """Whatever runs at the end has run at the start already."""

    def living() -> object:
        if sniffio.current_async_library() == "trio":
            return trio.lowlevel.current_statistics().tasks_living
        return {task for task in asyncio.all_tasks() if not task.done()}

    before = living()
    yield
    assert living() == before


@asynccontextmanager
async def cancelled_by_a_scope() -> AsyncGenerator[Callable[[], None]]:
    with anyio.CancelScope() as scope:
        yield scope.cancel
    assert scope.cancelled_caught, "the cancellation goes on its way"


@asynccontextmanager
async def cancelled_with_a_group() -> AsyncGenerator[Callable[[], None]]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        yield tasks.cancel_scope.cancel
    assert tasks.cancel_scope.cancelled_caught


def void(_: object) -> None: ...


@asynccontextmanager
async def cancelled_by_the_backend() -> AsyncGenerator[Callable[[], None]]:
    """Without anyio: `Task.cancel` and `trio.CancelScope`."""
    if sniffio.current_async_library() == "trio":
        with trio.CancelScope() as scope:
            yield scope.cancel
        assert scope.cancelled_caught
        return
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(asyncio.CancelledError, match="by the host"):
        yield lambda: void(task.cancel("by the host"))
    assert task.uncancel() == 0


@asynccontextmanager
async def group_to_lend(lent: bool) -> AsyncGenerator[TaskGroup | None]:
    """A nursery of the host's around the agent, or none."""
    if not lent:
        yield None
        return
    async with anyio.create_task_group() as tasks:
        yield tasks


CANCELS = [cancelled_by_a_scope, cancelled_with_a_group, cancelled_by_the_backend]


@pytest.mark.parametrize("cancelled", CANCELS)
@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("place", PLACES)
async def test_a_cancelled_host_gets_its_cancellation_back_once_all_is_settled(
    place: str, lent: bool, cancelled: Callable[[], Any]
) -> None:
    stage, behind = Stage(place), False
    with anyio.fail_after(5), no_task_left():
        async with cancelled() as cancel, group_to_lend(lent) as group, stage.agent(group) as agent:
            agent.followup("go")
            await stage.reached()
            agent.send(QUEUED, "next-turn", wakeup=True)
            cancel()
            stage.release()
            await anyio.sleep_forever()
            behind = True

        assert not behind
        stage.check_settled()


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("place", ["stream", "adapter", "prepare", "tool", "tools"])
async def test_leaving_while_a_turn_runs_settles_it_and_leaves_no_task(place: str, lent: bool) -> None:
    stage = Stage(place)
    with anyio.fail_after(5), no_task_left():
        async with group_to_lend(lent) as group:
            async with stage.agent(group) as agent:
                agent.followup("go")
                await stage.reached()
                agent.send(QUEUED, "next-turn", wakeup=True)

            stage.check_settled()
            if group is not None:
                assert not group.cancel_scope.cancel_called, "the group is the host's, and goes on"


async def test_a_lent_group_serves_many_agents_one_after_another_and_side_by_side() -> None:
    sessions = [Session.memory() for _ in range(20)]

    async def one(session: Session) -> None:
        async with Agent(ScriptedModel(OK, OK), session=session, task_group=tasks) as agent:
            for prompt in ("one", "two"):
                agent.followup(prompt)
                await agent.when_idle()

    with anyio.fail_after(5), no_task_left():
        async with anyio.create_task_group() as tasks:
            await one(sessions[0])
            for session in sessions[1:]:
                tasks.start_soon(one, session)

    ends = [event.data for session in sessions for event in session.events if isinstance(event.data, TurnEnd)]
    assert [end.reason for end in ends] == [COMPLETED] * 40


async def test_a_lent_group_that_is_cancelled_parks_what_comes_afterwards() -> None:
    stage = Stage("stream")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, stage.agent(tasks) as agent:
            agent.followup("go")
            await stage.reached()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await agent.when_idle()
                agent.send(QUEUED, "next-turn", wakeup=True)
                await agent.when_idle()

        stage.check_settled(after=1)


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("place", ["proposal", "around the tools"])
async def test_a_scope_that_ends_within_the_lent_group_reaches_the_hooks_too(place: str, leaving: bool) -> None:
    """The agent's tasks are outside that scope, so it hands the cancellation on."""
    stage = Stage(place)
    with anyio.fail_after(5), no_task_left():
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with stage.agent(tasks) as agent:
                    agent.followup("go")
                    await stage.reached()
                    agent.send(QUEUED, "next-turn", wakeup=True)
                    if leaving:
                        tasks.start_soon(cancel_later, scope)
                    else:
                        scope.cancel()
                        await checkpoint()

            assert scope.cancelled_caught
            stage.check_settled()
            assert not tasks.cancel_scope.cancel_called


async def cancel_later(scope: anyio.CancelScope) -> None:
    for _ in range(5):
        await checkpoint()
    scope.cancel()


async def test_a_user_who_cancelled_first_is_the_cause() -> None:
    stage, begun, stubborn = Stage("tool"), Gate(), Gate()

    model = ScriptedModel(Reply(calls=[("heedless", {})]))
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with Agent(model, tools=[heedless(begun, stubborn)], session=stage.session) as agent:
            agent.followup("go")
            await begun.reached()
            agent.cancel()
            await stubborn.reached()
            scope.cancel()
            stubborn.open()
            await checkpoint()

    assert stage.types[-4:] == ["tool/call", "tool/result", "step/end", "turn/end"]
    assert stage.reasons == [Aborted(reason=USER_CANCEL)]


@pytest.mark.parametrize("place", ["stream", "adapter"])
async def test_the_visible_half_of_an_answer_is_kept(place: str) -> None:
    stage = Stage(place)
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with stage.agent() as agent:
            agent.followup("go")
            await stage.reached()
            scope.cancel()
            await checkpoint()

    (answer,) = [event.data for event in stage.session.events if isinstance(event.data, AssistantMessageEvent)]
    assert answer.interrupted
    assert text_of(answer.message) == "half an "


async def test_the_calls_that_ran_get_their_results_in_order_and_the_hooks_after_them_too() -> None:
    stage, posted = Stage("tools"), list[str]()

    @stage.hooks.on("tools/post-execute")
    async def after(payload: Any, next: Callable[..., Awaitable[Any]]) -> Any:
        posted.append(payload.call.id)
        return await next()

    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with stage.agent() as agent:
            agent.followup("go")
            await stage.reached()
            scope.cancel()
            await checkpoint()

    assert posted == ["call-1-1", "call-1-2", "call-1-3"]
    results = [event.data for event in stage.session.events if isinstance(event.data, ToolResultEvent)]
    assert [result.error.code for result in results if result.error is not None] == ["ABORTED"] * 3


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("lent", [False, True])
async def test_a_cancel_while_the_context_is_left_waits_until_all_is_settled(times: int, lent: bool) -> None:
    """asyncio's own cancel heeds no shield; it must neither be lost nor leave half a turn behind."""
    task, session = asyncio.current_task(), Session.memory()
    begun, stubborn = Gate(), Gate()
    assert task is not None

    async def cancel() -> None:
        await stubborn.reached()
        for _ in range(times):
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        stubborn.open()

    model = ScriptedModel(Reply(calls=[("heedless", {})]))

    async def host() -> None:
        async with (
            group_to_lend(lent) as group,
            Agent(model, tools=[heedless(begun, stubborn)], session=session, task_group=group) as agent,
        ):
            agents.append(agent)
            agent.followup("go")
            await begun.reached()

    model, agents = ScriptedModel(Reply(calls=[("heedless", {})])), list[Agent]()
    with anyio.fail_after(5), no_task_left():
        canceller = asyncio.create_task(cancel())
        with pytest.raises(asyncio.CancelledError):
            await host()
        while task.uncancel():
            pass
        await canceller

        assert agents[0].phase == "disposed"
        assert session.closed
        assert [event.type for event in session.events][-3:] == ["tool/result", "step/end", "turn/end"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_task_of_the_loop_cancelled_at_once_settles_too() -> None:
    """What `asyncio.run` does after Ctrl-C."""
    stage = Stage("tools")

    async def main() -> None:
        async with stage.agent() as agent:
            agent.followup("go")
            await stage.reached()
            agent.send(QUEUED, "next-turn", wakeup=True)
            agents.append(agent)
            ready.set()
            await anyio.sleep_forever()

    agents, ready = list[Agent](), asyncio.Event()
    before = asyncio.all_tasks()
    host = asyncio.create_task(main())
    with anyio.fail_after(5):
        await ready.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await host

    stage.check_settled()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancel_of_the_agents_own_task_goes_on_into_the_group() -> None:
    stage = Stage("stream")

    @stage.hooks.on("agent/request")
    async def cancel_this_task(payload: Any, next: Callable[..., Awaitable[Any]]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await next()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, stage.agent(tasks) as agent:
            agent.followup("go")
            agent.send(QUEUED, "next-turn", wakeup=True)
            await anyio.sleep_forever()

    assert tasks.cancel_scope.cancel_called
    stage.check_settled()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("lent", [False, True])
async def test_a_task_that_is_cancelled_before_it_began_leaves_nobody_waiting(lent: bool) -> None:
    """asyncio throws its own cancel into a coroutine that has not begun, so that not even a `finally` of it runs."""
    stage = Stage("stream")

    async def host() -> None:
        before = asyncio.all_tasks()
        async with group_to_lend(lent) as group, stage.agent(group) as agent:
            agent.followup("go")
            agent.send(QUEUED, "next-turn", wakeup=True)
            for task in asyncio.all_tasks() - before:
                task.cancel()
            scope.cancel()
            await checkpoint()

    with anyio.fail_after(5), anyio.CancelScope() as scope:
        await host()

    stage.check_settled()
    with warnings.catch_warnings():  # here, not in whichever test comes next
        warnings.filterwarnings("ignore", "coroutine 'Activity.perform' was never awaited", RuntimeWarning)
        gc.collect()


class Stop(BaseException):
    """Ends the process, or so."""


@pytest.mark.parametrize("error", [ValueError("mine"), ExceptionGroup("mine", [OSError()]), Stop(), SystemExit(3)])
@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("busy", [False, True])
async def test_an_exception_in_the_body_passes_as_it_is(error: BaseException, lent: bool, busy: bool) -> None:
    stage, passed = Stage("stream"), None
    with anyio.fail_after(5), no_task_left():
        async with group_to_lend(lent) as group:
            try:
                async with stage.agent(group) as agent:
                    if busy:
                        agent.followup("go")
                        await stage.reached()
                        agent.send(QUEUED, "next-turn", wakeup=True)
                    raise error
            except BaseException as raised:
                passed = raised

    assert passed is error
    assert error.__context__ is None
    assert stage.session.closed
    if busy:
        stage.check_settled()


async def test_a_listener_that_ends_the_process_is_heard_by_who_sends() -> None:
    session, hooks = Session.memory(), Hooks()
    stop = Stop()

    @hooks.on("agent/inbox/claimed")
    def end(payload: Any) -> None:
        raise stop

    with anyio.fail_after(5), pytest.raises(Stop) as raised:
        async with Agent(ScriptedModel(OK), hooks=hooks, session=session) as agent:
            agent.followup("go")

    assert raised.value is stop
    assert [event.type for event in session.events][-1] == "turn/end"
    assert session.open_turn is None


async def test_a_listener_that_ends_the_process_in_a_turn_ends_the_group_around_the_agent() -> None:
    session, hooks = Session.memory(), Hooks()

    @hooks.on("agent/assistant-stream")
    def end(payload: Any) -> None:
        raise Stop

    async def host() -> None:
        async with Agent(ScriptedModel(OK), hooks=hooks, session=session) as agent:
            agent.followup("go")
            await anyio.sleep_forever()

    with anyio.fail_after(5), pytest.raises(BaseExceptionGroup) as raised:
        await host()

    assert raised.group_contains(Stop)
    assert [event.type for event in session.events][-2:] == ["step/end", "turn/end"]


async def test_nothing_is_taken_outside_the_context() -> None:
    agent = Agent(ScriptedModel(OK))
    for call in (lambda: agent.followup("x"), agent.cancel, lambda: agent.inbox.remove("x")):
        with pytest.raises(AgentDisposedError):
            call()
    async with agent:
        pass
    for call in (lambda: agent.steer("x"), agent.cancel, lambda: agent.inbox.remove("x")):
        with pytest.raises(AgentDisposedError):
            call()
    with pytest.raises(AgentDisposedError):
        async with agent:
            pass


async def test_hooks_and_tools_see_the_context_variables_of_who_wakes_and_change_none_of_the_hosts() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []
    hooks = Hooks()

    @hooks.on("agent/step-boundary")
    async def note(payload: Any) -> None:
        seen.append(who.get())
        who.set("the hook")

    @tool(parallel=True)
    async def work() -> str:
        """Works."""
        seen.append(who.get())
        who.set("the tool")
        return "done"

    with anyio.fail_after(5):
        async with Agent(ScriptedModel(Reply(calls=[WORK, WORK]), OK), tools=[work], hooks=hooks) as agent:
            who.set("the host")
            agent.followup("go")
            await agent.when_idle()
            assert who.get() == "the host"

    assert seen[0] == "the host"
    assert "nobody" not in seen


# -- others in the same event loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("endless", ["retries", "steps", "tokens"])
async def test_a_run_that_never_waits_for_anything_still_lets_others_in(endless: str) -> None:
    async def stream(request: Request, signal: CancelSignal) -> AsyncGenerator[Chunk]:
        if endless == "retries":
            yield Finish(FinishKind.ERROR)
        while endless == "tokens":
            yield TextDelta(0, "and ")
        yield Finish(FinishKind.STOP)

    class Ready:
        provider, model = "ready", "ready-1"

        def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
            return PreparedCall(config, stream)

    hooks = Hooks()

    @hooks.on("agent/request-error")
    def again(payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry:
        return Retry()

    @hooks.on("agent/turn-stopping")
    def more(payload: TurnPayload) -> None:
        if endless == "steps":
            payload.agent.steer("and on")

    with anyio.fail_after(5):
        async with Agent(Ready(), hooks=hooks) as agent:
            agent.followup("go")
            for _ in range(3):  # turns that this task only gets if the agent's gives way
                await checkpoint()
            assert agent.status == "running"
            agent.cancel()
            await agent.when_idle()

    assert isinstance(agent.session.events[-1].data, TurnEnd)
    assert agent.session.events[-1].data.reason == Aborted(reason=USER_CANCEL)


async def test_an_agent_that_was_left_cannot_be_left_once_more() -> None:
    agent = Agent(ScriptedModel(OK))

    async with agent:
        pass

    with pytest.raises(AgentDisposedError, match="only inside its context"):
        await agent.__aexit__(None, None, None)
