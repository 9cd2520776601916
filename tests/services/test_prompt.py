"""The prompt: sections, variables and contexts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lifecycle.errors import PromptError
from lifecycle.services.points import AgentHandle, PromptText
from lifecycle.services.prompt import Prompt, Section, render, render_contexts
from lifecycle.vocabulary.requests import ModelSelection, ToolSpec


def agent(provider: str | None = "acme", model: str | None = "m1") -> AgentHandle:
    return cast("AgentHandle", SimpleNamespace(step=ModelSelection(provider=provider, model=model)))


def rendered(text: str, **variables: str) -> str:
    (only,) = render(Prompt([Section("s", text)], variables).assemble(agent()))
    return only.text


def test_a_prompt_is_made_of_whatever_says_one() -> None:
    prompt = Prompt([Section("a", "A")])

    assert Prompt.of(prompt) is prompt
    assert Prompt.of("be brief").sections == (Section("system", "be brief"),)
    assert Prompt.of([Section("a", "A"), Section("b", "B")]).sections == (Section("a", "A"), Section("b", "B"))
    assert Prompt.of(None).sections == Prompt.of("").sections == ()


def test_stb_06_the_variables_know_the_selection_of_the_step() -> None:
    prompt = Prompt.of("{{provider}}/{{ model }}")

    assert render(prompt.assemble(agent())) == (PromptText("system", "acme/m1"),)
    assert render(prompt.assemble(agent(model="m2"))) == (PromptText("system", "acme/m2"),)
    assert render(prompt.assemble(agent(None, None))) == (PromptText("system", "/"),)


def test_functions_are_called_for_each_step_and_none_leaves_the_section_out() -> None:
    said = iter(["one", None])
    prompt = Prompt(
        [Section("a", lambda _: next(said)), Section("b", "B {{v}}")],
        {"v": lambda who: who.step.model if who.step else None},
    )

    first, second = prompt.assemble(agent()), prompt.assemble(agent())

    assert render(first) == (PromptText("a", "one"), PromptText("b", "B m1"))
    assert render(second) == (PromptText("b", "B m1"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{v}} and {{ v }}", "X{{w}} and X{{w}}"),
        (r"\{{v}}", "{{v}}"),
        ("{v} {{1,2}} {{}} {{a b}}", "{v} {{1,2}} {{}} {{a b}}"),
        ("{{{v}}}", "{X{{w}}}"),
        ("lone \ud800", "lone \ufffd"),
    ],
)
def test_variables_are_replaced_once_and_other_braces_stay(text: str, expected: str) -> None:
    assert rendered(text, v="X{{w}}") == expected


def test_an_unknown_variable_names_the_known_ones() -> None:
    with pytest.raises(PromptError, match=r"section 's' uses the variable 'modle'.*there are: model, provider, v"):
        rendered("{{modle}}", v="")


def test_names_are_unique_also_after_the_hooks() -> None:
    with pytest.raises(PromptError, match="two sections of the prompt are called 'a'"):
        Prompt([Section("a", ""), Section("a", "")])
    with pytest.raises(PromptError, match="two contexts"):
        Prompt(contexts=[Section("a", ""), Section("a", "")])
    assembly = Prompt.of("x").assemble(agent())
    with pytest.raises(PromptError, match="'system'"):
        render(dataclasses.replace(assembly, sections=assembly.sections * 2))
    with pytest.raises(PromptError, match="needs a name"):
        Section("", "text")


def test_what_is_no_text_is_refused() -> None:
    async def late(_: object) -> str:
        return ""

    with pytest.raises(PromptError, match="async"):
        Section("a", cast("Any", late))
    with pytest.raises(PromptError, match="async"):
        Prompt(variables={"a": cast("Any", late)})
    with pytest.raises(PromptError, match="'a' is a int"):
        Prompt([Section("a", cast("Any", lambda _: 1))]).assemble(agent())  # pyright: ignore[reportUnknownLambdaType]


def test_contexts_are_rendered_like_sections_and_empty_ones_left_out() -> None:
    prompt = Prompt(contexts=[Section("where", "in {{place}}"), Section("none", "")], variables={"place": "town"})
    assembly = prompt.assemble(agent())

    assert render(assembly) == ()
    assert render_contexts(assembly) == (PromptText("where", "in town"),)


def test_a_fixed_prompt_stays_the_same_object_while_nothing_changes() -> None:
    prompt, tools = Prompt.of("on {{model}}"), (ToolSpec(name="t"),)
    first = prompt.assemble(agent(), tools)

    assert prompt.assemble(agent(), tools) is first
    assert prompt.assemble(agent(), (ToolSpec(name="u"),)) is not first
    assert prompt.assemble(agent(model="m2"), tools) is not first
    assert first.tools is tools
