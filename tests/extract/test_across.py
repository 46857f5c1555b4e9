"""Fusion across contractions: norms before them, cross-entropy after them, and what is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from nautile import extract, lang
from nautile.codegen.emit import emit
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.dtypes import storage
from nautile.extract.candidates import Candidate, Generator
from nautile.extract.classes import Classes
from nautile.extract.contractions import row_axes
from nautile.extract.kernel import Kernel
from nautile.oracle import run
from nautile.stages import Optimization, Options, build, certify, choose, saturate
from nautile.terms import Reduce, walk
from nautile.worker import Worker

RMS = """
def rms(x: bf16[N,C], z: bf16[N,C], g: f32[C], W: bf16[C,O], *, N=64, C=512, O=96) -> bf16[N,O]:
    s[n,c] = x[n,c] + z[n,c]
    r[n] = rsqrt(mean[c](s[n,c] * s[n,c]) + 1e-6)
    y[n,o] = sum[c](s[n,c] * r[n] * g[c] * W[c,o])
    return y
"""
ENTROPY = """
def entropy(h: bf16[N,D], W: bf16[V,D], t: i32[N], *, N=256, D=320, V=4096) -> f32[N]:
    z[n,v] = 30.0 * tanh(sum[d](h[n,d] * W[v,d]) / 30.0)
    l[n] = logsumexp[v](z[n,v])
    y[n] = l[n] - 0.9 * z[n,t[n]] - 0.1 * mean[v](z[n,v]) + 1e-4 * l[n] * l[n]
    return y
"""
NORMED_HEADS = """
def heads(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], *,
          H=4, T=256, S=1024, D=64) -> bf16[H,T,D]:
    r[h,t] = rsqrt(mean[d](Q[h,t,d] * Q[h,t,d]) + 1e-6)
    x[h,t,s] = sum[d](Q[h,t,d] * r[h,t] * K[h,s,d])
    p[h,t,s] = softmax[s](x[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""
SINGLE = """
def single(Q: bf16[T,D], K: bf16[S,D], q: f32[T,R], k: f32[S,R], V: bf16[S,D], *,
           T=256, S=1024, D=64, R=32) -> bf16[T,D]:
    x[t,s] = sum[d](Q[t,d] * K[s,d]) + sum[r](q[t,r] * k[s,r])
    p[t,s] = softmax[s](x[t,s])
    O[t,e] = sum[s](p[t,s] * V[s,e])
    return O
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def saturated(text: str, worker: Worker, **options: str) -> Optimization:
    result = Optimization(lang.parse(text)[0], Options(**options))  # type: ignore[arg-type]
    saturate(result, worker)
    return result


def chosen(text: str, worker: Worker) -> Optimization:
    result = saturated(text, worker)
    choose(result)
    build(result)
    certify(result)
    return result


def alone(result: Optimization) -> list[Candidate]:
    """Candidates that make the program's outputs from its inputs."""
    (region,), (snapshot,) = result.regions, result.snapshots
    classes = Classes(snapshot, region.outputs, extract.device("h200"), "x")
    generator = Generator(classes)
    generator.run()
    pool = [c for c in generator.pool.values() if c is not None]
    return [c for c in pool if c.makes >= set(classes.roots) and not c.needs]


def no_scores(result: Optimization, keys: int) -> bool:
    """Whether nothing that has all keys is stored between kernels."""
    assert result.plan is not None
    return all(keys not in b.shape for b in result.plan.intermediates)


def test_a_norm_is_folded_in_the_pass_of_the_contraction_after_it(worker: Worker) -> None:
    result = saturated(RMS, worker)
    best = min(alone(result), key=lambda c: c.seconds)
    (part,) = best.parts
    assert [a.name for a in part.streams] == ["c"]
    kernel = Kernel("one", best.parts, best.prediction)
    tiles = lower(kernel, part)
    assert "left operand formed" in emit(kernel, [tiles]).text
    rng = np.random.default_rng(3)
    inputs = result.program.inputs
    arrays = {b.name: rng.standard_normal(b.shape).astype(storage(b.dtype)) for b in inputs}
    want = np.asarray(run(result.program, arrays)["y"]).astype(np.float64)
    found = dict(arrays)
    run_program([tiles], found)
    error = found["y"].astype(np.float64) - want
    assert np.sqrt(np.mean(error**2)) < 8e-3 * np.sqrt(np.mean(want**2))


def test_cross_entropy_stores_no_logits(worker: Worker) -> None:
    result = chosen(ENTROPY, worker)
    assert result.passed
    assert result.plan is not None
    assert max(b.size for b in result.plan.intermediates) < 256 * 4096 / 16
    first = result.built[0]
    assert "memory program" in first.cuda.text
    assert "d" in {a.name for p in first.kernel.parts for a in p.streams}


def test_queries_are_normed_inside_attention(worker: Worker) -> None:
    result = chosen(NORMED_HEADS, worker)
    assert result.passed
    assert no_scores(result, 1024)
    assert re.search(r"//\s+fold \w+ <- sum over \d+ of d, from", result.built[0].cuda.text)


def test_scores_of_two_types_stay_in_one_kernel(worker: Worker) -> None:
    """An f32 term of the scores is multiplied as f32, beside a bf16 one."""
    result = chosen(SINGLE, worker)
    assert result.passed
    assert no_scores(result, 1024)
    assert "nt_mma_pieces" in result.built[0].cuda.text


def test_exact_numerics_split_no_operand(worker: Worker) -> None:
    result = saturated(SINGLE, worker, numerics="exact")
    choose(result)
    build(result)
    assert all("nt_mma_pieces" not in b.cuda.text for b in result.built)


def test_rows_of_a_contraction() -> None:
    program = lang.parse(NORMED_HEADS)[0]
    sums = [t for d in program.definitions for t in walk(d.body) if isinstance(t, Reduce)]
    scores = next(t for t in sums if {a.name for a in t.free} == {"h", "t", "s"})
    assert {a.name for a in row_axes(scores)} == {"t", "s"}
