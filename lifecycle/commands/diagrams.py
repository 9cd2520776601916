"""`lifecycle diagrams [TARGET]`: draw our pages or somebody's lifecycle, or say what is out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

from lifecycle.definition.machine import Lifecycle
from lifecycle.pictures.catalogue import Catalogue
from lifecycle.pictures.document import CAPTIONS, Subject, drawn, page
from lifecycle.pictures.hook_points import Point, dispatched
from lifecycle.pictures.html import html
from lifecycle.pictures.mermaid import Words, as_written

from .calls import CallError
from .output import Output, own_output, printable
from .pages import LANGUAGES, MARK, our_pages, points, subject_of
from .rendering import NoRendererError, png, svg
from .targets import OURS, hooks_at, lifecycle_at, meant

FORMATS = {"mermaid": ".mmd", "markdown": ".md", "svg": ".svg", "png": ".png", "html": ".html"}
"""Each format with the ending of its files."""


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diagrams",
        help="draw the lifecycles, or check that the drawings are up to date",
        description="Draw a lifecycle from its definition. Without a TARGET, write all pages of ours into the folder"
        " diagrams, English and Chinese.",
        epilog="Exit code: 0 if it was done, or everything is up to date; 1 if --check found something stale, missing"
        " or left over, or a page of ours lacks Chinese words; 2 if the call was wrong, TARGET cannot be used, or no"
        " renderer is installed for svg, png or html: then the text is written instead.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", nargs="?", help=f"module:Name, or one of {', '.join(OURS)}")
    parser.add_argument("--check", action="store_true", help="write nothing, and print what would change")
    parser.add_argument(
        "--format", metavar="NAME", help=f"one of {', '.join(FORMATS)} (default: by --output, else mermaid for a view)"
    )
    parser.add_argument(
        "--lang", metavar="NAME", help=f"one of {', '.join(LANGUAGES)} (default: en; pages of ours: both)"
    )
    parser.add_argument(
        "--view", metavar="NAME", help=f"one of {', '.join(CAPTIONS)} (default: a page with all of them)"
    )
    parser.add_argument("--output", metavar="PATH", type=Path, help="where to write it (default: standard output)")
    parser.add_argument(
        "--hooks", metavar="MODULE:NAME", help="hooks, or a function that makes some: name them where they listen"
    )
    parser.set_defaults(perform=perform, name="lifecycle diagrams")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    _known("format", args.format, FORMATS)
    _known("view", args.view, CAPTIONS)
    _known("language", args.lang, LANGUAGES)
    with own_output() as out:  # what a user's module prints is not part of the drawing
        return _draw_ours(args, out) if args.target is None else _draw_one(args, out)


def _known(what: str, given: str | None, legal: Iterable[str]) -> None:
    if given is not None and given not in legal:
        raise CallError(f"there is no {what} {given!r}{meant(given, legal)}; there are {', '.join(legal)}")


def _tell(sentence: str) -> None:
    print(printable(f"lifecycle diagrams: {sentence}"), file=sys.stderr)


# -- our pages ---------------------------------------------------------------------------------------------------


def _draw_ours(args: argparse.Namespace, out: Output) -> int:
    wrong = [option for option in ("view", "hooks") if getattr(args, option) is not None]
    wrong += ["format"] if args.format not in (None, "markdown") else []
    if wrong:
        raise CallError(f"--{wrong[0]} needs a TARGET; all pages of ours are whole pages of Markdown")
    folder: Path = args.output or Path("diagrams")
    pages, complaints = our_pages([args.lang] if args.lang else LANGUAGES)
    left = [] if args.lang else [path for path in _ours_in(folder) if path.name not in pages]
    if args.check:
        stale = [*_stale({folder / name: made.encode() for name, made in pages.items()}), *complaints]
        stale += [f"{path}: left over, no page of ours has this name" for path in left]
        for told in stale:
            out.write(printable(told.rstrip("\n")) + "\n")
        if stale:
            out.write("Out of date: `lifecycle diagrams` draws the pages again.\n")
        return 1 if stale else 0
    if folder.exists() and not folder.is_dir():
        raise CallError(f"{folder} is no folder; name one with --output")
    folder.mkdir(exist_ok=True)
    for name, made in pages.items():
        _write(folder / name, made.encode())
    for path in left:
        path.unlink()
    for complaint in complaints:
        _tell(complaint)
    out.write(f"{len(pages)} pages in {printable(str(folder))}\n")
    return 1 if complaints else 0


def _ours_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.md")):
        if path.read_text(encoding="utf-8", errors="replace").startswith(f"{MARK}\n"):
            yield path


def _write(path: Path, made: bytes) -> None:
    if not path.parent.is_dir():
        raise CallError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    path.write_bytes(made)


def _stale(wanted: Mapping[Path, bytes]) -> Iterator[str]:
    """What differs between the files and what they should hold, readable."""
    for path, made in wanted.items():
        if not path.exists():
            yield f"{path}: is missing"
        elif path.read_bytes() != made:
            yield "".join(_difference(path, made))


_MOST = 60
"""Lines of one page's difference that are shown."""


def _difference(path: Path, made: bytes) -> Iterator[str]:
    try:
        old, new = path.read_text(encoding="utf-8"), made.decode()
    except UnicodeDecodeError:
        yield f"{path}: is another picture"
        return
    names = (f"{path} as it is", f"{path} as it would be drawn")
    lines = list(unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), *names, n=2))
    yield from (line if line.endswith("\n") else f"{line}\n" for line in lines[:_MOST])
    if len(lines) > _MOST:
        yield f"... and {len(lines) - _MOST} more lines\n"


# -- one lifecycle -----------------------------------------------------------------------------------------------


class _Drawing(NamedTuple):
    """What is asked for, and what it is drawn with."""

    subject: Subject
    view: str
    lang: str
    points: Mapping[str, Point]
    words: Words


def _draw_one(args: argparse.Namespace, out: Output) -> int:
    lifecycle = lifecycle_at(args.target)
    hooks = None if args.hooks is None else hooks_at(args.hooks)
    told, lang = points(hooks), args.lang or "en"
    output: Path | None = args.output
    if args.check and output is None:
        raise CallError("--check needs --output, the file that is to be compared")
    options = [] if args.hooks is None else ["--hooks", args.hooks]
    catalogue = Catalogue(lifecycle) if lang == "zh" else None
    subject = subject_of(args.target, lifecycle, lang, options)
    drawing = _Drawing(subject, args.view or "", lang, told, catalogue or as_written)
    if hooks is not None:
        _tell_unheard(lifecycle, told)
    format = _format(args)
    code = 0
    try:
        made = _made(drawing, format)
    except NoRendererError as missing:
        if args.check:
            raise
        _tell(str(missing))
        code, made = 2, _text(drawing, format)
        output = output if format == "html" or output is None else output.with_suffix(".mmd")
    if catalogue is not None and catalogue.missing:
        few = ", ".join(map(repr, catalogue.missing[:3])) + (", ..." if len(catalogue.missing) > 3 else "")
        _tell(f"{len(catalogue.missing)} texts have no Chinese counterpart and stay English: {few}")
    if output is None:
        out.write(made.decode())
    elif args.check:
        stale = list(_stale({output: made}))
        for one in stale:
            out.write(printable(one.rstrip("\n")) + "\n")
        return 1 if stale else 0
    else:
        _write(output, made)
    return code


def _format(args: argparse.Namespace) -> str:
    by_ending = {ending: format for format, ending in FORMATS.items()}
    ending = "" if args.output is None else args.output.suffix
    format: str = (
        args.format or by_ending.get(ending) or ("mermaid" if args.view not in (None, "table") else "markdown")
    )
    if args.view == "table" and format not in ("markdown", "html"):
        raise CallError(f"a table is no picture; --format markdown or html draws it, and {format} does not")
    if format == "png" and args.output is None:
        raise CallError("a png goes into a file; name it with --output")
    return format


def _made(drawing: _Drawing, format: str) -> bytes:
    if format == "markdown":
        return page(drawing.subject, drawing.points, drawing.words, drawing.view).encode()
    if format == "html":
        return _html(drawing, svg)
    if format == "png":
        return png(_mermaid(drawing))
    return (svg(_mermaid(drawing)) if format == "svg" else _mermaid(drawing)).encode()


def _text(drawing: _Drawing, format: str) -> bytes:
    """What stands for a picture where nothing is installed that draws it."""
    return _html(drawing, None) if format == "html" else _mermaid(drawing).encode()


def _html(drawing: _Drawing, draw: Any) -> bytes:
    return html(drawing.subject, drawing.points, drawing.words, drawing.view, lang=drawing.lang, draw=draw).encode()


def _mermaid(drawing: _Drawing) -> str:
    view, lifecycle = drawing.view or "overview", drawing.subject.lifecycle
    made = drawn(lifecycle, view, drawing.words, drawing.points)
    if not made:
        raise CallError(
            f"the view {view!r} of {lifecycle.spec.name} shows nothing; {_others(lifecycle)} show something"
        )
    return made


def _others(lifecycle: type[Lifecycle]) -> str:
    return ", ".join(view for view in CAPTIONS if drawn(lifecycle, view))


def _tell_unheard(lifecycle: type[Lifecycle], told: Mapping[str, Point]) -> None:
    heard = {point.name for point in dispatched(lifecycle, told)}
    unheard: Sequence[str] = [name for name, point in told.items() if point.listeners and name not in heard]
    if unheard:
        _tell(f"not drawn, because {lifecycle.spec.name} does not dispatch it: what listens at {', '.join(unheard)}")
