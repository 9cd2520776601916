"""What the agent does: it takes input, wakes, is cancelled, and says whether it runs."""

from __future__ import annotations

from typing import Any

from lifecycle.definition.agent import Agent
from lifecycle.driver.program import Performers

from ..happenings import Happening
from ..world import Ids, Scene
from .registering import never, otherwise, plain
from .turn import TURN, begin_turn

AGENT: Performers[Any] = Performers(Agent)
AGENT.otherwise(otherwise)
AGENT.runs(TURN, begin_turn)


def insert_into(scene: Scene, id: str, target: str) -> None:
    world = scene.world
    announce_edit(scene)
    scene.tell(Happening("agent/inbox/spliced", "insert", (id,), target=target))
    if target == "next-step":
        world.next_step = (*world.next_step, id)
    else:
        world.next_turn = (*world.next_turn, id)
    world.inserted = (id,)


@plain(AGENT, "agent/inbox/spliced:insert")
def insert(scene: Scene) -> None:
    assert scene.world.sending is not None
    insert_into(scene, *scene.world.sending)


@plain(AGENT, "agent/inbox/spliced:insert late")
def insert_late(scene: Scene) -> None:
    assert scene.world.sending is not None
    insert_into(scene, scene.world.sending[0], "next-turn")


@plain(AGENT, "agent/inbox/inserted")
def announce_insertion(scene: Scene) -> None:
    inserted, scene.world.inserted = scene.world.inserted, ()
    if inserted:
        scene.tell(Happening("agent/inbox/inserted", ids=inserted))


def announce_recorded(scene: Scene) -> None:
    """Announce what an append that runs has just recorded, before a cancel discards more."""
    world = scene.world
    announce_edit(scene)
    world.inserted = tuple(id for id in world.inserted if id in world.next_step or id in world.next_turn)
    announce_insertion(scene)
    announce_discard(scene)


@plain(AGENT, "agent/inbox/spliced:edit", due=never)
def edit(scene: Scene) -> None:
    announce_edit(scene)
    world = scene.world
    old, new = world.editing
    if not new:
        world.edited_out = _discard(scene, (old,))
        return
    target = "next-step" if old in world.next_step else "next-turn"
    scene.tell(Happening("agent/inbox/spliced", "replace", (old, new), target=target))
    world.next_step = tuple(new if id == old else id for id in world.next_step)
    world.next_turn = tuple(new if id == old else id for id in world.next_turn)
    world.edited_out, world.edited_in = (old,), (new,)


def announce_edit(scene: Scene) -> None:
    """Announce what an edit has recorded, before anything else is."""
    announce_edited_out(scene)
    announce_edited_in(scene)


@plain(AGENT, "agent/inbox/spliced:clear next-step", due=never)
def clear_next_step(scene: Scene) -> None:
    if not scene.world.keeping:
        announce_edit(scene)
        scene.world.discarded = _discard(scene, scene.world.next_step)


@plain(AGENT, "agent/inbox/spliced:clear next-turn", due=never)
def clear_next_turn(scene: Scene) -> None:
    if not scene.world.keeping:
        announce_edit(scene)
        scene.world.discarded = _discard(scene, scene.world.next_turn)


def _discard(scene: Scene, ids: Ids) -> Ids:
    world = scene.world
    if ids:
        target = "next-step" if ids[0] in world.next_step else "next-turn"
        scene.tell(Happening("agent/inbox/spliced", "canceled", ids, target=target))
        world.next_step = tuple(id for id in world.next_step if id not in ids)
        world.next_turn = tuple(id for id in world.next_turn if id not in ids)
    return ids


@plain(AGENT, "agent/inbox/discarded")
def announce_discard(scene: Scene) -> None:
    discarded, scene.world.discarded = scene.world.discarded, ()
    if discarded:
        scene.tell(Happening("agent/inbox/discarded", ids=discarded))


@plain(AGENT, "agent/inbox/discarded:edit")
def announce_edited_out(scene: Scene) -> None:
    discarded, scene.world.edited_out = scene.world.edited_out, ()
    if discarded:
        scene.tell(Happening("agent/inbox/discarded", ids=discarded))


@plain(AGENT, "agent/inbox/inserted:edit")
def announce_edited_in(scene: Scene) -> None:
    inserted, scene.world.edited_in = scene.world.edited_in, ()
    if inserted:
        scene.tell(Happening("agent/inbox/inserted", ids=inserted))


@plain(AGENT, "fire")
def fire(scene: Scene) -> None:
    scene.world.cause = scene.world.cause or scene.world.cancelling


@plain(AGENT, "wake")
def wake(scene: Scene) -> None:
    scene.world.woken, scene.world.cause = True, ""


@plain(AGENT, "agent/overdue")
def say_overdue(scene: Scene) -> None:
    scene.tell(Happening("agent/overdue"))


@plain(AGENT, "agent/status:running")
def say_running(scene: Scene) -> None:
    scene.world.status = "running"
    scene.tell(Happening("agent/status", "running"))


@plain(AGENT, "agent/status:idle")
def say_idle(scene: Scene) -> None:
    scene.world.status = "idle"
    scene.tell(Happening("agent/status", "idle"))


@plain(AGENT, "converge")
def converge(scene: Scene) -> str:
    return "turned"


@plain(AGENT, "agent/disposed")
def say_disposed(scene: Scene) -> None:
    scene.tell(Happening("agent/disposed"))
