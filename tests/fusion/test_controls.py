"""Negative controls: chosen plans with online sums pass, and every mutant of them fails.

The machine that they are chosen for has slow memory, and blocks that hold a few numbers: rows of a
few hundred elements are streamed, and certificates are quick.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from nautile import extract, lang, rules
from nautile.certificate import certify
from nautile.extract import tilings
from nautile.extract.kernel import Part, Plan
from nautile.extract.split import Split, launches
from nautile.stages import NUMERICS
from nautile.terms import Program
from nautile.worker import Worker

from .mutants import merge_mutants, mutants, online_sums

SMALL = replace(
    extract.device("h200"),
    name="small",
    sms=2,
    memory_sms=1,
    memory_bandwidth=1e9,
    l2_bandwidth=2e9,
    l2_bytes=64,
    launch_seconds=1e-6,
)
SHORT_TILES = {"RESIDENT": 64, "_CHUNK": (16, 32), "_WHOLE": 16}
WINDOW = """
def f(Q: bf16[N,D], K: bf16[M,D], V: bf16[M,E], *, N=40, M=200, D=4, E=4) -> bf16[N,E]:
    a[i,j] = where(j <= i + (M - N) and i + (M - N) - j < 60, sum[c](Q[i,c] * K[j,c]), -inf)
    w[i,j] = softmax[j](a[i,j])
    y[i,e] = sum[j](w[i,j] * V[j,e])
    return y
"""
# Rows without a key give 0, not NaN.
EMPTY = """
def f(x: f32[N,M], v: f32[N,M], n: i32[N], *, N=40, M=300) -> f32[N]:
    a[i,j] = where(j < n[i], x[i,j], -inf)
    top[i] = max[j](a[i,j])
    e[i,j] = where(j < n[i], exp(x[i,j] - top[i]), 0.0)
    y[i] = sum[j](e[i,j] * v[i,j])
    return y
"""
LEAST = """
def f(x: f32[N,M], *, N=40, M=300) -> f32[N]:
    low[i] = min[j](x[i,j])
    y[i] = sum[j](exp(2.0 * (low[i] - x[i,j])))
    return y
"""
TWO = """
def f(x: f32[N,M], z: f32[N,M], v: f32[N,M], *, N=40, M=300) -> f32[N]:
    a[i,j] = exp(x[i,j] - max[l: M](x[i,l]))
    b[i,j] = exp(z[i,j] - max[l: M](z[i,l]))
    y[i] = sum[j](a[i,j] * b[i,j] * v[i,j])
    return y
"""
VARIANCE = """
def f(x: f32[N,M], *, N=40, M=300) -> f32[N]:
    mu[i] = mean[j](x[i,j])
    y[i] = sum[j]((x[i,j] - mu[i]) ** 2)
    return y
"""
MASKED = """
def f(x: f32[N,M], keep: bool[N,M], *, N=40, M=300) -> f32[N]:
    k[i] = sum[j](where(keep[i,j], 1.0, 0.0))
    mu[i] = sum[j](where(keep[i,j], x[i,j], 0.0)) / k[i]
    y[i] = sum[j](where(keep[i,j], (x[i,j] - mu[i]) ** 2, 0.0))
    return y
"""
COVARIANCE = """
def f(x: f32[N,M], z: f32[N,M], *, N=40, M=300) -> f32[N]:
    a[i] = mean[j](x[i,j])
    b[i] = mean[j](z[i,j])
    y[i] = sum[j]((x[i,j] - a[i]) * (z[i,j] - b[i]))
    return y
"""
CENTRED = """
def f(x: f32[N,M], w: f32[M], *, N=40, M=300) -> f32[N]:
    mu[i] = mean[j](x[i,j])
    y[i] = sum[j]((x[i,j] - mu[i]) * w[j])
    return y
"""
ENTROPY = """
def f(x: f32[N,M], *, N=40, M=300) -> f32[N]:
    top[i] = max[j](x[i,j])
    e[i,j] = exp(x[i,j] - top[i])
    y[i] = sum[j](e[i,j] * (x[i,j] - top[i]))
    return y
"""
KINDS = {
    "windowed attention": WINDOW,
    "rows without a key": EMPTY,
    "minimum": LEAST,
    "two carriers": TWO,
    "variance": VARIANCE,
    "masked variance": MASKED,
    "centred product": CENTRED,
    "covariance": COVARIANCE,
    "entropy": ENTROPY,
}

# Mutants that mean the same, by (kind, what was changed), and why.
DISCARDED = (
    "what was summed before the first finite value is NaN or 0 with the guard and without it, and "
    "the first finite value discards it by a repair of 0; a row without one is NaN either way"
)
COUNTED = "the count up to and with a position is 1 or more"
OWN = "guard (new and old) of the repair dropped"
EQUAL = {
    ("windowed attention", OWN): DISCARDED,
    ("minimum", OWN): DISCARDED,
    ("two carriers", OWN): DISCARDED,
    ("variance", "guard (new) of the offset dropped"): COUNTED,
    ("centred product", "guard (new) of the offset dropped"): COUNTED,
    ("covariance", "guard (new) of the offset dropped"): COUNTED,
    ("entropy", OWN): DISCARDED,
    ("entropy", "guard (new and old) of the offset dropped"): DISCARDED,
}
# The same for merges: the guard that compares a chunk's maximum with that of all, the one that
# discards what has a repair of 0, and those of the counts.
FINITE = "a chunk has a finite extreme, or its state is NaN and discarded"
ZERO = "the state of a chunk without a key is 0, not NaN"
MERGED = {
    ("windowed attention", "guard 0 dropped"): FINITE,
    ("rows without a key", "guard 1 dropped"): ZERO,
    ("minimum", "guard 0 dropped"): FINITE,
    ("minimum", "guard 1 dropped"): FINITE,
    ("two carriers", "guard 0 dropped"): FINITE,
    ("two carriers", "guard 1 dropped"): FINITE,
    ("two carriers", "guard 2 dropped"): FINITE,
    ("variance", "guard 0 dropped"): COUNTED,
    ("variance", "guard 1 dropped"): COUNTED,
    ("centred product", "guard 0 dropped"): COUNTED,
    ("centred product", "guard 1 dropped"): COUNTED,
    ("covariance", "guard 0 dropped"): COUNTED,
    ("covariance", "guard 1 dropped"): COUNTED,
    ("covariance", "guard 2 dropped"): COUNTED,
    ("covariance", "guard 3 dropped"): COUNTED,
    ("entropy", "guard 0 dropped"): FINITE,
    ("entropy", "guard 1 dropped"): FINITE,
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


_MADE: dict[str, tuple[Program, Plan]] = {}


def chosen(kind: str, worker: Worker) -> tuple[Program, Plan]:
    """The program of a kind and its plan on the small machine, made once."""
    if kind not in _MADE:
        (program,) = lang.parse(KINDS[kind])
        known = rules.load(classes=NUMERICS["real"])
        regions = [(r, worker.saturate(r.outputs, known)) for r in extract.cut(program)]
        with patch.multiple(tilings, **SHORT_TILES):
            _MADE[kind] = program, extract.choose(regions, program, SMALL, runners=0)
    return _MADE[kind]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_chosen_plan_passes_and_has_online_sums(kind: str, worker: Worker) -> None:
    program, plan = chosen(kind, worker)
    assert online_sums(plan)
    assert certify(program, plan).verdict == "pass"


def survivors(program: Program, made: Iterable[tuple[str, Plan]]) -> set[str]:
    """The mutants that a certificate does not fail, by name."""
    return {n for n, plan in made if certify(program, plan, samples=256).verdict != "fail"}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_mutant_fails(kind: str, worker: Worker) -> None:
    program, plan = chosen(kind, worker)
    made = list(mutants(plan))
    explained = {n for n, _ in made if (kind, re.sub(r"^\d+: |(?<=guard )\d+ ", "", n)) in EQUAL}
    assert len(made) >= 5
    assert survivors(program, made) == explained


def split(plan: Plan) -> Plan:
    """The only kernel of a plan as two: states of chunks of 64, and their merge."""
    (kernel,) = plan.kernels
    names = (f"state{n}" for n in itertools.count())
    made = launches(kernel.outputs, Split(kernel.parts[0].streams[0], 64), lambda: next(names))
    kernels = [replace(kernel, name=f"k{n}", parts=(Part(o, {}),)) for n, o in enumerate(made)]
    return replace(plan, kernels=tuple(kernels))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_mutant_of_a_merge_fails(kind: str, worker: Worker) -> None:
    program, plan = chosen(kind, worker)
    parts = split(plan)
    assert len(parts.kernels) == 2
    assert certify(program, parts).verdict == "pass"
    made = list(merge_mutants(parts))
    explained = {n for n, _ in made if (kind, re.sub(r"^\d+: ", "", n)) in MERGED}
    assert len(made) >= 3
    assert survivors(program, made) == explained
