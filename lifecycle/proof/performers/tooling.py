"""What a step does with the calls of its answer: barriers, a rolling pool, results in model order."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle.driver.program import ASK, BODY, COMMIT, START
from lifecycle.driver.program import lane_of as lane_of_phase

from ..happenings import Happening
from ..places import BLOCKED, ENTER, Blocked, Drive, Performer
from ..world import Call, Scene, World
from .agent import announce_insertion, insert_into
from .call import CALL
from .proposal import STEP
from .registering import inner_of, plain


def open_pool(scene: Scene, modes: Sequence[str]) -> None:
    """The calls of an answer, each `parallel` or `exclusive`."""
    world = scene.world
    initial = CALL.lifecycle.spec.initial
    frames = [(3 + n, ENTER, True, frozenset[str](), "", START) for n in range(len(modes))]
    world.calls = tuple(
        Call(mode == "parallel", initial, frame=frame) for mode, frame in zip(modes, frames, strict=True)
    )
    world.waiting, world.started = tuple(range(len(modes))), ()
    world.bodies = ((),) * len(modes)


def reopen_pool(scene: Scene, parked: int, started: Sequence[int], waiting: tuple[int, ...]) -> None:
    """The pool of a lost process, as its log tells of it: the calls before the one that is parked have ended."""
    world = scene.world
    for n in started:
        if n != parked:
            scene.tell(Happening("tool/result", "TOOL_OUTCOME_UNKNOWN", number=n + 1, step=world.published))
    frame = (3 + parked, ENTER, True, frozenset[str](), "", START)
    world.call(parked, outcome="", error=False, running=False, frame=frame)
    world.started, world.waiting, world.bodies = (parked,), waiting, ((),) * len(world.calls)
    world.exclusive, world.undecided = not world.calls[parked].parallel, True


def next_move(scene: Scene) -> str | None:
    """`settle` if the oldest call has ended, `start` if the next one may start, `finish` if all is done, else None."""
    world = scene.world
    if world.undecided:
        return "reenter"
    if world.started and not world.calls[world.started[0]].running:
        return "settle"
    if not world.waiting:
        return None if world.started else "finish"
    if world.started and lane_of(scene.world, world.started[-1]) == ASK:
        return None
    world.exclusive = not world.calls[world.waiting[0]].parallel
    if world.exclusive:
        return None if world.started else "start"
    return "start" if _running(scene) < scene.bounds.cap else None


def _running(scene: Scene) -> int:
    return sum(call.running for call in scene.world.calls)


def _can_move(scene: Scene) -> bool:
    return next_move(scene) is not None


def _classify(scene: Scene, call: int) -> Blocked | str:
    if not scene.world.calls:
        return "finish"
    move = next_move(scene)
    if move == "finish":
        scene.world.owed = not scene.world.concluded
    return BLOCKED if move is None else move


STEP("classify pending call by executionMode", suspends=True)(Performer(_classify, ready=_can_move))


def open_call(scene: Scene) -> None:
    world = scene.world
    n = world.waiting[0]
    scene.tell(Happening("tool/call", number=n + 1, step=world.published))
    world.waiting = world.waiting[1:]
    world.started = (*world.started, n)


plain(STEP, "tool/call")(open_call)


def run_call(scene: Scene, call: int) -> Drive | None:
    """Drive the newest call up to its body, and start that: in this task if nothing could overlap with it."""
    world = scene.world
    n = world.started[-1]
    lane = lane_of(scene.world, n)
    world.undecided = False
    if lane == START:
        return Drive(n, START)
    if lane not in (ASK, BODY) or world.calls[n].running:
        return None
    if lane == ASK and len(world.started) == 1:
        return Drive(n, ASK)
    if len(world.started) == 1 and (world.exclusive or not world.waiting):
        return Drive(n, BODY)
    level, state, spot, visited, event, _ = world.calls[n].frame
    bodies = list(world.bodies)
    bodies[n] = ((level, state, spot, visited, event, BODY),)
    world.bodies = tuple(bodies)
    world.call(n, running=True, frame=None)
    return None


def lane_of(world: World, n: int) -> int:
    """Where a call goes on; after COMMIT if it has ended."""
    phase = CALL.lifecycle.spec.phases[world.calls[n].phase]
    return COMMIT + 1 if phase.final else lane_of_phase(phase)


STEP("pre and execute", "take up", suspends=True)(Performer(run_call))


def post(scene: Scene, call: int) -> Drive | None:
    """Drive the oldest call to its end."""
    n = scene.world.started[0]
    return Drive(n, COMMIT) if scene.world.calls[n].frame is not None else None


STEP("post", suspends=True)(Performer(post))


def commit(scene: Scene) -> None:
    """Record the result of the oldest call, and stage its context."""
    world = scene.world
    n = world.started[0]
    call = world.calls[n]
    scene.tell(Happening("tool/result", call.told, number=n + 1, step=world.published))
    world.started = world.started[1:]
    if call.outcome == "ok, and concludes":
        world.concluded = True
    if call.context:
        scene.tell(Happening("inject", ids=(call.context,)))
        insert_into(scene, call.context, "next-step")
        announce_insertion(scene)


plain(STEP, "tool/result")(commit)


def drain(scene: Scene, call: int) -> Drive | Blocked | None:
    """Let what has started end, and commit it in order; then give the rest an error pair."""
    world = scene.world
    while world.started or world.waiting:
        if not world.started:
            open_call(scene)
        elif world.calls[world.started[0]].running:
            return BLOCKED
        elif (driven := post(scene, call)) is not None:
            return driven
        else:
            commit(scene)
    return None


def _can_drain(scene: Scene) -> bool:
    started = scene.world.started
    return not started or not scene.world.calls[started[0]].running


STEP("drain", suspends=True, inner=inner_of(STEP.lifecycle))(Performer(drain, ready=_can_drain))


def _none_runs(scene: Scene) -> bool:
    return _running(scene) == 0


STEP("abandon", suspends=True)(
    Performer(lambda scene, call: BLOCKED if _running(scene) else None, ready=_none_runs),
)
