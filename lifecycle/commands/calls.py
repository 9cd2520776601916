"""What the commands share: the arguments that several take, and where sessions are kept by default."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from lifecycle.session.sqlite import SqliteStore


class CallError(Exception):
    """The call was wrong; the message is one sentence that says what, where, and what to do."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """`--store PATH`."""
    parser.add_argument(
        "--store",
        metavar="PATH",
        type=Path,
        help=f"the SQLite file that keeps sessions (default: $LIFECYCLE_STORE, or {default_store()})",
    )


def open_store(given: Path | None) -> SqliteStore:
    """The store that was named, or the default one, whose folder is made."""
    path = given or Path(os.environ.get("LIFECYCLE_STORE") or default_store())
    if path == default_store():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise CallError(
                f"cannot make the folder {path.parent} for sessions ({wrong.strerror}); name a file with --store"
            ) from wrong
    return SqliteStore(path)


def default_store() -> Path:
    """A file in the user's data folder."""
    if sys.platform == "win32":
        data = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        data = Path.home() / "Library" / "Application Support"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "turn-lifecycle" / "sessions.db"


def plugin(group: str, name: str) -> Any:
    """What an installed distribution offers under `name`, loaded.

    Raises:
        CallError: if none does; it lists what there is.
    """
    offered = plugins(group)
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none: reinstall turn-lifecycle"
        raise CallError(f"there is no {group.removeprefix('lifecycle.').rstrip('s')} {name!r}; there are: {known}")
    return offered[name].load()


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}
