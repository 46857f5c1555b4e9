"""Tile programs with tensor-core contractions -> CUDA for sm_80 and every later card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautile.codegen.memory import Close, Gather, Geometry, MemoryProgram, Place, Stream
from nautile.codegen.schedule.depth import cut_depth
from nautile.codegen.schedule.factor import factor
from nautile.codegen.schedule.plan import Choices, plan
from nautile.codegen.schedule.rows import with_row
from nautile.codegen.schedule.structure import (
    CapacityError,
    Structure,
    UnsupportedError,
    analyse,
    statements,
)
from nautile.codegen.schedule.validate import ScheduleError, validate
from nautile.codegen.sm80.kernel import print_kernel
from nautile.codegen.sm80.limits import (
    CHAIN_WARPS,
    FEW_ROWS_SHARED,
    MAX_WARPS,
    Options,
    chain_warps,
    contraction_warps,
)
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Fold, TileProgram
from nautile.errors import LoweringError

__all__ = ["CAPACITY", "applies", "emit_mma", "emit_variants", "memory_program"]

CAPACITY = "capacity"  # code of the error where other tiles of the same program would do


def applies(program: TileProgram) -> bool:
    """Whether this path covers the program, by its structure and tiles alone."""
    try:
        emit_mma(program)
    except LoweringError:
        return False
    return True


def emit_mma(
    program: TileProgram, options: Options | None = None, close: Close | None = None
) -> CudaKernel:
    """The kernel of a program with tensor-core contractions; LoweringError for any other. With
    `close`, its last blocks merge what it stores."""
    options = options or Options()
    memory = memory_program(program, options)
    try:
        return print_kernel(memory, close)
    except UnsupportedError as error:
        raise LoweringError(f"{program.name}: {error}") from error


def emit_variants(
    program: TileProgram, options: Options | None = None, close: Close | None = None
) -> Iterator[CudaKernel]:
    """Schedules of the program, the best first: for a compiler's gate that refuses one. They differ
    in how far ahead fragments are loaded, then in the warps that share the rows (a chain's; more
    than four are slower than smaller tiles) or the block (a contraction's)."""
    options = options or Options()
    yield emit_mma(program, options, close)
    yield emit_mma(program, replace(options, prefetch="fragment"), close)
    geometry = memory_program(program, options).geometry
    chain = _is_chain(_analysed(program))
    warps = geometry.warp_rows * geometry.warp_columns * 2
    if warps > (CHAIN_WARPS if chain else MAX_WARPS):
        return
    for wider in (
        replace(options, warp_rows=geometry.warp_rows * 2, warp_columns=geometry.warp_columns),
        replace(options, warp_rows=geometry.warp_rows, warp_columns=geometry.warp_columns * 2),
    ):
        try:
            yield emit_mma(program, wider, close)
            return
        except LoweringError:
            continue


def memory_program(program: TileProgram, options: Options | None = None) -> MemoryProgram:
    """The schedule that `emit_mma` prints."""
    options = options or Options()
    try:
        structure = _analysed(program)
        geometry = _geometry(structure, options)
        choices = _choices(structure, geometry, options)
        memory = plan(structure, choices)
        wider = _wider(structure, geometry, options)
        if wider and _exposed(memory):
            other = plan(structure, replace(choices, geometry=wider))
            memory = memory if _exposed(other) else other
        validate(memory)
        return memory
    except (UnsupportedError, ScheduleError) as error:
        code = CAPACITY if isinstance(error, CapacityError) else None
        raise LoweringError(f"{program.name}: {error}", code=code) from error


def _analysed(program: TileProgram) -> Structure:
    return analyse(cut_depth(factor(with_row(program))))


def _choices(structure: Structure, geometry: Geometry, options: Options) -> Choices:
    """How deep the rings are. A chain has two slots; one of a single warp, which waits for memory
    and nothing else, up to four, as long as several of its blocks share a multiprocessor."""
    prefetch = options.prefetch or "step"
    if not _is_chain(structure):
        return Choices(geometry, options.stages or 4, options.shared_limit, prefetch)
    if geometry.threads > 32 or options.stages:
        return Choices(geometry, options.stages or 2, options.shared_limit, prefetch)
    return Choices(geometry, 4, options.shared_limit, prefetch, FEW_ROWS_SHARED)


def _exposed(memory: MemoryProgram) -> bool:
    """Whether a stream computes operands without having read ahead for them."""
    streams = [op for op in memory.roles[0].operations if isinstance(op, Stream)]
    return any(
        any(isinstance(op, Place) for op in s.body)
        and not any(isinstance(op, Gather) for op in s.body)
        for s in streams
    )


def _wider(structure: Structure, geometry: Geometry, options: Options) -> Geometry | None:
    """The block with all warps that it may have, where it has fewer: fewer registers a thread."""
    if options.warp_rows or options.warp_columns or _is_chain(structure):
        return None
    widths = [structure.width(c.column) for c in structure.contractions.values()]
    warps = contraction_warps(geometry.rows, widths, least=MAX_WARPS)
    return replace(geometry, warp_rows=warps[0], warp_columns=warps[1]) if warps else None


def _is_chain(structure: Structure) -> bool:
    """Whether a warp must own whole rows: a computed operand, or a fold along the columns."""
    computed = any(structure.operand(c.left.name) is None for c in structure.contractions.values())
    folds = [s for s in statements(structure.program.body) if isinstance(s, Fold)]
    return computed or any(structure.folded(s) is None for s in folds)


def _geometry(structure: Structure, options: Options) -> Geometry:
    rows = structure.width(structure.row)
    widths = [structure.width(c.column) for c in structure.contractions.values()]
    warps: tuple[int, int] | None
    if _is_chain(structure):
        along = options.warp_rows or chain_warps(rows, widths, list(_packed(structure)))
        warps = None if along is None else (along, 1)
        if warps and rows % (16 * warps[0]):
            warps = None
    else:
        pieces = any(c.operand == "f32" for c in structure.contractions.values())
        warps = contraction_warps(rows, widths, least=MAX_WARPS if pieces else 4)
        if options.warp_rows and options.warp_columns:
            warps = (options.warp_rows, options.warp_columns)
    if warps is None:
        raise CapacityError("no division into warps holds the accumulators")
    group = options.group or 8
    return Geometry(structure.row, rows, *warps, options.blocks or 1, group)


def _packed(structure: Structure) -> Iterator[int]:
    for c in structure.contractions.values():
        if structure.operand(c.left.name) is None:
            yield structure.width(c.axis)
