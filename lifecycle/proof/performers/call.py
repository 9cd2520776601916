"""What one tool call does: allowed, guarded, executed, and looked at once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from lifecycle.definition.tool_call import ToolCall
from lifecycle.driver.program import Performers
from lifecycle.vocabulary.events import ApprovalOutcome

from ..happenings import Happening
from ..places import Option, Performer
from ..world import Scene
from .registering import asks, asks_for, hooked, inner_of, otherwise, plain

CALL: Performers[Any] = Performers(ToolCall)
CALL.otherwise(otherwise)


def plain_of_call(key: str) -> Callable[[Callable[[Scene, int], None]], None]:
    """Register what is performed at once for one call."""

    def register(perform: Callable[[Scene, int], None]) -> None:
        CALL(key)(Performer(perform))

    return register


@asks(CALL, "tools/pre-execute", ("allows", 0), ("denies", 1), ("asks", 1))
def allow(scene: Scene, call: int, label: str) -> str:
    if label == "asks":
        return "inquire"
    return "permit" if label == "allows" else _deny(scene, call, "refuse")


def _deny(scene: Scene, call: int, event: str) -> str:
    scene.world.call(call, outcome="DENIED")
    return event


@plain_of_call("approval/asked")
def ask_about(scene: Scene, n: int) -> None:
    scene.tell(Happening("approval/asked", number=n + 1, step=scene.world.published))


@asks(CALL, "approve", ("answers yes", 0), ("answers no", 0))
def approve(scene: Scene, call: int, label: str) -> str:
    return "approve" if label == "answers yes" else _deny(scene, call, "deny")


def _decides(outcome: str) -> Callable[[Scene, int], None]:
    return lambda scene, n: scene.tell(Happening("approval/decided", outcome, number=n + 1, step=scene.world.published))


for _outcome in get_args(ApprovalOutcome):
    plain_of_call(f"approval/decided:{_outcome}")(_decides(_outcome))


@asks(CALL, "tools/guard", ("lets it pass", 0), ("denies", 1))
def guard(scene: Scene, call: int, label: str) -> str:
    return "clear" if label == "lets it pass" else _deny(scene, call, "refuse")


@plain(CALL, "check the arguments")
def check(scene: Scene) -> str:
    return "run"


def _body_options(scene: Scene, call: int) -> Sequence[Option]:
    more: tuple[Option, ...] = (("concludes", 1),)
    if scene.world.sendable:
        more = (*more, (f"defers {scene.world.sendable[0]}", 1))
    return (("ends", 0), *(more if scene.bounds.hooks else ()), *hooked(scene, ()))


@asks_for(CALL, "tools/execute", _body_options, inner=inner_of(ToolCall))
def execute(scene: Scene, call: int, label: str) -> str:
    world = scene.world
    if label.startswith("defers "):
        world.call(call, context=world.sendable[0])
        world.sendable = world.sendable[1:]
    world.call(call, outcome="ok, and concludes" if label == "concludes" else "ok")
    return "settle"


@plain_of_call("aborted")
def abort_call(scene: Scene, n: int) -> None:
    call = scene.world.calls[n]
    if call.outcome.startswith("ok") or not call.outcome:
        scene.world.call(n, outcome="ABORTED_BEFORE_DISPATCH")


@plain_of_call("faulted")
def fault_call(scene: Scene, n: int) -> None:
    scene.world.call(n, outcome="HOOK_FAILED", error=False)


@asks(CALL, "tools/post-execute", ("accepts", 0))
def look_at_outcome(scene: Scene, call: int, label: str) -> str:
    return "publish"


@plain_of_call("tools/result")
def publish(scene: Scene, n: int) -> None:
    scene.tell(Happening("tools/result", scene.world.calls[n].told, number=n + 1))
