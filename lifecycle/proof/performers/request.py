"""What an entered step does up to the settlement of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from ..happenings import Happening
from ..places import Option, Performer
from ..world import Scene
from .proposal import STEP
from .registering import GOES_ON, RAISES, asking, asks, asks_for, hooked, never, plain, returns
from .tooling import open_pool


@plain(STEP, "resolve")
def resolve_tools(scene: Scene) -> None:
    scene.world.tools = True
    scene.tell(Happening("tools/resolve"))


asks(STEP, "system-prompt/assemble", GOES_ON)(returns)
asks(STEP, "prepareCall", GOES_ON)(returns)


@asks(STEP, "agent/request", GOES_ON)
def shape(scene: Scene, call: int, label: str) -> None:
    world = scene.world
    world.attempts = min(world.attempts, scene.bounds.retries + 1) + 1  # more of them would be no other state
    world.retry, world.stream, world.finish = False, "", ""


def _told(key: str) -> Callable[[Scene], None]:
    def tell(scene: Scene) -> None:
        scene.tell(Happening(key, step=scene.world.published))

    return tell


for _key in ("system/message", "request/header"):
    plain(STEP, _key)(_told(_key))
plain(STEP, "user/message:snapshot", due=never)(lambda scene: None)
plain(STEP, "derive")(lambda scene: None)


def _enters(scene: Scene) -> bool:
    return bool(scene.world.decision)


@plain(STEP, "user/message", due=_enters)
def admit_users(scene: Scene) -> None:
    world = scene.world
    for id in world.decision or ():
        scene.tell(Happening("user/message", ids=(id,), step=world.published))
        world.unsettled = tuple(pair for pair in world.unsettled if pair[0] != id)


STREAM = "agent/assistant-stream"


@cache
def _answers(most: int) -> tuple[Option, ...]:
    modes = [" ".join(mode) for n in range(1, most + 1) for mode in product(("parallel", "exclusive"), repeat=n)]
    return tuple((f"asks for calls: {mode}", 0) for mode in modes)


def _stream_options(scene: Scene, call: int) -> Sequence[Option]:
    world, bounds = scene.world, scene.bounds
    if world.cause:
        return (("is cut, with something to see", 0), ("is cut, with nothing to see", 0), RAISES)
    more = (("pauses", 1), *_answers(bounds.calls)) if world.steps < bounds.steps else ()
    return (("answers", 0), *more, ("runs into max-tokens", 1), ("fails", 1), RAISES)


def _stream_answered(scene: Scene, call: int, label: str) -> str | None:
    world = scene.world
    if label.startswith("is cut"):
        world.stream = "shown" if "something" in label else "open"
        return None
    world.finish = label
    if label == "fails":
        world.stream = "failed"
        return "fail"
    world.stream = "shown"
    return "succeed"


def _stream() -> Performer:
    request = asking("llm/stream", _stream_options, _stream_answered)

    def dispatch(scene: Scene, call: int) -> Any:
        scene.world.stream = "open"
        scene.tell(Happening(f"{STREAM} start"))
        return request(scene, call)

    return replace(request, perform=dispatch)


STEP("llm/stream", suspends=True)(_stream())


@plain(STEP, f"{STREAM}:end", f"{STREAM}:cut")
def tell_end(scene: Scene) -> None:
    if scene.world.stream not in ("", "ended"):
        scene.world.stream = "ended"
        scene.tell(Happening(f"{STREAM} end"))


def _unsettled(scene: Scene) -> bool:
    return scene.world.stream in ("open", "shown", "failed")


def _settling(scene: Scene) -> None:
    scene.world.stream = "settling"


@plain(STEP, "assistant/message", refusing=_settling)
def settle_message(scene: Scene) -> None:
    world = scene.world
    modes = world.finish.partition(": ")[2].split()
    scene.tell(Happening("assistant/message", number=len(modes), step=world.published))
    _settling(scene)
    if "max-tokens" in world.finish:
        world.reason = "max-tokens"
    world.owed = world.finish == "pauses"
    open_pool(scene, modes)


def _shown(scene: Scene) -> bool:
    return scene.world.stream == "shown"


@plain(STEP, "assistant/message:interrupted", due=_shown, refusing=_settling)
def settle_visible(scene: Scene) -> None:
    if _shown(scene):
        scene.tell(Happening("assistant/message", "interrupted", step=scene.world.published))
        _settling(scene)


@plain(STEP, "assistant/attempt", "assistant/attempt:cut", due=_unsettled, refusing=_settling)
def settle_attempt(scene: Scene) -> None:
    if _unsettled(scene):
        scene.tell(Happening("assistant/attempt", step=scene.world.published))
        _settling(scene)


def _recovery_options(scene: Scene, call: int) -> Sequence[Option]:
    again = (("retries", 1),) if scene.world.attempts <= scene.bounds.retries else ()
    return (("preserves the error", 0), *hooked(scene, again))


@asks_for(STEP, "agent/request-error", _recovery_options)
def recover(scene: Scene, call: int, label: str) -> str:
    scene.world.retry = label == "retries"
    if scene.world.retry:
        return "retry"
    if not scene.world.cause:
        scene.world.error = True
    return "surrender"
