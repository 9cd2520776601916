"""The Chat Completions wire over HTTP: any server that speaks it, from a hosted one to llama.cpp on this machine.

async with OpenAIChat("http://127.0.0.1:8080", model="qwen3") as model:
    async with Agent(model, tools=[...]) as agent:
        ...
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx

from lifecycle.errors import ModelError
from lifecycle.services.model import PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.requests import CallConfig, Request, SystemUpdate
from lifecycle.vocabulary.values import EMPTY, FrozenDict, freeze_object

from .http_failures import Site
from .http_stream import Connections, Exchange, Outgoing, Timeouts, exchange
from .openai_chunks import ChatDecoder
from .openai_messages import encode
from .secret import Secret
from .sse import MAX_EVENT_BYTES, EventDecoder, ServerEvent

_PATH = "/chat/completions"
_TELLING_HEADERS = ("auth", "key", "token", "secret", "cookie")
"""Headers with such a word in their name hold secrets."""

_AFTER_ANSWER_SECONDS = 5.0
"""How long the usage, or the mark that nothing follows, may take once the answer is complete."""


class OpenAIChat:
    """A model behind a server that speaks Chat Completions.

    Entered as a context manager it keeps connections between requests; without that, and without a `client`, each
    request makes its own and closes it. One adapter may serve many agents, under one event loop at a time.

    Args:
        base_url: Where the API stands, with or without `/v1`, as the server documents it; `/chat/completions` is added.
        model: What is asked for where a configuration names no other.
        api_key: The key. Without one it is read from the variable `env`; a server that needs none gets none.
        provider: The name under which it is chosen and logged.
        env: The variable that holds the key; None reads nothing from the environment.
        headers: Sent with each request, beside ours. Those that look like keys are kept out of messages, too.
        effort, max_tokens, temperature, options: What a configuration that leaves them open is filled with; recorded
            in the request's header. `options` are fields of the wire, and `prefill`: how the answer is to begin.
        timeouts: How long each phase may take.
        max_event_bytes: How large one event of the stream, or a whole answer that is not streamed, may grow.
        client: A client to share: its proxies, certificates and limits hold, and it stays open.
        context_window: How many tokens fit, if known.
        system_update: How the server takes a changed prompt section.
        max_tokens_field: `max_completion_tokens` for servers that refuse the older name.
        empty_is_failure: Whether an answer without any content is the failure EMPTY_RESPONSE.
        retry_policy: Handed to `agent/request-error` listeners as it is.

    Raises:
        ModelError: if the base URL or the key cannot be used. The message shows neither.
    """

    def __init__(
        self,
        base_url: str = "https://api.openai.com/v1",
        model: str | None = None,
        api_key: str | None = None,
        *,
        provider: str = "openai-chat",
        env: str | None = "OPENAI_API_KEY",
        headers: Mapping[str, str] | None = None,
        effort: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        options: Mapping[str, object] | None = None,
        timeouts: Timeouts | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        client: httpx.AsyncClient | None = None,
        context_window: int | None = None,
        system_update: SystemUpdate = "rewrite",
        max_tokens_field: str = "max_tokens",
        empty_is_failure: bool = True,
        retry_policy: Any = None,
    ) -> None:
        self._provider, self._model = provider, model
        self._base = _base(base_url)
        self._key = _key(api_key, env)
        self._env = env
        self._headers = _headers(self._key, headers or {})
        self._secrets = tuple(_secrets(self._key, headers or {}))
        self._defaults: dict[str, Any] = {
            "model": model,
            "effort": effort,
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        self._options = freeze_object(dict(options), "options") if options else EMPTY
        self._timeouts = timeouts or Timeouts()
        self._max_event_bytes = max_event_bytes
        self._connections = Connections(client)
        self._context_window = context_window
        self._system_update: SystemUpdate = system_update
        self._max_tokens_field = max_tokens_field
        self._empty_is_failure = empty_is_failure
        self._retry_policy = retry_policy

    def __repr__(self) -> str:
        return f"OpenAIChat({_shown(self._base)!r}, model={self._model!r}, provider={self._provider!r})"

    async def __aenter__(self) -> OpenAIChat:
        self._connections.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that are kept; a client that was given stays open."""
        await self._connections.close()

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def model(self) -> str | None:
        return self._model

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall:
        """Fill in what the configuration leaves open. Asks nobody.

        Raises:
            ModelError: if no model is chosen at all.
        """
        filled: dict[str, Any] = {
            name: value for name, value in self._defaults.items() if value is not None and getattr(config, name) is None
        }
        missing = {name: value for name, value in self._options.items() if name not in config.options}
        if missing:
            filled["options"] = FrozenDict({**missing, **config.options})
        if config.model is None and "model" not in filled:
            raise _unusable(f"no model is chosen for {self._provider}; name one, such as model=...")
        return PreparedCall(
            config=config.model_copy(update=filled) if filled else config,
            open=self._open,
            defaults=tuple(sorted(filled)),
            context_window=self._context_window,
            system_update=self._system_update,
            retry_policy=self._retry_policy,
        )

    async def _open(self, request: Request, signal: CancelSignal) -> AsyncGenerator[Chunk, None]:
        """The answer. Failures are its last chunk; only a cancel is raised."""
        site = self._site(request.config.model)
        decoder = ChatDecoder(site, empty_is_failure=self._empty_is_failure)
        broken: Failure | None = None
        try:
            async with exchange(self._connections, self._outgoing(request, site)) as response:
                if response.is_document:
                    for chunk in _document(decoder, await response.document()):
                        yield chunk
                while not decoder.over and not response.ended:
                    for event in await _next(decoder, response):
                        for chunk in decoder.unterminated(event) if response.ended else decoder.feed(event):
                            yield chunk
                if decoder.done:
                    await response.settle()
        except ModelError as error:
            broken = error.failure
        # Only now, with the connection given back, the end: whoever takes the last chunk seldom asks for another.
        for chunk in decoder.finish(broken):
            yield chunk

    def _site(self, model: str | None) -> Site:
        advice = "" if "/v1" in self._base.path else "; most servers want /v1 at the end of the base URL"
        return Site(
            name=f"{self._base.scheme}://{self._base.netloc.decode('ascii')}",
            model=model,
            not_found=f"GET {_shown(self._base)}/models lists what it serves{advice}",
            key=self._key,
            key_variable=self._env,
            secrets=self._secrets,
        )

    def _outgoing(self, request: Request, site: Site) -> Outgoing:
        return Outgoing(
            url=self._base.copy_with(path=self._base.path.rstrip("/") + _PATH),
            body=encode(request, provider=self._provider, max_tokens_field=self._max_tokens_field),
            headers=self._headers,
            site=site,
            timeouts=self._timeouts,
            max_event_bytes=self._max_event_bytes,
        )


async def _next(decoder: ChatDecoder, response: Exchange) -> list[ServerEvent]:
    if not decoder.answered:
        return await response.read()
    with anyio.move_on_after(_AFTER_ANSWER_SECONDS):
        return await response.read()
    response.ended = True  # a server that neither says that it is done nor hangs up
    return []


def _document(decoder: ChatDecoder, body: bytes) -> Iterator[Chunk]:
    if not body.lstrip().startswith((b"data:", b"event:", b":")):
        yield from decoder.document(body)
        return
    events = EventDecoder(len(body))  # a stream that is labelled as a document
    for event in events.feed(body):
        yield from decoder.feed(event)
    for event in events.end():
        yield from decoder.unterminated(event)


def _unusable(message: str) -> ModelError:
    return ModelError(Failure(message=message, code=FailureCode.INVALID_REQUEST.value, retryable=False))


def _base(base_url: str) -> httpx.URL:
    """The base of all paths. Its errors do not repeat it: a key may have slipped in."""
    try:
        urlsplit(base_url.strip()).port  # noqa: B018  # for its error: it is stricter with brackets and ports
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, ValueError):
        raise _unusable("the base URL is no URL; it looks like http://127.0.0.1:8080/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise _unusable("the base URL must begin with http:// or https:// and name a host, as http://127.0.0.1:8080/v1")
    if url.userinfo:
        raise _unusable("the base URL holds a user name or a password; pass a key as api_key, anything else in headers")
    return url.copy_with(path=url.path.rstrip("/").removesuffix(_PATH).rstrip("/"), fragment=None)


def _shown(base: httpx.URL) -> str:
    """The base without its query, which may hold a key."""
    return str(base.copy_with(query=None)).rstrip("/")


def _key(given: str | None, env: str | None) -> Secret | None:
    if given is not None:
        key = Secret(given.strip(), "api_key")
    elif env is not None and os.environ.get(env, "").strip():
        key = Secret(os.environ[env].strip(), env)
    else:
        return None
    if not key.sendable:
        raise _unusable(f"the key in {key.origin} is no key: it holds blanks, line breaks or letters beyond ASCII")
    return key if key.reveal() else None


def _headers(key: Secret | None, given: Mapping[str, str]) -> httpx.Headers:
    for name, value in given.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise _unusable(f"the header {name!r} cannot be sent: it holds line breaks or letters beyond ASCII")
    headers = httpx.Headers({
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",  # a compressed stream comes late, in lumps
        "Content-Type": "application/json",
        "User-Agent": "turn-lifecycle",
    })  # fmt: skip
    if key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    headers.update(given)
    return headers


def _secrets(key: Secret | None, given: Mapping[str, str]) -> Iterator[Secret]:
    if key is not None:
        yield key
    for name, value in given.items():
        if value.strip() and any(word in name.lower() for word in _TELLING_HEADERS):
            yield Secret(value.split()[-1], f"the header {name}")  # without a scheme such as Bearer
