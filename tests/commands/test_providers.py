"""`lifecycle providers`: the wires and their keys, and what a server speaks."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from .child import here

SPOKEN = {"/v1/chat/completions": 400, "/v1/messages": 401}
MODELS = {"data": [{"id": "small", "meta": {"n_ctx": 4096}}, {"id": "large", "context_length": 200_000}, {"id": "odd"}]}


@contextmanager
def server(seen: list[tuple[str, dict[str, str]]]) -> Generator[str]:
    """One that speaks two wires, below /v1 only."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(SPOKEN.get(self.path, 404), {"error": {"message": "no"}})

        def do_GET(self) -> None:
            self.answer(200 if self.path == "/v1/models" else 404, MODELS)

        def answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def test_the_wires_are_listed_with_the_variables_of_their_keys_and_never_with_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = json.loads(here("providers", "--json").out)

    assert [(wire["name"], wire["key_variable"], wire["key_is_set"]) for wire in told["wires"]] == [
        ("anthropic-messages", "ANTHROPIC_API_KEY", True),
        ("openai-chat", "OPENAI_API_KEY", False),
        ("openai-responses", "OPENAI_API_KEY", False),
    ]
    assert told["providers"] == ["demo", "local"]
    page = here("providers").out
    assert "ANTHROPIC_API_KEY (set)" in page
    assert "all of them read HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR" in page
    assert "sk-secret" not in page


def test_a_server_is_asked_what_it_speaks_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    seen: list[tuple[str, dict[str, str]]] = []
    with server(seen) as url:
        ended = here("providers", "--probe", url, "--json")
        page = here("providers", "--probe", f"{url}/v1").out
    told = json.loads(ended.out)

    assert ended.code == 0
    assert [(wire["name"], wire["speaks"], wire["base_url"]) for wire in told["wires"]] == [
        ("anthropic-messages", True, f"{url}/v1"),
        ("openai-chat", True, f"{url}/v1"),
        ("openai-responses", False, url),
    ]
    assert told["models"] == [
        {"id": "small", "context_window": 4096},
        {"id": "large", "context_window": 200_000},
        {"id": "odd", "context_window": None},
    ]
    assert f"openai-responses: no (POST {url}/v1/responses gave HTTP 404)" in page
    assert "model large, 200,000 tokens fit" in page
    assert not any("sk-secret" in value for _, headers in seen for value in headers.values())


def test_with_a_wire_its_key_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    seen: list[tuple[str, dict[str, str]]] = []
    with server(seen) as url:
        assert here("providers", "--probe", url, "--wire", "anthropic-messages").code == 0

    assert [headers["x-api-key"] for _, headers in seen] == ["sk-secret"]


def test_a_server_that_speaks_nothing_is_a_no_and_a_wrong_call_is_one() -> None:
    silent = here("providers", "--probe", "http://127.0.0.1:9")
    assert (silent.code, "connection refused; is the server running?" in silent.out) == (1, True)
    for args in (["--probe", "nowhere"], ["--wire", "openai-chat"], ["--probe", "http://h", "--wire", "smoke"]):
        assert here("providers", *args).code == 2


def test_a_server_that_never_answers_is_waited_for_once_and_not_for_each_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle_adapters.probing._SECONDS", 1.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as never:
        began = time.monotonic()
        ended = here("providers", "--probe", f"http://127.0.0.1:{never.getsockname()[1]}/v1")

    assert ended.code == 1
    assert ended.out.count("did not answer within 1.5 seconds") == 3
    assert time.monotonic() - began < 3 * 1.5
