"""Which bodies the emitters of rows and of the tensor cores take. The general one takes the rest,
at a fraction of their rate.

A body without contractions becomes rows where its folds walk one axis, or can be brought to one:

- folds inside folds of the same monoid are one fold over the positions of all their axes, if
  nothing else reads the inner ones, and every other fold walks all of these axes as well (or adds
  up a constant);
- of two axes, the folds over one come first: they wait for none over the other, no value has both
  axes, and nothing is stored along the first.

Over a resident axis an online sum is a sum: it moves nothing. What is said here about terms,
`nautile.codegen.rows` says about tile programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.body import Body, below, monoid_of
from nautile.extract.footprint import Flags, Vector, affine
from nautile.extract.shapes import DEPTH_FOLDS, depth_folds
from nautile.extract.tilings import RESIDENT
from nautile.terms import Axis, Before, Const, Load, Online, Reduce, Running, Term

__all__ = ["general", "held_by_cluster", "is_rows"]

CLUSTER_BYTES = 8 * 65536  # of a row that the blocks of a cluster keep in registers

Reduction = Reduce | Online


def general(body: Body, tiles: Mapping[Axis, Vector], one: Vector) -> Flags:
    """For each tiling, whether only the general emitter takes the body."""
    if any(c.operand for c in body.contractions.values()):
        return _untaken(body, tiles, one)
    if body.contractions or not body.reduced:
        return one < 0
    if len(body.reduced) == 1:
        return one < (0 if is_rows(body, frozenset(body.reduced)) else 2)
    streamed = np.stack([tiles[a] < a.extent for a in body.reduced])
    patterns, inverse = np.unique(streamed, axis=1, return_inverse=True)
    slow = [
        not is_rows(body, frozenset(a for a, s in zip(body.reduced, p, strict=True) if s))
        for p in patterns.T
    ]
    found: Flags = np.array(slow)[inverse.reshape(-1)]
    return found


def held_by_cluster(body: Body) -> bool:
    """Whether blocks of a cluster keep the rows that several passes read: rows along memory, too
    long for one block, no longer than all blocks' registers. What all rows share may be twice as
    long: blocks that stay with a part of the columns keep that too."""
    if body.contractions or prod(a.extent for a in body.reduced) <= RESIDENT:
        return False
    if len(body.reduced) > 1 and not _Shape(body, frozenset()).joins(body.reduced):
        return False
    loads = [x for x in body.loads if not x.free.isdisjoint(body.reduced)]
    if any(x.coordinates[-1].free.isdisjoint(body.reduced) for x in loads if x.coordinates):
        return False
    own = sum(_row_bytes(body, x) for x in loads if not x.free.isdisjoint(body.grid))
    shared = sum(_row_bytes(body, x) for x in loads if x.free.isdisjoint(body.grid))
    return own <= CLUSTER_BYTES and shared <= 2 * own


def _row_bytes(body: Body, load: Load) -> int:
    extents = (a.extent for a in load.free if a in body.reduced)
    return prod(extents) * DTYPES[load.buffer.dtype].bytes


# ---- tensor cores ------------------------------------------------------------------------------


def _untaken(body: Body, tiles: Mapping[Axis, Vector], one: Vector) -> Flags:
    """Tilings in which several positions of a batch share a block, or a fold beside the
    contractions is of a kind that fragments do not have."""
    slow: Flags = one < 0
    if not _on_fragments(body):
        return ~slow
    for c in body.contractions.values():
        for axis in (c.left_free & c.right_free) - set(c.axes):
            slow = slow | (tiles.get(axis, one) > 1)
    return slow


def _on_fragments(body: Body) -> bool:
    """Whether every fold is a contraction, one along a depth, or one of a product's columns."""
    known = {*body.contractions, *body.free}
    others = [r for r in _roots(body) if r not in known]
    if not others:
        return True
    deep = depth_folds(body)
    axes = frozenset[Axis]().union(*(c.rows | c.columns for c in body.contractions.values()))
    return all(r in deep or (monoid_of(r) in DEPTH_FOLDS and r.axis in axes) for r in others)


# ---- rows --------------------------------------------------------------------------------------


def is_rows(body: Body, streams: frozenset[Axis]) -> bool:
    """Whether a body without contractions becomes rows when it streams these axes."""
    shape = _Shape(body, streams)
    axes = {r.axis for r in shape.roots}
    if len(axes) == 1 or shape.joins(axes):
        return shape.runs_along(axes)
    if len(axes) == 2:
        ordered = sorted(axes, key=lambda a: (-a.extent, a))
        pairs = zip(ordered, reversed(ordered), strict=True)
        return any(shape.follows(column, other) for column, other in pairs)
    return False


@dataclass(frozen=True)
class _Shape:
    """The folds of a body that streams some axes."""

    body: Body
    streams: frozenset[Axis]

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """All that is computed: not what moves the sums of resident axes."""
        stack = [o.term for o in self.body.outputs]
        seen: dict[Term, None] = {}
        while stack:
            term = stack.pop()
            if term not in seen:
                seen[term] = None
                stack += self._read(term)
        return tuple(seen)

    @cached_property
    def roots(self) -> tuple[Reduction, ...]:
        return tuple(t for t in self.terms if isinstance(t, (Reduce, Online)))

    def moves(self, root: Reduction) -> bool:
        """Whether the fold is moved while its axis streams."""
        return isinstance(root, Online) and root.axis in self.streams

    def joins(self, axes: Collection[Axis]) -> bool:
        """Whether the folds become one over the positions of all the axes."""
        inner = {r.body for r in self.roots if isinstance(r.body, (Reduce, Online))}
        outer = [r for r in self.roots if r not in inner]
        return not self._read_elsewhere(inner) and all(self._covers(r, axes) for r in outer)

    def _covers(self, root: Reduction, axes: Collection[Axis]) -> bool:
        own, last = {root.axis}, root
        while isinstance(last.body, (Reduce, Online)):
            last = last.body
            if monoid_of(last) != monoid_of(root) or self.moves(last):
                return False
            own.add(last.axis)
        if last is not root and monoid_of(root) in ("argmax", "argmin"):
            return False
        return own >= set(axes) or _shared_out(last.body, set(axes) - own, monoid_of(root))

    def _read_elsewhere(self, inner: Collection[Term]) -> bool:
        """Whether a fold inside another is also a value of its own."""
        if any(o.term in inner for o in self.body.outputs):
            return True
        for term in self.terms:
            for child in self._read(term):
                if child in inner and not (
                    isinstance(term, (Reduce, Online)) and child is term.body
                ):
                    return True
        return False

    def _read(self, term: Term) -> Iterator[Term]:
        """What the term reads, running values replaced by the folds that they are values of."""
        if isinstance(term, Online) and not self.moves(term):
            yield term.body
            return
        for child in below(term):
            yield child.reduction if isinstance(child, (Running, Before)) else child

    def runs_along(self, axes: Collection[Axis]) -> bool:
        """Whether memory runs along the column, or along one of the rows."""
        return not self._strided(axes) or self._lane(axes)

    def follows(self, column: Axis, other: Axis) -> bool:
        """Whether rows along `column` come after folds over `other`."""
        for root in self.roots:
            leaves = [leaf for t in self._read(root) for leaf in self._leaves(t)]
            free = root.free.union(*(leaf.free for leaf in leaves))
            if free & ({column, other} - {root.axis}):
                return False
            waits = any(isinstance(t, (Reduce, Online)) and t.axis == column for t in leaves)
            if root.axis == other and waits:
                return False
        if any(other in o.axes for o in self.body.outputs):
            return False
        return not self._strided([column]) and not self._lane([column])

    def _leaves(self, root: Term) -> Iterator[Term]:
        """The loads, positions and folds that the term is made of."""
        stack, seen = [root], set[Term]()
        while stack:
            term = stack.pop()
            if isinstance(term, (Running, Before)):
                term = term.reduction
            if term in seen:
                continue
            seen.add(term)
            if isinstance(term, (Load, Reduce, Online)) or not below(term):
                yield term
            else:
                stack += below(term)

    def _strided(self, axes: Iterable[Axis]) -> bool:
        """Whether memory runs along other axes wherever elements of the column are read."""
        last = [x.coordinates[-1].free for x in self._along(axes) if x.coordinates]
        return bool(last) and all(free and free.isdisjoint(axes) for free in last)

    def _lane(self, axes: Collection[Axis]) -> bool:
        """Whether most of what is read along the column is contiguous along a row axis."""
        found: dict[Axis, int] = {}
        for load in self._along(axes):
            size = prod(a.extent for a in load.free) * DTYPES[load.buffer.dtype].bytes
            for axis in _contiguous(load):
                found[axis] = found.get(axis, 0) + size
        most = max(found.values(), default=0)
        first = {a for a, size in found.items() if size == most}
        return bool(first & set(self.body.grid)) and first.isdisjoint(axes)

    def _along(self, axes: Iterable[Axis]) -> Iterator[Load]:
        own = set(axes)
        return (x for x in self.body.loads if not own.isdisjoint(x.free))


def _roots(body: Body) -> Iterator[Reduction]:
    return (r for r in body.stage if isinstance(r, (Reduce, Online)))


def _shared_out(value: Term, axes: Iterable[Axis], monoid: str) -> bool:
    """Whether a fold of the value adds up a constant that positions of more axes may share."""
    if monoid != "sum" or not isinstance(value, Const) or isinstance(value.value, bool):
        return False
    whole = isinstance(value.value, int)
    return not whole or value.value % prod(a.extent for a in axes) == 0


def _contiguous(load: Load) -> list[Axis]:
    """The axes along which neighbouring positions are neighbouring elements."""
    if not load.coordinates:
        return []
    last = affine(load.coordinates[-1])
    outer = frozenset[Axis]().union(*(c.free for c in load.coordinates[:-1]))
    return (
        []
        if last is None
        else [a for a, n in last.coefficients.items() if n == 1 and a not in outer]
    )
