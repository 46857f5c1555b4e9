"""Functions that the warpgroup path computes in another form, against float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from nautile.codegen.sm90.accuracy import bounded, logistic
from nautile.terms import Apply, Axis, Buffer, Const, Index, Load, Term, apply, walk

X = Load(Buffer("x", (9,), "f32"), (Index(Axis("i", 0, 9)),))
POINTS = np.array([-6.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 6.0])
OPERATIONS = {
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


def names(term: Term) -> set[str]:
    return {t.operation for t in walk(term) if isinstance(t, Apply)}


def mul(a: Term, b: Term) -> Term:
    return apply("mul", a, b)


CUBIC = mul(Const(0.7978846), apply("add", X, mul(Const(0.044715), mul(X, mul(X, X)))))
ONE_AND_TANH = {
    "gelu": mul(mul(Const(0.5), X), apply("add", Const(1.0), apply("tanh", CUBIC))),
    "alone": apply("add", apply("tanh", X), Const(1.0)),
    "twice": mul(X, apply("add", Const(1.0), apply("tanh", mul(X, Const(0.5))))),
}


@pytest.mark.parametrize("name", ONE_AND_TANH)
def test_one_and_tanh_is_a_sigmoid(name: str) -> None:
    term = ONE_AND_TANH[name]
    assert "tanh" not in names(logistic(term))
    np.testing.assert_allclose(value(logistic(term)), value(term), rtol=1e-9, atol=1e-15)


def test_factors_that_cancel_are_gone() -> None:
    other = logistic(ONE_AND_TANH["gelu"])
    assert isinstance(other, Apply)
    assert other.arguments[0] is X


@pytest.mark.parametrize(
    "term",
    [
        apply("tanh", X),
        apply("add", Const(2.0), apply("tanh", X)),
        apply("add", X, apply("tanh", X)),
    ],
)
def test_other_sums_stay(term: Term) -> None:
    assert logistic(term) == term


def test_a_bounded_tanh_is_a_sigmoid_too() -> None:
    np.testing.assert_allclose(value(bounded(apply("tanh", X))), np.tanh(POINTS), atol=1e-15)
