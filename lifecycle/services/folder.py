"""A folder that nothing leads out of: paths are opened name by name, so that a link swapped in meanwhile finds no gap.

Knows nothing of tools; it refuses with ToolError because its callers answer a model.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import NamedTuple, Self

from lifecycle.errors import ToolError, WorkspaceError

MAX_LINKS = 40
MAX_DEPTH = 40
"""The deepest path, and walk: each level holds a file descriptor."""
MAX_VISITED = 20_000
"""The most entries that one walk looks at."""
SKIPPED = frozenset({"node_modules", "__pycache__"})
"""Folders that a walk tells of and does not enter; hidden ones (`.git`, `.venv`) likewise."""

# Not blocking, because to open a pipe would wait for its other end; never through a link, which is resolved by hand.
_OPEN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | os.O_RDONLY
_OPEN_FOLDER = _OPEN | getattr(os, "O_DIRECTORY", 0)


class Entry(NamedTuple):
    """What a walk comes by. `folder` is the open folder that holds it, good until the next entry is asked for."""

    path: str
    name: str
    status: os.stat_result
    folder: int


class Folder:
    """The workspace. `root` may itself be a link; where it leads to is settled once.

    Raises:
        WorkspaceError: if `root` is no folder, or the system cannot open files relative to a folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd:
            raise WorkspaceError("the workspace tools need a system that opens files relative to a folder (POSIX)")
        try:
            self.root = Path(root).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as wrong:
            raise WorkspaceError(
                f"the workspace {os.fspath(root)!r} does not exist; give an existing folder"
            ) from wrong
        if not self.root.is_dir():
            raise WorkspaceError(f"the workspace {os.fspath(root)!r} is not a folder; give an existing folder")

    @contextmanager
    def open(self, path: str, wanted: Callable[[int], bool]) -> Generator[int]:
        """A descriptor of the file or folder at `path`; `wanted` is S_ISREG or S_ISDIR.

        Raises:
            ToolError: OUTSIDE_WORKSPACE, NOT_FOUND, NOT_A_FILE, NOT_A_DIRECTORY or NOT_READABLE.
        """
        opened: list[int] = []
        try:
            try:
                self._descend(path, _names(path), opened)
                mode = os.fstat(opened[-1]).st_mode
            except (FileNotFoundError, ValueError) as wrong:  # ValueError: a name that no file can have
                raise ToolError(f"{path!r} does not exist in the workspace", "NOT_FOUND") from wrong
            except OSError as wrong:
                raise ToolError(f"{path!r} cannot be read: {wrong.strerror}", "NOT_READABLE") from wrong
            if not wanted(mode):
                raise _not_a(path, "file" if wanted is S_ISREG else "folder")
            yield opened[-1]
        finally:
            for descriptor in reversed(opened):
                os.close(descriptor)

    def _descend(self, path: str, names: list[str], opened: list[int]) -> None:
        """Open every folder on the way, and what stands at the end. `..`, which only links bring, goes back one."""
        opened.append(os.open(self.root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)))
        ahead, links = deque(names), 0
        while ahead:
            name = ahead.popleft()
            if name == "..":
                if len(opened) == 1:
                    raise _outside(path)
                os.close(opened.pop())
                continue
            if len(opened) > MAX_DEPTH:
                raise ToolError(f"{path!r} is nested deeper than {MAX_DEPTH}", "NOT_READABLE")
            mode = os.stat(name, dir_fd=opened[-1], follow_symlinks=False).st_mode
            if S_ISLNK(mode):
                links += 1
                if links > MAX_LINKS:
                    raise ToolError(f"{path!r} is a circle of links", "NOT_FOUND")
                ahead.extendleft(reversed(self._target(path, os.readlink(name, dir_fd=opened[-1]), opened)))
            elif S_ISDIR(mode):
                opened.append(os.open(name, _OPEN_FOLDER, dir_fd=opened[-1]))
            elif ahead:
                raise _not_a(path, "folder")
            elif S_ISREG(mode):
                opened.append(os.open(name, _OPEN, dir_fd=opened[-1]))
            else:
                raise _not_a(path, "file")  # not even opened: that alone can act on a device

    def _target(self, path: str, target: str, opened: list[int]) -> list[str]:
        """The names on the way that a link leads: from where it stands, or from the root again."""
        names = [name for name in target.split("/") if name not in ("", ".")]
        if not target.startswith("/"):
            return names
        root = list(self.root.parts[1:])
        if names[: len(root)] != root:
            raise _outside(path)
        while len(opened) > 1:
            os.close(opened.pop())
        return names[len(root) :]


class Walk:
    """The entries below an open folder, sorted by name in each. Links are told and not followed.

    It ends early at MAX_VISITED entries, or once `cancelled` says so; `stopped` tells. Used as a context manager,
    because whoever leaves it early leaves folders open.
    """

    def __init__(self, folder: int, *, prefix: str = "", depth: int, cancelled: Callable[[], bool]) -> None:
        self.stopped = False
        self._left = MAX_VISITED
        self._cancelled = cancelled
        self._entries = self._below(folder, prefix, depth)

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.close()

    def _below(self, folder: int, prefix: str, depth: int) -> Generator[Entry]:
        for name in self._names(folder):
            if self._cancelled():
                self.stopped = True
                return
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue  # it vanished meanwhile
            yield Entry(prefix + name, name, status, folder)
            if not depth or not S_ISDIR(status.st_mode) or name in SKIPPED or name.startswith("."):
                continue
            try:
                inner = os.open(name, _OPEN_FOLDER, dir_fd=folder)
            except OSError:
                continue  # unreadable, or replaced meanwhile
            try:
                yield from self._below(inner, f"{prefix}{name}/", depth - 1)
            finally:
                os.close(inner)

    def _names(self, folder: int) -> list[str]:
        names: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._left == 0:
                    self.stopped = True
                    break
                self._left -= 1
                names.append(entry.name)
        return sorted(names)


def open_file(entry: Entry) -> int | None:
    """A descriptor of a file that a walk came by; None if it is not a readable file any more."""
    try:
        descriptor = os.open(entry.name, _OPEN, dir_fd=entry.folder)
    except OSError:
        return None
    if S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read(descriptor: int, limit: int, offset: int = 0) -> bytes:
    """Up to `limit` bytes from `offset` on; fewer only at the end."""
    parts: list[bytes] = []
    while limit > 0 and (part := os.pread(descriptor, limit, offset)):
        parts.append(part)
        limit, offset = limit - len(part), offset + len(part)
    return b"".join(parts)


def _names(path: str) -> list[str]:
    """The names in a path that a model gave."""
    if path.startswith("/") or Path(path).is_absolute():
        raise ToolError(f"{path!r} is absolute; paths are relative to the workspace", "OUTSIDE_WORKSPACE")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise _outside(path)
    return names


def _outside(path: str) -> ToolError:
    return ToolError(f"{path!r} leads out of the workspace", "OUTSIDE_WORKSPACE")


def _not_a(path: str, what: str) -> ToolError:
    return ToolError(f"{path!r} is not a {what}", "NOT_A_FILE" if what == "file" else "NOT_A_DIRECTORY")
