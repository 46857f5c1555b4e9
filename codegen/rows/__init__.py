"""Programs whose blocks are rows: elementwise ones, and folds along one axis.

A row's elements lie along one column axis, in vectors of up to 16 bytes over a group of threads.
The row stays in registers where it fits; else every pass reads it again.
"""

from nautile.codegen.rows.emitter import emit_rows
from nautile.codegen.rows.structure import RowProgram, as_rows

__all__ = ["RowProgram", "as_rows", "emit_rows"]
