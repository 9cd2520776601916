"""What the commands share: wrong calls, the arguments that several take, and where sessions are kept by default."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.session.sqlite import SqliteStore


class CallError(Exception):
    """The call was wrong; the message is one sentence that says what, where, and what to do."""


def lone(error: BaseException) -> BaseException:
    """The exception that a task group has wrapped, if it is the only one in there; else `error` itself."""
    members: tuple[BaseException, ...] = getattr(error, "exceptions", ())  # only groups have them
    return lone(members[0]) if len(members) == 1 else error


def add_store(parser: argparse.ArgumentParser) -> None:
    """`--store PATH`."""
    parser.add_argument(
        "--store",
        metavar="PATH",
        type=Path,
        help="the SQLite file that keeps sessions (default: $LIFECYCLE_STORE, or a file in your data folder)",
    )


def store_path(given: Path | None) -> Path:
    """The store that was named, or the default one."""
    return given or Path(os.environ.get("LIFECYCLE_STORE") or default_store())


def open_store(path: Path, *, make: bool = False) -> SqliteStore:
    """The store at `path`. With `make`, the folder of the default store is made if need be; no other one is."""
    from lifecycle.session.sqlite import SqliteStore

    if make and not os.path.lexists(path.parent) and path == default_store():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise CallError(
                f"cannot make the folder {path.parent} for sessions ({wrong.strerror}); name a file with --store"
            ) from wrong
    return SqliteStore(path)


def default_store() -> Path:
    """A file in the user's data folder."""
    try:
        if sys.platform == "win32":
            data = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            data = Path.home() / "Library" / "Application Support"
        else:
            data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError as wrong:  # no HOME, and nobody knows this user
        raise CallError("there is no home folder to keep sessions in; name a file with --store") from wrong
    return data / "turn-lifecycle" / "sessions.db"


def plugin(group: str, name: str) -> Any:
    """What an installed distribution offers under `name`, loaded.

    Raises:
        CallError: if none does; it lists what there is.
    """
    offered: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=group)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none: reinstall turn-lifecycle"
        raise CallError(f"there is no {group.removeprefix('lifecycle.').rstrip('s')} {name!r}; there are: {known}")
    return offered[name].load()
