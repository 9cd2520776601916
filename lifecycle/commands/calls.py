"""What the commands share: wrong calls, and what other distributions offer."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any


class CallError(Exception):
    """The call was wrong; the message is one sentence that says what, where, and what to do."""


def lone(error: BaseException) -> BaseException:
    """The exception that a task group has wrapped, if it is the only one in there; else `error` itself."""
    members: tuple[BaseException, ...] = getattr(error, "exceptions", ())  # only groups have them
    return lone(members[0]) if len(members) == 1 else error


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
