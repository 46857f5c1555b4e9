"""Side conditions: Python syntax trees to conditions.

```
condition ::= axis (not)? in name | name == carrier | name (> >= < <= !=) 0
            | name != number               (a constant other than this)
            | name (> >= < <=) number      (a constant, or a sign that shows it)
            | extent (== != < <= > >=) extent
            | kind(name)                   integer float boolean finite unbounded tame still rough
            | type(name) == dtype          the type that the term carries: bool i32 i64 f32 f64
            | apart(name, carrier) | bare[axis](name) | chain[axis](name, name, name)
extent    ::= expressions of size(j), J, upper-case names, numbers, integer names and constants,
              at least one extent or arithmetic operation among them
```
"""

from __future__ import annotations

import ast
import math

from .conditions import (
    Apart,
    Bare,
    Bound,
    Carrier,
    Chain,
    Compare,
    Condition,
    Differs,
    Free,
    Kind,
    NotFree,
    Sign,
)
from .law import Call, Fold, Name, Number, Pattern, Size, parts
from .patterns import Reader, carrier_of

__all__ = ["KINDS", "condition_of"]

KINDS = ("integer", "float", "boolean", "finite", "unbounded", "tame", "still", "rough")
_TYPES = ("bool", "i32", "i64", "f32", "f64")
_SIGNS = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.NotEq: "!="}
_RELATIONS: dict[type[ast.cmpop], str] = {**_SIGNS, ast.Eq: "=="}
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "neg")
_UNKNOWN = (
    "unknown condition; write j not in a, m == max[j](b), a > 0 (or >= < <= !=), a != 1, a <= 1, "
    f"size(j) > 1, J == P * Q, type(a) == f64 or one of {', '.join(KINDS)} of a name"
)


def condition_of(reader: Reader, node: ast.expr) -> Condition:
    """The condition that an expression spells; anything else is refused at its place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = _compared(reader, node.left, node.ops[0], node.comparators[0])
        if found is not None:
            return found
    return _called(reader, node) or reader.refuse(node, "unknown-condition", _UNKNOWN)


def _compared(
    reader: Reader, left: ast.expr, operation: ast.cmpop, right: ast.expr
) -> Condition | None:
    if isinstance(left, ast.Name) and isinstance(right, ast.Name):
        if isinstance(operation, ast.NotIn):
            return NotFree(left.id, right.id)
        if isinstance(operation, ast.In):
            return Free(left.id, right.id)
    typed = _typed(reader, left, operation, right)
    if typed is not None or type(operation) not in _RELATIONS:
        return typed
    if isinstance(left, ast.Name) and left.id[0].islower() and left.id not in reader.axes:
        found = _of_name(reader, left.id, operation, right)
        if found is not None:
            return found
    return _extents(reader, left, _RELATIONS[type(operation)], right)


def _typed(
    reader: Reader, left: ast.expr, operation: ast.cmpop, right: ast.expr
) -> Condition | None:
    match left, operation, right:
        case ast.Call(ast.Name("type"), [ast.Name(name)], []), ast.Eq(), ast.Name(dtype):
            if dtype not in _TYPES:
                reader.refuse(right, "unknown-condition", f"terms carry {', '.join(_TYPES)}")
            return Kind(dtype, name)
    return None


def _of_name(reader: Reader, name: str, operation: ast.cmpop, right: ast.expr) -> Condition | None:
    value = _literal(right)
    if value is not None and type(operation) in _SIGNS:
        relation = _SIGNS[type(operation)]
        if value == 0:
            return Sign(name, relation)
        return Differs(name, value) if relation == "!=" else Bound(name, relation, value)
    if isinstance(operation, ast.Eq) and value is None:
        pattern = reader.pattern(right)
        if any(isinstance(p, Fold) for p in parts(pattern)) or not _is_extent(pattern):
            return Carrier(name, carrier_of(reader, right))
    return None


def _literal(node: ast.expr) -> float | None:
    """The finite number that an expression is, with its sign."""
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1.0
    if not isinstance(node, ast.Constant) or type(node.value) not in (int, float):
        return None
    value = _float(node.value)
    return sign * value if math.isfinite(value) else None


def _float(value: int | float | str | bytes | complex | object | None) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _extents(reader: Reader, left: ast.expr, relation: str, right: ast.expr) -> Condition | None:
    one, two = reader.pattern(left), reader.pattern(right)
    if not (_is_extent(one) and _is_extent(two)):
        return None
    told = [p for side in (one, two) for p in parts(side) if _tells(p)]
    return Compare(one, relation, two) if told else None


def _tells(pattern: Pattern) -> bool:
    """True for what makes a comparison one of extents."""
    return isinstance(pattern, (Size, Call)) or (
        isinstance(pattern, Name) and pattern.name[0].isupper()
    )


def _is_extent(pattern: Pattern) -> bool:
    match pattern:
        case Size() | Name():
            return True
        case Number(value):
            return type(value) in (int, float)
        case Call(operation, arguments):
            return operation in _ARITHMETIC and all(map(_is_extent, arguments))
    return False


def _called(reader: Reader, node: ast.expr) -> Condition | None:
    match node:
        case ast.Call(
            ast.Subscript(ast.Name("chain"), axis),
            [ast.Name(name), ast.Name(other), ast.Name(third)],
            [],
        ):
            return Chain(reader.axis(axis), name, other, third)
        case ast.Call(ast.Subscript(ast.Name("bare"), axis), [ast.Name(name)], []):
            return Bare(reader.axis(axis), name)
        case ast.Call(ast.Name("apart"), [ast.Name(name), ast.Name(carrier)], []):
            return Apart(name, carrier)
        case ast.Call(ast.Name("apart")):
            reader.refuse(node, "arity", "write apart(name, carrier)")
        case ast.Call(ast.Name(kind), [ast.Name(name)], []) if kind in KINDS:
            return Kind(kind, name)
        case ast.Call(ast.Name(kind)) if kind in KINDS:
            reader.refuse(node, "arity", f"write {kind}(name)")
    return None
