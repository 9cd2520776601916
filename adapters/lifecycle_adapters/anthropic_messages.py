"""The Messages wire over HTTP: Anthropic's API and servers that speak it.

async with AnthropicMessages(model="claude-sonnet-4-5") as model:
    async with Agent(model, tools=[...]) as agent:
        ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import httpx

from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.requests import Request

from .anthropic_events import MessagesDecoder
from .anthropic_request import content_of, encode
from .decoding import Decoder
from .http_failures import Site
from .http_model import HttpModel, Settings, parsed, without_endpoint

VERSION = "2023-06-01"
"""The version of the API that the requests name; another one goes in `headers`."""

DEFAULT_MAX_TOKENS = 8192
"""The API wants a ceiling in each request; this one unless told otherwise, which the log then says."""


class AnthropicMessages(HttpModel):
    """A model behind a server that speaks the Messages API.

    Args:
        base_url: Where the API stands, with or without `/v1`; `/v1/messages` is added.
        model: What is asked for where a configuration names no other.
        api_key: The key. Without one it is read from the variable `env`; a server that needs none gets none.
        cache: Whether the stable prefix of each request is marked for the provider's prompt cache.
        settings: See `Settings`. Thinking is an option: `options={"thinking": {"type": "adaptive"}}`.

    Raises:
        ModelError: if the base URL or the key cannot be used. The message shows neither.
    """

    wire = "anthropic-messages"
    default_base_url = "https://api.anthropic.com"
    key_variable = "ANTHROPIC_API_KEY"
    path = "/messages"

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        *,
        cache: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        if settings.get("max_tokens") is None:
            settings["max_tokens"] = DEFAULT_MAX_TOKENS
        super().__init__(base_url, model, api_key, **settings)
        self._cache = cache

    @classmethod
    def base(cls, base_url: str) -> httpx.URL:
        base = parsed(base_url)
        above = without_endpoint(base.path).removesuffix("/v1")
        return base.copy_with(path=f"{above}/v1")

    def _authorization(self, key: str) -> Mapping[str, str]:
        return {"x-api-key": key}

    def _all_headers(self, given: Mapping[str, str]) -> httpx.Headers:
        return httpx.Headers({**super()._all_headers({}), "anthropic-version": VERSION, **super()._all_headers(given)})

    def _encode(self, request: Request) -> bytes:
        return encode(request, provider=self._provider, cache=self._cache)

    def _decoder(self, site: Site) -> Decoder:
        return MessagesDecoder(site, empty_is_failure=self._empty_is_failure)

    def _sent_back(self, message: AssistantMessage) -> Any:
        return content_of(message, self._provider, message.source.get("model"))
