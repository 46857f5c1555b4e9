"""Which tiles live in shared memory, how threads share a contraction, and tile sizes that fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from nautile.codegen.masks import with_mask_bounds
from nautile.codegen.tile import (
    Bounds,
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    Tile,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.codegen.types import carrier
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError
from nautile.terms import Axis, Term, walk

__all__ = ["THREADS", "Layout", "Micro", "fitted", "followed"]

THREADS = 256
_SHARED_LIMIT = 92 * 1024
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Micro:
    """A contraction's work: `rows` x `columns` x `batch` results, `row` x `column` of them a thread
    (in register arrays of that size), `depth` positions of the summed axes staged at a time."""

    batch_axes: tuple[Axis, ...]
    row_axes: tuple[Axis, ...]
    column_axes: tuple[Axis, ...]
    rows: int
    columns: int
    batch: int
    positions: int
    row: int
    column: int
    depth: int

    @property
    def row_items(self) -> int:
        return -(-self.rows // self.row)

    @property
    def column_items(self) -> int:
        return -(-self.columns // self.column)

    @property
    def items(self) -> int:
        return self.batch * self.row_items * self.column_items

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from one summed position to the next in the stages of both operands; the four
        more than needed keep stores that run along the summed axis off each other's banks."""
        return self.row_items * self.row + 4, self.column_items * self.column + 4

    @property
    def staged(self) -> int:
        """Elements of both operands' stages."""
        return self.depth * self.batch * sum(self.pitches)

    @property
    def prefetched(self) -> bool:
        """Whether the next stage fits in registers while this one is multiplied."""
        sides = (self.row_items * self.row, self.column_items * self.column)
        return sum(-(-self.depth * self.batch * n // THREADS) for n in sides) <= 24


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets of the tiles in shared memory, of the stage, and the total."""

    program: TileProgram
    offsets: dict[str, int]
    micro: dict[str, Micro]
    stage: int
    total: int

    def size(self, tile: Tile) -> int:
        return prod(self.program.tiles[a] for a in tile.axes)


def fitted(program: TileProgram) -> Layout:
    """The layout of the program, its tiles made smaller until a block fits."""
    tiles = {a: min(t, a.extent) for a, t in program.tiles.items()}
    program = _retiled(program, tiles | {a: a.extent for a in _plain_sums(program)})
    while True:
        layout = _layout(program)
        tight = any(m.items > THREADS for m in layout.micro.values())
        if layout.total <= _SHARED_LIMIT and not tight:
            return layout
        axis = _largest(program, _plain_sums(program))
        if axis is None:
            raise LoweringError(
                f"{program.name}: a block needs {layout.total} bytes of shared memory"
            )
        program = _retiled(program, {**program.tiles, axis: -(-program.tiles[axis] // 2)})


def _plain_sums(program: TileProgram) -> set[Axis]:
    """Loops that do nothing but accumulate contractions: those stage their operands piece by piece
    anyhow, so that one iteration may walk the whole axis."""
    loops = [s for s in walk_statements(program.body) if isinstance(s, Loop)]
    busy = {s.axis for s in loops if not _only_sums(s)}
    return {s.axis for s in loops} - busy


def _only_sums(loop: Loop) -> bool:
    sums = [s for s in loop.body if isinstance(s, Mma)]
    plain = all(loop.axis in s.axes and s.repair is s.offset is None for s in sums)
    return bool(sums) and plain and all(isinstance(s, (Read, Map, Mma)) for s in loop.body)


def _largest(program: TileProgram, kept: set[Axis]) -> Axis | None:
    """The axis to halve: the one with the largest tile among those dealt to blocks or streamed."""
    streamed = [s.axis for s in walk_statements(program.body) if isinstance(s, Loop)]
    axes = [a for a in (*program.grid, *streamed) if a not in kept]
    movable = [a for a in axes if program.tiles[a] > 1]
    return max(movable, key=lambda a: program.tiles[a], default=None)


def _retiled(program: TileProgram, tiles: dict[Axis, int]) -> TileProgram:
    """The program over other tile sizes; its loop bounds are derived anew."""
    if dict(program.tiles) == tiles:
        return program
    body = _unbounded(program.body)
    return with_mask_bounds(replace(program, tiles=tiles, body=body, masked={}))


def _unbounded(body: Iterable[Statement]) -> tuple[Statement, ...]:
    return tuple(
        Loop(s.axis, _unbounded(s.body), Bounds()) if isinstance(s, Loop) else s for s in body
    )


def _layout(program: TileProgram) -> Layout:
    micro = {
        s.target.name: _micro(program, s)
        for s in walk_statements(program.body)
        if isinstance(s, Mma)
    }
    offsets: dict[str, int] = {}
    sums, folds = _stored(program)
    folded = _placed(program, folds, 0, offsets)
    total = _placed(program, sums, folded, offsets)
    stage = max(
        (m.staged * 8 if w else m.staged * 4 for m, w in _widths(program, micro)), default=0
    )
    start = folded if _late(program) else total
    return Layout(program, offsets, micro, start, max(total, start + stage))


def _stored(program: TileProgram) -> tuple[list[Tile], list[Tile]]:
    """The tiles in shared memory: results of contractions, and of folds."""
    sums: list[Tile] = []
    folds: list[Tile] = []
    for s in walk_statements(program.body):
        if isinstance(s, Mma):
            sums.append(s.target)
        if isinstance(s, Fold):
            folds += [s.target, *([s.before] if s.before else [])]
            folds += [_value_tile(s)] if s.monoid in ("argmax", "argmin") else []
    return sums, folds


def _placed(program: TileProgram, tiles: list[Tile], start: int, offsets: dict[str, int]) -> int:
    for tile in tiles:
        offsets[tile.name] = start
        size = prod(program.tiles[a] for a in tile.axes) * _bytes(tile)
        start += -(-size // 16) * 16
    return start


def _widths(program: TileProgram, micro: dict[str, Micro]) -> list[tuple[Micro, bool]]:
    targets = {s.target.name: s.target for s in walk_statements(program.body) if isinstance(s, Mma)}
    return [(m, _bytes(targets[n]) == 8) for n, m in micro.items()]


def _late(program: TileProgram) -> bool:
    """Whether every contraction's result is first stored when all of them are done, so that the
    stage may lie where the results will."""
    loops = [s for s in program.body if isinstance(s, Loop)]
    inside = [s for loop in loops for s in loop.body]
    every = [s for s in walk_statements(program.body) if isinstance(s, Mma)]
    if any(followed(program, s) for s in every):
        return False
    return len(loops) == 1 and all(s in inside and loops[0].axis in s.axes for s in every)


def followed(program: TileProgram, mma: Mma) -> bool:
    """Whether the loop that carries the contraction reads its running value."""
    loops = [s for s in walk_statements(program.body) if isinstance(s, Loop) and mma in s.body]
    return any(mma.target in used(s) for loop in loops for s in walk_statements(loop.body))


def used(statement: Statement) -> set[Tile]:
    """The tiles that a statement reads."""
    terms: tuple[Term, ...] = ()
    tiles: tuple[Tile | None, ...] = ()
    match statement:
        case Read(_, _, coordinates):
            terms = coordinates
        case Map(_, value):
            terms = (value,)
        case Fold():
            tiles = (statement.source, statement.repair, statement.offset)
        case Mma(_, left, right):
            tiles = (left, right, statement.repair, statement.offset)
        case Write(_, coordinates, source):
            terms, tiles = coordinates, (source,)
    found = {t.tile for t in walk(*terms) if isinstance(t, Ref)}
    return found | {t for t in tiles if t is not None}


def _value_tile(fold: Fold) -> Tile:
    """Where argmax and argmin keep the extreme beside its position."""
    return Tile(f"{fold.target.name}_value", fold.target.axes, carrier(fold.source.dtype))


def _bytes(tile: Tile) -> int:
    return DTYPES[carrier(tile.dtype)].bytes


def _micro(program: TileProgram, mma: Mma) -> Micro:
    left, right = set(mma.left.axes), set(mma.right.axes)
    free = list(mma.target.axes)
    batch = tuple(a for a in free if (a in left) == (a in right))
    rows = tuple(a for a in free if a in left and a not in right)
    columns = tuple(a for a in free if a in right and a not in left)
    sizes = [prod(program.tiles[a] for a in axes) for axes in (rows, columns, batch, mma.axes)]
    row = column = 1
    while sizes[2] * -(-sizes[0] // row) * -(-sizes[1] // column) > THREADS and row * column < 64:
        if -(-sizes[0] // row) >= -(-sizes[1] // column) and row < 8:
            row *= 2
        elif column < 8:
            column *= 2
        else:
            row *= 2
    depth = min(_DEPTH, sizes[3])
    return Micro(batch, rows, columns, sizes[0], sizes[1], sizes[2], sizes[3], row, column, depth)
