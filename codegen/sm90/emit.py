"""Tile programs with tensor-core contractions -> CUDA for sm_90a (TMA, mbarrier, wgmma)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautile.codegen.memory import Close
from nautile.codegen.schedule.depth import cut_depth
from nautile.codegen.schedule.factor import factor
from nautile.codegen.schedule.structure import (
    CapacityError,
    Structure,
    UnsupportedError,
    analyse,
)
from nautile.codegen.sm90.formed import formed
from nautile.codegen.sm90.kernel import print_kernel
from nautile.codegen.sm90.memory import RoleProgram
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.plan import plan
from nautile.codegen.sm90.simulate import ScheduleError, simulate
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.errors import LoweringError

__all__ = ["CAPACITY", "emit_hopper", "emit_hopper_variants", "memory_program"]

FRAGMENT = 64  # rows of a warpgroup's product
CAPACITY = "capacity"  # code of the error where other tiles of the same program would do


def emit_hopper(
    program: TileProgram, options: Options | None = None, close: Close | None = None
) -> CudaKernel:
    """The kernel of a program that the copy engine and wgmma cover; LoweringError for any other:
    the portable emitters take it. With `close`, its last blocks merge what it stores."""
    try:
        return print_kernel(memory_program(program, options), close)
    except UnsupportedError as error:
        raise _refusal(program, error) from error


def emit_hopper_variants(
    program: TileProgram, options: Options | None = None, close: Close | None = None
) -> Iterator[CudaKernel]:
    """Schedules of the program, the best first: for a compiler's gate that refuses one. They differ
    in whether warpgroups share a tile or take tiles in turn, in the order of the blocks, clusters,
    and buffers of the stores."""
    options = options or Options()
    yield emit_hopper(program, options, close)
    first = memory_program(program, options)
    for other in (
        replace(options, alternate=not first.geometry.alternate),
        replace(options, descending=False),
        replace(options, turns=False),
        replace(options, ahead=False),
        replace(options, cluster=2),
        replace(options, buffers=4),
    ):
        try:
            made = memory_program(program, other)
        except LoweringError:
            continue
        if made != first:
            yield print_kernel(made, close)


def memory_program(program: TileProgram, options: Options | None = None) -> RoleProgram:
    """The schedule that `emit_hopper` prints, after a symbolic run of its roles."""
    try:
        made = plan(_analysed(program), options or Options())
        simulate(made)
        return made
    except UnsupportedError as error:
        raise _refusal(program, error) from error
    except ScheduleError as error:
        raise LoweringError(f"{program.name}: {error}") from error


def _analysed(program: TileProgram) -> Structure:
    return formed(analyse(cut_depth(factor(program), exact=True), rows=FRAGMENT))


def _refusal(program: TileProgram, error: UnsupportedError) -> LoweringError:
    code = CAPACITY if isinstance(error, CapacityError) else None
    return LoweringError(f"{program.name}: {error}", code=code)
