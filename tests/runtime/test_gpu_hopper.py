"""Tensor maps, counters and graphs on a real Hopper card: skipped where there is none.

The first half launches a kernel of our own through the bundle's road; the second half whole
programs, at sizes that no tile divides, with every implementation that their bundles hold. A GPU
machine without the compiler's dependencies takes bundles that were built elsewhere:

    python tests/runtime/hopper_programs.py bench/bundles/hopper
    NAUTILE_HOPPER_BUNDLES=bench/bundles/hopper pytest tests/runtime/test_gpu_hopper.py
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hopper_programs import BUNDLES, PROGRAMS, build

from nautile.bundle import Entry, Variant, load_bundle, write_entries
from nautile.codegen.compile import compile_kernel
from nautile.codegen.source import CudaKernel, TensorMap
from nautile.runtime import Bundle, bench_command, tensor_map
from nautile.runtime.checking import check
from nautile.runtime.draw import POISONS, inputs, poison
from nautile.runtime.launch import Program
from nautile.terms import Buffer

cupy = pytest.importorskip("cupy")
try:
    CAPABILITY = int(cupy.cuda.Device(0).compute_capability)
except Exception:
    pytest.skip("no GPU", allow_module_level=True)
if CAPABILITY != 90:
    pytest.skip("no Hopper card", allow_module_level=True)

BATCH, ROWS, COLUMNS = 3, 37, 72  # 5 boxes of 8 rows and 2 of 64 columns each: ragged both ways
BOXES = BATCH * math.ceil(ROWS / 8) * math.ceil(COLUMNS / 64)
BLOCKS = 4
COPY = f"""
struct alignas(64) Map {{ unsigned long long opaque[16]; }};
extern "C" __global__ void copy(const __grid_constant__ Map from, const __grid_constant__ Map to,
                                int* counters) {{
  __shared__ alignas(1024) unsigned char tile[8 * 128];
  __shared__ alignas(8) unsigned long long full;
  __shared__ int drawn;
  const unsigned bar = (unsigned)__cvta_generic_to_shared(&full);
  const unsigned at = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }}
  for (unsigned phase = 0;; phase ^= 1) {{
    __syncthreads();
    if (threadIdx.x == 0) {{
      drawn = atomicAdd(counters, 1);
      if (drawn == {BOXES} + gridDim.x - 1) *counters = 0;  // the last draw of a launch
    }}
    __syncthreads();
    if (drawn >= {BOXES}) break;
    const int column = drawn % 2 * 64, row = drawn / 2 % 5 * 8, batch = drawn / 10;
    if (threadIdx.x == 0) {{
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar));
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                   " [%0], [%1, {{%3, %4, %5}}], [%2];"
                   :: "r"(at), "l"(&from), "r"(bar), "r"(column), "r"(row), "r"(batch) : "memory");
      asm volatile("{{.reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
                   " @p bra done; bra wait; done: }}" :: "r"(bar), "r"(phase) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group"
                   " [%0, {{%2, %3, %4}}], [%1];"
                   :: "l"(&to), "r"(at), "r"(column), "r"(row), "r"(batch) : "memory");
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }}
  }}
}}
"""
PLAIN = f"""extern "C" __global__ void copy(const unsigned short* x, unsigned short* y) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < {BATCH * ROWS * COLUMNS}) y[i] = x[i];
}}
"""


def view(buffer: str) -> TensorMap:
    extents = (COLUMNS, ROWS, BATCH)
    return TensorMap(buffer, "bf16", extents, (2 * COLUMNS, 2 * COLUMNS * ROWS), (64, 8, 1), 128)


def kernels() -> tuple[CudaKernel, CudaKernel]:
    own = CudaKernel(
        "copy", COPY, (BLOCKS, 1, 1), 32, 0, (), architecture="sm_90a",
        maps=(view("x"), view("y")), counters=1,
    )  # fmt: skip
    return own, CudaKernel(
        "copy", PLAIN, (BATCH * ROWS * COLUMNS // 96 + 1, 1, 1), 96, 0, ("x", "y")
    )


@pytest.fixture(params=["cubin", "source"])
def program(request: Any, tmp_path: Path) -> Program:
    own, plain = kernels()
    made = {"sm_90": compile_kernel(own, "sm_90", cache=None)} if request.param == "cubin" else {}
    shape = (BATCH, ROWS, COLUMNS)
    entry = Entry(
        "copy", "0" * 32, (Buffer("x", shape, "bf16"),), (Buffer("y", shape, "bf16"),), (),
        ((plain, {}),), variants=((Variant(((own, made),), "tma"), Variant(((plain, {}),))),),
    )  # fmt: skip
    return Bundle.load(write_entries(tmp_path / "bundle", [entry], target="h200")).only


def guarded(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A poisoned array and the memory around it: 4096 bytes on either side."""
    size = 2 * math.prod(shape)
    raw = cupy.full(size + 8192, 0xA5, dtype="uint8")
    inside = raw[4096 : 4096 + size].view("uint16").reshape(shape)
    poison(inside, 0xFF)
    return inside, raw


def untouched(raw: Any) -> bool:
    return bool((raw[:4096] == 0xA5).all() and (raw[-4096:] == 0xA5).all())


def test_boxes_are_cut_at_the_edges(program: Program) -> None:
    x = cupy.random.randint(0, 1 << 16, program.buffers["x"].shape).astype("uint16")
    y, raw = guarded(x.shape)
    call = program.bind({"x": x}, out={"y": y})
    assert call.choices == (0,)
    call.launch()
    assert bool((y == x).all())
    assert untouched(raw)


def test_counters_are_left_at_zero(program: Program) -> None:
    """A launch that found another count would copy too few boxes, or never end."""
    x = cupy.random.randint(0, 1 << 16, program.buffers["x"].shape).astype("uint16")
    call = program.bind({"x": x})
    for byte in (*POISONS, *POISONS):
        (y,) = call.written(program)
        poison(y, byte)
        call.launch()
        assert bool((y == x).all())


def test_graphs_replay_maps_and_counters(program: Program) -> None:
    x = cupy.random.randint(0, 1 << 16, program.buffers["x"].shape).astype("uint16")
    graph = program.bind({"x": x}).graph()
    stream = cupy.cuda.Stream(non_blocking=True)
    for step in range(4):
        poison(graph.outputs["y"], 0xA5)
        x += step
        cupy.cuda.Device().synchronize()
        y = graph.launch(stream)["y"]
        stream.synchronize()
        assert bool((y == x).all())


def test_both_implementations_agree(program: Program) -> None:
    x = cupy.random.randint(0, 1 << 16, program.buffers["x"].shape).astype("uint16")
    for choice in (0, 1):
        assert bool((program.bind({"x": x}, choices={0: choice}).launch()["y"] == x).all())


def test_a_map_by_hand() -> None:
    """What the head of a source says: RawKernel, the architecture as an option, maps by value."""
    x = cupy.random.randint(0, 1 << 16, (BATCH, ROWS, COLUMNS)).astype("uint16")
    y, counters = cupy.zeros_like(x), cupy.zeros(1, "i4")
    kernel = cupy.RawKernel(COPY, "copy", options=("--std=c++17", "-arch=sm_90a"))
    maps = (tensor_map(view("x"), x.data.ptr), tensor_map(view("y"), y.data.ptr))
    kernel((BLOCKS,), (32,), (*maps, counters))
    assert bool((y == x).all())


# Whole programs at sizes that no tile divides


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The bundles that BUNDLES names, where they were built on another machine; else built here."""
    given = os.environ.get(BUNDLES)
    if given:
        return {name: Path(given).resolve() / name for name in PROGRAMS}
    pytest.importorskip("egglog", reason=f"set {BUNDLES} to a folder of hopper_programs.py")
    return build(tmp_path_factory.mktemp("bundles"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_implementation_is_right(name: str, folders: Mapping[str, Path]) -> None:
    """Sampled outputs against float64, on poisoned memory, twice: see runtime/checking.py."""
    bundle = Bundle.load(folders[name]).only
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    for launch, row in enumerate(bundle.launches):
        for way in range(len(row.implementations)):
            tried = replace(bundle, picks={device: {launch: way}})
            assert tried.bind(inputs(tried, 0)).choices[launch] == way
            report = check(tried)
            assert report["verdict"] == "pass", (row.implementations[way].schedule, report)


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_and_replays_have_the_same_bits(name: str, folders: Mapping[str, Path]) -> None:
    program = Bundle.load(folders[name]).only
    call = program.bind(inputs(program, 3))
    graph, kept = call.graph(), {}
    for byte, launch in zip((*POISONS, *POISONS), (call, graph, graph, call), strict=True):
        for array in call.written(program):
            poison(array, byte)
        for output, array in launch.launch().items():
            raw = array.reshape(-1).view("uint8")
            assert bool((kept.setdefault(output, raw.copy()) == raw).all()), output


@pytest.mark.parametrize("name", PROGRAMS)
def test_hopper_kernels_come_first(name: str, folders: Mapping[str, Path]) -> None:
    (launch,) = load_bundle(folders[name]).manifest.launches
    first = launch.implementations[0]
    assert [k.architecture for k in first.kernels] == ["sm_90a"]
    assert all(k.maps for k in first.kernels)


def test_bench_measures_and_records(folders: Mapping[str, Path]) -> None:
    report = bench_command(folders["gemm"], repeats=5)
    assert report["verdict"] == "pass"
    (contest,) = report["contests"]
    assert len(contest["implementations"]) >= 3
    assert sum(r["picked"] for r in contest["implementations"]) == 1
    assert all(0 < r["ms"] < 10 for r in contest["implementations"])
    assert report["latency_ms"]["graph"] < report["latency_ms"]["launch"]
    again = Bundle.load(folders["gemm"]).only
    picked = next(n for n, r in enumerate(contest["implementations"]) if r["picked"])
    assert again.bind(inputs(again, 0)).choices == (picked,)
    np.testing.assert_equal(report["graph"], True)
