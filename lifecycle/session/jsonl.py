"""The JSONL store: a folder with one file a session, an event a line, to be read with `tail -f` and any text tool.

The first line tells about the session, every other one is an event as it is; `lifecycle check` and `lifecycle replay`
read such files. A batch of events is one write at the end of the file. A process that dies, or a disk that is full,
may leave the last line torn: what is no whole line is not there for readers, and the next writer cuts it off before
anything follows it. A new file appears under its name only once its first batch stands in it.

Who writes a session is said by the locks in the file `.lock` of the folder; see locks.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import anyio.to_thread

from lifecycle.errors import (
    SessionExistsError,
    SessionFormatError,
    SessionHasChildrenError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.vocabulary.events import Event

from .fork import Lineage, cut
from .ids import check_id, fresh_id
from .jsonl_file import SUFFIX, Glance, Head, JsonlSink, explained, file_name, glance, read_session, sync_folder
from .locks import LockFile
from .log import Session, epoch_ms
from .opened import Opened
from .store import SessionInfo, Summary, page
from .writing import BatchWriter, Durability, check_durability

_logger = logging.getLogger("lifecycle")
_Events: TypeAlias = "list[Event]"
_Glances: TypeAlias = "list[tuple[Head, Glance]]"


class JsonlStore:
    """Sessions in files of a folder, which is made with the first one. `async with` closes it at the end.

    Args:
        folder: Where they are. Its own folder must exist.
        durability: What a crash and a loss of power may take; see `lifecycle.session.writing`.
        clock: Gives the time in epoch milliseconds.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durability: Durability = "turn",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = Path(folder)
        self._clock = epoch_ms if clock is None else clock
        self._locks: LockFile | None = None
        self._open = Opened(str(self.path))
        self._durability: Durability = check_durability(durability)

    def __repr__(self) -> str:
        return f"<JsonlStore {self.path}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The protocol

    async def create(self, id: str | None = None, *, parent: str | None = None) -> Session:
        id = fresh_id(id)
        self._reserve(id)
        head = Head(id, self._clock(), None if parent is None else Lineage(parent))
        return self._open.add(
            Session(id, lineage=head.lineage, writer=self._writer(head, Summary(head.created_at)), clock=self._clock)
        )

    async def open(self, id: str, *, read_only: bool = False) -> Session:
        check_id(id)
        self._open.check()
        path = self._find(id)
        if read_only:
            head, events, _ = await anyio.to_thread.run_sync(self._load, id, path)
            return Session.restored(events, id, lineage=head.lineage, read_only=True, clock=self._clock)
        locks = self._writable()
        locks.acquire(id, str(self.path))
        try:
            head, events, end = await anyio.to_thread.run_sync(self._load, id, path)
            summary = Summary(head.created_at)  # the file tells of itself; nobody asks the summary of a JSONL session
            writer = self._writer(head, summary, len(events), end)
            return self._open.add(Session.restored(events, id, lineage=head.lineage, writer=writer, clock=self._clock))
        except BaseException:
            locks.release(id)
            raise

    async def list(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        self._open.check()
        found = await anyio.to_thread.run_sync(self._glances)
        if not found:
            return ()
        with explained(self.path):
            locks = LockFile.use(self._lock_path, create=False)
        try:
            infos = [
                SessionInfo(
                    head.id,
                    head.created_at,
                    seen.updated_at,
                    seen.events,
                    seen.turns,
                    seen.title,
                    head.lineage,
                    locks is not None and locks.locked(head.id),
                )
                for head, seen in found
            ]
        finally:
            if locks is not None:
                locks.leave()
        return page(infos, limit, offset)

    async def delete(self, id: str) -> None:
        check_id(id)
        self._open.check()
        path = self._find(id)
        locks = self._writable()
        locks.acquire(id, str(self.path))
        try:
            await anyio.to_thread.run_sync(self._delete, id, path)
        finally:
            locks.release(id)

    async def fork(
        self, id: str, turn: int | None = None, step: int | None = None, new_id: str | None = None
    ) -> Session:
        check_id(id)
        child = fresh_id(new_id)
        self._open.check()
        await self._open.flush(id)
        path = self._find(id)
        _, source, _ = await anyio.to_thread.run_sync(self._load, id, path)
        locks = self._reserve(child)
        try:
            events, prefix = cut(source, turn, step, id, self._clock())
            head = Head(child, self._clock(), Lineage(id, prefix))
            writer = self._writer(head, Summary(head.created_at), held=True)
            session = Session.seeded(events, child, lineage=head.lineage, writer=writer, clock=self._clock)
            await session.flush()
        except BaseException:
            locks.release(child)
            raise
        return self._open.add(session)

    async def close(self) -> None:
        failure = await self._open.close()
        if self._locks is not None:
            self._locks.leave()
            self._locks = None
        if failure is not None:
            raise failure

    # Within

    @property
    def _lock_path(self) -> str:
        return str(self.path / ".lock")

    def _file(self, id: str) -> Path:
        return self.path / file_name(id)

    def _find(self, id: str) -> Path:
        path = self._file(id)
        with explained(self.path):
            if not path.is_file():
                if path.exists():
                    raise StoreError(f"{path} is no file; move it away, or name another folder")
                self._check_folder()
                raise SessionNotFoundError(f"{self.path} holds no session {id!r}")
        return path

    def _check_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{self.path} is a file; a JSONL store is a folder with a file for each session")

    def _writable(self) -> LockFile:
        """The locks, in the folder, which is made if there is none."""
        self._open.check()
        if self._locks is None:
            self._check_folder()
            with explained(self.path):
                self.path.mkdir(exist_ok=True)
                self._locks = LockFile.use(self._lock_path, create=True)
        assert self._locks is not None
        return self._locks

    def _reserve(self, id: str) -> LockFile:
        """Become the writer of a session that is to be made."""
        locks = self._writable()
        locks.acquire(id, str(self.path))
        if self._file(id).exists():
            locks.release(id)
            raise SessionExistsError(f"{self.path} holds a session {id!r} already; open it, or choose another id")
        return locks

    def _writer(
        self, head: Head, summary: Summary, stored: int = 0, end: int | None = None, *, held: bool = False
    ) -> BatchWriter:
        durability = self._durability
        sink = JsonlSink(
            self._file(head.id),
            head,
            end,
            check_process=self._open.check_process,
            let_go=self._let_go,
            synced=durability != "none",
        )
        return BatchWriter(sink, head.id, summary, stored, hands=self._open.hands, durability=durability, held=held)

    def _let_go(self, id: str) -> None:
        self._open.discard(id)
        if self._locks is not None:
            self._locks.release(id)

    def _load(self, id: str, path: Path) -> tuple[Head, _Events, int]:
        """A session as its file holds it. Runs in a worker thread."""
        head, events, end = read_session(path)
        if head.id != id:
            raise SessionFormatError(f"{path} holds session {head.id!r}, not {id!r}; give the file its own name back")
        return head, events, end

    def _glances(self) -> _Glances:
        """What there is to tell of each file. One that is no session of ours is left out, with a warning."""
        with explained(self.path):
            self._check_folder()
            names = (
                sorted(name for name in os.listdir(self.path) if name.endswith(SUFFIX)) if self.path.exists() else []
            )
        found: _Glances = []
        for name in names:
            try:
                found.append(glance(self.path / name))
            except SessionFormatError as wrong:
                _logger.warning("%s", wrong)
            except StoreError:
                if (self.path / name).exists():  # else it was deleted meanwhile
                    raise
        return found

    def _delete(self, id: str, path: Path) -> None:
        children = [head.id for head, _ in self._glances() if head.lineage is not None and head.lineage.parent == id]
        if children:
            raise SessionHasChildrenError(id, children)
        with explained(path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                raise SessionNotFoundError(f"{self.path} holds no session {id!r}") from None
            if self._durability != "none":
                sync_folder(self.path)
