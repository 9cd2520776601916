"""What a TARGET of the command line names: a lifecycle of ours, or somebody's as `module:Name`; hooks likewise."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType, ModuleType, TracebackType
from typing import Any, NoReturn, cast

from lifecycle.definition.agent import Agent
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.step import Step
from lifecycle.definition.tool_call import ToolCall
from lifecycle.definition.turn import Turn
from lifecycle.errors import LifecycleError
from lifecycle.services.hooks import Hooks

from .calls import CallError
from .output import printable

OURS: Mapping[str, type[Lifecycle]] = MappingProxyType(
    {"Agent": Agent, "Turn": Turn, "Step": Step, "ToolCall": ToolCall, **REVISIONS}
)
"""The lifecycles that have a name of their own on the command line."""

_MOST_NAMED = 12
"""How many names of a module an error lists."""


def lifecycle_at(target: str) -> type[Lifecycle]:
    """The lifecycle that `target` names.

    Raises:
        CallError: if there is none, or its module does not import; then its own traceback is on standard error.
        DefinitionError: if the module declares a lifecycle wrongly.
    """
    if target in OURS:
        return OURS[target]
    if ":" not in target:
        raise CallError(
            f"there is no lifecycle {target!r}{meant(target, OURS)}; ours are {', '.join(OURS)},"
            " and one of yours is named module:Name"
        )
    found = object_at(target)
    if not (inspect.isclass(found) and issubclass(found, Lifecycle)):
        raise CallError(f"{target} is {_kind(found)}, and no lifecycle: no subclass of Lifecycle")
    if not found.spec.phases:
        raise CallError(f"{target} declares no phases; name a lifecycle that does")
    return found


def hooks_at(target: str) -> Hooks:
    """The hooks that `target` names as `module:name`: an instance of Hooks, or a function without arguments that
    returns one. Raises as `lifecycle_at`.
    """
    found = object_at(target)
    if callable(found) and not isinstance(found, Hooks):
        try:
            inspect.signature(found).bind()
        except (TypeError, ValueError):
            raise CallError(f"{target} cannot be called without arguments; name Hooks, or what makes them") from None
        try:
            found = found()
        except LifecycleError:
            raise
        except (Exception, SystemExit) as wrong:
            _show(wrong, f"{target} raised when it was called")
    if inspect.iscoroutine(found):
        found.close()
    if not isinstance(found, Hooks):
        raise CallError(f"{target} gives {_kind(found)}, and no Hooks")
    return found


def object_at(target: str) -> object:
    """What `module:Name` names. The working directory is on the import path.

    Raises:
        CallError: if there is no such thing, or the module does not import.
    """
    module_name, _, name = target.partition(":")
    if not name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise CallError(
            f"{target!r} names nothing; write module:Name, such as mypkg.flow:ReviewedTurn or mypkg.hooks:make"
        )
    found: object = _imported(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            offered = [key for key in dir(found) if not key.startswith("_")]
            raise CallError(f"{module_name} has no {name!r}{meant(part, offered)}{_there_is(found)}")
        found = cast(object, getattr(found, part))
    return found


def _there_is(module: object) -> str:
    """What a module of somebody's has of its own that can be meant."""
    held: dict[str, object] = getattr(module, "__dict__", {})
    own = [
        name
        for name, value in held.items()
        if isinstance(value, Hooks) or getattr(value, "__module__", None) == getattr(module, "__name__", "")
    ]
    named = [name for name in own if not name.startswith("_")]
    more = " and others" if len(named) > _MOST_NAMED else ""
    return f"; it has {', '.join(named[:_MOST_NAMED])}{more}" if named else ""


def meant(given: str, legal: Any) -> str:
    """A suggestion, if one of `legal` is like what was given; else nothing."""
    close = get_close_matches(given, list(legal), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _imported(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except LifecycleError:
        raise  # a definition or a listener is wrong: its sentence says where
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise CallError(f"there is no module {missing.name!r} here; the import path begins with {folder}") from None
        _show(missing, f"the module {name} does not import")
    except (Exception, SystemExit) as wrong:
        _show(wrong, f"the module {name} does not import")


def _show(wrong: BaseException, what: str) -> NoReturn:
    """Print the traceback of somebody's own code, without the frames that led there."""
    at = wrong.__traceback__
    while at is not None and _is_between(at):
        at = at.tb_next
    print(printable("".join(traceback.format_exception(type(wrong), wrong, at))), file=sys.stderr, end="")
    raise CallError(f"{what}; its own traceback stands above") from None


def _is_between(at: TracebackType) -> bool:
    file = at.tb_frame.f_code.co_filename
    return file == __file__ or file == importlib.__file__ or file.startswith("<frozen importlib")


def _kind(found: Any) -> str:
    name = type(found).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
