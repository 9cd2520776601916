"""The prompt: named sections of system text, variables in it, and contexts of the run; put together once a step.

Knows nothing of what was said before; the session compares a rendered prompt with what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from lifecycle.errors import PromptError
from lifecycle.vocabulary.requests import ModelSelection, ToolSpec
from lifecycle.vocabulary.values import FrozenDict, mend

from .callables import is_async, name_of
from .points import AgentHandle, PromptAssembly, PromptText

Texts: TypeAlias = tuple[PromptText, ...]
Text: TypeAlias = str | Callable[[AgentHandle], str | None]
"""A text, or a plain function that makes it for each step; None leaves it out."""

_VARIABLE = re.compile(r"(\\)?\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Section:
    r"""A part of the prompt, or a context. The model gets one message a section, so a changed one costs only itself.

    `{{name}}` in the text is replaced by the variable of that name. Braces around anything but a name stay as they
    are; write a backslash in front, `\{{name}}`, for a `{{name}}` that is to stay.
    """

    name: str
    text: Text

    def __post_init__(self) -> None:
        if not self.name:
            raise PromptError("a section of the prompt needs a name: the session finds it again by it")
        _check_text(f"the section {self.name!r}", self.text)


class Prompt:
    """What the model is told before the conversation.

    Args:
        sections: In the order in which they stand.
        variables: Values by name, or plain functions that make them for each step. `provider` and `model` are
            always there, from the selection of the step (STB-06); a variable of that name takes their place.
        contexts: What the run looks like from outside; a snapshot of them goes behind the input of a step.

    Raises:
        PromptError: if two sections, or two contexts, have the same name, or a function is async.
    """

    __slots__ = ("_fixed", "_last", "_rendered", "contexts", "empty", "sections", "variables")

    def __init__(
        self,
        sections: Iterable[Section] = (),
        variables: Mapping[str, Text] | None = None,
        contexts: Iterable[Section] = (),
    ) -> None:
        self.sections, self.contexts = tuple(sections), tuple(contexts)
        self.variables: Mapping[str, Text] = dict(variables or {})
        self._last: tuple[ModelSelection | None, PromptAssembly] | None = None
        self._rendered: tuple[PromptAssembly | None, Texts, Texts] = (None, (), ())
        self.empty = not (self.sections or self.contexts or self.variables)
        """It has nothing to say by itself, so there is nothing to assemble unless a hook asks for it."""
        self._fixed = self.empty
        if self.empty:
            return
        _check_unique("sections", [section.name for section in self.sections])
        _check_unique("contexts", [section.name for section in self.contexts])
        for name, value in self.variables.items():
            _check_text(f"the variable {name!r}", value)
        texts = [*(section.text for section in (*self.sections, *self.contexts)), *self.variables.values()]
        self._fixed = not any(callable(text) for text in texts)

    @classmethod
    def of(cls, system: str | Prompt | Iterable[Section] | None) -> Prompt:
        """A prompt from whatever says one; a string is the only section, called `system`."""
        if isinstance(system, Prompt):
            return system
        if isinstance(system, str):
            return cls((Section("system", system),)) if system else _EMPTY
        sections = tuple(system) if isinstance(system, Iterable) else (system,) if system is not None else ()
        for one in sections:
            if not isinstance(cast("object", one), Section):
                raise PromptError(f"a prompt is a text, a Prompt or a list of Sections; {one!r:.80} is none of them")
        return cls(sections) if sections else _EMPTY

    def assemble(self, agent: AgentHandle, tools: tuple[ToolSpec, ...] = ()) -> PromptAssembly:
        """The default of `system-prompt/assemble`: functions are called, variables not yet replaced.

        The very object of the step before, if nothing that it depends on has changed.

        Raises:
            PromptError: if a function returns something else than text or None. What it raises comes out.
        """
        step, last = agent.step, self._last  # read once: agents in several threads may share a prompt
        if self._fixed and last is not None and last[1].tools is tools and (last[0] is step or last[0] == step):
            return last[1]
        builtin = {"provider": (step and step.provider) or "", "model": (step and step.model) or ""}
        own = {name: _text(f"the variable {name!r}", value, agent) for name, value in self.variables.items()}
        made = PromptAssembly(
            sections=_texts("section", self.sections, agent),
            variables=FrozenDict(builtin | {name: value for name, value in own.items() if value is not None}),
            contexts=_texts("context", self.contexts, agent),
            tools=tools,
        )
        self._last = step, made
        return made

    def render(self, assembly: PromptAssembly) -> tuple[Texts, Texts]:
        """The sections and the contexts as `render` and `render_contexts` make them, once for one assembly."""
        rendered = self._rendered
        if rendered[0] is not assembly:
            rendered = self._rendered = assembly, render(assembly), render_contexts(assembly)
        return rendered[1:]


_EMPTY = Prompt()
"""That of all agents that are told nothing: it cannot be changed."""


def verbatim(text: str) -> str:
    """`text` as a section or a context must spell it so that nothing in it is taken for a variable."""
    return _VARIABLE.sub(lambda found: f"\\{found[0]}", text)


def render(assembly: PromptAssembly) -> tuple[PromptText, ...]:
    """The sections with their variables replaced; those that are empty are left out.

    What a variable says is taken as it is: braces in it are no variables.

    Raises:
        PromptError: for a variable that is not there, naming those that are; for two sections of one name.
    """
    return _render("section", assembly.sections, assembly.variables)


def render_contexts(assembly: PromptAssembly) -> tuple[PromptText, ...]:
    """The contexts, likewise."""
    return _render("context", assembly.contexts, assembly.variables)


def _render(what: str, texts: tuple[PromptText, ...], variables: Mapping[str, str]) -> tuple[PromptText, ...]:
    _check_unique(f"{what}s", [one.name for one in texts])  # a hook may have added one
    rendered = [PromptText(one.name, mend(_fill(f"the {what} {one.name!r}", one.text, variables))) for one in texts]
    return tuple(one for one in rendered if one.text)


def _fill(where: str, text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none"
            raise PromptError(f"{where} uses the variable {name!r}, which is not there; there are: {known}")
        return variables[name]

    return _VARIABLE.sub(value, text) if "{{" in text else text


def _texts(what: str, sections: tuple[Section, ...], agent: AgentHandle) -> tuple[PromptText, ...]:
    made = [(one.name, _text(f"the {what} {one.name!r}", one.text, agent)) for one in sections]
    return tuple(PromptText(name, text) for name, text in made if text is not None)


def _text(where: str, given: Text, agent: AgentHandle) -> str | None:
    made = cast("object", given(agent) if callable(given) else given)
    if made is None or isinstance(made, str):
        return made
    raise PromptError(f"{where} is a {type(made).__name__}; it must be text, or None to be left out")


def _check_text(where: str, text: Text) -> None:
    if is_async(text):
        raise PromptError(f"{where} is made by {name_of(text)}, which is async; use the hook 'system-prompt/assemble'")


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PromptError(f"two {what} of the prompt are called {twice[0]!r}; give each a name of its own")
