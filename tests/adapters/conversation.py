"""What the tests of the requests say: messages of a conversation, and how a wire spells them."""

from __future__ import annotations

import json
from typing import Any, Protocol

from lifecycle.vocabulary.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from lifecycle.vocabulary.requests import CallConfig, Request, ToolSpec
from lifecycle.vocabulary.values import FrozenDict
from tests.adapters.asking import request

CONFIG = CallConfig(provider="p", model="m")


class Encode(Protocol):
    def __call__(self, request: Request, /, *, provider: str, **options: Any) -> bytes: ...


class Spelling:
    """Calls `encode` of a wire with a request that says `messages`, and reads what came of it."""

    def __init__(self, encode: Any, config: CallConfig = CONFIG, **options: Any) -> None:
        self._encode: Encode = encode
        self._config, self._options = config, options

    def __call__(
        self, *messages: Message, config: CallConfig | None = None, tools: tuple[ToolSpec, ...] = (), **options: Any
    ) -> dict[str, Any]:
        asked = request(config or self._config, messages or (user_message("hi"),), tools)
        return dict(json.loads(self._encode(asked, provider="p", **self._options | options)))


def answer(*blocks: Any, replay: tuple[Any, ...] | None = None, **source: str) -> AssistantMessage:
    return AssistantMessage(content=blocks, replay=replay, source=FrozenDict(source))


def result(id: str, *blocks: TextBlock | ImageBlock, is_error: bool = False) -> UserMessage:
    return UserMessage(content=(ToolResultBlock(tool_call_id=id, content=blocks, is_error=is_error),))
