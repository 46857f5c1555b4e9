"""Prefix reductions against NumPy, and online sums against the naive forms that they replace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import (
    Axis,
    Before,
    Const,
    Index,
    Online,
    Running,
    Term,
    apply,
    reduce_,
)

from .build import axis, load, mul, online_softmax_sum, softmax, sum_

RNG = np.random.default_rng(1)
T, S, E, D = axis("t", 13), axis("s", 40), axis("e", 4), axis("d", 6)
Q, K, V = RNG.standard_normal((13, 6)), RNG.standard_normal((40, 6)), RNG.standard_normal((40, 4))
ARRAYS = {"Q": Q, "K": K, "V": V}
INFINITE = Const(float("-inf"))


def at(term: Term, arrays: dict[str, np.ndarray], *axes: Axis, **options: object) -> np.ndarray:
    positions = {a: np.arange(a.extent) for a in axes}
    return evaluate(term, arrays_fetch(arrays), positions, **options)  # type: ignore[arg-type]


PREFIX = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
}
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}


@pytest.mark.parametrize("monoid", list(PREFIX))
def test_running_and_before_are_prefix_reductions(monoid: str) -> None:
    x = RNG.standard_normal((13, 40))
    x[3, 10] = np.nan
    r = reduce_(monoid, S, load("x", T, S))
    expected = PREFIX[monoid](x, axis=1)
    np.testing.assert_allclose(at(Running(r), {"x": x}, T, S), expected, rtol=1e-12)
    shifted = np.concatenate([np.full((13, 1), IDENTITY[monoid]), expected[:, :-1]], axis=1)
    np.testing.assert_allclose(at(Before(r), {"x": x}, T, S), shifted, rtol=1e-12)
    some = evaluate(Before(r), arrays_fetch({"x": x}), {S: [0, 39, 7], T: [2]})
    np.testing.assert_allclose(some[:, 0], shifted[2, [0, 39, 7]], rtol=1e-12)


def test_running_argmax_keeps_the_first_of_ties_and_the_first_nan() -> None:
    x = np.array([[1.0, 1.0, 3.0, 3.0, 2.0, 4.0], [0.0, np.nan, 5.0, np.nan, 6.0, 7.0]])
    r, c = axis("r", 2), axis("c", 6)
    actual = at(Running(reduce_("argmax", c, load("x", r, c))), {"x": x}, r, c)
    expected = [[int(np.argmax(row[: j + 1])) for j in range(6)] for row in x]
    assert actual.tolist() == expected


def scores(mask: Callable[[Term, Term], Term] | None = None) -> Term:
    x = mul(sum_(D, mul(load("Q", T, D), load("K", S, D))), Const(6**-0.5))
    return x if mask is None else apply("where", mask(Index(T), Index(S)), x, INFINITE)


def naive(x: Term) -> Term:
    return sum_(S, mul(softmax(x, S), load("V", S, E)))


def streamed(x: Term, sign: float = 1.0) -> Term:
    total = online_softmax_sum(x, S, load("V", S, E), sign)
    return apply("div", total, online_softmax_sum(x, S, None, sign))


def causal(t: Term, s: Term) -> Term:
    return apply("le", s, t)


def window(t: Term, s: Term) -> Term:
    """Keys 20 + t - 5 .. 20 + t: the first blocks of the stream are masked."""
    low = apply("ge", s, apply("add", t, Const(15)))
    return apply("and", low, apply("le", s, apply("add", t, Const(20))))


@pytest.mark.parametrize("budget", [1 << 24, 3000])
@pytest.mark.parametrize("mask", [None, causal, window])
def test_online_attention_is_naive_attention(
    mask: Callable[[Term, Term], Term] | None, budget: int
) -> None:
    expected = at(naive(scores(mask)), ARRAYS, T, E)
    assert np.isfinite(expected).all()
    actual = at(streamed(scores(mask)), ARRAYS, T, E, budget=budget)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)
    wrong = at(streamed(scores(mask), sign=-1.0), ARRAYS, T, E)
    assert not np.allclose(wrong, expected, rtol=1e-3)


def test_naive_attention_is_numpy_attention() -> None:
    x = Q @ K.T * 6**-0.5
    x = np.where(np.arange(40) <= np.arange(13)[:, None], x, -np.inf)
    p = np.exp(x - x.max(1, keepdims=True))
    expected = p / p.sum(1, keepdims=True) @ V
    np.testing.assert_allclose(at(naive(scores(causal)), ARRAYS, T, E), expected, rtol=1e-12)


def test_rows_without_any_key_are_nan_in_both_forms() -> None:
    def late(t: Term, s: Term) -> Term:
        return apply("gt", apply("add", t, s), Const(45))

    expected = at(naive(scores(late)), ARRAYS, T, E)
    actual = at(streamed(scores(late)), ARRAYS, T, E)
    assert np.isnan(expected[:7]).all()
    assert np.isfinite(expected[7:]).all()
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_large_scores_do_not_overflow_the_stream() -> None:
    arrays = {"Q": Q * 1e3, "K": K * 1e2, "V": V}
    expected = at(naive(scores()), arrays, T, E)
    np.testing.assert_allclose(
        at(streamed(scores()), arrays, T, E), expected, rtol=1e-9, atol=1e-12
    )


def test_a_repair_of_zero_discards_what_was_summed_even_nan() -> None:
    a = axis("a", 4)
    repair, body = load("r", a), load("x", a)
    arrays = {"r": np.array([1.0, 2.0, 0.0, 3.0]), "x": np.array([1.0, np.nan, 5.0, 7.0])}
    assert at(Online(a, repair, body), arrays) == 22.0
    history = at(Running(Online(a, repair, body)), arrays, a)
    np.testing.assert_array_equal(history, [1.0, np.nan, 5.0, 22.0])
    np.testing.assert_array_equal(
        at(Before(Online(a, repair, body)), arrays, a), [0.0, 1.0, np.nan, 5.0]
    )


def test_a_stream_may_lack_its_axis_or_hold_integers() -> None:
    a = axis("a", 4)
    assert at(Online(a, Const(2.0), Const(1)), {}) == 15.0
    assert at(Online(a, Const(1.0), apply("eq", Index(a), Const(2))), {}) == 1.0


@pytest.mark.parametrize("budget", [1 << 24, 100])
def test_streams_do_not_depend_on_the_pieces(budget: int) -> None:
    x = RNG.standard_normal((13, 40))
    r = RNG.choice([0.0, 0.5, 1.0, 1.0, 1.0], (13, 40))
    term = Online(S, load("r", T, S), load("x", T, S))
    expected = np.zeros(13)
    for j in range(40):
        expected = np.where(r[:, j] == 0, 0, expected * r[:, j]) + x[:, j]
    np.testing.assert_allclose(at(term, {"x": x, "r": r}, T, budget=budget), expected, rtol=1e-12)
    ones = at(Online(S, Const(1.0), load("x", T, S)), {"x": x}, T, budget=budget)
    np.testing.assert_allclose(ones, x.sum(1), rtol=1e-12)
