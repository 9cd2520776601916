"""Responses kept as files, and files heard again as responses. Keys are struck out before anything is written."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import h11
import httpx

from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.requests import CallConfig, Request

from .secret import Secret

if TYPE_CHECKING:
    from .http_model import HttpModel

log = logging.getLogger("lifecycle")

_LEFT_OUT = frozenset({"connection", "content-encoding", "content-length", "set-cookie", "transfer-encoding"})
"""Headers that are not kept: a cookie is a key, and the others describe a framing that the file does not have."""

_LATER_VERSION = re.compile(rb"\AHTTP/[23](?:\.0)? ")
"""How curl writes a head that came over HTTP/2 or 3; the rest is the same."""

_HEAD = re.compile(rb"HTTP/.*?\r?\n\r?\n", re.DOTALL)
_CHUNKED = re.compile(rb"(?<=\n)transfer-encoding:[ \t]*chunked[ \t]*\r?\n", re.IGNORECASE)
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,16}[ \t]*(?:;[^\r\n]*)?\r?\n|\Z")
"""How a body in chunks begins; an empty one was cut before that."""

RECORDED_HOST = "http://recorded"
"""The host that messages name when a file is heard."""


class Recorder:
    """Writes each response of an adapter to a file of its own, `<wire>-001.http` and so on.

    Raises:
        OSError: if the folder cannot be made.
    """

    def __init__(self, folder: Path, wire: str, secrets: Iterable[Secret]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._wire = folder, wire
        self._secrets = tuple(secret.reveal().encode() for secret in secrets if secret.reveal())

    def begin(self, status: int, headers: Mapping[str, str]) -> Recording:
        """A new file that holds the head of a response."""
        file = self._new_file()
        recording = Recording(file, self._secrets)
        lines = [f"HTTP/1.1 {status} {httpx.codes.get_reason_phrase(status)}".rstrip(), "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in _LEFT_OUT]
        recording.add("\r\n".join([*lines, "", ""]).encode("utf-8", "replace"))
        return recording

    def _new_file(self) -> BinaryIO | None:
        for number in count(1):
            try:
                return (self._folder / f"{self._wire}-{number:03}.http").open("xb")
            except FileExistsError:
                continue
            except OSError as wrong:
                log.warning("a response is not recorded: %s", wrong)
                break
        return None


class Recording:
    """One response while it is written. A disk that is full ends the recording, never the answer."""

    def __init__(self, file: BinaryIO | None, secrets: tuple[bytes, ...]) -> None:
        self._file = file
        self._secrets = secrets
        self._overlap = max(map(len, secrets), default=1) - 1
        self._held = b""

    def add(self, piece: bytes) -> None:
        """Write a piece; a key that two pieces share between them is struck out, too."""
        held = self._struck(self._held + piece)
        cut = max(0, len(held) - self._overlap)
        self._held = held[cut:]
        self._write(held[:cut])

    def close(self) -> None:
        self._write(self._held)
        file, self._file, self._held = self._file, None, b""
        if file is not None:
            with suppress(OSError):
                file.close()

    def _struck(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, b"[key]")
        return text

    def _write(self, text: bytes) -> None:
        if self._file is None or not text:
            return
        try:
            self._file.write(text)
        except OSError as wrong:
            log.warning("a response is not recorded any further: %s", wrong)
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()


class _Body(httpx.AsyncByteStream):
    """The recorded body; `cut` says that it ended before its own framing did."""

    def __init__(self, pieces: list[bytes], cut: str | None = None) -> None:
        self._pieces, self._cut = pieces, cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._cut is not None:
            raise httpx.RemoteProtocolError(self._cut)


def response_of(content: bytes) -> httpx.Response:
    """The response that a file of head and body holds, as far as it goes.

    Raises:
        ValueError: if it does not begin as an HTTP response does.
    """
    content = _unframed(content)
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("Host", "recorded")]))
    parser.send(h11.EndOfMessage())
    head: h11.Response | None = None
    pieces: list[bytes] = []
    cut: str | None = None
    try:
        parser.receive_data(_LATER_VERSION.sub(b"HTTP/1.1 ", content, count=1))
        parser.receive_data(b"")
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.RemoteProtocolError as wrong:
        cut = str(wrong)
    if head is None:
        raise ValueError(cut or "it holds no response")
    return httpx.Response(head.status_code, headers=list(head.headers.raw_items()), stream=_Body(pieces, cut))


def _unframed(content: bytes) -> bytes:
    """The response as curl -i writes it: its head names chunks that its body does not have any more."""
    head = _HEAD.match(content)
    if head is None or _CHUNK.match(content, head.end()):
        return content
    return _CHUNKED.sub(b"", head[0]) + content[head.end() :]


def stream_of(body: bytes) -> httpx.Response:
    """The response that a body of events was taken from, as far as that can be known."""
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=_Body([body]))


class Replayed(httpx.AsyncBaseTransport):
    """Answers any request with one response."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._response


async def chunks_of(model: HttpModel) -> list[Chunk]:
    """The answer to a request that asks for nothing in particular."""
    signal = CancelSignal()
    prepared = model.prepare(CallConfig(provider=model.provider, model=model.model), signal)
    request = Request(messages=(user_message("hi"),), tools=(), config=prepared.config, turn=1, step=1, attempt=1)
    stream: Any = prepared.open(request, signal)
    async with aclosing(stream):
        return [chunk async for chunk in stream]
