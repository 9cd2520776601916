"""What is handed to an agent and is something else than it takes: one sentence, where it is handed over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from lifecycle import Agent, AgentOptions, tool
from lifecycle.errors import DefinitionError, PromptError, ToolDefinitionError
from lifecycle.testing import Gate, ScriptedModel
from lifecycle.vocabulary.chunks import Finish
from lifecycle.vocabulary.failures import USER_CANCEL, Aborted

from ..conformance.kit import scene


def made(**given: Any) -> Callable[[], object]:
    arguments: dict[str, Any] = {"model": ScriptedModel(), **given}
    return lambda: Agent(**arguments)


def told(**given: Any) -> Callable[[], object]:
    return lambda: Agent(ScriptedModel(), options=AgentOptions(**given))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (made(model=None), TypeError, "model is an adapter, or several by provider name; None is none"),
        (made(model="gpt"), TypeError, "'gpt' is none"),
        (made(model=ScriptedModel), TypeError, "ScriptedModel'> is none"),
        (made(model={"a": "gpt"}), TypeError, "'gpt' is none"),
        (
            made(hooks=[print]),
            TypeError,
            r"Agent\(hooks=...\) takes an object of the class Hooks, not \[<built-in function print>\]",
        ),
        (made(session="s"), TypeError, r"Agent\(session=...\) takes an object of the class Session, not 's'"),
        (made(options={"system": "x"}), TypeError, r"takes an object of the class AgentOptions, not {'system': 'x'}"),
        (made(tools="read"), ToolDefinitionError, "an agent's tools are a list of tools or functions, not 'read'"),
        (
            made(tools=print),
            ToolDefinitionError,
            "tools are a list of tools or functions, not <built-in function print>",
        ),
        (made(tools=[{"name": "x"}]), ToolDefinitionError, "a tool is made of a function, not of {'name': 'x'}"),
        (lambda: tool(int), ToolDefinitionError, "a tool is made of a function, not of <class 'int'>"),
        (told(system=5), PromptError, "a prompt is a text, a Prompt or a list of Sections; 5 is none"),
        (told(max_parallel_tools=0), ValueError, "a whole number of at least 1, or a function that says one, not 0"),
        (told(max_parallel_tools=True), ValueError, "a whole number of at least 1, or a function .* not True"),
        (told(grace_seconds="5"), ValueError, "a number of at least 0, not '5'"),
        (told(grace_seconds=math.nan), ValueError, "a number of at least 0, not nan"),
        (told(max_result_chars=-1), ValueError, "a whole number of at least 0, or None, not -1"),
        (told(max_tokens="many"), ValueError, "a whole number of at least 1, or None, not 'many'"),
        (told(max_tokens=-5), ValueError, "a whole number of at least 1, or None, not -5"),
        (told(max_pauses=1.5), ValueError, "a whole number of at least 0, not 1.5"),
        (told(temperature="hot"), ValueError, "a number or None, not 'hot'"),
        (told(effort=4), ValueError, "a text or None, not 4"),
        (told(request_options=[1]), ValueError, r"a mapping of the provider's own fields, not \[1\]"),
        (told(tool_order="read"), ValueError, "a list of the tools' names, or None, not 'read'"),
        (told(tool_order=[3]), ValueError, r"a list of the tools' names, or None, not \[3\]"),
        (told(approve=3), ValueError, "a function that answers, or None, not 3"),
        (told(lifecycle=3), ValueError, "a class derived from a lifecycle, or None, not 3"),
        (told(lifecycle=int), ValueError, "a class derived from a lifecycle, or None, not <class 'int'>"),
        (told(performers={"agent/review": 3}), ValueError, "a mapping of effects' keys to functions, not {"),
        (
            told(performers={"agent/pre-stepp": print}),
            DefinitionError,
            "the performer of 'agent/pre-stepp' has no effect to perform in Agent; did you mean 'agent/pre-step'?",
        ),
    ],
)
def test_what_an_agent_is_not_made_of(make: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


@pytest.mark.anyio
@pytest.mark.parametrize("cause", ["because", None, ValueError("x")])
async def test_what_is_no_cause_cancels_nothing(cause: Any) -> None:
    gate = Gate()
    async with scene([gate, Finish()]) as s:
        s.agent.followup("go")
        await gate.reached()
        with pytest.raises(TypeError, match="is cancelled by UserCancel"):
            s.agent.cancel(cause)
        assert s.agent.phase == "running/stepping/requesting"
        s.agent.cancel()
        await s.idle()
        assert s.reasons == [Aborted(reason=USER_CANCEL)]
