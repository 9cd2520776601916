"""The console of a run: the transcript on standard output; where the run is, and notes, on standard error."""

from __future__ import annotations

import os

from .output import Output, fit, printable

_CLEAR = "\r\x1b[2K"


class Console:
    """Writes whole lines and running text to `out`, and beside them to `err` where the run is and what there is to say.

    On a terminal the place is one live line that is overwritten; elsewhere each place is a line.
    """

    def __init__(self, out: Output, err: Output) -> None:
        self.out, self._err = out, err
        self._live = err.file.isatty() and os.environ.get("TERM") != "dumb"
        self._midline = False
        self._shown = False
        self._place = ""

    def text(self, piece: str) -> None:
        """Go on with running text."""
        piece = printable(piece)
        if piece:
            self._clear()
            self.out.write(piece)
            self._midline = not piece.endswith("\n")

    def end_text(self) -> None:
        """End running text, if it stands in the middle of a line."""
        if self._midline:
            self._midline = False
            self.out.write("\n")

    def line(self, line: str) -> None:
        """One line of its own."""
        self.end_text()
        self._clear()
        self.out.write(printable(line) + "\n")
        self._show()

    def say(self, line: str) -> None:
        """One line for people, beside the transcript."""
        self.end_text()
        self._clear()
        self._err.write(printable(line) + "\n")
        self._show()

    def place(self, place: str) -> None:
        """Say where the run is."""
        if place == self._place:
            return
        self._place = place
        if not self._live:
            self.say(f"[{place}]")
        elif not self._midline:
            self._clear()
            self._show()

    def close(self) -> None:
        """End running text and take the live line away."""
        self.end_text()
        self._clear()
        self._place = ""

    def abandon(self) -> None:
        """Take the live line away in a signal handler, where the streams may be in the middle of a write."""
        if self._shown:
            os.write(self._err.file.fileno(), _CLEAR.encode())

    def _show(self) -> None:
        if self._live and self._place and not self._midline:
            self._err.write(fit(printable(f"[{self._place}]"), self._columns() - 1))
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            self._shown = False
            self._err.write(_CLEAR)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._err.file.fileno()).columns or 80
        except OSError:
            return 80
