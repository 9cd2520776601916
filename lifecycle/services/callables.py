"""What can be said of a callable before it is called: its name, and how its body runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def name_of(function: object) -> str:
    """The module and the qualified name of a function, method, partial or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or '?'}.{getattr(named, '__qualname__', repr(function))}"


def is_async(function: object) -> bool:
    """Whether calling it makes a coroutine."""
    return _either(inspect.iscoroutinefunction, function)


def is_async_generator(function: object) -> bool:
    """Whether calling it makes an async generator."""
    return _either(inspect.isasyncgenfunction, function)


def is_generator(function: object) -> bool:
    """Whether calling it makes a generator, so that its body does not run."""
    return _either(inspect.isgeneratorfunction, function)


def close(made: object) -> None:
    """Close a coroutine that nobody is going to await, so that Python does not warn of it later."""
    if inspect.iscoroutine(made):
        made.close()


def _either(kind: Callable[[Any], bool], function: object) -> bool:
    """`kind` of the function itself, or of the method that calls an object."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004  # the method is wanted, not whether it exists
