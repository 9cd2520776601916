"""Loading: the events of a whole log at once, without the collector of garbage looking at them again and again.

All that is made here stays alive, and there may be a million objects of it: to look for garbage among them takes longer
than to make them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from lifecycle.errors import SessionFormatError
from lifecycle.vocabulary.events import Event, decode_event

_mutex = threading.Lock()
_loads = 0
_collecting = False


@contextmanager
def without_collections() -> Generator[None]:
    """Collect no garbage within the block, in the whole process; several threads may be in one at once."""
    global _loads, _collecting
    with _mutex:
        if not _loads:
            _collecting = gc.isenabled()
            gc.disable()
        _loads += 1
    try:
        yield
    finally:
        with _mutex:
            _loads -= 1
            if not _loads and _collecting:
                if not gc.get_freeze_count():  # what the host has frozen stays so
                    gc.freeze()  # all that is there is old now, without having been looked at:
                    gc.unfreeze()  # else the first collection would do just what was put off
                gc.enable()


def decoded(lines: Sequence[str | bytes], kept: int, id: str, where: str) -> Sequence[Event]:
    """The events that the lines of a session are, of which so many were kept.

    Raises:
        SessionFormatError: if they are not, or not all; it names the session and its store.
    """
    if len(lines) != kept:
        raise SessionFormatError(
            f"session {id!r} in {where} is not whole: {kept} events were kept, and {len(lines)} are there"
        )
    try:
        with without_collections():
            return [decode_event(line) for line in lines]
    except SessionFormatError as wrong:
        raise type(wrong)(f"session {id!r} in {where}: {wrong}") from wrong
