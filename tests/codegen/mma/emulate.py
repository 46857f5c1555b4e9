"""Generated kernels run on the CPU: the text of a kernel over host versions of its primitives."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nautile.codegen.headers import blocks
from nautile.codegen.sm80.kernel import BODY
from nautile.codegen.source import CudaKernel

SHIM = Path(__file__).parent / "host_shim"
COMPILER = ("g++", "-O0", "-std=c++17", "-fPIC", "-ffp-contract=off", "-w")
Array = npt.NDArray[np.generic]


def host_text(kernel: CudaKernel) -> str:
    """A C++ translation unit with one entry `run(pointers, lazy)`."""
    body = kernel.text[kernel.text.index(BODY) :]
    body = re.sub(r"extern __shared__ .*", "unsigned char* memory = host::base();", body)
    args = re.search(rf"{kernel.name}\((.*)\) \{{", body)
    assert args is not None
    types = [re.sub(r"__restrict__ \w+$", "", a) for a in args.group(1).split(", ")]
    call = ", ".join(f"({t})p[{i}]" for i, t in enumerate(types))
    entry = (
        f'extern "C" void run(void** p, int lazy) {{ host::run([=] {{ {kernel.name}({call}); }}, '
        f"{kernel.grid[0]}, {kernel.threads}, {kernel.shared_bytes}, lazy != 0); }}"
    )
    return "\n".join(['#include "shim.hpp"', body, entry])


def header(folder: Path) -> None:
    """The shim and the scalar functions, compiled once a folder."""
    if (folder / "shim.hpp.gch").exists():
        return
    shim = [(SHIM / n).read_text() for n in ("warp.hpp", "device.hpp")]
    defined = set(re.findall(r"(nt_\w+)\(", shim[1]))
    scalar = [text for names, text in blocks("scalar.cuh") if names and not names & defined]
    (folder / "shim.hpp").write_text("\n".join([*shim, "#define NT_DEV inline", *scalar]))
    made = str(folder / "shim.hpp.gch")
    subprocess.run([*COMPILER, "-x", "c++-header", "-o", made, folder / "shim.hpp"], check=True)


def build(kernel: CudaKernel, folder: Path) -> ctypes.CDLL:
    """Compile for the CPU; equal texts are compiled once a folder."""
    text = host_text(kernel)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    library = folder / f"{name}.so"
    if not library.exists():
        source = folder / f"{name}.cpp"
        source.write_text(text)
        header(folder)
        subprocess.run([*COMPILER, "-shared", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def aligned(array: Array) -> Array:
    """A copy whose data starts at a multiple of 256 bytes, as device memory does."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    view = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def run(kernel: CudaKernel, arrays: dict[str, Array], folder: Path, *, lazy: bool = True) -> None:
    """Run every block; `arrays` holds inputs and (poisoned) outputs, changed in place."""
    held = {name: aligned(arrays[name]) for name in kernel.buffers}
    counters = np.zeros(max(1, kernel.counters), np.int32)
    addresses = [a.ctypes.data for a in held.values()]
    addresses += [counters.ctypes.data] * bool(kernel.counters)
    build(kernel, folder).run((ctypes.c_void_p * len(addresses))(*addresses), int(lazy))
    assert not counters.any(), "counters are left as they were"
    for name, array in held.items():
        arrays[name][...] = array
