"""Which operands precision "mma" rounds: those of online sums and of single rows too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautile.dtypes import round_to
from nautile.oracle import arrays_fetch, evaluate
from nautile.oracle.operands import rounded
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    apply,
    reduce_,
)

B, S, D, E = Axis("b", 0, 2), Axis("s", 0, 24), Axis("d", 0, 4), Axis("e", 0, 3)


def load(name: str, *axes: Axis, dtype: str = "bf16") -> Load:
    return Load(Buffer(name, tuple(a.extent for a in axes), dtype), tuple(map(Index, axes)))


V = load("v", B, S, E)
X = Reduce("sum", D, apply("mul", load("q", B, D), load("k", B, S, D)))
M = Reduce("max", S, X)
WEIGHT = apply("exp", apply("sub", X, Running(M)))
REPAIR = apply("exp", apply("sub", Before(M), Running(M)))
ARRAYS = {
    "q": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32),
    "k": np.random.default_rng(2).standard_normal((2, 24, 4)).astype(np.float32),
    "v": np.random.default_rng(3).standard_normal((2, 24, 3)).astype(np.float32),
}
ARRAYS = {n: round_to(a, "bf16").astype(np.float32) for n, a in ARRAYS.items()}


def at(term: Term, precision: str) -> Any:
    positions = {a: np.arange(a.extent) for a in (B, E)}
    return np.asarray(evaluate(term, arrays_fetch(ARRAYS), positions, precision=precision))


def test_an_online_sum_rounds_the_row_that_tensor_cores_multiply() -> None:
    online = Online(S, REPAIR, apply("mul", WEIGHT, V))
    cast = Online(S, REPAIR, apply("mul", Cast("bf16", WEIGHT), V))
    np.testing.assert_array_equal(at(online, "mma"), at(cast, "f32"))
    error = np.abs(at(online, "mma") - at(online, "f64")) / np.abs(at(online, "f64")).max()
    assert 1e-4 < error.max() < 2.0**-7  # the rounding of a bf16 operand, and no more
    assert rounded(Online(S, REPAIR, WEIGHT)).body is WEIGHT  # a sum of no product


def test_a_row_that_waits_for_a_reduction_is_an_operand() -> None:
    weight = apply("exp", apply("sub", X, M))
    product = reduce_("sum", S, apply("mul", weight, V))
    assert rounded(product).body is apply("mul", Cast("bf16", weight), V)


@pytest.mark.parametrize(
    "body",
    [
        apply("mul", apply("exp", load("y", B, S, dtype="f32")), V),  # of loads alone: a row's map
        apply("mul", apply("exp", apply("sub", X, M)), load("w", B, S)),  # nothing to multiply with
        apply("mul", load("z", B, S, E, dtype="f32"), Const(2.0)),
    ],
)
def test_other_sums_are_left_as_they_are(body: Term) -> None:
    assert rounded(Reduce("sum", S, body)).body is body
