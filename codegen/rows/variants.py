"""Schedules of row programs for Hopper cards (sm_90), beside the portable one: the best first.

Rows that one block reads again, or computes too long alone, are brought by the copy engine to
blocks that stay (walking.py), alone or in clusters, where three rows fit their shared memory; else
the blocks of a cluster share each. Measured on an H200, of a copy's bandwidth:

| rows | blocks stay | a cluster a row | a block a row |
|---|---|---|---|
| softmax, 64k columns of bf16 | 92% | 82% | 59% |
| softmax, 64k columns of f32 | 95% | 84% | 47% |
| layer norm, 64k columns of bf16 | 90% | 66% | 71% |
| layer norm, 64k columns of f32 | 94% | 80% | 60% |
| layer norm, 32k columns of bf16 | 93% | 71% | 83% |

A cluster that finds no room beside the others waits until one of them has ended all its rows, which
doubles the time: an H200 has room for 30 of four blocks and 15 of eight, not for 33 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from nautile.codegen.rows.emitter import emit_rows_cluster
from nautile.codegen.rows.geometry import RowOptions
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.rows.walking import emit_rows_walked
from nautile.codegen.source import CudaKernel
from nautile.errors import LoweringError

__all__ = ["hopper_variants"]

_SCHEDULES = (
    *(RowOptions(n, room=0, ring=3, taken=True, wanted=True) for n in (1, 2, 4, 8)),
    RowOptions(cluster=0),
    RowOptions(cluster=0, occupancy=2),
    RowOptions(cluster=0, staged=True, room=0),
    RowOptions(cluster=0, occupancy=1),
)


def hopper_variants(program: RowProgram, name: str, precise: bool) -> Iterator[CudaKernel]:
    """Kernels of a row program that is worth one of its own; none where one block a row does as
    well, or nothing fits."""
    for options in _SCHEDULES:
        emit = emit_rows_walked if options.ring else emit_rows_cluster
        with suppress(LoweringError):
            yield emit(program, name, precise, options)
