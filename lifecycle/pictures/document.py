"""A whole page about a lifecycle: how to draw it again, its pictures and tables, and a sentence for each hook point.

What a hook point allows is data of a higher floor; whoever wants a page hands it over as `Point`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lifecycle.definition.family import family
from lifecycle.definition.machine import Lifecycle

from .hook_points import Point, hook_points, joined
from .markdown import fenced, text
from .mermaid import Words, as_written
from .sequence import VIEWS, left_out
from .states import states
from .tables import table

CAPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "overview": (
            "Overview",
            "How it usually goes. What the definition marks as not drawn or as folded is left out.",
        ),
        "full": (
            "Everything",
            "Everything that can happen; nothing is left out. Brackets say how often, where that is not exactly once.",
        ),
        "step": ("One step", "The innermost lifecycle by itself, while nothing is cancelled and nothing raises."),
        "tools": ("Tool calls", "How the calls of one answer are scheduled, and what happens to each of them."),
        "cancel": (
            "Cancel",
            "What each phase owes when its run is cancelled. Phases that owe the same stand together.",
        ),
        "retry": ("Retry", "The loop that the overview folds into a note."),
        "state": ("States", "Every phase and every arrow. What a phase runs stands inside it."),
        "table": (
            "Transitions",
            "What each phase does when it is entered, and where each of its events leads. Marks say how often: `?` at"
            " most once, `*` any number of times, `once` only when the phase is first entered in a run.",
        ),
    }
)
"""Every view with its heading and what it shows."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about.

    Args:
        command: What draws it again, up to the options for one view.
        option: What follows that for this page's language.
        beside: A line of links to stand below the title, already Markdown.
        elsewhere: The pages that hold the tables of nested lifecycles.
        mark: A line above all others, for whoever has to know the page again.
    """

    lifecycle: type[Lifecycle]
    title: str
    intro: str
    command: str
    option: str = ""
    beside: str = ""
    elsewhere: Mapping[type[Lifecycle], str] = field(default_factory=lambda: {})
    mark: str = ""


def drawn(
    lifecycle: type[Lifecycle], view: str, words: Words = as_written, points: Mapping[str, Point] | None = None
) -> str:
    """One view as text, empty if there is nothing to show; the table as Markdown, all others as Mermaid.

    Raises:
        KeyError: for a view that there is not.
    """
    if view == "state":
        return states(lifecycle)
    if view == "table":
        return table(lifecycle, words)
    picture = VIEWS[view](lifecycle)
    listeners = {name: point.listeners or () for name, point in (points or {}).items()}
    return picture.text(words, listeners) if picture.blocks else ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page, in its language. Text between backticks is code."""

    heading: str
    sentences: tuple[str, ...]
    mermaid: str = ""
    tables: tuple[tuple[type[Lifecycle], str], ...] = ()
    """Lifecycles, each with the page that holds its table; without one the table stands here."""
    points: tuple[str, ...] = ()


def again(subject: Subject, words: Words = as_written) -> str:
    """The line that says how to draw the page again."""
    command = f"{subject.command} --format markdown{subject.option}"
    return words("Drawn from the definition; an edit here is lost. To draw it again: `{command}`").format(
        command=command
    )


def sections(
    subject: Subject, points: Mapping[str, Point], words: Words = as_written, only: str = ""
) -> Iterator[Section]:
    """The parts of a page; with `only`, one view. What shows nothing, or the same as an earlier one, is left out."""
    lifecycle = subject.lifecycle
    seen = {""}
    for view in [only] if only else CAPTIONS:
        heading, caption = (words(part) for part in CAPTIONS[view])
        said = (caption, *_counted(lifecycle, view, words), f"`{subject.command} --view {view}{subject.option}`")
        made = drawn(lifecycle, view, words, points) if view != "table" else ""
        if view == "table":
            tables = ((one, "" if one is lifecycle else subject.elsewhere.get(one, "")) for one in family(lifecycle))
            yield Section(heading, said, tables=tuple(tables))
        elif made not in seen:
            seen.add(made)
            yield Section(heading, said, made)
    told = () if only else tuple(hook_points(lifecycle, points, words))
    if told:
        yield Section(words("Hook points"), (), points=told)


def page(subject: Subject, points: Mapping[str, Point], words: Words = as_written, only: str = "") -> str:
    """The page as Markdown; with `only`, one view of it."""
    return "\n".join(_page(subject, points, words, only))


def _page(subject: Subject, points: Mapping[str, Point], words: Words, only: str) -> Iterator[str]:
    if subject.mark:
        yield f"{subject.mark}\n"
    yield f"# {text(words(subject.title))}\n"
    if subject.beside:
        yield f"{subject.beside}\n"
    if subject.intro:
        yield f"{text(words(subject.intro))}\n"
    yield f"{text(again(subject, words))}\n"
    for section in sections(subject, points, words, only):
        yield f"## {text(section.heading)}\n"
        if section.sentences:
            yield f"{text(joined(section.sentences))}\n"
        if section.mermaid:
            yield fenced("mermaid", section.mermaid)
        for one, where in section.tables:
            if len(section.tables) > 1:
                yield f"### {text(one.spec.name)}\n"
            yield f"[{where}]({where})\n" if where else table(one, words)
        if section.points:
            yield "\n".join(f"* {text(told)}" for told in section.points) + "\n"


def _counted(lifecycle: type[Lifecycle], view: str, words: Words) -> Iterator[str]:
    if view == "overview":
        hidden = left_out(lifecycle, view)
        every = len(hidden | VIEWS[view](lifecycle).arrows)
        yield words("It shows {shown} of {every} declared arrows.").format(shown=every - len(hidden), every=every)
