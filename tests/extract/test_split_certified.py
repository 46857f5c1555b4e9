"""Programs whose chosen kernels are split, certified; and certificates that fail when the merge is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nautile import extract, lang, rules
from nautile.certificate import certify
from nautile.certificate.meaning import positions_for
from nautile.certificate.shorten import shortened
from nautile.certificate.subject import subject_of
from nautile.codegen.lower import lower
from nautile.egraph import saturate
from nautile.extract.kernel import Kernel, Plan
from nautile.oracle import evaluate
from nautile.terms import (
    Apply,
    Const,
    Load,
    Online,
    Output,
    Program,
    Reduce,
    Term,
    apply,
    transform,
)

DECODE = """
def f(Q: bf16[H,D], K: bf16[H,S,D], V: bf16[H,S,E], *, H=2, S=8192, D=32, E=32) -> bf16[H,E]:
    x[h,s] = sum[d](Q[h,d] * K[h,s,d])
    O[h,e] = sum[s](softmax[s](x[h,s]) * V[h,s,e])
    return O
"""


@cache
def chosen(text: str) -> tuple[Program, Plan]:
    """The plan of a program for the H200."""
    (program,) = lang.parse(text)
    found = rules.load(None, classes=("exact", "real", "facts"))
    regions = extract.cut(program)
    pairs = [(region, saturate(region.outputs, found)) for region in regions]
    return program, extract.choose(pairs, program, extract.device("h200"))


def verdict(program: Program, plan: Plan) -> str:
    tiles = {k.name: tuple(lower(k, p) for p in k.parts) for k in plan.kernels}
    made = certify(program, plan, tiles, samples=128)
    return made.verdict


def split_of(plan: Plan) -> list[int]:
    return [n for k in plan.kernels for n in k.split.values()]


PROGRAMS = {
    "sum": """
def f(x: f32[N,C], *, N=2, C=262144) -> f32[N]:
    y[n] = sum[c](x[n,c])
    return y
""",
    "max": """
def f(x: f32[N,C], *, N=3, C=200003) -> f32[N]:
    y[n] = max[c](x[n,c])
    return y
""",
    "argmax": """
def f(x: f32[N,C], *, N=2, C=300000) -> i32[N]:
    y[n] = argmax[c](x[n,c])
    return y
""",
    "logsumexp": """
def f(x: f32[C], *, C=262147) -> f32[()]:
    y = logsumexp[c](x[c])
    return y
""",
    "softmax": """
def f(x: bf16[N,C], *, N=2, C=262144) -> bf16[N,C]:
    y[n,c] = softmax[c](x[n,c])
    return y
""",
    "product": """
def f(A: bf16[M,K], B: bf16[K,N], *, M=32, N=32, K=32768) -> bf16[M,N]:
    y[m,n] = sum[k](A[m,k] * B[k,n])
    return y
""",
    "decode": DECODE,
    "ragged": DECODE.replace("S=8192", "S=8195"),
    "lengths": """
def f(Q: bf16[H,D], K: bf16[H,S,D], V: bf16[H,S,E], n: i32[H], *,
      H=2, S=8192, D=32, E=32) -> bf16[H,E]:
    x[h,s] = sum[d](Q[h,d] * K[h,s,d])
    p[h,s] = softmax[s](where(s < n[h], x[h,s], -inf))
    O[h,e] = sum[s](p[h,s] * V[h,s,e])
    return O
""",
    "window": """
def f(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *,
      H=2, T=2, S=16384, D=32, E=32) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d])
    near[h,t,s] = where(s + 9000 > t + S - T and s <= t + S - T, x[h,t,s], -inf)
    p[h,t,s] = softmax[s](near[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_split_programs_are_certified(name: str) -> None:
    program, plan = chosen(PROGRAMS[name])
    assert split_of(plan)
    assert verdict(program, plan) == "pass"


def changed(plan: Plan, place: int, change: Callable[[Term], Term]) -> Plan:
    """The plan with one kernel's terms changed at every place where `change` changes them."""

    def kernel(old: Kernel) -> Kernel:
        (part,) = old.parts
        made = (Output(o.buffer, o.axes, transform(o.term, change)) for o in part.outputs)
        return replace(old, parts=(replace(part, outputs=tuple(made)),))

    kernels = [step for k in plan.kernels for step in k.steps]
    kernels[place] = kernel(kernels[place])
    assert all(kernels[place] not in k.steps for k in plan.kernels)
    return replace(plan, kernels=tuple(kernels))


def flipped(term: Term) -> Term:
    """Differences the other way round."""
    match term:
        case Apply("sub", (a, b)):
            return apply("sub", b, a)
    return term


def unrepaired(term: Term) -> Term:
    """Partial sums that are added as they are."""
    match term:
        case Apply("where", (_, Const(0), Apply("mul", (state, _)))):
            return state
    return term


def unmerged(term: Term) -> Term:
    """The first chunk's carrier in place of the merged one."""
    match term:
        case Reduce("max", chunk, Load(buffer, at)):
            first = (Const(0) if chunk in c.free else c for c in at)
            return Load(buffer, tuple(first))
    return term


def stale(term: Term) -> Term:
    """Within a chunk, sums that no repair brings to a new maximum."""
    return Online(term.axis, Const(1.0), term.body) if isinstance(term, Online) else term


def whole(term: Term) -> Term:
    """Every chunk as if it were the first."""
    match term:
        case Apply("mul", (_, Const(int(length)))) if length >= 64:
            return Const(0)
    return term


MUTANTS = {flipped: -1, unrepaired: -1, unmerged: -1, stale: 0, whole: 0}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_merge_fails_its_certificate(mutant: Callable[[Term], Term]) -> None:
    program, plan = chosen(DECODE)
    wrong = changed(plan, MUTANTS[mutant], mutant)
    made = certify(program, wrong, samples=32)
    assert [c.name for c in made.checks if not c.passed] == ["meaning of O"]


@pytest.mark.parametrize("longest", [16, 256, 1024])
@pytest.mark.parametrize("name", ["decode", "logsumexp", "softmax", "window"])
def test_both_sides_agree_over_shorter_axes(name: str, longest: int) -> None:
    """Chunks and places become shorter together, as the axis of the source does."""
    program, plan = chosen(PROGRAMS[name])
    subject = subject_of(program, plan, 0)
    target = next(t for t in subject.targets if t.named)
    near, short = shortened(subject, target, longest)
    grid = positions_for(near, short, "ordinary", 16)
    drawn = subject.drawn("ordinary")
    expected = evaluate(short.term, near.source.fetch(drawn, "f64"), grid)
    at = dict(zip(short.output.axes, grid.values(), strict=True))
    actual = evaluate(short.output.term, near.meant.fetch(drawn, "f64"), at)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
