"""In which order float32 sums are added: as NumPy does, or as slow and rough as a GPU may.

NumPy adds pairwise, which loses next to nothing. A thread of a GPU adds its terms one after the
other, and tensor cores add blocks of 16 products, cutting off what does not fit (M. Fasi,
N. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021). A reduction
may walk its axis either way. Sums in float64 and of whole numbers are the same in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ORDERS", "added", "adding", "multiplied"]

Array = npt.NDArray[Any]
ORDERS = ("pairwise", "serial", "reversed")
BLOCK = 16  # products that tensor cores add at once
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
    total = np.zeros((), np.float32)
    for start in reversed(starts) if order == "reversed" else starts:
        block = slice(start, start + BLOCK)
        part = np.matmul(x[..., block].astype(np.float64), y[..., block, :])
        total = _cut(total + part)
    return total


def _cut(values: Array) -> Array:
    """float64 values with what float32 has no place for cut off."""
    near = values.astype(np.float32)
    over = np.abs(near.astype(np.float64)) > np.abs(values)
    return np.where(over & np.isfinite(near), np.nextafter(near, np.float32(0)), near)
