"""Reading hooks: what can be told of listeners from their source, before anything runs, and what looks wrong.

It reads, and guesses nothing: where a source cannot be had or followed, a listener may do anything and nothing is said.
Knows nothing of how it is shown.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Any, Literal, TypeAlias

from lifecycle.services.hooks import Hooks
from lifecycle.services.ordering import settled
from lifecycle.services.points import HookPoint, Mode
from lifecycle.services.waterfall import Listener

Finding: TypeAlias = Literal["shadowed", "order", "unreachable"]
_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_Returned: TypeAlias = "tuple[int, ast.expr | None]"
"""The line of a return, and one of the values that it may give back."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the source of a listener says.

    Args:
        verdicts: What it may answer of its own, by name, as far as it names it.
        alone: It may answer without asking the rest of the waterfall, or the round.
        never_asks: It never asks the rest: nobody further in runs.
        ignores: It asks the rest and throws the answer away.
        changes: It may answer something else than the rest did.
        unreachable: Verdicts that stand behind a return, where no run comes.
    """

    verdicts: tuple[str, ...] = ()
    alone: bool = False
    never_asks: bool = False
    ignores: bool = False
    changes: bool = False
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that looks wrong at a point: which rule says so, in one sentence, and which listeners it is about."""

    point: str
    finding: Finding
    sentence: str
    listeners: tuple[str, ...]


def read(point: HookPoint, listener: Listener) -> Reading | None:
    """What the source of a listener at this point says; None if it cannot be read."""
    function = _source(listener.function)
    if function is None or (point.mode is Mode.WATERFALL and not function.args.args):
        return None
    returned = [one for node in _own(function) for one in _returned(node)]
    dead = [one for node in _dead(function) for one in _returned(node)]
    named = {verdict.__name__ for verdict in point.verdicts if verdict is not None}
    verdicts = _named(returned, named)
    unreachable = tuple(name for name in _named(dead, named) if name not in _named(_without(returned, dead), named))
    if point.mode is not Mode.WATERFALL:
        always = bool(point.verdicts) and _always_answers(function, returned)
        return Reading(verdicts, alone=bool(verdicts), never_asks=always, unreachable=unreachable)
    return _wrapper(function, _without(returned, dead), verdicts, unreachable)


def warnings(hooks: Hooks) -> Iterator[Warned]:
    """All that looks wrong with a registry, point by point."""
    yield from _misspelt(hooks)
    for name, point in hooks.points.items():
        chain = hooks.listeners(name)
        readings = [read(point, listener) for listener in chain]
        for n, (listener, reading) in enumerate(zip(chain, readings, strict=True)):
            if reading is not None:
                yield from _of(point, hooks, listener, reading, list(zip(chain, readings, strict=True))[n + 1 :])


def _misspelt(hooks: Hooks) -> Iterator[Warned]:
    """Sets that say where they come beside one that is not there, where one is there that is called nearly so."""
    for of, place in hooks.order.items():
        points = [name for name in hooks.points if any(one.of == of for one in hooks.listeners(name))]
        for other in sorted((place.before | place.after) - hooks.order.keys()):
            for near in get_close_matches(other, hooks.order.keys() - {of}, 1) if points else ():
                how = "before" if other in place.before else "after"
                sentence = f"{of} is to come {how} {other!r}, which is not there; did you mean {near!r}?"
                yield Warned(points[0], "order", sentence, ())


_Rest: TypeAlias = "Sequence[tuple[Listener, Reading | None]]"


def _of(point: HookPoint, hooks: Hooks, listener: Listener, reading: Reading, inner: _Rest) -> Iterator[Warned]:
    name = point.name
    for verdict in reading.unreachable:
        sentence = f"{listener.name} names {verdict} behind a return, where no run comes"
        yield Warned(name, "unreachable", sentence, (listener.name,))
    names = tuple(other.name for other, _ in inner)
    if not names:
        return
    if reading.never_asks:
        how = "never calls next()" if point.mode is Mode.WATERFALL else "always answers"
        sentence = f"{listener.name} {how}, so {_listed(names)} never run{'s' if len(names) == 1 else ''} there"
        yield Warned(name, "shadowed", sentence, (listener.name, *names))
        return
    if reading.ignores:
        sentence = f"{listener.name} throws away what next() returned, so nothing that {_listed(names)} answers counts"
        yield Warned(name, "unreachable", sentence, (listener.name, *names))
        return
    for other, further in inner:
        decides = reading.alone and further is not None and (further.alone or further.changes)
        if decides and other.of != listener.of and not settled(listener.of, other.of, hooks.order):
            sentence = (
                f"{listener.name} may answer without asking {other.name}, which decides too, and nothing says which of "
                "their sets comes first; say so with before= or after="
            )
            yield Warned(name, "order", sentence, (listener.name, other.name))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


# -- reading a function ------------------------------------------------------------------------------------------


def _source(function: Callable[..., Any]) -> _Function | None:
    """The definition of a function, method or partial; None where there is none, as for a lambda."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004  # the method, not whether it exists
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    first = tree.body[0] if tree.body else None
    if not isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    return first if first.name == getattr(function, "__name__", None) else None  # else it only stands around a lambda


def _returned(node: ast.AST) -> Iterator[_Returned]:
    todo = [node.value] if isinstance(node, ast.Return) else []
    while todo:
        value = todo.pop(0)
        if isinstance(value, ast.IfExp):
            todo += [value.body, value.orelse]
        else:
            yield node.lineno, value  # type: ignore[attr-defined]  # of a return


def _wrapper(
    function: _Function, returned: Sequence[_Returned], verdicts: tuple[str, ...], unreachable: tuple[str, ...]
) -> Reading:
    next = function.args.args[-1].arg
    uses = [node for node in _own(function) if isinstance(node, ast.Name) and node.id == next]
    calls = [node for node in _own(function) if _is_call(node, next)]
    if not uses:
        return Reading(verdicts, alone=True, never_asks=True, changes=True, unreachable=unreachable)
    if len(calls) < len(uses):  # it is handed on: whoever gets it may call it
        return Reading(verdicts, alone=bool(verdicts), changes=True, unreachable=unreachable)
    thrown = [node for node in _own(function) if _throws_away(node, next, function)]
    answers = {
        target.id
        for node in _own(function)
        if isinstance(node, ast.Assign) and _asks(node.value, next)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    asked = min((one.lineno for one in _surely(function.body) if _asks_at_once(one, next)), default=inf)
    plain = [one for one in returned if _passes_on(one[1], next, answers)]
    return Reading(
        verdicts,
        alone=any(
            line < asked and not _asks_within(value, next) and not _mentions(value, answers)
            for line, value in _without(returned, plain)
        ),
        ignores=len(thrown) == len(calls),
        changes=len(plain) < len(returned),
        unreachable=unreachable,
    )


def _throws_away(node: ast.AST, next: str, function: _Function) -> bool:
    """Whether a statement asks the rest, and nobody ever looks at the answer."""
    if isinstance(node, ast.Expr):
        return _asks(node.value, next)
    if not isinstance(node, ast.Assign) or not _asks(node.value, next):
        return False
    looked_at = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return all(isinstance(target, ast.Name) and target.id not in looked_at for target in node.targets)


def _surely(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that every run comes by, unless it has ended before."""
    for one in body:
        yield one
        if isinstance(one, (ast.Try, ast.With, ast.AsyncWith)):
            yield from _surely(one.body)


def _asks_at_once(statement: ast.stmt, next: str) -> bool:
    return isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) and _asks(statement.value, next)


def _own(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions within it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def _dead(function: _Function) -> Iterator[ast.AST]:
    """The nodes behind a statement that leaves their block for good."""
    for node in (function, *_own(function)):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list):
                statements = [one for one in block if isinstance(one, ast.stmt)]  # pyright: ignore[reportUnknownVariableType]
                ends = [n for n, one in enumerate(statements) if isinstance(one, (ast.Return, ast.Raise))]
                for one in statements[ends[0] + 1 :] if ends else []:
                    yield from ast.walk(one)


def _always_answers(function: _Function, returned: Sequence[_Returned]) -> bool:
    last = function.body[-1]
    silent = [value for _, value in returned if value is None or _is_constant(value, (None, False))]
    return isinstance(last, ast.Return) and not silent


def _is_constant(value: ast.expr, values: tuple[object, ...]) -> bool:
    return isinstance(value, ast.Constant) and any(value.value is one for one in values)


def _without(ones: Sequence[_Returned], others: Sequence[_Returned]) -> list[_Returned]:
    return [one for one in ones if one not in others]


def _named(returned: Sequence[_Returned], names: set[str]) -> tuple[str, ...]:
    values = [value for _, value in returned if value is not None]
    found = (inner.id for value in values for inner in ast.walk(value) if isinstance(inner, ast.Name))
    return tuple(dict.fromkeys(name for name in found if name in names))


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _asks(value: ast.AST | None, next: str) -> bool:
    """Whether a value is exactly what the rest answers."""
    return value is not None and _is_call(value.value if isinstance(value, ast.Await) else value, next)


def _asks_within(value: ast.AST | None, next: str) -> bool:
    return value is not None and any(_is_call(inner, next) for inner in ast.walk(value))


def _passes_on(value: ast.expr | None, next: str, answers: set[str]) -> bool:
    return _asks(value, next) or (isinstance(value, ast.Name) and value.id in answers)


def _mentions(value: ast.expr | None, names: set[str]) -> bool:
    return value is not None and any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(value))
