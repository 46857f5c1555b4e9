"""Orders of adding: against sums made one by one, and against what they must lose."""

from __future__ import annotations

import numpy as np
import pytest

from nautile.oracle.order import ORDERS, added, adding, multiplied

RNG = np.random.default_rng(7)
X = RNG.standard_normal((5, 3000)).astype(np.float32)


def one_by_one(line: np.ndarray) -> np.float32:
    total = np.float32(0)
    for value in line:
        total = np.float32(total + value)
    return total


def test_a_serial_sum_is_made_one_by_one() -> None:
    with adding("serial"):
        assert added(X, 1).tolist() == [one_by_one(row) for row in X]
    with adding("reversed"):
        assert added(X, 1).tolist() == [one_by_one(row[::-1]) for row in X]


def test_products_are_added_in_blocks_and_cut_off() -> None:
    """1 + 16 products of 2**-25: a block's sum of 2**-21 arrives, single ones would not; and what
    is less than the last place is cut off, never rounded up."""
    x = np.full((1, 32), 2.0**-13, np.float32)
    y = np.full((32, 1), 2.0**-12, np.float32)
    x[0, 0], y[0, 0] = 1.0, 1.0
    x[0, 1:16] = 0.0
    with adding("serial"):
        assert multiplied(x, y)[0, 0] == np.float32(1 + 2.0**-21)
    x[0, 16:] = 0.0
    x[0, 16] = np.float32(2.0**-11 * 0.75)  # three quarters of the last place
    y[16, 0] = np.float32(2.0**-12)
    with adding("serial"):
        assert multiplied(x, y)[0, 0] == 1.0


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_a_sum(order: str) -> None:
    y = RNG.standard_normal((3000, 4)).astype(np.float32)
    with adding(order):
        np.testing.assert_allclose(added(X, 1), X.sum(1, dtype=np.float64), atol=1e-3)
        np.testing.assert_allclose(multiplied(X, y), X.astype(np.float64) @ y, atol=1e-2)
        assert added(np.arange(10), 0) == 45
        assert added(X.astype(np.float64), 1).tolist() == X.astype(np.float64).sum(1).tolist()


def test_slow_orders_lose_more_than_numpy_does() -> None:
    x = np.abs(RNG.standard_normal((8, 1 << 14))).astype(np.float32)
    exact = x.sum(1, dtype=np.float64)
    with adding("serial"):
        serial = np.abs(added(x, 1) - exact).max()
    assert serial > 8 * np.abs(added(x, 1) - exact).max()


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown order"), adding("sideways"):
        pass
