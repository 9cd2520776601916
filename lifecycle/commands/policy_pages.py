"""A page for each policy: what it is for, how it is used, where it listens, its options, and the picture of a session.

The picture is what `lifecycle replay --sequence` draws of the demo session; options and points are read off the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from lifecycle.pictures.markdown import cell, code, fenced, text
from lifecycle.policies.retry import TRANSIENT

from .history import history
from .policy_demos import demo_log
from .policy_texts import AGAIN, HEADINGS, OPTIONS_ZH, Policy
from .run_picture import run_picture


def page(policy: Policy, lang: str, mark: str, beside: str) -> str:
    """The page as Markdown. `mark` is its first line, `beside` the links to its other language."""
    return "\n".join(_page(policy, lang, mark, beside))


def _page(policy: Policy, lang: str, mark: str, beside: str) -> Iterator[str]:
    told, (usage, where, options, session, *columns) = policy.told(lang), HEADINGS[lang]
    yield f"{mark}\n\n# {text(told.title)}\n\n{beside}\n"
    yield f"{text(told.intro)}\n\n{text(told.more)}\n"
    yield f"## {text(usage)}\n\n{fenced('python', policy.usage)}"
    yield f"## {text(where)}\n"
    hooks = policy.hooks()
    yield (
        "\n".join(f"* `{name}` ({point.mode.value})" for name, point in hooks.points.items() if hooks.listeners(name))
        + "\n"
    )
    if policy.options:
        yield f"## {text(options)}\n"
    for one in policy.options:
        yield f"`{one.__name__}`\n"
        yield "\n".join(_rows(one, columns, lang)) + "\n"
    yield f"## {text(session)}\n\n{text(told.picture)}\n"
    yield fenced("mermaid", run_picture(history(demo_log(policy.name))))
    yield f"{AGAIN[lang].format(name=policy.name)}\n"


def _rows(options: type[Any], columns: list[str], lang: str) -> Iterator[str]:
    said = _arguments(options)
    yield f"| {' | '.join(map(cell, columns))} |"
    yield f"|{' --- |' * len(columns)}"
    for name, parameter in inspect.signature(options).parameters.items():
        meaning = said[name] if lang == "en" else OPTIONS_ZH[options.__name__][name]
        yield f"| {code(name)} | {_default(parameter.default)} | {cell(meaning)} |"


def _default(given: Any) -> str:
    if given is inspect.Parameter.empty:
        return ""
    if repr(given) == "<factory>":  # how a dataclass spells a default that it cannot keep; there is one
        alike = {backoff: [kind for kind, one in TRANSIENT.items() if one == backoff] for backoff in TRANSIENT.values()}
        return "<br>".join(f"{code(', '.join(codes))}: {code(repr(backoff))}" for backoff, codes in alike.items())
    return code(_spelled(given))


def _spelled(given: Any) -> str:
    if isinstance(given, str) and len(given) > 40:
        return "..."
    return getattr(given, "__name__", repr(given))


def _arguments(options: type[Any]) -> dict[str, str]:
    """What the docstring says of each argument."""
    part = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(options) or "", re.DOTALL)
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", part[1] if part else "", re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in found}
