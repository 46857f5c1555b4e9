"""Rows shared by the blocks of a cluster, run on the CPU block by block side by side, against the
float64 oracle; and when a cluster is chosen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import host
import pytest
from online_kernels import BESIDE, JOINED, ONLINE, SHARED, weighted_moment
from sample_kernels import (
    CASES,
    ROW_CASES,
    arguments,
    cross_entropy,
    layernorm,
    pointwise,
    rms_residual,
    softmax,
    softmax_online,
)
from sample_values import check, inputs

from nautile.building import build
from nautile.codegen.compile import compile_kernel
from nautile.codegen.lower import lower
from nautile.codegen.rows import RowOptions, RowProgram, as_rows, emit_rows, emit_rows_cluster
from nautile.codegen.source import CudaKernel
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel
from nautile.stages import Options

SHORT = [RowOptions(c, t) for c, t in ((8, 64), (4, 32), (2, 32), (8, 512), (8, 1024))]
MADE: dict[str, Callable[[], Kernel]] = {
    **CASES,
    **ROW_CASES,
    **ONLINE,
    **{f"joined-{n}": made for n, made in JOINED.items()},
    **{f"shared-{n}": made for n, made in SHARED.items()},
    **{f"beside-{n}": made for n, made in BESIDE.items()},
    "monoids_wide": lambda: arguments(5, 1021),
    # Its repair has no guard for two states that are both empty: every thread has an element.
    "weighted_moment_long": lambda: weighted_moment(n=1, c=16384),
    "two_inputs": lambda: rms_residual(3, 8192),
    "two_merges": lambda: layernorm(3, 4096, "f32"),
}


def rows_of(kernel: Kernel) -> RowProgram | None:
    return as_rows(lower(kernel, kernel.parts[0]))


def shared(kernel: Kernel, options: RowOptions | None = None) -> CudaKernel:
    rows = rows_of(kernel)
    assert rows is not None
    precise = any(o.buffer.dtype != "bf16" for o in kernel.outputs)
    if options is None:
        return emit_rows_cluster(rows, kernel.name, precise)
    return emit_rows_cluster(rows, kernel.name, precise, options)


def smallest(kernel: Kernel) -> CudaKernel | None:
    """The kernel in the smallest blocks that can share its rows."""
    for options in SHORT if rows_of(kernel) is not None else ():
        try:
            return shared(kernel, options)
        except LoweringError:
            continue
    return None


def staged(kernel: Kernel, options: RowOptions) -> CudaKernel:
    rows = rows_of(kernel)
    assert rows is not None
    precise = any(o.buffer.dtype != "bf16" for o in kernel.outputs)
    emit = emit_rows if options.cluster == 1 else emit_rows_cluster
    return emit(rows, kernel.name, precise, options)


STAGED = {
    "wide": RowOptions(threads=128, staged=True),
    "warps_f32": RowOptions(threads=64, staged=True),
    "streamed_online": RowOptions(8, 64, staged=True),
    "standardised_f32": RowOptions(2, 64, staged=True, room=0),
    "variance_wide": RowOptions(4, 32, staged=True),
    "weighted_moment_long": RowOptions(4, 128, staged=True),
    "two_inputs": RowOptions(2, 96, staged=True, room=0),
    "two_merges": RowOptions(threads=256, staged=True),
}
TAKEN = {name: cuda for name, made in MADE.items() if (cuda := smallest(made())) is not None}


TAKEN |= {f"staged-{n}": staged(MADE[n](), options) for n, options in STAGED.items()}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder: Path = tmp_path_factory.mktemp("clusters")
    return host.build(list(TAKEN.values()), folder)


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", TAKEN)
def test_a_cluster_computes_what_the_oracle_does(library: object, name: str) -> None:
    kernel, number = MADE[name.removeprefix("staged-")](), list(TAKEN).index(name)
    arrays = inputs(kernel)
    found = dict(arrays)
    host.run(library, number, TAKEN[name], kernel, found)  # type: ignore[arg-type]
    check(kernel, arrays, found)


def test_staged_rows_are_read_from_memory_once() -> None:
    for name in STAGED:
        text = TAKEN[f"staged-{name}"].text
        body = text[text.index('extern "C"') :]
        assert body.count("nt_copy16(") == len(set(re.findall(r"nt_copy16\(.*?, (p_\w+)", body)))
        assert TAKEN[f"staged-{name}"].shared_bytes > 0
        assert "nt_load<16, false>" not in body


def test_clusters_of_every_size_and_fold_are_tried() -> None:
    sizes = {host.cluster_of(cuda) for name, cuda in TAKEN.items() if "staged" not in name}
    assert sizes == {2, 4, 8}
    assert {"monoids_wide", "weighted_moment", "at_maximum", "covariance", "two_merges"} <= set(
        TAKEN
    )


@pytest.mark.parametrize(
    ("kernel", "cluster", "threads"),
    [
        (softmax(n=4096, c=32768), 2, 256),
        (softmax_online(4096, 65536), 4, 256),
        (softmax(n=4096, c=131072), 8, 256),
        (softmax_online(4096, 65536, "f32"), 4, 512),
        (rms_residual(4096, 49152), 4, 512),
        (rms_residual(4096, 40000), 4, 448),
        (softmax(n=2, c=32768), 8, 256),
        (softmax(n=2, c=8192), 8, 128),
        (softmax(n=30, c=8192), 4, 256),
    ],
)
def test_the_cluster_that_a_long_row_needs(kernel: Kernel, cluster: int, threads: int) -> None:
    cuda = shared(kernel)
    assert (host.cluster_of(cuda), cuda.threads, cuda.architecture) == (cluster, threads, "sm_90")
    assert cuda.grid == (cluster * kernel.outputs[0].buffer.shape[0], 1, 1)


@pytest.mark.parametrize(
    "kernel",
    [
        softmax(n=4096, c=16384),  # one block holds the row
        rms_residual(4096, 32768),  # so it does of two tensors: enough is under way
        cross_entropy(4096, 128256),  # read once anyhow
        softmax(n=2, c=4096),  # too little for several blocks
        pointwise(4096, 65536),  # nothing is folded
        softmax_online(4096, 1 << 20),  # too long for eight blocks
    ],
)
def test_no_cluster_where_one_block_does_as_well(kernel: Kernel) -> None:
    with pytest.raises(LoweringError):
        shared(kernel)


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("cluster-softmax.cu", softmax_online(4096, 65536)),
        ("cluster-residual_ragged.cu", rms_residual(1024, 100_000)),
    ],
)
def test_text_of_a_cluster(name: str, made: Kernel, request: pytest.FixtureRequest) -> None:
    text, path = shared(made).text, GOLDEN / name
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("columns", [40960, 65536, 131072])
def test_long_rows_compile_without_spills(columns: int, dtype: str) -> None:
    report = compile_kernel(shared(softmax_online(4096, columns, dtype)), "sm_90").report
    assert report.spill_loads == 0
    assert report.registers <= 80


def test_a_hopper_target_gets_the_cluster_beside_a_portable_kernel() -> None:
    made = build(softmax_online(4096, 65536), Options(target="h200"))
    assert [way.architecture for way in made.implementations] == ["sm_90", "sm_80"]
    assert build(softmax_online(4096, 65536), Options(target="a100")).better == ()
