"""The walk: one control flow that performs any program, and knows no phase by name.

`walk` is a plain generator: it decides, takes arrows and calls performers, and hands out what is to be awaited. It
pauses before the first performer that may suspend until its drive is in a task. So the same flow runs synchronously up
to there inside `followup()` (INB-09), and from there on in the driver's task; a coroutine is awaited where it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import CoroutineType, GeneratorType
from typing import Any, NamedTuple, TypeAlias

import anyio
import anyio.lowlevel

from lifecycle.definition.machine import ABORT, FAULT
from lifecycle.definition.table import Table
from lifecycle.errors import DefinitionError, IllegalTransitionError, StrayCancellationError
from lifecycle.services.cancellation import cancellation_in, failure_in
from lifecycle.services.signal import CancelSignal

from .program import Action, Program

log = logging.getLogger("lifecycle")

_PATIENCE = 32
"""After how many awaited things others get a turn, in case none of these has ever suspended."""


class Cuttable(NamedTuple):
    """Work that is given up when the signal fires: its coroutine is cancelled, and comes to nothing."""

    work: Coroutine[Any, Any, str | None]
    signal: CancelSignal


Pending: TypeAlias = Coroutine[Any, Any, str | None] | Cuttable
_AWAITED, _FLOWS = (CoroutineType, Cuttable), (GeneratorType,)
Flow: TypeAlias = Generator[Pending | None, str | None, str | None]
"""Yields what is to be awaited and gets its result, or None where it pauses."""


def walk(program: Program, run: Any, drive: Drive) -> Flow:
    """Perform `run` from the phase it is in until it ends, or rests in a phase that does nothing.

    Pauses where the drive may not suspend yet, and before a phase of a lane that the drive may not go into yet.
    Returns the event that ended it, or an empty string if it rests.
    """
    table, stations, interruptible = program.table, program.stations, program.interruptible
    visited: tuple[str, ...] = ()
    event = ""
    fresh = True
    while True:
        here = stations[run.phase]
        if here.final:
            return event
        while here.lane > drive.lane:
            yield None
        if here.nested is None and not here.actions:
            return ""
        settles = here.settles
        outcome: Any = None
        try:
            if here.nested is not None and here.begin is not None:
                inner = here.begin(run)
                inner.phase = inner.phase or here.nested.table.initial  # one that is parked goes on where it was
                ended: Any = yield from walk(here.nested, inner, drive)
                outcome = here.then[ended]
                if interruptible and not settles and run.signal.cause is not None:
                    outcome, run.error = ABORT, None  # also if it failed first: nobody has been told yet (ERR-04)
            else:
                for _, perform, suspends, once in here.actions if fresh else here.actions[-1:]:
                    if once and here.name in visited:
                        continue
                    if not suspends:
                        outcome = perform(run)
                        continue
                    if not drive.live:
                        yield None
                    if not settles and run.signal.cause is not None:
                        outcome = ABORT
                        break
                    outcome = perform(run)
                    if type(outcome) in _AWAITED:
                        outcome = yield outcome
                    elif type(outcome) in _FLOWS:
                        outcome = yield from _flow(outcome)
                    if not settles and run.signal.cause is not None:
                        outcome = ABORT
                        break
                if here.once and here.name not in visited:
                    visited += (here.name,)
            if outcome is None:  # a phase whose last effect has nothing to say leads on by its only event
                outcome = here.only or _only_event(table, here.name)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not interruptible:
                raise
            outcome = _interrupted(run, error, settles)
        event = outcome

        while True:  # a second round only if no arrow is open or an effect of it raises: then it was not taken
            try:
                row = table.choose(run.phase, event, run.facts)
            except IllegalTransitionError as error:
                if not interruptible or event in (ABORT, FAULT):
                    raise
                event = _interrupted(run, error, settles)
                continue
            run.phase = row.target
            emits = program.emits[row]
            if not emits:
                break
            try:
                if event in (ABORT, FAULT):
                    yield from _emit_all(emits, run, drive)
                else:
                    for _, perform, suspends, _ in emits:
                        if suspends and not drive.live:
                            yield None
                        done: Any = perform(run)
                        if type(done) in _AWAITED:
                            yield done
                        elif type(done) in _FLOWS:
                            yield from _flow(done)
                break
            except GeneratorExit:
                raise
            except BaseException as error:
                if not interruptible:
                    raise
                run.phase = row.source
                event = _interrupted(run, error, settles)
        fresh = not row.again


def _flow(done: Any) -> Flow:
    flow: Flow = done
    return flow


def _emit_all(actions: Iterable[Action], run: Any, drive: Drive) -> Flow:
    """Perform what an aborted or failed phase still owes: all of it, even if a part raises (END-03)."""
    for action in actions:
        try:
            if action.suspends and not drive.live:
                yield None
            done: Any = action.perform(run)
            if type(done) in _AWAITED:
                yield done
            elif type(done) in _FLOWS:
                yield from _flow(done)
        except Exception as error:
            if run.error is None and not run.signal.fired:
                run.error = error
            log.exception("%r failed while a run was being closed", action.key, exc_info=error)
    return ""


def _interrupted(run: Any, error: BaseException, settles: bool) -> str:
    """The event that an exception stands for: cancelled beats failed (ERR-04)."""
    if not isinstance(error, Exception):  # the host cancels the task, or ends the process
        run.stop(error)
        return ABORT
    if run.signal.fired and not settles:
        return ABORT
    if run.error is None:
        run.error = error
    else:  # the first failure is the one that is told
        log.exception("a run that had failed failed once more", exc_info=error)
    return FAULT


def _only_event(table: Table, phase: str) -> str:
    events = ", ".join(event for event in table.rows[phase] if event not in (ABORT, FAULT))
    raise DefinitionError(f"{table.name}.{phase}: the performer of the last effect must return one of {events}")


class Drive:
    """Drives one flow: plainly as far as it goes without suspending, then in a task or within the flow of another."""

    __slots__ = ("_flow", "_pending", "ended", "lane", "live")

    def __init__(self, program: Program, run: Any) -> None:
        self._flow = walk(program, run, self)
        self._pending: Pending | None = None
        self.live = False
        """It is in a task and may suspend."""
        self.lane = 0
        """The last lane that it may go into."""
        self.ended: str | None = None
        """The event that ended it; an empty string if it rests; None while it runs."""

    def start(self) -> None:
        """Perform what can be performed without suspending."""
        self._resume(self._flow.send, None)

    def _resume(self, step: Callable[[Any], Pending | None], value: object) -> None:
        try:
            self._pending = step(value)
        except StopIteration as end:
            self._pending, self.ended = None, end.value

    def within(self, lane: int) -> Flow:
        """Perform on, up to the end of `lane`, as a part of the flow of a run that this one belongs to."""
        if self.ended is not None:
            return None
        self.live, self.lane = True, lane
        step: Callable[[Any], Pending | None] = self._flow.send
        given: Any = None
        while True:
            try:
                pending = step(given)
            except StopIteration as end:
                self.ended = end.value
                return None
            if pending is None:
                return None
            try:
                step, given = self._flow.send, (yield pending)
            except GeneratorExit:
                raise
            except BaseException as error:
                step, given = self._flow.throw, error

    async def run(self, lane: int = 0, scopes: set[anyio.CancelScope] | None = None) -> None:
        """Perform on, up to the end of `lane`.

        A cancellation from outside is `cancel(disposed)`: what is owed is still performed, shielded, and then the
        cancellation goes on its way. So is one of the scope that stands in `scopes` meanwhile, which then ends here.
        """
        if self.ended is not None:
            return
        scopes = set() if scopes is None else scopes
        self.live, self.lane = True, lane
        self._resume(self._flow.send, None)
        interrupted: BaseException | None = None
        try:
            while self._pending is not None and interrupted is None:
                interrupted = await self._await_uncut(scopes)
        except BaseException as outside:
            await self._settle(outside)
            raise
        if interrupted is not None:
            await self._settle(interrupted)

    async def _settle(self, outside: BaseException) -> None:
        """Perform what is owed after a cancellation."""
        with anyio.CancelScope(shield=True):
            self._resume(self._flow.throw, outside)
            try:
                while self._pending is not None:
                    await self._await_uncut(set())
            except BaseException as another:
                self._resume(self._flow.throw, another)

    async def _await_uncut(self, scopes: set[anyio.CancelScope]) -> BaseException | None:
        """Await what the flow hands out until it pauses or ends, or some of it is cut off by its signal.

        One scope does for all of it until then: it costs more than most of what is awaited. Returns the cancellation
        of that scope by another than the signal, and raises all others; the flow has been told of neither.
        """
        awaited, cut, spent = 0, False, False
        pending: Pending | None = None
        cancelled: BaseException | None = None
        with anyio.CancelScope() as scope:
            scopes.add(scope)
            try:
                while self._pending is not None and not spent:
                    pending, self._pending = self._pending, None
                    try:
                        if type(pending) is Cuttable:
                            cut = True
                            pending.signal.call(scope.cancel, self)
                            result: Any = await pending.work
                            pending.signal.forget(self)
                            cut, spent = False, pending.signal.fired
                        else:
                            work: Any = pending
                            result = await work
                        awaited += 1
                        if awaited % _PATIENCE == 0 and not spent:
                            await anyio.lowlevel.checkpoint()
                        step: Callable[[Any], Pending | None] = self._flow.send
                    except BaseException as error:
                        step, result = self._flow.throw, _failure_in(error)
                        if isinstance(pending, Cuttable):
                            pending.signal.forget(self)
                            cut, spent = False, pending.signal.fired
                    # Out here, where what fails next is not taken to come of what has failed now.
                    self._resume(step, result)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
                raise
            finally:
                scopes.discard(scope)
                if isinstance(pending, Cuttable):
                    pending.signal.forget(self)
        if cut:
            self._resume(self._flow.send, None)
            return None
        return cancelled


def _failure_in(error: BaseException) -> Exception:
    """The failure that awaited work has raised. Raises what is none: a cancellation alone, or what ends the process."""
    cancelled = cancellation_in(error)
    if cancelled is not None:
        if cancelled is not error:
            log.error("what was cancelled has also failed", exc_info=error)
        raise cancelled
    failure = failure_in(error)
    if failure is None:
        raise error
    return failure if isinstance(failure, Exception) else StrayCancellationError(failure)


def perform_now(program: Program, run: Any, event: str) -> None:
    """Take one arrow from outside the walk, with effects none of which may suspend.

    If an effect raises, the arrow was not taken. Effects may themselves lead to further events: the phase has
    changed before the first of them.

    Raises:
        IllegalTransitionError: if the phase does not take `event`.
    """
    row = program.table.choose(run.phase, event, run.facts)
    run.phase = row.target
    try:
        for action in program.emits[row]:
            action.perform(run)
    except Exception:
        if row.target != row.source:  # whatever else the effects led to belonged to the arrow that was not taken
            run.phase = row.source
        raise
