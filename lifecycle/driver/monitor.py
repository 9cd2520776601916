"""The monitor: the acceptor of the definition watches a live session, and what no run makes is never appended.

It sees a record before anybody may refuse it, and goes on from it once it is in the log. Where somebody refused one,
the log is another one than the lifecycle says, through no fault of the run: the monitor then waits for the next turn.

A divergence raises where the record is appended. Within a run that is contained, as every failure is: so it is raised
once more where the agent's context is left, and so is that a turn was left open.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from inspect import currentframe
from typing import TYPE_CHECKING

from lifecycle.definition.agent import Agent
from lifecycle.definition.family import within
from lifecycle.definition.machine import Lifecycle
from lifecycle.errors import DivergenceError
from lifecycle.session.log import Session
from lifecycle.vocabulary.events import Event, Replace, TurnStart

if TYPE_CHECKING:  # all revisions hang on it, which cost a third of an import: only who is watched pays for them
    from lifecycle.definition.acceptor import Acceptor, Alphabet, Divergence

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
        session: The session: no turn of it is open, unless one is parked.
        lifecycle: The lifecycle of the agent, as its options have it.
    """

    __slots__ = ("_acceptor", "_alphabet", "_blind", "_contained", "_session", "_weighed", "divergence")

    def __init__(self, session: Session, lifecycle: type[Lifecycle] | None) -> None:
        self.divergence: Divergence | None = None
        """The newest one."""
        self._session = session
        self._alphabet = _alphabet(lifecycle)
        self._contained: DivergenceError | None = None
        self._weighed = False
        self._blind = False
        self._acceptor = self._at_rest() if session.open_turn is None else self._caught_up()

    def attach(self) -> list[Callable[[], None]]:
        """Begin; the functions that are returned end it. Nobody may have a veto before."""
        return [self._session.veto(self._weigh), self._session.observe(self._keep)]

    def _at_rest(self, *, woken: bool = False) -> Acceptor:
        from lifecycle.definition.acceptor import Acceptor

        inbox = self._session.inbox
        waiting = {"next-step": len(inbox.next_step), "next-turn": len(inbox.next_turn)}
        return Acceptor(self._alphabet, last_turn=self._session.last_turn, waiting=waiting, woken=woken)

    def _caught_up(self) -> Acceptor:
        """Where a parked turn is: the whole log says so. One that is no run of this lifecycle is not watched on."""
        from lifecycle.definition.acceptor import Acceptor

        acceptor = Acceptor(self._alphabet)
        for event in self._session.events:
            if acceptor.take_event(event) is not None:
                self._blind = True
                break
        return acceptor

    def _weigh(self, event: Event) -> None:
        if self._weighed:
            self._blind, self._weighed = True, False
        data = event.data
        if self._blind:
            if not isinstance(data, TurnStart):
                return
            self._acceptor, self._blind = self._at_rest(woken=True), False
        replaces = type(event.surface) is Replace
        wrong = self._acceptor.weigh(data.type or event.type, data, replaces=replaces, ignorable=event.ignorable)
        if wrong is not None:
            error = self._told(wrong)
            if self._contained is None and _within_a_run():
                self._contained = error
            raise error
        self._weighed = True

    def _told(self, wrong: Divergence) -> DivergenceError:
        self.divergence = wrong
        before = [one.type for one in self._session.events[-_BEFORE:]]
        seq = self._session.next_seq
        error = DivergenceError(wrong.name, seq, wrong.reason, wrong.phases, wrong.expected, before)
        _logger.error("session %r diverges from its lifecycle: %s", self._session.id, error)
        return error

    def settle(self) -> None:
        """The agent is left. Raises the first divergence that was contained; or that a turn was left open."""
        if self._contained is not None:
            raise self._contained
        if not self._blind and not self._weighed:
            wrong = self._acceptor.end()
            if wrong is not None:
                raise self._told(wrong)

    def _keep(self, event: Event) -> None:
        if self._weighed:
            self._weighed = False
            self._acceptor.keep()


def _within_a_run() -> bool:
    """Whether whoever appends now does so for the driver or as a hook, where what is raised is contained."""
    frame = currentframe()  # it costs something only once something is wrong
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == "lifecycle.services.hooks" or (
            module == "lifecycle.driver.walk" and frame.f_code.co_name == "walk"
        ):
            return True
        frame = frame.f_back
    return False


def _alphabet(lifecycle: type[Lifecycle] | None) -> Alphabet:
    from lifecycle.definition.acceptor import alphabet_of
    from lifecycle.definition.revisions import NEWEST

    return alphabet_of(NEWEST if lifecycle is None else _whole(lifecycle))


@cache
def _whole(lifecycle: type[Lifecycle]) -> type[Lifecycle]:
    return within(Agent, lifecycle)
