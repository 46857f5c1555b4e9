"""Reductions over a whole axis: contractions where the body is a product, pieces otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nautile.oracle.contraction import contract, factors_of
from nautile.oracle.operands import NARROW, rounded, stored_type
from nautile.oracle.order import added
from nautile.oracle.scope import Positions, Scope, pieces, sizes, weight
from nautile.oracle.values import Value, cast, constant, operate
from nautile.terms import Axis, Reduce, Term

if TYPE_CHECKING:
    from nautile.oracle.evaluation import Evaluator

__all__ = ["reduction"]

Folded = tuple[Value, Value | None]
"""A reduced piece; for argmax and argmin the extreme value and its position."""


def reduction(evaluator: Evaluator, term: Reduce, scope: Scope) -> Value:
    """A reduction: a sum of products as a contraction, any other piece by piece."""
    if term.axis not in term.body.free:
        return _constant_body(evaluator, term, scope)
    if term.monoid == "sum":
        term = rounded(term) if evaluator.precision == "mma" else term
        result = _contraction(evaluator, term, scope)
        if result is not None:
            return result
    return _piecewise(evaluator, term, scope)


def _contraction(evaluator: Evaluator, term: Reduce, scope: Scope) -> Value | None:
    factors, axes = factors_of(term, sizes(scope))
    if len(factors) < 2:
        return None
    size = sizes(scope) | {a: a.extent for a in axes}
    heavy = sum(weight(f, size, axes[0]) for f in factors)
    total: Value | None = None
    for at in pieces(evaluator.everywhere(axes[0]), heavy, evaluator.budget):
        within = {**scope, **{a: evaluator.everywhere(a) for a in axes[1:]}, axes[0]: at}
        values = _operands(evaluator, factors, axes, within)
        part = contract(values, axes, evaluator.precision)
        if part is None:
            return None
        total = part if total is None else operate("add", (total, part), evaluator.precision)
    return total


def _operands(
    evaluator: Evaluator, factors: tuple[Term, ...], axes: tuple[Axis, ...], scope: Scope
) -> list[Value]:
    """The factors' values; in precision "mma" those in float32 round to a narrow neighbour's type,
    as operands of tensor cores do (parts of them may be rounded already: an implementation may take
    the one or the other). Factors that lack the contracted axes are no operands."""
    values = [evaluator.value(f, scope) for f in factors]
    narrow = next((d for f in factors if (d := stored_type(f)) in NARROW), None)
    if evaluator.precision != "mma" or narrow is None:
        return values
    return [
        cast(v, narrow, "mma") if _is_computed(f, v) and f.free & set(axes) else v
        for f, v in zip(factors, values, strict=True)
    ]


def _is_computed(factor: Term, value: Value) -> bool:
    return stored_type(factor) is None and value.array.dtype == np.float32


def _piecewise(evaluator: Evaluator, term: Reduce, scope: Scope) -> Value:
    size = sizes(scope) | {term.axis: term.axis.extent}
    total: Folded | None = None
    heavy = weight(term.body, size, term.axis)
    for at in pieces(evaluator.everywhere(term.axis), heavy, evaluator.budget):
        body = evaluator.value(term.body, {**scope, term.axis: at})
        part = fold(term.monoid, body, term.axis, at)
        total = part if total is None else merge(term.monoid, total, part)
    assert total is not None
    value, position = total
    return value if position is None else position


def fold(monoid: str, body: Value, axis: Axis, at: Positions) -> Folded:
    """One piece reduced; for argmax and argmin, the extreme value and its position."""
    place = body.axes.index(axis)
    rest = body.axes[:place] + body.axes[place + 1 :]
    array = body.array
    with np.errstate(all="ignore"):
        if monoid in ("argmax", "argmin"):
            best = (np.argmax if monoid == "argmax" else np.argmin)(array, axis=place)
            extreme = np.take_along_axis(array, np.expand_dims(best, place), place).squeeze(place)
            return Value(rest, extreme), Value(rest, at.at[best])
        array = array.astype(np.bool_) if monoid in ("any", "all") else array
        return Value(rest, np.asarray(_FOLD[monoid](array, axis=place))), None


_FOLD: dict[str, Callable[..., Any]] = {
    "sum": added,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
}
_MERGE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def merge(monoid: str, first: Folded, second: Folded) -> Folded:
    """Two pieces, the earlier first. NaN is the greatest and the least, as np.argmax has it."""
    (x, i), (y, j) = first, second
    with np.errstate(all="ignore"):
        if i is None or j is None:
            return Value(x.axes, np.asarray(_MERGE[monoid](x.array, y.array))), None
        better = y.array > x.array if monoid == "argmax" else y.array < x.array
        better = (better | (y.array != y.array)) & (x.array == x.array)
        position = np.where(better, j.array, i.array)
        return Value(x.axes, np.where(better, y.array, x.array)), Value(i.axes, position)


def _constant_body(evaluator: Evaluator, term: Reduce, scope: Scope) -> Value:
    """A reduction of something that does not depend on its axis."""
    body = evaluator.value(term.body, scope)
    whole = Value((), body.array)
    n = term.axis.extent
    if term.monoid == "sum":
        return Value(body.axes, operate("mul", (whole, constant(n)), evaluator.precision).array)
    if term.monoid == "prod":
        with np.errstate(all="ignore"):
            return Value(body.axes, np.asarray(np.power(whole.array, n)))
    if term.monoid in ("argmax", "argmin"):
        return Value(body.axes, np.zeros_like(body.array, dtype=np.int64))
    if term.monoid in ("any", "all"):
        return Value(body.axes, body.array != 0)
    return body
