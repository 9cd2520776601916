"""Shrinking: the smallest case that still fails, found by leaving things out of its JSON.

Whatever a field's default is, is the simplest: a field that is left out, an entry of a list that is, and a smaller
number are each smaller. Knows nothing of what fails.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from .cases import Case

_Path: TypeAlias = "tuple[str | int, ...]"


def shrink(case: Case, fails: Callable[[Case], bool], *, most: int = 500) -> Case:
    """A case that fails, from which nothing can be left out; or the smallest one after `most` tries."""
    best: Any = case.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    tried = {json.dumps(best)}
    progress = True
    while progress and most > 0:
        progress = False
        for path, smaller in _ideas(best):
            candidate = _with(best, path, smaller)
            key = json.dumps(candidate)
            if candidate is None or key in tried or most <= 0:
                continue
            tried.add(key)
            try:
                made = Case.model_validate(candidate)
            except ValidationError:
                continue
            most -= 1
            if fails(made):
                best, case, progress = candidate, made, True
    return case


_GONE = object()


def _ideas(value: Any) -> Iterator[tuple[_Path, Callable[[Any], object]]]:
    """What to try, the boldest first. Each is a place, and what to put there; places may be gone by then."""
    level: list[tuple[_Path, Any]] = [((), value)]
    while level:
        below: list[tuple[_Path, Any]] = []
        for path, one in level:
            yield from _smaller(path, one)
            if isinstance(one, dict):
                fields = cast("dict[str, object]", one)
                below += [((*path, name), inner) for name, inner in fields.items()]
            elif isinstance(one, list):
                # from the end, so that what is left out moves nothing that is still to be tried
                items = cast("list[object]", one)
                below += [((*path, n), inner) for n, inner in reversed([*enumerate(items)])]
        level = below


def _smaller(path: _Path, one: Any) -> Iterator[tuple[_Path, Callable[[Any], object]]]:
    if path:
        yield path, lambda _: _GONE
    if isinstance(one, list):
        items = cast("list[object]", one)
        every = len(items)
        size = every // 2
        while size > 1:
            for start in range(every - size, -1, -size):
                yield path, partial(_without, start, size)
            size //= 2
    elif isinstance(one, int) and not isinstance(one, bool):
        for less in (0, 1, one // 2, one - 1):
            yield path, partial(_least, less)


def _without(start: int, size: int, now: list[Any]) -> list[Any]:
    return [*now[:start], *now[start + size :]]


def _least(less: int, now: int) -> int:
    return less if now > less >= 0 else now


def _with(value: Any, path: _Path, smaller: Callable[[Any], object]) -> Any:
    """A copy of `value` with something smaller at `path`; None if there is no such place any more."""
    made = copy.deepcopy(value)
    holder: Any = None
    here: Any = made
    try:
        for part in path:
            holder, here = here, here[part]
        put = smaller(here)
        if holder is None:
            return put
        if put is _GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = put
    except (KeyError, IndexError, TypeError):
        return None
    return made
