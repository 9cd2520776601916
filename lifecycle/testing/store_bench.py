"""Where the checks of stores work: the places they are given, and the words they find for what a store did wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, TypeAlias

from lifecycle.errors import (
    SessionError,
    StoreCheckError,
    StoreError,
)
from lifecycle.session.log import Session
from lifecycle.session.store import Store
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import AssistantMessage, text, user_message
from lifecycle.vocabulary.stream import TimedStream

StoreFactory: TypeAlias = Callable[[str], "Store | Awaitable[Store]"]
"""Makes a store in the place of that name, which is empty at first. The same name means the same place."""
Hinder: TypeAlias = Callable[[Store], AbstractContextManager[None]]
"""Lets nothing be kept in the place of a store within a block, as a full disk does; what is kept can be read."""
Usurp: TypeAlias = Callable[[Store, str], Awaitable[Session]]
"""Opens a session for writing that another store has open, as if that one had been silent for too long."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where one check works."""

    check: str
    factory: StoreFactory
    durable: bool
    sessions: int
    megabytes: int
    usurp: Usurp | None
    hinder: Hinder | None

    async def store(self) -> Store:
        """A store in this check's place, a new one each time."""
        made = self.factory(self.check.replace(" ", "_"))
        return await made if isawaitable(made) else made

    async def reopened(self, store: Store) -> Store:
        """The place once more, after `store` was closed; `store` itself if it forgets what it holds."""
        if not self.durable:
            return store
        await store.close()
        return await self.store()

    def need(self, holds: bool, what: str) -> None:
        """Raises StoreCheckError, which says that the store `what`, unless it holds."""
        if not holds:
            raise StoreCheckError(self.check, what)

    async def refused(
        self, what: str, kind: type[SessionError], attempt: Callable[..., Awaitable[object]], *arguments: Any
    ) -> SessionError:
        """Attempt what must be refused with an error of this kind; `what` is what a store does that does not."""
        try:
            await attempt(*arguments)
        except kind as error:
            self.need(len(str(error).splitlines()) == 1, f"says {str(error)!r} where one sentence is due")
            if len(arguments) == 1:
                self.need(
                    repr(arguments[0])[:40] in str(error) or isinstance(error, StoreError), f"names nobody: {error}"
                )
            return error
        except Exception as error:
            raise StoreCheckError(
                self.check, f"raises {type(error).__name__} where it must raise {kind.__name__}: {error}"
            ) from error
        raise StoreCheckError(self.check, what)


def write_turn(session: Session, turn: int, prompt: str) -> None:
    """A whole turn of one step, as the driver records it."""
    session.inbox.insert("next-turn", user_message(prompt, id=f"{prompt}-{turn}"))
    session.append(TurnStart(turn=turn))
    claimed = session.inbox.claim(first=True)
    session.append(StepStart(turn=turn, step=1))
    for message in claimed:
        session.append(UserMessageEvent(message=message), surface="append")
    answer = AssistantMessage(id=f"a{turn}", content=text(f"to {prompt} ✓"))
    session.append(
        AssistantMessageEvent(turn=turn, step=1, message=answer, stream=TimedStream(), finish=FinishKind.STOP),
        surface="append",
    )
    session.append(StepEnd(turn=turn, step=1))
    session.append(TurnEnd(turn=turn, reason=COMPLETED))
