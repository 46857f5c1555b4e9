"""In which order float32 sums are added: as NumPy does, or as slow and rough as a GPU may.

NumPy adds pairwise, which loses next to nothing. A thread of a GPU adds its terms one after the
other, and tensor cores add blocks of 16 products, cutting off what does not fit (M. Fasi,
N. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021). A reduction
may walk its axis either way. Sums in float64 and of whole numbers are the same in every order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ORDERS", "added", "adding", "multiplied"]

Array = npt.NDArray[Any]
ORDERS = ("pairwise", "serial", "reversed")
BLOCK = 16  # products that tensor cores add at once
_KEPT = -1 << 29  # bits of a float64 that a float32 has place for
_NEAR = 1 << 15  # elements of a result that stay in the cache while blocks are added to them
_order: ContextVar[str] = ContextVar("order", default="pairwise")


@contextmanager
def adding(order: str) -> Iterator[None]:
    """Within it, float32 sums are added in one of ORDERS."""
    if order not in ORDERS:
        raise ValueError(f"unknown order {order!r}; known: {', '.join(ORDERS)}")
    token = _order.set(order)
    try:
        yield
    finally:
        _order.reset(token)


def added(array: Array, axis: int) -> Array:
    """The sum along an axis."""
    order = _order.get()
    if order == "pairwise" or array.dtype != np.float32 or array.shape[axis] < 3:
        return np.asarray(np.sum(array, axis=axis))
    line = np.flip(array, axis) if order == "reversed" else array
    return np.asarray(np.add.accumulate(line, axis=axis).take(-1, axis=axis))


def multiplied(x: Array, y: Array) -> Array:
    """The matrix product of two stacks of matrices."""
    order = _order.get()
    if order == "pairwise" or x.dtype != np.float32 or y.dtype != np.float32:
        return np.asarray(np.matmul(x, y))
    starts = range(0, x.shape[-1], BLOCK)
    stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    total = np.zeros((*stack, x.shape[-2], y.shape[-1]))
    x, y = x.astype(np.float64), y.astype(np.float64)
    small = bool(_largest(x) * _largest(y) * x.shape[-1] < np.finfo(np.float32).max)
    rows = max(1, _NEAR // max(1, math.prod(stack) * y.shape[-1]))
    for first in range(0, x.shape[-2], rows):
        some = slice(first, first + rows)
        walked = reversed(starts) if order == "reversed" else starts
        total[..., some, :] = _in_blocks(x[..., some, :], y, walked, small)
    return total.astype(np.float32)


def _largest(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


def _in_blocks(x: Array, y: Array, starts: Iterable[int], small: bool) -> Array:
    """The product, block by block in the given order; `small` where no sum can overflow."""
    total: Array = np.zeros(())
    for start in starts:
        block = slice(start, start + BLOCK)
        total = total + np.matmul(x[..., block], y[..., block, :])
        if not small:
            near = total.astype(np.float32)
            np.copyto(total, near, where=np.isinf(near))
        total = _cut(total)
    return total


def _cut(values: Array) -> Array:
    """float64 values with the bits cut off that a float32 has no place for (in place; those of
    float32's subnormal numbers, whose last place is 1e-45, are left)."""
    bits = values.view(np.int64)
    bits &= _KEPT
    return values
