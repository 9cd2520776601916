"""Factories: what makes the hooks of a check, and what is wrong with one that does not. One sentence each."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias, cast

from lifecycle.errors import HookFactoryError
from lifecycle.services.callables import close, name_of
from lifecycle.services.hooks import Hooks

Factory: TypeAlias = Callable[[], Hooks]


def factory_of(given: object) -> Factory:
    """The function that makes hooks: what was given, or what that names.

    Raises:
        HookFactoryError: if it names none; one sentence.
    """
    if isinstance(given, str):
        given = _named(given)
    if isinstance(given, ModuleType):
        for name in ("hooks", "build_hooks"):
            if callable(getattr(given, name, None)):
                return cast("Factory", getattr(given, name))
        raise HookFactoryError(f"the module {given.__name__} has no function `hooks` or `build_hooks` that makes hooks")
    if isinstance(given, Hooks):
        raise HookFactoryError("these are Hooks; give the function that makes them, so that each example has its own")
    if not callable(given):
        raise HookFactoryError(f"{given!r} is no function that makes Hooks")
    try:
        inspect.signature(given).bind()
    except ValueError:
        pass  # some functions written in C do not tell
    except TypeError as wrong:
        raise HookFactoryError(f"{name_of(given)} cannot be called without arguments: {wrong}") from None
    return cast("Factory", given)


def _named(address: str) -> object:
    module, _, name = address.partition(":")
    try:
        found: object = importlib.import_module(module)
    except Exception as wrong:
        raise HookFactoryError(f"the module {module!r} does not import: {type(wrong).__name__}: {wrong}") from wrong
    for part in name.split(".") if name else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            raise HookFactoryError(f"the module {module!r} has no {name!r}") from None
    return found


def fresh(make: Factory) -> Hooks:
    """What the factory makes.

    Raises:
        HookFactoryError: if it raises, or makes something else; one sentence, and the cause.
    """
    try:
        made: Any = make()
    except (Exception, SystemExit) as wrong:
        raise HookFactoryError(f"{name_of(make)} raises {type(wrong).__name__}: {wrong}") from wrong
    if inspect.isawaitable(made):
        close(made)
        raise HookFactoryError(f"{name_of(make)} is an async function; make the hooks in a plain def")
    if not isinstance(made, Hooks):
        raise HookFactoryError(
            f"{name_of(make)} returns None, and no Hooks; does it lack a return?"
            if made is None
            else f"{name_of(make)} returns {made!r}, and no Hooks"
        )
    return made
