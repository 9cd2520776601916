"""Cases: what one example of a check tries, as data; written down as a fixture, as a program, and read again."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, ValidationError

from lifecycle.errors import HookFactoryError
from lifecycle.vocabulary.values import Value

from .scenario import Data, Scenario

FORMAT: Literal["lifecycle-case/1"] = "lifecycle-case/1"


_COLUMNS = 110


class Case(Data, frozen=True):
    """A scenario, and how it is performed."""

    scenario: Scenario = Scenario()
    backend: Literal["asyncio", "trio"] = "asyncio"
    interrupt: int | None = Field(default=None, ge=1)
    """The checked listener that is suspended as the how-many-th is cancelled, as by a host that is itself cancelled.
    Only whether it lets itself be cancelled is then judged."""


class Fixture(Data, frozen=True):
    """A case on file: with what fails, and whose hooks they are as `module:name`, if they can be imported."""

    format: Literal["lifecycle-case/1"] = FORMAT
    hooks: str | None = None
    contract: str = ""
    point: str | None = None
    reason: str = ""
    case: Case = Case()

    def dumps(self) -> str:
        """The fixture as JSON text; what is usual is left out."""
        told = {"format": FORMAT, **self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)}
        return _laid_out(told)

    @classmethod
    def loads(cls, text: str, name: str = "the fixture") -> Fixture:
        """The fixture that `dumps` wrote.

        Raises:
            HookFactoryError: if it is none; one sentence.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as wrong:
            first = wrong.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the text"
            raise HookFactoryError(f"{name} is no fixture of a check: {where}: {first['msg']}") from None


def _laid_out(value: object, depth: int = 0) -> str:
    """JSON of which a line holds what fits into it."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + 2 * depth <= _COLUMNS or not isinstance(value, (dict, list)):
        return line
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        inner = [f"{json.dumps(name)}: {_laid_out(one, depth + 1)}" for name, one in fields.items()]
    else:
        inner = [_laid_out(one, depth + 1) for one in cast("list[object]", value)]
    pad, (first, last) = "  " * (depth + 1), "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{pad}{f',{chr(10)}{pad}'.join(inner)}\n{'  ' * depth}{last}"


def address_of(thing: object) -> str | None:
    """`module:name` of what can be imported by that, else None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or module == "__main__":
        return None
    try:
        if importlib.util.find_spec(module) is None:
            return None
    except (ImportError, ValueError):
        return None
    return f"{module}:{name}"


def program_of(
    factory: Callable[[], object],
    case: Case,
    fails: str,
    *,
    limits: str = "",
    may_raise: Sequence[object] = (),
    invariants: Iterable[object] = (),
) -> str:
    """A small program that performs the case again and fails in the same way.

    Args:
        fails: What is wrong, in a sentence.
        limits: Further arguments, spelt.
        invariants: Properties of the user's; those that can be imported come along.
    """
    head, name = _brought(factory)
    more = [f", {limits}"] if limits else []
    brought = [_brought(one) for one in invariants if address_of(one) is not None]
    if may_raise:
        classes = [_brought(one) for one in may_raise]
        more.append(f", may_raise=[{', '.join(name for _, name in classes)}]")
        head = [*head, *(line for lines, _ in classes for line in lines if not line.startswith("from builtins"))]
    if brought:
        more.append(f", invariants=[{', '.join(name for _, name in brought)}]")
    sources = {"lifecycle.testing": {"check_case"}}
    for one in _classes(case):
        module = "lifecycle.testing" if one.__module__.startswith("lifecycle.testing.") else one.__module__
        sources.setdefault(module, set()).add(one.__name__)
    lines = [f"# {fails}", *head, *(line for lines, _ in brought for line in lines)]
    lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(sources.items())]
    lines += ["", f"check_case({name}, {spelt(case)}{''.join(more)})"]
    return "\n".join(lines) + "\n"


def _brought(thing: object) -> tuple[list[str], str]:
    """The lines that make it known to a program, and its name there."""
    address, name = address_of(thing), str(getattr(thing, "__qualname__", "hooks"))
    if address is not None:
        module, _, path = address.partition(":")
        return [f"from {module} import {path.partition('.')[0]}"], path
    try:
        file = inspect.getsourcefile(cast(Any, thing))
    except TypeError:
        file = None
    if file is not None and name.isidentifier() and Path(file).is_file():
        return ["import runpy", "", f"{name} = runpy.run_path({file!r}, run_name='repro')[{name!r}]"], name
    short = name.rpartition(".")[2].strip("<>")
    return [f"# {name} is local to {getattr(thing, '__module__', '?')}: put it here as {short}_()"], f"{short}_"


def spelt(value: object) -> str:
    """A value of ours as Python, without what is usual."""
    if isinstance(value, (Data, Value)):
        return f"{type(value).__name__}({', '.join(f'{name}={spelt(one)}' for name, one in _told(value))})"
    if isinstance(value, tuple):
        items = [spelt(one) for one in cast("tuple[object, ...]", value)]
        if len(items) > 2 and len(set(items)) == 1:
            return f"({items[0]},) * {len(items)}"
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    return repr(value.value if isinstance(value, Enum) else value)


def _told(value: Data | Value) -> Iterator[tuple[str, object]]:
    """The fields of a value that are not as usual."""
    usual: dict[str, object]
    if isinstance(value, Data):
        usual = {name: info.get_default(call_default_factory=True) for name, info in type(value).model_fields.items()}
    else:
        usual = {one.name: one.default for one in fields(value)}
    for name, default in usual.items():
        if getattr(value, name) != default:
            yield name, getattr(value, name)


def _classes(value: object) -> set[type[Data | Value]]:
    """The classes that `spelt` names."""
    if isinstance(value, (Data, Value)):
        return {type(value)}.union(*(_classes(one) for _, one in _told(value)))
    if isinstance(value, tuple):
        return set[type[Data | Value]]().union(*map(_classes, cast("tuple[object, ...]", value)))
    return set()
