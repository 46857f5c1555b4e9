"""The element type that a term carries, and how generated C++ holds it.

Arithmetic is f32 (f64 where an operand is f64), integers stay integers, comparisons give bool.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from nautile import types
from nautile.codegen.tile import Ref
from nautile.errors import LoweringError
from nautile.operations import OPERATIONS
from nautile.terms import (
    Apply,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    children,
    walk,
)
from nautile.types import carried as carrier

__all__ = ["CPP", "carrier", "convert", "dtype_of", "interval", "literal", "widest"]

CPP = {"bool": "bool", "i32": "int", "i64": "nt_i64", "f32": "float", "f64": "double"}
Interval = tuple[int, int]


def widest(*dtypes: str) -> str:
    """The carrier that holds values of all the given types, storage types among them."""
    return types.widest(*(carrier(d) for d in dtypes))


@lru_cache(maxsize=1 << 14)
def dtype_of(root: Term) -> str:
    """The type of a term: a Load, Ref or Cast carries its own, other terms a carrier type."""
    known: dict[Term, str] = {}
    for term in walk(root):
        known[term] = _dtype(term, tuple(known[c] for c in children(term)))
    return known[root]


def _dtype(term: Term, inner: tuple[str, ...]) -> str:
    match term:
        case Ref(tile):
            return tile.dtype
        case Load(buffer, _):
            return buffer.dtype
        case Cast(dtype, _):
            return dtype
        case Const(value):
            return _constant(value)
        case Index(_):
            return "i32"
        case Apply(operation, _):
            return _apply(operation, inner)
        case Reduce(monoid, _, _):
            return _reduce(monoid, inner[0])
        case Running(_) | Before(_):
            return inner[0]
        case Online():
            return widest("f32", inner[1])
    raise LoweringError(f"no type for {type(term).__name__}")


def _constant(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "f32"


def _apply(operation: str, inner: tuple[str, ...]) -> str:
    result = OPERATIONS[operation].result
    if result == "bool":
        return "bool"
    if result == "float":
        return widest("f32", *inner)
    if operation == "where":
        return widest(*inner[1:])
    return widest(*inner) if operation in ("max", "min") else widest("i32", *inner)


def _reduce(monoid: str, inner: str) -> str:
    if monoid in ("any", "all"):
        return "bool"
    if monoid in ("argmax", "argmin"):
        return "i32"
    return carrier(inner) if monoid in ("max", "min") else widest("i32", inner)


def interval(root: Term) -> Interval | None:
    """Bounds (inclusive) on an integer term of indices, or None where none are known."""
    known: dict[Term, Interval | None] = {}
    for term in walk(root):
        known[term] = _interval(term, [known[c] for c in children(term)])
    return known[root]


def _interval(term: Term, inner: list[Interval | None]) -> Interval | None:
    if isinstance(term, Const) and type(term.value) is int:
        return term.value, term.value
    if isinstance(term, Index):
        return 0, term.axis.extent - 1
    bounds = [b for b in inner if b is not None]
    if not isinstance(term, Apply) or len(bounds) != len(inner):
        return None
    return _combine(term.operation, bounds)


def _combine(operation: str, b: list[Interval]) -> Interval | None:
    match operation:
        case "add":
            return b[0][0] + b[1][0], b[0][1] + b[1][1]
        case "sub":
            return b[0][0] - b[1][1], b[0][1] - b[1][0]
        case "neg":
            return -b[0][1], -b[0][0]
        case "abs":
            ends = [abs(x) for x in b[0]]
            return 0 if b[0][0] <= 0 <= b[0][1] else min(ends), max(ends)
        case "mul":
            ends = [x * y for x in b[0] for y in b[1]]
            return min(ends), max(ends)
        case "floordiv" if b[1][0] > 0:
            ends = [x // y for x in b[0] for y in b[1]]
            return min(ends), max(ends)
        case "mod" if b[1][0] > 0:
            inside = b[1][0] == b[1][1] and b[0][0] >= 0 and b[0][1] < b[1][0]
            return b[0] if inside else (0, b[1][1] - 1)
        case "max":
            return max(b[0][0], b[1][0]), max(b[0][1], b[1][1])
        case "min":
            return min(b[0][0], b[1][0]), min(b[0][1], b[1][1])
    return None


def literal(value: bool | int | float, kind: str) -> str:
    """A constant in C++ of the given carrier."""
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("i32", "i64"):
        suffix = "" if kind == "i32" else "LL"
        return f"({int(value)}{suffix})" if value < 0 else f"{int(value)}{suffix}"
    return _float_literal(float(value), kind)


def _float_literal(value: float, kind: str) -> str:
    cast = "(double)" if kind == "f64" else ""
    if math.isnan(value):
        return f"({cast}nt_nan())"
    if math.isinf(value) or (kind == "f32" and abs(value) > 3.4028235677973366e38):
        return f"({'-' if value < 0 else ''}{cast}nt_inf())"
    spelled = repr(value) if kind == "f64" else _shortest(value)
    return f"({spelled})" if spelled.startswith("-") else spelled


def _shortest(value: float) -> str:
    digits = str(np.float32(value))
    return f"{digits}f" if "." in digits or "e" in digits else f"{digits}.0f"


def convert(text: str, source: str, target: str) -> str:
    """The expression in the carrier of `target`."""
    a, b = carrier(source), carrier(target)
    if a == b:
        return text
    return f"({text} != 0)" if b == "bool" else f"(({CPP[b]}){text})"
