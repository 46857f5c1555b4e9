"""Tile programs executed block by block in NumPy, float32 like the GPU's.

It is the meaning of `tile.py` made runnable: a certificate calls `interpret` on sampled blocks,
with a `fetch` that computes input elements on demand, so that large tensors never exist; a machine
without a GPU runs whole bundles with `run_program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from nautile.codegen.folding import Carried, identity, merge_extreme, reduce_block
from nautile.codegen.pointwise import ARRAY, Array, evaluate, rounded
from nautile.codegen.tile import (
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
)
from nautile.codegen.types import carrier
from nautile.dtypes import storage
from nautile.errors import LoweringError
from nautile.terms import Axis, Buffer, Index, Term

__all__ = ["Fetch", "Written", "block_count", "interpret", "run_program"]

Fetch = Callable[[Buffer, tuple[Array, ...]], Array]


@dataclass(frozen=True, slots=True)
class Written:
    """What one Write of one block stored: `values[i]`, in the buffer's storage type, at element
    `(positions[0][i], positions[1][i], ..)`; `block` is the block's coordinates on the grid."""

    buffer: Buffer
    positions: tuple[Array, ...]
    values: Array
    block: tuple[int, ...]


def block_count(program: TileProgram) -> tuple[int, ...]:
    """How many blocks the grid has along each of its axes."""
    return tuple(-(-a.extent // program.tiles[a]) for a in program.grid)


def interpret(
    program: TileProgram, fetch: Fetch, blocks: Iterable[tuple[int, ...]] | None = None
) -> Iterator[Written]:
    """Run the given blocks (all of them where None, in order) and yield what they store.

    `fetch(buffer, index_arrays)` returns elements; the index arrays are in range and broadcast
    against each other (one for each dimension), and so must the result.
    """
    wanted = product(*map(range, block_count(program))) if blocks is None else blocks
    for block in wanted:
        run = _Block(program, fetch, tuple(block))
        with np.errstate(all="ignore"):
            run.execute(program.body)
        yield from run.written


def run_program(programs: Iterable[TileProgram], arrays: MutableMapping[str, Array]) -> None:
    """Run whole programs in order on real arrays; outputs that `arrays` lacks are added to it."""

    def fetch(buffer: Buffer, index: tuple[Array, ...]) -> Array:
        return np.asarray(arrays[buffer.name][index])

    for program in programs:
        for piece in interpret(program, fetch):
            name, shape = piece.buffer.name, piece.buffer.shape
            if name not in arrays:
                arrays[name] = np.zeros(shape, storage(piece.buffer.dtype))
            arrays[name][piece.positions] = piece.values if shape else piece.values[-1]


@dataclass(slots=True)
class _Block:
    """One block's state: origins of the axes, values of the tiles, and what was stored."""

    program: TileProgram
    fetch: Fetch
    block: tuple[int, ...]
    origin: dict[Axis, int] = field(default_factory=dict)
    first: dict[Axis, bool] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    extremes: dict[str, Array] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    whole: bool = False

    def __post_init__(self) -> None:
        for axis, number in zip(self.program.grid, self.block, strict=True):
            self.origin[axis] = number * self.program.tiles[axis]

    def execute(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            match statement:
                case Read():
                    self._read(statement)
                case Map(target, value):
                    self._set(target, self.pointwise(self._unmasked(target, value), target.axes))
                case Fold():
                    self._fold(statement)
                case Mma():
                    self._mma(statement)
                case Loop():
                    self._loop(statement)
                case Write():
                    self._write(statement)

    def positions(self, axis: Axis) -> Array:
        start = self.origin.get(axis, 0)
        return np.arange(start, start + self.program.tiles[axis], dtype=np.int64)

    def pointwise(self, term: Term, axes: tuple[Axis, ...]) -> Array:
        """The term's values, broadcastable to `axes`."""

        def leaf(node: Term) -> Array | None:
            if isinstance(node, Index):
                return _aligned(self.positions(node.axis), (node.axis,), axes)
            if isinstance(node, Ref):
                return _aligned(self.values[node.tile.name], node.tile.axes, axes)
            return None

        return evaluate(term, leaf, {})

    def _shape(self, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        return tuple(self.program.tiles[a] for a in axes)

    def _set(self, target: Tile, value: Array) -> None:
        full = np.broadcast_to(value, self._shape(target.axes))
        self.values[target.name] = rounded(full, target.dtype)

    def _unmasked(self, target: Tile, value: Term) -> Term:
        return self.program.masked.get(target.name, value) if self.whole else value

    def _valid(self, axes: tuple[Axis, ...]) -> Array:
        """Which positions lie inside the extents, broadcastable to `axes`."""
        valid = np.ones((1,) * len(axes), np.bool_)
        for axis in axes:
            valid = valid & _aligned(self.positions(axis) < axis.extent, (axis,), axes)
        return valid

    def _read(self, read: Read) -> None:
        axes = read.target.axes
        valid = self._valid(axes)
        index: list[Array] = []
        for term, extent in zip(read.coordinates, read.buffer.shape, strict=True):
            at = self.pointwise(term, axes)
            valid = valid & (at >= 0) & (at < extent)
            index.append(np.clip(at, 0, extent - 1))
        values = np.asarray(self.fetch(read.buffer, tuple(index)))
        kind = ARRAY[carrier(read.buffer.dtype)]
        self._set(read.target, np.where(valid, values.astype(kind), kind(0)))

    def _carried(self, axes: tuple[Axis, ...], target: Tile, start: Any) -> Array:
        """What the enclosing Loop brought to this statement, or the identity."""
        streamed = [a for a in axes if a in self.first]
        if streamed and not any(self.first[a] for a in streamed):
            return self.values[target.name]
        kind = ARRAY[carrier(target.dtype)]
        return np.full(self._shape(target.axes), start, kind)

    def _repaired(self, carried: Array, statement: Fold | Mma) -> Array:
        """What was carried, multiplied by the repair and moved by the offset."""
        repair, offset, axes = statement.repair, statement.offset, statement.target.axes
        if repair is not None:
            factor = _aligned(self.values[repair.name], repair.axes, axes)
            carried = np.where(factor == 0, carried.dtype.type(0), carried * factor)
        if offset is not None:
            carried = carried + _aligned(self.values[offset.name], offset.axes, axes)
        return carried

    def _fold(self, fold: Fold) -> None:
        target, axes = fold.target, (*fold.target.axes, fold.axis)
        source = _aligned(self.values[fold.source.name], fold.source.axes, axes)
        source = np.broadcast_to(source, self._shape(axes))
        valid = np.broadcast_to(self._valid((fold.axis,)), source.shape)
        start = identity(fold.monoid, carrier(target.dtype))
        carried = self._carried((fold.axis,), target, start)
        if fold.before is not None:
            self.values[fold.before.name] = carried
        block = reduce_block(
            fold.monoid, source, valid, self.origin.get(fold.axis, 0), target.dtype
        )
        if fold.monoid in ("argmax", "argmin"):
            self._set_extreme(fold, block, carried)
        else:
            self._set(target, block.combine(self._repaired(carried, fold)))

    def _set_extreme(self, fold: Fold, block: Carried, carried: Array) -> None:
        started = fold.axis not in self.first or self.first[fold.axis]
        before = None if started else self.extremes[fold.target.name]
        value, place = merge_extreme(fold.monoid, before, carried, block)
        self.extremes[fold.target.name] = value
        self._set(fold.target, place)

    def _mma(self, mma: Mma) -> None:
        target = mma.target
        kind = ARRAY[carrier(target.dtype)]
        left, right = (self._operand(t, mma, kind) for t in (mma.left, mma.right))
        carried = self._carried(mma.axes, target, 0)
        axes = list(dict.fromkeys((*mma.left.axes, *mma.right.axes)))
        letters = {a: chr(97 + i) for i, a in enumerate(axes)}
        spec = ["".join(letters[a] for a in t.axes) for t in (mma.left, mma.right, target)]
        block = np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", left, right, optimize=True)
        self._set(target, self._repaired(carried, mma) + block.astype(kind))

    def _operand(self, tile: Tile, mma: Mma, kind: Any) -> Array:
        value = rounded(self.values[tile.name], mma.operand).astype(kind)
        inside = self._valid(tuple(a for a in tile.axes if a in mma.axes))
        kept = tuple(a for a in tile.axes if a in mma.axes)
        return np.where(_aligned(inside, kept, tile.axes), value, kind(0))

    def _loop(self, loop: Loop) -> None:
        blocks = -(-loop.axis.extent // self.program.tiles[loop.axis])
        bound = loop.bounds
        first = min(max(self._bound(bound.first, 0), 0), blocks - 1)
        stop = max(min(self._bound(bound.stop, blocks), blocks), first + 1)
        whole = range(self._bound(bound.whole_first, blocks), self._bound(bound.whole_stop, 0))
        outer = self.whole
        for number in range(first, stop):
            self.origin[loop.axis] = number * self.program.tiles[loop.axis]
            self.first[loop.axis] = number == first
            self.whole = number in whole
            self.execute(loop.body)
        self.whole = outer
        del self.origin[loop.axis], self.first[loop.axis]

    def _bound(self, term: Term | None, default: int) -> int:
        if term is None:
            return default

        def leaf(node: Term) -> Array | None:
            if isinstance(node, Ref):
                return self.values[node.tile.name].reshape(())
            return np.asarray(self.origin[node.axis]) if isinstance(node, Index) else None

        return int(evaluate(term, leaf, {}))

    def _write(self, write: Write) -> None:
        axes = tuple(sorted(frozenset[Axis]().union(*(c.free for c in write.coordinates))))
        shape = self._shape(axes)
        valid = np.broadcast_to(self._valid(axes), shape)
        index: list[Array] = []
        for term, extent in zip(write.coordinates, write.buffer.shape, strict=True):
            at = np.broadcast_to(self.pointwise(term, axes), shape)
            valid = valid & (at >= 0) & (at < extent)
            index.append(at)
        source = _aligned(self.values[write.source.name], write.source.axes, axes)
        values = rounded(np.broadcast_to(source, shape)[valid], write.buffer.dtype)
        stored = values.astype(storage(write.buffer.dtype))
        places = tuple(at[valid] for at in index)
        self.written.append(Written(write.buffer, places, stored, self.block))


def _aligned(array: Array, axes: tuple[Axis, ...], wanted: tuple[Axis, ...]) -> Array:
    """The array with its axes in the order of `wanted`, size 1 where it lacks one."""
    missing = [a for a in axes if a not in wanted]
    if missing:
        raise LoweringError(f"a value over {', '.join(map(str, missing))} is used outside them")
    order = sorted(range(len(axes)), key=lambda i: wanted.index(axes[i]))
    moved = np.transpose(array, order)
    shape = iter(moved.shape)
    return moved.reshape([next(shape) if a in axes else 1 for a in wanted])
