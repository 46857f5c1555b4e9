"""Loads in any storage type, and definitions evaluated once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nautile.oracle import Answers, arrays_fetch, evaluate, lazy
from nautile.oracle.grid import Question
from nautile.terms import Buffer, Const, apply

from .build import Apply, axis, load, max_, mul, sum_

RNG = np.random.default_rng(1)
R, C = axis("r", 3), axis("c", 40)
STORED = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f32": np.float32,
}


@pytest.mark.parametrize("dtype", list(STORED))
@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_contractions_of_stored_elements(dtype: str, precision: str) -> None:
    x, y = (RNG.standard_normal(s).astype(STORED[dtype]) for s in ((3, 40), (40,)))
    term = sum_(C, mul(load("x", R, C, dtype=dtype), load("y", C, dtype=dtype)))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    fetch = arrays_fetch({"x": x, "y": y})
    actual = evaluate(term, fetch, {R: range(3)}, precision=precision)
    assert actual.dtype == (np.float64 if precision == "f64" else np.float32)
    tight = 1e-14 if precision == "f64" else 1e-5
    np.testing.assert_allclose(actual, expected, rtol=tight, atol=tight)


def test_float64_widens_what_a_fetch_gives_in_float32() -> None:
    x = np.array([1.0, 2.0**-30, -1.0], dtype=np.float32)
    a = axis("a", 3)
    assert evaluate(sum_(a, load("x", a)), arrays_fetch({"x": x}), {}) == 2.0**-30
    third = apply("div", load("x", a), Const(3.0))
    actual = evaluate(third, arrays_fetch({"x": x}), {a: range(3)})
    np.testing.assert_array_equal(actual, x.astype(np.float64) / 3.0)


def test_small_integers_do_not_wrap() -> None:
    x = np.full(40, 100, dtype=np.int8)
    term = sum_(C, mul(load("x", C, dtype="i8"), load("x", C, dtype="i8")))
    assert evaluate(term, arrays_fetch({"x": x}), {}) == 400_000
    assert (
        evaluate(mul(Const(3), load("x", C, dtype="i8")), arrays_fetch({"x": x}), {C: [0]}) == 300
    )


def test_answers_hold_parts_of_what_is_known() -> None:
    grid = RNG.standard_normal((4, 6))
    store = Answers()
    known = Question.of(np.ix_([0, 3, 5, 9], [2, 3, 4, 5, 6, 7]))
    store.keep("x", known, grid)
    inside = Question.of(np.ix_([3, 9], [3, 4, 5]))
    np.testing.assert_array_equal(store.find("x", inside), grid[[1, 3], 1:4])
    for rows, columns in (([3, 4], [3]), ([3, 10], [3]), ([0], [1, 2]), ([0], [7, 8])):
        assert store.find("x", Question.of(np.ix_(rows, columns))) is None
    assert store.find("y", inside) is None


def test_the_oldest_answers_go_first() -> None:
    store = Answers(room=3 * 80)
    questions = [Question.of((np.arange(10 * i, 10 * i + 10),)) for i in range(4)]
    for i, question in enumerate(questions):
        store.keep("x", question, np.full(10, float(i)))
    assert store.find("x", questions[0]) is None
    assert [store.find("x", q)[0] for q in questions[1:]] == [1.0, 2.0, 3.0]  # type: ignore[index]
    assert store.held == 240


class Counted:
    """A fetch that counts the elements it is asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.count = array, 0

    def __call__(self, buffer: Buffer, index: tuple[np.ndarray, ...]) -> np.ndarray:
        found = self.array[index]
        self.count += found.size
        return np.asarray(found)


def test_a_reader_that_walks_gets_a_row_once() -> None:
    x = RNG.standard_normal((3, 40))
    fetch = Counted(x)
    term = Apply("sub", (load("x", R, C), max_(C, load("x", R, C))))
    read = lazy({"d": ((R, C), term)}, fetch, widen=1000)
    buffer = Buffer("d", (3, 40), "f32")
    expected = x - x.max(1, keepdims=True)
    for start in range(0, 40, 8):
        at = np.ix_([0, 2], np.arange(start, start + 8))
        np.testing.assert_array_equal(read(buffer, at), expected[at])
    assert fetch.count <= 2 * x.size


def test_widening_asks_for_nothing_that_costs_more() -> None:
    big = axis("k", 1 << 15)
    x = np.broadcast_to(RNG.standard_normal(1 << 15), (400, 1 << 15))
    fetch = Counted(x)
    rows = axis("r", 400)
    read = lazy({"d": ((rows,), sum_(big, load("x", rows, big)))}, fetch, widen=1000)
    found = read(Buffer("d", (400,), "f32"), (np.array([7]),))
    np.testing.assert_allclose(found, [x[7].sum()], rtol=1e-12)
    assert fetch.count == 1 << 15
