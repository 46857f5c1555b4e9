"""Small programs for the extraction tests, in the language, and the way from text to a plan."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from nautile import extract, lang, rules
from nautile.egraph import saturate
from nautile.extract.kernel import Plan
from nautile.terms import Definition, Output, Program

__all__ = ["PROGRAMS", "as_program", "baseline", "corpus", "plan", "program"]

_CORPUS = Path(__file__).parents[1] / "data" / "corpus"


def corpus() -> list[tuple[str, str, dict[str, int]]]:
    """The corpus programs with the small sizes of their checks."""
    attention = json.loads((_CORPUS / "attention.json").read_text())["modifications"]
    subgraphs = json.loads((_CORPUS / "subgraphs.json").read_text())["subgraphs"]
    entries = [(m["id"], m) for m in attention] + [(m["name"], m) for m in subgraphs]
    return [(name, "\n".join(m["program"]), m["check"]["sizes"]) for name, m in entries]


PROGRAMS = {
    "attention": """
def anything(Q: bf16[B,H,T,D], K: bf16[B,Hk,S,D], V: bf16[B,Hk,S,E], *,
             B=1, H=32, Hk=8, T=4096, S=4096, D=128, E=128) -> bf16[B,H,T,E]:
    x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h//(H//Hk),s,d]) * D**-0.5
    m[b,h,t,s] = where(s <= t + (S - T), x[b,h,t,s], -inf)
    p[b,h,t,s] = softmax[s](m[b,h,t,s])
    O[b,h,t,e] = sum[s](p[b,h,t,s] * V[b,h//(H//Hk),s,e])
    return O
""",
    "softmax": """
def f(X: bf16[N,C], *, N=4096, C=16384) -> bf16[N,C]:
    y[n,c] = softmax[c](X[n,c])
    return y
""",
    "logsumexp": """
def f(X: bf16[N,C], *, N=4096, C=16384) -> f32[N]:
    y[n] = logsumexp[c](X[n,c])
    return y
""",
    "cross_entropy": """
def f(X: bf16[N,V], t: i32[N], *, N=4096, V=128256) -> f32[N]:
    y[n] = logsumexp[v](X[n,v]) - X[n,t[n]]
    return y
""",
    "rmsnorm": """
def f(X: bf16[N,C], R: bf16[N,C], g: bf16[C], *, N=4096, C=4096) -> (bf16[N,C], bf16[N,C]):
    h[n,c] = X[n,c] + R[n,c]
    r[n] = rsqrt(mean[c](h[n,c] * h[n,c]) + 1e-6)
    y[n,c] = h[n,c] * r[n] * g[c]
    return y, h
""",
    "layernorm": """
def f(X: bf16[N,C], g: bf16[C], o: bf16[C], *, N=4096, C=4096) -> bf16[N,C]:
    m[n] = mean[c](X[n,c])
    v[n] = mean[c]((X[n,c] - m[n]) * (X[n,c] - m[n]))
    y[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5) * g[c] + o[c]
    return y
""",
    "gelu": """
def f(A: bf16[M,K], B: bf16[K,N], c: bf16[N], *, M=4096, N=4096, K=4096) -> bf16[M,N]:
    y[m,n] = gelu(sum[k](A[m,k] * B[k,n]) + c[n])
    return y
""",
    "swiglu": """
def f(X: bf16[M,K], G: bf16[K,N], U: bf16[K,N], *, M=4096, N=14336, K=4096) -> bf16[M,N]:
    g[m,n] = sum[k](X[m,k] * G[k,n])
    u[m,n] = sum[k](X[m,k] * U[k,n])
    y[m,n] = silu(g[m,n]) * u[m,n]
    return y
""",
    "batched": """
def f(A: bf16[B,K,M], W: bf16[B,N,K], r: f32[B,M], *, B=16, M=1024, N=1024, K=512) -> bf16[B,M,N]:
    y[b,m,n] = sum[k](A[b,k,m] * W[b,n,k]) * r[b,m]
    return y
""",
    "pointwise": """
def f(A: f32[N,M], B: f32[M,N], c: f32[M], *, N=4096, M=4096) -> f32[N,M]:
    y[n,m] = tanh((A[n,m] + B[m,n]) * c[m] - exp(A[n,m]))
    return y
""",
    "chain": """
def f(A: bf16[M,K], B: bf16[K,N], v: bf16[N], *, M=4096, N=4096, K=4096) -> f32[M]:
    AB[m,n] = sum[k](A[m,k] * B[k,n])
    y[m] = sum[n](AB[m,n] * v[n])
    return y
""",
    "linear": """
def f(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *,
      H=32, T=4096, S=4096, D=128, E=128) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d])
    O[h,t,e] = sum[s](x[h,t,s] * V[h,s,e])
    return O
""",
}


def program(text: str, **dims: int) -> Program:
    """The only program of a text (or of the named one), with other sizes."""
    return lang.parse(PROGRAMS.get(text, text), dims=dims)[0]


@cache
def _rules(*classes: str) -> tuple[rules.Rule, ...]:
    return tuple(rules.load(None, classes=classes))


def plan(source: Program, *, device: str | extract.Device = "h200", numerics: str = "real") -> Plan:
    """The chosen plan, saturated in this process."""
    target = extract.device(device) if isinstance(device, str) else device
    classes = ("exact",) if numerics == "exact" else ("exact", "real")
    regions = extract.cut(source)
    pairs = [(r, saturate(r.outputs, _rules(*classes), in_process=True)) for r in regions]
    return extract.choose(pairs, source, target, numerics=numerics)


def baseline(source: Program) -> dict[str, float]:
    return extract.baseline(source, extract.device("h200"))


def as_program(source: Program, chosen: Plan) -> Program:
    """The plan as a program of the language: what kernels store between them are definitions."""
    final = {o.buffer.name for o in source.outputs}
    outputs = [o for k in chosen.kernels for o in k.outputs]
    between = tuple(
        Definition(o.buffer.name, o.axes, o.term) for o in outputs if o.buffer.name not in final
    )
    first: dict[str, Output] = {}
    for o in outputs:
        first.setdefault(o.buffer.name, o)
    results = tuple(first[o.buffer.name] for o in source.outputs)
    return Program("plan", source.inputs, between, results, defaults=source.defaults)
