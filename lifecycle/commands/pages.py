"""The pages about our own lifecycles: which there are, and in which files they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import REVISIONS
from lifecycle.pictures.catalogue import Catalogue, complaints
from lifecycle.pictures.document import Subject, page
from lifecycle.pictures.hook_points import Point, dispatched, told
from lifecycle.pictures.markdown import text
from lifecycle.pictures.mermaid import Words, as_written
from lifecycle.services.hooks import Hooks
from lifecycle.services.points import POINTS, Mode

from .targets import OURS

LANGUAGES = ("en", "zh")

MARK = "<!-- Drawn by `lifecycle diagrams`. -->"
"""The first line of each page of ours, by which one that is left over is known."""


class Ours(NamedTuple):
    """A page of ours: the target that it draws, the file without its endings, its title, and what it is about."""

    target: str
    file: str
    title: str
    intro: str


PAGES = (
    Ours(
        "Agent",
        "agent-lifecycle",
        "The lifecycle of an agent",
        "From a wake to the next rest: an agent runs turns, a turn runs steps, and a step runs a pool of tool calls."
        " This is revision 000, the newest one, and what the driver performs.",
    ),
    Ours(
        "Turn", "turn-lifecycle", "The lifecycle of a turn", "From `turn/start` to `turn/end`, with the steps between."
    ),
    Ours(
        "Step",
        "step-lifecycle",
        "The lifecycle of a step",
        "A step is proposed, entered, requested from the model, has its tools run, and ends.",
    ),
    Ours(
        "ToolCall",
        "tool-call-lifecycle",
        "The lifecycle of a tool call",
        "A call is allowed, guarded, checked, executed, and looked at once more.",
    ),
    Ours(
        "2026-08",
        "revision-2026-08",
        "Revision 2026-08",
        "The snapshot of August 2026: a turn is opened before its first claim, and a retry stays in the open step.",
    ),
    Ours(
        "001",
        "revision-001",
        "Revision 001",
        "An earlier revision: a rejected proposal opens no turn, and a retry is a turn of its own.",
    ),
    Ours(
        "002",
        "revision-002",
        "Revision 002",
        "The oldest revision, also known as 003: prompts are queued live, and the turn goes on while a hook says so.",
    ),
)

_BY_TARGET: Mapping[str, Ours] = MappingProxyType({ours.target: ours for ours in PAGES})
_SAME = {name: target for name, lifecycle in REVISIONS.items() for target in _BY_TARGET if OURS[target] is lifecycle}
"""Revisions that are a lifecycle with a name of its own."""


def points(hooks: Hooks | None = None) -> Mapping[str, Point]:
    """The hook points as pages tell of them; with `hooks`, theirs, and who listens."""
    return {
        name: Point(
            name,
            point.mode.value,
            () if point.mode is Mode.EMIT or not point.verdicts else point.legal,
            point.on_fault.value,
            point.may_change,
            point.replaces,
            name in ("session/append", "session/event"),
            None if hooks is None else tuple(listener.name for listener in hooks.listeners(name)),
        )
        for name, point in (POINTS if hooks is None else hooks.points).items()
    }


def subject_of(target: str, lifecycle: type[Lifecycle], lang: str, options: Iterable[str] = ()) -> Subject:
    """What the page of a target is about. `options` are further ones that draw it."""
    ours = _BY_TARGET.get(_SAME.get(target, target))
    command = shlex.join(["lifecycle", "diagrams", ours.target if ours else target, *options])
    option = "" if lang == "en" else f" --lang {lang}"
    if ours is None:
        doc = " ".join(lifecycle.spec.doc.partition("\n\n")[0].split())
        return Subject(lifecycle, f"`{lifecycle.spec.name}`", doc, command, option)
    elsewhere = {OURS[other.target]: file_of(other, lang) for other in PAGES}
    return Subject(lifecycle, ours.title, ours.intro, command, option, _beside(ours.file, lang), elsewhere, MARK)


def file_of(ours: Ours, lang: str) -> str:
    """The name of a page's file."""
    return _file(ours.file, lang)


def _file(file: str, lang: str) -> str:
    return f"{file}.md" if lang == "en" else f"{file}.{lang}.md"


def _beside(file: str, lang: str) -> str:
    return f"English | [中文]({_file(file, 'zh')})" if lang == "en" else f"[English]({_file(file, 'en')}) | 中文"


def our_pages(languages: Iterable[str] = LANGUAGES) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Every page of ours by the name of its file, and what is wrong with their words."""
    from . import policy_pages  # they play demo sessions, with what tests are made of
    from .policy_texts import POLICIES

    made: dict[str, str] = {}
    said: list[Catalogue] = []
    known = points()
    for lang in languages:
        words = as_written if lang == "en" else Catalogue(*(OURS[ours.target] for ours in PAGES))
        said += [words] if isinstance(words, Catalogue) else []
        for ours in PAGES:
            subject = subject_of(ours.target, OURS[ours.target], lang)
            made[file_of(ours, lang)] = page(subject, known, words)
        for policy in POLICIES:
            made[_file(policy.file, lang)] = policy_pages.page(policy, lang, MARK, _beside(policy.file, lang))
        made[_file("README", lang)] = f"{MARK}\n\n{_index(lang, words)}"
    return made, complaints(said) if said else ()


def _index(lang: str, words: Words) -> str:
    from . import policy_texts as policies

    rows = (f"* [{text(words(ours.title))}]({file_of(ours, lang)}): {text(words(ours.intro))}" for ours in PAGES)
    known = points()
    within = {point.name for ours in PAGES for point in dispatched(OURS[ours.target], known)}
    beside = (f"* {text(told(point, (), words))}" for name, point in known.items() if name not in within)
    head = (f"# {words(_TITLE)}", _beside("README", lang), words(_ABOUT), "\n".join(rows))
    outside = (f"## {words('Hook points outside the lifecycles')}", "\n".join(beside))
    told_of = [(policy.told(lang), _file(policy.file, lang)) for policy in policies.POLICIES]
    bundled = "\n".join(f"* [{text(told.title)}]({file}): {text(told.intro)}" for told, file in told_of)
    around = (f"## {policies.INDEX[lang]}", text(policies.ABOUT[lang]), bundled)
    recipes = (part for heading, about, code in _RECIPES for part in (f"## {words(heading)}", words(about), code))
    return "\n\n".join((*head, *around, *outside, *recipes)) + "\n"


_TITLE = "The lifecycles as pictures"
_ABOUT = (
    "Every page here is computed from a definition; the driver performs the newest one. `lifecycle diagrams` draws them"
    " all again, `lifecycle diagrams --check` says whether one is out of date."
)
_RECIPES = (
    (
        "In Python",
        "A lifecycle class draws itself: the format names a view, `state` or `table`; `sequence` is the overview.",
        """```python
print(f"{Turn:sequence}")
print(f"{Step:state}")
print(f"{Step:table}")
```""",
    ),
    (
        "In Sphinx",
        "Install `myst-parser` and `sphinxcontrib-mermaid`, write the page into the sources, and let CI run the same"
        " command with `--check`.",
        """```sh
lifecycle diagrams mypkg.flow:ReviewedTurn --output docs/reviewed-turn.md
```

```python
# conf.py
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_fence_as_directive = ["mermaid"]
```""",
    ),
    (
        "In MkDocs",
        "Install `pymdown-extensions`, write the page as above, and say that a `mermaid` fence is a picture."
        " Material for MkDocs draws it; another theme needs `mermaid.min.js` among its scripts.",
        """```yaml
# mkdocs.yml
markdown_extensions:
  - tables
  - pymdownx.superfences:
      custom_fences:
        - name: mermaid
          class: mermaid
          format: !!python/name:pymdownx.superfences.fence_code_format
```""",
    ),
)
