"""A server of Chat Completions in threads of the test's process, for commands in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, TypeAlias

from lifecycle.vocabulary.values import EMPTY

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Generator[str]:
    """Serve `answer` within the block, which gets the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def one_by_one(*answers: Answer) -> Answer:
    """The first request gets the first answer, and so on."""
    waiting = iter(answers)
    return lambda request: next(waiting)(request)


def refusing(status: int, headers: Mapping[str, str] = EMPTY, **error: object) -> Answer:
    """Each request is refused."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = json.dumps({"error": error}).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def streaming(pieces: Iterable[str | Event]) -> Answer:
    """Each request is answered with these pieces of text; an event holds the rest back until it is set."""
    script = tuple(pieces)

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        try:
            for piece in script:
                if isinstance(piece, Event):
                    piece.wait(60)
                else:
                    _say(request, {"content": piece})
            _say(request, {}, "stop")
            request.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the turn was cancelled

    return answer


def breaking_off(piece: str) -> Answer:
    """Each request gets this piece of text, and then the connection is closed."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Content-Length", "100000")
        request.end_headers()
        _say(request, {"content": piece})
        request.close_connection = True

    return answer


def _say(request: BaseHTTPRequestHandler, delta: dict[str, str], finish: str | None = None) -> None:
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    request.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
