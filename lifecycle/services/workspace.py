"""The built-in tools: list, read and search the files of one folder, and nothing outside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Annotated

from pydantic import Field

from lifecycle.errors import ToolError

from .folder import MAX_DEPTH, Entry, Folder, Walk, open_file, read
from .tool import Tool, ToolContext
from .tools import tool

MAX_BYTES = 200_000
"""The most that one call reads of a file for the model."""
MAX_ENTRIES = 1_000
"""The most that one call lists."""
MAX_MATCHES = 200
"""The most lines that one call finds."""
MAX_SEARCHED_BYTES = 2_000_000
"""The largest file that is searched."""
MAX_LINE = 240
"""How much of a found line is shown."""

_In = Annotated[str, Field(description="Relative to the workspace, with '/' between names; '.' is all of it.")]


def workspace_tools(root: str | os.PathLike[str]) -> tuple[Tool, ...]:
    """`list_files`, `read_file` and `search_text` for the folder `root`; the first two may run beside others.

    They never leave it: a path with `..`, an absolute one, a link that leads out, and what is neither a file nor a
    folder (devices, pipes, sockets) are error results. A hard link cannot be told from a file, and is read.

    Raises:
        WorkspaceError: if `root` is no folder.
    """
    folder = Folder(root)

    @tool(parallel=True, kind="read")
    def list_files(
        context: ToolContext,
        path: _In = ".",
        recursive: Annotated[bool, Field(description="Also what is in the folders within.")] = False,
        limit: Annotated[int, Field(ge=1, le=MAX_ENTRIES, description="How many entries at most.")] = 200,
    ) -> str:
        """List a folder of the workspace: folders end in '/', links in '@', files have their size in bytes."""
        found: list[str] = []
        with (
            folder.open(path, S_ISDIR) as at,
            Walk(at, depth=MAX_DEPTH if recursive else 0, cancelled=lambda: context.signal.fired) as walk,
        ):
            for entry in walk:
                if len(found) == limit:
                    found.append(f"[cut at {limit} entries; list a folder within, or raise the limit]")
                    break
                found.append(_described(entry))
            if walk.stopped:
                found.append("[there is more; list a folder within]")
        return "\n".join(found) or "[empty]"

    @tool(parallel=True, kind="read")
    def read_file(
        path: _In,
        offset: Annotated[int, Field(ge=0, le=2**62, description="Where to begin, in bytes.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_BYTES, description="How many bytes at most.")] = 50_000,
    ) -> str:
        """Read a text file of the workspace. If it is cut, the last line says how to go on."""
        with folder.open(path, S_ISREG) as at:
            size = os.fstat(at).st_size
            data = read(at, limit, offset)
        if b"\0" in data:
            raise ToolError(f"{path!r} is a binary file of {size} bytes", "BINARY_FILE")
        if offset + len(data) >= size:
            return data.decode(errors="replace") + (f"\n[from byte {offset} to the end]" if offset else "")
        data = _whole(data)
        end = offset + len(data)
        return f"{data.decode(errors='replace')}\n[bytes {offset} to {end} of {size}; go on with offset={end}]"

    @tool(kind="read")
    def search_text(
        query: Annotated[str, Field(min_length=1, max_length=1_000, description="The text to find, as it is.")],
        context: ToolContext,
        path: _In = ".",
        ignore_case: bool = False,
        limit: Annotated[int, Field(ge=1, le=MAX_MATCHES, description="How many lines at most.")] = 50,
    ) -> str:
        """Find text in the files of a folder of the workspace. Each line found is told as path:line: text."""
        found: list[str] = []
        notes: list[str] = []
        wanted = query.casefold() if ignore_case else query
        prefix = "".join(f"{name}/" for name in path.split("/") if name not in ("", "."))
        with (
            folder.open(path, S_ISDIR) as at,
            Walk(at, prefix=prefix, depth=MAX_DEPTH, cancelled=lambda: context.signal.fired) as walk,
        ):
            for entry in walk:
                if entry.status.st_size > MAX_SEARCHED_BYTES and S_ISREG(entry.status.st_mode):
                    notes.append(f"[not searched, more than {MAX_SEARCHED_BYTES} bytes: {_printable(entry.path)}]")
                    continue
                for number, line in _lines(entry):
                    if wanted in (line.casefold() if ignore_case else line):
                        found.append(f"{_printable(entry.path)}:{number}: {_short(line)}")
                        if len(found) > limit:
                            break
                if len(found) > limit:
                    found[limit:] = [f"[cut at {limit} lines; search a folder within]"]
                    break
            if walk.stopped:
                notes.append("[there is more; search a folder within]")
        return "\n".join([*(found or [f"[no line holds {query!r}]"]), *notes[:10]])

    return list_files, read_file, search_text


def _described(entry: Entry) -> str:
    mode, name = entry.status.st_mode, _printable(entry.path)
    if S_ISDIR(mode):
        return f"{name}/"
    if S_ISLNK(mode):
        return f"{name}@"
    return f"{name} ({entry.status.st_size})" if S_ISREG(mode) else f"{name} (neither file nor folder)"


def _lines(entry: Entry) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file; none of anything else."""
    descriptor = open_file(entry) if S_ISREG(entry.status.st_mode) else None
    if descriptor is None:
        return
    try:
        data = read(descriptor, MAX_SEARCHED_BYTES)
    finally:
        os.close(descriptor)
    if b"\0" not in data:
        yield from enumerate(data.decode(errors="replace").splitlines(), 1)


def _whole(data: bytes) -> bytes:
    """`data` without the beginning of a character that a cut has halved."""
    for back in range(1, min(4, len(data))):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # where the last character begins
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data


def _short(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[:MAX_LINE] + "..."


def _printable(name: str) -> str:
    """A file's name on one line of text, whatever bytes are in it."""
    return name if name.isprintable() else ascii(name)
