"""One way into every loop: what blocks can draw. A loop with several is drawn once for each of them.

A loop that is entered in two places is no loop of any block. So what it consists of, without the place where it is
entered first, is there a second time for whoever enters it elsewhere; the copies lead into the loop as its nodes do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .graph import Graph, Node


def with_single_entries(graph: Graph) -> Graph:
    """The graph with copies of nodes where that is needed; what may happen is the same. It is changed in place."""
    while (found := _crowded(graph, _live(graph))) is not None:
        loop, entries = found
        _enter_copies(graph, loop - {entries[0]}, loop)
    return graph


def _crowded(graph: Graph, nodes: frozenset[str]) -> tuple[frozenset[str], list[str]] | None:
    """The outermost loop among `nodes` that is entered in several places, and these places in declared order."""
    for loop in _loops(graph, nodes):
        entered = {edge.target for name in _live(graph) - loop for edge in graph.nodes[name].edges}
        entries = [name for name in graph.nodes if name in loop and (name in entered or name == graph.initial)]
        if len(entries) > 1:
            return loop, entries
        inner = _crowded(graph, loop - {*entries})
        if inner is not None:
            return inner
    return None


def _loops(graph: Graph, nodes: frozenset[str]) -> Iterator[frozenset[str]]:
    """The groups of `nodes` each of which leads to all others of its group."""
    ways = {name: _reached(graph, name, nodes) for name in graph.nodes if name in nodes}
    seen: set[str] = set()
    for name, reached in ways.items():
        loop = frozenset(other for other in reached if name in ways[other])
        if name not in seen and len(loop) > 1:
            seen |= loop
            yield loop


def _reached(graph: Graph, start: str, nodes: frozenset[str]) -> set[str]:
    reached: set[str] = set()
    todo = [start]
    while todo:
        for edge in graph.nodes[todo.pop()].edges:
            if edge.target in nodes and edge.target not in reached:
                reached.add(edge.target)
                todo.append(edge.target)
    return reached


def _enter_copies(graph: Graph, nodes: frozenset[str], loop: frozenset[str]) -> None:
    """Let whoever enters `nodes` from outside the loop enter copies of them."""
    outside = [node for name, node in graph.nodes.items() if name not in loop]
    copies = {name: _fresh(graph, name) for name in graph.nodes if name in nodes}
    for name, copy in copies.items():
        node = graph.nodes[name]
        edges = [replace(edge, source=copy, target=copies.get(edge.target, edge.target)) for edge in node.edges]
        graph.nodes[copy] = Node(copy, node.phase, node.does, node.loops, edges)
        if name in graph.pools:
            graph.pools[copy] = graph.pools[name]
    for node in outside:
        node.edges = [replace(edge, target=copies.get(edge.target, edge.target)) for edge in node.edges]
    for copy in frozenset(copies.values()) - _live(graph):
        del graph.nodes[copy]
        graph.pools.pop(copy, None)


def _live(graph: Graph) -> frozenset[str]:
    """The nodes that may be come by."""
    return frozenset({graph.initial, *_reached(graph, graph.initial, frozenset(graph.nodes))})


def _fresh(graph: Graph, name: str) -> str:
    return next(made for n in range(2, len(graph.nodes) + 3) if (made := f"{name}#{n}") not in graph.nodes)
