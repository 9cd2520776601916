"""Servers that do what they must not, over every wire: each ends in its class, within its limit, and tells no key."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener
from lifecycle_adapters.http_stream import Timeouts

from lifecycle.errors import ModelError
from tests.adapters.asking import Heard, ask
from tests.adapters.server import OK_STREAM, Answer, Visit, raw, reply, serving
from tests.adapters.streams import STREAMS, WIRES

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
PATHS = {"openai-chat": "/chat/completions", "openai-responses": "/responses", "anthropic-messages": "/messages"}
PAGE = reply("200 OK", b"<title>Sign in</title>", "text/html")
PACKED = OK_STREAM.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection")
QUICK = Timeouts(first_byte_seconds=0.2, read_seconds=0.2, progress_seconds=0.2)
wires = pytest.mark.parametrize("wire", WIRES)


async def asked(wire: str, answer: Answer, **options: Any) -> tuple[Heard, str]:
    with anyio.fail_after(10):
        async with serving(answer) as server:
            heard = await ask(WIRES[wire](server.base_url, "m", KEY, **options))
            return heard, server.base_url.removesuffix("/v1")


async def silent(visit: Visit) -> None:
    await visit.gone()


def dripping(*before: bytes) -> Callable[[Visit], Awaitable[None]]:
    """Byte by byte, for ever: never silent, and never done."""

    async def drip(visit: Visit) -> None:
        await visit.send(*before)
        while True:
            await visit.send(b"x")

    return drip


@wires
@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        (silent, "TIMEOUT", True),
        (dripping(b"HTTP/1.1 200 OK\r\nX-Slow: "), "TIMEOUT", True),
        (dripping(OK_STREAM, b"data: "), "TIMEOUT", True),
        (dripping(OK_STREAM.replace(b"text/event-stream", b"application/json")), "TIMEOUT", True),
        (PAGE, "PROTOCOL", False),
        (raw(OK_STREAM, b"data: " + b"x" * 3_000_000), "PROTOCOL", False),
        (raw(PACKED, gzip.compress(b"data: " + b"x" * 100_000_000, 1)), "PROTOCOL", False),
        (raw(PACKED, gzip.compress(b": hm\n" * 20_000_000, 1)), "PROTOCOL", False),
        (reply("302 Found", Location="http://elsewhere/v1"), "PROTOCOL", False),
        (raw(b"no HTTP at all\r\n\r\n"), "PROTOCOL", False),
        (raw(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000_000), "PROTOCOL", False),
        (raw(b"HTTP/1.1 200 OK\r\nX-Cut: "), "TRANSPORT", True),
        (raw(b""), "TRANSPORT", True),
        (reply("200 OK", b"[1, 2]"), "PROTOCOL", False),
        (reply("200 OK", {"surprise": True}), "PROTOCOL", False),
        (reply("200 OK", b"upstream connect error", "text/plain"), "PROTOCOL", False),
        (reply("200 OK", b"<title>Sign in</title>", "text/event-stream"), "PROTOCOL", False),
        (reply("200 OK", {"error": {"message": "busy", "code": 503}}, "text/event-stream"), "SERVER", True),
        (reply("200 OK", b": still thinking\n\n", "text/event-stream"), "TRANSPORT", True),
        (reply("400 Bad Request", b'data: {"error":{"type":"overloaded_error"}}\n\n'), "OVERLOADED", True),
        (reply("200 OK", b""), "TRANSPORT", True),
        (reply("502 Bad Gateway", b"<html>bad</html>", "text/html"), "SERVER", True),
    ],
    ids=[
        "silent", "slow head", "slow event", "slow document", "page", "long line", "bomb", "bomb of comments",
        "redirect",
        "no HTTP", "long head", "cut head", "nothing", "no object", "no answer", "words",
        "page as stream", "document as stream", "comments alone", "refusal as stream", "no document", "gateway",
    ],
)  # fmt: skip
async def test_what_a_server_must_not_do_ends_in_its_class(
    wire: str, answer: Answer, code: str, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lifecycle_adapters.http_stream.MAX_ANSWER_BYTES", 4_000_000)
    timeouts = QUICK if code == "TIMEOUT" else None  # a busy machine is slow with what is large
    heard, host = await asked(wire, answer, max_event_bytes=1_000_000, timeouts=timeouts)

    assert (heard.failure.code, heard.failure.retryable) == (code, retryable)
    assert host in heard.failure.message
    assert KEY not in heard.failure.model_dump_json()


@wires
async def test_no_redirect_is_followed_with_the_key(wire: str) -> None:
    async with serving(raw(OK_STREAM, b"".join(STREAMS[wire]))) as thief:
        heard, _ = await asked(wire, reply("307 Temporary Redirect", Location=thief.base_url))

    assert thief.visits == []
    assert "was not followed; if you trust it, make it the base URL" in heard.failure.message


@wires
async def test_the_key_travels_in_its_own_header_and_the_path_is_the_wires(wire: str) -> None:
    with anyio.fail_after(10):
        async with serving(raw(OK_STREAM, b"".join(STREAMS[wire]))) as server:
            base = server.base_url.removesuffix("/v1")
            given = base if wire == "anthropic-messages" else server.base_url
            for base_url in (given, *(server.base_url + path + end for path in PATHS.values() for end in ("", "/"))):
                await ask(WIRES[wire](base_url, "m", KEY))

    assert {visit.path for visit in server.visits} == {"/v1" + PATHS[wire]}
    header = "x-api-key" if wire == "anthropic-messages" else "authorization"
    assert all(visit.headers[header].endswith(KEY) for visit in server.visits)


@wires
@pytest.mark.parametrize(
    "given", ["example.com/v1", "ftp://h", "http://", "http://u:p@h", "http://[h", "http://a b/v1", ""]
)
async def test_a_base_url_that_cannot_be_one_is_refused(wire: str, given: str) -> None:
    with pytest.raises(ModelError, match="the base URL"):
        WIRES[wire](given, "m")


@wires
async def test_a_certificate_that_nobody_vouches_for_ends_in_its_class(wire: str) -> None:
    trustme: Any = pytest.importorskip("trustme")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    with anyio.fail_after(10):
        async with TLSListener(listener, context) as secure, anyio.create_task_group() as group:
            group.start_soon(secure.serve, _nothing)
            failure = (await ask(WIRES[wire](f"https://127.0.0.1:{port}/v1", "m", KEY))).failure
            group.cancel_scope.cancel()
            assert (failure.code, failure.retryable) == ("TRANSPORT", False)
            assert "its certificate was not accepted" in failure.message
            assert f"https://127.0.0.1:{port}" in failure.message


async def _nothing(stream: object) -> None:
    pass


@wires
async def test_pings_without_an_answer_have_a_limit_and_a_cancel_closes_the_connection(wire: str) -> None:
    closed = anyio.Event()

    async def pinging(visit: Visit) -> None:
        await visit.send(OK_STREAM, STREAMS[wire][0])
        try:
            while True:
                await visit.send(b'event: ping\ndata: {"type": "ping"}\n\n')
        finally:
            closed.set()

    with anyio.fail_after(10):
        heard, _ = await asked(wire, pinging, timeouts=QUICK)
        await closed.wait()

    assert heard.failure.code == "TIMEOUT"
    assert "progress_seconds" in heard.failure.message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HTTP_PROXY", "ftp://127.0.0.1:9", "the proxy of HTTP_PROXY is no URL of one"),
        ("HTTP_PROXY", f"http://user:{KEY}@:x", "the proxy of HTTP_PROXY is no URL of one"),
        ("all_proxy", "socks5://127.0.0.1:9", "the proxy of all_proxy wants an extra of httpx"),
        ("SSL_CERT_FILE", "/no/such/file", "the certificates of SSL_CERT_FILE cannot be read (No such file"),
        ("SSL_CERT_FILE", __file__, "the certificates of SSL_CERT_FILE cannot be read ("),
    ],
)
async def test_what_the_environment_names_and_cannot_be_used_is_told_by_its_variable(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_DIR"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    model = WIRES["openai-chat"]("http://model.example/v1", "m", KEY)
    heard = await ask(model)

    assert (heard.failure.code, heard.failure.retryable) == ("INVALID_REQUEST", False)
    assert words in heard.failure.message
    assert KEY not in heard.failure.message
    with pytest.raises(ModelError, match=name):
        await model.probe()
    with pytest.raises(ModelError, match=name):
        async with model:
            pass


async def test_a_proxy_that_wants_a_password_is_told_from_the_server_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with serving(reply("407 Proxy Authentication Required")) as proxy:
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", proxy.base_url.removesuffix("/v1"))
            heard = await ask(WIRES["openai-chat"](f"{scheme}://model.example/v1", "m", KEY))

            assert (heard.failure.code, heard.failure.retryable) == ("AUTH", False)
            assert f"the proxy on the way to {scheme}://model.example wants a name and a pass" in heard.failure.message


async def test_where_there_is_a_proxy_a_refused_connection_may_be_its(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    heard = await ask(WIRES["openai-chat"]("http://model.example/v1", "m", KEY))

    assert "connection refused; is the server running, and the proxy of http_proxy?" in heard.failure.message
