"""The explorer: every state that an agent can get into within some bounds, breadth first.

A state is a scene: where the agent, its turn, step and calls are, what waits where, and what is known of the run so
far. The first broken invariant ends the search, and the run that led there is a shortest one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from lifecycle.definition.table import Row

from .invariants import Broken
from .outside import Play
from .stepper import NEVER_RESTS
from .survey import arrow_named
from .world import BrokenError, Scene

DEADLOCK = "nothing waits for ever"


class Progress(NamedTuple):
    """How far a search is."""

    states: int
    waiting: int
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found."""

    states: int
    arrows: int
    depth: int
    seconds: float
    complete: bool
    """Neither the bound on the depth nor the one on the states left anything out."""
    untaken: tuple[str, ...]
    """Arrows of the definition that were never taken."""
    rests: int
    """States in which nothing goes on."""
    broken: Broken | None = None
    run: tuple[str, ...] = ()
    """The labels of the moves of a shortest run that breaks it."""


def explore(
    play: Play,
    *,
    depth: int | None = None,
    states: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    every: int = 5_000,
) -> Search:
    """Search every run of `play` of at most `depth` moves, until `states` states were seen."""
    return _Search(play, depth, states, progress, every).result()


class _Search:
    def __init__(
        self,
        play: Play,
        depth: int | None,
        states: int | None,
        progress: Callable[[Progress], None] | None,
        every: int,
    ) -> None:
        self._play, self._depth, self._most = play, depth, states
        self._progress, self._every = progress, every
        self._seen: dict[object, int] = {}
        self._parts: dict[object, int] = {}
        self._parents = array("l")
        self._labels: list[str] = []
        self._depths = array("l")
        self._inner_from, self._inner_to = array("l"), array("l")
        self._arrows = self._rests = 0
        self._complete = True
        self._started = perf_counter()

    def result(self) -> Search:
        play = self._play
        play.stepper.taken.clear()
        opening = play.opening()
        self._add(opening, -1, "", 0)
        queue = deque([(0, opening)])
        while queue:
            here, scene = queue.popleft()
            if self._depth is not None and self._depths[here] >= self._depth:
                self._complete = False
                continue
            if self._most is not None and len(self._parents) >= self._most:
                self._complete = False
                break
            broken = self._expand(here, scene, queue)
            if broken is not None:
                return self._found(*broken)
            if self._progress is not None and here % self._every == 0:
                seconds = perf_counter() - self._started
                self._progress(Progress(len(self._parents), len(queue), self._depths[here], seconds))
        circle = self._on_a_circle()
        if circle is not None:
            return self._found(Broken(NEVER_RESTS, "it can go round for ever from here"), circle, "")
        return self._found(None, -1, "")

    def _expand(self, here: int, scene: Scene, queue: deque[tuple[int, Scene]]) -> tuple[Broken, int, str] | None:
        play, inner = self._play, 0
        for move in play.moves(scene):
            inner += move.inner
            self._arrows += 1
            try:
                after = play.apply(scene, move)
            except BrokenError as error:
                return error.how, here, move.label
            there = self._add(after, here, move.label, self._depths[here] + 1)
            if there == len(self._parents) - 1 and self._new:
                queue.append((there, after))
            if move.inner:
                self._inner_from.append(here)
                self._inner_to.append(there)
        if play.at_rest(scene):
            self._rests += 1
        elif not inner:
            return Broken(DEADLOCK, "no task of the agent can go on, and it does not rest"), here, ""
        return None

    def _add(self, scene: Scene, parent: int, label: str, depth: int) -> int:
        """The number of a scene. Scenes share their two halves, of which there are far fewer."""
        parts = self._parts
        world, ledger = scene.world.key(), scene.ledger.key()
        key = parts.setdefault(world, len(parts)), parts.setdefault(ledger, len(parts))
        number = len(self._parents)
        known = self._seen.setdefault(key, number)
        self._new = known == number
        if self._new:
            self._parents.append(parent)
            self._labels.append(label)
            self._depths.append(depth)
        return known

    def _on_a_circle(self) -> int | None:
        """A state that inner moves alone lead back to, if there is one: take away what no arrow leads out of."""
        size = len(self._parents)
        out = array("l", bytes(self._parents.itemsize * size))
        into: dict[int, list[int]] = {}
        for source, target in zip(self._inner_from, self._inner_to, strict=True):
            out[source] += 1
            into.setdefault(target, []).append(source)
        ends = [state for state in range(size) if out[state] == 0]
        left = size
        while ends:
            left -= 1
            for source in into.get(ends.pop(), ()):
                out[source] -= 1
                if out[source] == 0:
                    ends.append(source)
        return next((state for state in range(size) if out[state]), None) if left else None

    def _found(self, broken: Broken | None, at: int, label: str) -> Search:
        labels = [label] if label else []
        while at > 0:
            labels.append(self._labels[at])
            at = self._parents[at]
        return Search(
            states=len(self._parents),
            arrows=self._arrows,
            depth=max(self._depths),
            seconds=perf_counter() - self._started,
            complete=self._complete and broken is None,
            untaken=tuple(self._untaken()),
            rests=self._rests,
            broken=broken,
            run=tuple(reversed(labels)),
        )

    def _untaken(self) -> Iterator[str]:
        for level in self._play.stepper.levels:
            for events in level.table.rows.values():
                for rows in events.values():
                    yield from (_named(row, level.table.name) for row in rows if row not in self._play.stepper.taken)


def _named(row: Row, owner: str) -> str:
    return arrow_named(owner, row.event, row.arrow)
