"""Expressions of the rule language: Python syntax trees to patterns.

```
pattern ::= name | number | inf | True | False | size(j) | J          J where a fold declares j: J
          | operation(pattern, ..) | pattern infix pattern | dtype(pattern)
          | monoid[j](pattern) | monoid[j: J](pattern) | mean[j](pattern)
          | running[j](pattern) | moment(carrier) | moment(streamed[j](..)) | repair(name, slope)
          | online[j](name, slope, body) | streamed[j](repair, offset, body)
moment  ::= running | before
carrier ::= name | monoid[j](pattern) | an expression of reductions over one axis
```

`running[j](a)` is `running(max[j](a))`. Nothing is executed; depth is bounded.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from nautile.dtypes import DTYPES
from nautile.errors import SourceError
from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS

from .carriers import stream_axes
from .law import (
    Call,
    Fold,
    Moment,
    Name,
    Number,
    Pattern,
    Repair,
    Rescaled,
    Round,
    Size,
    Stream,
    Streamed,
)

__all__ = ["DEPTH", "Reader", "carrier_of"]

DEPTH = 60
_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
}
_CALLED = {name for name, operation in OPERATIONS.items() if not operation.infix}
_STREAMS = ("running", "before")
_CONSTANTS = {"inf": float("inf"), "nan": float("nan")}


@dataclass(slots=True)
class Reader:
    """Reads patterns of one file; `sizes` maps the extent names of the law at hand to axes."""

    filename: str
    lines: list[str]
    sizes: dict[str, str] = field(default_factory=dict)

    def refuse(self, node: ast.AST, code: str, message: str) -> NoReturn:
        """Raise the error that points at `node`."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        column = len(text.encode()[:offset].decode(errors="ignore")) + 1
        raise SourceError(
            message, code=code, filename=self.filename, line=line, column=column, text=text
        )

    def pattern(self, node: ast.AST, depth: int = 0) -> Pattern:
        """The pattern that an expression spells."""
        if depth > DEPTH:
            self.refuse(node, "depth", f"nested more than {DEPTH} deep")
        reader = _READERS.get(type(node))
        if reader is None:
            self.refuse(node, "syntax", f"{type(node).__name__} is not part of the rule language")
        return reader(self, node, depth + 1)

    def axis(self, node: ast.AST) -> str:
        """The axis of `[j]`, or of `[j: J]`, which also names the extent."""
        if isinstance(node, ast.Slice) and node.lower is not None and node.step is None:
            name = self.axis(node.lower)
            if not isinstance(node.upper, ast.Name) or not node.upper.id[0].isupper():
                self.refuse(node, "syntax", "write an extent as an upper-case name: [j: J]")
            self.sizes[node.upper.id] = name
            return name
        if not isinstance(node, ast.Name):
            self.refuse(node, "syntax", "an axis is one lower-case name")
        return node.id

    def call(self, operation: str, node: ast.AST, arguments: tuple[Pattern, ...]) -> Pattern:
        """`operation` over the arguments, their number checked."""
        arity = OPERATIONS[operation].arity
        if len(arguments) != arity:
            self.refuse(
                node, "arity", f"{operation} takes {arity} operands, {len(arguments)} given"
            )
        return Call(operation, arguments)


def _name(reader: Reader, node: ast.Name, depth: int) -> Pattern:
    if node.id in _CONSTANTS:
        return Number(_CONSTANTS[node.id])
    if node.id in reader.sizes:
        return Size(reader.sizes[node.id])
    if not node.id[0].islower() or not node.id.isascii():
        reader.refuse(
            node,
            "unbound",
            f"{node.id} is no term: terms are lower case, extents are declared "
            f"as sum[j: {node.id}](..)",
        )
    return Name(node.id)


def _constant(reader: Reader, node: ast.Constant, depth: int) -> Pattern:
    if not isinstance(node.value, (bool, int, float)):
        reader.refuse(node, "syntax", "only numbers and truth values are literals")
    if isinstance(node.value, int) and abs(node.value) >= 2**63:
        reader.refuse(node, "limit", "an integer literal must fit 64 bits")
    return Number(node.value)


def _unary(reader: Reader, node: ast.UnaryOp, depth: int) -> Pattern:
    inner = reader.pattern(node.operand, depth)
    if isinstance(node.op, ast.Not):
        return Call("not", (inner,))
    if not isinstance(node.op, ast.USub):
        reader.refuse(node, "syntax", "of the signs only - is part of the rule language")
    if isinstance(inner, Number) and not isinstance(inner.value, bool):
        return Number(-inner.value)
    return Call("neg", (inner,))


def _binary(reader: Reader, node: ast.BinOp, depth: int) -> Pattern:
    operation = _BINARY.get(type(node.op))
    if operation is None:
        reader.refuse(node, "unknown-operation", f"unknown operator {type(node.op).__name__}")
    sides = reader.pattern(node.left, depth), reader.pattern(node.right, depth)
    return Call(operation, sides)


def _compare(reader: Reader, node: ast.Compare, depth: int) -> Pattern:
    if len(node.ops) != 1 or type(node.ops[0]) not in _BINARY:
        reader.refuse(node, "syntax", "write one comparison at a time, in parentheses")
    sides = reader.pattern(node.left, depth), reader.pattern(node.comparators[0], depth)
    return Call(_BINARY[type(node.ops[0])], sides)


def _boolean(reader: Reader, node: ast.BoolOp, depth: int) -> Pattern:
    operation = _BINARY[type(node.op)]
    patterns = [reader.pattern(value, depth) for value in node.values]
    result = patterns[0]
    for other in patterns[1:]:
        result = Call(operation, (result, other))
    return result


def _call(reader: Reader, node: ast.Call, depth: int) -> Pattern:
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        reader.refuse(node, "syntax", "arguments are given by position")
    if isinstance(node.func, ast.Subscript):
        return _indexed(reader, node, node.func, depth)
    if not isinstance(node.func, ast.Name):
        reader.refuse(node, "syntax", "only named operations can be called")
    name = node.func.id
    if name == "size":
        return Size(reader.axis(_only(reader, node)))
    if name in _STREAMS:
        return _moment(reader, name, _only(reader, node), depth)
    if name == "repair":
        carrier, slope = _named(reader, node, 2, "repair(carrier, slope)", depth)
        return Repair(carrier, slope)
    if name in DTYPES:
        return Round(name, reader.pattern(_only(reader, node), depth))
    if name not in _CALLED:
        _unknown(reader, node.func, name)
    return reader.call(name, node, tuple(reader.pattern(a, depth) for a in node.args))


def _indexed(reader: Reader, node: ast.Call, func: ast.Subscript, depth: int) -> Pattern:
    if not isinstance(func.value, ast.Name):
        reader.refuse(func, "syntax", "only a reducer takes an axis")
    name, axis = func.value.id, reader.axis(func.slice)
    if name == "online":
        carrier, slope, summand = _named(reader, node, 3, "online[j](carrier, slope, body)", depth)
        return Rescaled(axis, carrier, slope, summand)
    if name == "streamed":
        return _streamed(reader, node, axis, depth)
    if name not in (*MONOIDS, "mean", "running"):
        _unknown(reader, func.value, name)
    body = reader.pattern(_only(reader, node), depth)
    if name == "mean":
        return Call("div", (Fold("sum", axis, body), Size(axis)))
    return Stream("running", "max", axis, body) if name == "running" else Fold(name, axis, body)


def _named(reader: Reader, node: ast.Call, count: int, form: str, depth: int) -> Any:
    """The arguments of a form whose first is a carrier's name."""
    if len(node.args) != count or not isinstance(node.args[0], ast.Name):
        reader.refuse(node, "arity", f"write {form}, the carrier a name")
    return [node.args[0].id, *(reader.pattern(a, depth) for a in node.args[1:])]


def _streamed(reader: Reader, node: ast.Call, axis: str, depth: int) -> Pattern:
    if len(node.args) != 3:
        reader.refuse(node, "arity", f"write streamed[{axis}](repair, offset, body)")
    return Streamed(axis, *(reader.pattern(a, depth) for a in node.args))


def _moment(reader: Reader, moment: str, node: ast.expr, depth: int) -> Pattern:
    of = reader.pattern(node, depth)
    if isinstance(of, Fold):
        return Stream(moment, of.monoid, of.axis, of.body)
    if not isinstance(of, (Name, Streamed, Rescaled)) and len(stream_axes(of)) != 1:
        reader.refuse(node, "syntax", "running values are of a carrier: reductions over one axis")
    return Moment(moment, of)


def carrier_of(reader: Reader, node: ast.AST, depth: int = 0) -> Pattern:
    """The reduction, or the expression of reductions over one axis, that a condition spells."""
    pattern = reader.pattern(node, depth)
    if len(stream_axes(pattern)) != 1:
        reader.refuse(node, "syntax", "a reduction such as max[j](a) must stand here")
    return pattern


def _only(reader: Reader, node: ast.Call) -> ast.expr:
    if len(node.args) != 1:
        reader.refuse(node, "arity", f"one operand is expected, {len(node.args)} given")
    return node.args[0]


def _unknown(reader: Reader, node: ast.AST, name: str) -> NoReturn:
    known = [*_CALLED, *MONOIDS, *DTYPES, "mean", "running", "before", "repair"]
    known += ["online", "streamed", "size"]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    reader.refuse(node, "unknown-operation", f"unknown operation {name}{hint}")


_READERS: dict[type[ast.AST], Callable[[Reader, Any, int], Pattern]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.Call: _call,
}
