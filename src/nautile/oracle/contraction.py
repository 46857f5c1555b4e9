"""Sums of products, without the product in memory.

`sum[j](a[i,j] * b[j,k])` becomes a batched matrix product. Axes that both factors keep are batch
axes, axes of one factor alone are rows or columns, summed axes of both are contracted. A summed
axis that one factor lacks is summed early, and three or more factors are joined pair by pair: both
equal the literal sum for finite numbers only, so values that are not finite take the literal way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from nautile.oracle.order import added, multiplied
from nautile.oracle.values import Array, Value, align, widest
from nautile.terms import Apply, Axis, Reduce, Term

__all__ = ["contract", "factors_of", "product_size"]


def factors_of(term: Reduce, size: dict[Axis, int]) -> tuple[tuple[Term, ...], tuple[Axis, ...]]:
    """The factors and the summed axes of a contraction, nested sums taken together; one factor
    where the term is no sum of products. `size` gives the number of positions of the free axes."""
    axes, body = [term.axis], term.body
    while isinstance(body, Reduce) and body.monoid == "sum" and axes[-1] in body.free:
        if body.axis in axes:
            break
        axes.append(body.axis)
        body = body.body
    size = size | {a: a.extent for a in axes}
    factors = _flatten(body, size)
    if len(factors) < 2:
        return (term.body,), (term.axis,)
    return factors, tuple(axes)


def _flatten(term: Term, size: dict[Axis, int]) -> tuple[Term, ...]:
    """The factors of a product. One whose value is no larger than its own largest factor stays
    whole: it costs no memory, and a naive implementation would compute it first."""
    if not (isinstance(term, Apply) and term.operation == "mul"):
        return (term,)
    parts: list[Term] = []
    for side in term.arguments:
        inner = _flatten(side, size)
        whole = product_size(side.free, size)
        joined = len(inner) > 1 and whole > max(product_size(f.free, size) for f in inner)
        parts.extend(inner if joined else (side,))
    return tuple(parts)


def product_size(axes: Collection[Axis], size: dict[Axis, int]) -> int:
    """The number of elements over `axes`."""
    return math.prod(size.get(a, a.extent) for a in axes)


def contract(values: Sequence[Value], axes: Collection[Axis], precision: str) -> Value | None:
    """The sum over `axes` of the product of `values`; None where only the literal sum is right."""
    summed = set(axes)
    literal = len(values) == 2 and all(summed <= set(v.axes) for v in values)
    if not literal and not all(np.isfinite(v.array).all() for v in values):
        return None
    parts = _typed(values, precision)
    while len(parts) > 1:
        parts = _join_cheapest(parts, summed)
    return _sum_out(parts[0], summed)


def _typed(values: Sequence[Value], precision: str) -> list[Value]:
    """Factors in one type: floats where one is a float, else integers."""
    real = any(v.array.dtype.kind == "f" for v in values)
    kind = widest(values, precision) if real else np.int64
    return [Value(v.axes, v.array.astype(kind, copy=False)) for v in values]


def _join_cheapest(parts: list[Value], summed: set[Axis]) -> list[Value]:
    """The list with the pair of smallest product joined, and axes that no other needs summed."""
    best = min(
        ((i, j) for j in range(len(parts)) for i in range(j)),
        key=lambda p: _joined_size(parts, p, summed),
    )
    rest = [v for i, v in enumerate(parts) if i not in best]
    kept = {a for v in rest for a in v.axes}
    return [_join(parts[best[0]], parts[best[1]], summed - kept), *rest]


def _joined_size(parts: list[Value], pair: tuple[int, int], summed: set[Axis]) -> int:
    others = {a for i, v in enumerate(parts) if i not in pair for a in v.axes}
    sizes = {a: n for i in pair for a, n in zip(parts[i].axes, parts[i].array.shape, strict=True)}
    return math.prod(n for a, n in sizes.items() if a in others or a not in summed)


def _join(left: Value, right: Value, summed: set[Axis]) -> Value:
    """The sum over `summed` of left * right, as a batched matrix product."""
    left = _sum_out(left, summed - set(right.axes))
    right = _sum_out(right, summed - set(left.axes))
    both = set(left.axes) & set(right.axes)
    batch = [a for a in left.axes if a in both - summed]
    inner = [a for a in left.axes if a in both & summed]
    if not inner:
        axes, (x, y) = align((left, right))
        with np.errstate(all="ignore"):
            return Value(axes, np.asarray(x * y))
    rows = [a for a in left.axes if a not in both]
    columns = [a for a in right.axes if a not in both]
    size = dict(zip(left.axes + right.axes, left.array.shape + right.array.shape, strict=True))
    x = _matrix(left, (batch, rows, inner), size)
    y = _matrix(right, (batch, inner, columns), size)
    with np.errstate(all="ignore"):
        product = multiplied(x, y)
    order = batch + rows + columns
    return _sorted(order, product.reshape([size[a] for a in order]))


def _matrix(value: Value, groups: tuple[list[Axis], ...], size: dict[Axis, int]) -> Array:
    order = [value.axes.index(a) for group in groups for a in group]
    shape = [math.prod(size[a] for a in group) for group in groups]
    matrix = value.array.transpose(order).reshape(shape)
    rows_or_columns = matrix.itemsize in matrix.strides[-2:]
    return matrix if rows_or_columns else np.ascontiguousarray(matrix)


def _sorted(order: list[Axis], array: Array) -> Value:
    axes = sorted(order)
    return Value(tuple(axes), array.transpose([order.index(a) for a in axes]))


def _sum_out(value: Value, axes: Collection[Axis]) -> Value:
    places = tuple(i for i, a in enumerate(value.axes) if a in axes)
    if not places:
        return value
    array = value.array
    with np.errstate(all="ignore"):
        for place in reversed(places):
            array = added(array, place)
    return Value(tuple(a for a in value.axes if a not in axes), np.asarray(array))
