"""A lifecycle together with those that its phases run and pool."""

from __future__ import annotations

from collections.abc import Iterator
from types import new_class
from typing import cast

from lifecycle.errors import DefinitionError

from .machine import Lifecycle, Phase


def family(lifecycle: type[Lifecycle]) -> Iterator[type[Lifecycle]]:
    """A lifecycle and all that its phases run and pool, outermost first, each once."""
    seen: dict[type[Lifecycle], None] = {}

    def visit(one: type[Lifecycle]) -> None:
        if one not in seen:
            seen[one] = None
            for phase in one.spec.phases.values():
                for other in (phase.runs, phase.pool):
                    if other is not None:
                        visit(other)

    visit(lifecycle)
    yield from seen


def pooled(lifecycle: type[Lifecycle]) -> type[Lifecycle] | None:
    """The lifecycle that some phase of the family pools, if one does."""
    pools = (phase.pool for one in family(lifecycle) for phase in one.spec.phases.values())
    return next((pool for pool in pools if pool is not None), None)


def within(whole: type[Lifecycle], part: type[Lifecycle]) -> type[Lifecycle]:
    """`whole` with `part` in the place of what it is derived from; `part` itself if it is derived from `whole`.

    So a user's step comes into a turn and an agent without either being written again.

    Raises:
        DefinitionError: if `part` is derived from none of the family.
    """
    placed = _within(whole, part)
    if placed is None:
        names = ", ".join(one.__name__ for one in family(whole))
        raise DefinitionError(f"{part.__name__} has no place in {whole.__name__}: it is derived from none of {names}")
    return placed


def _within(whole: type[Lifecycle], part: type[Lifecycle]) -> type[Lifecycle] | None:
    if issubclass(part, whole):
        return part
    for name, phase in whole.spec.phases.items():
        for option, inner in (("runs", phase.runs), ("pool", phase.pool)):
            placed = None if inner is None else _within(inner, part)
            if placed is not None:
                return _changed(whole, part.__module__, {name: phase.but(**{option: placed})})
    return None


def _changed(whole: type[Lifecycle], module: str, phases: dict[str, Phase]) -> type[Lifecycle]:
    """A lifecycle of the same name, derived from `whole`, with some of its phases changed."""
    body = {**phases, "__doc__": whole.__doc__, "__module__": module}
    return cast("type[Lifecycle]", new_class(whole.__name__, (whole,), {}, lambda namespace: namespace.update(body)))
