"""From the language to the states of chunks: programs of other layouts, types, masks and scores.

Each program is split into a given number of chunks; its first kernel runs on the CPU, and what its
states stand for is compared with the whole program in float64.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nautile import extract, lang
from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import emit_mma
from nautile.dtypes import storage
from nautile.extract.kernel import Kernel
from nautile.oracle import arrays_fetch, evaluate
from nautile.oracle.programs import run
from nautile.stages import Optimization, Options, saturate
from nautile.terms import Buffer
from nautile.worker import Worker

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "mma"), str(HERE.parents[1] / "bench")]

import emulate  # noqa: E402
from build_decode import _forced  # noqa: E402

Arrays = dict[str, npt.NDArray[Any]]

GROUPED = """
def grouped(Q: bf16[B,H,T,D], K: bf16[B,G,S,D], V: bf16[B,G,S,E], *,
            B=2, H=8, G=2, T=1, S=200, D=32, E=48) -> bf16[B,H,T,E]:
    x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h//(H//G),s,d]) * D**-0.5
    p[b,h,t,s] = softmax[s](x[b,h,t,s])
    O[b,h,t,e] = sum[s](p[b,h,t,s] * V[b,h//(H//G),s,e])
    return O
"""
FEW_QUERIES = """
def few_queries(Q: bf16[B,H,T,D], K: bf16[B,G,S,D], V: bf16[B,G,S,D], *,
                B=1, H=6, G=2, T=3, S=150, D=32) -> bf16[B,H,T,D]:
    x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h//(H//G),s,d]) * D**-0.5
    m[b,h,t,s] = where(s <= t + (S - T), x[b,h,t,s], -inf)
    p[b,h,t,s] = softmax[s](m[b,h,t,s])
    O[b,h,t,d] = sum[s](p[b,h,t,s] * V[b,h//(H//G),s,d])
    return O
"""
INTERLEAVED = """
def interleaved(Q: f16[B,H,D], K: f16[B,S,G,D], V: f16[B,S,G,D], n: i32[B], *,
                B=2, H=4, G=2, S=120, D=64) -> f16[B,H,D]:
    x[b,h,s] = sum[d](Q[b,h,d] * K[b,s,h//(H//G),d]) * D**-0.5
    c[b,h,s] = where(s < n[b], 30.0 * tanh(x[b,h,s] / 30.0), -inf)
    p[b,h,s] = softmax[s](c[b,h,s])
    O[b,h,d] = sum[s](p[b,h,s] * V[b,s,h//(H//G),d])
    return O
"""
ONE_HEAD_EACH = """
def one_head_each(Q: bf16[B,H,D], K: bf16[B,H,S,D], V: bf16[B,H,S,D], slope: f32[H], *,
                  B=1, H=3, S=99, D=40) -> f32[B,H,D]:
    x[b,h,s] = sum[d](Q[b,h,d] * K[b,h,s,d]) * D**-0.5 + slope[h] * (s * 0.01)
    p[b,h,s] = softmax[s](x[b,h,s])
    O[b,h,d] = sum[s](p[b,h,s] * V[b,h,s,d])
    return O
"""
LATENT = """
def latent(Q: bf16[B,H,D], C: bf16[B,S,D], *, B=2, H=5, S=128, D=32) -> bf16[B,H,D]:
    x[b,h,s] = sum[d](Q[b,h,d] * C[b,s,d]) * D**-0.5
    p[b,h,s] = softmax[s](x[b,h,s])
    O[b,h,d] = sum[s](p[b,h,s] * C[b,s,d])
    return O
"""
TEXTS = {
    "grouped": GROUPED,
    "few_queries": FEW_QUERIES,
    "interleaved": INTERLEAVED,
    "one_head_each": ONE_HEAD_EACH,
    "latent": LATENT,
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decode_programs")


def chosen(text: str, worker: Worker, count: int) -> tuple[Any, tuple[Kernel, ...]]:
    result = Optimization(lang.parse(text)[0], Options())
    saturate(result, worker)
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    with _forced("s", count):
        device = extract.device("h200")
        plan = extract.choose(pairs, result.program, device, runners=0)
    return result.program, tuple(step for k in plan.kernels for step in k.steps)


def drawn(buffers: tuple[Buffer, ...]) -> Arrays:
    rng = np.random.default_rng(11)
    made: Arrays = {}
    for b in buffers:
        whole = b.dtype == "i32"
        values = rng.integers(7, 120, b.shape) if whole else rng.standard_normal(b.shape)
        made[b.name] = values.astype(storage(b.dtype))
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_states_of_chunks_stand_for_the_whole(name: str, worker: Worker, builds: Path) -> None:
    program, (first, last) = chosen(TEXTS[name], worker, 3)
    assert set(first.split.values()) == {3}
    cuda = emit_mma(lower(first, first.parts[0]))
    assert cuda.threads == 32
    arrays = drawn(program.inputs)
    made = {o.buffer.name: o.buffer for o in first.outputs}
    found = {n: np.full(b.shape, np.nan).astype(storage(b.dtype)) for n, b in made.items()}
    emulate.run(cuda, {**arrays, **found}, builds)
    wide = {n: np.asarray(a).astype(np.float64) for n, a in {**arrays, **found}.items()}
    (output,) = last.outputs
    positions = {a: np.arange(a.extent) for a in output.axes}
    merged = evaluate(output.term, arrays_fetch(wide), positions)
    want = run(program, wide)[output.buffer.name]
    scale = np.sqrt(np.mean(np.square(want)))
    np.testing.assert_allclose(merged, want, rtol=0, atol=0.02 * scale)
