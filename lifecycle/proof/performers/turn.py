"""What a turn does: it opens, claims its input, stops, and closes with one reason."""

from __future__ import annotations

from typing import Any

from lifecycle.definition.turn import Turn
from lifecycle.driver.program import Performers

from ..happenings import Happening
from ..world import Ids, Scene
from .proposal import STEP, begin_step, forget_step
from .registering import GOES_ON, asks, inner_of, otherwise, plain, returns

TURN: Performers[Any] = Performers(Turn)
TURN.otherwise(otherwise)


def begin_turn(scene: Scene) -> None:
    """A new record; what it does not say of the turn before is gone."""
    world = scene.world
    world.cause, world.claimed, world.unsettled = "", (), ()
    world.steps = world.proposals = 0
    world.reason, world.owed, world.go_on, world.error = "completed", False, True, False
    forget_step(scene)


TURN.runs(STEP, begin_step)


@plain(TURN, "turn/start")
def start_turn(scene: Scene) -> None:
    scene.tell(Happening("turn/start", number=scene.world.number + 1, step=scene.world.published))
    scene.world.number += 1


def _waiting_for_first(scene: Scene) -> bool:
    return scene.world.pending


@plain(TURN, "agent/inbox/spliced:claim first", due=_waiting_for_first)
def claim_first(scene: Scene) -> None:
    world = scene.world
    claimed = _claim(scene, world.next_step, "next-step")
    world.claimed = claimed + _claim(scene, world.next_turn[:1], "next-turn")


def _waiting_for_next(scene: Scene) -> bool:
    return bool(scene.world.next_step)


@plain(TURN, "claim", inner=inner_of(Turn), appends=True, due=_waiting_for_next)
def claim_next(scene: Scene) -> None:
    scene.world.claimed = _claim(scene, scene.world.next_step, "next-step")


def _claim(scene: Scene, ids: Ids, target: str) -> Ids:
    world = scene.world
    if ids:
        scene.tell(Happening("agent/inbox/spliced", "claim", ids, target=target))
        world.unsettled = (*world.unsettled, *((id, target) for id in ids))
        if target == "next-step":
            world.next_step = world.next_step[len(ids) :]
        else:
            world.next_turn = world.next_turn[len(ids) :]
    return ids


@plain(TURN, "agent/inbox/claimed")
def announce_claim(scene: Scene) -> None:
    if scene.world.claimed:
        scene.tell(Happening("agent/inbox/claimed", ids=scene.world.claimed))


asks(TURN, "agent/turn-stopping", GOES_ON)(returns)


@plain(TURN, "look")
def look(scene: Scene) -> str:
    return "proceed" if scene.world.owed or scene.world.next_step else "rest"


@plain(TURN, "agent/error")
def announce_error(scene: Scene) -> None:
    scene.world.go_on = False
    if scene.world.error:
        scene.tell(Happening("agent/error"))


def _end_refused(scene: Scene) -> None:
    forget_step(scene)
    scene.world.error = False


@plain(TURN, "turn/end", refusing=_end_refused)
def end_turn(scene: Scene) -> None:
    world = scene.world
    reason = "error" if world.error else f"aborted {world.cause}" if world.cause else world.reason
    forget_step(scene)
    world.error, world.unsettled = False, ()
    scene.tell(Happening("turn/end", reason, number=world.number, step=world.published))
