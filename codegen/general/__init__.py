"""Any tile program: results of folds and contractions live in shared memory, the threads of a block
take their elements in turn, and contractions accumulate in small register tiles.

It is slower than the emitters for rows and tensor cores and has no shape that it refuses, but for
a block that needs more shared memory than a multiprocessor has. The cost model tells from a part's
terms that it will be needed, and charges for it (`nautile.extract.rowshape`).
"""

from nautile.codegen.general.emitter import emit_general

__all__ = ["emit_general"]
