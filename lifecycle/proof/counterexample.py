"""The run that breaks an invariant, made once more: as text, and as the sequence diagram of that very run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from lifecycle.definition.effects import DRIVER, USER, Effect, note
from lifecycle.pictures.blocks import Say
from lifecycle.pictures.mermaid import sequence_text

from .happenings import Happening
from .invariants import Broken
from .outside import APPENDED, NOBODY, Move, Play
from .places import Place
from .stepper import unwatched
from .world import BrokenError


@dataclass(frozen=True, slots=True)
class Stage:
    """One move of a run, what happened in it, and which effects were performed."""

    label: str
    wished: bool
    """Somebody outside wanted it, or it is out of the ordinary."""
    happenings: tuple[Happening, ...]
    effects: tuple[Effect, ...]


def stages(play: Play, run: Sequence[str]) -> list[Stage]:
    """Make the run with these labels once more."""
    scene, made = play.opening(), list[Stage]()
    story = scene.story = list[Happening]()
    performed = list[_Performed]()
    play.stepper.watch = lambda place: performed.append(_Performed(place, len(story)))
    try:
        for label in run:
            move = next(move for move in play.moves(scene) if move.label == label)
            before = len(story)
            performed.clear()
            try:
                scene = play.apply(scene, move)
            except BrokenError:
                made.append(_stage(move, story, before, performed))
                break
            made.append(_stage(move, story, before, performed))
    finally:
        play.stepper.watch = unwatched
    return made


class _Performed(NamedTuple):
    place: Place
    at: int
    """How much had happened by then."""


def _stage(move: Move, story: Sequence[Happening], before: int, performed: Sequence[_Performed]) -> Stage:
    effects = tuple(_effects(story, performed))
    return Stage(move.label, not move.inner or move.odd > 0, tuple(story[before:]), effects)


def _effects(story: Sequence[Happening], performed: Sequence[_Performed]) -> Iterator[Effect]:
    """The effects without those that might have done something and did not."""
    for one, following in zip_longest(performed, performed[1:]):
        assert one is not None
        done = (len(story) if following is None else following.at) > one.at
        if done or one.place.effect.times == "1":
            yield one.place.effect


def told(run: Sequence[Stage], broken: Broken) -> Iterator[str]:
    """The run in lines of text: what somebody did, and below it what came of that."""
    number = 0
    for stage in run:
        if stage.wished or not stage.label.endswith((NOBODY, APPENDED)):
            number += 1
            yield f"{number:3}. {stage.label}"
        yield from (f"       {happening}" for happening in stage.happenings)
    yield f"     => {broken}"


def drawn(run: Sequence[Stage], broken: Broken) -> str:
    """The run as Mermaid text."""
    blocks: list[Say] = []
    for stage in run:
        if stage.wished:
            blocks.append(Say(note(USER, DRIVER, text=stage.label)))
        blocks += [Say(effect) for effect in stage.effects]
    blocks.append(Say(note(USER, DRIVER, text=f"broken: {broken}")))
    return sequence_text(tuple(blocks))
