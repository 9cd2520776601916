"""`lifecycle decode`: what an adapter makes of recorded responses; and `lifecycle run --record`, which makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .child import here
from .provider import refusing, serving, streaming

CHAT = 'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MESSAGES = """data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"read"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"path\\":"}}

"""
RESPONSES = 'data: {"type":"error","code":"rate_limit_exceeded","message":"Slow down"}\n\n'
REFUSED = """HTTP/1.1 429 Too Many Requests\r
Content-Type: application/json\r
Retry-After: 86400\r
X-Request-Id: req_1\r
\r
{"error":{"message":"no more","code":"insufficient_quota"}}"""
TYPED = {"openai-chat": CHAT, "anthropic-messages": MESSAGES, "openai-responses": RESPONSES}


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ("openai-chat", {"outcome": "complete", "text": "Hello", "finish": "stop", "error": None}),
        ("anthropic-messages", {"outcome": "truncated", "text": "", "finish": None, "tool_calls": []}),
        ("openai-responses", {"outcome": "error", "text": "", "finish": None}),
    ],
)
def test_each_wire_decodes_a_body(wire: str, expected: dict[str, Any], tmp_path: Path) -> None:
    path = put(tmp_path, "a.sse", TYPED[wire])
    ended = here("decode", wire, path, "--json")
    told = json.loads(ended.out)

    assert ended.code == 0
    assert {name: told[name] for name in expected} == expected
    assert told["file"] == str(path)


def test_a_line_for_each_file_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    paths = [put(tmp_path, "a.sse", CHAT), put(tmp_path, "b.http", REFUSED)]
    first, second = here("decode", "openai-chat", *paths, "--json").out.splitlines()

    assert json.loads(first)["blocks"] == {"role": "assistant", "content": "Hello"}
    assert json.loads(second)["error"] == {
        "class": "quota",
        "retry": False,
        "after_s": 86400.0,
        "message": "the account at http://recorded is used up (HTTP 429): no more",
        "status": 429,
        "request_id": "req_1",
    }
    assert json.loads(first).keys() == json.loads(second).keys()


def test_people_get_a_paragraph_for_each_file(tmp_path: Path) -> None:
    ended = here("decode", "openai-chat", put(tmp_path, "a.sse", CHAT), put(tmp_path, "b.http", REFUSED))

    assert f"{tmp_path}/a.sse: complete, stop\n  text: Hello\n" in ended.out
    assert "quota, not sent again\n  the account at http://recorded is used up (HTTP 429): no more\n" in ended.out


def test_what_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    unknown = here("decode", "smoke-signals", put(tmp_path, "a.sse", CHAT))
    assert (unknown.code, "there are: anthropic-messages, openai-chat, openai-responses" in unknown.err) == (2, True)
    missing = here("decode", "openai-chat", tmp_path / "none.sse")
    assert (missing.code, "none.sse cannot be read: No such file" in missing.err) == (2, True)
    no_http = here("decode", "openai-chat", put(tmp_path, "c.http", CHAT))
    assert (no_http.code, "c.http is no HTTP response" in no_http.err) == (2, True)


def test_a_run_keeps_its_responses_without_the_key_for_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-1234")
    folder = tmp_path / "kept" / "here"
    echo = streaming([CHAT.replace("Hello", "sk-very"), ": -secret-1234 sk-very-secret-1234\n\n"])
    with serving(echo) as base_url:
        here("run", "hi", "--base-url", base_url, "--model", "m", "--record", folder)
    with serving(refusing(401, message="bad key sk-very-secret-1234")) as base_url:
        here("run", "hi", "--base-url", base_url, "--model", "m", "--record", folder)

    kept = sorted(folder.iterdir())
    assert [path.name for path in kept] == ["openai-chat-001.http", "openai-chat-002.http"]
    assert not any(b"sk-very-secret-1234" in path.read_bytes() for path in kept)
    outcomes = [json.loads(line) for line in here("decode", "openai-chat", "--json", *kept).out.splitlines()]
    assert [told["outcome"] for told in outcomes] == ["complete", "error"]
    assert "bad key [key]" in outcomes[1]["error"]["message"]


def test_a_folder_that_cannot_be_made_is_named_before_anybody_is_asked(tmp_path: Path) -> None:
    ended = here("run", "hi", "--record", put(tmp_path, "file", "") / "below")

    assert ended.code == 2
    assert "for responses cannot be made" in ended.err


def test_a_wire_of_somebody_else_that_cannot_record_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Smoke:
        def __init__(self, *, model: str) -> None:
            raise AssertionError("never made")

    def plugin(group: str, name: str) -> type[Smoke]:
        return Smoke

    monkeypatch.setattr("lifecycle.commands.run.plugin", plugin)
    ended = here("run", "hi", "--wire", "smoke", "--model", "m", "--record", tmp_path)

    assert ended.code == 2
    assert "smoke takes no `record`; leave out --record" in ended.err
