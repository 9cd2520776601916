"""Blocks: a sequence diagram as a tree of values, before it is text. Knows nothing of lifecycles or of Mermaid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lifecycle.definition.effects import Effect


@dataclass(frozen=True, slots=True)
class Say:
    """One arrow or note. `brief` leaves its detail out."""

    effect: Effect
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Alt:
    """Exactly one of several ways, each with the words over it."""

    branches: tuple[tuple[str, tuple[Block, ...]], ...]


@dataclass(frozen=True, slots=True)
class Opt:
    """Perhaps."""

    when: str
    body: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Again and again. Unless `perhaps_never`, at least once, and left only through a `Break` if it has one."""

    when: str
    body: tuple[Block, ...]
    perhaps_never: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """A way out: of the innermost loop, or of as many as `levels` says."""

    when: str
    body: tuple[Block, ...]
    levels: int = 1


@dataclass(frozen=True, slots=True)
class Par:
    """Side by side, in any interleaving."""

    branches: tuple[tuple[str, tuple[Block, ...]], ...]


Block: TypeAlias = Say | Alt | Opt | Loop | Break | Par


def effects_of(blocks: tuple[Block, ...]) -> Iterator[Effect]:
    """Every effect that the blocks show, in the order of the picture."""
    for block in blocks:
        match block:
            case Say():
                yield block.effect
            case Alt() | Par():
                for _, body in block.branches:
                    yield from effects_of(body)
            case Opt() | Loop() | Break():
                yield from effects_of(block.body)


def simplified(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks without what says nothing: empty options and loops, and choices between nothing and nothing."""
    made: list[Block] = []
    for block in blocks:
        match block:
            case Opt():
                body = simplified(block.body)
                made += [Opt(block.when, body)] if body else []
            case Loop():
                body = simplified(block.body)
                made += [Loop(block.when, body, block.perhaps_never)] if body else []
            case Break():
                made.append(Break(block.when, simplified(block.body), block.levels))
            case Alt():
                made += _choice([(when, simplified(body)) for when, body in block.branches])
            case Par():
                branches = tuple((when, body) for when, kept in block.branches if (body := simplified(kept)))
                made += [Par(branches)] if len(branches) > 1 else branches[0][1] if branches else []
            case Say():
                made.append(block)
    return tuple(made)


def _choice(branches: list[tuple[str, tuple[Block, ...]]]) -> list[Block]:
    speaking = [branch for branch in branches if branch[1]]
    if len(speaking) == 1 and len(branches) > 1:
        return [Opt(*speaking[0])]
    return [Alt(tuple(branches))] if speaking else []
