"""Coverage: which declared arrows runs take, in which order, and what was answered at which hook point."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

from lifecycle.definition.agent import Agent
from lifecycle.definition.family import family
from lifecycle.definition.table import Row, Table
from lifecycle.errors import CoverageError
from lifecycle.pictures.graph import arrow_key
from lifecycle.services.points import HookPoint


@dataclass
class Coverage:
    """What the runs of a check have reached."""

    arrows: set[str] = field(default_factory=lambda: set())
    """Declared arrows that were taken: `Turn.claiming.begin -> ...`."""
    pairs: set[tuple[str, str]] = field(default_factory=lambda: set())
    """Two arrows that one run of a lifecycle took one after the other."""
    verdicts: set[tuple[str, str]] = field(default_factory=lambda: set())
    """Hook points, each with what a checked listener answered there: a verdict's name, `nothing`, or `raises X`."""
    points: dict[str, HookPoint] = field(default_factory=lambda: {})
    """The hook points at which checked listeners listen."""

    @property
    def missing_arrows(self) -> frozenset[str]:
        """Those that no run took."""
        return every_arrow() - self.arrows

    @property
    def missing_verdicts(self) -> frozenset[tuple[str, str]]:
        """What a checked listener might answer, and did not."""
        legal = {(name, one) for name, point in self.points.items() for one in point.legal}
        return frozenset(legal - self.verdicts)

    def require(self, *, arrows: float = 0.0, pairs: float = 0.0, verdicts: Iterable[tuple[str, str]] = ()) -> None:
        """Insist on what was reached.

        Args:
            arrows, pairs: The share of all declared ones, from 0 to 1.
            verdicts: Hook points, each with what must have been answered there.

        Raises:
            CoverageError: if something was not reached; it names it.
        """
        missing = [f"{verdict} at {point}" for point, verdict in verdicts if (point, verdict) not in self.verdicts]
        if missing:
            raise CoverageError(f"no checked hook has answered {', '.join(missing)}", missing)
        if len(self.arrows & every_arrow()) < arrows * len(every_arrow()):
            some = sorted(self.missing_arrows)
            raise CoverageError(f"{len(some)} of {len(every_arrow())} arrows were not taken: {', '.join(some)}", some)
        if len(self.pairs & every_pair()) < pairs * len(every_pair()):
            two = sorted(" then ".join(pair) for pair in every_pair() - self.pairs)
            raise CoverageError(f"{len(two)} of {len(every_pair())} pairs of arrows were not taken", two)

    def __str__(self) -> str:
        arrows, pairs = self.arrows & every_arrow(), self.pairs & every_pair()
        lines = [
            f"arrows          {_share(len(arrows), len(every_arrow()))}",
            f"arrow pairs     {_share(len(pairs), len(every_pair()))}",
        ]
        for name in self.points:
            said = ", ".join(sorted(verdict for point, verdict in self.verdicts if point == name))
            lines.append(f"{name:24}{said or 'was never asked'}")
        return "\n".join(lines)


def _share(some: int, every: int) -> str:
    return f"{some} of {every} ({some / every:.0%})"


@cache
def every_arrow() -> frozenset[str]:
    """The arrows that the newest revision declares, by name."""
    return frozenset(
        arrow_key(one.spec.name, event, arrow) for one in family(Agent) for event, arrow in one.spec.arrows
    )


@cache
def every_pair() -> frozenset[tuple[str, str]]:
    """Two arrows of one lifecycle of which the second one begins where the first one ends."""
    return frozenset(
        (arrow_key(one.spec.name, event, first), arrow_key(one.spec.name, then, second))
        for one in family(Agent)
        for event, first in one.spec.arrows
        for then, second in one.spec.arrows
        if second.source.id == first.goal
    )


@cache
def _key(lifecycle: str, row: Row) -> str:
    return arrow_key(lifecycle, row.event, row.arrow)


@contextmanager
def noting_arrows(coverage: Coverage) -> Generator[None]:
    """Within the block, every arrow that any agent takes is noted."""
    choose, last = Table.choose, dict[object, str]()

    def noted(table: Table, phase: str, event: str, facts: Callable[[], Any]) -> Row:
        row = choose(table, phase, event, facts)
        key, run = _key(table.name, row), getattr(facts, "__self__", table)
        coverage.arrows.add(key)
        if run in last:
            coverage.pairs.add((last[run], key))
        last[run] = key
        return row

    with patch.object(Table, "choose", noted):
        yield
