"""Products in blocks of 16 with what does not fit cut off, against the same in exact numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from nautile.oracle import order

Array = npt.NDArray[np.float32]
LARGEST = Fraction(float(np.finfo(np.float32).max))


def towards_zero(value: Fraction) -> np.float32:
    """The float32 next to the value that is no larger in magnitude; infinity from where rounding
    to nearest has it."""
    with np.errstate(over="ignore"):
        near = np.float32(float(value))
    if np.isinf(near):
        return near
    return near if abs(Fraction(float(near))) <= abs(value) else np.nextafter(near, np.float32(0))


def dot(x: Sequence[np.float32], y: Sequence[np.float32], backwards: bool) -> np.float32:
    total = np.float32(0)
    starts = range(0, len(x), order.BLOCK)
    for start in reversed(starts) if backwards else starts:
        block = slice(start, start + order.BLOCK)
        products = [
            Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x[block], y[block], strict=True)
        ]
        if np.isinf(total):
            return total
        total = towards_zero(Fraction(float(total)) + sum(products))
    return total


def drawn(*shape: int, seed: int = 0) -> Array:
    """Numbers of 12 bits, whose products and their sums are exact in float64."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-2048, 2048, shape) * 2.0 ** rng.integers(-3, 4, shape)).astype("f4")


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("near", [1, 12, 1 << 15])
def test_blocks_are_added_in_order_and_cut_off(
    backwards: bool, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part of the result is made at once."""
    monkeypatch.setattr(order, "_NEAR", near)
    x, y = drawn(2, 7, 75), drawn(75, 5, seed=1)
    with order.adding("reversed" if backwards else "serial"):
        found = order.multiplied(x, y)
    wanted = [[[dot(row, y[:, k], backwards) for k in range(5)] for row in m] for m in x]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(wanted, np.float32))


def test_what_overflows_on_the_way_stays_infinite() -> None:
    x = np.zeros((2, 32), np.float32)
    x[0, 0], x[0, 31], x[1, 0] = 3e38, -3e38, 3e38
    y = np.full((32, 1), 2.0, np.float32)
    y[31] = 4.0
    with order.adding("serial"), np.errstate(all="ignore"):
        found = order.multiplied(x, y)
    np.testing.assert_array_equal(found, [[np.inf], [np.inf]])
    assert dot(x[0], y[:, 0], False) == np.inf


def test_nothing_summed_is_zero() -> None:
    with order.adding("serial"):
        found = order.multiplied(np.zeros((4, 0), np.float32), np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(found, np.zeros((4, 3), np.float32))
