"""Splits in one launch: the last of a group of blocks to end merges what all of them have stored.
On the CPU, against float64 and against the interpreter of the two tile programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulate
import hopper_host
import host
import numpy as np
import numpy.typing as npt
import pytest

from nautile import extract, lang, rules
from nautile.codegen.closing import closes
from nautile.codegen.emit import emit
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import emit_mma
from nautile.codegen.sm90.emit import emit_hopper
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.dtypes import storage
from nautile.egraph import saturate
from nautile.extract import chunks
from nautile.extract.kernel import Kernel, Prediction
from nautile.extract.roofline import schedules
from nautile.extract.split import Split, launches
from nautile.terms import Online, Reduce, buffers, walk

pytestmark = pytest.mark.skipif(host.COMPILER is None, reason="needs g++")

Arrays = dict[str, npt.NDArray[Any]]
NONE = Prediction(0.0, "dram", 0, 0, 0, 0, 0, 0, 0, 0)
PRODUCT = """
def p(A: bf16[M,K], W: bf16[N,K], b: bf16[N], R: f32[M,N], *, M={m}, N={n}, K={k}) -> {t}[M,N]:
    C[m,n] = silu(sum[k](A[m,k] * W[n,k]) + b[n]) * R[m,n]
    return C
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("closing")


def kernel(text: str, axis: str, length: int, tiles: dict[str, int]) -> Kernel:
    """The only program of a text, split along an axis, as one launch in the given tiles."""
    (program,) = lang.parse(text)
    outputs = extract.cut(program)[0].outputs
    found = (t.axis for o in outputs for t in walk(o.term) if isinstance(t, (Reduce, Online)))
    split = Split(next(a for a in found if str(a) == axis), length)
    count = itertools.count()
    states, results = launches(outputs, split, lambda: f"S{next(count)}")
    part, _ = schedules(states, extract.device("h200"), 1)[0]
    chosen = {a: tiles.get(str(a), t) for a, t in part.tiles.items()}
    streams = tuple(a for a in part.tiles if str(a) == axis and chosen[a] < a.extent)
    last, _ = schedules(results, extract.device("h200"), 1)[0]
    first = replace(part, tiles=chosen, streams=streams)
    return Kernel("p", (first, replace(last, streams=())), NONE, closing=True)


def arrays_of(made: Kernel, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Random inputs, and poisoned states and results."""
    rng = np.random.default_rng(seed)
    stored = {o.buffer for o in made.outputs}
    read = [b for b in buffers(*(o.term for o in made.outputs)) if b not in stored]
    inputs = {b.name: rng.standard_normal(b.shape).astype(storage(b.dtype)) for b in read}
    return inputs, {b.name: np.full(b.shape, np.nan).astype(storage(b.dtype)) for b in stored}


def programs(made: Kernel) -> list[TileProgram]:
    return [lower(made, part) for part in made.parts]


def wanted(made: Kernel, inputs: Arrays) -> Arrays:
    found = dict(inputs)
    run_program(programs(made), found)
    return found


def on_hopper(made: Kernel, builds: Path, given: Arrays) -> tuple[CudaKernel, Arrays]:
    first, last = programs(made)
    cuda = emit_hopper(first, close=closes(made, last))
    return cuda, hopper_host.run(hopper_host.build([cuda], builds), 0, cuda, given)


def portable(made: Kernel, builds: Path, given: Arrays) -> tuple[CudaKernel, Arrays]:
    first, last = programs(made)
    cuda = emit_mma(first, close=closes(made, last))
    found = {n: a.copy() for n, a in given.items()}
    emulate.run(cuda, found, builds)
    return cuda, found


CASES: dict[str, tuple[Callable[..., Any], dict[str, int], dict[str, int], str]] = {
    "few rows": (on_hopper, {"m": 24, "n": 136, "k": 384}, {"m": 32, "n": 64, "k": 64}, "bf16"),
    "two warpgroups": (
        on_hopper,
        {"m": 20, "n": 136, "k": 256},
        {"m": 32, "n": 128, "k": 64},
        "f32",
    ),
    "rows": (on_hopper, {"m": 72, "n": 40, "k": 256}, {"m": 64, "n": 32, "k": 64}, "f32"),
    "portable": (portable, {"m": 24, "n": 72, "k": 384}, {"m": 32, "n": 32, "k": 64}, "bf16"),
    "odd": (portable, {"m": 7, "n": 33, "k": 256}, {"m": 16, "n": 16, "k": 64}, "f32"),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_closed_by_their_last_blocks(name: str, builds: Path) -> None:
    run, sizes, tiles, dtype = CASES[name]
    made = kernel(PRODUCT.format(**sizes, t=dtype), "k", 128, tiles)
    inputs, stored = arrays_of(made)
    cuda, found = run(made, builds, {**inputs, **stored})
    assert cuda.counters > 1
    a, w, b, r = (inputs[n].astype(np.float64) for n in "AWbR")
    z = a @ w.T + b
    exact = z / (1 + np.exp(-z)) * r
    scale = np.sqrt(np.mean(exact**2))
    error = np.abs(found["C"].astype(np.float64) - exact).max()
    assert error <= (0.05 if dtype == "bf16" else 1e-4) * scale
    same = wanted(made, inputs)["C"].astype(np.float64)
    assert np.abs(found["C"].astype(np.float64) - same).max() <= 0.05 * scale


ATTENTION = """
def f(Q: bf16[T,D], K: bf16[S,D], V: bf16[S,E], *, T={t}, S={s}, D=64, E=64) -> f32[T,E]:
    x[t,s] = where(s + 100 > t, sum[d](Q[t,d] * K[s,d]) * 0.125, -inf)
    O[t,e] = sum[s](softmax[s](x[t,s]) * V[s,e])
    return O
"""


def attention(t: int, s: int, length: int, tile: int, patch: pytest.MonkeyPatch) -> Kernel:
    """Online sums of chunks of the keys, and what merges them by their repair."""
    (program,) = lang.parse(ATTENTION.format(t=t, s=s))
    found = rules.load(None, classes=("exact", "real", "facts"))
    pairs = [(r, saturate(r.outputs, found)) for r in extract.cut(program)]

    def every(whole: Any) -> list[list[Split]]:
        return [[Split(a, length)] for a in chunks._axes(whole) if a.extent == s]

    patch.setattr(chunks, "_splits", every)
    patch.setattr(chunks, "SLACK", 0.0)
    patch.setattr(chunks, "COUNTED", -1.0)
    patch.setattr(chunks.Divided, "seconds", property(lambda self: 1e-9))
    plan = extract.choose(pairs, program, extract.device("h200"), runners=0)
    states, results = (k.parts[0] for one in plan.kernels for k in one.steps)
    tiles = {a: {"t": tile, "s": 64, "e": 64}.get(a.family, n) for a, n in states.tiles.items()}
    streams = tuple(a for a in tiles if a.family == "s" and tiles[a] < a.extent)
    first = replace(states, tiles=tiles, streams=streams)
    return Kernel("f", (first, replace(results, streams=())), NONE, closing=True)


@pytest.mark.parametrize(("run", "tile"), [(on_hopper, 64), (portable, 16)])
def test_online_sums_are_merged_by_their_repair(
    run: Callable[..., Any], tile: int, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = attention(40, 384, 128, tile, monkeypatch)
    inputs, stored = arrays_of(made)
    cuda, found = run(made, builds, {**inputs, **stored})
    assert cuda.counters == -(-40 // tile)
    q, k, v = (inputs[n].astype(np.float64) for n in "QKV")
    x = np.where(np.arange(384)[None, :] + 100 > np.arange(40)[:, None], q @ k.T / 8, -np.inf)
    p = np.exp(x - x.max(1, keepdims=True))
    exact = p / p.sum(1, keepdims=True) @ v
    error = np.sqrt(np.mean((found["O"] - exact) ** 2) / np.mean(exact**2))
    assert error < 4e-3


SUM = """
def f(x: f32[N,C], *, N=3, C=5000) -> f32[N]:
    y[n] = sum[c](x[n,c])
    return y
"""
EXTREME = """
def f(x: f32[N,C], *, N=2, C=4096) -> bf16[N]:
    y[n] = max[c](x[n,c] * x[n,c]) + 1.0
    return y
"""
NORM = """
def f(x: f32[C], *, C=3000) -> f32[()]:
    y = sqrt(sum[c](x[c] * x[c])) / (1.0 + max[c](x[c]))
    return y
"""
GENERIC = {"sum": (SUM, 1024), "extreme": (EXTREME, 512), "norm": (NORM, 700)}


@pytest.mark.parametrize("name", GENERIC)
def test_other_kernels_are_closed_by_the_last_block_of_all(name: str, builds: Path) -> None:
    text, length = GENERIC[name]
    made = kernel(text, "c", length, {})
    cuda = emit(made, programs(made))
    assert cuda.counters == 1
    inputs, stored = arrays_of(made)
    found = dict(inputs)
    host.run(host.build([cuda], builds), 0, cuda, made, found)
    (x,) = (a.astype(np.float64) for a in inputs.values())
    exact = {
        "sum": lambda: x.sum(1),
        "extreme": lambda: (x * x).max(1) + 1,
        "norm": lambda: np.sqrt((x * x).sum()) / (1 + x.max()),
    }[name]()
    result = found[made.parts[1].outputs[0].buffer.name].astype(np.float64)
    np.testing.assert_allclose(result, exact, rtol=1e-2 if name == "extreme" else 1e-5, atol=1e-4)
    assert stored
