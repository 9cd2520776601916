"""Blocks: a sequence diagram as a tree of values, before it is text. Knows nothing of lifecycles or of Mermaid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from lifecycle.definition.effects import Effect


@dataclass(frozen=True, slots=True)
class Say:
    """One arrow or note, said while the lifecycle is in the node `stage`. `brief` leaves its detail out.

    `by` names what declares it: a phase (`Step.claimed`) or an arrow, by its key.
    """

    effect: Effect
    brief: bool = False
    stage: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ways, with the words over it. With a `stage` it may be taken from any point of that node.

    `whose` names, before the words, whose way it is: phases, which are code and have the same name in every language.
    """

    when: str
    body: tuple[Block, ...]
    stage: str = ""
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Alt:
    """Exactly one of several ways."""

    branches: tuple[Branch, ...]


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
    header: str = ""
    """The node that it comes back to."""
    overlapping: bool = False
    """A round may begin before the one before is over."""


@dataclass(frozen=True, slots=True)
class Break:
    """A way out: of the innermost loop, or of as many as `levels` says. `stage` as for a branch.

    With `again`, the loop around those that it leaves begins its next round; otherwise what follows them comes. So
    with no levels, it is the loop that it stands in which does.
    """

    when: str
    body: tuple[Block, ...]
    levels: int = 1
    stage: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Par:
    """Side by side, in any interleaving."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What was changed, and how: `added`, `changed` or `removed`."""

    sort: str
    body: tuple[Block, ...]


Block: TypeAlias = Say | Alt | Opt | Loop | Break | Par | Mark


def said_in(blocks: Iterable[Block]) -> Iterator[Say]:
    """Everything that is said, in the order of the picture."""
    for block in blocks:
        match block:
            case Say():
                yield block
            case Alt() | Par():
                for branch in block.branches:
                    yield from said_in(branch.body)
            case Opt() | Loop() | Break() | Mark():
                yield from said_in(block.body)


def effects_of(blocks: Iterable[Block]) -> Iterator[Effect]:
    """Every effect that the blocks show, in the order of the picture."""
    return (say.effect for say in said_in(blocks))


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
                made += [replace(block, body=body)] if body else []
            case Break() | Mark():
                made.append(replace(block, body=simplified(block.body)))
            case Alt():
                made += _choice([replace(branch, body=simplified(branch.body)) for branch in block.branches])
            case Par():
                kept = [replace(branch, body=simplified(branch.body)) for branch in block.branches]
                branches = tuple(branch for branch in kept if branch.body)
                made += [Par(branches)] if len(branches) > 1 else branches[0].body if branches else []
            case Say():
                made.append(block)
    return tuple(made)


def _choice(branches: list[Branch]) -> list[Block]:
    speaking = [branch for branch in branches if branch.body]
    if len(speaking) == 1 and len(branches) > 1 and not any(branch.stage for branch in branches):
        return [Opt(speaking[0].when, speaking[0].body)]
    return [Alt(tuple(branches))] if speaking else []
