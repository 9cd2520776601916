"""The key is seen by the server that it is for, and by nobody else: no repr, log, error or cause of one shows it."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from lifecycle_adapters.http_stream import Timeouts
from lifecycle_adapters.openai_chat import OpenAIChat
from lifecycle_adapters.secret import Secret, strike_out

from lifecycle.errors import ModelError
from lifecycle.vocabulary.failures import render_chain
from tests.adapters.asking import ask, opened
from tests.adapters.server import OK_STREAM, Answer, delta, event, raw, reply, serving, stream

KEY = "sk-very-secret-0123456789"
TEAM_KEY = "team-secret-9876543210"
ECHO = {"error": {"message": f"bad key {KEY} of {TEAM_KEY}", "code": KEY, "request_id": KEY}}


class Broken(httpx.AsyncBaseTransport):
    """A transport that fails in its own words, which hold the key."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.LocalProtocolError(f"Illegal header value {request.headers['authorization']!r}", request=request)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        reply("401 Unauthorized", ECHO, X_Request_Id=KEY),
        reply("500 Internal Server Error", f"<p>{KEY}".encode(), "text/plain"),
        reply("200 OK", f"<p>{KEY}</p>".encode(), "text/html"),
        reply("200 OK", KEY.encode()),
        reply("307 Temporary Redirect", Location=f"http://elsewhere/{KEY}"),
        raw(OK_STREAM, delta("Half"), event(ECHO)),
        raw(OK_STREAM, f"data: {KEY}\n\n".encode()),
        raw(f"{KEY} is no HTTP\r\n\r\n".encode()),
        raw(b""),
        stream(delta("fine", finish="stop")),
    ],
    ids=["401", "500", "page", "document", "redirect", "in-stream", "no-json", "no-http", "nothing", "fine"],
)
async def test_nothing_that_a_server_does_brings_the_key_to_light(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore").setLevel(logging.INFO)  # at DEBUG it logs the head of a response as it came
    with anyio.fail_after(20):
        async with serving(answer) as server:
            model = OpenAIChat(server.base_url, "m", KEY, headers={"X-Api-Key": f"Bearer {TEAM_KEY}"})
            heard = await ask(model)

    told = repr(model) + repr(heard.chunks) + "".join(chunk_json(heard.finish.failure))
    told += "".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)
    assert KEY not in told
    assert TEAM_KEY not in told
    assert server.visits == [] or server.visits[0].headers["authorization"] == f"Bearer {KEY}"


def chunk_json(failure: Any) -> str:
    return "" if failure is None else str(failure.model_dump_json())


@pytest.mark.anyio
async def test_an_exception_that_holds_the_key_is_told_without_it() -> None:
    async with httpx.AsyncClient(transport=Broken()) as client:
        heard = await ask(OpenAIChat("http://h/v1", "m", KEY, client=client))

    assert KEY not in heard.failure.message
    assert "cannot be sent" in heard.failure.message


@pytest.mark.anyio
async def test_what_is_raised_at_all_has_no_key_in_its_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_context() -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(httpx, "create_ssl_context", no_context)
    with pytest.raises(RuntimeError, match="no memory") as raised:
        await opened(OpenAIChat("https://h", "m", KEY)).__anext__()

    assert KEY not in render_chain(raised.value)


@pytest.mark.parametrize("bad", [f"{KEY}\nX", f"{KEY} {KEY}", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_no_header_can_carry_is_refused_by_its_origin(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", bad.replace("\x00", "\x01"))
    for given, origin in ((bad, "api_key"), (None, "MY_KEY")):
        with pytest.raises(ModelError, match=f"the key in {origin} is no key") as refused:
            OpenAIChat("http://h", "m", given, env="MY_KEY")
        assert KEY not in render_chain(refused.value)


@pytest.mark.parametrize("bad", [f"{KEY}\r\nX: y", f"{KEY}é"])
def test_a_header_that_cannot_be_sent_is_refused_by_its_name(bad: str) -> None:
    with pytest.raises(ModelError, match="the header 'X-Api-Key' cannot be sent") as refused:
        OpenAIChat("http://h", "m", headers={"X-Api-Key": bad})
    assert KEY not in render_chain(refused.value)


def test_a_query_of_the_base_url_is_sent_and_not_shown() -> None:
    assert KEY not in repr(OpenAIChat(f"http://h/v1?key={KEY}", "m"))


@pytest.mark.anyio
async def test_a_key_in_the_query_is_struck_out_of_what_a_server_echoes_and_of_what_is_recorded(
    tmp_path: Path,
) -> None:
    odd = "odd/key+9876543210=="
    echo = {"error": {"message": f"GET /v1?key={KEY}&api_token={quote(odd, safe='')} and {odd}"}}
    with anyio.fail_after(20):
        async with serving(reply("401 Unauthorized", echo, Location=f"http://h/?key={KEY}")) as server:
            url = f"{server.base_url}?key={KEY}&api_token={quote(odd, safe='')}&api-version=2026-10-21"
            heard = await ask(OpenAIChat(url, "m", record=tmp_path))

    assert server.visits[0].path.endswith("&api-version=2026-10-21")
    recorded = await (anyio.Path(tmp_path) / "openai-chat-001.http").read_text()
    for text in (recorded, heard.failure.model_dump_json()):
        assert not any(secret in text for secret in (KEY, odd, quote(odd, safe="")))
        assert "key=[key]&api_token=[key] and [key]" in text


def test_a_secret_shows_where_it_came_from_and_is_not_pickled() -> None:
    secret = Secret(KEY, "MY_KEY")

    assert f"{secret!r} {secret}" == "<secret from MY_KEY> <secret from MY_KEY>"
    with pytest.raises(TypeError, match="MY_KEY"):
        pickle.dumps(secret)
    assert strike_out(f"a {KEY} b", [secret]) == "a [key] b"
    assert strike_out("a b", [Secret("a", "x")]) == "a b"


def test_timeouts_are_plain_data() -> None:
    assert Timeouts(connect_seconds=None) != Timeouts()
