"""The pending input of an agent, as a host sees and edits it (INB-06)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lifecycle.vocabulary.messages import UserMessage

from .runs import AgentRun


@dataclass(frozen=True, slots=True)
class PendingInbox:
    """A view of the two lists; edits are recorded and announced."""

    _run: AgentRun
    _take: Callable[[str], None]
    _need_life: Callable[[], None]

    @property
    def next_step(self) -> tuple[UserMessage, ...]:
        """What the next claim takes whole."""
        return self._run.session.inbox.next_step

    @property
    def next_turn(self) -> tuple[UserMessage, ...]:
        """The queued prompts, oldest first; each opens a turn."""
        return self._run.session.inbox.next_turn

    @property
    def pending(self) -> bool:
        """Whether anything waits in either list."""
        return self._run.session.inbox.pending

    def replace(self, id: str, message: UserMessage) -> bool:
        """Put `message` where the pending one of that id is. Returns whether it was still pending."""

        return self._edit(id, (message,))

    def remove(self, id: str) -> bool:
        """Take the pending message of that id away, as canceled. Returns whether it was still pending."""

        return self._edit(id, ())

    def _edit(self, id: str, new: tuple[UserMessage, ...]) -> bool:
        self._need_life()
        if self._run.session.inbox.waiting(id) is None:
            return False
        self._run.editing = (id, new)
        self._take("edit")
        return True
