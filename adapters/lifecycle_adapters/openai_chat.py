"""The Chat Completions wire over HTTP: any server that speaks it, from a hosted one to llama.cpp on this machine.

async with OpenAIChat("http://127.0.0.1:8080", model="qwen3") as model:
    async with Agent(model, tools=[...]) as agent:
        ...
"""

from __future__ import annotations

from typing import Any, Unpack

from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.requests import Request

from .decoding import Decoder
from .http_failures import Site
from .http_model import HttpModel, Settings
from .openai_chunks import ChatDecoder
from .openai_messages import answer, encode


class OpenAIChat(HttpModel):
    """A model behind a server that speaks Chat Completions.

    Args:
        base_url: Where the API stands, with or without `/v1`, as the server documents it; `/chat/completions` is added.
        model: What is asked for where a configuration names no other.
        api_key: The key. Without one it is read from the variable `env`; a server that needs none gets none.
        max_tokens_field: `max_completion_tokens` for servers that refuse the older name.
        settings: See `Settings`.

    Raises:
        ModelError: if the base URL or the key cannot be used. The message shows neither.
    """

    wire = "openai-chat"
    default_base_url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    path = "/chat/completions"

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        *,
        max_tokens_field: str = "max_tokens",
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(base_url, model, api_key, **settings)
        self._max_tokens_field = max_tokens_field

    def _encode(self, request: Request) -> bytes:
        return encode(request, provider=self._provider, max_tokens_field=self._max_tokens_field)

    def _decoder(self, site: Site) -> Decoder:
        return ChatDecoder(site, empty_is_failure=self._empty_is_failure)

    def _sent_back(self, message: AssistantMessage) -> Any:
        return answer(message, self._provider, message.source.get("model"))
