"""Generated kernels compiled for the CPU, so that they can be run where there is no GPU.

The text is taken as it is, but for device functions that hold PTX: the shim has functions of the
same names; and for shared states, which each block of a cluster must have for itself. Each kernel
gets a namespace of its own in one translation unit.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sample_values import Arrays

from nautile.codegen.source import CudaKernel
from nautile.dtypes import storage
from nautile.extract.kernel import Kernel

Built = tuple[ctypes.CDLL, dict[str, tuple[int, CudaKernel, Kernel]]]
SHIM = Path(__file__).parent / "host_shim" / "shim.h"
_SLOT = 8192  # bytes of a shared array
COMPILER = shutil.which("g++")


def _without_ptx(text: str) -> str:
    """The text without the device functions that hold PTX."""
    head = r"^(?:template <[^\n]*?> )?NT_DEV "
    kept = re.sub(head + r".*\{.*\basm\b.*\}\n", "", text, flags=re.MULTILINE)
    longer = head + r"[^\n]*\{\n(?:[^}\n][^\n]*\n)*?[^\n]*\basm\b(?:[^}\n][^\n]*\n)*?\}\n"
    kept = re.sub(longer, "", kept, flags=re.MULTILINE)
    assert not re.search(r"\basm\b", re.sub(r"//.*", "", kept)), "PTX in other functions"
    shared = r"extern __shared__ [^;]*?(\w+)\[\];"
    return re.sub(shared, r"unsigned char* \1 = host_dynamic();", kept)


def _shared(text: str) -> str:
    """The text of a cluster's kernel with shared states in the arena, which has a place for each
    block; of a lone block, they stay static variables."""
    places = itertools.count()

    def placed(match: re.Match[str]) -> str:
        kind, name, count = match.groups()
        at = _SLOT * next(places)
        assert at < 1 << 16, "the arena is full"
        check = f'static_assert(sizeof({kind}) * {count} <= {_SLOT}, "too large for its place");'
        return f"{check} {kind}* {name} = ({kind}*)(host_arena[host_rank()] + {at});"

    return re.sub(r"__shared__ (State\w+|nt_u64) (\w+)\[(\d+)\];", placed, text)


def cluster_of(cuda: CudaKernel) -> int:
    """Blocks of a cluster."""
    found = re.search(r"__cluster_dims__\((\d+), 1, 1\)", cuda.text)
    return int(found[1]) if found else 1


def _entry(number: int, cuda: CudaKernel) -> str:
    signature = re.search(rf"\b{cuda.name}\(\s*(.*?)\) \{{", cuda.text, re.DOTALL)
    assert signature is not None
    types = [re.sub(r"__restrict__ \w+$", "", p.strip()) for p in signature[1].split(",")]
    arguments = ", ".join(f"({t})a[{i}]" for i, t in enumerate(types))
    g = cuda.grid
    body = _without_ptx(cuda.text)
    body = _shared(body) if cluster_of(cuda) > 1 else body
    launch = f"{g[0]}, {g[1]}, {g[2]}, {cuda.threads}, {cuda.shared_bytes}, {cluster_of(cuda)}"
    return (
        f"namespace k{number} {{\n{body}\n"
        f"static void body(void** a) {{ {cuda.name}({arguments}); }}\n}}\n"
        f'extern "C" void run{number}(void** a) {{ host_launch(k{number}::body, a, {launch}); }}\n'
    )


def build(kernels: Sequence[CudaKernel], folder: Path) -> ctypes.CDLL:
    """One library with run0, run1, .. for the kernels."""
    rows = [re.sub(rf"\b{k.name}\(", f"{k.name}_{i}(", _entry(i, k)) for i, k in enumerate(kernels)]
    text = "".join(f'#include "{SHIM.parent / name}"\n' for name in ("shim.h", "ring.h"))
    text += "\n".join(rows)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    assert COMPILER is not None
    flags = ["-std=c++17", "-O1", "-mf16c", "-w", "-shared", "-fPIC", "-fno-strict-aliasing"]
    done = subprocess.run(
        [COMPILER, *flags, str(source), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def run(
    library: ctypes.CDLL, number: int, cuda: CudaKernel, kernel: Kernel, arrays: Arrays
) -> None:
    """Run one kernel on `arrays`, to which poisoned outputs are added first."""
    for output in kernel.outputs:
        buffer = output.buffer
        poisoned = np.full(buffer.size * storage(buffer.dtype).itemsize, 0xA5, np.uint8)
        arrays[buffer.name] = poisoned.view(storage(buffer.dtype)).reshape(buffer.shape)
    kept = [_aligned(arrays[name]) for name in cuda.buffers]
    counters = np.zeros(max(1, cuda.counters), np.int32)
    places = [k.ctypes.data for k in kept] + [counters.ctypes.data] * bool(cuda.counters)
    pointers = (ctypes.c_void_p * len(places))(*places)
    getattr(library, f"run{number}")(pointers)
    assert not counters.any(), "counters are left as they were"
    for name, array in zip(cuda.buffers, kept, strict=True):
        arrays[name] = array


def _aligned(array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """A copy whose data starts at a multiple of 256 bytes, as device memory does."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
