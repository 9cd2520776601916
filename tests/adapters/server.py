"""A server on the loopback interface whose answers are written byte by byte in the test that needs them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import Any

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

OK_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
"""The head of a stream that ends when the connection does."""


@dataclass
class Visit:
    """One request, and the connection to answer it on."""

    stream: SocketStream
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.stream.send(piece)

    async def gone(self) -> None:
        """Wait until the client has closed its connection."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    def reset(self) -> None:
        """Let the close that follows be a reset."""
        self.stream.extra(SocketAttribute.raw_socket).setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))


Answer = Callable[[Visit], Awaitable[None]]


@dataclass
class Server:
    base_url: str
    visits: list[Visit] = field(default_factory=lambda: [])
    connections: int = 0


@asynccontextmanager
async def serving(answer: Answer) -> AsyncGenerator[Server]:
    """Serve `answer`, which is called for each request and may send what it likes; then the connection is closed,
    unless the answer was sent whole with a length, as `reply` does."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = Server(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1")

    async def handle(stream: SocketStream) -> None:
        server.connections += 1
        async with stream:
            try:
                while (visit := await _request(stream)) is not None:
                    server.visits.append(visit)
                    await answer(visit)
                    if not visit.headers.get("kept"):
                        return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError):
                pass  # the client hung up while it was being answered, or spoke no HTTP

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        yield server
        group.cancel_scope.cancel()


async def _request(stream: SocketStream) -> Visit | None:
    parser = h11.Connection(h11.SERVER)
    path, headers, body = "", dict[str, str](), bytearray()
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            try:
                parser.receive_data(await stream.receive())
            except anyio.EndOfStream:
                return None
        elif isinstance(event, h11.Request):
            path = event.target.decode()
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Visit(stream, path, headers, bytes(body))
        else:
            return None


def reply(
    status: str, body: bytes | dict[str, Any] = b"", content_type: str = "application/json", **headers: str
) -> Answer:
    """One whole response, the same for each request; the connection is kept."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def answer(visit: Visit) -> None:
        visit.headers["kept"] = "yes"
        await visit.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    return answer


def raw(*pieces: bytes, reset: bool = False) -> Answer:
    """These bytes, each in a write of its own, then the end of the connection."""

    async def answer(visit: Visit) -> None:
        await visit.send(*pieces)
        if reset:
            visit.reset()

    return answer


def delta(text: str | None = None, *, finish: str | None = None, **more: Any) -> bytes:
    """One event of the stream."""
    said = ({} if text is None else {"content": text}) | more
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}
    return event(chunk)


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


DONE = b"data: [DONE]\n\n"


def stream(*events: bytes) -> Answer:
    """A stream of these events, complete with the mark that ends it."""
    return raw(OK_STREAM, *events, DONE)
