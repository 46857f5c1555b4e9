"""How often the blocks of a tiling evaluate a term, walk an axis, fetch an element.

Every quantity is a NumPy vector with one entry a tiling. A block of a grid takes one tile of every
grid axis and walks the streamed axes tile by tile; masks leave blocks of a pass out, and blocks of
the grid that have nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nautile.extract.body import Body
from nautile.extract.footprint import Vector, elements
from nautile.extract.masks import Mask, alive_and_busy, pass_mask
from nautile.terms import Axis, Load, Online, Reduce, Term

__all__ = ["Counting", "axis_of", "walked"]


class Counting:
    """The tilings of a body: tiles of each axis (`count`), whether an axis is `streamed`, blocks of
    the grid, the share of a pass that masks keep, and the blocks that are `busy` at all."""

    def __init__(self, body: Body, tiles: Mapping[Axis, Vector]) -> None:
        self.body, self.tiles = body, tiles
        self.one: Vector = np.ones(len(next(iter(tiles.values()))) if tiles else 1)
        self.count = {a: np.ceil(a.extent / tiles[a]) for a in body.axes}
        self.streamed = {a: (self.count[a] > 1) for a in body.reduced}
        self.extent = {a: self.one * a.extent for a in body.axes}
        self.blocks = self.one
        for axis in body.grid:
            self.blocks = self.blocks * self.count[axis]
        self.kept, self.busy = self._kept()

    def padded(self, axes: frozenset[Axis], running: frozenset[Axis] = frozenset()) -> Vector:
        """Evaluations of a term with these axes by all blocks, ragged tiles counted whole. Along
        `running` axes the term follows running values, which change once a tile."""
        total = self.blocks
        for axis in axes:
            if axis in self.tiles:
                total = total * (self.one if axis in running else self.tiles[axis])
                if axis in self.body.reduced:
                    total = total * self.count[axis]
        return total

    def repeats(self, term: Term) -> Vector:
        """How often one block evaluates the term: passes over streamed axes, masked blocks out."""
        total = self.one
        for axis, n in self.body.visits[term].items():
            passes = [k for (a, k), bag in self.body.passes.items() if a == axis and term in bag]
            share = sum(self.kept[axis, k] for k in passes)
            total = total * np.where(self.streamed[axis], share, min(n, 1))
        return total

    def within(self, term: Term) -> Vector:
        """Repeats of a term, or for a reduction those of its own pass."""
        if not isinstance(term, (Reduce, Online)):
            return self.repeats(term)
        axis = term.axis
        own = np.where(self.streamed[axis], self.kept[axis, self.body.stage[term]], 1)
        return own * self.repeats(term)

    def trips(self) -> Vector:
        """Trips of the loops of one block that has anything to do, all passes together."""
        total = self.one * 0
        for axis, k in self.body.passes:
            trips = self.count[axis] * self.kept[axis, k] * self.blocks / self.busy
            for inner, outer in self.body.nested:
                if inner == axis:
                    trips = trips * np.where(self.streamed[outer], self.count[outer], 1)
            total = total + np.where(self.streamed[axis], trips, 0)
        return total

    def fetched(self, load: Load) -> Vector:
        """Elements that all blocks fetch, each block its own footprint in every pass."""
        block = {a: self.tiles[a] if a in self.body.grid else self.extent[a] for a in self.tiles}
        total = elements(load, block, self.one) * self.blocks
        exact = {c.axis for c in load.coordinates if hasattr(c, "axis")}
        for axis in self.body.grid:
            if axis in load.free and axis in exact:
                total = total * self.extent[axis] / (self.count[axis] * self.tiles[axis])
        if load in self.body.visits:
            total = total * self.repeats(load)
        for inner, outer in self.body.nested:
            if inner in load.free and outer not in load.free:
                both = self.streamed[inner] & self.streamed[outer]
                total = total * np.where(both, self.count[outer], 1)
        return total

    def missing(self, load: Load) -> Vector:
        """Blocks that read the same elements."""
        total = self.one
        for axis in self.body.grid:
            if axis not in load.free:
                total = total * self.count[axis]
        return total

    def masked(self, load: Load) -> bool:
        """Whether a mask leaves out some of the blocks that would read the load."""
        return any(
            float(self.kept[key].min()) < 1 for key, bag in self.body.passes.items() if load in bag
        )

    def _kept(self) -> tuple[dict[tuple[Axis, int], Vector], Vector]:
        """For each pass the share of its blocks that its mask leaves; the blocks of the grid that
        have anything to do."""
        kept, most = {}, self.one * 0
        inner = {a for a, _ in self.body.nested}
        for axis, k in self.body.passes:
            roots = [r for r, s in self.body.stage.items() if s == k and axis_of(r) == axis]
            mask = pass_mask(roots) if roots and not self._stored_in(axis, k) else frozenset()
            kept[axis, k], busy = self._alive(mask, axis) if mask else (self.one, self.one)
            most = most if axis in inner else np.maximum(most, busy)
        most = np.where(most > 0, most, 1)
        return kept, np.maximum(1, self.blocks * most)

    def _stored_in(self, axis: Axis, k: int) -> bool:
        bag = self.body.passes[axis, k]
        return any(o.term in bag and axis in o.axes for o in self.body.outputs)

    def _alive(self, mask: Mask, axis: Axis) -> tuple[Vector, Vector]:
        axes = sorted({a for form, _ in mask for a, _ in form} | {axis})
        rows = np.stack([self.tiles.get(a, self.one) for a in axes])
        sizes, inverse = np.unique(rows, axis=1, return_inverse=True)
        shares = [
            alive_and_busy(mask, {a: int(s) for a, s in zip(axes, column, strict=True)}, axis)
            for column in sizes.T
        ]
        kept, busy = np.array(shares)[inverse.reshape(-1)].T
        return kept, busy


def axis_of(term: Term) -> Axis:
    """The axis of a reduction."""
    assert isinstance(term, (Reduce, Online))
    return term.axis


def walked(term: Term) -> frozenset[Axis]:
    """The axes over which the term's own operation runs."""
    return term.free | {term.axis} if isinstance(term, (Reduce, Online)) else term.free
