"""What a step does with the calls of its answer: barriers, a rolling pool, results in model order (group TLS)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress

import anyio

from lifecycle.errors import DuplicateMessageError, StoreError
from lifecycle.services.cancellation import this_task
from lifecycle.services.tools import parse_arguments
from lifecycle.session.repair import Parked
from lifecycle.vocabulary.events import ToolCallEvent
from lifecycle.vocabulary.messages import ToolCallBlock
from lifecycle.vocabulary.values import FrozenDict, trusted

from ..program import ASK, BODY, COMMIT, START
from ..runs import StepRun, ToolCallRun
from ..walk import Drive, Flow
from .call import result_event
from .proposal import STEP

log = logging.getLogger("lifecycle")

_called = trusted(ToolCallEvent)

Wait = Coroutine[None, None, str]


class Pool:
    """The calls of one answer: each starts, its body may overlap with others, its result comes in model order."""

    def __init__(self, step: StepRun, calls: Iterable[ToolCallBlock]) -> None:
        self._step = step
        self._waiting = deque(calls)
        self._started: deque[ToolCallRun] = deque()
        """Started and without a result, in model order."""
        self._parsed: tuple[ToolCallBlock, FrozenDict | str] | None = None
        self._exclusive = True
        """The call that starts next, or started last, runs alone."""
        self._running = 0
        """Calls in tasks of their own."""
        self._asking: ToolCallRun | None = None
        """The newest call, while somebody is asked about it in a task of its own: no other one starts."""
        self.undecided = False
        """A lost process had asked about the only call that has started; it is to be taken up."""
        self._settled: anyio.Event | None = None
        """Made only when somebody has to wait for a body."""
        self._fault: BaseException | None = None
        self.concluded = False

    @property
    def unstarted(self) -> bool:
        return bool(self._waiting)

    @property
    def unsettled(self) -> bool:
        return bool(self._started)

    @property
    def running(self) -> tuple[ToolCallBlock, ...]:
        """The calls whose bodies have begun and not ended."""
        return tuple(call.block for call in self._started if call.invoked and call.outcome is None)

    # -- deciding ------------------------------------------------------------------------------------------------

    def next_move(self) -> str | None:
        """`settle` if the oldest call has ended, `start` if the next one may start, `finish` if all is done, else None.

        `reenter` if a call is to be taken up that a lost process had asked about.

        Raises what a body's task failed with, if one did (TLS-11).
        """
        if self._fault is not None:
            raise self._fault
        if self.undecided:
            return "reenter"
        if self._started and not self._started[0].running:
            return "settle"
        if not self._waiting:
            return None if self._started else "finish"
        if self._asking is not None:
            return None
        self._exclusive = not self._parallel(self._waiting[0])
        if self._exclusive:
            return None if self._started else "start"
        return "start" if self._running < self._limit() else None

    def _parallel(self, call: ToolCallBlock) -> bool:
        """Whether a call may overlap with others; asked anew right before each start (TLS-06)."""
        tools = self._step.tools
        return tools is not None and self._visible(call.name) and tools.parallel(call.name, self._arguments(call))

    def _arguments(self, call: ToolCallBlock) -> FrozenDict | str:
        """The arguments of the next call, parsed once: it may be classified many times before it starts."""
        if self._parsed is None or self._parsed[0] is not call:
            self._parsed = call, parse_arguments(call.arguments)
        return self._parsed[1]

    def _visible(self, name: str) -> bool:
        step = self._step
        return step.tools is not None and (
            step.specs is step.tools.specs or any(spec.name == name for spec in step.specs)
        )

    def _limit(self) -> int:
        limit = self._step.agent.options.max_parallel_tools
        return max(1, limit(self._step.agent.handle) if callable(limit) else limit)

    async def wait(self) -> str:
        """Wait until there is a next move."""
        while (move := self.next_move()) is None:
            await self._some_settle()
        return move

    async def _some_settle(self) -> None:
        settled = self._settled = self._settled or anyio.Event()
        if self._asking is not None:
            await self._keep()
        await settled.wait()

    async def _keep(self) -> None:
        """Whoever is asked may take longer than this process lives: have the results so far kept."""
        with suppress(StoreError):  # the next barrier tells
            kept = self._step.agent.session.barrier()
            if kept is not None:
                await kept

    # -- moving --------------------------------------------------------------------------------------------------

    def open_call(self) -> ToolCallRun:
        """Record that the next call starts (TLS-07)."""
        step, block = self._step, self._waiting[0]
        call = self._call(block, step.agent.call_program.table.initial)
        call.record = step.agent.session.append(
            _called(
                turn=step.turn.number, step=step.number, call_id=block.id, name=block.name, arguments=block.arguments
            ),
            proven=True,  # a block of the answer, which is in the log
        )
        del self._waiting[0]  # only now: what the log refuses has not happened
        self._started.append(call)
        return call

    def _call(self, block: ToolCallBlock, phase: str) -> ToolCallRun:
        step, tools = self._step, self._step.tools
        tool = tools.get(block.name) if tools is not None and self._visible(block.name) else None
        call = ToolCallRun(step, block, self._arguments(block), tool, phase, step.signal)
        call.drive = Drive(step.agent.call_program, call)
        return call

    def park(self, parked: Parked) -> None:
        """Put the call back that a lost process had asked about; nothing else has started."""
        program = self._step.agent.call_program
        phase = next(name for name, station in program.stations.items() if station.lane == ASK)
        call = self._call(parked.block, phase)
        call.record, call.asked = parked.record, parked.asked
        self._started.append(call)
        self._exclusive, self.undecided = not self._parallel(parked.block), True

    def run_call(self) -> Flow:
        """Drive the newest call up to its body, and start that: in this task if nothing could overlap with it.

        Where a person is asked first, whatever has started meanwhile goes on beside that.
        """
        call = self._started[-1]
        drive = _drive(call)
        self.undecided = False
        yield from drive.within(START)
        tasks = self._step.agent.tasks
        if drive.ended is None and self._lane(call) == ASK and (len(self._started) == 1 or tasks is None):
            yield from drive.within(ASK)
        lane = self._lane(call)
        if drive.ended is not None or lane not in (ASK, BODY):
            return None
        alone = len(self._started) == 1 and (self._exclusive or not self._waiting)
        if alone or tasks is None:
            yield from drive.within(BODY)
            return None
        self._asking = call if lane == ASK else None
        call.running = True
        self._running += 1
        tasks.start_soon(self._run_body, call)
        return None

    async def _run_body(self, call: ToolCallRun) -> None:
        drive, scopes = _drive(call), self._step.agent.scopes
        workers, task = self._step.agent.workers, this_task()
        workers.add(task)
        try:
            if self._asking is call:
                await drive.run(ASK, scopes)
                self._asking = None
                self._wake()
            await drive.run(BODY, scopes)
        except Exception as error:  # not the tool's: those are results
            self._fault = self._fault or error
        finally:
            workers.discard(task)
            call.running = False
            self._running -= 1
            if self._asking is call:
                self._asking = None
            self._wake()

    def _wake(self) -> None:
        if self._settled is not None:
            self._settled.set()
            self._settled = None

    def _lane(self, call: ToolCallRun) -> int:
        return self._step.agent.call_program.stations[call.phase].lane

    def post(self) -> Flow:
        """Drive the oldest call to its end."""
        return _drive(self._started[0]).within(COMMIT)

    def commit(self) -> None:
        """Record the result of the oldest call, and stage its contexts for the next step (TLS-08, TLS-13)."""
        call = self._started[0]
        step, outcome, record = self._step, call.outcome, call.record
        assert outcome is not None
        assert record is not None
        own = outcome is call.own
        step.agent.session.append(result_event(call, outcome), surface="append", sources=(record.seq,), proven=own)
        del self._started[0]
        if outcome.conclude and outcome.error is None:
            self.concluded = True
        for context in outcome.contexts:
            try:
                step.agent.handle.inject(context)
            except DuplicateMessageError:  # the tool's mistake, and nothing is lost: the message waits there already
                log.warning("call %r of %r deferred a message that is pending already", call.block.id, call.block.name)

    # -- ending early --------------------------------------------------------------------------------------------

    def drain(self) -> Flow:
        """After a cancel: await what has started and commit it in order, then give the rest an error pair (TLS-10)."""
        try:
            while self._started:
                while self._started[0].running:
                    yield self._some_settle()
                yield from self.post()
                self.commit()
            while self._waiting:
                self.open_call()
                yield from self.post()
                self.commit()
        except GeneratorExit:
            raise
        except BaseException:  # a result that is refused must not leave bodies behind that outlive their step
            yield self.abandon()
            raise
        return None

    async def abandon(self) -> None:
        """After a fault: let started bodies end; nothing is committed, nothing invented (TLS-11)."""
        while self._running:
            await self._some_settle()


# -- performers ---------------------------------------------------------------------------------------------------


@STEP("classify pending call by executionMode", suspends=True)
def classify(step: StepRun) -> Wait | str:
    """What the pool does next."""
    pool = step.pool
    if pool is None:
        return "finish"
    move = pool.next_move() or pool.wait()
    if move == "finish":
        step.turn.owed = not pool.concluded
    return move


@STEP("tool/call")
def call_starts(step: StepRun) -> None:
    _pool(step).open_call()


@STEP("pre and execute", "take up", suspends=True, inner=["tool-owned events when applicable"])
def pre_and_execute(step: StepRun) -> Flow:
    return _pool(step).run_call()


@STEP("post", suspends=True)
def post(step: StepRun) -> Flow:
    return _pool(step).post()


@STEP("tool/result")
def call_settles(step: StepRun) -> None:
    _pool(step).commit()


@STEP("drain", suspends=True, inner=["tool/result:drained", "tool/call:undispatched", "tool/result:undispatched"])
def drain(step: StepRun) -> Flow | None:
    return None if step.pool is None else step.pool.drain()


@STEP("abandon", suspends=True)
def abandon(step: StepRun) -> Coroutine[None, None, None] | None:
    return None if step.pool is None else step.pool.abandon()


def _drive(call: ToolCallRun) -> Drive:
    assert call.drive is not None
    return call.drive


def _pool(step: StepRun) -> Pool:
    assert step.pool is not None
    return step.pool
