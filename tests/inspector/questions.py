"""Small programs, each for one or more reasons of `why_not`, and questions about them."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import nautile.examples
from nautile import lang, stages
from nautile.inspector.why_not import Answer, why_not
from nautile.stages import Optimization, Options
from nautile.worker import Worker

ATTENTION = """
def attend(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *,
           H=2, T=256, S=256, D=64, E=64) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * 0.125
    m[h,t,s] = where(s <= t, x[h,t,s], -inf)
    p[h,t,s] = softmax[s](m[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""
LINEAR = """
def linear(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *,
           H=4, T=2048, S=2048, D=64, E=64) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d])
    O[h,t,e] = sum[s](x[h,t,s] * V[h,s,e])
    return O
"""
DECAYED = """
def decayed(Q: bf16[I,C], K: bf16[J,C], D: f32[J,L], *, I=2048, J=2048, C=2048, L=2048) -> f32[I,L]:
    a[i,j] = sum[c](Q[i,c] * K[j,c])
    y[i,l] = sum[j](a[i,j] * D[j,l])
    return y
"""
NORMED = """
def normed(X: bf16[T,C], R: bf16[T,C], W: bf16[C,F], *, T=1024, C=2304, F=1024) -> bf16[T,F]:
    h[t,c] = X[t,c] + R[t,c]
    n[t,c] = tanh(h[t,c] / (1.0 + max[c](h[t,c])))
    y[t,f] = sum[c](n[t,c] * W[c,f])
    return y
"""
WEIGHTS = """
def weights(X: f32[T,S], V: bf16[S,E], *, T=1024, S=512, E=64) -> bf16[T,E]:
    p[t,s] = softmax[s](X[t,s])
    y[t,e] = sum[s](p[t,s] * V[s,e])
    return y
"""
CHAIN = """
def chain(A: f32[M,K], B: f32[K,L], C: f32[L,N], v: f32[N], *,
          M=4096, K=2048, L=1024, N=4096) -> f32[M]:
    p[k,n] = sum[l](B[k,l] * C[l,n])
    q[m,n] = sum[k](A[m,k] * p[k,n])
    y[m] = sum[n](q[m,n] * v[n])
    return y
"""
TWICE = """
def twice(A: bf16[M,K], B: bf16[K,N], *, M=256, K=256, N=256) -> f32[M,N]:
    y[i,j] = sum[k](A[i,k] * B[k,j])
    z[i,j] = y[i,j] + y[(i + 1) % M,j]
    return z
"""
RATIOS = """
def ratios(X: f32[T,S], Z: f32[T,S], *, T=256, S=256) -> (f32[T], f32[T]):
    y[t] = sum[s](X[t,s] / Z[t,s])
    z[t] = sum[s](X[t,s])
    return y, z
"""
GATED = (Path(nautile.examples.__file__).parent / "swiglu.nau").read_text()
POINTWISE = """
def pointwise(X: f32[N,C], *, N=512, C=256) -> f32[N,C]:
    a[n,c] = sin(2.0 * X[n,c])
    unused[n,c] = cos(X[n,c])
    y[n,c] = tanh(a[n,c])
    return y
"""


@cache
def worker() -> Worker:
    """The worker of all questions: it ends with the process."""
    found = Worker()
    atexit.register(found.close)
    return found


@cache
def result(text: str, **options: object) -> Optimization:
    """The program of a text, saturated and chosen."""
    (program,) = lang.parse(text)
    found = Optimization(program, Options(**options))  # type: ignore[arg-type]
    stages.saturate(found, worker())
    stages.choose(found)
    return found


def ask(text: str, question: str, **options: object) -> Answer:
    """The answer to a question about the program of a text."""
    return why_not(result(text, **options), question, worker())
