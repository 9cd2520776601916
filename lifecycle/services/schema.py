"""What a function's signature and docstring say to a model: a JSON schema, and a check of arguments against it.

Read once, when the function becomes a tool. Knows nothing of calls, agents or results.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from lifecycle.errors import ToolDefinitionError
from lifecycle.vocabulary.values import FrozenDict, freeze_object

from .callables import name_of

Check = Callable[[dict[str, Any]], dict[str, Any]]
"""Keyword arguments from a JSON object. Raises pydantic.ValidationError."""

_REFUSED = {
    Parameter.POSITIONAL_ONLY: "is positional-only, but a model names every argument",
    Parameter.VAR_POSITIONAL: "takes any number of arguments; take a list instead",
    Parameter.VAR_KEYWORD: "takes arguments of any name; take a dict instead",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as a model can call it. `context` names the parameter that is handed the context, if there is one."""

    description: str
    schema: FrozenDict
    check: Check
    context: str | None


def read_signature(
    function: Callable[..., Any], context_type: type, scope: Mapping[str, Any] | None = None
) -> Signature:
    """The signature of `function`. A parameter annotated with `context_type` is left out of the schema.

    Args:
        scope: Names that annotations may use besides the globals of the function's module.

    Raises:
        ToolDefinitionError: names the function and the parameter that a model could not fill in.
    """
    who = name_of(function)
    hints = _hints(function, who, scope)
    description, notes = read_docstring(inspect.getdoc(function) or "")
    context: str | None = None
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in hints and _bare(hints[name]) is context_type:
            if context is not None:
                raise ToolDefinitionError(f"{who}: both {context!r} and {name!r} ask for the context; take it once")
            context = name
            continue
        if parameter.kind in _REFUSED:
            raise ToolDefinitionError(f"{who}: parameter {name!r} {_REFUSED[parameter.kind]}")
        if name not in hints:
            raise ToolDefinitionError(f"{who}: parameter {name!r} has no annotation, so the model cannot know its type")
        fields[f"p_{name}"] = _field(name, hints[name], parameter.default, notes.get(name))
    try:
        # Fields are called p_name, with the name as alias: a model class already has names like `json` and `copy`.
        model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(schema_generator=_PlainSchema)
    except Exception as wrong:  # pydantic has many ways to refuse a type
        raise ToolDefinitionError(f"{who}: its parameters have no JSON schema: {wrong}") from wrong
    del schema["title"]
    return Signature(description, freeze_object(schema, who), _check(model), context)


def _hints(function: Callable[..., Any], who: str, scope: Mapping[str, Any] | None) -> dict[str, Any]:
    annotated: Any = function
    while hasattr(annotated, "func"):  # functools.partial
        annotated = annotated.func
    if not inspect.isroutine(annotated):
        annotated = type(annotated).__call__
    try:
        return typing.get_type_hints(annotated, localns=dict(scope or {}), include_extras=True)
    except NameError as wrong:
        raise ToolDefinitionError(
            f"{who}: the annotation {wrong.name!r} cannot be resolved; import it outside `if TYPE_CHECKING`"
        ) from wrong


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _field(name: str, hint: Any, default: Any, note: str | None) -> Any:
    """A pydantic field: what `Field(...)` says in the signature wins over the docstring."""
    said = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, FieldInfo)]
    said += [default] if isinstance(default, FieldInfo) else []
    extra: dict[str, Any] = {}
    if note and not any(one.description for one in said):
        extra["description"] = note
    if not any(one.alias for one in said):
        extra["alias"] = name
    if isinstance(default, FieldInfo):
        return Annotated[hint, default, Field(**extra)], default.default if not default.default_factory else Field(
            default_factory=default.default_factory
        )
    return Annotated[hint, Field(**extra)], ... if default is Parameter.empty else default


def _check(model: type[BaseModel]) -> Check:
    validate = model.__pydantic_validator__.validate_python

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        return {name[2:]: value for name, value in validate(arguments).__dict__.items()}

    return check


class _PlainSchema(GenerateJsonSchema):
    """Without the titles that only repeat the names: each costs tokens in every request."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


# -- docstrings ---------------------------------------------------------------------------------------------------

_PARAMETERS = ("args", "arguments", "parameters", "params")
_SECTIONS = (
    *_PARAMETERS,
    *("returns", "return", "raises", "yields", "yield", "examples", "example", "notes", "note", "see also"),
    *("warns", "warning", "warnings", "attributes", "references", "todo", "keyword args", "keyword arguments"),
)
_FIELD = re.compile(r":(?P<kind>\w+)(?:\s+(?P<rest>[^:]*))?:\s*(?P<text>.*)")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")


def read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """What it says of the function, up to its first section, and of each parameter.

    Google's (`Args:`), NumPy's (`Parameters` underlined) and Sphinx's (`:param name:`) ways are understood.
    """
    about: list[str] = []
    notes: dict[str, list[str]] = {}
    section: str | None = None
    numpy = False
    current: list[str] | None = None
    indent: int | None = None
    lines = docstring.splitlines()
    for n, line in enumerate(lines):
        stripped, depth = line.strip(), len(line) - len(line.lstrip())
        underlined = n + 1 < len(lines) and set(lines[n + 1].strip()) == {"-"}
        title = stripped.rstrip(":").lower()
        if depth == 0 and title in _SECTIONS and (stripped.endswith(":") or underlined):
            section, numpy, current, indent = title, underlined, None, None
        elif depth == 0 and (found := _FIELD.fullmatch(stripped)):
            section, current = "field", None
            if found["kind"] in ("param", "parameter", "arg", "argument") and found["rest"]:
                current = notes.setdefault(found["rest"].split()[-1], [])
                current.append(found["text"])
        elif section is None:
            about.append(line)
        elif section == "field":
            if current is not None and depth:
                current.append(stripped)
        elif section in _PARAMETERS and stripped and set(stripped) != {"-"}:
            indent = depth if indent is None else indent
            if depth > indent:
                if current is not None:
                    current.append(stripped)
            elif numpy:
                current = []  # `y, z : int` describes both
                notes |= {name.strip(" *"): current for name in stripped.split(":")[0].split(",")}
            elif found := _ENTRY.fullmatch(stripped):
                current = notes.setdefault(found["name"], [])
                current.append(found["text"])
    return "\n".join(about).strip(), {name: " ".join(filter(None, said)) for name, said in notes.items() if any(said)}
