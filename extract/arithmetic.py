"""Arithmetic of all blocks of a tiling: pointwise operations, and the products of contractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from nautile.extract.contractions import Contraction
from nautile.extract.counting import Counting, walked
from nautile.extract.footprint import Vector, product
from nautile.extract.work import operation_cost
from nautile.terms import Term

__all__ = ["operand_operations", "operations", "padding", "products"]

_ONCE: Mapping[Term, int] = MappingProxyType({})


def operations(
    counting: Counting,
    times: Mapping[Term, int] = _ONCE,
    cost: Callable[[Term], tuple[int, int]] = operation_cost,
) -> tuple[Vector, Vector]:
    """(FMA-pipe, special-function) operations of everything besides contractions, each at its
    `cost`. A term that `times` names is evaluated so many times over."""
    vector, special = counting.one * 0, counting.one * 0
    for term in counting.body.inside:
        if term in counting.body.free or term in counting.body.contractions:
            continue
        v, s = cost(term)
        if v or s:
            often = counting.padded(walked(term), counting.body.running[term])
            often = often * counting.within(term) * times.get(term, 1)
            vector, special = vector + v * often, special + s * often
    return vector, special


def products(counting: Counting, c: Contraction) -> Vector:
    """Flops of a contraction, tiles counted whole: a multiplication and an addition a product."""
    return 2 * counting.padded(c.left_free | c.right_free) * counting.within(c.root)


def operand_operations(counting: Counting, c: Contraction) -> Vector:
    """Multiplications that make operands of their parts."""
    total = counting.one * 0
    for parts, free in c.sides:
        total = total + (len(parts) - 1) * counting.padded(free) * counting.within(c.root)
    return total


def padding(counting: Counting, c: Contraction, rows: int, columns: int, depth: int) -> Vector:
    """How much larger the tile of a contraction is that fragments of at least this size cover."""
    total = counting.one
    for axes, least in ((c.rows, rows), (c.columns, columns), (c.axes, depth)):
        own = product(axes, counting.tiles, counting.one)
        total = total * np.maximum(own, least) / own
    return total
