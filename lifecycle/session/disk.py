"""What the failures of the system mean in words, for stores that keep sessions in files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from pathlib import Path

from lifecycle.errors import StoreError


@contextmanager
def explained(path: Path, other: str) -> Generator[None]:
    """Turn failures of the system within the block into a StoreError about `path`; `other` is what to name instead."""
    try:
        yield
    except OSError as error:
        raise failure(path, error, other) from error


def failure(path: Path, error: OSError, other: str) -> StoreError:
    """What `explained` raises for a failure of the system."""
    return StoreError(f"{path} {_why(error, other)}")


def _why(error: OSError, other: str) -> str:
    match error.errno:
        case n if n in (ENOSPC, EDQUOT):
            return "cannot be written: its disk is full; free some space and try again"
        case n if n == EFBIG:
            return f"cannot be written: a limit on its size is reached; raise it, or name another {other}"
        case n if n == EROFS:
            return f"cannot be written: its disk is read-only; make it writable, or name another {other}"
        case n if n in (EACCES, EPERM):
            return f"cannot be used: no permission; change that, or name another {other}"
        case _:
            return f"cannot be used: {error.strerror or error}; name another {other}"
