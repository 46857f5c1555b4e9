"""What a look-up costs: products of a contraction, and other elements by their weight."""

from __future__ import annotations

import pytest

from nautile import lang
from nautile.oracle.work import work_of

PROGRAMS = {
    "contraction": ("sum[k](A[i,k] * B[k,j])", 3 * 5 * 7, 3 * 5 * 7),
    "row of one tensor": ("sum[k](exp(A[i,k])) + B[0,j]", 3 * 7, 3 * 7 * 10),
    "square": ("sum[k](A[i,k] * A[i,k]) + B[0,j]", 3 * 7, 3 * 7 * 10),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_work(name: str) -> None:
    body, plain, weighed = PROGRAMS[name]
    (program,) = lang.parse(
        "def f(A: f32[I,K], B: f32[K,J], *, I=3, J=5, K=7) -> f32[I,J]:\n"
        f"    y[i,j] = {body}\n    return y\n"
    )
    (definition,) = program.definitions
    size = {a: a.extent for a in definition.axes}
    assert work_of(definition.body, size, {}, pointwise=1) == plain
    assert work_of(definition.body, size, {}, pointwise=10) == weighed
