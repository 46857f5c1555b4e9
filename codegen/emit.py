"""Tile programs -> CUDA: the structure of a program decides which emitter prints it.

Contractions whose operands the tensor cores take go to `sm80`; programs whose blocks are rows, to
`rows`; every other program to `general`. The parts of a kernel share one launch: each gets a range
of the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from nautile.codegen.closing import closes
from nautile.codegen.general import emit_general
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import identifier
from nautile.codegen.overlapping import overlapping
from nautile.codegen.rows import as_rows, emit_rows, hopper_variants
from nautile.codegen.sm80.emit import CAPACITY, emit_mma, emit_variants
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Fold, Mma, TileProgram, Write, walk_statements
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel

__all__ = ["alternatives", "closing_kernel", "emit", "emit_cluster_variants", "emit_program"]

_SCHEDULES = 3  # alternatives that are tried, at most
_TENSOR = ("bf16", "f16", "tf32", "f8e4m3", "f8e5m2")


def emit(kernel: Kernel, tiles: Sequence[TileProgram], *, fitting: bool = False) -> CudaKernel:
    """One kernel for the tile programs of its parts; raises LoweringError where a block cannot fit
    a multiprocessor, and with `fitting` where the tensor cores' emitter does not take what they
    could multiply: other tiles may do."""
    if kernel.closing:
        return closing_kernel(kernel, tiles, fitting=fitting)
    return _launch(kernel, [emit_program(program, fitting=fitting) for program in tiles])


def alternatives(kernel: Kernel, tiles: Sequence[TileProgram]) -> Iterator[CudaKernel]:
    """Other CUDA for the same tiles, the fastest first: what to try when a compiler's gate refuses
    `emit`'s. Every one takes fewer registers a thread, or lets the compiler give it more."""
    if kernel.closing:
        with suppress(LoweringError):
            yield from islice(emit_variants(tiles[0], close=closes(kernel, tiles[1])), 1, None)
        return
    for number in range(_SCHEDULES):
        made = [next(islice(_schedules(program), number, None), None) for program in tiles]
        if any(made):
            yield _launch(
                kernel,
                [
                    other or emit_program(program)
                    for other, program in zip(made, tiles, strict=True)
                ],
            )


def _launch(kernel: Kernel, made: Sequence[CudaKernel]) -> CudaKernel:
    one = made[0] if len(made) == 1 else _side_by_side(kernel.name, made)
    return overlapping(kernel, one)


def _schedules(program: TileProgram) -> Iterator[CudaKernel]:
    """Other schedules of one program: those of the tensor cores' path; elsewhere, one that wants
    one block on a multiprocessor (without a number the compiler may spill to fit more)."""
    if _multiplies(program):
        try:
            yield from islice(emit_variants(program), 1, None)
            return
        except LoweringError:
            pass  # the general emitter's program
    made = emit_program(program)
    text = re.sub(r"__launch_bounds__\((\d+)(, \d+)?\)", r"__launch_bounds__(\1, 1)", made.text)
    if text != made.text:
        yield replace(made, text=text)


def emit_program(program: TileProgram, *, fitting: bool = False) -> CudaKernel:
    """The kernel of one tile program."""
    refused: LoweringError | None = None
    if _multiplies(program):
        try:
            return emit_mma(program)
        except LoweringError as error:
            refused = error  # a shape that fragments do not cover: others have no such limits
    precise = _precisely(program)
    rows = as_rows(program)
    if fitting and refused and (rows is None or refused.code == CAPACITY):
        raise refused
    if rows is not None:
        return emit_rows(rows, program.name, precise)
    return emit_general(program, program.name, precise)


def closing_kernel(
    kernel: Kernel, tiles: Sequence[TileProgram], *, fitting: bool = False
) -> CudaKernel:
    """The kernel of states and results in one launch: on the tensor cores, the last block of each
    group closes it; elsewhere, or where groups are none, the last block of all does."""
    states, results = tiles
    if _multiplies(states):
        with suppress(LoweringError):
            return emit_mma(states, close=closes(kernel, results))
    made = [emit_program(program, fitting=fitting) for program in tiles]
    return _one_after_the_other(kernel.name, made[0], made[1])


def emit_cluster_variants(program: TileProgram) -> list[CudaKernel]:
    """Kernels for sm_90 and later of a program whose rows the blocks of a cluster share, the best
    first: they stand beside `emit_program`'s. Raises LoweringError where rows are not too long for
    a block, and where they are too long for a cluster."""
    rows = None if _multiplies(program) else as_rows(program)
    if rows is None:
        raise LoweringError(f"{program.name}: its blocks are not rows")
    made = list(hopper_variants(rows, program.name, _precisely(program)))
    if not made:
        raise LoweringError(f"{program.name}: one block a row does as well, or no block holds it")
    return made


def _multiplies(program: TileProgram) -> bool:
    """Whether the tensor cores have something to do, and their emitter knows every statement: it
    moves no sum by an offset yet."""
    found = list(walk_statements(program.body))
    if any(isinstance(s, (Fold, Mma)) and s.offset is not None for s in found):
        return False
    return any(isinstance(s, Mma) and (s.operand in _TENSOR or s.split) for s in found)


def _precisely(program: TileProgram) -> bool:
    """Whether a result's type shows more digits than the fast functions have."""
    writes = [s for s in walk_statements(program.body) if isinstance(s, Write)]
    return any(_precise(s.buffer.dtype) for s in writes)


def _precise(dtype: str) -> bool:
    return DTYPES[dtype].digits > 11 or DTYPES[dtype].kind != "float"


def _side_by_side(name: str, made: Sequence[CudaKernel]) -> CudaKernel:
    """One launch whose blocks are dealt to the kernels in turn."""
    if any(k.grid[1:] != (1, 1) for k in made):
        raise LoweringError(f"{name}: parts that share a launch need grids of one dimension")
    parameters: dict[str, str] = {}
    bodies: list[str] = []
    for number, part in enumerate(made):
        head, declared = _signature(part)
        _merge(parameters, part.buffers, declared)
        bodies.append(_as_function(part, head, declared, number))
    calls: list[str] = []
    first = 0
    for number, part in enumerate(made):
        call = f"part{number}::body({_given(part, parameters)}, (int)blockIdx.x - {first})"
        first += part.grid[0]
        guard = f"if (blockIdx.x < {first}u)" if number < len(made) - 1 else ""
        inside = f"{{ if (threadIdx.x < {part.threads}) {call}; }}"
        calls.append(f"  {'else ' if number else ''}{guard} {inside}")
    whole = _whole(name, made, parameters.values(), bodies, calls)
    return replace(
        whole, grid=(first, 1, 1), buffers=tuple(parameters), overlaps=all(k.overlaps for k in made)
    )


def _whole(
    name: str, made: Sequence[CudaKernel], parameters: Iterable[str], bodies: Sequence[str],
    lines: Sequence[str],
) -> CudaKernel:  # fmt: skip
    """The kernel whose lines call the bodies of others, on the grid of the first."""
    threads = max(k.threads for k in made)
    start = f'extern "C" __global__ void __launch_bounds__({threads}) {identifier(name)}('
    used = "\n".join([f"{start}\n    {', '.join(parameters)}) {{", *lines])
    types = inline(used, "scalar.cuh", "closing.cuh").removesuffix(used)
    text = "\n".join([types, *bodies, used, "}", ""])
    shared = max(k.shared_bytes for k in made)
    zeroed = tuple(dict.fromkeys(z for k in made for z in k.zeroed))
    return CudaKernel(identifier(name), text, made[0].grid, threads, shared, (), zeroed=zeroed)


def _one_after_the_other(name: str, first: CudaKernel, then: CudaKernel) -> CudaKernel:
    """One launch whose last block to end does what all blocks of the second kernel would."""
    made = (first, then)
    if any(k.grid[1:] != (1, 1) or k.maps or k.counters for k in made):
        raise LoweringError(f"{name}: parts that follow each other need plain grids")
    parameters: dict[str, str] = {}
    bodies: list[str] = []
    for number, part in enumerate(made):
        head, declared = _signature(part)
        _merge(parameters, part.buffers, declared)
        given = [_written(p, b, first) for p, b in zip(declared, part.buffers, strict=True)]
        body = _as_function(part, head, given if number else declared, number)
        if number == 0 and part.threads < then.threads:  # the others wait at barrier 0
            meet = f'asm volatile("bar.sync 1, {part.threads};" ::: "memory")'
            body = body.replace("__syncthreads()", meet)
        bodies.append(body)
    calls = [f"part{n}::body({_given(k, parameters)}, " for n, k in enumerate(made)]
    blocks, count = first.grid[0], then.grid[0]
    lines = [
        f"  if (threadIdx.x < {first.threads}) {calls[0]}(int)blockIdx.x);",
        "  // the last block to end finds what all others have stored",
        "  __syncthreads();",
        "  int last = 0;",
        "  if (threadIdx.x == 0) {",
        f"    last = nt_arrived(counter) == {blocks - 1};",
        "    if (last) *counter = 0;  // as every launch leaves it",
        "  }",
        "  if (!__syncthreads_or(last)) return;",
        f"  if (threadIdx.x >= {then.threads}) return;",
        "  #pragma unroll 1",
        f"  for (int block = 0; block < {count}; block++) {{",
        f"    {calls[1]}block);",
        "    __syncthreads();",
        "  }",
    ]
    counted = [*parameters.values(), "int* __restrict__ counter"]
    whole = _whole(name, made, counted, bodies, lines)
    return replace(whole, buffers=tuple(parameters), counters=1)


def _written(declared: str, buffer: str, first: CudaKernel) -> str:
    """A parameter of the second kernel: what the first one writes may change."""
    return declared.replace(" __restrict__", "") if buffer in first.buffers else declared


def _signature(part: CudaKernel) -> tuple[str, list[str]]:
    """The kernel's head as it stands in the text, and its parameters."""
    pattern = rf'extern "C" __global__ [^;{{]*?\b{part.name}\(\s*(.*?)\)\s*\{{'
    found = re.search(pattern, part.text, re.DOTALL)
    if found is None:
        raise LoweringError(f"{part.name}: the kernel's head was not recognised")
    return found[0], [p.strip() for p in found[1].split(",")]


def _as_function(part: CudaKernel, head: str, declared: list[str], number: int) -> str:
    parameters = ", ".join([*declared, "const int block"])
    text = part.text.replace(head, f"__device__ __forceinline__ void body({parameters}) {{")
    text = re.sub(r"\bblockIdx\.x\b", "block", text)
    return f"namespace part{number} {{\n{text}\n}}  // namespace part{number}"


def _merge(parameters: dict[str, str], buffers: Sequence[str], declared: Sequence[str]) -> None:
    """Add a part's parameters; one that another part writes loses its const."""
    for buffer, text in zip(buffers, declared, strict=True):
        known = parameters.get(buffer)
        parameters[buffer] = text if known is None or known.startswith("const ") else known


def _given(part: CudaKernel, parameters: Mapping[str, str]) -> str:
    """The arguments of a part: its emitter may call a buffer otherwise than the kernel's head."""
    return ", ".join(_argument(parameters[b]) for b in part.buffers)


def _argument(declared: str) -> str:
    return declared.split()[-1].lstrip("*")
