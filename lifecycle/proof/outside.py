"""What the outside world may do to a scene, and what every task in it may do next.

Three may act while something else goes on: other tasks, whenever the agent's own waits; listeners, when they are told
of something; and observers of the log, which may only cancel. Follows `lifecycle.driver.agent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from lifecycle.definition.agent import Agent
from lifecycle.definition.family import pooled, within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.tool_call import ToolCall
from lifecycle.driver.program import ASK

from .happenings import Happening, Ledger
from .performers import AGENT, CALL
from .performers.agent import announce_recorded
from .performers.tooling import lane_of, reopen_pool
from .places import AFTER, ASKED, BEFORE, CHOOSE, ENTER, NO_FAULTS, Faults, Frame
from .stepper import Stepper
from .world import Bounds, Ids, Scene, World

NOBODY = "nobody interferes"
APPENDED = "is appended"

Act: TypeAlias = Callable[[Scene], None]
On: TypeAlias = Callable[[Callable[[Scene, list[Frame]], None]], Act]
"""Makes an act of what is to be done in one task."""


class Move(NamedTuple):
    """Something that may happen next. `inner` moves happen by themselves, without anybody outside wanting anything."""

    label: str
    act: Act
    inner: bool = True
    odd: int = 0


class Play:
    """A lifecycle with its abstract performers, in an outside world of some bounds.

    Args:
        lifecycle: Ours, or one derived from it or from what it runs.
        faulty: Performers in the place of others, to see whether what they do wrong is found.
    """

    def __init__(self, lifecycle: type[Lifecycle] = Agent, bounds: Bounds | None = None, faulty: Faults = NO_FAULTS):
        self.bounds = bounds or Bounds()
        self.lifecycle = within(Agent, lifecycle)
        program, call = AGENT.program(self.lifecycle), CALL.program(pooled(self.lifecycle) or ToolCall)
        self.stepper = Stepper(program, call, faulty, listeners=self.bounds.listeners, vetoes=self.bounds.vetoes)

    def opening(self) -> Scene:
        """An idle agent on an empty session."""
        messages = tuple(f"m{n}" for n in range(1, self.bounds.messages + 1))
        world = World(self.bounds.odd, messages, self.lifecycle.spec.initial)
        return Scene(world, Ledger(), self.bounds)

    def apply(self, scene: Scene, move: Move) -> Scene:
        """The scene after a move. Raises BrokenError if an invariant does not hold."""
        after = scene.copy()
        after.world.odd -= move.odd
        move.act(after)
        return after

    def at_rest(self, scene: Scene) -> bool:
        """Nothing goes on, and nothing has to."""
        world = scene.world
        return world.gone or not (world.main or world.takes or world.leaving or "maintenance" in world.agent)

    # -- moves -----------------------------------------------------------------------------------------------------

    def moves(self, scene: Scene) -> list[Move]:
        """All that may happen next."""
        world = scene.world
        if world.gone:
            return []
        if world.takes:
            return self._affordable(scene, self._taking(scene))
        for stack, on in ((world.main, self._on_main), *self._bodies(world)):
            if stack and stack[-1][1] in (BEFORE, AFTER):
                return self._affordable(scene, self._telling(scene, stack[-1], on))
        found = [*self._tasks(scene), *self._host(scene), *_wishes(self.stepper, scene, "the host")]
        return self._affordable(scene, found)

    def _affordable(self, scene: Scene, moves: list[Move]) -> list[Move]:
        return [move for move in moves if move.odd <= scene.world.odd]

    def _taking(self, scene: Scene) -> list[Move]:
        stepper, (frame, _, _) = self.stepper, scene.world.takes[-1]
        if frame[1] == BEFORE:
            name = frame[2].effect.name
            return [
                Move(f"{name} {APPENDED}", stepper.go_on_taking),
                Move(f"{name} is refused", partial(stepper.go_on_taking, refused=True), odd=1),
                *self._crash(scene),
            ]
        return [Move(NOBODY, stepper.go_on_taking), *self._heard(scene, frame), *self._crash(scene)]

    def _telling(self, scene: Scene, frame: Frame, on: On) -> list[Move]:
        stepper = self.stepper
        if frame[1] == BEFORE:
            name = frame[2].effect.name
            return [
                Move(f"{name} {APPENDED}", on(partial(stepper.append, refused=False))),
                Move(f"{name} is refused", on(partial(stepper.append, refused=True)), odd=1),
                *self._crash(scene),
            ]
        return [
            Move(NOBODY, on(stepper.go_on)),
            *self._heard(scene, frame),
            *self._crash(scene),
        ]

    def _heard(self, scene: Scene, frame: Frame) -> Iterator[Move]:
        place = frame[2]
        if place.heard == "all":
            yield from _wishes(self.stepper, scene, f"a listener of {place.effect.name}")
        else:
            yield from _cancels(self.stepper, scene, f"an observer of {place.effect.name}", _cancel_within)

    def _tasks(self, scene: Scene) -> Iterator[Move]:
        world, stepper = scene.world, self.stepper
        if world.main:
            frame = world.main[-1]
            if frame[1] == CHOOSE:
                level, phase = stepper.level(frame[0]), frame[2].name
                for event in level.only_events(phase):
                    act = self._on_main(partial(stepper.choose, event=event))
                    again = level.leads_back(phase, event)  # as odd as a retry, so that it is not for ever
                    yield Move(f"{phase} comes to {event}", act, odd=int(again))
            elif frame[2].performer.ask is not None:
                yield from self._answers(scene, frame, self._on_main)
            elif frame[2].performer.ready(scene):
                yield Move(f"{frame[2].key} goes on", self._on_main(stepper.ask_again))
        for n, (stack, on) in enumerate(self._bodies(world), 1):
            if stack and stack[-1][1] == ENTER:
                yield Move(f"the task of call {n} begins", on(stepper.run))
            elif stack:
                yield from self._answers(scene, stack[-1], on)

    def _bodies(self, world: World) -> Iterator[tuple[tuple[Frame, ...], On]]:
        """The calls in tasks of their own."""
        for n, stack in enumerate(world.bodies):
            yield stack, partial(self._on_body, n)

    def _answers(self, scene: Scene, frame: Frame, on: On) -> Iterator[Move]:
        assert frame[1] == ASKED
        place, call = frame[2], frame[0] - 3
        whose = f" of call {call + 1}" if call >= 0 else ""
        for label, odd in place.performer.ask.options(scene, call):
            act = on(partial(self.stepper.answer, label=label))
            yield Move(f"{place.key}{whose} {label}", act, odd=odd)

    def _on_main(self, go: Callable[[Scene, list[Frame]], None]) -> Act:
        def act(scene: Scene) -> None:
            stack = list(scene.world.main)
            go(scene, stack)
            self.stepper.keep(scene, stack)

        return act

    def _on_body(self, n: int, go: Callable[[Scene, list[Frame]], None]) -> Act:
        def act(scene: Scene) -> None:
            stack = list(scene.world.bodies[n])
            go(scene, stack)
            bodies = list(scene.world.bodies)
            bodies[n] = tuple(stack)
            scene.world.bodies = tuple(bodies)
            if not stack:
                scene.world.call(n, running=False)

        return act

    def _host(self, scene: Scene) -> Iterator[Move]:
        """What only another task can do: maintenance, the end of the agent's context, the end of the process."""
        world, bounds, stepper = scene.world, scene.bounds, self.stepper
        if not world.main and world.agent == "idle":
            if world.leaving:
                yield Move("the agent is disposed of", partial(_dispose, stepper))
            elif bounds.maintenance:
                yield Move("a maintenance task starts", partial(_maintain, stepper), inner=False, odd=1)
        if world.main and world.agent in ("converging", "latched"):
            yield Move("a grace period ends", partial(stepper.take, event="outlast"), inner=False, odd=1)
        if "maintenance" in world.agent:
            yield Move("the maintenance task ends", partial(_maintained, stepper))
        if not world.leaving:
            yield Move("the host leaves the agent's context", partial(_leave, stepper), inner=False, odd=1)
        yield from self._crash(scene)

    def _crash(self, scene: Scene) -> Iterator[Move]:
        world = scene.world
        if scene.bounds.crashes and (world.main or world.takes):
            yield Move("the process is lost, and the session repaired", self._crashed, inner=False, odd=1)

    def _crashed(self, scene: Scene) -> None:
        """Nothing is left but the log. Repair closes the turn, and gives back what it had claimed and not settled.

        But a turn goes on that is parked, at the call that somebody was asked about.
        """
        old = scene.world
        parked = self._parked(old)
        scene.tell(Happening("crash", "" if parked is None else "parked"))
        if old.unsettled:
            scene.tell(Happening("returned", ids=tuple(id for id, _ in old.unsettled)))
        scene.world = World(
            old.odd,
            old.sendable,
            self.lifecycle.spec.initial,
            next_step=(*_from(old, "next-step"), *old.next_step),
            next_turn=(*_from(old, "next-turn"), *old.next_turn),
            number=old.number,
            go_on=False,
        )
        if parked is None:
            self.stepper.rest(scene)
            return
        for name in (
            "turn",
            "step",
            "steps",
            "proposals",
            "reason",
            "opened",
            "published",
            "tools",
            "attempts",
            "calls",
        ):
            setattr(scene.world, name, getattr(old, name))
        reopen_pool(scene, parked, old.started, old.waiting)
        self.stepper.take(scene, "resume")

    def _parked(self, world: World) -> int | None:
        """The call that somebody is asked about, if the log says so."""
        newest = world.started[-1:]
        return next((n for n in newest if lane_of(world, n) == ASK), None)


def _from(world: World, target: str) -> Ids:
    return tuple(id for id, at in world.unsettled if at == target)


# -- what anybody may wish --------------------------------------------------------------------------------------------


def _wishes(stepper: Stepper, scene: Scene, who: str) -> Iterator[Move]:
    world = scene.world
    if world.sendable:
        for verb in ("followup", "steer", "inject"):
            act = partial(_send, stepper, verb=verb)
            yield Move(f"{who} calls {verb}({world.sendable[0]})", act, inner=False)
    yield from _cancels(stepper, scene, who)
    if scene.bounds.edits:
        for id in (*world.next_step, *world.next_turn):
            yield Move(f"{who} removes {id}", partial(_edit, stepper, old=id), inner=False, odd=1)
            if world.sendable:
                act = partial(_edit, stepper, old=id, new=world.sendable[0])
                yield Move(f"{who} replaces {id} by {world.sendable[0]}", act, inner=False, odd=1)


def _cancels(stepper: Stepper, scene: Scene, who: str, cancel: Callable[..., None] | None = None) -> Iterator[Move]:
    for cause in scene.bounds.causes:
        for keep in (False, True):
            how = ", keeping the inbox" if keep else ""
            act = partial(cancel or _cancel, stepper, cause=cause, keep=keep)
            yield Move(f"{who} cancels ({cause}{how})", act, inner=False, odd=1)


def _send(stepper: Stepper, scene: Scene, verb: str) -> None:
    world = scene.world
    id, world.sendable = world.sendable[0], world.sendable[1:]
    world.sending = id, "next-turn" if verb == "followup" else "next-step"
    scene.tell(Happening(verb, ids=(id,)))
    stepper.take(scene, "stage" if verb == "inject" else "submit")


def _cancel(stepper: Stepper, scene: Scene, cause: str, keep: bool, name: str = "cancel") -> None:
    world = scene.world
    before = world.cancelling, world.keeping
    world.cancelling, world.keeping = world.cancelling or cause, keep
    world.disposing = world.leaving or (world.agent != "idle" and (world.disposing or cause == "disposed"))
    scene.tell(Happening(name, cause, keep=keep))
    stepper.take(scene, "cancel", before)


def _cancel_within(stepper: Stepper, scene: Scene, cause: str, keep: bool) -> None:
    """From inside an append: at once, keeping the inbox; and once more as soon as the append is over."""
    _cancel(stepper, scene, cause, True)
    if not keep:
        announce_recorded(scene)
        _cancel(stepper, scene, cause, False)


def _edit(stepper: Stepper, scene: Scene, old: str, new: str = "") -> None:
    world = scene.world
    world.editing = old, new
    if new:
        world.sendable = world.sendable[1:]
    stepper.take(scene, "edit")


def _leave(stepper: Stepper, scene: Scene) -> None:
    scene.world.leaving = True
    _cancel(stepper, scene, "disposed", True, "dispose")


def _dispose(stepper: Stepper, scene: Scene) -> None:
    stepper.take(scene, "dispose")
    scene.world.gone = True


def _maintain(stepper: Stepper, scene: Scene) -> None:
    scene.tell(Happening("maintenance"))
    stepper.take(scene, "maintain")
    scene.world.cause = ""


def _maintained(stepper: Stepper, scene: Scene) -> None:
    scene.tell(Happening("maintained"))
    stepper.take(scene, "maintained")
