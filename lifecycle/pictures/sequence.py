"""Sequence diagrams of a lifecycle, as several views of one definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from lifecycle.definition.effects import Effect
from lifecycle.definition.family import family
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Lifecycle

from .blocks import Alt, Block, Branch, Loop, Par, Say, said_in, simplified
from .graph import CURATED, EVERYTHING, Lens, arrow_key, graph_of
from .mermaid import NOBODY, Words, as_written, sequence_text
from .structure import blocks_of, pool_blocks


@dataclass(frozen=True, slots=True)
class Picture:
    """A sequence diagram before it is text. `arrows` are the keys of the declared arrows that it shows."""

    blocks: tuple[Block, ...]
    arrows: frozenset[str]
    marked: bool

    def __str__(self) -> str:
        return self.text()

    def text(self, words: Words = as_written, listeners: Mapping[str, tuple[str, ...]] = NOBODY) -> str:
        """The Mermaid text. `listeners` says who listens at which hook point, if that is to be seen."""
        return sequence_text(self.blocks, marked=self.marked, words=words, listeners=listeners)


def _regular(arrow: Arrow) -> bool:
    """Whether the arrow is taken when nothing is cancelled and nothing raises."""
    return not {ABORT, FAULT} & {str(event) for event in arrow.events}


REGULAR = Lens(_regular, lambda effect: True)


def _innermost(lifecycle: type[Lifecycle]) -> type[Lifecycle]:
    """What a lifecycle comes to if one goes into what its phases run, as deep as it goes."""
    inner = [phase.runs for phase in lifecycle.spec.phases.values() if phase.runs is not None]
    return _innermost(inner[0]) if inner else lifecycle


def _overview(lifecycle: type[Lifecycle]) -> Picture:
    blocks, arrows = blocks_of(graph_of(lifecycle, CURATED), folding=True, pools=False)
    return Picture(blocks, arrows, marked=False)


def _full(lifecycle: type[Lifecycle]) -> Picture:
    return Picture(*blocks_of(graph_of(lifecycle, EVERYTHING)), marked=True)


def _step(lifecycle: type[Lifecycle]) -> Picture:
    return Picture(*blocks_of(graph_of(_innermost(lifecycle), REGULAR), pools=False), marked=True)


def _tools(lifecycle: type[Lifecycle]) -> Picture:
    return Picture(*pool_blocks(graph_of(lifecycle, REGULAR)), marked=True)


def _retry(lifecycle: type[Lifecycle]) -> Picture:
    """The loops that the overview folds into a note."""
    graph = graph_of(lifecycle, REGULAR)
    folded = {edge.key: edge.target for node in graph.nodes.values() for edge in node.edges if edge.fold.note}
    blocks, arrows = blocks_of(graph, pools=False)
    loops = tuple(loop for loop in _loops(blocks) if loop.header in folded.values())
    said = {say.by for say in said_in(loops)}
    return Picture(loops, arrows & {*said, *folded}, marked=True)


def _loops(blocks: tuple[Block, ...]) -> Iterator[Loop]:
    for block in blocks:
        if isinstance(block, Loop):
            yield block
        bodies = [branch.body for branch in block.branches] if isinstance(block, (Alt, Par)) else []
        for body in [*bodies, *([] if isinstance(block, (Alt, Par, Say)) else [block.body])]:
            yield from _loops(body)


def _cancel(lifecycle: type[Lifecycle]) -> Picture:
    """What each phase owes when its run is cancelled; phases that owe the same stand together."""
    owed: dict[tuple[str, str, tuple[Effect, ...]], list[str]] = {}
    keys: set[str] = set()
    for one in family(lifecycle):
        for event, arrow in one.spec.arrows:
            if event == ABORT:
                owed.setdefault((one.spec.name, arrow.when, arrow.emits), []).append(arrow.source.id)
                keys.add(arrow_key(one.spec.name, event, arrow))
    branches = tuple(
        Branch(when, tuple(Say(effect) for effect in emits), whose=f"{name} {', '.join(phases)}")
        for (name, when, emits), phases in owed.items()
    )
    return Picture(simplified((Alt(branches),)) if branches else (), frozenset(keys), marked=True)


View: TypeAlias = Callable[[type[Lifecycle]], Picture]

VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "overview": _overview,
        "full": _full,
        "step": _step,
        "tools": _tools,
        "cancel": _cancel,
        "retry": _retry,
    }
)
"""The views that are sequence diagrams."""


def sequence(lifecycle: type[Lifecycle], view: str = "overview") -> str:
    """The Mermaid text of one view. Raises KeyError for a view that there is not."""
    return str(VIEWS[view](lifecycle))


def left_out(lifecycle: type[Lifecycle], view: str) -> frozenset[str]:
    """The declared arrows that a view does not show, by key."""
    every = {key for one in family(lifecycle) for key, _ in _arrows(one)}
    return frozenset(every) - VIEWS[view](lifecycle).arrows


def _arrows(lifecycle: type[Lifecycle]) -> Iterator[tuple[str, Arrow]]:
    for event, arrow in lifecycle.spec.arrows:
        yield arrow_key(lifecycle.spec.name, event, arrow), arrow
