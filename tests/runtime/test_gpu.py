"""The launcher on a real GPU: skipped where there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import COLUMNS, EPS, ROWS, H, W, X, Y

from nautile import samples
from nautile.bundle import Entry, write_entries
from nautile.codegen.compile import compile_kernel
from nautile.codegen.source import CudaKernel
from nautile.errors import LaunchError
from nautile.runtime import Bundle, bench
from nautile.runtime.checking import twice
from nautile.runtime.draw import draw, inputs
from nautile.terms import Buffer

cupy = pytest.importorskip("cupy")
try:
    if cupy.cuda.runtime.getDeviceCount() < 1:
        raise RuntimeError
except Exception:
    pytest.skip("no GPU", allow_module_level=True)

SCALE = """extern "C" __global__ void scale(const float* x, const unsigned short* w, float* h) {
  extern __shared__ float s[];
  for (int j = threadIdx.x; j < 40; j += blockDim.x) s[12000 + j] = __uint_as_float(w[j] << 16);
  __syncthreads();
  for (int j = threadIdx.x; j < 40; j += blockDim.x)
    h[blockIdx.x * 40 + j] += x[blockIdx.x * 40 + j] * s[12000 + j];
}
"""
SHIFT = """extern "C" __global__ void shift(const float* h, const float* eps, float* y) {
  int i = (blockIdx.x + gridDim.x * blockIdx.y) * blockDim.x + threadIdx.x;
  if (i < 240) y[i] = h[i] + eps[0];
}
"""


def gpu_entry(compiled: bool = True) -> Entry:
    first = CudaKernel("scale", SCALE, (ROWS, 1, 1), 64, 50_000, ("x", "w", "h"), zeroed=("h",))
    second = CudaKernel("shift", SHIFT, (1, 2, 1), 128, 0, ("h", "eps", "y"))
    architecture = f"sm_{cupy.cuda.Device().compute_capability}"
    made = [
        {architecture: compile_kernel(k, architecture, cache=None)} if compiled else {}
        for k in (first, second)
    ]
    return Entry(
        name="example", key="0" * 32, inputs=(X, W, EPS), outputs=(Y,), intermediates=(H,),
        kernels=((first, made[0]), (second, made[1])), defaults={"eps": 0.5},
    )  # fmt: skip


@pytest.fixture(params=["cubin", "source"])
def bundle(request: Any, tmp_path: Path) -> Bundle:
    entry = gpu_entry(request.param == "cubin")
    return Bundle.load(write_entries(tmp_path / "bundle", [entry], target="h200"))


def arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    return x, rng.standard_normal(COLUMNS).astype(ml_dtypes.bfloat16)


def expected(x: Any, w: Any, eps: float = 0.5) -> Any:
    return x * w.astype(np.float32) + np.float32(eps)


def test_runs(bundle: Bundle) -> None:
    x, w = arrays()
    given = {"x": cupy.asarray(x), "w": cupy.asarray(w.view(np.uint16))}
    for eps in (0.5, 2):
        y = bundle.run(given, eps=eps)["y"]
        np.testing.assert_array_equal(cupy.asnumpy(y), expected(x, w, eps))


def test_outputs_streams_and_graphs(bundle: Bundle) -> None:
    x, w = arrays()
    y = cupy.full(Y.shape, cupy.nan, dtype="float32")
    given = {"x": cupy.asarray(x), "w": cupy.asarray(w.view(np.uint16))}
    stream = cupy.cuda.Stream(non_blocking=True)
    call = bundle.only.bind(given, out={"y": y}, stream=stream)
    cupy.cuda.Device().synchronize()
    call.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), expected(x, w))
    with stream:
        stream.begin_capture()
        call.launch(stream)
        graph = stream.end_capture()
    y[...] = cupy.nan
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), expected(x, w))


def test_torch_tensors(bundle: Bundle) -> None:
    torch = pytest.importorskip("torch")
    x, w = arrays()
    tx = torch.from_numpy(x).cuda()
    tw = torch.from_numpy(w.astype(np.float32)).cuda().to(torch.bfloat16)
    out = torch.full(Y.shape, math.nan, device="cuda")
    bundle.run(x=tx, w=tw, out={"y": out}, stream=torch.cuda.current_stream())
    np.testing.assert_array_equal(out.cpu().numpy(), expected(x, w))
    for wrong, reason in (
        ({"x": tx.cpu()}, "'x' lies in host memory"),
        ({"x": tx.double()}, "'x' has type float64"),
        ({"x": tx.T.contiguous().T}, "'x' is not contiguous"),
        ({"w": tw.half()}, "'w' has type float16"),
        ({"x": torch.zeros(241, device="cuda")[1:].view(6, 40)}, "'x' starts at an address"),
        ({"x": x}, "'x' lies in host memory"),
    ):
        with pytest.raises(LaunchError, match=reason):
            bundle.run({"x": tx, "w": tw, **wrong})


@pytest.mark.parametrize("dtype", sorted(samples.STORAGE))
def test_samples_are_the_same_bits_as_on_the_host(dtype: str) -> None:
    kinds = {"bool": ["bool"], "i8": ["integers:-9:9"], "i32": ["integers:0:1000"]}
    floats = ["normal", "normal:0.03", "uniform:-1:2", "spread", "ties", "zeros", "rows:7"]
    for kind in kinds.get(dtype, ["integers:-5:99"] if dtype == "i64" else floats):
        made = cupy.asnumpy(draw(Buffer("q", (33, 7), dtype), kind, 4))
        host = samples.encode(samples.values(kind, 4, "q", np.arange(231)), dtype)
        np.testing.assert_array_equal(
            made.reshape(-1).view(np.uint8), np.asarray(host).view(np.uint8)
        )


def test_large_tensors_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from nautile.runtime import draw as drawing

    whole = cupy.asnumpy(draw(Buffer("q", (1000,), "f32"), "normal", 1))
    monkeypatch.setattr(drawing, "_CHUNK", 128)
    np.testing.assert_array_equal(
        cupy.asnumpy(draw(Buffer("q", (1000,), "f32"), "normal", 1)), whole
    )


def test_unwritten_and_racing_elements(tmp_path: Path) -> None:
    good = gpu_entry()
    program = Bundle.load(write_entries(tmp_path / "good", [good], target="h200")).only
    assert twice(program, inputs(program, 0))[1] == {"y": 0}
    kernel = replace(good.kernels[1][0], text=SHIFT.replace("i < 240", "i < 100"))
    part = replace(good, kernels=(good.kernels[0], (kernel, {})))
    program = Bundle.load(write_entries(tmp_path / "part", [part], target="h200")).only
    assert twice(program, inputs(program, 0))[1] == {"y": 140 * 4}


def test_bench(bundle: Bundle) -> None:
    report = bench(bundle.only, repeats=5)
    assert report["graph"] is True
    assert 0.0005 < report["min_ms"] <= report["ms"] <= report["max_ms"] < 1
    assert 100 < report["copy_gb_per_s"] < 20_000
