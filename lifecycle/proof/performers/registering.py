"""How abstract performers are registered: what is performed at once, and what somebody outside decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lifecycle.definition.effects import Kind, Message
from lifecycle.definition.machine import Lifecycle
from lifecycle.driver.program import Performers

from ..happenings import Happening
from ..places import Ask, MishapError, Option, Performer
from ..world import Scene

RAISES: Option = ("raises", 1)
GOES_ON: Option = ("returns", 0)


def inner_of(lifecycle: type[Lifecycle]) -> list[str]:
    """What a lifecycle declares to happen while something else is performed: in these runs it is a part of that."""
    arrows = [arrow.emits for _, arrow in lifecycle.spec.arrows]
    effects = [
        effect for said in (*(phase.does for phase in lifecycle.spec.phases.values()), *arrows) for effect in said
    ]
    found = [one for one in effects if isinstance(one, Message) and one.inner and one.kind is not Kind.ANSWER]
    return list(dict.fromkeys(effect.key for effect in found))


def never(_: Scene) -> bool:
    """Of a record that is not refused in these runs."""
    return False


def plain(
    to: Performers[Any], *keys: str, inner: Iterable[str] = (), **more: Any
) -> Callable[[Callable[[Scene], str | None]], Callable[[Scene], str | None]]:
    """Register what is performed at once; `more` goes to the Performer."""

    def register(perform: Callable[[Scene], str | None]) -> Callable[[Scene], str | None]:
        to(*keys, inner=inner)(Performer(lambda scene, _: perform(scene), **more))
        return perform

    return register


def asks(
    to: Performers[Any], key: str, *options: Option, inner: Iterable[str] = ()
) -> Callable[[Callable[[Scene, int, str], str | None]], None]:
    """Register an effect of which somebody outside decides what comes: one of `options`, or it raises."""
    return asks_for(to, key, lambda scene, call: hooked(scene, options), inner=inner)


def asks_for(
    to: Performers[Any], key: str, options: Callable[[Scene, int], Sequence[Option]], *, inner: Iterable[str] = ()
) -> Callable[[Callable[[Scene, int, str], str | None]], None]:
    """The same with options that depend on the scene. The decorated function does what comes of an option."""

    def register(answer: Callable[[Scene, int, str], str | None]) -> None:
        to(key, suspends=True, inner=inner)(asking(key, options, answer))

    return register


def asking(
    key: str, options: Callable[[Scene, int], Sequence[Option]], answer: Callable[[Scene, int, str], str | None]
) -> Performer:
    def answered(scene: Scene, call: int, label: str) -> str | None:
        if label == RAISES[0]:
            raise MishapError
        return answer(scene, call, label)

    ask = Ask(options, answered)

    def dispatch(scene: Scene, call: int) -> Ask:
        scene.tell(Happening(key, number=max(0, call + 1), step=scene.world.published))
        return ask

    return Performer(dispatch, ask)


def hooked(scene: Scene, options: Sequence[Option]) -> Sequence[Option]:
    """What hooks may do: in a search without odd hooks only what is not odd."""
    return (*options, RAISES) if scene.bounds.hooks else [option for option in options if not option[1]]


def returns(scene: Scene, call: int, label: str) -> str | None:
    return None


def otherwise(effect: Message) -> Any:
    """How an effect is performed that a user's lifecycle adds: a hook may raise, a record is told as what it is called,
    and nothing else comes of it.
    """
    if effect.kind is Kind.HOOK:
        return asking(effect.key, lambda scene, call: hooked(scene, (GOES_ON,)), returns)
    if effect.kind is Kind.RECORD:
        return Performer(lambda scene, call: scene.tell(Happening(effect.name, step=scene.world.published)))
    return Performer(lambda scene, call: None)
