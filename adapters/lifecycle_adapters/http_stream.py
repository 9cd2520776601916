"""One streamed HTTP exchange with a provider: bounded, timed phase by phase, closed on every way out.

Shared by all wires: a wire says what to send and understands what comes back; connections, limits, redirects,
compression and refusals are dealt with here. Nothing here holds a cancel scope across a yield.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import httpx

from lifecycle.errors import ModelError
from lifecycle.vocabulary.failures import Failure

from . import http_failures
from .http_bodies import Body, BombError, Inflater
from .http_clients import Connections
from .http_failures import Site
from .recording import Recorder
from .sse import MAX_EVENT_BYTES, EventDecoder, EventTooLargeError, ServerEvent

_EXCERPT_BYTES = 64 * 1024
_EXCERPT_SECONDS = 5.0
_TAIL_SECONDS = 0.25
_CONNECT_SECONDS = 10.0

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""How much one answer may hold in all. The longest of today's models fill a tenth of it."""


_LIKE_EVENTS = re.compile(rb"^\xef?\xbb?\xbf?(?::|(?:data|event|id|retry|error)(?::|\r|\n|$))", re.MULTILINE)
_SHORTEST_BODY = 6
"""Less than this may be the beginning of anything."""


class AnswerTooLargeError(ValueError):
    """An answer never ends."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is larger than {limit} bytes")


_TOO_MUCH = (EventTooLargeError, AnswerTooLargeError, BombError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase of a request may take, in seconds; None is no limit.

    Args:
        connect_seconds: Until the connection stands, TLS included.
        pool_seconds: Until a connection is free, where a client is shared.
        write_seconds: For each piece of the request to leave.
        first_byte_seconds: From the whole request to the head of the response. Models may think for minutes first.
        read_seconds: Silence in the middle of the answer; keep-alive comments end it.
        progress_seconds: The same without keep-alives: for a server that is alive but whose model is dead.
    """

    connect_seconds: float | None = _CONNECT_SECONDS
    pool_seconds: float | None = 60.0
    write_seconds: float | None = 60.0
    first_byte_seconds: float | None = 600.0
    read_seconds: float | None = 300.0
    progress_seconds: float | None = 600.0

    @classmethod
    def of(cls, seconds: float) -> Timeouts:
        """For a server that may be silent for so many seconds, before its answer and in it."""
        return cls(
            min(seconds, _CONNECT_SECONDS), first_byte_seconds=seconds, read_seconds=seconds, progress_seconds=seconds
        )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is ready to be sent."""

    url: httpx.URL
    body: bytes
    headers: Mapping[str, str]
    site: Site
    timeouts: Timeouts
    max_event_bytes: int = MAX_EVENT_BYTES
    recorder: Recorder | None = None


class Exchange:
    """A response that began well. `read` gives its events as they come; what goes wrong is a ModelError."""

    def __init__(self, sent: Outgoing, response: httpx.Response) -> None:
        self._sent = sent
        self._response = response
        self._reads = response.aiter_raw()  # not the decoding kind: that one would inflate a bomb in one go
        self._waiting: Iterator[bytes] = iter(())
        self._inflater = Inflater(response.headers.get("content-encoding", ""))
        self._events = EventDecoder(sent.max_event_bytes)
        self._before = bytearray()
        self._heard = False
        self._moved = anyio.current_time()
        self._room = MAX_ANSWER_BYTES
        self._tape = None if sent.recorder is None else sent.recorder.begin(response.status_code, response.headers)
        self.ended = False

    @property
    def content_type(self) -> str:
        """Type and subtype, in lower case; empty if the server named none."""
        named: str = self._response.headers.get("content-type", "")
        return named.partition(";")[0].strip().lower()

    @property
    def is_page(self) -> bool:
        """Whether it is a web page, which no provider answers with."""
        return self.content_type in ("text/html", "application/xhtml+xml")

    @property
    def is_document(self) -> bool:
        """Whether it is one JSON document rather than a stream."""
        return self.content_type == "application/json" or self.content_type.endswith("+json")

    @property
    def decodable(self) -> bool:
        """Whether the compression of the body, if there is one, can be undone."""
        return self._inflater.known

    async def read(self) -> list[ServerEvent]:
        """The events of the next piece, perhaps none; `ended` tells that the body is over.

        Raises:
            ModelError: for a broken connection, a silence beyond its limit, an event beyond the limit.
        """
        try:
            piece = await self._piece()
            events = self._events.end() if piece is None else self._events.feed(piece)
        except (httpx.HTTPError, zlib.error, *_TOO_MUCH) as error:
            raise ModelError(self._failure(error)) from None
        self.ended = piece is None
        if piece is not None and not self._heard and len(self._before) < self._sent.max_event_bytes:
            self._before += piece
        if events and not self._heard:
            self._heard = True
            self._before.clear()
        return events

    async def _piece(self) -> bytes | None:
        """The next piece of the body, of bounded size, as it was before it was compressed; None at the end."""
        piece = next(self._waiting, None)
        if piece is not None:
            await anyio.lowlevel.checkpoint()  # one read may hold a thousand pieces, and others have work, too
            return piece
        async for read in self._reads:
            self._waiting = self._pieces(read)
            piece = next(self._waiting, None)
            if piece is not None:
                return piece
        return None

    @property
    def mislabelled(self) -> bytes:
        """The body of a stream that ended without a single event, if it looks like something else; otherwise empty."""
        body = b"" if self._heard else bytes(self._before)
        return b"" if _LIKE_EVENTS.search(body) or len(body.strip()) < _SHORTEST_BODY else body

    async def document(self) -> bytes:
        """The whole body, of a server that does not stream.

        Raises:
            ModelError: as `read`.
        """
        body = bytearray()
        try:
            while (piece := await self._piece()) is not None:
                self.watch(False)
                body += piece
                if len(body) > self._sent.max_event_bytes:
                    raise EventTooLargeError(self._sent.max_event_bytes)
        except (httpx.HTTPError, zlib.error, *_TOO_MUCH) as error:
            raise ModelError(self._failure(error)) from None
        self.ended = True
        return bytes(body)

    async def excerpt(self) -> bytes:
        """The beginning of a body that explains a refusal, bounded in size and time; empty if it cannot be read."""
        body = bytearray()
        with anyio.move_on_after(_EXCERPT_SECONDS):
            try:
                while len(body) < _EXCERPT_BYTES and (piece := await self._piece()) is not None:
                    body += piece
            except (httpx.HTTPError, zlib.error):
                pass  # the status alone says enough
        return bytes(body[:_EXCERPT_BYTES])

    async def settle(self) -> None:
        """Read what follows the terminal mark, normally nothing, so that the connection can serve the next request."""
        with anyio.move_on_after(_TAIL_SECONDS):
            try:
                async for _ in self._reads:
                    pass
            except httpx.HTTPError:
                pass  # the answer is complete; how its connection ends concerns nobody

    async def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        # A read that is cancelled where it first waits, and only then a close: otherwise the generators that httpx
        # nests would stay suspended, and be finalised whenever they are collected, with a warning under trio.
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                async for _ in self._reads:
                    pass
            except httpx.HTTPError:
                pass
        await self._response.aclose()
        if self._tape is not None:
            self._tape.close()

    def watch(self, moved: bool) -> None:
        """Note whether what was read brought the answer forward. Called after each read.

        Raises:
            ModelError: if nothing has for too long, however much was read.
        """
        limit, now = self._sent.timeouts.progress_seconds, anyio.current_time()
        if moved:
            self._moved = now
        elif limit is not None and now - self._moved > limit:
            phase = f"after {limit} seconds of keep-alives without progress; raise progress_seconds (--patience)"
            raise ModelError(http_failures.timed_out(self._sent.site, phase))

    def _pieces(self, read: bytes) -> Iterator[bytes]:
        for piece in self._inflater.pieces(read):
            self._room -= len(piece)
            if self._room < 0:
                raise AnswerTooLargeError(MAX_ANSWER_BYTES)
            if self._tape is not None:
                self._tape.add(piece)
            yield piece

    def _failure(self, error: Exception) -> Failure:
        site = self._sent.site
        if isinstance(error, _TOO_MUCH):
            raised = "; raise max_event_bytes if that is right" if isinstance(error, EventTooLargeError) else ""
            return http_failures.protocol(f"{site.name} sent too much: {error}{raised}", retryable=False)
        if isinstance(error, zlib.error):
            return http_failures.protocol(
                f"{site.name} sent a body that does not decompress; try again", retryable=True
            )
        seconds = self._sent.timeouts.read_seconds
        return http_failures.of_exception(
            site,
            error,
            f"after {seconds} seconds of silence in the middle of the answer; raise read_seconds (--patience)",
        )


@asynccontextmanager
async def exchange(connections: Connections, sent: Outgoing) -> AsyncGenerator[Exchange]:
    """Send the request; the block gets a response that can be an answer.

    Raises:
        ModelError: if nothing, or a refusal, came back. Also raised by the exchange within the block.
    """
    async with connections.client() as client:
        response = await _send(client, sent)
        opened = Exchange(sent, response)
        try:
            await _refuse(opened, response, sent.site)
            yield opened
        finally:
            with anyio.CancelScope(shield=True):
                await opened.close()


async def _send(client: httpx.AsyncClient, sent: Outgoing) -> httpx.Response:
    limits = sent.timeouts
    phases = {
        "connect": limits.connect_seconds,
        "read": limits.first_byte_seconds,
        "write": limits.write_seconds,
        "pool": limits.pool_seconds,
    }
    late = f"after {limits.first_byte_seconds} seconds without any answer; raise first_byte_seconds (--patience)"
    response: httpx.Response | None = None
    # The limits of httpx begin anew with each byte; the head of a response may not take longer in all either.
    with anyio.CancelScope() as patience:

        def sent_whole() -> None:
            if limits.first_byte_seconds is not None:
                patience.deadline = anyio.current_time() + limits.first_byte_seconds

        try:
            request = client.build_request(
                "POST", sent.url, content=sent.body, headers=sent.headers, extensions={"timeout": phases}
            )
            request.stream = Body(sent.body, sent_whole)
            response = await client.send(request, stream=True, follow_redirects=False)
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            gone = isinstance(error, httpx.ReadError) or "disconnected" in str(error)
            raise ModelError(http_failures.hung_up(sent.site) if gone else http_failures.no_http(sent.site)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ModelError(http_failures.of_exception(sent.site, error, late)) from None
    if response is None:
        raise ModelError(http_failures.timed_out(sent.site, late))
    phases["read"] = limits.read_seconds  # the body's reads take the limit that stands here when they begin
    return response


async def _refuse(opened: Exchange, response: httpx.Response, site: Site) -> None:
    """Raise ModelError if the response cannot be an answer."""
    status, headers = response.status_code, response.headers
    if 300 <= status < 400:
        raise ModelError(http_failures.of_redirect(site, status, headers.get("location", "")))
    if status >= 400:
        raw = await opened.excerpt() if opened.decodable else b""
        body = "" if opened.is_page else _said(raw)
        raise ModelError(http_failures.of_response(site, status, headers, body))
    if not opened.decodable:
        encoding = site.quote(headers["content-encoding"])
        raise ModelError(
            http_failures.protocol(f"{site.name} compressed the answer with {encoding}, unasked", retryable=False)
        )
    if opened.is_page:
        excerpt = site.quote((await opened.excerpt()).decode("utf-8", "replace"))[:120]
        raise ModelError(
            http_failures.protocol(
                f"{site.name} answered with {opened.content_type} instead of a stream (is the base URL right, or does "
                f"a login page stand in between?): {excerpt}",
                status=status,
                retryable=False,
            )
        )


def _said(raw: bytes) -> object:
    """What a refusal says: JSON, JSON in an event of a stream, or words."""
    try:
        events = EventDecoder(len(raw))
        said = [*events.feed(raw), *events.end()]
    except EventTooLargeError:
        said = []
    texts: list[bytes | str] = [raw, *(event.data for event in said)]
    for text in texts:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return raw.decode("utf-8", "replace")
