"""The monitor: the acceptor of the definition watches a live session, and what no run makes is never appended.

It sees a record before anybody may refuse it, and goes on from it once it is in the log. Where somebody refused one,
the log is another one than the lifecycle says, through no fault of the run: the monitor then waits for the next turn.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache

from lifecycle.definition.acceptor import Acceptor, Alphabet, Divergence, alphabet_of
from lifecycle.definition.agent import Agent
from lifecycle.definition.family import within
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import NEWEST
from lifecycle.errors import DivergenceError
from lifecycle.session.log import Session
from lifecycle.vocabulary.events import Event, Replace, TurnStart

VARIABLE = "LIFECYCLE_MONITOR"
"""Set to 1, it puts a monitor on every agent that does not say otherwise. The pytest plug-in sets it: that needs no
import, and reaches the processes that a test starts.
"""
_BEFORE = 5
_logger = logging.getLogger("lifecycle")


def by_default() -> bool:
    """Whether agents are watched that do not say."""
    return os.environ.get(VARIABLE, "") not in ("", "0", "false")


class Monitor:
    """Watches what is appended to a session from now on.

    Args:
        session: The session, at a rest: no turn is open.
        lifecycle: The lifecycle of the agent, as its options have it.
    """

    __slots__ = ("_acceptor", "_alphabet", "_blind", "_session", "_weighed", "divergence")

    def __init__(self, session: Session, lifecycle: type[Lifecycle] | None) -> None:
        self.divergence: Divergence | None = None
        """The newest one."""
        self._session = session
        self._alphabet = _alphabet(lifecycle)
        self._acceptor = self._at_rest()
        self._weighed = False
        self._blind = False

    def attach(self) -> list[Callable[[], None]]:
        """Begin; the functions that are returned end it. Nobody may have a veto before."""
        return [self._session.veto(self._weigh), self._session.observe(self._keep)]

    def _at_rest(self, *, woken: bool = False) -> Acceptor:
        inbox = self._session.inbox
        waiting = {"next-step": len(inbox.next_step), "next-turn": len(inbox.next_turn)}
        return Acceptor(self._alphabet, last_turn=self._session.last_turn, waiting=waiting, woken=woken)

    def _weigh(self, event: Event) -> None:
        if self._weighed:
            self._blind, self._weighed = True, False
        if self._blind:
            if not isinstance(event.data, TurnStart):
                return
            self._acceptor, self._blind = self._at_rest(woken=True), False
        replaces = isinstance(event.surface, Replace)
        wrong = self._acceptor.weigh(event.type, event.data, replaces=replaces, ignorable=event.ignorable)
        if wrong is not None:
            self.divergence = wrong
            before = [one.type for one in self._session.events[-_BEFORE:]]
            error = DivergenceError(event.type, wrong.reason, wrong.phases, wrong.expected, before)
            _logger.error("session %r diverges from its lifecycle at event %d: %s", self._session.id, event.seq, error)
            raise error
        self._weighed = True

    def _keep(self, event: Event) -> None:
        if self._weighed:
            self._weighed = False
            self._acceptor.keep()


def _alphabet(lifecycle: type[Lifecycle] | None) -> Alphabet:
    return alphabet_of(NEWEST if lifecycle is None else _whole(lifecycle))


@cache
def _whole(lifecycle: type[Lifecycle]) -> type[Lifecycle]:
    return within(Agent, lifecycle)
