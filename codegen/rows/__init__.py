"""Programs whose blocks are rows: elementwise ones, and folds along one axis.

A row's elements lie along one column axis, in vectors of up to 16 bytes over a group of threads.
The row stays in registers where it fits; else every pass reads it again, or the blocks of a cluster
share it (sm_90: `emit_rows_cluster`). Partial states of threads are merged by the same repairs and
offsets that a stream has (states.py, merging.py).

| file | what becomes rows |
|---|---|
| walking.py | rows that blocks walk over, while the copy engine brings those that follow (sm_90) |
| variants.py | the schedules for Hopper cards, the best first |
| joined.py | folds inside folds: one fold over the positions of all their axes |
| strided.py | memory that runs across the rows: neighbouring threads have neighbouring results |
| prologue.py | folds that all elements of a row share, or over another axis: once a block, first |
| transposed.py | elementwise programs whose tensors are contiguous along different axes |
"""

from nautile.codegen.rows.emitter import emit_rows, emit_rows_cluster
from nautile.codegen.rows.geometry import RowOptions
from nautile.codegen.rows.structure import RowProgram, as_rows
from nautile.codegen.rows.variants import hopper_variants
from nautile.codegen.rows.walking import emit_rows_walked

__all__ = [
    "RowOptions",
    "RowProgram",
    "as_rows",
    "emit_rows",
    "emit_rows_cluster",
    "emit_rows_walked",
    "hopper_variants",
]
