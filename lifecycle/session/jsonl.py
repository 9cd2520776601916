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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lifecycle.errors import SessionFormatError, SessionHasChildrenError, StoreError

from .base import Kept, StoreBase
from .jsonl_file import (
    SUFFIX,
    Glance,
    Head,
    JsonlFile,
    check_name,
    explained,
    file_name,
    glance,
    read_lines,
    read_session,
    sync_folder,
)
from .locks import Locks
from .store import SessionInfo, Summary, page
from .writing import BatchWriter, Durability

_logger = logging.getLogger("lifecycle")


class JsonlStore(StoreBase):
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
        super().__init__(str(self.path), durability=durability, clock=clock)
        self.locks = Locks(str(self.path / ".lock"), self.where)

    def _slot(self, id: str) -> _Slot:
        return _Slot(self, id)

    def check_folder(self) -> None:
        """Raises StoreError if something else stands in its place."""
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{self.path} is a file; a JSONL store is a folder with a file for each session")

    def glances(self) -> Sequence[tuple[Head, Glance]]:
        """What there is to tell of each file. One that cannot be read as a session is left out, with a warning."""
        with explained(self.path):
            self.check_folder()
            names = os.listdir(self.path) if self.path.exists() else ()
        found: list[tuple[Head, Glance]] = []
        for path in sorted(self.path / name for name in names if name.endswith(SUFFIX)):
            try:
                head, seen = glance(path)
                check_name(path, head.id)
                found.append((head, seen))
            except (SessionFormatError, StoreError) as wrong:
                if os.path.lexists(path):  # else it was deleted meanwhile
                    _logger.warning("%s", wrong)
        return found

    def _infos(self, limit: int | None, offset: int) -> Sequence[SessionInfo]:
        found = self.glances()
        with explained(self.path):
            held = self.locks.held(head.id for head, _ in found)
        infos = (
            Summary(head.created_at, seen.updated_at, seen.turns, seen.title).info(
                head.id, seen.events, head.lineage, locked=head.id in held
            )
            for head, seen in found
        )
        return page(infos, limit, offset)

    async def _shut(self) -> None:
        self.locks.leave()


class _Slot:
    """The file of one session."""

    __slots__ = ("_end", "_file", "_path", "_store", "id")
    quick = True

    def __init__(self, store: JsonlStore, id: str) -> None:
        self._store, self.id = store, id
        self._path = store.path / file_name(id)
        self._end: int | None = None
        """How many bytes of the file count; None if there is none yet."""
        self._file: JsonlFile | None = None

    # -- by whom it is written ------------------------------------------------------------------------------------

    def reserve(self) -> None:
        with explained(self._store.path):
            self._store.check_folder()
            try:
                self._store.path.mkdir(exist_ok=True)
            except FileNotFoundError:
                folder = self._store.path.absolute().parent
                raise StoreError(
                    f"{self._store.path} cannot be made: its folder {folder} does not exist; make it, or name another "
                    "folder"
                ) from None
            self._store.locks.acquire(self.id)
        if self._path.exists():
            self.let_go()
            raise self._store.exists(self.id)

    def acquire(self) -> None:
        self._find()
        with explained(self._store.path):
            self._store.locks.acquire(self.id)

    def let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._store.opened.pop(self.id, None)
        self._store.locks.release(self.id)

    # -- reading and removing, in a worker thread -----------------------------------------------------------------

    def load(self) -> Kept:
        self._find()
        head, events, self._end = read_session(self._path)
        check_name(self._path, head.id)
        return Kept(head.lineage, Summary(head.created_at), events)  # the file tells the rest of its summary by itself

    def lines(self) -> Iterator[bytes]:
        self._find()
        return read_lines(self._path)

    def _find(self) -> None:
        with explained(self._store.path):
            if not self._path.is_file():
                if self._path.exists():
                    raise StoreError(f"{self._path} is no file; move it away, or name another folder")
                self._store.check_folder()
                raise self._store.not_found(self.id)

    def remove(self) -> None:
        heads = [head for head, _ in self._store.glances()]
        if children := [head.id for head in heads if head.lineage is not None and head.lineage.parent == self.id]:
            raise SessionHasChildrenError(self.id, children)
        with explained(self._path):
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                raise self._store.not_found(self.id) from None
            if self._store.durability != "none":
                sync_folder(self._store.path)

    # -- writing --------------------------------------------------------------------------------------------------

    def writer(self, kept: Kept, *, held: bool = False) -> BatchWriter:
        head = Head(self.id, kept.summary.created_at, kept.lineage)
        self._file = JsonlFile(self._path, head, self._end, synced=self._store.durability != "none")
        return self._store.batches(self, self.id, kept, held=held)

    def keep(self, lines: Sequence[str], first: int, summary: Summary, *, here: bool) -> None:
        self._store.check_process()
        assert self._file is not None
        self._file.append(lines)

    def sync(self) -> None:
        assert self._file is not None
        self._file.sync()
