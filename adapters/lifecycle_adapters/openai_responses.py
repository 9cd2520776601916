"""The Responses wire over HTTP: OpenAI's API and servers that speak it.

async with OpenAIResponses(model="gpt-5") as model:
    async with Agent(model, tools=[...]) as agent:
        ...
"""

from __future__ import annotations

from typing import Any

from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.requests import Request

from .decoding import Decoder
from .http_failures import Site
from .http_model import HttpModel
from .responses_events import ResponsesDecoder
from .responses_request import encode, items_of


class OpenAIResponses(HttpModel):
    """A model behind a server that speaks the Responses API. `/responses` is added to its base URL.

    The provider stores nothing: each request holds the conversation, and reasoning goes back encrypted, as it came. It
    is asked for where an effort is set, because models that do not reason refuse to be asked. For one that reasons by
    itself, ask with `AgentOptions(request_options={"include": ["reasoning.encrypted_content"]})`.
    """

    wire = "openai-responses"
    default_base_url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    path = "/responses"

    def _encode(self, request: Request) -> bytes:
        return encode(request, provider=self._provider)

    def _decoder(self, site: Site) -> Decoder:
        return ResponsesDecoder(site, empty_is_failure=self._empty_is_failure)

    def _sent_back(self, message: AssistantMessage) -> Any:
        return items_of(message, self._provider, message.source.get("model"))
