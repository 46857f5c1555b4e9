"""Which tile sizes each axis of a body may take.

The sets are those that the emitters cover: a part with a tensor contraction deals its row axis in
{16, 32, 64, 128, 256}, as its column axis, walks summed axes in {16, 32, 64, 128} (or keeps them
whole when short, or where a norm is before them) and takes one batch position a block; a part
without one keeps a few rows and a whole reduced axis (up to 32768 elements a block) or walks it in
chunks; a part without reductions takes a flat tile of up to 8192 elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nautile.extract.body import Body
from nautile.extract.footprint import Flags, Vector
from nautile.extract.norms import norm
from nautile.extract.shapes import tensor_shapes
from nautile.terms import Axis, Online, Reduce

__all__ = ["RESIDENT", "tilings"]

RESIDENT = 32768
_ROWS = (16, 32, 64, 128, 256)
_STREAM = (16, 32, 64, 128)
_WHOLE = 256
_FEW = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CHUNK = (256, 512, 1024, 2048, 4096, 8192)
_FLAT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def tilings(body: Body, limit: int) -> dict[Axis, Vector]:
    """Every combination of tiles worth pricing, at most about `limit`: one vector an axis."""
    options = _options(body)
    while math.prod(len(o) for o in options.values()) > 8 * limit:
        widest = max(options, key=lambda a: len(options[a]))
        options[widest] = options[widest][::-2][::-1]
    counts = [len(o) for o in options.values()]
    index = np.indices(counts).reshape(len(counts), math.prod(counts))
    tiles = {
        axis: np.array(sizes, dtype=float)[index[k]]
        for k, (axis, sizes) in enumerate(options.items())
    }
    keep = np.flatnonzero(_sensible(body, tiles, math.prod(counts)))
    if len(keep) > limit:
        keep = keep[:: -(-len(keep) // limit)]
    return {axis: size[keep] for axis, size in tiles.items()}


def whole(axis: Axis, unit: int) -> int:
    """The smallest multiple of `unit` that covers the axis."""
    return -(-axis.extent // unit) * unit


def _options(body: Body) -> dict[Axis, list[int]]:
    if any(c.operand for c in body.contractions.values()):
        return {a: _tensor_options(body, a) for a in body.axes}
    if body.contractions:
        return {a: _fma_options(body, a) for a in body.axes}
    if body.reduced:
        return {a: _row_options(body, a) for a in body.axes}
    return {a: _capped(a, _FLAT) for a in body.axes}


def _capped(axis: Axis, sizes: tuple[int, ...]) -> list[int]:
    """The sizes below the extent, and the first power of two that covers it if it is in reach."""
    below = [s for s in sizes if s < axis.extent]
    top = next((s for s in sizes if s >= axis.extent), None)
    return below + ([min(top, axis.extent)] if top is not None else [])


def _tensor_options(body: Body, axis: Axis) -> list[int]:
    roles = _roles(body, axis)
    before = norm(body)
    if before and axis == before.depth:
        return [whole(axis, 16)]
    if axis in body.reduced:
        if "summed" not in roles and not roles:
            return _row_options(body, axis)
        if _outer_sum(body, axis):
            return [1]
        sizes = [s for s in _STREAM if s < axis.extent]
        if axis.extent > _WHOLE:
            return sizes
        inside = any(inner == axis for inner, _ in body.nested)
        inside |= any(axis in c.axes and len(c.axes) > 1 for c in body.contractions.values())
        return [whole(axis, 16)] if inside else sizes + [whole(axis, 16)]
    if not roles & {"row", "column"} or axis.extent == 1:
        return [1]
    sizes = [s for s in _ROWS if s < axis.extent]
    sizes += [whole(axis, 16)] if axis.extent <= _WHOLE else []
    return sizes if _main(body, axis) else [1]


def _fma_options(body: Body, axis: Axis) -> list[int]:
    roles = _roles(body, axis)
    if axis in body.reduced:
        sizes = [s for s in (8, 16, 32) if s < axis.extent]
        return sizes + ([axis.extent] if axis.extent <= 128 else [])
    if not roles & {"row", "column"}:
        return [1]
    if not _main(body, axis):
        return [1]
    return _capped(axis, (8, 16, 32, 64, 128))


def _row_options(body: Body, axis: Axis) -> list[int]:
    if axis not in body.reduced:
        walked = any(axis in root.free for root in body.stage)
        return _capped(axis, _FEW if walked else _FLAT)
    chunks = [s for s in _CHUNK if s < axis.extent]
    if axis.extent <= RESIDENT:
        chunks = [s for s in chunks if 8 * s >= axis.extent] + [axis.extent]
    return chunks


def _outer_sum(body: Body, axis: Axis) -> bool:
    """Of several axes that one contraction sums over, all but one are walked a position at a time:
    the one whose extent is the largest that a tile holds whole."""
    for c in body.contractions.values():
        if axis in c.axes and len(c.axes) > 1:
            whole_ones = [a for a in c.axes if a.extent <= _WHOLE] or list(c.axes)
            if axis != max(whole_ones, key=lambda a: (a.extent, a)):
                return True
    return False


def _roles(body: Body, axis: Axis) -> frozenset[str]:
    found = set()
    for c in body.contractions.values():
        found |= {"row"} if axis in c.rows else set()
        found |= {"column"} if axis in c.columns else set()
        found |= {"summed"} if axis in c.axes else set()
    return frozenset(found)


def _main(body: Body, axis: Axis) -> bool:
    """Of the row (or column) axes of a contraction, one gets the tile: one that is reduced later,
    or else the innermost stored one of 16 positions or more, or else the longest."""
    for c in body.contractions.values():
        for side in (c.rows, c.columns):
            if not side.isdisjoint(body.reduced):
                continue
            grid = [a for a in body.grid if a in side]
            if axis in grid:
                long = [a for a in grid if a.extent >= 16] or [max(grid, key=lambda a: a.extent)]
                if axis == long[-1]:
                    return True
    return False


def _sensible(body: Body, tiles: Mapping[Axis, Vector], count: int) -> Flags:
    """Combinations whose block can be emitted, and holds no more than it should."""
    size = np.ones(count)
    for tile in tiles.values():
        size = size * tile
    if any(c.operand for c in body.contractions.values()):
        return tensor_shapes(body, tiles, size)
    if body.contractions:
        return np.ones(count, dtype=bool)
    if body.reduced:
        size = _largest(body, tiles, count)
    keep: Flags = size <= (RESIDENT if body.reduced else 8192)
    return keep if keep.any() else size == size.min()


def _largest(body: Body, tiles: Mapping[Axis, Vector], count: int) -> Vector:
    """Elements of the largest tile of a body: axes that no term has both of do not multiply."""
    nests = {t.free | {t.axis} if isinstance(t, (Reduce, Online)) else t.free for t in body.inside}
    nests |= {load.free for load in body.loads}
    largest = np.ones(count)
    for nest in nests:
        size = np.ones(count)
        for axis in nest & tiles.keys():
            size = size * tiles[axis]
        largest = np.maximum(largest, size)
    return largest
