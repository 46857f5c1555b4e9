"""A stored maximum is only met by stored values: what it was taken of is not computed again.

exp(x - max(x)) stays at or below 1 because both sides are one rounding of x. A kernel that reads
the maximum from memory and computes x anew rounds it in another order.
"""

from __future__ import annotations

import pytest

from nautile.extract.kernel import Plan
from nautile.terms import Load, Reduce, Term, children, walk

from .build import plan, program

SCORES = """
def f(Q: f32[H,T,D], K: f32[H,S,D], V: bf16[H,S,E], *,
      H=32, T=2048, S=2048, D=128, E=128) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    m[h,t,s] = where(s <= t, x[h,t,s], -inf)
    O[h,t,e] = sum[s](softmax[s](m[h,t,s]) * V[h,s,e])
    return O
"""
# the depth is so short that computing the scores again would be the fastest
SHORT = """
def f(A: f32[T,D], B: f32[S,D], *, T=8192, S=8192, D=4) -> (f32[T,S], f32[T]):
    x[t,s] = sum[d](A[t,d] * B[s,d])
    m[t] = max[s](x[t,s])
    y[t,s] = exp(x[t,s] - m[t])
    return y, m
"""


def rounds_twice(chosen: Plan) -> list[str]:
    """Kernels that read a stored maximum beside a sum of their own over the scores' axes."""
    extremes = {
        o.buffer.name: o.term.body
        for k in chosen.kernels
        for o in k.outputs
        if isinstance(o.term, Reduce) and o.term.monoid in ("max", "min")
    }
    found = []
    for kernel in chosen.kernels:
        for output in kernel.outputs:
            inside = set(_computed(output.term))
            reads = {t.buffer.name for t in walk(output.term) if isinstance(t, Load)}
            if any(b in extremes and _sum(extremes[b]) in inside for b in reads):
                found.append(kernel.name)
    return found


def _computed(root: Term) -> list[Term]:
    return [t for t in walk(root) if not isinstance(t, Load)]


def _sum(body: Term) -> Term | None:
    """The sum in the body of a maximum, if one is computed there."""
    return next((t for t in _computed(body) if isinstance(t, Reduce) and children(t)), None)


@pytest.mark.parametrize("text", [SCORES, SHORT], ids=["scores", "short"])
def test_a_stored_maximum_is_not_met_by_new_sums(text: str) -> None:
    assert rounds_twice(plan(program(text))) == []
