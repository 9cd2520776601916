"""Small logs for the tests of the durable half."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from lifecycle.session.log import Session
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import (
    AssistantMessage,
    SystemMessage,
    ToolResultBlock,
    UserMessage,
    text,
    text_of,
    user_message,
)
from lifecycle.vocabulary.stream import TimedStream
from lifecycle.vocabulary.values import freeze_object


def said(id: str) -> UserMessage:
    """A user message that says its own id."""
    return user_message(id, id=id)


def user(id: str) -> ev.UserMessageEvent:
    return ev.UserMessageEvent(message=said(id))


def answer(content: str, turn: int = 1, step: int = 1) -> ev.AssistantMessageEvent:
    """An assistant message; without content for an empty string."""
    blocks = text(content) if content else ()
    return ev.AssistantMessageEvent(
        turn=turn,
        step=step,
        message=AssistantMessage(id=f"a-{content}", content=blocks),
        stream=TimedStream(),
        finish=FinishKind.STOP,
    )


def section(name: str, content: str, order: int = 0, *, in_history: bool = False) -> ev.SystemMessageEvent:
    source: dict[str, Any] = {"kind": "prompt", "section": name, "order": order}
    if in_history:
        source["placement"] = "in-history"
    message = SystemMessage(id=f"s-{name}-{content}", content=text(content), source=freeze_object(source))
    return ev.SystemMessageEvent(turn=1, step=1, message=message)


def result(call: str, content: str) -> ev.ToolResultEvent:
    block = ToolResultBlock(tool_call_id=call, content=text(content))
    source = freeze_object({"kind": "tool", "callId": call})
    return ev.ToolResultEvent(turn=1, step=1, message=UserMessage(id=f"r-{call}", content=(block,), source=source))


def ticking(start: int = 1_000) -> Any:
    """A clock that goes on by a millisecond each time it is asked."""
    times = count(start)
    return lambda: next(times)


def a_turn(session: Session, turn: int, prompt: str) -> None:
    """A turn of one step, as the driver writes it."""
    session.inbox.insert("next-turn", said(prompt))
    session.append(ev.TurnStart(turn=turn))
    (claimed,) = session.inbox.claim(first=True)
    session.append(ev.StepStart(turn=turn, step=1))
    session.append(ev.UserMessageEvent(message=claimed), surface="append")
    session.append(answer(f"to {prompt}", turn), surface="append")
    session.append(ev.StepEnd(turn=turn, step=1))
    session.append(ev.TurnEnd(turn=turn, reason=COMPLETED))


def shown(session: Session) -> list[str]:
    """The derived messages, in words."""
    return [text_of(message) for message in session.derive_messages()]


def types(session: Session) -> list[str]:
    return [event.type for event in session.events]


def names() -> Iterator[str]:
    return (f"m{number}" for number in count())
