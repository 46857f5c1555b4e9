"""Compilation by NVRTC, without a GPU: machine code, reports, refusals and the cache."""

from __future__ import annotations

import builtins
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautile.codegen import compile as compiler
from nautile.codegen import cubin_cache, gate
from nautile.codegen.source import CudaKernel
from nautile.errors import CompileError

TEXT = """extern "C" __global__ void scale(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x] / x[0];
  __syncthreads();
  y[threadIdx.x] = s[127 - threadIdx.x];
}
"""
SPILLS = """extern "C" __global__ void __launch_bounds__(1024, 2) heavy(const float* x, float* y) {
  float a[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) a[i] = x[i * 1024 + threadIdx.x];
  for (int k = 0; k < 8; k++) {
    #pragma unroll
    for (int i = 0; i < 96; i++) a[i] = a[i] * a[(i + 7) % 96] + x[k];
    __syncthreads();
  }
  #pragma unroll
  for (int i = 0; i < 96; i++) y[i * 1024 + threadIdx.x] = a[i];
}
"""
KERNEL = CudaKernel("scale", TEXT, (1, 1, 1), 128, 512, ("x", "y"))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
def test_a_cubin_for_each_architecture(architecture: str, tmp_path: Path) -> None:
    made = compiler.compile_kernel(KERNEL, architecture, cache=tmp_path)
    assert made.cubin[:4] == b"\x7fELF"
    assert b"scale" in made.cubin
    assert made.architecture == architecture
    assert 0 < made.report.registers <= 64
    assert f"-arch={architecture}" in made.options
    assert "--ftz=false" in made.options


def test_a_warm_cache_gives_the_same_bytes(tmp_path: Path) -> None:
    cold = compiler.compile_kernel(KERNEL, cache=tmp_path)
    warm = compiler.compile_kernel(KERNEL, cache=tmp_path)
    assert (cold.cached, warm.cached) == (False, True)
    assert (warm.cubin, warm.report) == (cold.cubin, cold.report)


def test_the_key_covers_text_options_and_architecture(tmp_path: Path) -> None:
    variants = [
        (KERNEL, "sm_90"),
        (KERNEL, "sm_80"),
        (replace(KERNEL, text=TEXT + "\n"), "sm_90"),
        (replace(KERNEL, options=("--std=c++17", "--prec-div=false")), "sm_90"),
    ]
    made = [compiler.compile_kernel(k, a, cache=tmp_path) for k, a in variants]
    assert [m.cached for m in made] == [False] * 4
    assert made[0].cubin != made[3].cubin  # an approximate division is other code


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    cold = compiler.compile_kernel(KERNEL, cache=tmp_path)
    (entry,) = tmp_path.rglob("*.cubin")
    data = bytearray(entry.read_bytes())
    data[-100] ^= 1
    entry.write_bytes(data)
    again = compiler.compile_kernel(KERNEL, cache=tmp_path)
    assert not again.cached
    assert again.cubin == cold.cubin
    assert compiler.compile_kernel(KERNEL, cache=tmp_path).cached


def test_writers_of_one_entry_never_show_half_of_it(tmp_path: Path) -> None:
    cubins = [bytes([n]) * 200_000 for n in range(8)]
    cubin_cache.put(tmp_path, "k" * 40, cubins[0], "log")
    with ThreadPoolExecutor(8) as pool:
        for cubin in cubins * 4:
            pool.submit(cubin_cache.put, tmp_path, "k" * 40, cubin, "log")
        seen = [cubin_cache.get(tmp_path, "k" * 40) for _ in range(200)]
    assert [s for s in seen if s not in [(c, "log") for c in cubins]] == []
    assert [p.name for p in tmp_path.rglob(".tmp-*")] == []


def test_an_unwritable_cache_is_only_slower(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    made = compiler.compile_kernel(KERNEL, cache=tmp_path / "file" / "below")
    assert made.cubin[:4] == b"\x7fELF"


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NAUTILE_CACHE", raising=False)
    assert cubin_cache.default_folder() == tmp_path / "nautile" / "cubins"
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "mine"))
    assert cubin_cache.default_folder() == tmp_path / "mine" / "cubins"
    monkeypatch.setenv("NAUTILE_CACHE", "off")
    assert cubin_cache.default_folder() is None


def test_warnings_are_reported_but_not_for_unused_variables() -> None:
    unused = TEXT.replace("extern __shared__", "int unused; extern __shared__")
    assert compiler.compile_kernel(replace(KERNEL, text=unused), cache=None).report.warnings == ()
    shifted = TEXT.replace("127 - threadIdx.x", "(threadIdx.x << 40) & 127")
    (warning,) = compiler.compile_kernel(replace(KERNEL, text=shifted), cache=None).report.warnings
    assert "shift count" in warning


def test_many_at_once(tmp_path: Path) -> None:
    kernels = [replace(KERNEL, text=TEXT.replace("127", str(n))) for n in (100, 101, 102)]
    rows = compiler.compile_many(kernels, ["sm_80", "sm_90"], cache=tmp_path)
    assert [list(row) for row in rows] == [["sm_80", "sm_90"]] * 3
    assert len({row["sm_90"].cubin for row in rows}) == 3
    assert rows[1]["sm_80"].cubin == compiler.compile_kernel(kernels[1], "sm_80", cache=None).cubin


def test_many_raises_the_first_failure(tmp_path: Path) -> None:
    bad = replace(KERNEL, name="broken", text="int f() { return missing; }")
    with pytest.raises(CompileError, match=r"kernel broken .*(\n.*)*missing"):
        compiler.compile_many([KERNEL, bad], ["sm_90"], cache=tmp_path)


def test_spills_are_found_and_refused(tmp_path: Path) -> None:
    heavy = CudaKernel("heavy", SPILLS, (1, 1, 1), 1024, 0, ("x", "y"))
    with pytest.raises(CompileError, match="kernel heavy for sm_90: spills") as caught:
        compiler.compile_kernel(heavy, cache=tmp_path)
    assert caught.value.code == "gate"
    with pytest.raises(CompileError, match="spills"):  # a cached compilation passes the gate too
        compiler.compile_kernel(heavy, cache=tmp_path)


def test_architecture_rules() -> None:
    hopper = replace(KERNEL, architecture="sm_90a")
    assert compiler.compile_kernel(hopper, "sm_90", cache=None).architecture == "sm_90a"
    for kernel, asked in ((hopper, "sm_80"), (hopper, "sm_120"), (KERNEL, "sm_75")):
        with pytest.raises(CompileError, match="cannot run on"):
            compiler.compile_kernel(kernel, asked, cache=None)


def test_devices() -> None:
    assert compiler.architecture_of("H200") == "sm_90"
    assert compiler.architecture_of("rtx5090") == "sm_120"
    assert compiler.architecture_of("sm_87") == "sm_87"
    with pytest.raises(CompileError, match="no device named 'h20000'"):
        compiler.architecture_of("h20000")


@pytest.mark.parametrize("option", ["-use_fast_math", "--use_fast_math", "-ftz=true", "--ftz=true"])
def test_options_that_break_ieee_are_refused(option: str) -> None:
    with pytest.raises(CompileError, match="IEEE"):
        compiler.compile_kernel(replace(KERNEL, options=(option,)), cache=None)


def test_a_missing_compiler_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [m for m in sys.modules if m.split(".")[0] == "cuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CompileError, match=r"nautile\[compile\]") as caught:
        compiler.compile_kernel(KERNEL, cache=None)
    assert caught.value.code == "compile-extra"


def test_every_target_has_a_known_amount_of_shared_memory() -> None:
    limits = {d: gate.shared_limit(a) for d, a in compiler.ARCHITECTURES.items()}
    kilobytes = {"a100": 163, "h100": 227, "h200": 227, "l40s": 99, "rtx4090": 99, "rtx5090": 99}
    assert limits == {d: k * 1024 for d, k in kilobytes.items()}
