"""Named operations written out: their lines read with the arguments of a call in place.

Every value of an operation is a pattern over the one axis of the call. A line whose index is not
the one at hand (as where a running sum compares two) has no pattern and is refused.
"""

from __future__ import annotations

import ast
import difflib
from typing import TYPE_CHECKING, NoReturn

from nautile.dtypes import DTYPES
from nautile.errors import SourceError
from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS

from .law import Call, Fold, Pattern, Size, Stream, direct, parts
from .named import CALLS, Operation, Unfolding, bound_values, prelude

if TYPE_CHECKING:
    from .patterns import Reader

__all__ = ["folded", "inner_fold", "local_element", "local_name", "unfolded"]

_DEPTH = 60
_WORDS = ("mean", "running", "before", "repair", "online", "streamed", "size")


def folded(name: str, axis: str, body: Pattern) -> Pattern:
    """The reduction that a reducer's name spells; a mean is a sum over an extent."""
    if name == "mean":
        return Call("div", (Fold("sum", axis, body), Size(axis)))
    return Stream("running", "max", axis, body) if name == "running" else Fold(name, axis, body)


def local_name(reader: Reader, scope: Unfolding, node: ast.Name) -> Pattern:
    """The meaning of a name in an operation's line."""
    if node.id == scope.size:
        return Size(scope.axis)
    found = scope.value(node.id, indexed=False)
    if found is not None:
        return _used(reader, found)
    found = scope.position(node.id)
    return found or reader.refuse(node, "unsupported", f"{node.id} cannot stand in a law")


def local_element(reader: Reader, scope: Unfolding, node: ast.Subscript, name: str) -> Pattern:
    """The meaning of `e[i]` in an operation's line, i its index."""
    known = scope.value(name, indexed=True)
    if known is None or not isinstance(node.slice, ast.Name) or node.slice.id != scope.index:
        reader.refuse(node, "unsupported", f"{ast.unparse(node)[:40]} cannot stand in a law")
    return _used(reader, known)


def _used(reader: Reader, value: Pattern) -> Pattern:
    """A value that stands in a law once more; its parts count again."""
    reader.counted(sum(1 for _ in parts(value)))
    return value


def inner_fold(
    reader: Reader, scope: Unfolding, node: ast.Call, index: ast.expr, name: str, depth: int
) -> Pattern:
    """A reduction in an operation's line: its index walks the axis of the call."""
    outer = scope.index
    scope.index = _axis_name(reader, index)
    if len(node.args) != 1:
        reader.refuse(node, "unsupported", f"{name} takes one operand")
    body = reader.pattern(node.args[0], depth)
    scope.index = outer
    return folded(name, scope.axis, body)


def _axis_name(reader: Reader, node: ast.expr) -> str:
    named = node.lower if isinstance(node, ast.Slice) else node
    if not isinstance(named, ast.Name):
        reader.refuse(node, "unsupported", "an operation of a law walks one axis")
    return named.id


def unfolded(
    reader: Reader, node: ast.Call, name: str, index: ast.expr | None, depth: int
) -> Pattern:
    """A named operation, written out."""
    operation = reader.operations.get(name) or prelude().get(name)
    if operation is None:
        unknown(reader, node.func, name)
    if depth > _DEPTH - CALLS:
        reader.refuse(node, "depth", f"operations nest more than {CALLS} deep")
    if (index is None) != (not operation.size):
        form = f"{name}[j](..)" if operation.size else f"{name}(..)"
        reader.refuse(node, "arity", f"write {form}")
    axis, arguments = _passed(reader, node, index, depth)
    values = bound_values(operation, arguments)
    if isinstance(values, str):
        reader.refuse(node, "arity", values)
    outer, reader.unfolding = reader.unfolding, Unfolding(axis, operation.size, values)
    try:
        return _result(reader, operation, depth)
    except SourceError as error:
        if outer is not None:
            raise
        reader.refuse(node, "unsupported", f"{name} is no operation of a law: {error.message}")
    finally:
        reader.unfolding = outer


def _passed(
    reader: Reader, node: ast.Call, index: ast.expr | None, depth: int
) -> tuple[str, tuple[Pattern, ...]]:
    """The axis of a call and its arguments, in which the call's index is that axis."""
    scope = reader.unfolding
    if scope is None:
        axis = reader.axis(index) if index is not None else ""
        return axis, tuple(reader.pattern(a, depth) for a in node.args)
    outer = scope.index
    if index is not None:
        scope.index = _axis_name(reader, index)
    arguments = tuple(reader.pattern(a, depth) for a in node.args)
    scope.index = outer
    return scope.axis, arguments


def _result(reader: Reader, operation: Operation, depth: int) -> Pattern:
    """Read an operation's lines one after the other."""
    scope = reader.unfolding
    assert scope is not None
    for line in operation.lines:
        match line:
            case ast.Assign([ast.Name(name)], value):
                scope.index = None
                scope.values[name] = False, _line(reader, value, depth)
            case ast.Assign([ast.Subscript(ast.Name(name), index)], value):
                scope.index = _axis_name(reader, index)
                scope.values[name] = True, _line(reader, value, depth)
            case ast.Return(ast.Name(name)) if name in scope.values:
                return scope.values[name][1]
            case ast.Return(value) if value is not None:
                return reader.pattern(value, depth + 1)
            case ast.Expr(ast.Constant()):
                continue
            case _:
                reader.refuse(line, "unsupported", "its lines are not plain definitions")
    return reader.refuse(operation.lines[-1], "unsupported", "it returns nothing")


def _line(reader: Reader, value: ast.expr, depth: int) -> Pattern:
    pattern = reader.pattern(value, depth + 1)
    if _deep(pattern) > _DEPTH:
        reader.refuse(value, "depth", f"nested more than {_DEPTH} deep")
    return pattern


def _deep(pattern: Pattern) -> int:
    return 1 + max(map(_deep, direct(pattern)), default=0)


def unknown(reader: Reader, node: ast.AST, name: str) -> NoReturn:
    """Refuse an operation that nobody defines, naming the nearest one."""
    called = [n for n, o in OPERATIONS.items() if not o.infix]
    known = [*called, *MONOIDS, *DTYPES, *_WORDS, *prelude(), *reader.operations]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    reader.refuse(node, "unknown-operation", f"unknown operation {name}{hint}")
