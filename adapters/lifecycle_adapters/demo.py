"""The embedded demo provider: a real HTTP server on the loopback interface that speaks Chat Completions by a script.

    async with demo_provider() as base_url, OpenAIChat(base_url, DEMO_MODEL, env=None) as model:
        ...

It is there so that the rest of the path is the real one. What it answers is `demo_script.py`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from .demo_script import DEMO_MODEL, Answer, Overloaded, Script

__all__ = ["DEMO_MODEL", "demo_provider"]

_MOST_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024
_PIECE = re.compile(r"\s*\S{1,24}|\s+")
"""A delta of a text: about a word."""
_WAIT_MS = 30_000
"""What it asks to wait after a refusal, for each second of pace."""
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.ProtocolError)


@asynccontextmanager
async def demo_provider(*, pace_seconds: float = 0.0) -> AsyncGenerator[str]:
    """Serve the script within the block, which gets its base URL.

    Args:
        pace_seconds: The pause before each delta, so that a person can watch it arrive.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    script = Script()

    async def visit(stream: SocketStream) -> None:
        async with stream:
            with suppress(*_BROKEN):  # the client hung up, or spoke no HTTP: its own affair
                await _Connection(stream, script, pace_seconds).serve()

    failed: Exception | None = None
    async with listener, anyio.create_task_group() as visits:
        visits.start_soon(listener.serve, visit)
        try:
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
        except Exception as error:
            failed = error  # the block's own: it goes on as it is, in no group
        visits.cancel_scope.cancel()
    if failed is not None:
        raise failed


class _Connection:
    """One connection of a client, for as many requests as it likes."""

    def __init__(self, stream: SocketStream, script: Script, pace_seconds: float) -> None:
        self._stream = stream
        self._script = script
        self._pace_seconds = pace_seconds
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while True:
            request = await self._event()
            if not isinstance(request, h11.Request):
                return
            body = await self._body()
            if body is None:
                await self._refuse(413, f"the request is larger than {_MOST_BYTES} bytes", "request_too_large")
                return
            await self._answer(request.method, request.target.partition(b"?")[0].decode("ascii", "replace"), body)
            if self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                read = await self._stream.receive(_READ_BYTES)
            except anyio.EndOfStream:
                read = b""
            self._http.receive_data(read)

    async def _body(self) -> bytes | None:
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                return None
        return bytes(body)

    async def _send(self, *events: h11.Event) -> None:
        sent = b"".join(self._http.send(event) or b"" for event in events)
        await self._stream.send(sent)

    async def _whole(self, status: int, body: dict[str, Any], **more: str) -> None:
        content = json.dumps(body).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        headers += [(name.replace("_", "-"), value) for name, value in more.items()]
        await self._send(h11.Response(status_code=status, headers=headers), h11.Data(data=content), h11.EndOfMessage())

    async def _refuse(self, status: int, message: str, type: str, **headers: str) -> None:
        await self._whole(status, {"error": {"message": message, "type": type, "code": None}}, **headers)

    async def _answer(self, method: bytes, path: str, body: bytes) -> None:
        if method == b"GET" and path.endswith("/models"):
            await self._whole(200, {"object": "list", "data": [{"id": DEMO_MODEL, "object": "model"}]})
        elif method == b"POST" and path.endswith("/chat/completions"):
            await self._complete(body)
        else:
            await self._refuse(404, "the demo provider serves POST /chat/completions and GET /models", "not_found")

    async def _complete(self, body: bytes) -> None:
        try:
            asked: Any = json.loads(body)
            if not isinstance(asked, dict):
                raise ValueError("the body must be an object")
            request = cast("dict[str, Any]", asked)
            if request.get("model") != DEMO_MODEL:
                message = f"the demo provider serves one model, {DEMO_MODEL}"
                await self._whole(404, {"error": {"message": message, "code": "model_not_found"}})
                return
            reply = self._script.reply(request)
        except (ValueError, RecursionError) as wrong:
            await self._refuse(400, f"the request cannot be read: {wrong}", "invalid_request_error")
            return
        if isinstance(reply, Overloaded):
            why = "the script fails this attempt on purpose, to show a retry"
            wait = str(max(1, round(self._pace_seconds * _WAIT_MS)))
            await self._refuse(503, why, "overloaded_error", retry_after_ms=wait)
            return
        usage = _usage(len(body), reply)
        if request.get("stream"):
            options: object = request.get("stream_options")
            wanted = isinstance(options, dict) and cast("dict[str, object]", options).get("include_usage")
            await self._stream_out(reply, usage if wanted else None)
        else:
            await self._whole(
                200, _envelope(choices=[_choice(message=_message(reply), finish=_finish(reply))], usage=usage)
            )

    async def _stream_out(self, reply: Answer, usage: dict[str, int] | None) -> None:
        headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]
        await self._send(h11.Response(status_code=200, headers=headers))
        for delta in _deltas(reply):
            if self._pace_seconds > 0:
                await anyio.sleep(self._pace_seconds)
            await self._say(_envelope(choices=[_choice(delta=delta)]))
        await self._say(_envelope(choices=[_choice(delta={}, finish=_finish(reply))]))
        if usage is not None:
            await self._say(_envelope(choices=[], usage=usage))
        await self._send(h11.Data(data=b"data: [DONE]\n\n"), h11.EndOfMessage())

    async def _say(self, chunk: dict[str, Any]) -> None:
        await self._send(h11.Data(data=b"data: " + json.dumps(chunk).encode() + b"\n\n"))


def _envelope(**fields: Any) -> dict[str, Any]:
    return {"id": "demo", "object": "chat.completion.chunk", "created": 0, "model": DEMO_MODEL, **fields}


def _choice(*, finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"index": 0, **said, "finish_reason": finish}


def _finish(reply: Answer) -> str:
    return "tool_calls" if reply.calls else "stop"


def _message(reply: Answer) -> dict[str, Any]:
    calls = [_call(n, call.id, call.name, call.arguments) for n, call in enumerate(reply.calls)]
    return {"role": "assistant", "content": reply.text} | ({"tool_calls": calls} if calls else {})


def _deltas(reply: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _PIECE.findall(reply.text):
        yield {"content": piece}
    for n, call in enumerate(reply.calls):
        yield {"tool_calls": [_call(n, call.id, call.name, "")]}
        for piece in _PIECE.findall(call.arguments):
            yield {"tool_calls": [{"index": n, "function": {"arguments": piece}}]}


def _call(index: int, id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _usage(request_bytes: int, reply: Answer) -> dict[str, int]:
    """An estimate, as a script has no tokens: four bytes each."""
    said = len(reply.text) + sum(len(call.name) + len(call.arguments) for call in reply.calls)
    prompt, completion = -(-request_bytes // 4), -(-said // 4)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
