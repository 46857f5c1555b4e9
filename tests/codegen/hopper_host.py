"""Hopper kernels compiled for the CPU: the generated text with the copy engine, barriers, warpgroup
products and stores of `host_shim/hopper.h` in place of the functions that hold PTX."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import host
import numpy as np
import numpy.typing as npt

from nautile.codegen.source import CudaKernel, TensorMap
from nautile.dtypes import DTYPES

Arrays = dict[str, npt.NDArray[Any]]
HEADER = host.SHIM.parent / "hopper.h"
_FUNCTION = re.compile(
    r"^(?:template <[^>\n]*>\s*)?NT_DEV [^\n]*\{(?:[^\n]*\}\n|[^\n]*\n(?:(?!\}).*\n)*?\}\n)",
    re.MULTILINE,
)
_PRODUCT = re.compile(r"\bnt_wgmma_(ss|rs)_n(\d+)_(bf16|f16|tf32|f8e4m3|f8e5m2)(_m)?(_n)?\b")
_WAIT = re.compile(r"\bnt_wgmma_wait(\d+)\w*")


class Map(ctypes.Structure):
    """nt_map of the shim."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("extents", ctypes.c_longlong * 5),
        ("strides", ctypes.c_longlong * 5),
        ("box", ctypes.c_int * 5),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int),
    )


def _translated(text: str) -> str:
    """The text without functions that hold PTX, and with those that `_defined` makes."""
    kept = _FUNCTION.sub(lambda m: "" if "asm" in m[0] else m[0], text)
    kept = re.sub(r"^struct alignas\(64\) nt_map .*\n", "", kept, flags=re.MULTILINE)
    kept = kept.replace('extern "C" __global__', "static")
    kept = re.sub(
        r"extern __shared__ [^;]*?(\w+)\[\];", r"unsigned char* \1 = hopper_shared;", kept
    )
    return re.sub(r"^NT_DEV .* nt_uniform.*\n", "", kept, flags=re.MULTILINE)


def _defined(text: str) -> str:
    rows = ["static uint32_t nt_uniform(uint32_t x) { return __shfl_sync(~0u, x, 0); }"]
    for name in sorted({m[0] for m in _PRODUCT.finditer(text)}):
        kind, n, dtype, m, c = _PRODUCT.fullmatch(name).groups()  # type: ignore[union-attr]
        tail = (
            f'keep, "{dtype}"' + (f", {int(bool(m))}" if kind == "ss" else "") + f", {int(bool(c))}"
        )
        given = "host_u64 a" if kind == "ss" else ", ".join(f"uint32_t a{i}" for i in range(4))
        passed = "a" if kind == "ss" else "a0, a1, a2, a3"
        rows.append(
            f"static void {name}(float (&d)[{int(n) // 2}], {given}, host_u64 b, int keep) "
            f"{{ host_{kind}<{n}>(d, {passed}, b, {tail}); }}"
        )
    for name in sorted({m[0] for m in _WAIT.finditer(text)}):
        pending = _WAIT.fullmatch(name)[1]  # type: ignore[index]
        rows.append(
            f"template <class... T> static void {name}(T&...) {{ host_wgmma_wait({pending}); }}"
        )
    return "\n".join(rows) + "\n"


def build(kernels: Sequence[CudaKernel], folder: Path) -> ctypes.CDLL:
    """One library with run0, run1, .. for the kernels."""
    rows = [f'#include "{host.SHIM}"', f'#include "{HEADER}"']
    for number, cuda in enumerate(kernels):
        parameters = [f"*(nt_map*)a[{i}]" for i in range(len(cuda.maps))]
        signature = re.search(rf"\b{cuda.name}\(\s*(.*?)\) \{{", cuda.text, re.DOTALL)
        assert signature is not None
        for i, text in enumerate(signature[1].split(",")[len(cuda.maps) :]):
            kind = re.sub(r"__restrict__ \w+$", "", text.strip())
            parameters.append(f"({kind})a[{len(cuda.maps) + i}]")
        body = f"k{number}::body"
        launch = (
            f"{cuda.grid[0]}, 1, 1, {cuda.threads}, {cuda.shared_bytes}, {host.cluster_of(cuda)}"
        )
        begin = "if (threadIdx.x == 0) host_reset(); __syncthreads();"
        rows.append(
            f"namespace k{number} {{\n{_defined(cuda.text)}{_translated(cuda.text)}\n"
            f"static void body(void** a) {{ {begin} {cuda.name}({', '.join(parameters)}); }}\n}}\n"
            f'extern "C" void run{number}(void** a) {{ host_launch({body}, a, {launch}); }}'
        )
    text = "\n".join(rows)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    assert host.COMPILER is not None
    flags = ["-std=c++17", "-O1", "-mf16c", "-w", "-shared", "-fPIC", "-fno-strict-aliasing"]
    done = subprocess.run(
        [host.COMPILER, *flags, str(source), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def _map(made: TensorMap, data: int) -> Map:
    """The map of a buffer at an address; limits as the driver checks them."""
    size = DTYPES[made.dtype].bytes
    assert all(n % 16 == 0 for n in (*made.strides, made.offset))
    assert all(0 < b <= 256 for b in made.box)
    assert made.box[0] * size <= made.swizzle == 128
    filled = Map(data + made.offset, rank=len(made.extents), size=size)
    for axis, (extent, box) in enumerate(zip(made.extents, made.box, strict=True)):
        filled.extents[axis], filled.box[axis] = extent, box
        filled.strides[axis] = size if axis == 0 else made.strides[axis - 1]
    return filled


def run(library: ctypes.CDLL, number: int, cuda: CudaKernel, arrays: Mapping[str, Any]) -> Arrays:
    """All buffers after one kernel has run on copies of `arrays` (outputs among them, poisoned)."""
    kept = {name: host._aligned(array) for name, array in arrays.items()}
    maps = [_map(m, kept[m.buffer].ctypes.data) for m in cuda.maps]
    counters = np.zeros(max(cuda.counters, 1), np.int32)
    addresses = [ctypes.addressof(m) for m in maps]
    addresses += [kept[name].ctypes.data for name in cuda.buffers]
    addresses += [counters.ctypes.data] * bool(cuda.counters)
    getattr(library, f"run{number}")((ctypes.c_void_p * len(addresses))(*addresses))
    assert not counters.any(), "counters are left as they were"
    return kept
