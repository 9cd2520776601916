"""The embedded demo provider: real HTTP, a script that says that it is one, answers made of what the tools said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from lifecycle_adapters.demo import DEMO_MODEL, demo_provider
from lifecycle_adapters.demo_script import Answer, Overloaded, Script
from lifecycle_adapters.openai_chat import OpenAIChat

from lifecycle.vocabulary.chunks import FinishKind, TextDelta, ToolCallDelta
from lifecycle.vocabulary.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from lifecycle.vocabulary.requests import ToolSpec
from tests.adapters.asking import Heard, ask

TOOLS = tuple(ToolSpec(name=name) for name in ("list_files", "read_file", "search_text"))
Tool = Callable[[ToolCallBlock], str]


def full(call: ToolCallBlock) -> str:
    """Tools of a workspace with a few files."""
    return {
        "list_files": "README.md 20 bytes\nsrc/\nsetup.py 3 bytes",
        "read_file": "# Glowworms\n\nThey glow.",
        "search_text": "README.md:1: # Glowworms",
    }[call.name]


def bare(call: ToolCallBlock) -> str:
    """Tools of an empty workspace."""
    return {
        "list_files": "[empty]",
        "read_file": "there is no README.md here",
        "search_text": "[nothing in . holds 'there']",
    }[call.name]


async def turn(model: OpenAIChat, history: list[Message], prompt: str, tool: Tool = full) -> list[Heard]:
    """One turn, retried and answered as an agent would, in as few words as possible."""
    history.append(user_message(prompt))
    heard: list[Heard] = []
    while len(heard) < 10:
        heard.append(await ask(model, history, TOOLS))
        if heard[-1].finish.kind is FinishKind.ERROR:
            continue
        history.append(AssistantMessage(content=heard[-1].assembled.blocks))
        if not heard[-1].calls:
            break
        for call in heard[-1].calls:
            result = ToolResultBlock(tool_call_id=call.id, content=(TextBlock(text=tool(call)),))
            history.append(UserMessage(content=(result,)))
    return heard


@pytest.mark.anyio
async def test_a_turn_fails_once_calls_two_tools_then_one_and_answers_from_their_results() -> None:
    with anyio.fail_after(20):
        async with demo_provider() as base_url, OpenAIChat(base_url, DEMO_MODEL, env=None) as model:
            failed, looked, searched, answered = await turn(model, [], "What glows?")

    assert (failed.failure.code, failed.failure.status, failed.failure.retryable) == ("OVERLOADED", 503, True)
    assert failed.failure.retry_after == 0.001
    assert "on purpose" in failed.failure.message
    assert "I am a script, not a model" in looked.text
    assert [(call.name, call.arguments) for call in looked.calls] == [
        ("list_files", '{"path": "."}'),
        ("read_file", '{"path": "README.md"}'),
    ]
    assert [(call.name, call.arguments) for call in searched.calls] == [("search_text", '{"query": "Glowworms"}')]
    assert answered.finish.kind is FinishKind.STOP
    assert "You asked: “What glows?”" in answered.text
    assert 'list_files {"path": "."}: 3 lines, beginning with “README.md 20 bytes”' in answered.text
    assert 'read_file {"path": "README.md"}: 2 lines, beginning with “# Glowworms”' in answered.text
    assert 'search_text {"query": "Glowworms"}: “README.md:1: # Glowworms”' in answered.text


@pytest.mark.anyio
async def test_the_answer_streams_in_many_deltas_with_usage_and_ids_of_its_own_for_each_call() -> None:
    history: list[Message] = []
    with anyio.fail_after(20):
        async with demo_provider() as base_url, OpenAIChat(base_url, DEMO_MODEL, env=None) as model:
            heard = await turn(model, history, "What glows?") + await turn(model, history, "And what else?")

    assert sum(isinstance(chunk, TextDelta) for chunk in heard[3].chunks) > 20
    assert sum(isinstance(chunk, ToolCallDelta) for chunk in heard[1].chunks) > 4
    assert all(one.assembled.usage is not None for one in heard if one.finish.failure is None)
    ids = [call.id for one in heard for call in one.calls]
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.anyio
async def test_a_second_turn_goes_the_same_way_about_its_own_prompt() -> None:
    history: list[Message] = []
    with anyio.fail_after(20):
        async with demo_provider() as base_url, OpenAIChat(base_url, DEMO_MODEL, env=None) as model:
            first = await turn(model, history, "What glows?")
            second = await turn(model, history, "Now read setup.py", bare)

    assert [one.finish.kind for one in second] == [one.finish.kind for one in first]
    assert second[1].calls[1].arguments == '{"path": "setup.py"}'
    assert "“Now read setup.py”" in second[3].text
    assert 'list_files {"path": "."}: “[empty]”' in second[3].text
    assert "Glowworms" not in second[3].text


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", ["", "?!", "日本語で答えて", "x" * 1_000_000, "a/" * 500_000, "\U0001f642" * 1_000])
async def test_any_prompt_and_an_empty_folder_do(prompt: str) -> None:
    with anyio.fail_after(30):
        async with demo_provider() as base_url, OpenAIChat(base_url, DEMO_MODEL, env=None) as model:
            heard = await turn(model, [], prompt, lambda call: bare(call) if prompt else "")

    assert [one.finish.kind for one in heard] == ["error", "tool-calls", "tool-calls", "stop"]
    assert len(heard[-1].text) < 3_000
    if len(prompt) > 10_000:
        assert "(1000000 characters)" in heard[-1].text


@pytest.mark.anyio
async def test_conversations_at_the_same_time_do_not_mix() -> None:
    heard: dict[int, list[Heard]] = {}

    async def one(n: int, base_url: str) -> None:
        heard[n] = await turn(OpenAIChat(base_url, DEMO_MODEL, env=None), [], f"Number {n}")

    with anyio.fail_after(30):
        async with demo_provider() as base_url, anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(one, n, base_url)

    assert all(len(turns) == 4 and f"“Number {n}”" in turns[-1].text for n, turns in heard.items())


@pytest.mark.anyio
async def test_it_ends_with_its_block_though_a_client_is_still_listening() -> None:
    with anyio.fail_after(20):
        async with httpx.AsyncClient() as client:
            async with demo_provider(pace_seconds=100) as base_url:
                body = {"model": DEMO_MODEL, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
                assert (await client.post(f"{base_url}/chat/completions", json=body)).status_code == 503
                async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                    assert response.status_code == 200
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{base_url}/models")


@pytest.mark.anyio
async def test_it_answers_whole_where_no_stream_is_asked_for_and_lists_its_model() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    with anyio.fail_after(20):
        async with demo_provider() as base_url, httpx.AsyncClient(base_url=base_url) as client:
            body = {"model": DEMO_MODEL, "messages": messages}
            statuses = [(await client.post("/chat/completions", json=body)).status_code for _ in range(3)]
            whole = (await client.post("/chat/completions", json=body)).json()
            models = (await client.get("/models")).json()

    assert statuses == [503, 200, 503]
    assert "No tools were on offer" in whole["choices"][0]["message"]["content"]
    assert whole["usage"]["completion_tokens"] > 0
    assert [model["id"] for model in models["data"]] == [DEMO_MODEL]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[1]", 400),
        (b"[" * 100_000, 400),
        ({"model": DEMO_MODEL}, 400),
        ({"model": DEMO_MODEL, "messages": [3]}, 400),
        ({"model": DEMO_MODEL, "messages": [], "tools": "all"}, 400),
        ({"model": DEMO_MODEL, "messages": [{"role": "assistant", "tool_calls": 3}]}, 400),
        ({"model": "gpt-9", "messages": []}, 404),
    ],
)
async def test_nonsense_is_refused_and_the_server_lives_on(body: Any, status: int) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with anyio.fail_after(20):
        async with demo_provider() as base_url, httpx.AsyncClient(base_url=base_url) as client:
            assert (await client.post("/chat/completions", content=content)).status_code == status
            assert (await client.get("/nowhere")).status_code == 404
            assert (await client.get("/models")).status_code == 200


@pytest.mark.anyio
async def test_a_client_that_speaks_no_http_or_hangs_up_does_no_harm() -> None:
    with anyio.fail_after(20):
        async with demo_provider() as base_url, httpx.AsyncClient(base_url=base_url) as client:
            for said in (
                b"what?\r\n\r\n",
                b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\nHost: h\r\n\r\n{",
            ):
                async with await anyio.connect_tcp("127.0.0.1", client.base_url.port or 0) as stream:
                    await stream.send(said)
            assert (await client.get("/models")).status_code == 200


def test_tools_that_are_not_on_offer_are_not_called() -> None:
    script = Script()
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": "list_files"}}]}

    assert script.reply(body) == Overloaded()
    answer = script.reply(body)
    assert isinstance(answer, Answer)
    assert [call.name for call in answer.calls] == ["list_files"]


def test_the_script_comes_to_an_end_though_somebody_speaks_after_each_result() -> None:
    script, messages = Script(), [{"role": "user", "content": "hi"}]
    tools = [{"function": {"name": tool.name}} for tool in TOOLS]
    replies = 0
    while True:
        reply = script.reply({"messages": messages, "tools": tools})
        if isinstance(reply, Overloaded):
            continue
        replies += 1
        assert replies < 10
        if not reply.calls:
            return
        calls: Any = [{"id": call.id, "function": {"name": call.name, "arguments": "{}"}} for call in reply.calls]
        messages.append({"role": "assistant", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "x"} for call in reply.calls]
        messages.append({"role": "user", "content": "by the way"})
