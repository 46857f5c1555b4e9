"""Bounds of terms hold for whatever finite inputs the oracle is given, and are tight where types of
small range depend on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nautile import lang
from nautile.extract.magnitude import magnitude
from nautile.extract.regions import cut
from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import Const, Term, apply, reduce_, walk

INPUTS = "x: f16[N,M], w: f16[N], g: i8[N,M], v: f32[N], *, N=3, M=4"
SOURCES = [
    "exp(x[n,m] - max[m](x[n,m]))",
    "exp(x[n,m] - max[m](x[n,m])) / sum[m](exp(x[n,m] - max[m](x[n,m])))",
    "where(m < 2, x[n,m], -w[n]) * 0.5 + 3.0",
    "sum[k: M](x[n,k] * g[n,k])",
    "tanh(x[n,m]) * sigmoid(v[n]) + sin(v[n])",
    "max(x[n,m], w[n]) - min(x[n,m], w[n])",
    "sqrt(abs(x[n,m])) / 4.0",
    "floor(x[n,m] * 0.3) + round(w[n] * 0.7)",
    "f32(g[n,m]) * f32(m)",
    "exp2(tanh(x[n,m]) * 3.0)",
]


def term(source: str) -> Term:
    (program,) = lang.parse(
        f"def f({INPUTS}) -> f32[N,M]:\n    y[n: N, m: M] = {source}\n    return y\n"
    )
    ((output,),) = (region.outputs for region in cut(program))
    return output.term


@pytest.mark.parametrize("source", SOURCES)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 1e3, 6e4]))
def test_no_value_is_larger(source: str, seed: int, scale: float) -> None:
    root, rng = term(source), np.random.default_rng(seed)
    arrays = {
        "x": np.clip(rng.standard_normal((3, 4)) * scale, -65504, 65504),
        "w": rng.uniform(-1, 1, 3) * scale,
        "g": rng.integers(-128, 128, (3, 4)),
        "v": rng.standard_normal(3) * scale * 1e30,
    }
    for part in walk(root):
        if not all(a.family in "NM" for a in part.free):
            continue
        at = {a: np.arange(a.extent) for a in sorted(part.free)}
        with np.errstate(all="ignore"):
            found = np.asarray(evaluate(part, arrays_fetch(arrays), at, precision="f64"))
        assert np.abs(found[np.isfinite(found)]).max(initial=0.0) <= magnitude(part) * (1 + 1e-12)


def test_a_softmax_fits_everywhere() -> None:
    assert magnitude(term(SOURCES[0])) == magnitude(term(SOURCES[1])) == 1.0


def test_products_and_unknown_values_do_not() -> None:
    assert magnitude(term("x[n,m] * w[n]")) == 65504.0**2
    assert magnitude(term("v[n] * 0.001")) == math.inf
    assert magnitude(term("1.0 / x[n,m]")) == math.inf
    assert magnitude(term("exp(x[n,m] - w[n])")) == math.inf
    assert magnitude(term("exp(x[n,m] - min[m](x[n,m]))")) == math.inf


def test_a_maximum_of_something_else_bounds_nothing() -> None:
    x = next(
        t
        for t in walk(term("exp(x[n,m] - max[m](x[n,m]))"))
        if getattr(t, "operation", "") == "sub"
    )
    value, most = x.arguments  # type: ignore[attr-defined]
    other = reduce_("max", most.axis, apply("mul", most.body, Const(0.5)))
    assert magnitude(apply("exp", apply("sub", value, other))) == math.inf
