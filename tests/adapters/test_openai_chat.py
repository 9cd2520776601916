"""The Chat Completions adapter over real HTTP, on both backends: streams, cancels, timeouts, refusals, connections."""

from __future__ import annotations

import gzip
import socket
import tracemalloc
from contextlib import aclosing
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute
from lifecycle_adapters.http_stream import Timeouts
from lifecycle_adapters.openai_chat import OpenAIChat

from lifecycle.errors import ModelError
from lifecycle.services.model import Model
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import Chunk, FinishKind, TextDelta, Usage
from lifecycle.vocabulary.failures import USER_CANCEL, Failure
from lifecycle.vocabulary.requests import CallConfig, ToolSpec
from lifecycle.vocabulary.values import freeze_object
from tests.adapters.asking import Heard, ask, opened
from tests.adapters.server import (
    DONE,
    OK_STREAM,
    Answer,
    Visit,
    delta,
    event,
    raw,
    reply,
    serving,
    stream,
    usage,
)

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


async def asked(answer: Answer, **options: Any) -> Heard:
    """Ask a server that gives this answer."""
    with anyio.fail_after(20):
        async with serving(answer) as server:
            return await ask(OpenAIChat(server.base_url, "m-test", KEY, **options))


async def refused(answer: Answer, **options: Any) -> Failure:
    heard = await asked(answer, **options)
    assert heard.finish.kind is FinishKind.ERROR
    return heard.failure


def test_it_is_a_model() -> None:
    adapter: Model = OpenAIChat("http://h", "m")

    assert isinstance(adapter, Model)
    assert (adapter.provider, adapter.model) == ("openai-chat", "m")


# -- what is sent and what comes back ------------------------------------------------------------------------------


async def test_text_streams_with_its_usage_and_finish() -> None:
    heard = await asked(stream(delta("Hel"), delta("lo"), delta(finish="stop"), usage(7, 2)))

    assert heard.text == "Hello"
    assert heard.assembled.usage == Usage(input_tokens=7, output_tokens=2)
    assert heard.finish.kind is FinishKind.STOP


async def test_a_tool_call_streams_and_the_request_offered_the_tool() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    with anyio.fail_after(20):
        async with serving(stream(delta(tool_calls=[call]), delta(finish="tool_calls"))) as server:
            model = OpenAIChat(server.base_url + "/", "m-test", KEY, headers={"X-Team": "blue"})
            heard = await ask(model, tools=(ToolSpec(name="now"),))

    (visit,) = server.visits
    assert [(made.id, made.name, made.arguments) for made in heard.calls] == [("c1", "now", "{}")]
    assert visit.path == "/v1/chat/completions"
    assert visit.json["model"] == "m-test"
    assert visit.json["tools"][0]["function"]["name"] == "now"
    assert visit.headers["authorization"] == f"Bearer {KEY}"
    assert visit.headers["x-team"] == "blue"


async def test_the_first_delta_is_there_before_the_second_is_sent() -> None:
    seen = anyio.Event()

    async def answer(visit: Visit) -> None:
        await visit.send(OK_STREAM, delta("first"))
        await seen.wait()
        await visit.send(delta("second", finish="stop"), DONE)

    with anyio.fail_after(20):
        async with serving(answer) as server:
            texts: list[str] = []
            async with aclosing(opened(OpenAIChat(server.base_url, "m"))) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextDelta):
                        texts.append(chunk.text)
                        seen.set()

    assert texts == ["first", "second"]


async def test_byte_by_byte_delivery_changes_nothing() -> None:
    body = (
        "".join(["\ufeff", ": hi\r\n\r\n", "data:"]).encode()
        + delta("é 你 🙂\u2028.")[5:]
        + delta(finish="stop")
        + DONE
    )

    heard = await asked(raw(OK_STREAM, *(body[n : n + 1] for n in range(len(body)))))

    assert heard.text == "é 你 🙂\u2028."


async def test_a_whole_completion_instead_of_a_stream_is_taken() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}

    heard = await asked(reply("200 OK", {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))

    assert heard.text == "Hello"
    assert heard.assembled.usage == Usage(input_tokens=3, output_tokens=1)


async def test_a_stream_that_is_labelled_as_a_document_is_understood() -> None:
    body = delta("Hel") + delta("lo", finish="stop") + DONE

    assert (await asked(reply("200 OK", body))).text == "Hello"


async def test_a_compressed_stream_is_understood() -> None:
    body = gzip.compress(delta("Hello", finish="stop") + DONE)

    assert (await asked(reply("200 OK", body, "text/event-stream", Content_Encoding="gzip"))).text == "Hello"


def test_what_the_adapter_fills_in_is_named() -> None:
    model = OpenAIChat("http://h", "m", max_tokens=9, effort="low", options={"stop": ["x"], "seed": 1})
    prepared = model.prepare(
        CallConfig(model="other", effort="high", options=freeze_object({"seed": 2})), CancelSignal()
    )

    assert prepared.config == CallConfig(
        model="other", effort="high", max_tokens=9, options=freeze_object({"stop": ["x"], "seed": 2})
    )
    assert prepared.defaults == ("max_tokens", "options")
    assert OpenAIChat("http://h", "m").prepare(CallConfig(model="m"), CancelSignal()).defaults == ()


def test_without_any_model_nothing_is_prepared() -> None:
    with pytest.raises(ModelError, match="no model is chosen"):
        OpenAIChat("http://h").prepare(CallConfig(), CancelSignal())


# -- the base URL and the key --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions", " http://h:1/v1/chat/completions/ "]
)
def test_a_base_url_is_taken_in_any_of_its_spellings(given: str) -> None:
    assert repr(OpenAIChat(given, "m")) == "OpenAIChat('http://h:1/v1', model='m', provider='openai-chat')"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("localhost:8080/v1", "must begin with http"),
        ("", "must begin with http"),
        ("ftp://h/v1", "must begin with http"),
        ("http://", "name a host"),
        ("http://[", "no URL"),
        (f"http://{KEY}@h/v1", "user name or a password"),
        ("http://h:99999999/v1", "no URL"),
    ],
)
def test_a_base_url_that_cannot_be_one_is_refused_without_repeating_it(given: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as refused:
        OpenAIChat(given, "m")

    assert KEY not in str(refused.value)
    assert refused.value.failure.retryable is False


async def test_the_key_comes_from_the_environment_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-from-env \n")
    sent: list[str | None] = []
    with anyio.fail_after(20):
        async with serving(stream(delta("x", finish="stop"))) as server:
            for key, env in (("given", "OPENAI_API_KEY"), (None, "OPENAI_API_KEY"), (None, None), (None, "NO_SUCH")):
                await ask(OpenAIChat(server.base_url, "m", key, env=env))
            sent = [visit.headers.get("authorization") for visit in server.visits]

    assert sent == ["Bearer given", "Bearer sk-from-env", None, None]


# -- cancelling and closing ----------------------------------------------------------------------------------------


def holding(*events: bytes) -> tuple[Answer, anyio.Event]:
    """A stream that stays open after these events, and what is set once the client has closed it."""
    closed = anyio.Event()

    async def answer(visit: Visit) -> None:
        await visit.send(*([OK_STREAM, *events] if events else []))
        await visit.gone()
        closed.set()

    return answer, closed


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("events", [(), (delta("Half"),)], ids=["before the head", "in the middle"])
async def test_a_cancel_closes_the_connection(events: tuple[bytes, ...], kept: bool) -> None:
    answer, closed = holding(*events)
    signal = CancelSignal()

    async def consume(model: OpenAIChat) -> None:
        with signal.scope():
            async with aclosing(opened(model)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextDelta):
                        signal.fire(USER_CANCEL)

    with anyio.fail_after(20):
        async with serving(answer) as server, anyio.create_task_group() as group:
            model = OpenAIChat(server.base_url, "m")
            if kept:
                await model.__aenter__()
            group.start_soon(consume, model)
            if not events:
                while not server.visits:
                    await anyio.lowlevel.checkpoint()
                signal.fire(USER_CANCEL)
            await closed.wait()
            await model.aclose()


async def test_leaving_the_stream_early_closes_the_connection() -> None:
    answer, closed = holding(delta("Half"))

    with anyio.fail_after(20):
        async with serving(answer) as server, OpenAIChat(server.base_url, "m") as model:
            async with aclosing(opened(model)) as chunks:
                async for _ in chunks:
                    break
            await closed.wait()


async def test_the_connection_is_given_back_before_the_last_chunk() -> None:
    answer, closed = holding(delta("Hi", finish="stop"), DONE)
    with anyio.fail_after(20):
        async with serving(answer) as server:
            heard: list[Chunk] = []
            chunks = opened(OpenAIChat(server.base_url, "m"))
            while not heard or heard[-1].type != "finish":
                heard.append(await chunks.__anext__())
            await closed.wait()  # though the stream was not asked again
            await chunks.aclose()


# -- connections ---------------------------------------------------------------------------------------------------


async def test_entered_it_keeps_its_connection_for_the_next_request() -> None:
    body = delta("Hello", finish="stop") + DONE
    with anyio.fail_after(20):
        async with serving(reply("200 OK", body, "text/event-stream")) as server:
            async with OpenAIChat(server.base_url, "m") as model:
                assert [(await ask(model)).text for _ in range(3)] == ["Hello"] * 3
                assert server.connections == 1
            assert (await ask(model)).text == "Hello"  # and goes on working when it is closed
            assert server.connections == 2


async def test_a_client_of_the_caller_is_used_and_stays_open() -> None:
    with anyio.fail_after(20):
        async with serving(stream(delta("x", finish="stop"))) as server, httpx.AsyncClient() as client:
            async with OpenAIChat(server.base_url, "m", client=client) as model:
                await ask(model)
            assert not client.is_closed


async def test_a_kept_connection_that_died_meanwhile_does_no_harm() -> None:
    body = delta("Hello", finish="stop") + DONE
    whole = reply("200 OK", body, "text/event-stream")

    async def answer(visit: Visit) -> None:
        await whole(visit)
        visit.headers.pop("kept")  # it looks as if it stayed open, and is closed

    with anyio.fail_after(20):
        async with serving(answer) as server, OpenAIChat(server.base_url, "m") as model:
            assert [(await ask(model)).text for _ in range(3)] == ["Hello"] * 3


# -- timeouts, phase by phase --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "limits", "words"),
    [
        ((), Timeouts(first_byte_seconds=0.05), "first_byte_seconds"),
        ((delta("Half"),), Timeouts(read_seconds=0.05), "0.05 seconds of silence in the middle"),
    ],
)
async def test_silence_has_a_limit_before_the_answer_and_within_it(
    events: tuple[bytes, ...], limits: Timeouts, words: str
) -> None:
    answer, closed = holding(*events)
    with anyio.fail_after(20):
        async with serving(answer) as server:
            heard = await ask(OpenAIChat(server.base_url, "m", timeouts=limits))
            await closed.wait()

    assert (heard.failure.code, heard.failure.retryable) == ("TIMEOUT", True)
    assert words in heard.failure.message
    assert heard.text == ("Half" if events else "")


async def test_keep_alives_without_progress_have_a_limit_of_their_own() -> None:
    async def answer(visit: Visit) -> None:
        await visit.send(OK_STREAM, delta("Half"))
        while True:
            await visit.send(b": ping\n\n")

    heard = await asked(answer, timeouts=Timeouts(read_seconds=10, progress_seconds=0.05))

    assert heard.failure.code == "TIMEOUT"
    assert "progress_seconds" in heard.failure.message


async def test_a_server_that_does_not_read_has_a_limit() -> None:
    with socket.socket() as unread, anyio.fail_after(20):
        unread.bind(("127.0.0.1", 0))
        unread.listen()  # the kernel accepts, and nobody ever reads
        url = f"http://127.0.0.1:{unread.getsockname()[1]}"
        failure = (
            await ask(OpenAIChat(url, "m", timeouts=Timeouts(write_seconds=0.1)), prompt="x" * 50_000_000)
        ).failure

        assert failure.code == "TIMEOUT"
        assert "write_seconds" in failure.message


async def test_waiting_for_a_free_connection_has_a_limit() -> None:
    answer, _ = holding(delta("Half"))
    limits = httpx.Limits(max_connections=1)
    with anyio.fail_after(20):
        async with serving(answer) as server, httpx.AsyncClient(limits=limits) as client:
            model = OpenAIChat(server.base_url, "m", client=client, timeouts=Timeouts(pool_seconds=0.05))
            async with aclosing(opened(model)) as first:
                await first.__anext__()
                heard = await ask(model)

    assert "pool_seconds" in heard.failure.message


async def test_a_finished_answer_does_not_wait_for_a_mark_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle_adapters.http_model.AFTER_ANSWER_SECONDS", 0.05)
    answer, closed = holding(delta("Hi", finish="stop"))
    with anyio.fail_after(20):
        async with serving(answer) as server:
            heard = await ask(OpenAIChat(server.base_url, "m"))
            await closed.wait()

    assert (heard.text, heard.finish.kind) == ("Hi", FinishKind.STOP)


# -- refusals ------------------------------------------------------------------------------------------------------


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


async def test_a_refused_connection_asks_whether_the_server_is_running() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)

    heard = await ask(OpenAIChat(f"http://127.0.0.1:{port}/v1", "m"))

    assert heard.failure == Failure(
        message=f"cannot connect to http://127.0.0.1:{port}: connection refused; is the server running?",
        code="TRANSPORT",
        retryable=True,
    )


async def test_a_server_without_tls_is_told_from_one_that_is_not_there() -> None:
    with anyio.fail_after(20):
        async with serving(raw(b"")) as server:
            heard = await ask(OpenAIChat(server.base_url.replace("http", "https"), "m"))

    assert "the TLS handshake failed" in heard.failure.message
    assert heard.failure.retryable is False


async def test_a_refused_key_is_named_by_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with anyio.fail_after(20):
        async with serving(reply("401 Unauthorized", error("Incorrect API key provided."))) as server:
            failure = (await ask(OpenAIChat(server.base_url, "m"))).failure

    origin = server.base_url.removesuffix("/v1")
    assert failure.message == (
        f"the key in OPENAI_API_KEY was refused by {origin} (HTTP 401): Incorrect API key provided."
    )
    assert (failure.code, failure.status, failure.retryable) == ("AUTH", 401, False)


async def test_an_unknown_model_is_named_with_the_way_to_list_the_known_ones() -> None:
    failure = await refused(reply("404 Not Found", error("The model `m-test` does not exist.", code="model_not_found")))

    assert "does not serve the model 'm-test' (HTTP 404; GET http://127.0.0.1" in failure.message
    assert "/v1/models lists what it serves" in failure.message


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        ("429 Too Many Requests", error("slow down"), "RATE_LIMIT", True),
        ("503 Service Unavailable", error("busy", type="overloaded_error"), "OVERLOADED", True),
        ("500 Internal Server Error", b"<html>oops</html>", "SERVER", True),
        ("400 Bad Request", error("exceeds the available context size", code=400), "CONTEXT_OVERFLOW", False),
        ("400 Bad Request", b"[" * 100_000, "INVALID_REQUEST", False),
        ("422 Unprocessable Entity", {"detail": "no such field"}, "INVALID_REQUEST", False),
    ],
)
async def test_a_refusal_has_a_code_its_status_and_what_the_server_asks(
    status: str, body: Any, code: str, retryable: bool
) -> None:
    failure = await refused(reply(status, body, Retry_After="7", X_Request_Id="req_1"))

    assert (failure.code, failure.retryable) == (code, retryable)
    assert (failure.status, failure.request_id, failure.retry_after) == (int(status[:3]), "req_1", 7.0)


async def test_a_refusal_whose_body_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle_adapters.http_stream._EXCERPT_SECONDS", 0.05)
    closed = anyio.Event()

    async def answer(visit: Visit) -> None:
        await visit.send(b'HTTP/1.1 500 Oops\r\nContent-Length: 900\r\n\r\n{"error":')
        await visit.gone()
        closed.set()

    with anyio.fail_after(20):
        async with serving(answer) as server:
            heard = await ask(OpenAIChat(server.base_url, "m"))
            await closed.wait()

    assert (heard.failure.code, heard.failure.status) == ("SERVER", 500)


async def test_a_page_instead_of_a_stream_is_shown_for_what_it_is() -> None:
    failure = await refused(reply("200 OK", b"<!doctype html><title>Sign in</title>", "text/html; charset=utf-8"))

    assert (failure.code, failure.retryable) == ("PROTOCOL", False)
    assert "text/html instead of a stream" in failure.message
    assert "<title>Sign in</title>" in failure.message


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    with anyio.fail_after(20):
        async with serving(stream(delta("stolen", finish="stop"))) as thief:
            redirect = reply("307 Temporary Redirect", Location=f"{thief.base_url}/chat/completions?k={KEY}")
            async with serving(redirect) as server, httpx.AsyncClient(follow_redirects=True) as client:
                heard = await ask(OpenAIChat(server.base_url, "m", KEY, client=client))

    assert thief.visits == []
    assert "was not followed" in heard.failure.message
    assert KEY not in heard.failure.message
    assert heard.failure.retryable is False


# -- answers that break --------------------------------------------------------------------------------------------


async def test_a_body_that_ends_without_its_mark_is_an_answer_cut_off() -> None:
    heard = await asked(raw(OK_STREAM, delta("The three reasons are: first")))

    assert heard.text == "The three reasons are: first"
    assert (heard.failure.code, heard.failure.retryable) == ("TRANSPORT", True)


@pytest.mark.parametrize(
    ("last", "code"),
    [(b"data: [DONE]", None), (delta("!", finish="stop").rstrip(), None), (b'data: {"choices":[{"ind', "TRANSPORT")],
)
async def test_a_last_event_without_its_blank_line_counts_if_it_is_whole(last: bytes, code: str | None) -> None:
    heard = await asked(raw(OK_STREAM, delta("Hello"), last))

    assert (heard.finish.failure and heard.finish.failure.code) == code
    assert heard.text.startswith("Hello")


async def test_a_chunked_body_that_is_cut_is_an_answer_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = delta("Half")

    heard = await asked(raw(head, f"{len(body):x}\r\n".encode() + body + b"\r\n", b"b0\r\ndata: {"))

    assert heard.text == "Half"
    assert (heard.failure.code, heard.failure.retryable) == ("TRANSPORT", True)


async def test_a_connection_that_breaks_before_any_answer_may_be_tried_again() -> None:
    failure = await refused(raw(b"", reset=True))

    assert (failure.code, failure.retryable) == ("TRANSPORT", True)


async def test_an_answer_without_content_is_a_failure() -> None:
    failure = await refused(stream(delta("", finish="stop")))

    assert (failure.code, failure.retryable) == ("EMPTY_RESPONSE", True)


async def test_nonsense_in_place_of_http_is_a_failure_like_others() -> None:
    failure = await refused(raw(b"\x00\x01\x02 what?\r\n\r\n"))

    assert (failure.code, failure.retryable) == ("PROTOCOL", False)
    assert "answered with something that is no HTTP; are the port, and http or https" in failure.message


async def test_a_server_that_hangs_up_without_a_word_may_want_tls() -> None:
    failure = await refused(raw(b""))

    assert (failure.code, failure.retryable) == ("TRANSPORT", True)
    assert "closed the connection without any answer; try again, or does it speak TLS" in failure.message


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip bomb"])
async def test_a_flood_is_refused_at_the_limit(packed: bool) -> None:
    flood = b"data: " + b"x" * 100_000_000
    head = OK_STREAM.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection") if packed else OK_STREAM

    heard = await asked(raw(head, gzip.compress(flood, 1) if packed else flood), max_event_bytes=1_000_000)

    assert (heard.failure.code, heard.failure.retryable) == ("PROTOCOL", False)
    assert "larger than 1000000 bytes" in heard.failure.message


async def test_a_bomb_is_never_in_memory_as_a_whole() -> None:
    bomb = gzip.compress(b"data: " + b"x" * 50_000_000, 9)  # some 50 KB, one read
    head = OK_STREAM.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection")
    tracemalloc.start()
    try:
        heard = await asked(raw(head + bomb), max_event_bytes=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert heard.failure.code == "PROTOCOL"
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"Content_Encoding": "br"}, b"\x0b\x02", "compressed the answer with br, unasked"),
        ({"Content_Encoding": "gzip"}, b"no gzip at all", "does not decompress"),
    ],
)
async def test_a_compression_that_cannot_be_undone_is_named(headers: dict[str, str], body: bytes, words: str) -> None:
    failure = await refused(reply("200 OK", body, "text/event-stream", **headers))

    assert failure.code == "PROTOCOL"
    assert words in failure.message


async def test_a_failure_within_the_stream_keeps_what_was_said_before() -> None:
    heard = await asked(raw(OK_STREAM, delta("Working"), event(error("backend exploded", type="server_error"))))

    assert heard.text == "Working"
    assert "backend exploded" in heard.failure.message
    assert (heard.failure.code, heard.failure.retryable) == ("SERVER", True)
