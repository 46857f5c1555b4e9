"""How the rows of a program are dealt to threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.tile import Ref
from nautile.errors import LoweringError
from nautile.terms import Apply, walk

__all__ = ["DEFAULT", "Geometry", "RowOptions", "geometry"]

_VECTORS = 4
_FOLDED = 8
_FLYING = 16  # registers a thread for what it has read, where nothing is folded
_NARROW = 4  # registers for the vectors of one tensor at a place
_HELD = 32  # registers a thread for what it has read
_THREADS = 128
_MOST = 1024  # threads of a block
_FOLDING = 512  # threads of a row that is folded, while it is read in pieces
_RESIDENT = 64  # registers a thread that a row may take to be read once
_FACTORS = 32  # registers a thread for what all rows share, where blocks walk over rows
_LARGEST = 24  # the same where 1024 threads share them
_CLUSTERS = (2, 4, 8)  # blocks of a cluster: what every Hopper card launches
# Most threads of a block of a cluster, registers a thread for its part of the row, blocks that a
# multiprocessor is to hold (on an H200, parts half as large or twice the threads are slower).
_PARTS = ((256, 32, 3), (512, 32, 1), (1024, 24, 1))
_STAGED = ((256, 32, 6), (512, 32, 3), (1024, 48, 1))  # the same of parts in shared memory
_ALONE = 16384  # registers of a row, from which what is read once is not kept
_BUSY = 32768  # elements of a row of one tensor, from which its block computes too long alone
_STAGE = 163840  # bytes of shared memory for a staged row: what sm_80 has
_WORTH = 4096  # registers that a row must take for several blocks to share it
_MULTIPROCESSORS = 132  # of an H200
_TOGETHER = 120  # its multiprocessors that clusters of four or eight reach at a time (measured)
_ROUNDS = 4  # rows one after the other, from which blocks that stay are worth their start
_RESERVE = 227 * 1024  # bytes of shared memory of one of its multiprocessors
_STATES = 2048  # bytes of them for states and barriers of a block
_FILE = 65536  # registers of one of its multiprocessors


@dataclass(frozen=True, slots=True)
class RowOptions:
    """What a schedule of rows fixes; 0 leaves it to the geometry. `cluster` blocks share a row that
    is folded (sm_90), each with `threads` threads a row, which hold `held` vectors at a time;
    `block_rows` rows a block; the compiler is asked to fit `occupancy` blocks on a multiprocessor.
    `room` registers a thread hold element values from one pass to the next. What is `staged` waits
    in shared memory instead of registers, so that more of it is under way. `early` registers a
    thread are for what all rows share, read beside the row (negative: the geometry's choice).
    With a `ring` (sm_90) blocks stay and walk over the rows, while the copy engine brings as many
    rows ahead; `walkers` rows at a time. Results that are `taken` away by it leave by way of the
    ring. A ring that is `wanted` is refused where one block a row does as well, or what all rows
    share would be read again. With `overlap` a launch may begin while the one before it
    drains. A cluster of 0 is one that the row needs."""

    cluster: int = 1
    threads: int = 0
    held: int = 0
    block_rows: int = 0
    occupancy: int = 0
    room: int = 32
    staged: bool = False
    early: int = -1
    ring: int = 0
    walkers: int = 0
    taken: bool = False
    wanted: bool = False
    overlap: bool = True


DEFAULT = RowOptions()


@dataclass(frozen=True, slots=True)
class Geometry:
    """`width` elements a vector, `vectors` of them a row; `row_threads` threads share a row and
    hold `held` vectors each; `block_rows` rows a block. `resident` rows stay in registers over all
    passes; `chunks` blocks share a row too long for one: where it is folded they are a `cluster`.
    `words` registers hold what a thread has read, `operations` counts the program's; the compiler
    is asked to fit `wanted` blocks on a multiprocessor where that is not 0. With a `ring` of so
    many rows `walkers` rows are under way at a time, each in the shared memory of one block or of a
    cluster, and the others follow them there."""

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
    cluster: bool = False
    wanted: int = 0
    staged: bool = False
    early: int = -1
    ring: int = 0
    walkers: int = 0
    taken: bool = False

    @property
    def stage(self) -> int:
        """Bytes of shared memory for what a block has read."""
        if self.ring:
            return self.ring * self.slot * self.block_rows
        return 4 * self.words * self.threads if self.staged else 0

    @property
    def lasting(self) -> bool:
        """Whether what a thread has read for one pass is there for the next one."""
        return self.resident and (self.chunks == 1 or self.cluster)

    @property
    def threads(self) -> int:
        return self.row_threads * self.block_rows

    @property
    def blocks(self) -> int:
        return -(-(self.walkers or self.rows) // self.block_rows) * self.chunks

    @property
    def slot(self) -> int:
        """Bytes of a ring's slot: a block's part of one row of all tensors."""
        return 4 * (self.words // self.held) * self.part

    @property
    def bounds(self) -> str:
        """Launch bounds: as many blocks as give half of a multiprocessor's threads, where what a
        thread holds leaves the compiler room for that."""
        if self.wanted:
            return f"{self.threads}, {self.wanted}"
        if self.words <= 24 and self.threads <= 512 and self.operations <= 40:
            return f"{self.threads}, {1024 // self.threads}"
        return f"{self.threads}"

    @property
    def part(self) -> int:
        """Vectors of a row that are a block's of a cluster."""
        return -(-self.vectors // self.chunks)

    @property
    def ragged(self) -> bool:
        """Whether some thread has a vector past the end of the row, or of its block's part."""
        step = self.row_threads * self.held
        if self.cluster:
            return self.part != step or self.part * self.chunks != self.vectors
        return self.vectors % step != 0


@dataclass(frozen=True, slots=True)
class _Row:
    """A row before it is dealt: `vectors` of `width` elements, which take `words` registers each
    where they are kept; `wanted` vectors a thread; whether it is folded, and `several` passes read
    it; `shared` registers a vector for what all rows read."""

    width: int
    vectors: int
    words: int
    wanted: int
    folds: bool
    several: bool
    rows: int
    operations: int
    shared: int

    @property
    def size(self) -> int:
        """Registers that all of it takes."""
        return self.words * self.vectors


def geometry(
    program: RowProgram,
    reads: Sequence[Access],
    writes: Sequence[Access],
    cached: Sequence[Access],
    options: RowOptions = DEFAULT,
) -> Geometry:
    """The geometry for a program whose accesses are given; `cached` reads take registers. Raises
    LoweringError where a cluster is asked for and nothing is folded, or the row does not fit."""
    row = _row(program, reads, writes, cached)
    if options.ring:
        if options.early < 0:
            options = replace(options, early=_FACTORS)
        return _walked(program.program.name, row, options)
    if options.cluster != 1:
        return _clustered(program.program.name, row, options)
    return _folded(row, options) if row.folds else _elementwise(row, options)


def _row(
    program: RowProgram, reads: Sequence[Access], writes: Sequence[Access], cached: Sequence[Access]
) -> _Row:
    extent = program.column.extent
    width = gcd(extent, max((a.width(extent) for a in (*reads, *writes)), default=1))
    while width > 1 and sum(a.bytes for a in writes) * width > 128:
        width //= 2
    vectors = -(-extent // width)
    folds = any(p.folds for p in program.passes)
    words = sum(max(1, a.bytes * width // 4) for a in cached) or int(folds)
    wanted = _wanted(program, reads, cached, vectors, words)
    several = sum(bool(p.folds or p.writes) for p in program.passes) > 1
    rows = prod(a.extent for a in program.rows)
    shared = sum(max(1, a.bytes * width // 4) for a in reads if a not in cached)
    operations = _operations(program)
    return _Row(width, vectors, words, wanted, folds, several, rows, operations, shared)


def _elementwise(row: _Row, options: RowOptions) -> Geometry:
    """Rows of which nothing is folded: several blocks share a long one. A thread has as many loads
    under way as hide the wait, and no more: blocks that end soon follow one another smoothly."""
    threads = options.threads or _threads(row)
    most = max(1, min(_VECTORS, _FLYING // max(1, row.words)))
    held = options.held or min(-(-row.vectors // threads), most)
    chunks = -(-row.vectors // (threads * held))
    return _dealt(row, options, threads, held, chunks=chunks)


def _folded(row: _Row, options: RowOptions) -> Geometry:
    """Rows that are folded by one block, in registers or in pieces. Long ones that are read once
    come in pieces, which follow one another without a merge. Where rows are read again, the
    compiler may use all registers: fewer blocks leave their rows in the second-level cache."""
    threads = options.threads or _threads(row)
    held = -(-row.vectors // threads)
    resident = row.words * held <= (_LARGEST if threads == 1024 else _RESIDENT)
    if options.staged and 4 * row.words * held * threads <= _STAGE:
        return _dealt(row, options, threads, held)
    if not resident or not (row.several or row.size < _ALONE or options.threads):
        threads, held = _FOLDING, max(1, min(_VECTORS, 32 // max(1, row.words)))
        resident = False
    again = row.several and not resident
    fixed = replace(options, occupancy=options.occupancy or int(again))
    return _dealt(row, fixed, threads, options.held or held, resident=resident)


def _dealt(
    row: _Row,
    options: RowOptions,
    threads: int,
    held: int,
    *,
    chunks: int = 1,
    resident: bool = True,
    cluster: bool = False,
) -> Geometry:
    several = max(1, (2 * _THREADS if threads == 32 else _THREADS) // threads)
    return Geometry(
        row.width,
        row.vectors,
        threads,
        held,
        1 if cluster else options.block_rows or several,
        row.rows,
        chunks,
        resident,
        row.words * held,
        row.operations,
        cluster,
        options.occupancy,
        options.staged and row.folds and resident,
        options.early,
    )


def _clustered(name: str, row: _Row, options: RowOptions) -> Geometry:
    """Rows in the registers of the blocks of a cluster."""
    if not row.folds:
        raise LoweringError(f"{name}: nothing is folded, so that blocks need no cluster")
    if options.cluster == 0 and not (_long(row) or _few(row)):
        raise LoweringError(f"{name}: one block a row does as well as a cluster")
    least = _spread(row) if options.cluster == 0 and _few(row) else 2
    for most, room, fits in _parts(row, options):
        for cluster in _CLUSTERS if options.cluster == 0 else (options.cluster,):
            part = -(-row.vectors // cluster)
            held = -(-part // most)
            if cluster >= least and row.words * held <= room and row.vectors >= 32 * cluster:
                threads = 32 * -(-part // (32 * held))
                occupancy = options.occupancy or fits * most // threads
                fixed = replace(options, occupancy=occupancy)
                return _dealt(row, fixed, threads, held, chunks=cluster, cluster=True)
    raise LoweringError(f"{name}: a row of {row.vectors} vectors does not fit a cluster")


def _walked(name: str, row: _Row, options: RowOptions) -> Geometry:
    """Rows that blocks, or clusters, walk over: as many as the shared memory of the card has room
    for with their rings, and as give every one the same number of rows where that is possible."""
    cluster = max(1, options.cluster)
    part = -(-row.vectors // cluster)
    most = max(_VECTORS, -(-part // _MOST))
    threads = options.threads or 32 * -(-part // (32 * most))
    if cluster == 1:  # as the merge of a block's warps wants
        threads = 1 << (threads - 1).bit_length()
    held = -(-part // threads)
    if not row.folds or part < 32 or threads % 32 or (cluster - 1) * part >= row.vectors:
        raise LoweringError(f"{name}: no warp has its part of a row")
    beside = options.block_rows or (4 if threads == 32 and cluster == 1 else 1)
    if beside > 1 and (threads > 32 or cluster > 1):
        raise LoweringError(f"{name}: rows that walk side by side have a warp each")
    dealt = _dealt(row, options, threads, held, chunks=cluster, cluster=cluster > 1)
    made = replace(dealt, block_rows=beside, ring=options.ring, staged=False, taken=options.taken)
    most = min(_RESERVE // (made.stage + _STATES), 2048 // made.threads)
    fits = min(options.occupancy or _FILE // (made.threads * _registers(row, held, options)), most)
    several = cluster > 2 and row.words > _NARROW  # clusters hold several tensors as well
    worse = not _outgrown(row) or several or row.shared * held > options.early
    if not fits or row.words * held > _RESIDENT or (options.wanted and worse):
        raise LoweringError(f"{name}: a multiprocessor does not hold a ring of rows")
    walkers = _MULTIPROCESSORS * fits // cluster * beside
    if cluster > 2:
        walkers = _TOGETHER * fits // cluster
    rounds = -(-row.rows // (options.walkers or walkers))
    if options.wanted and rounds < _ROUNDS:
        raise LoweringError(f"{name}: {row.rows} rows are too few for blocks that stay")
    return replace(made, wanted=fits, walkers=-(-row.rows // rounds))


def _registers(row: _Row, held: int, options: RowOptions) -> int:
    """Registers a thread: its part of a row, values kept for later passes, what all rows share,
    and temporaries."""
    kept = options.room if row.several and row.width * held <= options.room else 0
    early = row.shared * held if row.shared * held <= options.early else 0
    return 40 + row.words * held + kept + early


def _parts(row: _Row, options: RowOptions) -> tuple[tuple[int, int, int], ...]:
    """Most threads of a block, registers a thread, blocks on a multiprocessor, the best first.
    Where registers hold few elements, as of f32, more threads in fewer blocks are better."""
    if options.threads:
        return ((options.threads, 128 if options.staged else 32, 0),)
    few = row.width * (32 // max(1, row.words)) <= 32
    return (_PARTS[1], _PARTS[0], _PARTS[2]) if few else _PARTS


def _outgrown(row: _Row) -> bool:
    """Whether one block would read the row again, or compute too long with nothing under way."""
    heavy = row.words <= _NARROW and row.vectors * row.width >= _BUSY
    return row.several and (heavy or not _folded(row, DEFAULT).resident)


def _long(row: _Row) -> bool:
    """Whether blocks of a cluster share such a row; unless much more than the row itself is read
    beside it, which every row of a cluster fetches again."""
    return _outgrown(row) and row.shared <= 2 * row.words


def _few(row: _Row) -> bool:
    """Whether a block a row leaves half of the card idle, and a row is worth sharing."""
    return 2 * row.rows <= _MULTIPROCESSORS and row.size >= _WORTH


def _spread(row: _Row) -> int:
    """The smallest cluster that leaves no half of the card idle."""
    return next((c for c in _CLUSTERS if 2 * c * row.rows > _MULTIPROCESSORS), _CLUSTERS[-1])


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
    if any(a not in cached for a in reads):
        return _VECTORS
    if folds and vectors >= 2048 and words <= _NARROW:
        return _FOLDED
    return _VECTORS if vectors > (256 if folds else 128) else max(1, _VECTORS // 2)


def _threads(row: _Row) -> int:
    """Threads of a row: all of a block where fewer would hold more than fits."""
    threads, vectors = 1, row.vectors
    while threads < (_FOLDING if row.folds else _THREADS) and -(-vectors // threads) > row.wanted:
        threads *= 2
    if not row.folds:
        return threads
    while threads <= _FOLDING and threads < vectors:
        lone = threads == _FOLDING and row.words > _NARROW  # bytes enough under way in one block
        if row.words * -(-vectors // threads) <= (_RESIDENT if lone else 32):
            break
        threads *= 2
    return threads


def _operations(program: RowProgram) -> int:
    """Distinct scalar operations: a measure of the registers that temporaries take."""
    roots = [program.source(f) for p in program.passes for f in p.folds]
    roots += [program.expand(Ref(w.source)) for p in program.passes for w in p.writes]
    return sum(isinstance(t, Apply) for t in walk(*roots))
