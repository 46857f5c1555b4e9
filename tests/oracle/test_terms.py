"""Every kind of term against NumPy written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nautile.operations import OPERATIONS
from nautile.oracle import arrays_fetch, evaluate
from nautile.oracle.values import SCALAR
from nautile.terms import Apply, Axis, Cast, Const, Index, Load, Term, apply, reduce_

from .build import axis, load, max_, mul, softmax, sum_

RNG = np.random.default_rng(0)
N, J, K = axis("i", 5), axis("j", 7), axis("k", 3)
X, Y = RNG.standard_normal((5, 7)), RNG.standard_normal((7, 3))
SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 3.5, np.inf, -np.inf, np.nan, 1e30, -1e-30, 800.0])


def at(term: Term, arrays: dict[str, np.ndarray], *axes: Axis, **options: object) -> np.ndarray:
    positions = {a: np.arange(a.extent) for a in axes}
    return evaluate(term, arrays_fetch(arrays), positions, **options)  # type: ignore[arg-type]


def test_every_operation_has_a_meaning() -> None:
    assert set(SCALAR) == set(OPERATIONS)


EXPECTED: dict[str, Callable[..., np.ndarray]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "log2": lambda x: np.log(x) / np.log(2),
    "exp2": lambda x: np.exp(x * np.log(2)),
    "round": lambda x: np.round(x),
    "neg": lambda x: -x,
}


@pytest.mark.parametrize("name", [n for n, o in OPERATIONS.items() if o.arity == 1 and n != "not"])
def test_unary_operations_follow_numpy_on_special_values(name: str) -> None:
    a = axis("a", len(SPECIAL))
    actual = at(apply(name, load("x", a)), {"x": SPECIAL}, a)
    with np.errstate(all="ignore"):
        expected = EXPECTED.get(name, getattr(np, name, None))(SPECIAL)
    np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=0)


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": lambda x, y: np.floor_divide(x, y),
    "mod": np.mod,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@pytest.mark.parametrize("name", list(BINARY))
def test_binary_operations_follow_numpy_on_special_values(name: str) -> None:
    a, b = axis("a", len(SPECIAL)), axis("b", len(SPECIAL))
    term = apply(name, load("x", a), load("y", b))
    actual = at(term, {"x": SPECIAL, "y": SPECIAL}, a, b)
    with np.errstate(all="ignore"):
        expected = BINARY[name](SPECIAL[:, None], SPECIAL)
    np.testing.assert_array_equal(actual, expected)


def test_logic_and_where() -> None:
    p, q = axis("p", 2), axis("q", 2)
    arrays = {"x": np.array([False, True]), "y": np.array([False, True])}
    x, y = load("x", p, dtype="bool"), load("y", q, dtype="bool")
    assert at(apply("and", x, y), arrays, p, q).tolist() == [[False, False], [False, True]]
    assert at(apply("or", x, y), arrays, p, q).tolist() == [[False, True], [True, True]]
    assert at(apply("not", x), arrays, p).tolist() == [True, False]
    chosen = apply("where", x, Const(1.5), apply("neg", Const(math.inf)))
    assert at(chosen, arrays, p).tolist() == [-math.inf, 1.5]
    assert at(apply("add", x, y), arrays, p, q).tolist() == [[0, 1], [1, 2]]


def test_integers_are_exact_and_floor_towards_minus_infinity() -> None:
    n = axis("n", 9)
    shifted = apply("sub", Index(n), Const(4))
    assert at(apply("floordiv", shifted, Const(3)), {}, n).tolist() == [
        -2,
        -1,
        -1,
        -1,
        0,
        0,
        0,
        1,
        1,
    ]
    assert at(apply("mod", shifted, Const(3)), {}, n).tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1]
    big = apply("add", mul(Index(n), Const(2**60)), Const(1))
    assert at(big, {}, n)[3] == 3 * 2**60 + 1
    assert at(apply("div", Const(1), Const(4)), {}) == 0.25


def test_broadcasting_transposes_and_positions() -> None:
    term = apply("add", load("x", N, J), load("y", J, K))
    assert np.array_equal(
        at(term, {"x": X, "y": Y}, K, N, J), (X[:, :, None] + Y).transpose(2, 0, 1)
    )
    some = evaluate(term, arrays_fetch({"x": X, "y": Y}), {J: [6, 0], K: [1], N: [4, 4, 2]})
    assert np.array_equal(
        some, (X[[4, 4, 2]][:, [6, 0], None] + Y[[6, 0]][:, [1]]).transpose(1, 2, 0)
    )
    assert at(Const(2.0), {}, N, J).shape == (5, 7)


def test_loads_with_affine_gathered_and_outside_coordinates() -> None:
    v, tokens = np.arange(10.0), np.array([3, 0, 9])
    n, t = axis("n", 10), axis("t", 3)
    buffer = load("v", n).buffer
    reverse = Load(buffer, (apply("sub", Const(9), Index(n)),))
    assert np.array_equal(at(reverse, {"v": v}, n), v[::-1])
    grouped = Load(buffer, (apply("floordiv", Index(n), Const(4)),))
    assert at(grouped, {"v": v}, n).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    gathered = Load(buffer, (load("tokens", t, dtype="i64"),))
    assert at(gathered, {"v": v, "tokens": tokens}, t).tolist() == [3, 0, 9]
    outside = Load(buffer, (apply("sub", mul(Index(n), Const(3)), Const(2)),))
    assert at(outside, {"v": v + 1}, n).tolist() == [0, 2, 5, 8, 0, 0, 0, 0, 0, 0]


REDUCERS = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


@pytest.mark.parametrize("budget", [1 << 24, 6])
@pytest.mark.parametrize("monoid", list(REDUCERS))
def test_reductions_over_ties_nan_and_infinities(monoid: str, budget: int) -> None:
    r, c = axis("r", 200), axis("c", 6)
    x = RNG.choice(
        [0.0, 1.0, 1.0, -2.0, np.inf, -np.inf, np.nan], (200, 6), p=[0.2] * 4 + [0.1, 0.05, 0.05]
    )
    with np.errstate(all="ignore"):
        expected = REDUCERS[monoid](x, axis=1)
    actual = at(reduce_(monoid, c, load("x", r, c)), {"x": x}, r, budget=budget)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("monoid", "reducer"), [("any", np.any), ("all", np.all)])
def test_truth_reductions(monoid: str, reducer: Callable[..., np.ndarray]) -> None:
    r, c = axis("r", 50), axis("c", 3)
    x = RNG.random((50, 3)) < 0.5
    actual = at(reduce_(monoid, c, load("x", r, c, dtype="bool")), {"x": x}, r, budget=4)
    assert actual.dtype == np.bool_
    assert np.array_equal(actual, reducer(x, axis=1))


def test_sums_of_truth_values_count() -> None:
    counted = sum_(J, apply("gt", load("x", N, J), Const(0.0)))
    assert at(counted, {"x": X}, N).tolist() == (X > 0).sum(1).tolist()


@pytest.mark.parametrize(
    ("monoid", "expected"),
    [("sum", 7 * X[:, 0]), ("prod", X[:, 0] ** 7), ("max", X[:, 0]), ("argmax", np.zeros(5))],
)
def test_a_reduction_over_an_axis_that_the_body_lacks(monoid: str, expected: np.ndarray) -> None:
    first = Load(load("x", N, J).buffer, (Index(N), Const(0)))
    np.testing.assert_allclose(at(reduce_(monoid, J, first), {"x": X}, N), expected, rtol=1e-15)


@pytest.mark.parametrize("budget", [1 << 24, 50])
def test_an_axis_may_be_free_and_bound_in_one_term(budget: int) -> None:
    actual = at(softmax(load("x", N, J), J), {"x": X}, N, J, budget=budget)
    e = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(actual, e / e.sum(1, keepdims=True), rtol=1e-14)
    some = evaluate(softmax(load("x", N, J), J), arrays_fetch({"x": X}), {J: [2], N: [3, 1]})
    np.testing.assert_allclose(some[0], (e / e.sum(1, keepdims=True))[[3, 1], 2], rtol=1e-14)


@pytest.mark.parametrize("budget", [1 << 24, 30])
def test_contractions_of_any_layout(budget: int) -> None:
    a, b, c, d = (axis(n, e) for n, e in zip("abcd", (3, 4, 5, 2), strict=True))
    x, y = RNG.standard_normal((3, 5, 4)), RNG.standard_normal((2, 3, 5))
    z, w = RNG.standard_normal((4, 2)), RNG.standard_normal(5)
    arrays = {"x": x, "y": y, "z": z, "w": w}
    lx, ly, lz, lw = load("x", a, c, b), load("y", d, a, c), load("z", b, d), load("w", c)
    cases = [
        (sum_(c, mul(lx, ly)), (b, a, d), "acb,dac->bad"),
        (sum_(c, mul(mul(lx, lw), ly)), (a, b, d), "acb,c,dac->abd"),
        (sum_(a, sum_(c, mul(lx, ly))), (d, b), "acb,dac->db"),
        (sum_(d, sum_(c, mul(mul(lx, ly), lz))), (a, b), "acb,dac,bd->ab"),
        (sum_(b, mul(lx, mul(ly, lz))), (a, c, d), "acb,dac,bd->acd"),
        (sum_(c, mul(lx, lz)), (a, b, d), "acb,bd->abd"),
        (sum_(c, mul(lx, lx)), (a, b), "acb,acb->ab"),
        (sum_(b, mul(Const(2.0), lz)), (d,), "bd,->d"),
    ]
    for term, axes, spec in cases:
        names = {"acb": x, "dac": y, "bd": z, "c": w, "": np.array(2.0)}
        operands = [names[s] for s in spec.split("->")[0].split(",")]
        actual = at(term, arrays, *axes, budget=budget)
        np.testing.assert_allclose(actual, np.einsum(spec, *operands), rtol=1e-12, atol=1e-14)


def test_contractions_are_literal_where_values_are_not_finite() -> None:
    # sum[j](inf * x_j) has terms of both signs, inf * sum[j](x_j) does not; the meaning is NaN.
    x = np.array([[1.0, -1.0, 3.0]])
    r, c = axis("r", 1), axis("c", 3)
    term = sum_(c, mul(load("s", r), load("x", r, c)))
    assert np.isnan(at(term, {"s": np.array([np.inf]), "x": x}, r)).all()
    three = sum_(c, mul(load("s", r), load("x", r, c), load("y", c)))
    arrays = {"s": np.array([np.inf]), "x": x, "y": np.array([0.0, 1.0, 1.0])}
    assert np.isnan(at(three, arrays, r)).all()


def test_integer_contractions_are_exact() -> None:
    x = np.array([[2**40 + 1, 3], [5, 2**40 - 1]])
    r, c = axis("r", 2), axis("c", 2)
    term = sum_(c, mul(load("x", r, c, dtype="i64"), load("y", c, dtype="i64")))
    assert at(term, {"x": x, "y": np.array([2**20, 1])}, r).tolist() == [
        (2**40 + 1) * 2**20 + 3,
        5 * 2**20 + 2**40 - 1,
    ]


def test_casts_round_and_may_be_ignored() -> None:
    x = np.array([1 + 2**-9, 3.7, 1e9, 1 / 3])
    a = axis("a", 4)
    half = Cast("bf16", load("x", a))
    assert at(half, {"x": x}, a)[0] == 1.0
    assert at(half, {"x": x}, a, casts=False)[0] == 1 + 2**-9
    whole = at(Cast("i32", load("x", a)), {"x": x}, a, casts=False)
    assert whole.dtype == np.int64
    assert whole.tolist() == [1, 3, 10**9, 0]
    assert at(Cast("bool", load("x", a)), {"x": x - x[0]}, a).tolist() == [False, True, True, True]


def test_naive_precision_computes_in_float32_but_keeps_float64_inputs() -> None:
    x = np.array([1.0, 1e-9])
    a = axis("a", 2)
    for dtype, expected in (("f32", 1.0), ("f64", 1 + 1e-9)):
        actual = at(sum_(a, load("x", a, dtype=dtype)), {"x": x}, precision="f32")
        assert actual == expected
    third = apply("mul", load("x", a, dtype="f32"), Const(1 / 3))
    assert at(third, {"x": x}, a, precision="f32").dtype == np.float32


def test_depth_is_no_limit() -> None:
    term: Term = load("x", N, J)
    for _ in range(5000):
        term = apply("add", term, Const(1.0))
    np.testing.assert_allclose(at(term, {"x": X}, N, J), X + 5000)


def test_a_big_result_is_evaluated_within_the_budget() -> None:
    a, b, k = axis("a", 300), axis("b", 200), axis("k", 50)
    x, y = RNG.standard_normal((300, 50)), RNG.standard_normal((50, 200))
    product = sum_(k, mul(load("x", a, k), load("y", k, b)))
    term = max_(b, apply("abs", product))
    actual = at(term, {"x": x, "y": y}, a, budget=20_000)
    np.testing.assert_allclose(actual, np.abs(x @ y).max(1), rtol=1e-12)
    assert isinstance(product, Term)
    assert isinstance(Apply("add", (product, product)), Term)


def test_tensor_core_precision_rounds_computed_operands_to_their_neighbours_type() -> None:
    a, b, k = axis("a", 3), axis("b", 4), axis("k", 50)
    x, y = RNG.standard_normal((3, 50)), RNG.standard_normal((50, 4)).astype(ml_dtypes.bfloat16)
    arrays = {"x": x.astype(np.float32), "y": y.astype(np.float64), "s": np.full(3, 1 / 3)}
    scaled = mul(load("x", a, k), load("y", k, b, dtype="bf16"))
    actual = at(sum_(k, mul(load("s", a), scaled)), arrays, a, b, precision="mma")
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_allclose(actual, rounded @ arrays["y"] / 3, rtol=2e-5)
    exact = at(sum_(k, mul(load("s", a), scaled)), arrays, a, b, precision="f32")
    np.testing.assert_allclose(exact, x @ arrays["y"] / 3, rtol=2e-5)
    assert not np.allclose(exact, actual, rtol=1e-4)


def test_operands_are_found_through_factors_quotients_and_masks() -> None:
    a, b, k = axis("a", 3), axis("b", 4), axis("k", 50)
    x, y = RNG.standard_normal((3, 50)).astype(ml_dtypes.bfloat16), RNG.standard_normal((50, 4))
    arrays = {"x": x.astype(np.float64), "y": y.astype(np.float32), "s": np.full(3, 1 / 3)}
    narrow, wide = load("x", a, k, dtype="bf16"), load("y", k, b)
    seen = apply("lt", Index(k), Const(40))
    forms = {
        "factor": (mul(mul(narrow, load("s", a)), wide), 50),
        "quotient": (mul(apply("div", narrow, apply("div", Const(1.0), load("s", a))), wide), 50),
        "mask": (apply("where", seen, mul(mul(load("s", a), narrow), wide), Const(0.0)), 40),
    }
    for body, length in forms.values():
        actual = at(sum_(k, body), arrays, a, b, precision="mma")
        exact = at(sum_(k, body), arrays, a, b, precision="f64")
        np.testing.assert_allclose(exact, arrays["x"][:, :length] @ arrays["y"][:length] / 3, 1e-6)
        error = np.abs(actual - exact)
        assert error.max() > 2.0**-12
        assert error.max() < 2.0**-8 * np.sqrt(length)
    alone = sum_(k, mul(mul(narrow, load("s", a)), apply("exp", narrow)))
    np.testing.assert_array_equal(
        at(alone, arrays, a, precision="mma"), at(alone, arrays, a, precision="f32")
    )
