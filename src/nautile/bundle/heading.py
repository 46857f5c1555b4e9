"""The comment at the head of a generated source: what it computes, from what, how to launch it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nautile import terms
from nautile.codegen.show import show
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram

__all__ = ["heading"]

WIDTH = 160
LINES = 40


def heading(cuda: CudaKernel, tiles: Sequence[TileProgram], program: terms.Program) -> str:
    """Comment lines that name the launch, the tile programs and the source of one kernel."""
    lines = [
        f"{cuda.name}: kernel of program {program.name} ({program.filename})",
        "",
        *_launch(cuda),
        "",
        *(line for t in tiles for line in show(t).splitlines()),
        "",
        "source:",
        *(f"  {line}" for line in program.source.strip().splitlines()[:LINES]),
    ]
    return "".join(f"// {line[:WIDTH]}".rstrip().rstrip("\\") + "\n" for line in lines)


def _launch(cuda: CudaKernel) -> Iterator[str]:
    yield f"grid {cuda.grid}, {cuda.threads} threads, {cuda.shared_bytes} bytes of shared memory"
    yield f"arguments: {', '.join(_arguments(cuda))}"
    if cuda.zeroed:
        yield f"must hold zeros before: {', '.join(cuda.zeroed)}"
    if cuda.maps:
        yield "from nautile.runtime import TensorMap, tensor_map  # cuTensorMapEncodeTiled"
    for number, view in enumerate(cuda.maps):
        yield f"map{number} = tensor_map({view}, {view.buffer}.data.ptr)"
    if cuda.counters:
        yield f'counters = cupy.zeros({cuda.counters}, "i4")  # each launch leaves them at zero'
    options = ", ".join(f'"{o}"' for o in _options(cuda))
    yield f'kernel = cupy.RawKernel(source, "{cuda.name}", options=({options},))'
    yield f"kernel.max_dynamic_shared_size_bytes = {cuda.shared_bytes}"
    yield (
        f"kernel({cuda.grid}, ({cuda.threads},), ({', '.join(_arguments(cuda))}), "
        f"shared_mem={cuda.shared_bytes})"
    )


def _options(cuda: CudaKernel) -> tuple[str, ...]:
    """NVRTC options; an architecture of its own must be named, or CuPy takes the device's."""
    specific = cuda.architecture[-1] in "af"
    return (*cuda.options, f"-arch={cuda.architecture}") if specific else cuda.options


def _arguments(cuda: CudaKernel) -> list[str]:
    maps = [f"map{number}" for number in range(len(cuda.maps))]
    return [*maps, *cuda.buffers, *(["counters"] if cuda.counters else [])]
