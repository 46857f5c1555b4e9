"""The type that a term's value carries: f32, f64, i32, i64 or bool.

Storage types narrower than f32 widen when they are read (`Load`) and after a rounding (`Cast`), so
that arithmetic is f32 unless a value is f64; integers stay integers, i8 widens to i32.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from nautile.dtypes import DTYPES
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

__all__ = ["carried", "type_of", "type_over", "widest"]

_ORDER = ("bool", "i32", "i64", "f32", "f64")


def carried(storage: str) -> str:
    """The type that arithmetic on elements of a storage type has."""
    kind = DTYPES[storage].kind
    if kind == "float":
        return "f64" if storage == "f64" else "f32"
    return "i32" if storage == "i8" else storage


def widest(*dtypes: str) -> str:
    """The type that values of several carried types meet in."""
    return max(dtypes, key=_ORDER.index)


def type_of(term: Term, known: MutableMapping[Term, str] | None = None) -> str:
    """The carried type of a term; `known` keeps those of subterms between calls."""
    table: MutableMapping[Term, str] = {} if known is None else known
    if term not in table:
        for part in walk(term):
            if part not in table:
                table[part] = type_over(part, tuple(table[c] for c in children(part)))
    return table[term]


def type_over(term: Term, inner: tuple[str, ...]) -> str:
    """The carried type of a term, given those of its children."""
    match term:
        case Const(value):
            return _of_value(value)
        case Index(axis):
            return _of_extent(axis.extent)
        case Load(buffer, _):
            return carried(buffer.dtype)
        case Cast(dtype, _):
            return carried(dtype)
        case Apply(operation, _):
            return _of_operation(operation, inner)
        case Reduce(monoid, axis, _):
            return _of_reduction(monoid, axis.extent, inner[0])
        case Running() | Before():
            return inner[0]
        case Online():
            return widest("f32", *inner)
    raise TypeError(f"not a term: {term!r}")


def _of_value(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "f32"
    return _of_extent(abs(value))


def _of_extent(extent: int) -> str:
    return "i32" if extent < 2**31 else "i64"


def _of_operation(operation: str, inner: tuple[str, ...]) -> str:
    result = OPERATIONS[operation].result
    if result == "bool":
        return "bool"
    if operation == "where":
        return widest(*inner[1:])
    return widest("f32", *inner) if result == "float" else widest(*inner)


def _of_reduction(monoid: str, extent: int, inner: str) -> str:
    if monoid in ("any", "all"):
        return "bool"
    if monoid in ("argmax", "argmin"):
        return _of_extent(extent)
    return "i32" if inner == "bool" else inner
