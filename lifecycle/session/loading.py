"""Loading: the events of a whole log at once, without the collector of garbage looking at them again and again.

All that is made here stays alive, and there may be a million objects of it: to look for garbage among them takes longer
than to make them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

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
                gc.enable()
