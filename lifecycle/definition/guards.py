"""Guards: boolean expressions over the fields of a lifecycle's facts, and nothing more than that."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from lifecycle.errors import DefinitionError

Guard: TypeAlias = Callable[[Any], bool]

_PARTS = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.Name,
    ast.Load,
    ast.Compare,
    ast.Constant,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)


def parse(guard: str) -> ast.Expression:
    """The expression that a guard spells.

    Raises:
        DefinitionError: if it is none, or holds more than names, constants, comparisons, and, or, not.
    """
    try:
        tree = ast.parse(guard, mode="eval")
    except SyntaxError as wrong:
        raise DefinitionError(f"the guard {guard!r} is no expression: {wrong.msg}") from wrong
    for node in ast.walk(tree):
        if not isinstance(node, _PARTS):
            raise DefinitionError(f"the guard {guard!r} holds a {type(node).__name__}; facts and comparisons only")
    return tree


def atoms(guard: str) -> Iterator[str]:
    """The names in a guard; none if it is empty. Raises as `parse`."""
    if guard:
        for node in ast.walk(parse(guard)):
            if isinstance(node, ast.Name):
                yield node.id


class _OnFacts(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Attribute(ast.Name("facts", ast.Load()), node.id, ast.Load()), node)


def compile_guard(guard: str) -> Guard:
    """A function of the facts from a guard's expression. Raises as `parse`."""
    body = _OnFacts().visit(parse(guard)).body
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg("facts")], kwonlyargs=[], kw_defaults=[], defaults=[])
    source = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    made: Guard = eval(compile(source, f"<guard {guard}>", "eval"), {"__builtins__": {}})
    return made
