"""Generated kernels run on the CPU against plain NumPy in float64, and the tile interpreter.

The shared memory of the emulation starts as NaNs, outputs are poisoned, copies land late or early.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import emulate
import numpy as np
import numpy.typing as npt
import programs as P
import pytest

from nautile.codegen.interpret import run_program
from nautile.codegen.sm80.emit import emit_mma
from nautile.codegen.sm80.limits import Options
from nautile.codegen.tile import Read, TileProgram, Write, walk_statements
from nautile.dtypes import round_to, storage
from nautile.terms import Const, apply

Arrays = dict[str, npt.NDArray[Any]]


def inputs(program: TileProgram, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    reads = [s.buffer for s in walk_statements(program.body) if isinstance(s, Read)]
    return {b.name: rng.standard_normal(b.shape).astype(storage(b.dtype)) for b in reads}


def outputs(program: TileProgram) -> Arrays:
    """Poisoned output arrays."""
    writes = [s.buffer for s in walk_statements(program.body) if isinstance(s, Write)]
    return {b.name: np.full(b.shape, np.nan).astype(storage(b.dtype)) for b in writes}


def emulated(
    program: TileProgram, arrays: Arrays, builds: Path, lazy: bool = True, **options: Any
) -> Arrays:
    found = outputs(program)
    emulate.run(emit_mma(program, Options(**options)), {**arrays, **found}, builds, lazy=lazy)
    return found


def agree(found: npt.NDArray[Any], want: npt.NDArray[Any], tolerance: float) -> None:
    a, b = found.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
    ok = np.isfinite(b)
    scale = np.sqrt(np.mean(b[ok] ** 2))
    assert np.sqrt(np.mean((a[ok] - b[ok]) ** 2)) <= tolerance * scale
    assert np.max(np.abs(a[ok] - b[ok])) <= 40 * tolerance * scale


def product(arrays: Arrays, layout: str, operand: str) -> npt.NDArray[np.float64]:
    a, b = (round_to(arrays[n].astype(np.float64), operand) for n in "AB")
    left, right = layout.split(",")
    return np.einsum(f"{left},{right}->mn", a, b)


ODD = [(33, 37, 41), (34, 38, 42), (36, 44, 52), (40, 72, 88), (5, 64, 40)]
LAYOUTS = ("mk,nk", "mk,kn", "km,nk", "km,kn")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operand", ["bf16", "f16", "tf32"])
def test_layouts_and_operand_types(layout: str, operand: str, builds: Path) -> None:
    stored = "f32" if operand == "tf32" else operand
    program = P.gemm(
        64, 64, 96, (32, 64, 32), layout=layout, dtype=stored, operand=operand, out="f32"
    )
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    agree(found["C"], product(arrays, layout, operand), 1e-6)


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_of_the_ring(stages: int, lazy: bool, builds: Path) -> None:
    program = P.gemm(32, 32, 160, (32, 32, 32), out="f32")
    arrays = inputs(program)
    found = emulated(program, arrays, builds, lazy, stages=stages)
    agree(found["C"], product(arrays, "mk,nk", "bf16"), 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "sizes", [(33, 37, 41), (34, 38, 42), (36, 44, 52), (40, 72, 88), (5, 64, 40)]
)
def test_sizes_that_no_tile_divides(sizes: tuple[int, int, int], layout: str, builds: Path) -> None:
    program = P.gemm(*sizes, (32, 32, 32), layout=layout)
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    agree(found["C"], product(arrays, layout, "bf16"), 4e-3)


@pytest.mark.parametrize("warps", [(1, 1), (2, 2), (1, 4), (4, 2)])
def test_warp_grids(warps: tuple[int, int], builds: Path) -> None:
    program = P.gemm(64, 64, 64, (64, 64, 32), layout="km,kn", out="f32")
    arrays = inputs(program)
    found = emulated(program, arrays, builds, warp_rows=warps[0], warp_columns=warps[1])
    agree(found["C"], product(arrays, "km,kn", "bf16"), 1e-6)


@pytest.mark.parametrize("out", ["bf16", "f32"])
@pytest.mark.parametrize("sizes", [(64, 64, 32), (50, 77, 32)])
def test_epilogue_of_vectors_and_matrices(
    sizes: tuple[int, int, int], out: str, builds: Path
) -> None:
    program = P.gemm(*sizes, (32, 32, 32), bias=True, residual=True, epilogue=P.gelu, out=out)
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    wide = {n: a.astype(np.float64) for n, a in arrays.items()}
    x = product(arrays, "mk,nk", "bf16") + wide["bias"]
    y = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    agree(found["C"], y + wide["X"], 4e-3 if out == "bf16" else 1e-6)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (50, 64, 40), (33, 35, 37)])
def test_operand_computed_on_its_way(sizes: tuple[int, int, int], builds: Path) -> None:
    """A row factor, a depth factor and a rounding between the load and the product."""
    program = P.gemm(*sizes, (32, 32, 32), prologue=True, out="f32")
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    wide = {n: a.astype(np.float64) for n, a in arrays.items()}
    a = round_to(wide["A"] * wide["R"][:, None] * wide["G"], "bf16")
    agree(found["C"], a @ wide["B"].T, 1e-3)


@pytest.mark.parametrize("stored", ["f32", "i8", "f8e4m3", "f8e5m2"])
def test_operands_of_another_stored_type(stored: str, builds: Path) -> None:
    operand = "bf16" if stored in ("f32", "i8") else stored
    program = P.gemm(32, 64, 64, (32, 64, 32), stored=stored, operand=operand, out="f32")
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    agree(found["C"], product(arrays, "mk,nk", operand), 1e-6)


def test_column_major_result(builds: Path) -> None:
    program = P.gemm(64, 48, 32, (32, 48, 32), out_axes="nm")
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    agree(found["C"], product(arrays, "mk,nk", "bf16").T, 4e-3)


def test_batches_that_share_an_operand(builds: Path) -> None:
    program = P.gemm(32, 64, 64, (32, 64, 32), batch=4, group=2, layout="mk,kn")
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    a, b = arrays["A"].astype(np.float64), arrays["B"].astype(np.float64)
    agree(found["C"], a @ b[[0, 0, 1, 1]], 4e-3)


def test_two_contractions_share_an_operand(builds: Path) -> None:
    program = P.gated(64, 64, 64, (32, 32, 32))
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    a, b, c = (arrays[n].astype(np.float64) for n in ("A", "B1", "B2"))
    x = a @ b.T
    agree(found["C"], x / (1 + np.exp(-x)) * (a @ c.T), 4e-3)
    assert emit_mma(program).text.count("nt_fragments(fa") == 2


CHAINS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"heads": 4, "group": 2},
    "causal": {"mask": P.causal},
    "causal, bounds unknown": {"mask": P.causal, "bounds": False},
    "window": {"q": 128, "t": 128, "mask": P.window(40), "window_size": 40},
    "ragged": {"q": 50, "t": 70, "d": 40},
    "ragged causal": {"q": 70, "t": 70, "d": 40, "mask": P.causal},
    "odd widths": {"q": 33, "t": 35, "d": 37},
    "values wider": {"d": 32, "e": 48},
    "one query": {"q": 1, "tile": (1, 32)},
    "softcap": {
        "score": lambda s, q, t, h: P.mul(apply("tanh", P.mul(s, 0.01)), 30.0),
        "mask": P.causal,
    },
    "power law": {
        "score": lambda s, q, t, h: apply(
            "sub",
            P.mul(s, 0.1),
            apply("log", P.add(Const(1.0), apply("abs", apply("sub", q, t)))),
        )
    },
    "gated": {
        "score": lambda s, q, t, h: P.mul(P.mul(s, 0.1), apply("sigmoid", P.mul(s, 0.2))),
        "mask": P.causal,
    },
    "distance": {"score": lambda s, q, t, h: P.add(s, P.mul(apply("sub", t, q), 0.1))},
    "sigmoid": {"activation": lambda x: apply("sigmoid", x), "mask": P.causal},
    "gelu": {"activation": P.gelu, "t": 70},
    "half": {"dtype": "f16"},
    "tf32": {"dtype": "f32", "operand": "tf32"},
    "row sums": {"logsumexp": True, "out": "f32"},
    "empty rows": {
        "mask": lambda q, t: apply("lt", P.add(t, Const(8)), q),
        "bounds": False,
        "t": 32,
    },
}


@pytest.mark.parametrize("name", CHAINS)
def test_streamed_chains_follow_the_interpreter(name: str, builds: Path) -> None:
    settings = {"q": 64, "t": 64, "d": 32, "heads": 1, "tile": (32, 32)} | CHAINS[name]
    program = P.attention(**settings)
    arrays = inputs(program)
    want = dict(arrays)
    run_program([program], want)
    for found in (emulated(program, arrays, builds, lazy) for lazy in (True, False)):
        for buffer, array in found.items():
            agree(array, want[buffer], 2e-3)


def test_attention_against_plain_numpy(builds: Path) -> None:
    program = P.attention(64, 96, 32, heads=2, tile=(64, 32), mask=P.causal)
    arrays = inputs(program)
    found = emulated(program, arrays, builds)
    q, k, v = (arrays[n].astype(np.float64) for n in "QKV")
    s = np.einsum("hqd,htd->hqt", q, k) * 32**-0.5
    s = np.where(np.arange(96) <= np.arange(64)[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    agree(found["O"], p / p.sum(-1, keepdims=True) @ v, 5e-3)


def test_rows_without_any_key_are_nan(builds: Path) -> None:
    """The interpreter's NaN rows and the kernel's are the same rows."""
    program = P.attention(**{"q": 32, "d": 32, "heads": 1, "tile": (32, 32)} | CHAINS["empty rows"])
    found = emulated(program, inputs(program), builds)["O"].astype(np.float32)
    assert np.isnan(found[0, :9]).all()
    assert np.isfinite(found[0, 9:]).all()
