"""The graph of a lifecycle with the lifecycles that its phases run spliced in, as one view sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from lifecycle.definition.effects import Effect
from lifecycle.definition.machine import ABORT, FAULT, Arrow, Fold, Lifecycle, Phase


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """One arrow between two nodes. `key` names its declaration: `Step.requesting.fail`, with the goal and the guard."""

    key: str
    event: str
    source: str
    target: str
    emits: tuple[Effect, ...]
    when: str
    fold: Fold


@dataclass(slots=True, eq=False)
class Node:
    """A phase, or the place where a phase that runs another lifecycle is left by one event."""

    name: str
    phase: Phase | None = None
    does: tuple[Effect, ...] = ()
    loops: str = ""
    edges: list[Edge] = field(default_factory=lambda: [])

    @property
    def key(self) -> str:
        """The name of its declaration: `Step.claimed`. Empty if it is no phase."""
        return "" if self.phase is None or self.phase.owner is None else f"{self.phase.owner.__name__}.{self.phase.id}"

    @property
    def rests(self) -> bool:
        """Nothing happens here until something comes from outside."""
        return self.phase is not None and not self.phase.final and not self.phase.does and self.phase.runs is None


@dataclass(slots=True, eq=False)
class Meanwhile:
    """What may come from outside while a nested lifecycle is walked, from `start` to one of `ends`."""

    start: str
    ends: frozenset[str]
    edges: tuple[Edge, ...]


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes by name, in declared order."""

    initial: str
    nodes: dict[str, Node] = field(default_factory=lambda: {})
    meanwhile: list[Meanwhile] = field(default_factory=lambda: [])
    pools: dict[str, Graph] = field(default_factory=lambda: {})
    """The lifecycles that nodes pool, by the name of the node."""


@dataclass(frozen=True, slots=True)
class Lens:
    """What a view lets through."""

    arrow: Callable[[Arrow], bool]
    effect: Callable[[Effect], bool]

    def effects(self, effects: Iterable[Effect]) -> tuple[Effect, ...]:
        return tuple(effect for effect in effects if self.effect(effect))


EVERYTHING = Lens(lambda arrow: True, lambda effect: True)
CURATED = Lens(lambda arrow: arrow.drawn, lambda effect: effect.drawn)


def arrow_key(lifecycle: str, event: str, arrow: Arrow) -> str:
    """The name of one declared arrow."""
    guard = f" [{arrow.guard}]" if arrow.guard else ""
    return f"{lifecycle}.{arrow.source.id}.{event} -> {arrow.goal}{guard}"


def graph_of(lifecycle: type[Lifecycle], lens: Lens, prefix: str = "") -> Graph:
    """The graph that a lens shows of a lifecycle."""
    spec = lifecycle.spec
    nested = {name: phase.runs for name, phase in spec.phases.items() if phase.runs is not None}
    inner = {name: graph_of(runs, lens, f"{prefix}{name}/") for name, runs in nested.items()}
    graph = Graph(inner[spec.initial].initial if spec.initial in inner else prefix + spec.initial)
    for name, phase in spec.phases.items():
        if name in inner:
            _splice(graph, inner[name], f"{prefix}{name}", phase)
        else:
            graph.nodes[prefix + name] = Node(prefix + name, phase, lens.effects(phase.does), phase.loops)
            if phase.pool is not None:
                graph.pools[prefix + name] = graph_of(phase.pool, lens, f"{prefix}{name}*")

    def node_of(name: str) -> str:
        return inner[name].initial if name in inner else prefix + name

    outside: dict[str, list[Edge]] = {name: [] for name in inner}
    for event, arrow in spec.arrows:
        if not lens.arrow(arrow):
            continue
        name = arrow.source.id
        key = arrow_key(spec.name, event, arrow)
        ends = name in inner and event in spec.phases[name].then.values()
        source = f"{prefix}{name}:{event}" if ends else prefix + name
        edge = Edge(
            key, event, source, node_of(arrow.goal), lens.effects(arrow.emits), arrow.when or arrow.guard, arrow.fold
        )
        if name not in inner or ends:
            graph.nodes[source].edges.append(edge)
            if ends and event == ABORT and not spec.phases[name].settles:
                _cut_short(graph, f"{prefix}{name}", edge, spec.phases[name])
        elif event in (ABORT, FAULT):  # between two runs of the nested lifecycle, which answers for itself
            begins = inner[name].initial
            graph.nodes[begins].edges.append(replace(edge, source=begins))
        else:
            outside[name].append(edge)
    for name in inner:
        if outside[name]:
            _let_in(graph, prefix + name, inner[name].initial, outside[name], spec.phases[name].then.values())
    return graph


def _splice(graph: Graph, inner: Graph, name: str, phase: Phase) -> None:
    """Take in the nodes of a nested lifecycle; its final phases become the places where this phase is left."""
    final = {node.name for node in inner.nodes.values() if node.phase is not None and node.phase.final}
    graph.nodes |= {key: node for key, node in inner.nodes.items() if key not in final}
    graph.meanwhile += inner.meanwhile
    graph.pools |= inner.pools
    inner.nodes[inner.initial].loops = inner.nodes[inner.initial].loops or phase.loops
    for event in dict.fromkeys(phase.then.values()):
        graph.nodes[f"{name}:{event}"] = Node(f"{name}:{event}")
    for node in inner.nodes.values():
        for n, edge in enumerate(node.edges):
            if edge.target in final:
                target = f"{name}:{phase.then[edge.event]}"
                node.edges[n] = replace(edge, target=target)


def _cut_short(graph: Graph, name: str, abort: Edge, phase: Phase) -> None:
    """A cancel that is noticed as a nested lifecycle ends is heeded, whichever way that one ended."""
    for event in dict.fromkeys(phase.then.values()):
        end = f"{name}:{event}"
        if end != abort.source:
            graph.nodes[end].edges.append(replace(abort, source=end))


def _let_in(graph: Graph, name: str, start: str, arriving: list[Edge], leaving: Iterable[str]) -> None:
    """What comes from outside meanwhile moves this lifecycle through other phases, in which the nested one may end."""
    edges, seen, todo = list(arriving), {name}, [edge.target for edge in arriving]
    ends = [f"{name}:{event}" for event in leaving]
    while todo:
        place = todo.pop()
        if place in seen or place == start:
            continue
        seen.add(place)
        for edge in graph.nodes[place].edges:
            if edge.event in leaving:
                end = f"{name}:{edge.event}"
                graph.nodes[end].edges.append(replace(edge, source=end))
            else:
                edges.append(edge)
                todo.append(edge.target)
    graph.meanwhile.append(Meanwhile(start, frozenset(ends), tuple(edges)))
