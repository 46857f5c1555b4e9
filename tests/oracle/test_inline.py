"""Inlining against evaluation with the definitions kept apart."""

from __future__ import annotations

import numpy as np
import pytest

from nautile.inline import Definitions, inline, inline_outputs
from nautile.oracle import arrays_fetch, evaluate, lazy
from nautile.terms import Buffer, Const, Index, Load, Output, apply, buffers

from .build import axis, load, max_, mul, sum_

M, N = axis("m", 6), axis("n", 6)
X = np.random.default_rng(2).standard_normal((6, 6))
DEFINITIONS: Definitions = {
    "row": ((M,), max_(N, load("x", M, N))),
    "y": ((M, N), apply("sub", load("x", M, N), load("row", M))),
    "z": ((N,), sum_(M, mul(load("y", N, M), load("y", M, N)))),
}


def test_inlined_terms_read_inputs_alone_and_mean_the_same() -> None:
    # The transposed read y[n, m] meets binders over both axes: renaming must not capture.
    term = apply("add", load("z", M), load("y", N, M))
    flat = inline(term, DEFINITIONS)
    assert [b.name for b in buffers(flat)] == ["x"]
    positions = {M: np.arange(6), N: np.arange(6)}
    fetch = arrays_fetch({"x": X})
    y = X - X.max(1, keepdims=True)
    expected = (y * y.T).sum(0)[:, None] + y.T
    np.testing.assert_allclose(evaluate(flat, fetch, positions), expected, rtol=1e-13)
    kept_apart = evaluate(term, lazy(DEFINITIONS, fetch), positions)
    np.testing.assert_allclose(kept_apart, expected, rtol=1e-13)


def test_coordinates_may_be_expressions() -> None:
    buffer = Buffer("row", (6,), "f32")
    term = Load(buffer, (apply("floordiv", Index(N), Const(2)),))
    actual = evaluate(inline(term, DEFINITIONS), arrays_fetch({"x": X}), {N: np.arange(6)})
    np.testing.assert_array_equal(actual, X.max(1)[[0, 0, 1, 1, 2, 2]])


def test_outputs_keep_their_buffers() -> None:
    out = Output(Buffer("o", (6,), "bf16"), (M,), load("row", M))
    assert inline_outputs((out,), DEFINITIONS) == (
        Output(out.buffer, out.axes, DEFINITIONS["row"][1]),
    )


def test_cycles_are_refused_and_shared_definitions_are_not_cycles() -> None:
    loop: Definitions = {"p": ((M,), load("q", M)), "q": ((M,), load("p", M))}
    with pytest.raises(ValueError, match="cycle"):
        inline(load("p", M), loop)
    shared: Definitions = {
        "a": ((M,), load("x", M, M)),
        "b": ((M,), load("a", M)),
        "c": ((M,), apply("add", load("b", M), load("a", M))),
    }
    assert inline(load("c", M), shared) == apply("add", load("x", M, M), load("x", M, M))


def test_a_long_chain_of_definitions() -> None:
    chain: Definitions = {"v0": ((M,), load("x", M, M))} | {
        f"v{i}": ((M,), apply("add", load(f"v{i - 1}", M), Const(1.0))) for i in range(1, 300)
    }
    actual = evaluate(inline(load("v299", M), chain), arrays_fetch({"x": X}), {M: [2]})
    np.testing.assert_allclose(actual, X[2, 2] + 299)


@pytest.mark.parametrize("widen", [0, 12, 10**6])
def test_questions_of_any_shape_are_answered(widen: int) -> None:
    y = X - X.max(1, keepdims=True)
    read = lazy(DEFINITIONS, arrays_fetch({"x": X}), widen=widen)
    buffer = Buffer("y", (6, 6), "f32")
    a, b = np.array([4, 1, 1]), np.array([[0], [5]])
    cases = [(a, b), (b, a), (a, a), (a + 0 * b, b), (np.arange(6)[:, None], np.arange(6))]
    cases += [(np.array(3), np.arange(2, 5)), (np.arange(6), np.arange(6)[:, None])]
    cases += [(np.array([[2]]), np.array([[1]]))]
    for index in cases:
        actual = np.broadcast_to(
            read(buffer, index), np.broadcast_shapes(*(i.shape for i in index))
        )
        np.testing.assert_allclose(actual, y[index], rtol=1e-15)
