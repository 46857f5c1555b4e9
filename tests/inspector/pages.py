"""Pages for tests: programs optimized once, and an explanation with all that a page shows."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from nautile import lang
from nautile.options import Options
from nautile.stages import Optimization, build, choose, saturate
from nautile.terms import Program
from nautile.worker import Worker

__all__ = ["ATTENTION", "SMALL", "TWO_KERNELS", "built", "started", "told"]

ATTENTION = """
def looked_up(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *, H=4, T=512, S=512, D=64, E=64
              ) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    m[h,t,s] = where(s <= t, x[h,t,s], -inf)
    p[h,t,s] = softmax[s](m[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""

TWO_KERNELS = """
def gated(X: bf16[T,C], W: bf16[F,C], U: bf16[G,F], *, T=512, C=512, F=1024, G=512) -> bf16[T,G]:
    y[t,f] = sum[c](X[t,c] * W[f,c])
    z[t,f] = bf16(y[t,f] * sigmoid(y[t,f]))
    Y[t,g] = sum[f](z[t,f] * U[g,f])
    return Y
"""

SMALL = """
def small(X: f32[N], *, N=4096) -> f32[N]:
    a[n] = X[n] * 2
    Y[n] = a[n] + exp(a[n])
    return Y
"""


@cache
def _worker() -> Worker:
    worker = Worker()
    atexit.register(worker.close)
    return worker


@cache
def built(text: str) -> Optimization:
    """The text's program with its kernels and CUDA; nothing is compiled or certified."""
    (program,) = lang.parse(text)
    return started(program)


def started(program: Program) -> Optimization:
    """A program with its kernels and CUDA."""
    result = Optimization(program, Options())
    saturate(result, _worker())
    choose(result)
    build(result)
    return result


def told(result: Optimization, rows: int = 12) -> dict[str, Any]:
    """An explanation by hand: every field of the contract, with `rows` candidates and steps."""
    found = result.as_dict()
    assert result.plan is not None
    for row, kernel in zip(found["chosen"]["kernels"], result.plan.kernels, strict=True):
        row["bound"] = kernel.prediction.bound
        row["shares"] = dict(kernel.prediction.shares)
        row["terms"] = [
            {
                "output": o.buffer.name,
                "axes": [a.name for a in o.axes],
                "text": lang.show_term(o.term, 60),
            }
            for o in kernel.outputs
        ]
    seconds = found["chosen"]["seconds"]
    found["chosen"]["text"] = lang.show(result.program)
    found["candidates"] = [_candidate(n, seconds) for n in range(rows)]
    found["runners_up"] = [
        {"id": "r1", "seconds": seconds * 1.5, "slower_by": 0.5, "text": "two passes"}
    ]
    margin = {"resource": "special", "factor": 2.3, "runner_up": "r1", "checked": True}
    found["margin"] = margin
    found["margins"] = [margin, {"resource": "dram", "factor": None, "runner_up": None}]
    found["derivation"] = [_step(n) for n in range(rows)]
    found["rules_needed"] = ["rule_0", "rule_1"]
    found["saturation"]["course"] = [
        {"region": 0, "iteration": n, "rows": 10 * n, "seconds": 1e-3, "matches": {"rule_0": n}}
        for n in range(4)
    ]
    found["measured"] = [
        {
            "kernel": found["chosen"]["kernels"][0]["name"],
            "predicted": seconds,
            "measured": seconds * 1.2,
            "ratio": 1.2,
            "gpu": "a GPU",
            "date": "2026-01-01",
        }
    ]
    found["certificate"] = found["certificate"] or _CERTIFICATE
    found["why_not"] = [{"question": "rule x", "text": "its premise never held"}]
    found["reproduce"] = "nautile explain attention.nau --target h200"
    return found


_CERTIFICATE = {
    "verdict": "pass",
    "samples": 7,
    "checks": [
        {
            "name": "structure",
            "passed": True,
            "max_relative_error": 0.0,
            "rmse_ratio": 0.0,
            "samples": 7,
            "detail": "",
        }
    ],
}


def _candidate(n: int, seconds: float) -> dict[str, Any]:
    taken = n == 0
    return {
        "id": f"c{n}",
        "makes": [f"tensor_{n}[h, t]"],
        "needs": [],
        "seconds": seconds * (1 + (n * 7 % 5)),
        "bound": ("dram", "tensor")[n % 2],
        "tile": {"t": 16 << n % 4},
        "streams": ["s"],
        "split": {},
        "taken": taken,
        "reason": {"code": "taken" if taken else "dearer", "text": f"{n} times as dear"},
        "forced": None if taken else {"seconds": seconds * (n + 1), "slower_by": float(n)},
    }


def _step(n: int) -> dict[str, Any]:
    return {
        "rule": f"rule_{n % 3}",
        "law": "sum[j](a / b) >> sum[j](a) / b, j not in b",
        "numerics": "real",
        "place": f"O, term {n}",
        "before": f"sum[s](p[t, s] / z[t] * V[s, {n}])",
        "after": f"sum[s](p[t, s] * V[s, {n}]) / z[t]",
        "max_error": 1e-15,
        "facts": [{"rule": "max_shift", "text": "shift(max[j](a), max[j](a), 1, r)"}],
        "region": 0,
    }
