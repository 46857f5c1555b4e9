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

from nautile import extract, lang
from nautile.codegen.closing import closes
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import emit_mma
from nautile.codegen.sm90.emit import emit_hopper
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.dtypes import storage
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
