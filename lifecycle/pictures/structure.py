"""From graph to blocks: which choices, options, loops and ways out a graph of phases amounts to.

Six rules decide:

1. what a phase does is said when it is entered, what an arrow emits when it is taken;
2. arrows from a phase to itself are a loop of options;
3. several ways are a choice up to the phase where at least two of them meet again; where one alone speaks, an option;
4. an arrow back is a loop around what it repeats, unless its fold says that it is drawn as a note or by repetition;
5. a way out of a loop is a break, which says what happens on the way to where the walk goes on behind the loop;
6. what may come from outside while a nested lifecycle runs goes on beside it, phase by phase.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace

from lifecycle.definition.effects import Effect, Message
from lifecycle.definition.machine import ABORT, FAULT, LOOP

from .blocks import Alt, Block, Branch, Break, Loop, Opt, Par, Say, simplified
from .entries import with_single_entries
from .graph import Edge, Graph, Meanwhile, Node


@dataclass(slots=True, eq=False)
class Frame:
    """What is walked as one: the whole graph, or the body of one loop within an outer frame."""

    nodes: frozenset[str]
    header: str | None
    outer: Frame | None
    back: set[tuple[str, str]] = field(default_factory=lambda: set())
    after: dict[str, list[str]] = field(default_factory=lambda: {})
    stuck: frozenset[str] = frozenset()
    follow: str | None = None
    """Where the outer frame goes on behind this loop."""
    nested: int = 0
    """How many loops within this one what is being walked stands in: those that a break leads out of."""


def blocks_of(graph: Graph, *, folding: bool = False, pools: bool = True) -> tuple[tuple[Block, ...], frozenset[str]]:
    """The blocks of a graph, and the keys of the arrows that they show.

    Args:
        folding: Whether arrows back are drawn as their folds say, and the picture ends where the lifecycle rests.
        pools: Whether the lifecycles that phases pool are drawn where they are driven.
    """
    structure = _Structure(graph, folding, pools)
    blocks = simplified(tuple(structure.whole()))
    return blocks, frozenset(structure.all_shown)


class _Structure:
    def __init__(self, graph: Graph, folding: bool, pools: bool) -> None:
        self.graph, self.folding = with_single_entries(graph), folding
        self._pools = {node: _Structure(pool, folding, pools) for node, pool in (graph.pools if pools else {}).items()}
        self.shown: set[str] = set()
        self._meanwhile = {region.start: region for region in graph.meanwhile if len(region.ends) == 1}
        self._inside: set[str] = set()
        self._ways = {name: [edge for edge in node.edges if edge.target != name] for name, node in graph.nodes.items()}
        self._rests = {name for name, node in graph.nodes.items() if node.rests and folding}

    @property
    def all_shown(self) -> Iterator[str]:
        """The keys of the arrows shown, pools included."""
        yield from self.shown
        for pool in self._pools.values():
            yield from pool.all_shown

    def whole(self) -> Iterator[Block]:
        start = self.graph.initial
        frame = self._analysed(Frame(frozenset(self.graph.nodes), None, None), start)
        yield from self._walk(start, None, frame)

    # -- analysis ------------------------------------------------------------------------------------------------

    def _analysed(self, frame: Frame, start: str) -> Frame:
        frame.back = set(self._find_back(frame, start))
        after: dict[str, list[str] | None] = {}

        def visit(name: str) -> list[str] | None:
            if name not in after:
                ways = [way for edge in self._forward(frame, name) if (way := visit(edge.target)) is not None]
                back = [edge for edge in self._ways[name] if (name, edge.target) in frame.back]
                dead = not ways and bool(back) and not any(self._ends(edge) for edge in back)
                if frame.outer is None and any(edge.target not in frame.nodes for edge in self._ways[name]):
                    ways.append([])  # a way out of the lane meets none of the others
                shared = [node for node in ways[0] if all(node in way for way in ways)] if ways else []
                after[name] = None if dead else [name, *shared]
            return after[name]

        visit(start)
        frame.stuck = frozenset(name for name, way in after.items() if way is None)
        frame.after = {name: way or [name] for name, way in after.items()}
        return frame

    def _find_back(self, frame: Frame, start: str) -> Iterator[tuple[str, str]]:
        """Arrows back, by a walk in depth. Recursion is as deep as the graph has phases."""
        path: list[str] = []
        seen: set[str] = set()

        def visit(name: str) -> Iterator[tuple[str, str]]:
            seen.add(name)
            path.append(name)
            for edge in self._within(frame, name):
                if edge.target in path:
                    yield name, edge.target
                elif edge.target not in seen:
                    yield from visit(edge.target)
            path.pop()

        yield from visit(start)

    def _within(self, frame: Frame, name: str) -> list[Edge]:
        """The ways that stay in the frame and do not begin its loop anew."""
        return [edge for edge in self._ways[name] if edge.target in frame.nodes and not self._renews(frame, edge)]

    def _renews(self, frame: Frame, edge: Edge) -> bool:
        return edge.target == frame.header

    def _forward(self, frame: Frame, name: str) -> list[Edge]:
        return [
            edge for edge in self._within(frame, name) if (name, edge.target) not in frame.back and not self._ends(edge)
        ]

    def _ends(self, edge: Edge) -> bool:
        """A curated picture ends where the lifecycle rests again."""
        return edge.target in self._rests and edge.target == self.graph.initial

    def _loops_here(self, frame: Frame, name: str) -> bool:
        return any(self._drawn_as_loop(edge) for edge in self._edges_to(name) if (edge.source, name) in frame.back)

    def _drawn_as_loop(self, edge: Edge) -> bool:
        folded = edge.fold.note is not None or edge.fold.replay
        return not self._ends(edge) and not (self.folding and folded)

    def _edges_to(self, name: str) -> Iterator[Edge]:
        for edges in self._ways.values():
            for edge in edges:
                if edge.target == name:
                    yield edge

    def _body(self, frame: Frame, header: str) -> frozenset[str]:
        """The natural loop of a header: every node from which an arrow back to it can be reached without it."""
        body = {header}
        todo = [source for source, target in frame.back if target == header]
        while todo:
            name = todo.pop()
            if name not in body and name in frame.nodes:
                body.add(name)
                todo += [edge.source for edge in self._edges_to(name)]
        return frozenset(body)

    # -- walking -------------------------------------------------------------------------------------------------

    def _walk(self, start: str, stop: str | None, frame: Frame) -> Iterator[Block]:
        name: str | None = start
        while name is not None and name != stop:
            if name != frame.header and self._loops_here(frame, name):
                inner = self._inner(frame, name)
                body = tuple(self._walk(name, None, inner))
                yield Loop(self._loop_words(name), body, header=name)
                name = inner.follow
                continue
            if name in self._meanwhile and name not in self._inside:
                region = self._meanwhile[name]
                (end,) = region.ends
                yield from self._region(region, end, frame)
                name = end
                continue
            node = self.graph.nodes[name]
            yield from self.said(node.does, name, node.key)
            yield from self.again(node)
            name = yield from self._choose(name, stop, frame)

    def _inner(self, frame: Frame, header: str) -> Frame:
        body = self._body(frame, header)
        follow = next((node for node in frame.after[header] if node not in body), None)
        return self._analysed(Frame(body, header, frame, follow=follow), header)

    def _loop_words(self, header: str) -> str:
        node = self.graph.nodes[header]
        return node.loops or next((edge.when for edge in self._edges_to(header) if edge.when), "again")

    def again(self, node: Node) -> Iterator[Block]:
        """The loop of a node's arrows to itself; a pool's bodies go on beside it."""
        edges = [edge for edge in node.edges if edge.target == node.name]
        if not edges:
            return
        words = node.loops or (edges[0].when if len(edges) == 1 else "")
        body = tuple(self._asked_again(node, edges) or self._options(edges))
        loop = Loop(words, body, perhaps_never=True, header=node.name)
        if node.name not in self._pools:
            yield loop
            return
        pool = self._pools[node.name]
        started = (*pool.asks(), *pool.lane("body"))
        bodies = Loop("each started call", started, perhaps_never=True, overlapping=True)
        yield Par((Branch("scheduling, in model order", (loop,)), Branch("bodies overlap", (bodies,))))

    def said(self, effects: Iterable[Effect], stage: str, by: str) -> Iterator[Block]:
        """Effects, each followed by the part of a pooled run that it drives."""
        for effect in effects:
            yield Say(effect, stage=stage, by=by)
            if isinstance(effect, Message) and effect.lane and stage in self._pools:
                yield from self._pools[stage].lane(effect.lane)

    def lane(self, lane: str) -> Iterator[Block]:
        """The part of this lifecycle that lies in one lane; it ends where another lane or a phase that parks begins."""
        nodes = self._lying_in(lane)
        parking = {name for name, node in self.graph.nodes.items() if node.phase is not None and node.phase.parks}
        for name in [name for name in self.graph.nodes if name in nodes - parking and self._entered(name, nodes)]:
            yield from self._within_lane(name, nodes - parking)

    def asks(self) -> Iterator[Block]:
        """What follows in a lane on its phases that park, which goes on beside the other runs."""
        for name, node in self.graph.nodes.items():
            if node.phase is not None and node.phase.parks:
                yield from self._within_lane(name, self._lying_in(node.phase.lane))

    def _lying_in(self, lane: str) -> set[str]:
        return {name for name, node in self.graph.nodes.items() if node.phase and node.phase.lane == lane} - self._final

    def _within_lane(self, name: str, nodes: set[str]) -> Iterator[Block]:
        frame = self._analysed(Frame(frozenset(nodes), None, None), name)
        walked = tuple(self._walk(name, None, frame))
        yield from walked if name == self.graph.initial else [Opt("", walked)]

    @property
    def _final(self) -> set[str]:
        return {name for name, node in self.graph.nodes.items() if node.phase is not None and node.phase.final}

    def _entered(self, name: str, nodes: set[str]) -> bool:
        return name == self.graph.initial or any(edge.source not in nodes for edge in self._edges_to(name))

    def _asked_again(self, node: Node, edges: list[Edge]) -> list[Block]:
        """One of the arrows and then the last effect of the node, which is asked anew each time."""
        last = [effect for effect in node.does if effect.performed][-1:]
        if self.folding or not last:
            return []
        ways = Alt(tuple(Branch(edge.when, tuple(self._take(edge))) for edge in edges))
        return [*(ways.branches[0].body if len(edges) == 1 else [ways]), *self.said(last, node.name, node.key)]

    def _options(self, edges: list[Edge]) -> Iterator[Block]:
        for edge in edges:
            taken = tuple(self._take(edge))
            yield from [Opt(edge.when, taken)] if len(edges) > 1 else taken

    def _choose(self, name: str, stop: str | None, frame: Frame) -> Generator[Block, None, str | None]:
        """Draw the ways on from a node. Returns where the walk goes on, or None."""
        ways = self._ways[name]
        join = self._join(name, frame) or stop
        out = [edge for edge in ways if edge.target not in frame.nodes and frame.outer is not None]
        anew = [edge for edge in ways if self._renews(frame, edge) and join is not None]
        on = [edge for edge in ways if edge not in out and edge not in anew]
        for edge in out:
            yield self._break(edge, frame)
        for edge in anew:  # what comes behind the choice is left out
            yield Break(edge.when, tuple(self._take(edge)), frame.nested, self._anytime(edge), again=True)
        if len(on) == 1:
            yield from self._take(on[0])
            yield from self._fold(on[0], frame)
            forward = self._forward(frame, name)
            return forward[0].target if forward else None
        if not on:
            return None
        yield Alt(tuple(Branch(edge.when, tuple(self._branch(edge, join, frame)), self._anytime(edge)) for edge in on))
        return join

    def _branch(self, edge: Edge, stop: str | None, frame: Frame) -> Iterator[Block]:
        yield from self._take(edge)
        if self._renews(frame, edge) or self._ends(edge) or edge.target not in frame.nodes:
            return
        if (edge.source, edge.target) in frame.back:
            yield from self._fold(edge, frame)
        else:
            yield from self._walk(edge.target, stop, frame)

    def _break(self, edge: Edge, frame: Frame) -> Break:
        taken = list(self._take(edge))
        levels, here = 1 + frame.nested, frame
        while here.outer is not None and edge.target not in here.outer.nodes:
            here = here.outer
            levels += 1 + here.nested
        outer = here.outer
        assert outer is not None
        if self._renews(outer, edge):
            return Break(edge.when, tuple(taken), levels, self._anytime(edge), again=here.follow is not None)
        if edge.target != here.follow:
            before, outer.nested = outer.nested, outer.nested + levels
            taken += self._walk(edge.target, here.follow, outer)
            outer.nested = before
        return Break(edge.when, tuple(taken), levels, self._anytime(edge))

    def _anytime(self, edge: Edge) -> str:
        """The phase from any point of which the edge may be taken, if that is so: a cancel and a fault do not wait."""
        return edge.source if edge.event in (ABORT, FAULT) and self.graph.nodes[edge.source].phase is not None else ""

    def _join(self, name: str, frame: Frame) -> str | None:
        onward = [edge for edge in self._forward(frame, name) if edge.target not in frame.stuck]
        meets = frame.after[name][1:]
        return meets[0] if len(onward) > 1 and meets else None

    def _take(self, edge: Edge) -> Iterator[Block]:
        self.shown.add(edge.key)
        yield from self.said(edge.emits, edge.source, edge.key)

    def _fold(self, edge: Edge, frame: Frame) -> Iterator[Block]:
        if (edge.source, edge.target) not in frame.back or not self.folding:
            return
        if edge.fold.note is not None:
            yield Say(edge.fold.note)
        elif edge.fold.replay:
            yield from self._replay(edge.target)

    def _replay(self, name: str) -> Iterator[Block]:
        """What is said again from `name` on, in brief, up to the next choice."""
        yield from (Say(effect, brief=True) for effect in self.graph.nodes[name].does)
        while len(ways := self._ways[name]) == 1:
            yield from (Say(effect, brief=True) for effect in ways[0].emits)
            name = ways[0].target
            yield from (Say(effect, brief=True) for effect in self.graph.nodes[name].does)

    # -- from outside --------------------------------------------------------------------------------------------

    def _region(self, region: Meanwhile, end: str, frame: Frame) -> Iterator[Block]:
        self._inside.add(region.start)
        body = tuple(self._walk(region.start, end, frame))
        self._inside.discard(region.start)
        instead = tuple(self._instead(region))
        if instead:
            body = (Alt((Branch("it begins", body), *instead)),)
        arriving = Branch("and from outside, whenever it comes", tuple(self._arriving(region)))
        yield Par((Branch("what runs goes on", body), arriving))

    def _arriving(self, region: Meanwhile) -> Iterator[Block]:
        """What comes from outside, phase by phase; after each thing it may have been the last one."""
        home, over = region.edges[0].source, ":over"
        graph = Graph(home)
        for edge in region.edges:
            target = home if edge.target == region.start else edge.target
            for name in (edge.source, target):
                graph.nodes.setdefault(name, Node(name))
            graph.nodes[edge.source].edges.append(replace(edge, target=target))
        for node in graph.nodes.values():
            node.edges.append(Edge("", "", node.name, over, (), "nothing more comes", LOOP))
        graph.nodes[over] = Node(over)
        outside = _Structure(graph, self.folding, pools=False)
        yield from outside.whole()
        self.shown |= outside.shown - {""}

    def _instead(self, region: Meanwhile) -> Iterator[Branch]:
        """What is done where the nested lifecycle does not begin: something from outside has led elsewhere before."""
        for target in dict.fromkeys(edge.target for edge in region.edges if edge.target != region.start):
            node = self.graph.nodes[target]
            if node.does:
                yield Branch("nothing had begun", tuple(self.said(node.does, target, node.key)), whose=target)


def pool_blocks(graph: Graph) -> tuple[tuple[Block, ...], frozenset[str]]:
    """The nodes that pool another lifecycle, with what goes on side by side in them; and the arrows shown, by key."""
    structure = _Structure(graph, folding=False, pools=True)
    blocks: list[Block] = []
    for name in graph.pools:
        node = graph.nodes[name]
        blocks += [*structure.said(node.does, name, node.key), *structure.again(node)]
    return simplified(tuple(blocks)), frozenset(structure.all_shown)
