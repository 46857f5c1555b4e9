"""Hopper kernels run on the CPU: swizzled boxes, descriptors, fragments, rings and turns
as the hardware has them, against plain numpy and the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hopper_host
import host
import numpy as np
import numpy.typing as npt
import programs as P
import pytest
from test_kernels import CHAINS, Arrays, agree, inputs, outputs

from nautile.codegen.interpret import run_program
from nautile.codegen.sm90.emit import emit_hopper
from nautile.codegen.sm90.options import Options
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.terms import Term, apply

pytestmark = pytest.mark.skipif(host.COMPILER is None, reason="needs g++")


def rational(s: Term, q: Term, t: Term, h: Term) -> Term:
    """A score of two quotients and a distance."""
    square = P.add(P.mul(s, s), 1.0)
    near = apply("log", P.add(apply("abs", apply("sub", q, t)), 1.0))
    wave = P.mul(apply("tanh", P.mul(s, 0.1)), 3.0)
    return P.add(P.add(apply("div", s, square), wave), P.mul(near, -0.5))


def capped(s: Term, q: Term, t: Term, h: Term) -> Term:
    """A score that nothing but its place is added to."""
    return P.add(P.mul(apply("tanh", P.mul(s, 0.02)), 20.0), P.mul(apply("sub", t, q), 0.1))


Case = tuple[Callable[[], TileProgram], dict[str, Any], float]
QUICK: dict[str, Case] = {
    "ragged, turns": (lambda: P.gemm(200, 136, 136, (128, 128, 64)), {"blocks": 2}, 4e-3),
    "wide, both transposed": (
        lambda: P.gemm(128, 264, 136, (128, 256, 64), layout="km,kn", batch=2, group=2),
        {"blocks": 1},
        4e-3,
    ),
    "few rows, the others columns": (lambda: P.gemm(24, 136, 200, (32, 64, 64)), {}, 4e-3),
    "fewer rows than a tile": (lambda: P.gemm(24, 72, 200, (64, 32, 64)), {}, 4e-3),
    "gated pair": (lambda: P.gated(128, 136, 136, (128, 64, 64)), {}, 4e-3),
    "a residual, ahead, turns": (
        lambda: P.gemm(200, 136, 136, residual=True),
        {"cluster": 2, "blocks": 2},
        4e-3,
    ),
    "a short product beside another": (lambda: P.beside(), {"blocks": 2, "cluster": 2}, 4e-3),
    "a cluster, turns": (
        lambda: P.gemm(200, 264, 392, (128, 128, 64)),
        {"blocks": 2, "cluster": 2},
        4e-3,
    ),
    "shared reciprocals": (
        lambda: P.attention(128, 128, 64, heads=1, tile=(128, 64), mask=P.causal, score=rational),
        {"blocks": 1},
        4e-3,
    ),
    "a chain of a cluster": (
        lambda: P.attention(256, 128, 64, heads=1, tile=(128, 64)),
        {"blocks": 2, "cluster": 2},
        4e-3,
    ),
    "capped": (
        lambda: P.attention(128, 128, 64, heads=1, tile=(128, 64), mask=P.causal, score=capped),
        {"blocks": 1},
        4e-3,
    ),
    "causal": (
        lambda: P.attention(128, 128, 64, heads=2, group=2, tile=(128, 64), mask=P.causal),
        {"blocks": 1},
        4e-3,
    ),
}
SLOW: dict[str, Case] = {
    "vectors and matrices": (
        lambda: P.gemm(200, 136, 136, bias=True, residual=True, epilogue=P.gelu),
        {"alternate": False},
        4e-3,
    ),
    "f32 results": (lambda: P.gemm(136, 134, 136, out="f32"), {}, 1e-5),
    "f32 results by the copy engine": (lambda: P.gemm(200, 136, 136, out="f32"), {}, 1e-5),
    "more buffers": (
        lambda: P.gemm(200, 264, 136, (128, 256, 64)),
        {"blocks": 1, "buffers": 3},
        4e-3,
    ),
    "192 columns in turn": (
        lambda: P.gemm(200, 400, 136, (128, 192, 64), bias=True, epilogue=P.gelu),
        {"blocks": 1},
        4e-3,
    ),
    "a residual, ahead, ragged": (
        lambda: P.gemm(200, 264, 136, (128, 256, 64), bias=True, residual=True),
        {"blocks": 1},
        4e-3,
    ),
    "f32 results of two fragments": (
        lambda: P.gemm(200, 264, 136, (256, 96, 64), out="f32"),
        {"blocks": 2},
        1e-5,
    ),
    "column-major results": (lambda: P.gemm(128, 136, 72, out_axes="nm"), {}, 4e-3),
    "half": (lambda: P.gemm(64, 136, 72, (64, 128, 64), dtype="f16", layout="mk,kn"), {}, 1e-3),
    "tf32": (lambda: P.gemm(128, 136, 72, (128, 128, 32), dtype="tf32", out="f32"), {}, 2e-3),
    "e4m3": (lambda: P.gemm(128, 136, 144, (128, 128, 128), dtype="f8e4m3", out="f32"), {}, 1e-3),
    "e5m2": (lambda: P.gemm(128, 136, 144, (128, 128, 128), dtype="f8e5m2", out="f32"), {}, 1e-3),
    "e4m3, long sums": (
        lambda: P.gemm(128, 72, 656, (128, 128, 128), dtype="f8e4m3", out="f32"),
        {},
        1e-5,
    ),
    "a cluster, both transposed": (
        lambda: P.gemm(256, 264, 136, (128, 256, 64), layout="km,kn", batch=2),
        {"blocks": 4, "cluster": 2},
        4e-3,
    ),
    "a cluster, e4m3, long sums": (
        lambda: P.gemm(256, 72, 656, (128, 64, 128), dtype="f8e4m3", out="f32"),
        {"cluster": 2},
        1e-5,
    ),
    "three warpgroups": (
        lambda: P.attention(200, 200, 64, heads=1, tile=(192, 64)),
        {"blocks": 1},
        4e-3,
    ),
    "quotients of two fragments": (
        lambda: P.attention(256, 128, 64, heads=1, tile=(256, 64), score=rational),
        {"blocks": 1},
        4e-3,
    ),
    "capped scores of two fragments": (
        lambda: P.attention(256, 128, 64, heads=1, tile=(256, 64), score=capped, mask=P.causal),
        {"blocks": 1},
        4e-3,
    ),
    "three warpgroups, a wait midway": (
        lambda: P.attention(200, 200, 64, heads=1, tile=(192, 48), score=rational),
        {"blocks": 1, "midway": True},
        4e-3,
    ),
    "half, quotients": (
        lambda: P.attention(128, 128, 64, heads=1, tile=(128, 64), score=rational, dtype="f16"),
        {"blocks": 1},
        1e-3,
    ),
    "dynamic without an operand that stays": (
        lambda: P.gemm(200, 264, 72),
        {"dynamic": True, "alternate": False, "blocks": 2},
        4e-3,
    ),
    "in order": (
        lambda: P.attention(128, 192, 64, heads=1, tile=(64, 64), mask=P.causal),
        {"descending": False, "dynamic": False},
        4e-3,
    ),
}
SIZES: dict[str, Any] = {"q": 136, "t": 136, "d": 64, "heads": 1, "tile": (128, 64)}
LEFT_OUT = ("one query", "tf32", "odd widths")  # rows that are no multiple of 64; operands; widths
SLOW |= {
    f"chain {name}": (
        lambda changes=changes: P.attention(**(SIZES | changes | {"tile": (128, 64)})),
        {"blocks": 2},
        4e-3,
    )
    for name, changes in CHAINS.items()
    if name not in LEFT_OUT
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[str, CudaKernel]]:
    made = {n: emit_hopper(make(), Options(**given)) for n, (make, given, _) in QUICK.items()}
    return hopper_host.build(list(made.values()), tmp_path_factory.mktemp("hopper")), made


def follows(program: TileProgram, found: Arrays, arrays: Arrays, tolerance: float) -> None:
    """Every output as the interpreter has it."""
    want = dict(arrays)
    run_program([program], want)
    for name in outputs(program):
        agree(found[name], want[name], tolerance)


@pytest.mark.parametrize("name", QUICK)
def test_kernels_follow_the_interpreter(
    library: tuple[ctypes.CDLL, dict[str, CudaKernel]], name: str
) -> None:
    make, _, tolerance = QUICK[name]
    program, arrays = make(), inputs(make())
    number = list(QUICK).index(name)
    given = {**arrays, **outputs(program)}
    found = hopper_host.run(library[0], number, library[1][name], given)
    follows(program, found, arrays, tolerance)


@pytest.mark.parametrize(("factor", "near"), [(0.25, True), (1.0, None), (40.0, False)])
def test_scores_near_the_cap_and_far_from_it(
    factor: float, near: bool | None, library: tuple[ctypes.CDLL, dict[str, CudaKernel]]
) -> None:
    """Warps whose arguments are all small take another form of tanh: some, all or none do."""
    program = QUICK["capped"][0]()
    assert "nt_tanh_near_5(" in library[1]["capped"].text
    arrays = inputs(program)
    arrays["Q"] = (arrays["Q"].astype(np.float32) * factor).astype(arrays["Q"].dtype)
    scores = np.einsum("hqd,htd->hqt", *(arrays[n].astype(np.float64) for n in "QK")) * 0.02
    blocks = np.abs(scores).reshape(1, 8, 16, 2, 64).max(axis=(2, 4))  # 16 rows of a warp, 64 keys
    if near is None:
        assert (blocks < 0.5).any()
        assert (blocks >= 0.5).any()
    else:
        assert ((blocks < 0.5) == near).all()
    given = {**arrays, **outputs(program)}
    found = hopper_host.run(library[0], list(QUICK).index("capped"), library[1]["capped"], given)
    follows(program, found, arrays, 4e-3)


def test_a_nan_behind_the_mask_stays_there(
    library: tuple[ctypes.CDLL, dict[str, CudaKernel]],
) -> None:
    """Elements share reciprocals with their neighbours, one of which the mask may drop."""
    name, key = "shared reciprocals", 41
    assert library[1][name].text.count("nt_reciprocals(d") >= 2
    program = QUICK[name][0]()
    arrays = inputs(program)
    arrays["K"][0, key, 0] = np.nan
    given = {**arrays, **outputs(program)}
    found = hopper_host.run(library[0], list(QUICK).index(name), library[1][name], given)["O"]
    assert np.isfinite(found[0, :key].astype(np.float32)).all()
    assert np.isnan(found[0, key:].astype(np.float32)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_kernels_follow_the_interpreter(name: str, builds: Path) -> None:
    make, given, tolerance = SLOW[name]
    program, arrays = make(), inputs(make())
    cuda = emit_hopper(program, Options(**given))
    built = hopper_host.build([cuda], builds)
    found = hopper_host.run(built, 0, cuda, {**arrays, **outputs(program)})
    follows(program, found, arrays, tolerance)


@pytest.mark.slow
def test_a_product_against_plain_numpy(builds: Path) -> None:
    program = P.gemm(200, 136, 136, (128, 128, 64), layout="km,nk", out="f32")
    arrays = inputs(program)
    cuda = emit_hopper(program)
    found = hopper_host.run(
        hopper_host.build([cuda], builds), 0, cuda, {**arrays, **outputs(program)}
    )
    a, b = (arrays[n].astype(np.float64) for n in "AB")
    agree(found["C"], a.T @ b.T, 1e-5)


def rows_without_keys(builds: Path) -> npt.NDArray[Any]:
    program = P.attention(
        **(SIZES | {"mask": lambda q, t: apply("lt", P.add(t, 8), q), "bounds": False})
    )
    cuda = emit_hopper(program)
    arrays = inputs(program)
    return hopper_host.run(
        hopper_host.build([cuda], builds), 0, cuda, {**arrays, **outputs(program)}
    )["O"].astype(np.float32)


@pytest.mark.slow
def test_rows_without_any_key_are_nan_and_no_others(builds: Path) -> None:
    found = rows_without_keys(builds)
    assert np.isnan(found[0, :9]).all()
    assert np.isfinite(found[0, 9:]).all()
