"""The files of the JSONL store: their form, how they are read, and how a batch gets to their end.

A line counts if it ends, and everything up to it counts. What stands behind the last such line was torn: by a process
that died while it wrote, a full disk, or a loss of power, which may also leave zeros there. A line that is wrong
further up is damage, and is said to be.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

from lifecycle.errors import SessionFormatError, StoreError, UnknownEventError
from lifecycle.vocabulary.events import Event, UserMessageEvent, decode_event

from . import disk
from .fork import Lineage
from .loading import without_collections
from .reading import LONGEST_LINE, NEWEST_VERSION
from .store import title_of

_logger = logging.getLogger("lifecycle")
SUFFIX = ".jsonl"
_LONGEST_NAME = 180
_LONGEST = LONGEST_LINE + 1
_BLOCK = 1 << 16
_TITLE_WITHIN = 1 << 20
"""In how many bytes from the beginning the first prompt is looked for."""
_EVENT = re.compile(rb'\{"seq":(\d+),"time":(-?\d+),"type":"([^"]+)"')
_TURN = re.compile(rb'\{"seq":\d+,"time":-?\d+,"type":"turn/start","data":\{"turn":(\d+)')


class Head(NamedTuple):
    """The first line of a file."""

    id: str
    created_at: int
    lineage: Lineage | None

    def encode(self) -> bytes:
        told: dict[str, object] = {"type": "session", "version": NEWEST_VERSION}
        told |= {"id": self.id, "createdAt": self.created_at}
        if self.lineage is not None:
            told |= {"parent": self.lineage.parent, "prefix": self.lineage.prefix}
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Glance(NamedTuple):
    """What `list` tells of a file."""

    events: int
    updated_at: int
    turns: int
    title: str


def file_name(id: str) -> str:
    """The name of a session's file. Ids that differ have names that differ, also where case does not count."""
    safe = "".join(quote(char, safe="") if not char.isupper() else _spelled(char) for char in id)
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) > _LONGEST_NAME:
        safe = f"{safe[:80]}%{blake2b(id.encode(), digest_size=20).hexdigest()}"
    return safe + SUFFIX


def check_name(path: Path, id: str) -> None:
    """Raises SessionFormatError if session `id` is not looked for in this file."""
    if path.name != file_name(id):
        raise SessionFormatError(
            f"{path} holds session {id!r}, whose file is called {file_name(id)}; give the file its own name back"
        )


def _spelled(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


# -- reading ------------------------------------------------------------------------------------------------------


def read_head(path: Path, line: bytes) -> Head:
    """The head that the first line of the file at `path` spells. Raises SessionFormatError."""
    try:
        raw: Any = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or cast("dict[str, Any]", raw).get("type") != "session":
        raise SessionFormatError(f"{path} is no session: its first line does not tell about one; name another file")
    told = cast("dict[str, Any]", raw)
    version = told.get("version")
    if not isinstance(version, int) or version > NEWEST_VERSION:
        raise SessionFormatError(
            f"{path} has version {version}, and this program reads up to version {NEWEST_VERSION}; use a newer one"
        )
    id, created, parent, prefix = told.get("id"), told.get("createdAt"), told.get("parent"), told.get("prefix", 0)
    well = isinstance(id, str) and isinstance(created, int) and isinstance(parent, str | None)
    if not (well and isinstance(prefix, int)):
        raise SessionFormatError(f"{path} is no session of ours: its first line has no `id`, `createdAt` and `parent`")
    return Head(cast("str", id), cast("int", created), None if parent is None else Lineage(parent, prefix))


def read_session(path: Path) -> tuple[Head, list[Event], int]:
    """The head, the events, and how many bytes of the file count.

    Raises:
        SessionFormatError: if it is no session of ours, or damaged; it names the line.
    """
    events: list[Event] = []
    with explained(path), path.open("rb") as file, without_collections():
        head = read_head(path, line := file.readline(_LONGEST))
        number, good = 1, len(line)
        while (line := file.readline(_LONGEST)).endswith(b"\n"):
            number += 1
            try:
                event = decode_event(line)
            except UnknownEventError as wrong:  # of a plug-in that is not here: the file is sound
                raise UnknownEventError(f"{path}, line {number}: {wrong}") from wrong
            except SessionFormatError as wrong:
                if b"\0" in line and not any(_EVENT.match(later) for later in _lines(file)):
                    return head, events, good  # its bytes never reached the disk, and nothing follows
                raise SessionFormatError(f"{path} is damaged in line {number}: {wrong}") from wrong
            if event.seq != len(events):
                raise SessionFormatError(
                    f"{path} is damaged in line {number}: event {event.seq} stands where {len(events)} is due"
                )
            events.append(event)
            good += len(line)
    if len(line) == _LONGEST:
        raise _too_long(path, f"line {number + 1}")
    return head, events, good


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines behind the head, as they are. Raises SessionFormatError for one that is too long."""
    with explained(path), path.open("rb") as file:
        read_head(path, file.readline(_LONGEST))
        for number, line in enumerate(_lines(file), 2):
            if line.endswith(b"\n"):
                yield line
            elif len(line) == _LONGEST:
                raise _too_long(path, f"line {number}")


def glance(path: Path) -> tuple[Head, Glance]:
    """What there is to tell of a file without reading all of it. Raises as `read_session`."""
    with explained(path), path.open("rb") as file:
        head = read_head(path, first := file.readline(_TITLE_WITHIN))
        title, at = "", len(first)
        while not title and at < _TITLE_WITHIN and (line := file.readline(_TITLE_WITHIN)).endswith(b"\n"):
            at += len(line)
            title = _title(line)
        last = turn = None
        for line in _lines_from_the_end(file, len(first)):
            last = last or _EVENT.match(line)
            turn = _TURN.match(line)
            if last is None or turn is not None:
                break
    if last is None:
        return head, Glance(0, head.created_at, 0, title)
    return head, Glance(int(last[1]) + 1, int(last[2]), int(turn[1]) if turn else 0, title)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines from here on, and of one that is too long its pieces."""
    return iter(lambda: file.readline(_LONGEST), b"")


def _lines_from_the_end(file: IO[bytes], start: int) -> Iterator[bytes]:
    """The lines that end, from the last one back to the one at `start`, or to one that is too long to be an event."""
    at, pieces, size = os.fstat(file.fileno()).st_size, list[bytes](), 0
    torn = True
    while at > start and size < _LONGEST:
        block_at = max(start, at - _BLOCK)
        file.seek(block_at)
        *ended, line = reversed(file.read(at - block_at).split(b"\n"))
        for piece in ended:  # each ends a line: the one whose pieces came before, from its end on
            if not torn:
                yield b"".join(reversed([*pieces, piece]))
            pieces, size, torn = [], 0, False
        pieces.append(line)
        at, size = block_at, size + len(line)
    if at <= start and not torn:
        yield b"".join(reversed(pieces))


def _too_long(path: Path, where: str) -> SessionFormatError:
    what = f"{LONGEST_LINE >> 20} MiB"
    return SessionFormatError(f"{path} is damaged in {where}: it is longer than {what}, so it is no event")


def _title(line: bytes) -> str:
    found = _EVENT.match(line)
    if found is None or found[3] != UserMessageEvent.type.encode():
        return ""
    try:
        return title_of(decode_event(line))
    except SessionFormatError:
        return ""


# -- writing ------------------------------------------------------------------------------------------------------


class JsonlFile:
    """The file of one session, to be written.

    Args:
        end: How many bytes of it count; None if there is no file yet.
        synced: Whether a new one is to survive a loss of power.
    """

    def __init__(self, path: Path, head: Head, end: int | None, *, synced: bool) -> None:
        self._path, self._head, self._end, self._synced = path, head, end, synced
        self._file = -1
        self._torn = True
        """Bytes that do not count may stand behind the end."""

    def append(self, lines: Sequence[str]) -> None:
        """Write lines to the end: all of them or none. Raises StoreError."""
        batch = "".join(f"{line}\n" for line in lines).encode()
        with explained(self._path):
            if self._end is None:
                self._begin(self._head.encode() + batch)
                return
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | _BINARY)
            self._cut_off()
            try:
                self._torn = True
                _write(self._file, batch)
            except OSError:
                with suppress(OSError):  # else the next one tries again
                    self._cut_off()
                raise
            self._end += len(batch)
            self._torn = False

    def _begin(self, content: bytes) -> None:
        """Make the file: whole, and only then under its name."""
        draft = self._path.with_name(f"{self._path.name}.new")
        self._file = os.open(draft, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | _BINARY, 0o644)
        try:
            _write(self._file, content)
            if self._synced:
                os.fsync(self._file)
            os.rename(draft, self._path)
        except OSError:
            os.close(self._file)
            self._file = -1
            with suppress(OSError):
                os.unlink(draft)
            raise
        if self._synced:
            sync_folder(self._path.parent)
        self._end, self._torn = len(content), False

    def _cut_off(self) -> None:
        """Cut off what was torn; refuse to write behind what somebody else has written."""
        now = os.fstat(self._file)
        assert self._end is not None
        if self._torn and now.st_size > self._end:
            os.ftruncate(self._file, self._end)
            torn = now.st_size - self._end
            _logger.warning("session %r: %d bytes of a torn line were cut off %s", self._head.id, torn, self._path)
        elif now.st_size != self._end or not now.st_nlink:
            what = f"has {now.st_size} bytes where {self._end} were kept" if now.st_nlink else "is gone"
            raise StoreError(
                f"session {self._head.id!r}: {self._path} was changed behind our back: it {what}; close the session "
                "with discard=True and open it again"
            )
        self._torn = False

    def sync(self) -> None:
        """Have all that was written survive a loss of power. Raises StoreError."""
        if self._file >= 0:
            with explained(self._path):
                _sync(self._file)

    def close(self) -> None:
        """Let go of it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_BINARY: int = getattr(os, "O_BINARY", 0)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    """Have a new or a gone name survive a loss of power, where the system can say so of a folder."""
    if os.name != "nt":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def explained(path: Path) -> AbstractContextManager[None]:
    """Turn failures of the system within the block into errors of ours."""
    return disk.explained(path, "folder")
