"""The largest magnitude that a term can have where its inputs are finite: an interval analysis that
is never too small, and says infinity where it does not know.

It tells whether a value fits into a type of small range: a product of f16 values may not, the
probabilities of a softmax do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from nautile.dtypes import DTYPES
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Reduce,
    Running,
    Term,
    substitute,
    walk,
)

__all__ = ["magnitude"]

_TRUTHS = frozenset({"or", "and", "not", "lt", "le", "gt", "ge", "eq", "ne"})
_ONE = frozenset({"sigmoid", "tanh", "erf", "sin", "cos", "sign"}) | _TRUTHS
_SAME = frozenset({"neg", "abs", "min", "max"})
_WHOLE = frozenset({"floor", "round"})
_EXPONENTS = {"exp": math.e, "exp2": 2.0}


def magnitude(root: Term) -> float:
    """The bound of a term; coordinates of what it loads do not matter."""
    found: dict[Term, float] = {}
    for term in walk(root):
        found[term] = _bound(term, found)
    return found[root]


def _bound(term: Term, known: Mapping[Term, float]) -> float:
    match term:
        case Const(value):
            return abs(float(value))
        case Index(axis):
            return float(axis.extent)
        case Load(buffer, _):
            return _range(buffer.dtype)
        case Cast(dtype, argument):
            return 1.0 if dtype == "bool" else known[argument]
        case Reduce(monoid, axis, body):
            return _reduced(monoid, axis, known[body])
        case Running(reduction) | Before(reduction):
            return known[reduction]
        case Apply(operation, arguments):
            return _applied(operation, arguments, known)
    return math.inf


def _range(dtype: str) -> float:
    """The largest value of a type of small range; infinity for those that have the range of f32."""
    found = DTYPES[dtype]
    if found.kind == "integer":
        return found.largest + 1
    return math.inf if found.kind == "float" and not found.has_small_range else found.largest


def _reduced(monoid: str, axis: Axis, body: float) -> float:
    if monoid == "sum":
        return _times(body, axis.extent)
    if monoid in ("argmax", "argmin"):
        return float(axis.extent)
    return math.inf if monoid == "prod" else body


def _applied(operation: str, arguments: tuple[Term, ...], known: Mapping[Term, float]) -> float:
    sizes = [known[a] for a in arguments]
    if operation in _ONE:
        return 1.0
    if operation in _EXPONENTS:
        return 1.0 if _nonpositive(arguments[0]) else _power(_EXPONENTS[operation], sizes[0])
    if operation in _SAME:
        return max(sizes)
    if operation in _WHOLE:
        return sizes[0] + 1
    if operation in ("add", "sub"):
        return sum(sizes)
    if operation == "mul":
        return _times(*sizes)
    if operation == "where":
        return max(sizes[1:])
    return _OTHERS.get(operation, _unknown)(arguments, sizes)


_Rule = Callable[[tuple[Term, ...], list[float]], float]


def _unknown(arguments: tuple[Term, ...], sizes: list[float]) -> float:
    return math.inf


def _quotient(arguments: tuple[Term, ...], sizes: list[float]) -> float:
    """A constant divides; a term of a sum of what is never negative is at most that sum."""
    above, below = arguments
    if isinstance(below, Const) and below.value:
        return sizes[0] / abs(float(below.value))
    if isinstance(below, Reduce) and below.monoid == "sum" and _is_term(above, below):
        return 1.0
    return math.inf


def _root(arguments: tuple[Term, ...], sizes: list[float]) -> float:
    return math.sqrt(sizes[0])


_OTHERS: Mapping[str, _Rule] = {"div": _quotient, "sqrt": _root}


def _times(*sizes: float) -> float:
    return 0.0 if 0.0 in sizes else math.prod(sizes)


def _power(base: float, exponent: float) -> float:
    return base**exponent if exponent < 700 else math.inf


def _nonpositive(term: Term) -> bool:
    """Whether a term is x - max(x), at any place of what the maximum was taken over; or a maximum
    so far less one that came later."""
    if not (isinstance(term, Apply) and term.operation in ("sub", "where")):
        return isinstance(term, Const) and term.value <= 0
    if term.operation == "where":
        return all(_nonpositive(a) for a in term.arguments[1:])
    value, most = term.arguments
    if isinstance(most, Running):
        most = most.reduction
        if isinstance(value, Before):
            return value.reduction is most and _is_maximum(most)
        return _is_maximum(most) and isinstance(most, Reduce) and most.body is value
    return isinstance(most, Reduce) and _is_maximum(most) and _has_place(value, most)


def _is_maximum(term: Term) -> bool:
    return isinstance(term, Reduce) and term.monoid == "max"


def _is_term(value: Term, total: Reduce) -> bool:
    """Whether a value is one of those that a sum adds, which are exponentials."""
    body = total.body
    exponential = isinstance(body, Apply) and body.operation in _EXPONENTS
    return exponential and _has_place(value, total)


def _has_place(value: Term, reduction: Reduce) -> bool:
    """Whether the value is the reduction's body at some place of its axis."""
    axis, body = reduction.axis, reduction.body
    same = (a for a in value.free if (a.family, a.extent) == (axis.family, axis.extent))
    return body is value or any(substitute(body, {axis: Index(a)}) is value for a in same)
