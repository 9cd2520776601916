"""What is made of the answers in `answers/`, each odd in its own way: whole, and byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx
import pytest
from lifecycle_adapters.recording import Replayed, response_of, stream_of

from lifecycle.commands.decode import account
from lifecycle.commands.jsonlines import dump
from tests.adapters.asking import Bytewise, ask
from tests.adapters.streams import WIRES


class Given(NamedTuple):
    """An answer of the folder."""

    wire: str
    expected: dict[str, Any]
    body: bytes

    @property
    def raw(self) -> bool:
        return self.body.startswith(b"HTTP/")


def answers() -> Iterator[Any]:
    for path in sorted(Path(__file__).with_name("answers").glob("*.txt")):
        for section in path.read_text().removeprefix("# ").removesuffix("\n").split("\n# "):
            title, expected, text = section.split("\n", 2)
            wire, _, name = title.partition(": ")
            text = text.removesuffix("\\") if text.endswith("\\") else text + "\n"
            if text.startswith("HTTP/"):
                head, _, rest = text.partition("\n\n")
                text = head.replace("\n", "\r\n") + "\r\n\r\n" + rest
            yield pytest.param(
                Given(wire, json.loads(expected.removeprefix("= ")), text.encode()), id=f"{path.stem}: {name}"
            )


ANSWERS = [*answers()]


@pytest.mark.parametrize("given", ANSWERS)
def test_an_answer_amounts_to_what_is_written_beside_it(given: Given) -> None:
    decoded = anyio.run(lambda: WIRES[given.wire].decode(given.body, raw=given.raw))

    assert told(given, account(decoded.chunks, decoded.sent_back)) == given.expected


@pytest.mark.parametrize("given", ANSWERS)
def test_it_amounts_to_the_same_byte_by_byte(given: Given) -> None:
    assert told(given, anyio.run(bytewise, given)) == given.expected


async def bytewise(given: Given) -> dict[str, Any]:
    response = response_of(given.body) if given.raw else stream_of(given.body)
    if not given.raw:
        response = httpx.Response(200, headers=response.headers, stream=Bytewise(given.body))
    async with httpx.AsyncClient(transport=Replayed(response)) as client:
        heard = await ask(WIRES[given.wire]("http://recorded", "m", client=client, env=None))
    return account(heard.chunks)


def told(given: Given, account: dict[str, Any]) -> dict[str, Any]:
    """What is written beside the answer, as it came out."""
    error: dict[str, Any] = account["error"] or {}
    calls = account["tool_calls"]
    said: dict[str, Any] = {
        **account,
        "calls": [[call["name"], call["arguments"], call["runnable"]] for call in calls],
        "ids": [call["id"] for call in calls],
        "class": error.get("class"),
        "retry": error.get("retry"),
        "after": error.get("after_s"),
    }
    wanted = given.expected.get("message", "")
    said["message"] = wanted if wanted in error.get("message", "") else error.get("message")
    blocks = {} if account["blocks"] is not None else {"blocks": given.expected.get("blocks")}
    return {name: json.loads(dump(value)) for name, value in (said | blocks).items() if name in given.expected}
