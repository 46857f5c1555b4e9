"""Where a split is chosen: few rows and a long axis, and not where blocks fill the device."""

from __future__ import annotations

import itertools
import math

import pytest

from nautile import extract, lang, rules
from nautile.egraph import saturate
from nautile.extract.chunks import best_split
from nautile.extract.closed import launched
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.roofline import price
from nautile.extract.split import Split, launches
from nautile.inline import inline_outputs
from nautile.terms import Axis, Online, Output, buffers, walk

ONE = """
def f(Q: bf16[B,H,D], K: bf16[B,G,S,D], V: bf16[B,G,S,E], *,
      B=1, H=32, G=8, S=32768, D=128, E=128) -> bf16[B,H,E]:
    x[b,h,s] = sum[d](Q[b,h,d] * K[b,h//(H//G),s,d]) * D**-0.5
    p[b,h,s] = softmax[s](x[b,h,s])
    O[b,h,e] = sum[s](p[b,h,s] * V[b,h//(H//G),s,e])
    return O
"""
SEVERAL = """
def f(Q: bf16[B,H,T,D], K: bf16[B,G,S,D], V: bf16[B,G,S,E], *,
      B=1, H=32, G=8, T=1, S=32768, D=128, E=128) -> bf16[B,H,T,E]:
    x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h//(H//G),s,d]) * D**-0.5
    p[b,h,t,s] = softmax[s](x[b,h,t,s])
    O[b,h,t,e] = sum[s](p[b,h,t,s] * V[b,h//(H//G),s,e])
    return O
"""
WINDOW = """
def f(Q: bf16[H,D], K: bf16[H,S,D], V: bf16[H,S,E], *, H=8, S=131072, D=128, E=128, W=4096)\\
        -> bf16[H,E]:
    x[h,s] = where(s >= S - W, sum[d](Q[h,d] * K[h,s,d]), -inf)
    p[h,s] = softmax[s](x[h,s])
    O[h,e] = sum[s](p[h,s] * V[h,s,e])
    return O
"""
PRODUCT = """
def f(A: bf16[M,K], B: bf16[K,N], *, M=128, N=128, K=65536) -> bf16[M,N]:
    y[m,n] = sum[k](A[m,k] * B[k,n])
    return y
"""
ROWS = """
def f(x: f32[N,C], *, N=4, C=1000000) -> f32[N]:
    y[n] = sum[c](x[n,c])
    return y
"""


def chosen(text: str, **sizes: int) -> Plan:
    (program,) = lang.parse(text, dims=sizes or None)
    found = rules.load(None, classes=("exact", "real", "facts"))
    pairs = [(r, saturate(r.outputs, found)) for r in extract.cut(program)]
    return extract.choose(pairs, program, extract.device("h200"), runners=0)


def splits(plan: Plan) -> list[list[int]]:
    return [list(k.split.values()) for k in steps(plan)]


def steps(plan: Plan) -> list[Kernel]:
    """Launches, a closing one as the two that it does in turn."""
    return [step for k in plan.kernels for step in k.steps]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ONE, {}),
        (ONE, {"G": 32}),
        (ONE, {"S": 131072, "B": 2}),
        (ONE, {"S": 32771}),
        (SEVERAL, {}),
        (SEVERAL, {"G": 32}),
        (SEVERAL, {"T": 4, "S": 8192}),
    ],
)
def test_decoding_reads_keys_and_values_once_in_chunks(text: str, sizes: dict[str, int]) -> None:
    """One kernel makes the states of chunks from one pass over K and V, one merges them."""
    plan = chosen(text, **sizes)
    (chunks,), merged = splits(plan)
    assert chunks > 1
    assert merged == []
    first, last = steps(plan)
    assert {b.name for b in buffers(*(o.term for o in first.outputs))} == {"Q", "K", "V"}
    assert any(isinstance(t, Online) for t in walk(*(o.term for o in first.outputs)))
    assert all(b in plan.intermediates for b in buffers(*(o.term for o in last.outputs)))
    keys = next(b for b in buffers(*(o.term for o in first.outputs)) if b.name == "K")
    assert first.prediction.reads_bytes < 1.02 * 2 * (2 * keys.size)


def test_chunks_are_those_of_a_window() -> None:
    """A window's chunks alone are launched, and priced: 1/32 of the keys."""
    plan, whole = chosen(WINDOW), chosen(WINDOW, W=131072)
    assert splits(plan)[0][0] > 4
    assert plan.kernels[0].prediction.reads_bytes * 20 < whole.kernels[0].prediction.reads_bytes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (SEVERAL, {"T": 4096, "S": 4096}),
        (PRODUCT, {"M": 4096, "N": 4096, "K": 4096}),
        (ROWS, {"N": 4096, "C": 8192}),
        (ROWS, {"N": 1, "C": 4096}),
    ],
)
def test_what_fills_the_device_or_is_short_stays_whole(text: str, sizes: dict[str, int]) -> None:
    assert splits(chosen(text, **sizes)) == [[]]


def written(text: str, **sizes: int) -> tuple[tuple[Output, ...], Axis]:
    """The outputs of a program with one definition, and its reduced axis."""
    (program,) = lang.parse(text, dims=sizes or None)
    outputs = inline_outputs(
        program.outputs, {d.name: (d.axes, d.body) for d in program.definitions}
    )
    (axis,) = {t.axis for t in walk(outputs[0].term) if type(t).__name__ == "Reduce"}  # type: ignore[attr-defined]
    return outputs, axis


def seconds(outputs: tuple[Output, ...], split: Split) -> float:
    count = itertools.count()
    parts = launches(outputs, split, lambda: f"~{next(count)}")
    return launched([s for p in parts for s in price(p, extract.device("h200")).ranked(1)])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (PRODUCT, {}),
        (PRODUCT, {"M": 512, "N": 512}),
        (PRODUCT, {"M": 1024, "N": 2048, "K": 8192}),
        (PRODUCT, {"K": 4096}),
        (ROWS, {}),
        (ROWS, {"N": 64}),
        (ROWS, {"N": 1, "C": 65536}),
        (ROWS, {"N": 1, "C": 20000}),
    ],
)
def test_the_choice_is_that_of_the_model(text: str, sizes: dict[str, int]) -> None:
    """Of all powers of two and of none, within the noise: the search misses nothing."""
    outputs, axis = written(text, **sizes)
    whole = price(outputs, extract.device("h200"))
    counts = [2**k for k in range(1, 11) if axis.extent // 2**k >= 64]
    best = min(seconds(outputs, Split(axis, math.ceil(axis.extent / n))) for n in counts)
    found = best_split(outputs, whole)
    taken = found.seconds if found else whole.best()
    assert taken <= 1.03 * min(best, whole.best())
    assert (found is not None) == (taken < whole.best())


def test_more_rows_need_fewer_chunks() -> None:
    """From few rows to many, chunks become fewer until there is none."""
    counts = []
    for rows in (1, 8, 64, 512, 4096):
        outputs, _ = written(ROWS, N=rows, C=262144)
        found = best_split(outputs, price(outputs, extract.device("h200")))
        counts.append(found.split.chunks if found else 1)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 16
    assert counts[-1] == 1
