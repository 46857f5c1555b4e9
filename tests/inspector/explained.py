"""Programs that the tests explain, and their explanations, each made once."""

from __future__ import annotations

from functools import cache
from typing import Any

from nautile import lang, stages
from nautile.inspector import Explanation, explain
from nautile.stages import Optimization, Options

__all__ = ["PROGRAMS", "chosen", "explained", "parts_of", "told"]

PROGRAMS = {
    "attention": """
def weave(A: bf16[B,H,T,D], G: bf16[B,H,S,D], R: bf16[B,H,S,E], *,
          B=1, H=16, T=2048, S=2048, D=128, E=128) -> bf16[B,H,T,E]:
    u[b,h,t,s] = sum[d](A[b,h,t,d] * G[b,h,s,d]) * D**-0.5
    w[b,h,t,s] = where(s <= t, u[b,h,t,s], -inf)
    p[b,h,t,s] = softmax[s](w[b,h,t,s])
    Z[b,h,t,e] = sum[s](p[b,h,t,s] * R[b,h,s,e])
    return Z
""",
    "chain": """
def chain(A: bf16[M,K], x: bf16[K,N], y: bf16[N,P], *, M=4096, K=4096, N=64, P=4096) -> bf16[M,P]:
    h[m,n] = sum[k](A[m,k] * x[k,n])
    c[m,p] = sum[n](h[m,n] * y[n,p])
    return c
""",
    "norms": """
def norms(X: bf16[N,C], g: bf16[C], W: bf16[C,F], *, N=8192, C=1024, F=4096) -> bf16[N,F]:
    h[n,c] = bf16(layernorm[c](X[n,c], g[c], g[c], eps=1e-5))
    Y[n,f] = sum[c](h[n,c] * W[c,f])
    return Y
""",
    "pointwise": """
def pointwise(X: f32[N,M], b: f32[M], *, N=4096, M=4096) -> f32[N,M]:
    y[n,m] = relu(X[n,m] + b[m]) * 2
    return y
""",
    "two": """
def two(X: bf16[N,C], W: bf16[C,F], *, N=4096, C=2048, F=2048) -> (f32[N], bf16[N,F]):
    s[n] = logsumexp[c](X[n,c])
    z[n,f] = sum[c](X[n,c] * W[c,f]) - s[n]
    return s, z
""",
}


@cache
def chosen(name: str) -> Optimization:
    """The program saturated and chosen, not built."""
    (program,) = lang.parse(PROGRAMS[name])
    result = Optimization(program, Options())
    stages.saturate(result)
    stages.choose(result)
    return result


@cache
def explained(name: str) -> Explanation:
    """Its explanation, without a derivation (which has tests of its own)."""
    return explain(chosen(name), derivation=False, again=False)


@cache
def told(name: str) -> dict[str, Any]:
    """The JSON object of the explanation."""
    return explained(name).as_dict()


def parts_of(name: str) -> Any:
    """(plan, pool, taken columns) of the program."""
    plan = chosen(name).plan
    assert plan is not None
    assert plan.choice is not None
    return plan, plan.choice.pool, frozenset(plan.choice.taken.columns)
