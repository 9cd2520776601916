"""A model behind an HTTP API, whatever its wire: settings, key and headers, and one streamed exchange a request.

A wire derives from `HttpModel` and says where its API stands, how it takes a key, how it spells a request, and who
understands the answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypedDict, Unpack
from urllib.parse import quote, urlsplit

import anyio
import httpx

from lifecycle.errors import ModelError
from lifecycle.services.model import PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.assembly import Assembler
from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.messages import AssistantMessage
from lifecycle.vocabulary.requests import CallConfig, Request, SystemUpdate
from lifecycle.vocabulary.values import EMPTY, FrozenDict, freeze_object

from .decoding import Decoder
from .http_clients import Connections
from .http_failures import Site
from .http_stream import Exchange, Outgoing, Timeouts, exchange
from .probing import Probe, probe
from .recording import RECORDED_HOST, Recorder, Replayed, chunks_of, response_of, stream_of
from .secret import Secret
from .sse import MAX_EVENT_BYTES, EventDecoder, ServerEvent

_TELLING_NAMES = ("auth", "key", "token", "secret", "cookie", "password", "signature")
"""Headers and parameters of the base URL with such a word in their name hold secrets."""

_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")

AFTER_ANSWER_SECONDS = 5.0
"""How long the usage, or the mark that nothing follows, may take once the answer is complete."""


class Settings(TypedDict, total=False):
    """What every wire can be told besides where it stands, the model and the key.

    Args:
        provider: The name under which it is chosen and logged; the wire's own unless given.
        env: The variable that holds the key; None reads nothing from the environment.
        headers: Sent with each request, beside ours. Those that look like keys are kept out of messages, too.
        effort, max_tokens, temperature, options: What a configuration that leaves them open is filled with; recorded
            in the request's header. `options` are fields of the wire, and `prefill`: how the answer is to begin.
        timeouts: How long each phase may take; or, in seconds, how long the server may be silent in any of them.
        max_event_bytes: How large one event of the stream, or a whole answer that is not streamed, may grow.
        client: A client to share: its proxies, certificates and limits hold, and it stays open.
        context_window: How many tokens fit, if known.
        system_update: How the server takes a changed prompt section.
        empty_is_failure: Whether an answer without any content is the failure EMPTY_RESPONSE.
        retry_policy: Handed to `agent/request-error` listeners as it is.
        record: A folder that gets each response as a file, without keys, for `lifecycle decode`.
    """

    provider: str
    env: str | None
    headers: Mapping[str, str] | None
    effort: str | None
    max_tokens: int | None
    temperature: float | None
    options: Mapping[str, object] | None
    timeouts: Timeouts | float | None
    max_event_bytes: int
    client: httpx.AsyncClient | None
    context_window: int | None
    system_update: SystemUpdate
    empty_is_failure: bool
    retry_policy: Any
    record: Path | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a recorded response amounts to: its chunks, and what a wire sends back of the message they make."""

    chunks: list[Chunk]
    sent_back: Any = None


class HttpModel:
    """The part of an adapter that no wire needs to know of.

    Entered as a context manager it keeps connections between requests; without that, and without a `client`, each
    request makes its own and closes it. One adapter may serve many agents, under one event loop at a time.
    """

    wire: ClassVar[str]
    """The name of the wire, and of the provider unless it is given one."""
    default_base_url: ClassVar[str]
    key_variable: ClassVar[str]
    """The environment variable that holds the key unless another is named."""
    path: ClassVar[str]
    """Where requests go, below the base URL."""

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        """Raises ModelError if the base URL or the key cannot be used. The message shows neither."""
        self._provider, self._model = settings.get("provider", self.wire), model
        self._base = self.base(base_url if base_url is not None else self.default_base_url)
        self._env = settings.get("env", self.key_variable)
        self._key = _key(api_key, self._env)
        given = settings.get("headers") or {}
        self._headers = self._all_headers(given)
        self._secrets = tuple(_secrets(self._key, given, self._base))
        self._defaults: dict[str, Any] = {
            "model": model,
            "effort": settings.get("effort"),
            "max_tokens": settings.get("max_tokens"),
            "temperature": settings.get("temperature"),
        }
        options = settings.get("options")
        self._options = freeze_object(dict(options), "options") if options else EMPTY
        limits = settings.get("timeouts") or Timeouts()
        self._timeouts = limits if isinstance(limits, Timeouts) else Timeouts.of(limits)
        self._max_event_bytes = settings.get("max_event_bytes", MAX_EVENT_BYTES)
        self._connections = Connections(settings.get("client"))
        self._context_window = settings.get("context_window")
        self._system_update: SystemUpdate = settings.get("system_update", "rewrite")
        self._empty_is_failure = settings.get("empty_is_failure", True)
        self._retry_policy: Any = settings.get("retry_policy")
        folder = settings.get("record")
        self._recorder = None if folder is None else Recorder(folder, self.wire, self._secrets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._base)!r}, model={self._model!r}, provider={self._provider!r})"

    async def __aenter__(self) -> Self:
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

    # What a wire says.

    @classmethod
    def base(cls, base_url: str) -> httpx.URL:
        """The base of all paths, from what somebody wrote who may have copied too much."""
        base = parsed(base_url)
        return base.copy_with(path=without_endpoint(base.path))

    def _authorization(self, key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"Authorization": f"Bearer {key}"}

    def _encode(self, request: Request) -> bytes:
        """The body of the POST."""
        raise NotImplementedError

    def _decoder(self, site: Site) -> Decoder:
        """Who understands one answer."""
        raise NotImplementedError

    def _sent_back(self, message: AssistantMessage) -> Any:
        """What a later request says of this answer, as the wire spells it."""
        raise NotImplementedError

    # What they share.

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
            raise unusable(f"no model is chosen for {self._provider}; name one, such as model=...")
        return PreparedCall(
            config=config.model_copy(update=filled) if filled else config,
            open=self._open,
            defaults=tuple(sorted(filled)),
            context_window=self._context_window,
            system_update=self._system_update,
            retry_policy=self._retry_policy,
        )

    @classmethod
    async def decode(cls, content: bytes, *, raw: bool) -> Decoded:
        """What this wire makes of a recorded response: a body of events, or, if `raw`, head and body.

        Raises:
            ValueError: if `raw` and the content does not begin as an HTTP response does.
        """
        response = response_of(content) if raw else stream_of(content)
        async with httpx.AsyncClient(transport=Replayed(response)) as client:
            settings = Settings(client=client, env=None)
            model = cls(RECORDED_HOST, "recorded", None, **settings)
            chunks = await chunks_of(model)
        assembler = Assembler()
        for chunk in chunks:
            assembler.add(chunk)
        made = assembler.result()
        if made.finish.kind.failed:
            return Decoded(chunks)
        source = FrozenDict(provider=model.provider, model=model.model)
        message = AssistantMessage(content=made.blocks, source=source, replay=made.replay)
        return Decoded(chunks, model._sent_back(message))

    async def probe(self) -> Probe:
        """Whether the server speaks this wire, and what it serves. Costs no tokens."""
        return await probe(self._base, self.path, self._headers, self._site(None))

    async def _open(self, request: Request, signal: CancelSignal) -> AsyncGenerator[Chunk, None]:
        """The answer. Failures are its last chunk; only a cancel is raised."""
        site = self._site(request.config.model)
        decoder = self._decoder(site)
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
                    response.watch(decoder.moved)
                    decoder.moved = False
                if response.mislabelled and not decoder.over:
                    for chunk in decoder.document(response.mislabelled):
                        yield chunk
                if decoder.done:
                    await response.settle()
        except ModelError as error:
            broken = error.failure
        # Only now, with the connection given back, the end: whoever takes the last chunk seldom asks for another.
        for chunk in decoder.finish(broken):
            yield chunk

    def _site(self, model: str | None) -> Site:
        usual = re.search("/v[0-9]+$", self._base.path.rstrip("/"))
        advice = "" if usual else "; the base URLs of most servers end in /v1"
        return Site(
            name=f"{self._base.scheme}://{self._base.netloc.decode('ascii')}",
            model=model,
            not_found=f"GET {shown(self._base)}/models lists what it serves{advice}",
            key=self._key,
            key_variable=self._env,
            secrets=self._secrets,
        )

    def _outgoing(self, request: Request, site: Site) -> Outgoing:
        return Outgoing(
            url=self._base.copy_with(path=self._base.path.rstrip("/") + self.path),
            body=self._encode(request),
            headers=self._headers,
            site=site,
            timeouts=self._timeouts,
            max_event_bytes=self._max_event_bytes,
            recorder=self._recorder,
        )

    def _all_headers(self, given: Mapping[str, str]) -> httpx.Headers:
        for name, value in given.items():
            if not (name.isascii() and value.isascii() and value.isprintable()):
                raise unusable(f"the header {name!r} cannot be sent: it holds line breaks or letters beyond ASCII")
        headers = httpx.Headers({
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressed stream comes late, in lumps
            "Content-Type": "application/json",
            "User-Agent": "turn-lifecycle",
        })  # fmt: skip
        if self._key is not None:
            headers.update(self._authorization(self._key.reveal()))
        headers.update(given)
        return headers


async def _next(decoder: Decoder, response: Exchange) -> list[ServerEvent]:
    if not decoder.answered:
        return await response.read()
    with anyio.move_on_after(AFTER_ANSWER_SECONDS):
        return await response.read()
    response.ended = True  # a server that neither says that it is done nor hangs up
    return []


def _document(decoder: Decoder, body: bytes) -> Iterator[Chunk]:
    if not body.lstrip().startswith((b"data:", b"event:", b":")):
        yield from decoder.document(body)
        return
    events = EventDecoder(len(body))  # a stream that is labelled as a document
    for event in events.feed(body):
        yield from decoder.feed(event)
    for event in events.end():
        yield from decoder.unterminated(event)


def unusable(message: str) -> ModelError:
    """The error of an adapter that is told what it cannot do."""
    return ModelError(Failure(message=message, code=FailureCode.INVALID_REQUEST.value, retryable=False))


def without_endpoint(path: str) -> str:
    """The path of a base URL, of which somebody may have copied too much: that of a request, of whatever wire."""
    path = path.rstrip("/")
    return next((path.removesuffix(end) for end in _ENDPOINTS if path.endswith(end)), path).rstrip("/")


def parsed(base_url: str) -> httpx.URL:
    """The URL, without its fragment. Its errors do not repeat it: a key may have slipped in."""
    try:
        urlsplit(base_url.strip()).port  # noqa: B018  # for its error: it is stricter with brackets and ports
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, ValueError):
        raise unusable("the base URL is no URL; it looks like http://127.0.0.1:8080/v1") from None
    if "%" in url.host and ":" not in url.host:  # a blank, or something else that no host has
        raise unusable("the base URL is no URL; it looks like http://127.0.0.1:8080/v1")
    if url.scheme not in ("http", "https") or not url.host:
        raise unusable("the base URL must begin with http:// or https:// and name a host, as http://127.0.0.1:8080/v1")
    if url.userinfo:
        raise unusable("the base URL holds a user name or a password; pass a key as api_key, anything else in headers")
    return url.copy_with(fragment=None)


def shown(base: httpx.URL) -> str:
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
        raise unusable(f"the key in {key.origin} is no key: it holds blanks, line breaks or letters beyond ASCII")
    return key if key.reveal() else None


def _secrets(key: Secret | None, given: Mapping[str, str], base: httpx.URL) -> Iterator[Secret]:
    if key is not None:
        yield key
    for name, value in given.items():
        if value.strip() and _telling(name):
            yield Secret(value.split()[-1], f"the header {name}")  # without a scheme such as Bearer
    for name, value in base.params.multi_items():
        if value and _telling(name):
            for spelt in {value, quote(value, safe="")}:  # a server may echo it either way
                yield Secret(spelt, f"{name} in the base URL")


def _telling(name: str) -> bool:
    return any(word in name.lower() for word in _TELLING_NAMES)
