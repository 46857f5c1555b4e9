"""Rows that blocks walk over with a ring ahead, run on the CPU, against the float64 oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import host
import pytest
from sample_kernels import (
    cross_entropy,
    indexed,
    layernorm,
    logsumexp,
    pointwise,
    rms_residual,
    softmax,
    softmax_online,
)
from sample_values import check, inputs

from nautile.codegen.compile import compile_kernel
from nautile.codegen.emit import emit_cluster_variants
from nautile.codegen.lower import lower
from nautile.codegen.rows import RowOptions, as_rows, emit_rows_walked
from nautile.codegen.source import CudaKernel
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel

Made = tuple[Callable[[], Kernel], RowOptions]
CASES: dict[str, Made] = {
    "two_merges": (lambda: layernorm(23, 1024, "f32"), RowOptions(ring=3, walkers=3, threads=64)),
    "one_merge": (lambda: rms_residual(23, 2048), RowOptions(ring=2, walkers=2)),
    "factors_from_memory": (lambda: layernorm(9, 1024), RowOptions(ring=2, walkers=2, early=0)),
    "ring_of_one": (lambda: softmax(n=7, c=1024), RowOptions(ring=1, walkers=2)),
    "online": (lambda: softmax_online(n=13, c=2048), RowOptions(ring=2, walkers=4)),
    "results_alone": (lambda: logsumexp(19, 1040), RowOptions(ring=4, walkers=3)),
    "picked_element": (lambda: cross_entropy(21, 512), RowOptions(ring=2, walkers=2)),
    "a_warp_each": (lambda: softmax(n=37, c=264), RowOptions(ring=2, walkers=8, threads=32)),
    "ragged": (lambda: layernorm(11, 1032), RowOptions(ring=2, walkers=3, threads=64)),
    "fewer_rows_than_ring": (lambda: softmax(n=3, c=1024), RowOptions(ring=4, walkers=1)),
    "cluster": (lambda: layernorm(13, 2048), RowOptions(2, 64, ring=3, walkers=3)),
    "cluster_one_merge": (
        lambda: rms_residual(9, 2048, "f32"),
        RowOptions(4, 32, ring=2, walkers=2),
    ),
    "cluster_ragged": (lambda: softmax(n=7, c=1064), RowOptions(4, 32, ring=2, walkers=2)),
    "taken": (lambda: softmax(n=13, c=1024), RowOptions(ring=2, walkers=2, taken=True)),
    "taken_twice": (lambda: rms_residual(11, 2048), RowOptions(ring=3, walkers=2, taken=True)),
    "taken_by_cluster": (
        lambda: layernorm(13, 2048),
        RowOptions(2, 64, ring=3, walkers=3, taken=True),
    ),
    "taken_ragged": (
        lambda: softmax(n=9, c=1064),
        RowOptions(4, 32, ring=2, walkers=2, taken=True),
    ),
    "taken_by_warps": (
        lambda: softmax(n=37, c=264),
        RowOptions(ring=2, walkers=8, threads=32, taken=True),
    ),
}
REFUSED: dict[str, Made] = {
    "nothing_is_folded": (lambda: pointwise(64, 1024), RowOptions(ring=2)),
    "rows_are_picked": (lambda: indexed(45, 1024), RowOptions(ring=2)),
    "rows_start_anywhere": (lambda: softmax(n=7, c=1001), RowOptions(ring=2)),
    "no_room": (lambda: softmax(n=7, c=65536), RowOptions(ring=2)),
    "no_ring": (lambda: softmax(n=7, c=1024), RowOptions(ring=0)),
}


def walked(name: str, cases: dict[str, Made] = CASES) -> CudaKernel:
    made, options = cases[name]
    kernel = made()
    rows = as_rows(lower(kernel, kernel.parts[0]))
    assert rows is not None
    precise = any(o.buffer.dtype != "bf16" for o in kernel.outputs)
    return emit_rows_walked(rows, kernel.name, precise, options)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder: Path = tmp_path_factory.mktemp("walked")
    return host.build([walked(name) for name in CASES], folder)


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", CASES)
def test_a_walk_computes_what_the_oracle_does(library: object, name: str) -> None:
    kernel, number = CASES[name][0](), list(CASES).index(name)
    arrays = inputs(kernel)
    found = dict(arrays)
    host.run(library, number, walked(name), kernel, found)  # type: ignore[arg-type]
    check(kernel, arrays, found)


@pytest.mark.parametrize("name", CASES)
def test_its_machine_code_spills_nothing(name: str) -> None:
    report = compile_kernel(walked(name), "sm_90").report
    assert (report.spill_stores, report.spill_loads) == (0, 0)


@pytest.mark.parametrize(
    ("kernel", "first"),
    [
        (softmax(n=4096, c=32768), (1, 1024, 128)),
        (softmax_online(4096, 65536), (2, 1024, 132)),
        (layernorm(4096, 32768), (2, 512, 132)),  # one block has no room for the factors
        (softmax_online(4096, 65536, "f32"), (4, 1024, 120)),  # three rows fit no pair
        (rms_residual(4096, 65536), (4, 512, 16384)),  # of two tensors, a cluster holds as much
        (softmax(n=64, c=32768), (2, 256, 128)),  # too few rows to stay for
    ],
)
def test_the_schedule_that_comes_first(kernel: Kernel, first: tuple[int, int, int]) -> None:
    made = emit_cluster_variants(lower(kernel, kernel.parts[0]))[0]
    assert (host.cluster_of(made), made.threads, made.grid[0]) == first


@pytest.mark.parametrize(
    "kernel",
    [
        softmax(n=4096, c=16384),  # one block holds the row
        rms_residual(4096, 32768),  # so it does of two tensors
        cross_entropy(4096, 128256),  # read once anyhow
        pointwise(4096, 65536),  # nothing is folded
        softmax_online(4096, 1 << 20),  # too long for eight blocks
    ],
)
def test_one_block_a_row_does_as_well(kernel: Kernel) -> None:
    with pytest.raises(LoweringError):
        emit_cluster_variants(lower(kernel, kernel.parts[0]))


def test_text_of_a_walk(request: pytest.FixtureRequest) -> None:
    path = Path(__file__).parent / "golden" / "walked-layernorm.cu"
    made = walked("taken_by_cluster").text
    if request.config.getoption("--update-golden", default=False):
        path.write_text(made)
    assert made == path.read_text()


def test_rows_are_read_from_memory_once() -> None:
    for name in CASES:
        text = walked(name).text
        body = text[text.index('extern "C"') :]
        assert "nt_load<16, false>" not in body
        assert body.count("nt_bulk_load(") == len(
            set(re.findall(r"nt_bulk_load\(.*?(p_\w+)", body))
        )


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_ring_is_refused(name: str) -> None:
    with pytest.raises(LoweringError):
        walked(name, REFUSED)
