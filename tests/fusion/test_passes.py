"""Passes over an input are what the tile program does: one for each loop that reads it."""

from __future__ import annotations

import pytest

from nautile import lang
from nautile.codegen.lower import lower
from nautile.codegen.tile import Loop, Read, Statement
from nautile.extract.body import analyse
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.extract.passes import passes, passes_of_part
from nautile.inline import inline
from nautile.terms import Output

FREE = Prediction(0.0, "", 0, 0, 0, 0, 0, 0, 0, 0)
ATTENTION = """
def f(Q: bf16[N,D], K: bf16[M,D], V: bf16[M,D], *, N=64, M=256, D=16) -> bf16[N,D]:
    w[i,j] = softmax[j](sum[c](Q[i,c] * K[j,c]))
    y[i,c] = sum[j](w[i,j] * V[j,c])
    return y
"""
WEIGHTS = """
def f(Q: bf16[N,D], K: bf16[M,D], V: bf16[M,D], *, N=64, M=256, D=16) -> bf16[N,D]:
    a[i,j] = sum[c](Q[i,c] * K[j,c])
    y[i,c] = sum[j](exp(a[i,j] - max[l: M](a[i,l])) * V[j,c])
    return y
"""
SOFTMAX = """
def f(x: f32[N,M], *, N=64, M=256) -> f32[N,M]:
    y[i,j] = softmax[j](x[i,j])
    return y
"""
VARIANCE = """
def f(x: f32[N,M], w: f32[M], *, N=64, M=256) -> f32[N]:
    mu[i] = mean[j](x[i,j])
    y[i] = sum[j](w[j] * (x[i,j] - mu[i]) ** 2)
    return y
"""
GATHER = """
def f(x: f32[N,M], t: i32[N], *, N=64, M=256) -> f32[N]:
    y[i] = sum[j](x[i,j]) - x[i,t[i]]
    return y
"""
GRAM = """
def f(x: f32[N,M], *, N=64, M=256) -> f32[M,M]:
    y[a,b: M] = sum[i](x[i,a] * x[i,b])
    return y
"""
# text, axes to stream, expected passes, derived by hand
CASES = {
    "attention as it stands": (ATTENTION, "j", {"Q": 1, "K": 3, "V": 1}),
    "a weighted sum waits for its maximum": (WEIGHTS, "j", {"Q": 1, "K": 2, "V": 1}),
    "attention, a block holds all keys": (ATTENTION, "", {"Q": 1, "K": 1, "V": 1}),
    "softmax walks three times": (SOFTMAX, "j", {"x": 3}),
    "softmax of a row on the chip": (SOFTMAX, "", {"x": 1}),
    "variance waits for its mean": (VARIANCE, "j", {"x": 2, "w": 1}),
    "one element is no pass": (GATHER, "j", {"x": 1, "t": 1}),
    "two operands of one loop": (GRAM, "i", {"x": 1}),
}


def part_of(text: str, streams: str) -> Part:
    """Every output in one part, definitions written out, the named axes streamed in tiles of 16."""
    (program,) = lang.parse(text)
    known = {d.name: (d.axes, d.body) for d in program.definitions}
    outputs = tuple(Output(o.buffer, o.axes, inline(o.term, known)) for o in program.outputs)
    axes = analyse(outputs).axes
    streamed = tuple(a for a in axes if a.name in tuple(streams))
    return Part(outputs, {a: 16 if a in streamed else a.extent for a in axes}, streamed)


def loops_that_read(body: tuple[Statement, ...], name: str) -> int:
    """Distinct loops of a tile program with a Read of the buffer; outside of loops counts one."""
    here = any(isinstance(s, Read) and s.buffer.name == name for s in body)
    inner = sum(loops_that_read(s.body, name) for s in body if isinstance(s, Loop))
    return inner + here


@pytest.mark.parametrize("case", list(CASES))
def test_passes_are_those_of_the_mathematics(case: str) -> None:
    text, streams, expected = CASES[case]
    assert passes_of_part(part_of(text, streams)) == expected


# The lowering reads the one element too, and takes a divisor out of a sum, which saves a pass.
LOWERED = [c for c in CASES if c not in ("one element is no pass", "attention as it stands")]


@pytest.mark.parametrize("case", LOWERED)
def test_the_tile_program_reads_in_as_many_loops(case: str) -> None:
    text, streams, expected = CASES[case]
    part = part_of(text, streams)
    tiles = lower(Kernel("f", (part,), FREE), part)
    assert {n: loops_that_read(tiles.body, n) for n in expected} == expected


def test_kernels_add_up() -> None:
    part = part_of(SOFTMAX, "j")
    kernel = Kernel("f", (part,), FREE)
    assert passes([kernel, kernel]) == {"x": 6}
