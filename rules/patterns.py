"""Expressions of the rule language: Python syntax trees to patterns.

```
pattern ::= name | number | inf | True | False | size(j) | J          J where a fold declares j: J
          | j | name[index, ..]                    a position; a term at positions (see `positions`)
          | P                                      an upper-case name that no fold declares: a size
          | operation(pattern, ..) | named(pattern, ..) | named[j](pattern, ..)   (see `named`)
          | pattern if pattern else pattern | pattern infix pattern | dtype(pattern)
          | monoid[j](pattern) | monoid[j: extent](pattern) | mean[j](pattern)
          | running[j](pattern) | moment(carrier) | moment(streamed[j](..)) | repair(name, slope)
          | online[j](name, slope, body) | streamed[j](repair, offset, body)
moment  ::= running | before
carrier ::= name | monoid[j](pattern) | an expression of reductions over one axis
```

`running[j](a)` is `running(max[j](a))`. Nothing is executed; depth and the
number of a law's parts are bounded.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeGuard

from nautile.dtypes import DTYPES
from nautile.errors import LimitError, SourceError
from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS

from .carriers import stream_axes
from .law import (
    Access,
    Call,
    Fold,
    Moment,
    Name,
    Number,
    Pattern,
    Position,
    Repair,
    Rescaled,
    Round,
    Size,
    Stream,
    Streamed,
    parts,
)
from .named import Operation, Unfolding
from .unfold import folded, inner_fold, local_element, local_name, unfolded

__all__ = ["DEPTH", "PARTS", "Reader", "carrier_of"]

DEPTH = 60
PARTS = 1000  # of one law, named operations unfolded
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
    """Reads patterns of one file. Of the law at hand: `axes` are its index variables, `sizes` maps
    extent names to axes, `extents` are declared extents, `count` its parts so far."""

    filename: str
    lines: list[str]
    operations: dict[str, Operation] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    axes: set[str] = field(default_factory=set)
    extents: list[tuple[str, Pattern]] = field(default_factory=list)
    count: int = 0
    unfolding: Unfolding | None = None

    def refuse(self, node: ast.AST, code: str, message: str) -> NoReturn:
        """Raise the error that points at `node`."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        column = len(text.encode()[:offset].decode(errors="ignore")) + 1
        raise SourceError(
            message, code=code, filename=self.filename, line=line, column=column, text=text
        )

    def begin(self, node: ast.AST) -> None:
        """Forget the law before, and find the index variables and extent names of this one."""
        self.sizes, self.extents, self.count, self.unfolding = {}, [], 0, None
        self.axes = set(_index_names(node))
        for part in ast.walk(node):
            match part:
                case ast.Slice(ast.Name(axis), ast.Name(size), None) if size[0].isupper():
                    self.sizes.setdefault(size, axis)

    def pattern(self, node: ast.AST, depth: int = 0) -> Pattern:
        """The pattern that an expression spells."""
        if depth > DEPTH:
            self.refuse(node, "depth", f"nested more than {DEPTH} deep")
        self.counted(1)
        reader = _READERS.get(type(node))
        if reader is None:
            self.refuse(node, "syntax", f"{type(node).__name__} is not part of the rule language")
        return reader(self, node, depth + 1)

    def counted(self, count: int) -> None:
        """Refuse a law of too many parts."""
        self.count += count
        if self.count > PARTS:
            raise LimitError(f"{self.filename}: a law may have {PARTS} parts")

    def axis(self, node: ast.AST) -> str:
        """The axis of `[j]`, or of `[j: J]`, which also declares its extent."""
        if self.unfolding is not None:
            return self.unfolding.axis
        if isinstance(node, ast.Slice) and node.lower is not None and node.step is None:
            name = self.axis(node.lower)
            if node.upper is None or not self._declares(name, node.upper):
                self.refuse(node, "syntax", "write an extent: [j: J], or [j: J // Q]")
            return name
        if not isinstance(node, ast.Name) or not node.id[0].islower():
            self.refuse(node, "syntax", "an axis is one lower-case name")
        return node.id

    def _declares(self, axis: str, extent: ast.expr) -> bool:
        if isinstance(extent, ast.Name) and self.sizes.get(extent.id) == axis:
            self.extents.append((axis, Size(axis)))
            return True
        pattern = self.pattern(extent)
        self.extents.append((axis, pattern))
        return all(isinstance(p, (Size, Number, Call, Name)) for p in parts(pattern))

    def call(self, operation: str, node: ast.AST, arguments: tuple[Pattern, ...]) -> Pattern:
        """`operation` over the arguments, their number checked."""
        arity = OPERATIONS[operation].arity
        if len(arguments) != arity:
            self.refuse(
                node, "arity", f"{operation} takes {arity} operands, {len(arguments)} given"
            )
        return Call(operation, arguments)


def _index_names(node: ast.AST) -> Iterator[str]:
    """The index variables of a law: axes of reducers, positions of terms, and what is asked of."""
    for part in ast.walk(node):
        match part:
            case ast.Subscript(_, index):
                yield from (n.id for n in ast.walk(index) if _is_index(n))
            case ast.Call(ast.Name("size"), [ast.Name(name)]):
                yield name
            case ast.Compare(ast.Name(name), [ast.In() | ast.NotIn()], _):
                yield name


def _is_index(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id[0].islower()


def _name(reader: Reader, node: ast.Name, depth: int) -> Pattern:
    if node.id in _CONSTANTS:
        return Number(_CONSTANTS[node.id])
    if reader.unfolding is not None:
        return local_name(reader, reader.unfolding, node)
    if node.id in reader.sizes:
        return Size(reader.sizes[node.id])
    if node.id in reader.axes:
        return Position(node.id)
    if not node.id.isascii():
        reader.refuse(node, "syntax", f"{node.id} is no name: letters are those of ASCII")
    return Name(node.id)


def _element(reader: Reader, node: ast.Subscript, depth: int) -> Pattern:
    """A term at positions; in an operation's line, a value along its axis."""
    if not isinstance(node.value, ast.Name):
        reader.refuse(node, "syntax", "only a name takes positions")
    if reader.unfolding is not None:
        return local_element(reader, reader.unfolding, node, node.value.id)
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return Access(node.value.id, (), tuple(reader.pattern(p, depth) for p in places))


def _choice(reader: Reader, node: ast.IfExp, depth: int) -> Pattern:
    arms = (node.test, node.body, node.orelse)
    return Call("where", tuple(reader.pattern(a, depth) for a in arms))


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
        return unfolded(reader, node, name, None, depth)
    return reader.call(name, node, tuple(reader.pattern(a, depth) for a in node.args))


def _indexed(reader: Reader, node: ast.Call, func: ast.Subscript, depth: int) -> Pattern:
    if not isinstance(func.value, ast.Name):
        reader.refuse(func, "syntax", "only a reducer takes an axis")
    name = func.value.id
    known = {*MONOIDS, "mean", "running", "online", "streamed"}
    if name not in known:
        return unfolded(reader, node, name, func.slice, depth)
    if reader.unfolding is not None:
        return inner_fold(reader, reader.unfolding, node, func.slice, name, depth)
    axis = reader.axis(func.slice)
    if name == "online":
        carrier, slope, summand = _named(reader, node, 3, "online[j](carrier, slope, body)", depth)
        return Rescaled(axis, carrier, slope, summand)
    if name == "streamed":
        return _streamed(reader, node, axis, depth)
    return folded(name, axis, reader.pattern(_only(reader, node), depth))


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


_READERS: dict[type[ast.AST], Callable[[Reader, Any, int], Pattern]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.Call: _call,
    ast.Subscript: _element,
    ast.IfExp: _choice,
}
