"""Standard output that belongs to the command alone, whatever tools print, and text that cannot drive a terminal."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from .calls import CallError


class OutputClosedError(Exception):
    """Nobody reads standard output any more, as with `| head -1`: the command ends without a word."""


class Output:
    """A stream of text that is written at once, and whose failure is told later.

    Writes happen where errors would be swallowed, as in listeners. So a failure is kept for `check`, and
    `when_broken` is called; what is written after it goes nowhere.
    """

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.failure: OSError | None = None
        self.when_broken: Callable[[], object] = lambda: None

    def write(self, text: str) -> None:
        if self.failure is not None:
            return
        try:
            self.file.write(text)
            self.file.flush()
        except OSError as failure:
            self.failure = failure
            _silence(self.file)
            self.when_broken()

    def check(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            OutputClosedError: if nobody reads it.
            CallError: if it cannot be written otherwise.
        """
        if isinstance(self.failure, BrokenPipeError):
            raise OutputClosedError from self.failure
        if self.failure is not None:
            why = self.failure.strerror or str(self.failure)
            raise CallError(f"standard output cannot be written ({why}); send it elsewhere") from self.failure


def _silence(file: TextIO) -> None:
    """Let what is still buffered go nowhere, so that closing the file does not fail once more."""
    descriptor = _descriptor(file)
    if descriptor is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _descriptor(file: TextIO) -> int | None:
    try:
        return file.fileno()
    except (OSError, ValueError, AttributeError):  # it is no file, as in tests
        return None


def hold_descriptors() -> None:
    """Open descriptors 0 to 2 where the caller has closed them (`>&-`), and the streams of `sys` on them.

    Otherwise the next file that is opened, such as the store, would become standard output, and a tool that prints
    would write into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  # for good


def complain(sentence: str) -> None:
    """One line on standard error."""
    with suppress(OSError):  # nobody listens
        print(printable(sentence), file=sys.stderr, flush=True)  # the command line speaks here


@contextmanager
def own_output() -> Generator[Output]:
    """The real standard output. Meanwhile file descriptor 1 and `sys.stdout` lead to standard error.

    So nothing that a tool prints, in Python or below it, gets between the command's own lines. Raises at the end of
    the block as `Output.check`.
    """
    stdout = sys.stdout
    stdout.flush()
    descriptor = _descriptor(stdout)
    if descriptor is None:
        out = Output(stdout)
        sys.stdout = sys.stderr
        try:
            yield out
        finally:
            sys.stdout = stdout
    else:
        real = os.dup(descriptor)
        out = Output(os.fdopen(real, "w", encoding="utf-8", errors="replace", newline="\n"))
        os.dup2(2, descriptor)
        # A stream of its own: a tool may close it.
        sys.stdout = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        try:
            yield out
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.close()
            sys.stdout = stdout
            with suppress(OSError, ValueError):
                stdout.flush()  # what a tool left in the buffer of sys.__stdout__
            os.dup2(real, descriptor)
            out.file.close()
    out.check()


_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of what follows: text that reads otherwise than it is."""
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))

_PRINTABLE: dict[int, str | None] = {
    **dict.fromkeys((*_CONTROLS, *_BIDI, *range(0xD800, 0xE000)), "\ufffd"),
    **{ord(char): char for char in "\n\t"},
    ord("\r"): None,
}


def printable(text: str) -> str:
    """`text` without the characters by which a model or a tool could drive the terminal; lines and tabs stay."""
    return text.translate(_PRINTABLE)


def shorten(text: str, most: int = 100) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text[: 20 * most].split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def fit(text: str, columns: int) -> str:
    """As much of the one-line `text` as fits into `columns` cells of a terminal, where some characters take two."""
    taken = 0
    for at, char in enumerate(text):
        taken += cells(char)
        if taken > columns:
            return text[:at]
    return text


def cells(text: str) -> int:
    """How many cells of a terminal a one-line text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
