"""Tasks and cancellations told apart: what was asked of the task that hears of it, and what only came out of an await.

An asyncio task that awaits one that somebody has cancelled hears just what it would hear if it were itself cancelled.
And a nursery of trio raises both in one group: that it was cancelled, and what its tasks raised when they were.
"""

from __future__ import annotations

from asyncio import CancelledError, current_task
from collections.abc import Iterator
from typing import TypeAlias, cast

import anyio

_Group: TypeAlias = BaseExceptionGroup[BaseException]


def cancellation_in(error: BaseException) -> BaseException | None:
    """The cancellation of this task that `error` is or holds, beside failures at most; None if it is something else."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, anyio.get_cancelled_exc_class()) and not _is_stray(error) else None
    cancelled, failed = _parted(cast("_Group", error))
    alone = failed is None or _harmless(failed)
    return cancelled if cancelled is not None and alone and not _is_stray(cancelled) else None


def failure_in(error: BaseException) -> BaseException | None:
    """What failed, if `error` is a failure of the work that raised it; None if it has to go on its way.

    A cancellation that nobody asked of this task is one. Of a group it is what is no cancellation, where that comes
    again by itself.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, CancelledError):
        return error if _is_stray(error) else None
    if not isinstance(error, BaseExceptionGroup):
        return None
    cancelled, failed = _parted(cast("_Group", error))
    if isinstance(cancelled, CancelledError) and not _is_stray(cancelled):
        return None
    if failed is None:
        return cancelled if isinstance(cancelled, CancelledError) else None
    return failed if _harmless(failed) else None


def this_task() -> object:
    """What tells the running task from all others, on any event loop."""
    try:
        return current_task()
    except RuntimeError:  # another event loop than asyncio's
        return anyio.get_current_task().id


def _parted(group: _Group) -> tuple[BaseException | None, BaseException | None]:
    """The first cancellation in the group, and the group of all else."""
    kinds: tuple[type[BaseException], ...] = (CancelledError, anyio.get_cancelled_exc_class())
    cancelled, failed = group.split(kinds)
    return next(_leaves(cancelled), None), failed


def _harmless(group: BaseException) -> bool:
    """Whether nothing in the group is meant to end the process."""
    return all(isinstance(one, Exception) for one in _leaves(group))


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in cast("_Group", error).exceptions:
            yield from _leaves(one)
    elif error is not None:
        yield error


def _is_stray(cancelled: BaseException) -> bool:
    """Whether nobody asked for this cancellation here. Those of trio come from scopes alone, so somebody did."""
    if not isinstance(cancelled, CancelledError):
        return False
    try:
        task = current_task()
    except RuntimeError:  # another event loop than asyncio's
        return True
    return task is None or task.cancelling() == 0
