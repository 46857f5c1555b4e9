"""How the rows of a program are dealt to threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.tile import Ref
from nautile.terms import Apply, walk

__all__ = ["Geometry", "geometry"]

_VECTORS = 4
_FOLDED = 8
_HELD = 32  # registers a thread for what it has read
_THREADS = 128
_FOLDING = 512  # threads of a row that is folded, while it is read in pieces
_RESIDENT = 64  # registers a thread that a row may take to be read once


@dataclass(frozen=True, slots=True)
class Geometry:
    """`width` elements a vector, `vectors` of them a row; `row_threads` threads share a row and
    hold `held` vectors each; `block_rows` rows a block. `resident` rows stay in registers over all
    passes; `chunks` blocks share a row too long for one (only where nothing is folded);
    `words` registers hold what a thread has read, `operations` counts the program's."""

    width: int
    vectors: int
    row_threads: int
    held: int
    block_rows: int
    rows: int
    chunks: int
    resident: bool
    words: int
    operations: int

    @property
    def threads(self) -> int:
        return self.row_threads * self.block_rows

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block_rows) * self.chunks

    @property
    def bounds(self) -> str:
        """Launch bounds: as many blocks as give half of a multiprocessor's threads, where what a
        thread holds leaves the compiler room for that."""
        if self.words <= 24 and self.threads <= 512 and self.operations <= 40:
            return f"{self.threads}, {1024 // self.threads}"
        return f"{self.threads}"

    @property
    def ragged(self) -> bool:
        """Whether some thread has a vector past the end of the row."""
        return self.vectors % (self.row_threads * self.held) != 0


def geometry(
    program: RowProgram, reads: Sequence[Access], writes: Sequence[Access], cached: Sequence[Access]
) -> Geometry:
    """The geometry for a program whose accesses are given; `cached` reads take registers."""
    extent = program.column.extent
    width = gcd(extent, max((a.width(extent) for a in (*reads, *writes)), default=1))
    while width > 1 and sum(a.bytes for a in writes) * width > 128:
        width //= 2
    vectors = -(-extent // width)
    folds = any(p.folds for p in program.passes)
    words = sum(max(1, a.bytes * width // 4) for a in cached) or int(folds)
    rows = prod(a.extent for a in program.rows)
    threads = _threads(vectors, words, folds, _wanted(program, reads, cached, vectors, words))
    held = -(-vectors // threads)
    resident = words * held <= (24 if threads == 1024 else _RESIDENT)
    chunks = 1
    if not folds:
        held = min(held, _VECTORS, max(1, 64 // max(1, words)))
        chunks = -(-vectors // (threads * held))
    elif not resident:
        threads, held = _FOLDING, max(1, min(_VECTORS, 32 // max(1, words)))
    block_rows = max(1, (2 * _THREADS if threads == 32 else _THREADS) // threads)
    kept = resident or not folds
    return Geometry(
        width,
        vectors,
        threads,
        held,
        block_rows,
        rows,
        chunks,
        kept,
        words * held,
        _operations(program),
    )


def _wanted(
    program: RowProgram,
    reads: Sequence[Access],
    cached: Sequence[Access],
    vectors: int,
    words: int,
) -> int:
    """Vectors that a thread should have. Short rows have fewer, which hides the loads better,
    unless the threads then also read what all rows share. Rows that nothing is stored along have
    more: they wait for fewer merges (measured on an H200: 72% of a copy's bandwidth against 61% at
    8 KB, 88% against 67% at 32 KB)."""
    folds = any(p.folds for p in program.passes)
    if vectors > 128 and folds and not any(p.writes for p in program.passes):
        return min(_FOLDED, max(_VECTORS, _HELD // max(1, words)))
    shared = any(a not in cached for a in reads)
    return _VECTORS if vectors > 128 or shared else _VECTORS // 2


def _threads(vectors: int, words: int, folds: bool, wanted: int) -> int:
    """Threads of a row: all of a block where fewer would hold more than fits."""
    threads = 1
    while threads < (_FOLDING if folds else 256) and -(-vectors // threads) > wanted:
        threads *= 2
    while (
        folds and threads <= _FOLDING and threads < vectors and words * -(-vectors // threads) > 32
    ):
        threads *= 2
    return threads


def _operations(program: RowProgram) -> int:
    """Distinct scalar operations: a measure of the registers that temporaries take."""
    roots = [program.source(f) for p in program.passes for f in p.folds]
    roots += [program.expand(Ref(w.source)) for p in program.passes for w in p.writes]
    return sum(isinstance(t, Apply) for t in walk(*roots))
