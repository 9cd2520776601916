"""Narration: the model is told of a switch once, in the first step that is admitted after it (STB-03).

A proposal may be rejected, fail or be cancelled before its messages are admitted; then the switch is told in the next
one. What was told is known by the record of the message, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Generic, TypeVar, cast

from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import Enter, EventPayload, PreStepPayload, Reject
from lifecycle.session.log import Session
from lifecycle.vocabulary.events import Replace, UserMessageEvent
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.values import FrozenDict

S = TypeVar("S", bound="str | bool | None")
_UNKNOWN = object()


class Narration(Generic[S]):
    """Tells the model of a state when it is another one than the model knows.

    Args:
        hooks: Where to listen.
        kind: The `kind` of the source of the messages.
        words: What is said of a state.
        state: The state that needs no telling.
        lasting: The model is to know how things are, and not only that they have changed: where a summary took the
            place of the message, it is told again.
    """

    def __init__(self, hooks: Hooks, kind: str, words: Callable[[S], str], state: S, *, lasting: bool = False) -> None:
        self.state = state
        """How things are now."""
        self._kind, self._words, self._silent, self._lasting = kind, words, state, lasting
        self._told: S | object = state
        self._at: int | None = None
        """The number of the record that told it."""
        self._said: tuple[str, S] | None = None
        hooks.listen("agent/pre-step", self.narrate)
        hooks.listen("session/event", self.admitted)

    async def narrate(self, payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        """Add the message to a step that opens anyway; a switch alone opens none."""
        decision = await next()
        if not isinstance(decision, Enter) or self.state == self._told:
            return decision
        continues = payload.step > 1 and not payload.messages  # only a step that tools owe has claimed nothing
        if not decision.messages and not continues:
            return decision
        message = user_message(self._words(self.state), source=FrozenDict(kind=self._kind, state=self.state))
        self._said = message.id, self.state
        return decision.with_messages((*decision.messages, message))

    def recall(self, session: Session, states: Container[object]) -> int:
        """Take up what a session that is gone on with was told last, if it is one of `states`.

        Returns:
            The number of the record that told it; -1 if there is none, and nothing has changed.
        """
        for event in reversed(session.events):
            source = event.data.message.source if isinstance(event.data, UserMessageEvent) else FrozenDict()
            if source.get("kind") == self._kind and source.get("state") in states:
                self.state = self._told = cast("S", source["state"])
                self._at = event.seq
                if event.seq not in session.surface.nodes:
                    self._swallowed()
                return event.seq
        return -1

    def admitted(self, payload: EventPayload) -> None:
        """The model knows a state from the record of its message on, as long as that stands."""
        event, data = payload.event, payload.event.data
        replaced = event.sources or () if isinstance(event.surface, Replace) else ()
        if self._said is not None and isinstance(data, UserMessageEvent) and data.message.id == self._said[0]:
            self._told, self._said = self._said[1], None
            self._at = event.seq
        elif self._at in replaced:
            self._swallowed()

    def _swallowed(self) -> None:
        if self._lasting and self._told != self._silent:
            self._told = _UNKNOWN
