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
    options = ", ".join(f'"{o}"' for o in cuda.options)
    yield f"grid {cuda.grid}, {cuda.threads} threads, {cuda.shared_bytes} bytes of shared memory"
    yield f"arguments: {', '.join(cuda.buffers)}"
    if cuda.zeroed:
        yield f"must hold zeros before: {', '.join(cuda.zeroed)}"
    yield f'kernel = cupy.RawKernel(source, "{cuda.name}", options=({options},))'
    yield f"kernel.max_dynamic_shared_size_bytes = {cuda.shared_bytes}"
    yield (
        f"kernel({cuda.grid}, ({cuda.threads},), ({', '.join(cuda.buffers)}), "
        f"shared_mem={cuda.shared_bytes})"
    )
