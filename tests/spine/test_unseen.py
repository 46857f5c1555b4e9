"""Programs that no example resembles, end to end: certified, and computed right as a whole.

Each plan's tile programs run in the interpreter on the whole input, against the oracle on the
source. Sizes that no tile divides, axes of one element, and types of every kind.
"""

from __future__ import annotations

import numpy as np
import pytest

from nautile.codegen.interpret import run_program
from nautile.dtypes import DTYPES, round_to, storage
from nautile.oracle import run
from nautile.stages import Optimization, Options, optimize
from nautile.terms import Buffer
from nautile.worker import Worker

ATTENTION = """def f(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D]{more}, *,
      H=2, T=37, S=29, D=24) -> bf16[H,T,D]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    m[h,t,s] = {score}
    p[h,t,s] = {weight}
    O[h,t,d] = sum[s](p[h,t,s] * V[h,s,d])
    return O
"""
SOFTMAX = "softmax[s](m[h,t,s])"
ONE_KERNEL = {
    "block-sparse": ATTENTION.format(
        more="", score="where((s // 8) % 2 == 0, x[h,t,s], -inf)", weight=SOFTMAX
    ),
    "bool mask": ATTENTION.format(
        more=", M: bool[T,S]", score="where(M[t,s], x[h,t,s], -1e30)", weight=SOFTMAX
    ),
    "gathered bias": ATTENTION.format(
        more=", b: f32[9,H]", score="x[h,t,s] + b[min(abs(t - s), 8),h]", weight=SOFTMAX
    ),
    "sigmoid": ATTENTION.format(more="", score="x[h,t,s] - 4.0", weight="sigmoid(m[h,t,s])"),
    "sink": """
def f(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], k: f32[H], *,
      H=2, T=37, S=37, D=24) -> bf16[H,T,D]:
    x[h,t,s] = where(s <= t, sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5, -inf)
    m[h,t] = max(max[s](x[h,t,s]), k[h])
    l[h,t] = sum[s](exp(x[h,t,s] - m[h,t])) + exp(k[h] - m[h,t])
    O[h,t,d] = sum[s](exp(x[h,t,s] - m[h,t]) / l[h,t] * V[h,s,d])
    return O
""",
    "shared latent": """
def f(Q: bf16[H,T,D], C: bf16[S,D], *, H=3, T=17, S=37, D=36, E=32) -> bf16[H,T,E]:
    p[h,t,s] = softmax[s](sum[d](Q[h,t,d] * C[s,d]) * D**-0.5)
    O[h,t,e: E] = sum[s](p[h,t,s] * C[s,e])
    return O
""",
    "float64": """def f(Q: f64[T,D], K: f64[S,D], V: f64[S,D], *, T=10, S=17, D=5) -> f64[T,D]:
    p[t,s] = softmax[s](sum[d](Q[t,d] * K[s,d]))
    O[t,d] = sum[s](p[t,s] * V[s,d])
    return O
""",
    "fp8 store": """def f(x: f32[M,K], *, M=13, K=77) -> (f8e4m3[M,K], f32[M]):
    s[m] = max[k](abs(x[m,k])) / 448.0
    y[m,k] = f8e4m3(x[m,k] / s[m])
    return y, s
""",
    "int8 weights": """
def f(X: bf16[M,K], W: i8[N,K], s: f32[N,K//8], *, M=21, K=40, N=19) -> bf16[M,N]:
    Y[m,n] = sum[k](X[m,k] * W[n,k] * s[n,k//8])
    return Y
""",
    "embedding": """def f(E: bf16[V,D], tok: i32[N], g: bf16[D], *, V=11, N=7, D=33) -> bf16[N,D]:
    y[n,d] = rmsnorm[d](E[tok[n],d], g[d])
    return y
""",
    "convolution": """
def f(x: f32[N,C,L], w: f32[O,C,R], *, N=2, C=3, L=19, O=5, R=4) -> f32[N,O,L-R+1]:
    y[n,o,i: L-R+1] = sum[c,r](x[n,c,i+r] * w[o,c,r])
    return y
""",
    "two axes": """def f(x: f32[B,H,W], *, B=5, H=7, W=9) -> f32[B,H,W]:
    m[b] = max[i,j](x[b,i,j])
    e[b,i,j] = exp(x[b,i,j] - m[b])
    y[b,i,j] = e[b,i,j] / sum[i,j](e[b,i,j])
    return y
""",
    "several shapes": """def f(x: f32[N,C], *, N=13, C=29) -> (f32[N,C], f32[N], f32[C,N]):
    y[n,c] = exp(x[n,c] - max[k](x[n,k]))
    s[n] = sum[c](y[n,c])
    z[c,n] = y[n,c] * 2.0
    return y, s, z
""",
    "rank five": """
def f(x: f32[A,B,C,D,E], y: f32[E,B], *, A=2, B=3, C=2, D=5, E=7) -> f32[E,D,C,B,A]:
    z[e,d,c,b,a] = x[a,b,c,d,e] * y[e,b] + x[a,b,c,d,0]
    return z
""",
    "ones": """def f(x: f32[N,C,O], *, N=1, C=1, O=1) -> f32[N,C,O]:
    y[n,c,o] = softmax[c](x[n,c,o]) + mean[o](x[n,c,o])
    return y
""",
    "whole numbers": """def f(x: i32[N,M], y: i64[M], *, N=11, M=23) -> (i64[N], i32[N,M]):
    s[n] = sum[m](x[n,m] * y[m])
    z[n,m] = where(x[n,m] % 3 == 1, x[n,m] // 2, -x[n,m])
    return s, z
""",
    "positions": """def f(x: f32[N,C], *, N=11, C=23) -> (i32[N], bool[N]):
    a[n] = argmin[c](x[n,c])
    b[n] = any[c](x[n,c] > 2.0)
    return a, b
""",
    "divergence": """def f(x: f32[N,C], y: f32[N,C], *, N=11, C=23) -> f32[N]:
    p[n,c] = log_softmax[c](x[n,c])
    k[n] = sum[c](exp(p[n,c]) * (p[n,c] - log_softmax[c](y[n,c])))
    return k
""",
}
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1.2e-2, "f8e4m3": 0.07}


def values(buffer: Buffer, rng: np.random.Generator) -> np.ndarray:
    kind = DTYPES[buffer.dtype].kind
    if kind == "float":
        return rng.standard_normal(buffer.shape).astype(storage(buffer.dtype))
    return rng.integers(0, 2 if kind == "bool" else 5, buffer.shape).astype(storage(buffer.dtype))


def computes(result: Optimization) -> None:
    """The interpreted plan against the source in the oracle."""
    rng = np.random.default_rng(1)
    arrays = {b.name: values(b, rng) for b in result.program.inputs}
    wide = {n: a if a.dtype.kind in "bif" else a.astype(np.float32) for n, a in arrays.items()}
    wanted = run(result.program, wide)
    for built in result.built:
        run_program(built.tiles, arrays)
    for output in result.program.outputs:
        name, dtype = output.buffer.name, output.buffer.dtype
        found, due = arrays[name].astype(np.float64), round_to_type(wanted[name], dtype)
        scale = np.abs(due).max(initial=1e-30)
        allowed = TOLERANCE.get(dtype, 0.0) * scale
        assert np.abs(found - due).max(initial=0.0) <= allowed, name


def round_to_type(array: np.ndarray, dtype: str) -> np.ndarray:
    wide = np.asarray(array, np.float64)
    return round_to(wide, dtype) if DTYPES[dtype].kind == "float" else wide


@pytest.mark.parametrize("case", ONE_KERNEL)
def test_one_kernel_computes_what_was_asked(case: str, worker: Worker) -> None:
    result = optimize(ONE_KERNEL[case], Options(), worker=worker)
    assert result.passed, result.as_dict()["certificate"]
    assert len(result.built) == 1
    computes(result)


def test_a_scalar_result_is_written_once(worker: Worker) -> None:
    text = "def f(x: f32[N,M], *, N=9, M=33) -> f32:\n    return mean[n](max[m](x[n,m]))\n"
    computes(optimize(text, Options(), worker=worker))


def test_a_long_product_of_numbers_does_not_explode(worker: Worker) -> None:
    """Orders of one product multiply; the search ends in proportion to the program."""
    text = """def f(x: f32[B,K], W: f32[N,K], c: f32[N], *, B=3, K=5, N=6) -> f32[B]:
    h[b,n] = sum[k](x[b,k] * W[n,k]) + c[n]
    a[b,g: N//2] = mean[i: 2](h[b, g*2 + i])
    y[b] = max[g](gelu(a[b,g]) * 2.0)
    return y
"""
    result = optimize(text, Options(), worker=worker)
    assert sum(s.report.rows for s in result.snapshots) < 4000
    assert result.passed
    computes(result)


RETURNED = """def f(X: f32[N,K], W: f32[K,C], V: f32[C,C], *,
      N=9, K=5, C=11) -> ({type}[N,C], bf16[N,C]):
    h[n,c] = {rounding}(sum[k](X[n,k] * W[k,c]))
    a[n,d: C] = sum[c](h[n,c] * V[c,d])
    return h, a
"""


@pytest.mark.parametrize("type_", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("rounding", ["f32", "bf16"])
def test_a_definition_is_stored_between_regions_and_returned(
    type_: str, rounding: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nautile.extract.regions.WHOLE", 0)
    monkeypatch.setattr("nautile.extract.regions.REPEAT", 1)
    text = RETURNED.format(type=type_, rounding=rounding)
    result = optimize(text, Options(compile=False), worker=worker)
    assert result.passed, result.as_dict()["certificate"]
    assert len(result.regions) == 2
    stored = [o.buffer.name for b in result.built for o in b.kernel.outputs]
    assert sorted(set(stored)) == sorted(stored)
    computes(result)
