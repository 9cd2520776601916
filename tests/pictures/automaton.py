"""A small automaton with parts that go on side by side, read symbol by symbol.

A configuration is a state, or a tuple of the configurations of the parts with the state that they are in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

from .symbols import REFUSED, STRAY

Config: TypeAlias = Any
"""A state; or `("par", state, (config, ...))`; or `("over", state, (config, ...))`."""
Thread: TypeAlias = tuple[int, int]
"""What is left of something that came from outside: where it stands, and where it ends."""
Spawned: TypeAlias = tuple[Thread, ...]
Step: TypeAlias = tuple[Config, Spawned]

MOST_THREADS = 4
"""How many things that come from outside may be within each other."""


class Automaton:
    """States and what leads from one to another. Whoever builds one fills in the ways, and reads it afterwards."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.own: frozenset[str] = frozenset()
        """The symbols of what comes from outside."""
        self.silent: defaultdict[int, list[int]] = defaultdict(list)
        self.spoken: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.escapes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Silent ways out of what goes on side by side: out of how much, and where to."""
        self.threads: dict[int, int] = {}
        """Where something else may come from outside, and where what is being said ends."""
        self.pars: dict[int, tuple[tuple[tuple[int, int], ...], int]] = {}
        """Of what goes on side by side, where each part starts and ends, and where it goes on."""
        self.overs: dict[int, tuple[int, int, int]] = {}
        """Of a loop whose rounds overlap, where a round starts and ends, and where it goes on."""
        self._reach = cache(self._reach)  # type: ignore[method-assign]  # one cache per automaton
        self._after = cache(self._after)  # type: ignore[method-assign]

    def refusal(self, word: Sequence[str]) -> int | None:
        """The place of the symbol with which `word` leaves the language, its length if it ends too early, or None."""
        here: set[tuple[Config, tuple[Thread, ...]]] = {(self.start, ())}
        for n, symbol in enumerate(word):
            here = {after for config in here for after in self._next(config, symbol)}
            if not here:
                return n
        return None if any(self._finished(config) for config in here) else len(word)

    def goes_on(self, word: Sequence[str]) -> list[str]:
        """The symbols that may follow, in order; none of what is done within something else, or refused."""
        here: set[tuple[Config, tuple[Thread, ...]]] = {(self.start, ())}
        for symbol in word:
            here = {after for config in here for after in self._next(config, symbol)}
        states = {state for config, _ in here for state, _ in self._reach(config) if isinstance(state, int)}
        symbols = {symbol for state in states for symbol, targets in self.spoken[state].items() if targets}
        return sorted(symbol for symbol in symbols if not symbol.startswith((STRAY, REFUSED)))

    def __contains__(self, word: Sequence[str]) -> bool:
        return self.refusal(word) is None

    def _next(self, at: tuple[Config, tuple[Thread, ...]], symbol: str) -> Iterator[tuple[Config, tuple[Thread, ...]]]:
        config, threads = at
        # What comes from outside, and what that leads to, is over before a run goes on.
        if symbol.removeprefix(REFUSED) not in self.own:
            if not all(end in self._still(state, end) for state, end in threads):
                return
            threads = ()
        for after, spawned in self._after(config, symbol):
            if len(threads) + len(spawned) <= MOST_THREADS:
                yield after, tuple(sorted((*threads, *spawned)))
        for n, (state, end) in enumerate(threads):
            rest = threads[:n] + threads[n + 1 :]
            for here in self._still(state, end):
                for after in self.spoken[here].get(symbol, ()):
                    yield config, tuple(sorted((*rest, *(((after, end),) if self._goes_on(after, end) else ()))))

    def _still(self, state: int, end: int) -> set[int]:
        """All that is silently reached of a thread."""
        seen: set[int] = set()
        todo = [state]
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo += [] if here == end else self.silent[here]
        return seen

    def _goes_on(self, state: int, end: int) -> bool:
        """Whether a thread may say more."""
        return any(self.spoken[here] for here in self._still(state, end) if here != end or here == state)

    def _finished(self, at: tuple[Config, tuple[Thread, ...]]) -> bool:
        config, threads = at
        ends = all(end in self._still(state, end) for state, end in threads)
        return ends and (self.end, ()) in self._reach(config)

    def _reach(self, config: Config) -> frozenset[Step]:
        """All that `config` is without anything being observed."""
        seen: set[Step] = set()
        todo: list[Step] = [(config, ())]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            here, spawned = one
            if isinstance(here, int):
                todo += [(state, spawned) for state in self.silent[here]]
                if here == config and here in self.threads:  # this has just been recorded or told
                    todo.append((self.threads[here], ((here, self.threads[here]),)))
                if here in self.pars:
                    todo.append((("par", here, tuple(start for start, _ in self.pars[here][0])), spawned))
                if here in self.overs:
                    todo.append((("over", here, ()), spawned))
            else:
                kind, state, parts = here
                if kind == "par":
                    ends, after = self.pars[state]
                    if all((end, ()) in self._reach(part) for part, (_, end) in zip(parts, ends, strict=True)):
                        todo.append((after, spawned))
                else:
                    _, end, after = self.overs[state]
                    if all((end, ()) in self._reach(part) for part in parts):
                        todo.append((after, spawned))
                todo += [(target, spawned) for depth, target in self._out_of(here) if depth == 0]
        return frozenset(seen)

    def _out_of(self, config: Config) -> Iterator[tuple[int, int]]:
        """The ways out of what goes on side by side, as seen from `config`: out of how much more, and where to."""
        for part in config[2]:
            for inner, spawned in self._reach(part):
                if spawned:
                    continue
                ways = self.escapes[inner] if isinstance(inner, int) else self._out_of(inner)
                for depth, target in ways:
                    if depth > 0:
                        yield depth - 1, target

    def _after(self, config: Config, symbol: str) -> frozenset[Step]:
        """All that `config` may be after a symbol."""
        found: set[Step] = set()
        for here, spawned in self._reach(config):
            if isinstance(here, int):
                found |= {(state, spawned) for state in self.spoken[here].get(symbol, ())}
                continue
            kind, state, parts = here
            for n, part in enumerate(parts):
                for after, more in self._after(part, symbol):
                    changed = (*parts[:n], after, *parts[n + 1 :])
                    found.add(((kind, state, self._kept(kind, state, changed)), spawned + more))
            if kind == "over":
                for after, more in self._after(self.overs[state][0], symbol):
                    found.add(((kind, state, self._kept(kind, state, (*parts, after))), spawned + more))
        return frozenset(found)

    def _kept(self, kind: str, state: int, parts: tuple[Config, ...]) -> tuple[Config, ...]:
        """The parts without the overlapping rounds that are over and say no more."""
        if kind == "par":
            return parts
        end = self.overs[state][1]
        return tuple(sorted((part for part in parts if not self._is_over(part, end)), key=repr))

    def _is_over(self, part: Config, end: int) -> bool:
        states = [state for state, _ in self._reach(part)]
        return end in states and all(isinstance(state, int) and not self.spoken[state] for state in states)
