"""Functions that the warpgroup path computes in another form, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nautile.codegen.sm90.accuracy import bounded
from nautile.terms import Apply, Axis, Buffer, Const, Index, Load, Term, apply

X = Load(Buffer("x", (9,), "f32"), (Index(Axis("i", 0, 9)),))
POINTS = np.array([-6.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 6.0])
OPERATIONS: dict[str, Callable[..., npt.ArrayLike]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


def value(term: Term) -> npt.NDArray[np.float64]:
    match term:
        case Load():
            return POINTS
        case Const(c):
            return np.full_like(POINTS, float(c))
        case Apply(name, arguments):
            return np.asarray(OPERATIONS[name](*map(value, arguments)), np.float64)
    raise AssertionError(term)


def test_a_bounded_tanh_is_a_sigmoid_too() -> None:
    np.testing.assert_allclose(value(bounded(apply("tanh", X))), np.tanh(POINTS), atol=1e-15)
