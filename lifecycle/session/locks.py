"""One writer per session, across processes and within one: byte-range locks of the operating system on one file.

The kernel drops a lock when its process ends, however it ends; so there is no lock to take over from the dead, no
timer, and a process id that is used again means nothing. Each session owns one byte, far beyond the end of the file
and named by a hash of its id. The locks are per process, and closing *any* descriptor of the file would drop all of
them: so a process opens the file once, and counts who uses it.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
from collections.abc import Iterable
from hashlib import blake2b
from typing import ClassVar, TypeAlias

from lifecycle.errors import SessionLockedError

_Identity: TypeAlias = tuple[int, int]


class Locks:
    """The locks of the sessions of one store. Their file is made with the first one.

    Args:
        path: The lock file.
        where: Names the store in errors.

    What the system refuses is raised as OSError.
    """

    def __init__(self, path: str, where: str) -> None:
        self._path, self._where = path, where
        self._file: LockFile | None = None

    def acquire(self, id: str) -> None:
        """Become the writer of session `id`. Raises SessionLockedError, which says who is."""
        if self._file is None:
            self._file = LockFile.use(self._path, create=True)
        assert self._file is not None
        self._file.acquire(id, self._where)

    def release(self, id: str) -> None:
        """Let others become the writer. Does nothing if this store is not."""
        if self._file is not None:
            self._file.release(id)

    def held(self, ids: Iterable[str]) -> set[str]:
        """Those of the sessions that anybody, here or elsewhere, writes."""
        file = LockFile.use(self._path, create=False)
        if file is None:
            return set()
        try:
            return {id for id in ids if file.locked(id)}
        finally:
            file.leave()

    def leave(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.leave()
            self._file = None


class LockFile:
    """The lock file of one store, shared by everything in this process that uses it.

    Raises OSError where the file cannot be opened.
    """

    _opened: ClassVar[dict[_Identity, LockFile]] = {}
    _mutex: ClassVar[threading.RLock] = threading.RLock()
    """A process may have several event loops, each in its thread and with stores on one file."""

    def __init__(self, descriptor: int, identity: _Identity) -> None:
        self._descriptor = descriptor
        self._identity = identity
        self._users = 0
        self._held: set[str] = set()

    @classmethod
    def use(cls, path: str, *, create: bool) -> LockFile | None:
        """The lock file at `path`, to be given back with `leave`; None if there is none and `create` is false."""
        with cls._mutex:
            try:
                known = cls._opened.get(_identify(os.stat(path)))
            except FileNotFoundError:
                if not create:
                    return None
                known = None
            if known is None:
                descriptor = _open(path, create)
                identity = _identify(os.fstat(descriptor))
                known = cls._opened[identity] = cls(descriptor, identity)
            known._users += 1
            return known

    def leave(self) -> None:
        """Give the file back."""
        with self._mutex:
            self._users -= 1
            if not self._users and self._descriptor >= 0:
                self._opened.pop(self._identity, None)
                os.close(self._descriptor)

    def acquire(self, id: str, where: str) -> None:
        """Become the writer of session `id`. Raises SessionLockedError, which says who is."""
        with self._mutex:
            if id in self._held:
                raise SessionLockedError(
                    f"session {id!r} in {where} is already open for writing in this process ({os.getpid()}); "
                    "close it there, or open it with read_only=True"
                )
            if not _lock(self._descriptor, _byte(id)):
                holder = _holder(self._descriptor, _byte(id))
                named = f"process {holder}" if holder else "another process"
                raise SessionLockedError(
                    f"session {id!r} in {where} is being written by {named}; wait for it or end it, "
                    "or open the session with read_only=True"
                )
            self._held.add(id)

    def release(self, id: str) -> None:
        """Let others become the writer. Does nothing if this process is not."""
        with self._mutex:
            if id in self._held:
                self._held.discard(id)
                _unlock(self._descriptor, _byte(id))

    def locked(self, id: str) -> bool:
        """Whether anybody, here or elsewhere, writes session `id`."""
        return id in self._held or _holder(self._descriptor, _byte(id)) is not None

    @classmethod
    def forget(cls) -> None:
        """Called in a child made by `os.fork`: it has inherited the descriptors, but none of the locks."""
        cls._mutex = threading.RLock()  # another thread may have held it
        for known in cls._opened.values():
            os.close(known._descriptor)
            known._descriptor = -1
            known._held.clear()
        cls._opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LockFile.forget)


def _open(path: str, create: bool) -> int:
    flags = getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0) | flags, 0o644)
    except OSError:
        if create:
            raise
        return os.open(path, os.O_RDONLY | flags)  # enough to ask who holds what


def _identify(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _byte(id: str) -> int:
    return int.from_bytes(blake2b(id.encode(), digest_size=7).digest(), "big")


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, byte: int) -> bool:
        os.lseek(descriptor, byte, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int, byte: int) -> None:
        os.lseek(descriptor, byte, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _holder(descriptor: int, byte: int) -> int | None:
        """0 if somebody holds the byte: this system does not say who."""
        if _lock(descriptor, byte):
            _unlock(descriptor, byte)
            return None
        return 0

else:
    import fcntl

    def _lock(descriptor: int, byte: int) -> bool:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as refused:
            if refused.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def _unlock(descriptor: int, byte: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)

    def _holder(descriptor: int, byte: int) -> int | None:
        """The id of the other process that holds the byte: 0 if it cannot be said, None if there is none."""
        # struct flock, in the order of its fields on this system
        if sys.platform == "darwin":
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack("@qqihh", byte, 1, 0, fcntl.F_WRLCK, 0))
            _, _, process, kind, _ = struct.unpack("@qqihh", answer)
        else:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack("@hhqqi4x", fcntl.F_WRLCK, 0, byte, 1, 0))
            kind, _, _, _, process = struct.unpack("@hhqqi4x", answer)
        return None if kind == fcntl.F_UNLCK else max(process, 0)
