"""The stepper: the driver's walk over states that can be copied, so that a search can go every way from each.

It keeps the contract of `lifecycle.driver.walk` on programs that `Performers` has bound, whose performers are
abstract: what suspends hands out an `Ask` (somebody else decides what comes of it), a `Drive` (a call goes on first)
or BLOCKED (a body must end first).

What is one step here and could be several in the driver: a performer that appends more than once is not interrupted
in between; chunks of a stream; the host's own cancellation, which is `cancel(disposed)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lifecycle.definition.machine import ABORT, FAULT
from lifecycle.definition.table import Row
from lifecycle.driver.program import Program
from lifecycle.errors import IllegalTransitionError

from .happenings import Happening
from .invariants import Broken
from .places import (
    AFTER,
    ASKED,
    BEFORE,
    BLOCKED,
    CHOOSE,
    DO,
    ENTER,
    NESTED,
    SURE,
    TAKE,
    Ask,
    Drive,
    Faults,
    Frame,
    Level,
    MishapError,
    Place,
)
from .world import BrokenError, Scene, World

ENDLESS = 10_000
"""No run does so many things without waiting for anybody."""
NEVER_RESTS = "a run always comes to rest"
_NONE: frozenset[str] = frozenset()


class Stepper:
    """Moves scenes. `watch`, if given, is told of each place that is performed."""

    def __init__(
        self, agent: Program, call: Program, faulty: Faults, *, listeners: bool = False, vetoes: bool = False
    ) -> None:
        levels = [agent]
        while (inner := next((one.nested for one in levels[-1].stations.values() if one.nested), None)) is not None:
            levels.append(inner)
        self.levels = [Level(program, faulty) for program in [*levels, call]]
        self.begin = [
            next((here.begin for here in level.stations.values() if here.begin is not None), None)
            for level in self.levels
        ]
        self.watch: Callable[[Place], None] = unwatched
        self.vetoes, self.listeners = vetoes, listeners
        self.taken: set[Row] = set()
        """Every arrow that was taken so far."""

    def level(self, n: int) -> Level:
        return self.levels[min(n, 3)]

    # -- phases ------------------------------------------------------------------------------------------------------

    def phase(self, world: World, level: int) -> str:
        match level:
            case 0:
                return world.agent
            case 1:
                return world.turn
            case 2:
                return world.step
            case _:
                return world.calls[level - 3].phase

    def enter(self, world: World, level: int, phase: str) -> None:
        match level:
            case 0:
                world.agent = phase
            case 1:
                world.turn = phase
            case 2:
                world.step = phase
            case _:
                world.call(level - 3, phase=phase)

    # -- walking -----------------------------------------------------------------------------------------------------

    def run(self, scene: Scene, stack: list[Frame]) -> None:
        """Go on until the top frame waits for somebody, or the stack is empty."""
        waits, rounds = False, 0
        while stack and not waits:
            rounds += 1
            if rounds > ENDLESS:
                raise BrokenError(Broken(NEVER_RESTS, "it goes round without waiting for anybody"))
            frame = stack[-1]
            state = frame[1]
            if state == DO:
                waits = self._do(scene, stack, frame)
            elif state == ENTER:
                self._enter(scene, stack, frame)
            elif state == TAKE:
                waits = self._take(scene, stack, frame)
            else:  # a call has come back to the performer that drives it
                assert state == ASKED
                waits = self._again(scene, stack, frame)

    def _enter(self, scene: Scene, stack: list[Frame], frame: Frame) -> None:
        level, _, fresh, visited, _, lane = frame
        here_level = self.level(level)
        here = here_level.stations[self.phase(scene.world, level)]
        if here.final:
            self._finish(scene, stack, frame)
        elif level >= 3 and here.lane > lane:
            scene.world.call(level - 3, frame=frame)
            stack.pop()
        elif here.nested is not None:
            begin = self.begin[level]
            if not scene.world.undecided:  # else they are parked, and go on where they are
                if begin is not None:
                    begin(scene)
                self.enter(scene.world, level + 1, here.nested.table.initial)
            stack[-1] = (level, NESTED, here, visited, "", lane)
            stack.append((level + 1, ENTER, True, _NONE, "", 0))
        elif not here.actions:
            stack.pop()  # it rests
        else:
            places = here_level.first[here.name]
            stack[-1] = (level, DO, places[0] if fresh else places[-1], visited, "", lane)

    def _finish(self, scene: Scene, stack: list[Frame], frame: Frame) -> None:
        """A run has ended by the event of its frame: go on in what has run it."""
        stack.pop()
        if frame[0] >= 3:
            scene.world.call(frame[0] - 3, frame=None)
            return
        if stack:
            level, _, here, visited, _, lane = stack[-1]
            event = here.then[frame[4]]
            if self.level(level).interruptible and scene.world.cause and not here.settles:
                event, scene.world.error = ABORT, False
            stack[-1] = (level, TAKE, here, visited, event, lane)

    def _do(self, scene: Scene, stack: list[Frame], frame: Frame) -> bool:
        """Perform an effect, unless it is not due. Returns whether to wait."""
        level, _, place, visited, event, lane = frame
        if place.once and place.station.name in visited:
            self._next(scene, stack, frame, None)
            return False
        if event != SURE and self._may_be_refused(place, scene):
            stack[-1] = (level, BEFORE, place, visited, event, lane)
            return True
        in_phase = place.row is None
        if in_phase and place.suspends and self._fired(scene, level) and not place.station.settles:
            stack[-1] = (level, TAKE, place.station, visited, ABORT, lane)
            return False
        self.watch(place)
        scene.told = False
        try:
            came = place.performer(scene, level - 3)
        except MishapError:
            self._mishap(scene, stack, frame)
            return False
        return self._came(scene, stack, frame, came)

    def _may_be_refused(self, place: Place, scene: Scene) -> bool:
        return self.vetoes and scene.world.odd > 0 and place.durable and place.performer.due(scene)

    def _came(self, scene: Scene, stack: list[Frame], frame: Frame, came: Any) -> bool:
        level, _, place, visited, event, lane = frame
        if came is None or isinstance(came, str):
            return self._performed(scene, stack, frame, came)
        stack[-1] = (level, ASKED, place, visited, event, lane)
        if isinstance(came, Drive):
            self._push(scene, stack, came)
            return False
        return True

    def _push(self, scene: Scene, stack: list[Frame], drive: Drive) -> None:
        level, state, spot, visited, event, _ = scene.world.calls[drive.call].frame
        stack.append((level, state, spot, visited, event, drive.lane))

    def _again(self, scene: Scene, stack: list[Frame], frame: Frame) -> bool:
        """A performer that waits for calls is asked again. Returns whether to wait."""
        try:
            came = frame[2].performer(scene, frame[0] - 3)
        except MishapError:
            self._mishap(scene, stack, frame)
            return False
        if isinstance(came, Ask) or came is BLOCKED:
            return True
        return self._came(scene, stack, frame, came)

    def answer(self, scene: Scene, stack: list[Frame], label: str) -> None:
        """Somebody outside has decided what comes of the effect that the top frame waits for; go on."""
        frame = stack[-1]
        try:
            came = frame[2].performer.ask.answer(scene, frame[0] - 3, label)
        except MishapError:
            self._mishap(scene, stack, frame)
        else:
            if self._performed(scene, stack, frame, came):
                return
        self.run(scene, stack)

    def ask_again(self, scene: Scene, stack: list[Frame]) -> None:
        """What blocked the top frame is gone; go on."""
        if not self._again(scene, stack, stack[-1]):
            self.run(scene, stack)

    def append(self, scene: Scene, stack: list[Frame], refused: bool) -> None:
        """The append that the top frame is about to do is (not) refused; go on."""
        level, _, place, visited, _, lane = stack[-1]
        if refused:
            place.refuse(scene)
            self._mishap(scene, stack, stack[-1])
        else:
            stack[-1] = (level, DO, place, visited, SURE, lane)
        self.run(scene, stack)

    def choose(self, scene: Scene, stack: list[Frame], event: str) -> None:
        """Nobody knows which event follows the phase of the top frame: this one does; go on."""
        level, _, here, visited, _, lane = stack[-1]
        stack[-1] = (level, TAKE, here, visited, event, lane)
        self.run(scene, stack)

    def _performed(self, scene: Scene, stack: list[Frame], frame: Frame, came: str | None) -> bool:
        """An effect has been performed. Returns whether the search may let somebody act now."""
        level, _, place, visited, _, lane = frame
        in_phase = place.row is None
        if in_phase and place.suspends and self._fired(scene, level) and not place.station.settles:
            stack[-1] = (level, TAKE, place.station, visited, ABORT, lane)
            return False
        if place.heard and scene.told and self.listeners:
            stack[-1] = (level, AFTER, place, visited, came or "", lane)
            return True
        self._next(scene, stack, frame, came)
        return False

    def go_on(self, scene: Scene, stack: list[Frame]) -> None:
        """Whoever listens has done what they wanted."""
        frame = stack[-1]
        self._next(scene, stack, frame, frame[4] or None)
        self.run(scene, stack)

    def _next(self, scene: Scene, stack: list[Frame], frame: Frame, came: str | None) -> None:
        level, _, place, visited, _, lane = frame
        if place.after is not None:
            stack[-1] = (level, DO, place.after, visited, "", lane)
        elif place.row is not None:
            stack[-1] = (level, ENTER, not place.row.again, visited, place.row.event, lane)
        else:
            stack[-1] = (level, TAKE, place.station, self._left(level, place, visited), came or "", lane)

    def _left(self, level: int, place: Place, visited: frozenset[str]) -> frozenset[str]:
        """The phases that were left, as far as it matters: those in which something is performed once."""
        name = place.station.name
        return visited | {name} if any(one.once for one in self.level(level).first[name]) else visited

    def _take(self, scene: Scene, stack: list[Frame], frame: Frame) -> bool:
        level, _, here, visited, event, lane = frame
        at, phase = self.level(level), self.phase(scene.world, level)
        if not event:
            events = at.only_events(here.name)
            if len(events) != 1:
                stack[-1] = (level, CHOOSE, here, visited, "", lane)
                return True
            event = events[0]
        try:
            row = at.table.choose(phase, event, lambda: scene.world.facts(level))
        except IllegalTransitionError as illegal:
            raise BrokenError(Broken("every event has an arrow", str(illegal))) from illegal
        self.taken.add(row)
        self.enter(scene.world, level, row.target)
        places = at.emits[row]
        if places:
            stack[-1] = (level, DO, places[0], visited, "", lane)
        else:
            stack[-1] = (level, ENTER, not row.again, visited, event, lane)
        return False

    def _mishap(self, scene: Scene, stack: list[Frame], frame: Frame) -> None:
        """Something raised: cancelled beats failed, and what is owed is performed all the same."""
        level, _, place, visited, _, lane = frame
        fired = self._fired(scene, level)
        if place.owed:
            if not fired:
                self._failed(scene, level)
            self._next(scene, stack, frame, None)
            return
        if not self.level(level).interruptible:
            raise BrokenError(Broken("nothing raises out of the agent", f"{place.key} does"))
        if place.row is not None:
            self.enter(scene.world, level, place.row.source)
        if fired and not place.station.settles:
            event = ABORT
        else:
            event = FAULT
            self._failed(scene, level)
        stack[-1] = (level, TAKE, place.station, visited, event, lane)

    def _failed(self, scene: Scene, level: int) -> None:
        if level >= 3:
            scene.world.call(level - 3, error=True)
        else:
            scene.world.error = True

    def _fired(self, scene: Scene, level: int) -> bool:
        return level > 0 and bool(scene.world.cause)

    # -- arrows from outside -----------------------------------------------------------------------------------------

    def take(self, scene: Scene, event: str, before: tuple[str, bool] = ("", False)) -> None:
        """Take an arrow of the agent from outside the walk, as `perform_now` does."""
        world = scene.world
        row = self.levels[0].table.choose(world.agent, event, lambda: world.facts(0))
        self.taken.add(row)
        world.agent = row.target
        places = self.levels[0].emits[row]
        world.takes = (*world.takes, ((0, DO, places[0] if places else None, _NONE, "", 0), before, row))
        self.go_on_taking(scene)

    def go_on_taking(self, scene: Scene, refused: bool = False) -> None:
        """Perform the newest arrow from outside on, and those below it. `refused`: its append is."""
        world = scene.world
        while world.takes:
            frame, before, row = world.takes[-1]
            place: Place | None = frame[2]
            if frame[1] == AFTER:
                place = frame[2].after
            elif refused:
                frame[2].refuse(scene)
                if row.target != row.source:
                    world.agent = row.source
                place = None
            sure = frame[1] == BEFORE
            while place is not None:
                if not sure and self._may_be_refused(place, scene):
                    world.takes = (*world.takes[:-1], ((0, BEFORE, place, _NONE, "", 0), before, row))
                    return
                sure = False
                self.watch(place)
                scene.told = False
                place.performer(scene, -3)
                if place.heard and scene.told and self.listeners:
                    world.takes = (*world.takes[:-1], ((0, AFTER, place, _NONE, "", 0), before, row))
                    return
                place = place.after
            refused = False
            world.takes = world.takes[:-1]
            self._taken(scene, row.event, before)
            if self.listeners and world.takes:
                return  # a listener is done; the arrow that it has listened to goes on in a step of its own

    def _taken(self, scene: Scene, event: str, before: tuple[str, bool]) -> None:
        world = scene.world
        if event == "cancel":
            world.cancelling, world.keeping = before
        if not world.takes:
            self.pump(scene)
            if event == "maintained":
                self.rest(scene)

    def pump(self, scene: Scene) -> None:
        """Start an activity if a wake asks for one and none is going on."""
        world = scene.world
        if world.woken and not world.main:
            world.woken = False
            self.resume(scene, [(0, ENTER, True, _NONE, "", 0)])

    def resume(self, scene: Scene, stack: list[Frame]) -> None:
        """Go on with the main task, and end the activity if it has come to rest."""
        self.run(scene, stack)
        self.keep(scene, stack)

    def keep(self, scene: Scene, stack: list[Frame]) -> None:
        """Put the main task's stack back into the world."""
        scene.world.main = tuple(stack)
        if not stack:
            scene.world.woken = False
            self.rest(scene)

    def rest(self, scene: Scene) -> None:
        """Nothing is going on: the agent rests."""
        world = scene.world
        if not world.main:
            world.disposing = world.leaving
            scene.tell(Happening("rest", step=world.published))


def unwatched(_: Place) -> None:
    """Nobody wants to know what is performed."""
