"""Server-sent events: bytes in, events out, by the framing rules of the WHATWG standard. No I/O, no JSON.

Only CR, LF and CRLF end a line; a line that begins with a colon is dropped; exactly one space after the colon
is. Work is linear in the bytes, however they are cut, and what is kept of an unfinished event is bounded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BARE_ERROR = (b'{"error":', b'{"error" :')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""How large one event may grow unless told otherwise: a tool call of some megabytes passes, a flood does not."""


class ServerEvent(NamedTuple):
    """One event. `name` is empty unless the server gave it one; the lines of its data are joined by LF."""

    name: str
    data: str


class EventTooLargeError(ValueError):
    """An event, or one of its lines, is larger than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"one event of the stream is larger than {limit} bytes")


class EventDecoder:
    """Cuts a body into events. Feed it each read, then call `end` once."""

    __slots__ = ("_at_start", "_data", "_limit", "_line", "_name", "_size", "_skip_lf")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._at_start = True
        self._skip_lf = False

    def feed(self, read: bytes) -> list[ServerEvent]:
        """The events that `read` completes.

        Raises:
            EventTooLargeError: if an event is not complete within the limit.
        """
        if self._skip_lf and read:
            self._skip_lf = False
            if read.startswith(b"\n"):  # the second half of a CRLF whose first half ended the read before
                read = read[1:]
        lines = _LINE_END.split(read)
        self._skip_lf = read.endswith(b"\r")
        rest = lines.pop()
        events: list[ServerEvent] = []
        for line in lines:
            if self._line:
                self._line += line
                line, self._line = bytes(self._line), bytearray()
            self._take(line, events)
        self._line += rest
        if self._size + len(self._line) > self._limit:
            raise EventTooLargeError(self._limit)
        return events

    def end(self) -> list[ServerEvent]:
        """The event that the body broke off in, if it holds data. By the standard it does not count; the caller knows
        whether what it says is whole."""
        events: list[ServerEvent] = []
        self._take(bytes(self._line), events)
        self._take(b"", events)
        self._line.clear()
        return events

    def _take(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                events.append(ServerEvent(self._name, "\n".join(self._data)))
            self._data, self._name, self._size = [], "", 0
            return
        if line.startswith(_BARE_ERROR) and line.rstrip().endswith(
            b"}"
        ):  # not in the standard either: a failure that is no event at all
            line = b"error:" + line
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field in (b"data", b"error"):
            if field == b"error":  # not in the standard; some servers report a failure so
                self._name = "error"
            self._size += len(value)
            if self._size > self._limit:
                raise EventTooLargeError(self._limit)
            self._data.append(value.decode("utf-8", "replace"))
