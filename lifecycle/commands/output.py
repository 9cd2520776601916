"""Standard output that belongs to the command alone, whatever tools print."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def own_output() -> Generator[TextIO]:
    """The real standard output, as text. Meanwhile file descriptor 1 and `sys.stdout` lead to standard error.

    So nothing that a tool prints, in Python or below it, gets between the command's own lines.
    """
    sys.stdout.flush()
    try:
        fd = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # replaced by something that is no file, as in tests
        yield from _own_object()
        return
    real = os.dup(fd)
    out = os.fdopen(real, "w", encoding="utf-8", errors="replace", newline="\n", buffering=1)
    before = sys.stdout
    try:
        os.dup2(2, fd)
        sys.stdout = sys.stderr
        yield out
    finally:
        sys.stdout = before
        try:
            out.flush()
        finally:
            os.dup2(real, fd)
            try:
                out.close()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def _own_object() -> Generator[TextIO]:
    before, sys.stdout = sys.stdout, sys.stderr
    try:
        yield before
    finally:
        sys.stdout = before


class Console:
    """Writes a transcript: whole lines and running text to `out`, where it is to `err`.

    On a terminal the place is one live line that is overwritten; in a pipe each place is a line.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._live = err.isatty()
        self._midline = False
        self._shown = ""
        self._place = ""

    def text(self, piece: str) -> None:
        """Go on with running text."""
        if not piece:
            return
        self._clear()
        self._out.write(printable(piece))
        self._out.flush()
        self._midline = not piece.endswith("\n")

    def line(self, line: str) -> None:
        """One line of its own."""
        self.end_text()
        self._clear()
        self._out.write(printable(line) + "\n")
        self._out.flush()
        self._show()

    def end_text(self) -> None:
        """End running text, if it stands in the middle of a line."""
        if self._midline:
            self._out.write("\n")
            self._out.flush()
            self._midline = False

    def place(self, place: str) -> None:
        """Say where the run is."""
        if place == self._place:
            return
        self._place = place
        if self._live:
            self._show()
        else:
            self.say(f"[{place}]")

    def say(self, line: str) -> None:
        """One line for people, beside the transcript."""
        self.end_text()
        self._clear()
        self._err.write(printable(line) + "\n")
        self._err.flush()

    def close(self) -> None:
        """End running text and take the live line away."""
        self.end_text()
        self._clear()

    def _show(self) -> None:
        if self._live and not self._midline and self._place:
            self._clear()
            self._shown = f"[{self._place}]"
            self._err.write(self._shown)
            self._err.flush()

    def _clear(self) -> None:
        if self._shown:
            self._err.write("\r\x1b[2K")
            self._err.flush()
            self._shown = ""


def printable(text: str) -> str:
    """`text` without the control characters by which a model or a tool could drive the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


def shorten(text: str, most: int = 100) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
