"""Where sessions are kept: what `--store` and `LIFECYCLE_STORE` may name, and the store that has that name."""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .calls import CallError, plugin

if TYPE_CHECKING:
    from lifecycle.session.base import StoreBase

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PASSWORD = re.compile(r"(?<=://)([^/?#@]*?):[^/?#]*(?=@)|(?<=[?&]password=)[^&#]*", re.IGNORECASE)
_ENDS = tuple(end for end in (os.sep, os.altsep) if end)


def add_store(parser: argparse.ArgumentParser) -> None:
    """`--store STORE`."""
    parser.add_argument(
        "--store",
        metavar="STORE",
        help="where sessions are kept: a file (SQLite); a folder, with a / at its end (a file of JSON lines each); "
        "or a postgresql:// URL (default: $LIFECYCLE_STORE, or an SQLite file in your data folder)",
    )


def store_name(given: str | None) -> str:
    """The store that was named, or the default one. Raises CallError."""
    if given == "":
        raise CallError("--store is empty; name a file, a folder with a / at its end, or a postgresql:// URL")
    return given or os.environ.get("LIFECYCLE_STORE") or str(default_store())


def shown_name(name: str) -> str:
    """The name of a store without the password that a URL may have in it."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***" if found[1] is not None else "***", name)


def is_missing(name: str) -> bool:
    """Whether the file or the folder of that name is still to be made."""
    return _URL.match(name) is None and not os.path.lexists(name)


def open_store(name: str, *, make: bool = False) -> StoreBase:
    """The store of that name. With `make`, the folder of the default store is made if need be; no other one is.

    Raises:
        CallError: if nothing can be told from the name, or what it needs is not installed.
        StoreError: if it is no way to a store.
    """
    if url := _URL.match(name):
        return _at_url(url[1], name)
    path = Path(name)
    if _is_folder(name, path):
        from lifecycle.session.jsonl import JsonlStore

        return JsonlStore(path)
    if path.suffix == ".jsonl":
        raise CallError(
            f"{path} would be one file, and sessions in JSON lines are a folder with a file for each; name a folder, "
            f"such as {path.with_suffix('')}/"
        )
    if make and not os.path.lexists(path.parent) and path == default_store():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise CallError(
                f"cannot make the folder {path.parent} for sessions ({wrong.strerror}); name a file with --store"
            ) from wrong
    from lifecycle.session.sqlite import SqliteStore

    return SqliteStore(path)


def _is_folder(name: str, path: Path) -> bool:
    """Whether it names a folder of files: by its end, or because one stands there, and nothing else in it."""
    if name.endswith(_ENDS):
        return True
    try:
        inside = os.listdir(path)
    except OSError:  # whoever opens it says what is wrong
        return False
    if inside and ".lock" not in inside:
        raise CallError(
            f"{path} is a folder, and holds other things than sessions; write {path}/ to keep them there all the same, "
            f"a file each, or name a file in it, such as {path / 'sessions.db'}"
        )
    return True


def _at_url(scheme: str, url: str) -> StoreBase:
    known = sorted(entry.name for entry in entry_points(group="lifecycle.stores"))
    if scheme not in known:
        raise CallError(
            f"{scheme}:// leads to no store; name a file, a folder with a / at its end, or a URL that begins with "
            f"{' or '.join(f'{name}://' for name in known) or 'nothing: reinstall turn-lifecycle'}"
        )
    try:
        kind: Any = plugin("lifecycle.stores", scheme)
    except ModuleNotFoundError as missing:
        raise CallError(
            f"a store at {scheme}:// needs {missing.name}, which is not installed: "
            "pip install 'turn-lifecycle[postgres]' brings what ours needs"
        ) from missing
    store: StoreBase = kind(url)
    return store


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
