"""The inbox: input that waits, as a projection of the `agent/inbox/spliced` records of a session.

Every change is one append: the record first, then the lists, so that an observer of the record still sees the lists
as they were (INB-02). The live echoes of a change are for the agent to announce, from what these methods return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Literal, TypeAlias

from lifecycle.errors import DuplicateMessageError, SessionError
from lifecycle.vocabulary.events import InboxSpliced, InboxTarget
from lifecycle.vocabulary.messages import UserMessage
from lifecycle.vocabulary.values import trusted

_spliced = trusted(InboxSpliced)
_NOBODY: AbstractSet[str] = frozenset()
Messages: TypeAlias = tuple[UserMessage, ...]
TARGETS: tuple[InboxTarget, ...] = ("next-step", "next-turn")
"""In the order in which they are claimed and cleared."""


class Inbox:
    """The pending input of one session.

    Every method that changes it may raise what `Session.append` raises; then nothing has changed.
    """

    __slots__ = ("_append", "_ids", "next_step", "next_turn")

    def __init__(self, append: Callable[..., object]) -> None:
        """`append` takes a record, and whether it is `proven`."""
        self._append = append
        self.next_step: Messages = ()
        """What the next claim takes, whichever step it is for. Only `apply` changes it."""
        self.next_turn: Messages = ()
        """The prompts that each open a turn of their own. Likewise."""
        self._ids: AbstractSet[str] = _NOBODY

    @property
    def pending(self) -> bool:
        """Whether anything waits in either list."""
        return bool(self._ids)

    def waiting_in(self, target: InboxTarget) -> Messages:
        """One of the two by its name."""
        return self.next_step if target == "next-step" else self.next_turn

    def splice(
        self,
        target: InboxTarget,
        start: int | float,
        delete: int | float,
        insert: Iterable[UserMessage] = (),
        outcome: Literal["canceled"] | None = None,
    ) -> Messages:
        """Replace `delete` messages from `start` with `insert`; returns what was removed.

        A negative start counts from the end, and numbers beyond the list are clamped; so are infinities. A splice
        that removes and inserts nothing records nothing.

        Raises:
            TypeError: for NaN, a fraction, or what is no number.
            DuplicateMessageError: for an id that is pending already, or twice in `insert`. Nothing was appended.
        """
        waiting = self.waiting_in(target)
        first = _index(start, len(waiting))
        gone = waiting[first : first + _count(delete, len(waiting) - first)]
        inserted = tuple(insert)
        if gone or inserted:
            self._append(
                _spliced(
                    target=target, start=first, removed_count=len(gone) or None, inserted=inserted, outcome=outcome
                ),
                proven=not inserted,
            )
        return gone

    def insert(self, target: InboxTarget, message: UserMessage, *, proven: bool = False) -> None:
        """Put `message` at the end of a list, `proven` as for `append`. Raises DuplicateMessageError if one waits."""
        record = _spliced(target=target, start=len(self.waiting_in(target)), inserted=(message,))
        self._append(record, proven=proven)

    def claim(self, first: bool) -> Messages:
        """Take what the next step gets: all of next-step and, if it is the `first` claim of a turn, one prompt.

        Recorded as one pure deletion for each list that it touches (CLM-01, CLM-02, CLM-03); none if nothing waits.
        """
        if not self._ids:
            return ()
        claimed = self._take("next-step")
        return claimed + self._take("next-turn", 1) if first else claimed

    def _take(
        self, target: InboxTarget, most: int | None = None, *, outcome: Literal["canceled"] | None = None
    ) -> Messages:
        """Remove the first of a list, at `most` so many, as `splice` does; None takes them all."""
        taken = self.waiting_in(target)[:most]
        if taken:
            self._append(_spliced(target=target, start=0, removed_count=len(taken), outcome=outcome), proven=True)
        return taken

    def clear(self, *targets: InboxTarget) -> Messages:
        """Discard all that waits in these lists, by default in both, next-step first.

        Each list is one record with outcome `canceled`; none if nothing waits there.
        """
        discarded: Messages = ()
        for target in targets or TARGETS:
            discarded += self._take(target, outcome="canceled")
        return discarded

    def waiting(self, id: str) -> UserMessage | None:
        """The message of that id, if it waits."""
        found = self._find(id)
        return None if found is None else found[2]

    def swap(self, id: str, new: Messages) -> UserMessage | None:
        """Put `new`, which may be nothing, in the place of a message that waits; None if it does not any more."""
        found = self._find(id)
        if found is None:
            return None
        target, place, message = found
        self.splice(target, place, 1, new, "canceled")
        return message

    def _find(self, id: str) -> tuple[InboxTarget, int, UserMessage] | None:
        if id not in self._ids:
            return None
        return next(
            (target, place, message)
            for target in TARGETS
            for place, message in enumerate(self.waiting_in(target))
            if message.id == id
        )

    def check(self, record: InboxSpliced) -> None:
        """Raises if `record` cannot be applied to the lists as they are. The session asks before it commits.

        Raises:
            DuplicateMessageError: if it inserts an id that is pending (INB-05).
            SessionError: if it points outside its list.
        """
        waiting = self.waiting_in(record.target)
        end = record.start + (record.removed_count or 0)
        if not 0 <= record.start <= end <= len(waiting):
            raise SessionError(
                f"{record.type} removes {record.removed_count or 0} at {record.start} of {record.target}, "
                f"where {len(waiting)} wait"
            )
        if record.inserted and (self._ids or len(record.inserted) > 1):  # nearly always it is one, and nothing waits
            gone = {message.id for message in waiting[record.start : end]}
            fresh: set[str] = set()
            for message in record.inserted:
                if message.id in fresh or (message.id in self._ids and message.id not in gone):
                    raise DuplicateMessageError(message.id)
                fresh.add(message.id)

    def apply(self, record: InboxSpliced) -> None:
        """Take in a record that was checked and committed."""
        waiting = self.waiting_in(record.target)
        end = record.start + (record.removed_count or 0)
        ids = self._ids if isinstance(self._ids, set) else set[str]()
        ids.difference_update([message.id for message in waiting[record.start : end]])
        waiting = waiting[: record.start] + record.inserted + waiting[end:]
        if record.target == "next-step":
            self.next_step = waiting
        else:
            self.next_turn = waiting
        ids.update([message.id for message in record.inserted])
        self._ids = ids or _NOBODY  # nearly always nothing waits, and an empty set is as large as one of four


def _whole(number: int | float) -> int | float:
    """`number` if it is a whole one or infinite. Raises TypeError for everything else."""
    if isinstance(number, int) or (isinstance(number, float) and (math.isinf(number) or number.is_integer())):  # pyright: ignore[reportUnnecessaryIsInstance]  # from an untyped caller
        return number
    raise TypeError(f"a place or a count in the inbox is a whole number or infinite, not {number!r}")


def _index(start: int | float, length: int) -> int:
    start = _whole(start)
    return int(max(0, length + start) if start < 0 else min(start, length))


def _count(delete: int | float, rest: int) -> int:
    return int(min(max(0, _whole(delete)), rest))
