"""What the log of a scene says of tool calls, in a form that fits into one line of a test."""

from __future__ import annotations

import anyio

from lifecycle import Session
from lifecycle.testing import Reply
from lifecycle.vocabulary.events import ToolCallEvent, ToolResultEvent
from lifecycle.vocabulary.messages import TextBlock, ToolResultBlock

DONE = Reply(text="done")


def asks(*ids: str, tool: str = "work", **arguments: object) -> Reply:
    """An answer that calls one tool under each of these ids."""
    return Reply(calls=[(tool, arguments, id) for id in ids])


def answered(data: ToolResultEvent) -> str:
    """The id of the call that a result answers."""
    return _block(data).tool_call_id


def told(data: ToolResultEvent) -> str:
    """The text that the model sees of a result."""
    return "".join(part.text for part in _block(data).content if isinstance(part, TextBlock))


def _block(data: ToolResultEvent) -> ToolResultBlock:
    (block,) = data.message.content
    assert isinstance(block, ToolResultBlock)
    assert block.is_error is (data.error is not None)
    return block


def calls_and_results(session: Session) -> list[str]:
    """`call a`, `result a`, and of an error `result a CODE`, in the order of the log."""
    said: list[str] = []
    for event in session.events:
        if isinstance(event.data, ToolCallEvent):
            said.append(f"call {event.data.call_id}")
        elif isinstance(event.data, ToolResultEvent):
            code = "" if event.data.error is None else f" {event.data.error.code}"
            said.append(f"result {answered(event.data)}{code}")
    return said


async def quiet() -> None:
    """Wait until everything else waits for something that only the test can do."""
    await anyio.wait_all_tasks_blocked()
