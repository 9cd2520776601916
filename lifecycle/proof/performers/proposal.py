"""What a proposed step does before it is opened, and how it is closed."""

from __future__ import annotations

from typing import Any

from lifecycle.definition.step import Step
from lifecycle.driver.program import Performers

from ..happenings import Happening
from ..world import Scene
from .registering import GOES_ON, asks, otherwise, plain, returns

STEP: Performers[Any] = Performers(Step)
STEP.otherwise(otherwise)


def forget_step(scene: Scene) -> None:
    """Nobody reads the record of a step that has ended."""
    world = scene.world
    world.batch, world.decision, world.step_owed, world.opened = (), None, False, False
    world.published = world.tools = world.retry = False
    world.attempts, world.stream, world.finish = 0, "", ""
    world.calls = world.waiting = world.started = world.bodies = ()
    world.exclusive = world.concluded = False


def begin_step(scene: Scene) -> None:
    """The next proposed step, with what was claimed for it."""
    world = scene.world
    batch, owed = world.claimed, world.owed
    forget_step(scene)
    world.batch, world.step_owed, world.claimed = batch, owed, ()
    world.proposals = min(2, world.proposals + 1)


asks(STEP, "agent/step-boundary", GOES_ON)(returns)


@asks(STEP, "agent/model", GOES_ON)
def choose_model(scene: Scene, call: int, label: str) -> None:
    scene.world.published = True


@asks(STEP, "agent/pre-step", ("enters", 0), ("rejects", 1), ("empties the batch", 1), ("rewrites the batch", 1))
def decide(scene: Scene, call: int, label: str) -> str:
    world = scene.world
    if label == "rejects":
        world.reason, world.go_on = "blocked", False
        scene.tell(Happening("proposal", "reject"))
        return "reject"
    world.decision = {"enters": world.batch, "empties the batch": (), "rewrites the batch": ("rewritten",)}[label]
    scene.tell(Happening("proposal", "enter" if label == "enters" else "rewrite", world.decision))
    if world.decision or world.step_owed:
        return "enter"
    if world.proposals == 1:
        world.go_on = False
    return "reject"


@plain(STEP, "no step")
def spend_no_step(scene: Scene) -> None:
    scene.world.published = False


@plain(STEP, "step/start")
def start_step(scene: Scene) -> None:
    world = scene.world
    scene.tell(Happening("step/start", number=world.steps + 1, step=world.published))
    world.opened, world.steps = True, world.steps + 1


@plain(STEP, "dispose")
def dispose_tools(scene: Scene) -> None:
    if scene.world.tools:
        scene.world.tools = False
        scene.tell(Happening("tools/dispose"))


def _opened(scene: Scene) -> bool:
    return scene.world.opened


def _closed(scene: Scene) -> None:
    scene.world.opened = scene.world.published = False


@plain(STEP, "step/end", due=_opened, refusing=_closed)
def end_step(scene: Scene) -> None:
    world = scene.world
    if world.opened:
        scene.tell(Happening("step/end", number=world.steps, step=world.published))
        world.unsettled = ()  # a proposal that was opened and closed has settled what it had claimed
        _closed(scene)
