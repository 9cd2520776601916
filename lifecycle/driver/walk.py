"""The walk: one control flow that performs any program, and knows no phase by name.

`walk` is a plain generator: it decides, takes arrows and calls performers; those that may suspend it hands to whoever
drives it. So the same flow runs synchronously up to its first suspension inside `followup()` (INB-09), and from there
on in the driver's task, without a started coroutine changing hands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import CoroutineType
from typing import Any, TypeAlias, cast

import anyio

from lifecycle.definition.machine import ABORT, FAULT
from lifecycle.definition.table import Table
from lifecycle.errors import DefinitionError

from .program import Action, Perform, Program

log = logging.getLogger("lifecycle")

Move: TypeAlias = "tuple[Perform, Any, bool]"
"""A performer that may suspend, the run that it is to be called with, and whether it is left out once cancelled."""
Flow: TypeAlias = "Generator[Move, str | None, str]"


def walk(program: Program, run: Any) -> Flow:
    """Perform `run` from the phase it is in until it ends, or rests in a phase that does nothing.

    Yields the performers that may suspend; whoever drives it calls them and sends their result, or throws what they
    raised. Returns the event that ended it, or an empty string if it rests.
    """
    table, stations = program.table, program.stations
    visited: set[str] = set()
    event, fresh = "", True
    while True:
        here = stations[run.phase]
        if here.final:
            return event
        if here.nested is None and not here.actions:
            return ""
        outcome: str | None = None
        try:
            if here.nested is not None and here.begin is not None:
                inner = here.begin(run)
                inner.phase = here.nested.table.initial
                outcome = here.then[(yield from walk(here.nested, inner))]
                if program.interruptible and run.signal.fired and not here.settles:
                    outcome, run.error = ABORT, None  # also if it failed first: nobody has been told yet (ERR-04)
            else:
                for action in here.actions if fresh else here.actions[-1:]:
                    if action.once and here.name in visited:
                        continue
                    if not action.suspends:
                        outcome = cast("str | None", action.perform(run))
                        continue
                    outcome = yield action.perform, run, not here.settles
                    if run.signal.fired and not here.settles:
                        outcome = ABORT
                        break
            visited.add(here.name)
            if outcome is None:  # a phase whose last effect has nothing to say leads on by its only event
                outcome = _only_event(table, here.name)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not program.interruptible:
                raise
            outcome = _interrupted(run, error, here.settles)
        event = outcome

        while True:  # a second round only if an effect of the arrow raises: then the arrow was not taken
            row = table.choose(run.phase, event, run.facts)
            run.phase = row.target
            try:
                if event in (ABORT, FAULT):
                    yield from _emit_all(program.emits[row], run)
                else:
                    for action in program.emits[row]:
                        if action.suspends:
                            yield action.perform, run, False
                        else:
                            action.perform(run)
                break
            except GeneratorExit:
                raise
            except BaseException as error:
                if not program.interruptible:
                    raise
                run.phase = row.source
                event = _interrupted(run, error, here.settles)
        fresh = not row.again


def _emit_all(actions: Iterable[Action], run: Any) -> Flow:
    """Perform what an aborted or failed phase still owes: all of it, even if a part raises (END-03)."""
    for action in actions:
        try:
            if action.suspends:
                yield action.perform, run, False
            else:
                action.perform(run)
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
    events = [event for event in table.rows[phase] if event not in (ABORT, FAULT)]
    if len(events) != 1:
        raise DefinitionError(
            f"{table.name}.{phase}: the performer of the last effect must return one of {', '.join(events)}"
        )
    return events[0]


class Drive:
    """Drives one flow: plainly as far as it goes without suspending, then in a task."""

    __slots__ = ("_flow", "_move", "_started", "ended")

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._move: Move | None = None
        self._started = False
        self.ended: str | None = None
        """The event that ended it; an empty string if it rests; None while it runs."""

    def start(self) -> None:
        """Perform what can be performed without suspending."""
        self._started = True
        self._resume(self._flow.send, None)

    def _resume(self, step: Callable[[Any], Move], value: object) -> None:
        try:
            self._move = step(value)
        except StopIteration as end:
            self._move, self.ended = None, end.value

    async def run(self, until: Callable[[], bool] | None = None) -> None:
        """Perform the rest, or up to a suspension at which `until` holds.

        A cancellation from outside is `cancel(disposed)`: what is owed is still performed, shielded, and then the
        cancellation goes on its way.
        """
        if not self._started:
            self.start()
        outside = await self._perform(until)
        if outside is not None:
            with anyio.CancelScope(shield=True):
                await self._perform(until)
            raise outside

    async def _perform(self, until: Callable[[], bool] | None) -> BaseException | None:
        """Perform on; returns early, with what came, if it comes from outside."""
        while self._move is not None and not (until is not None and until()):
            perform, run, cancellable = self._move
            if cancellable and run.signal.fired:  # asked here: the task may have begun long after the last move
                self._resume(self._flow.send, None)
                continue
            try:
                result: Any = perform(run)
                if type(result) is CoroutineType:
                    result = await cast("Coroutine[Any, Any, str | None]", result)
            except Exception as error:
                self._resume(self._flow.throw, error)
            except BaseException as error:
                self._resume(self._flow.throw, error)
                return error
            else:
                self._resume(self._flow.send, result)
        return None


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
