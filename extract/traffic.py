"""Bytes that a kernel moves: from device memory, and through the second-level cache.

A load whose tensor fits half of that cache comes from memory once. Of a larger one the blocks that
run together share what they read, as far as they lie in one square of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.counting import Counting
from nautile.extract.device import Device
from nautile.extract.footprint import Vector, elements, product
from nautile.terms import Buffer, Index, Load, Term

__all__ = ["Traffic", "moved"]

SECTOR = 32  # bytes of the smallest memory transaction
LINE = 128  # bytes of a cache line
RAGGED = 0.15  # share of the missing part of a line that is lost in device memory
DIRECT = 8.0  # half sectors, in two warp columns, for a fold and for an operand


@dataclass(frozen=True, slots=True)
class Traffic:
    """`reads` bytes from memory and `writes` to it, `l2` bytes read through the cache, and the
    seconds that are lost to short runs of memory."""

    reads: Vector
    writes: int
    l2: Vector
    ragged: Vector


def moved(
    counting: Counting,
    device: Device,
    together: Vector,
    direct: frozenset[Load] = frozenset(),
    once: bool = False,
) -> Traffic:
    """The traffic of all tilings. `together` blocks run at a time; `direct` loads are fetched as
    often as warps need them, all others only `once` where passes find them kept."""
    occupancy = np.maximum(1, np.minimum(counting.blocks, together))
    return _Moving(counting, device, occupancy, direct, once).run()


@dataclass(slots=True)
class _Moving:
    counting: Counting
    device: Device
    occupancy: Vector
    direct: frozenset[Load]
    once: bool

    def run(self) -> Traffic:
        n, body = self.counting, self.counting.body
        reads, l2, ragged = n.one * 0, n.one * 0, n.one * 0
        minimum: dict[str, Vector] = {}
        size: dict[str, int] = {}
        groups = max(1, len({tuple(a in x.free for a in body.grid) for x in body.loads}))
        for load in body.loads:
            width = DTYPES[load.buffer.dtype].bytes
            unique = elements(load, n.extent, n.one) * width
            least = 0.0 if n.masked(load) else 1.0
            passes = n.repeats(load) if self.once and load in body.visits else n.one
            total = np.maximum(n.fetched(load) / np.maximum(passes, 1) * width, unique * least)
            run = self._run(load.coordinates, load.buffer, width)
            again = self._again(load, total, unique, groups)
            l2 = l2 + total * np.maximum(1.0, SECTOR / run) * (DIRECT if load in self.direct else 1)
            once = np.minimum(again, unique)
            reads = reads + again - once
            ragged = ragged + self._late(again, run)
            name = load.buffer.name
            minimum[name] = minimum.get(name, n.one * 0) + once
            size[name] = load.buffer.size * width
        for name, least_bytes in minimum.items():
            reads = reads + np.minimum(least_bytes, size[name])
        writes = sum(o.buffer.size * DTYPES[o.buffer.dtype].bytes for o in body.outputs)
        return Traffic(reads, writes, l2, ragged + self._ragged_writes())

    def _again(self, load: Load, total: Vector, unique: Vector, groups: int) -> Vector:
        """Bytes of the load that come from memory, of `total` that are fetched."""
        if float(unique[0]) < self.device.l2_bytes / 2:
            return np.minimum(total, unique)
        shared = np.maximum(1, self.occupancy ** (1 / groups))
        sharing = np.minimum(self.counting.missing(load), shared)
        return np.maximum(np.minimum(total, unique), total / sharing)

    def _run(self, coordinates: tuple[Term, ...], buffer: Buffer, width: int) -> Vector:
        """Bytes that a block touches in a row."""
        if not coordinates:
            return self.counting.one * LINE
        run = product(coordinates[-1].free, self.counting.tiles, self.counting.one)
        run = np.where(run >= buffer.shape[-1], buffer.size, run)
        return np.maximum(run, 1) * width

    def _late(self, amount: Vector, run: Vector) -> Vector:
        """Seconds lost when `amount` bytes move in runs shorter than a line."""
        return amount * RAGGED * np.maximum(0, LINE / run - 1) / self.device.memory_bandwidth

    def _ragged_writes(self) -> Vector:
        total = self.counting.one * 0
        for output in self.counting.body.outputs:
            width = DTYPES[output.buffer.dtype].bytes
            run = self._run(tuple(Index(a) for a in output.axes), output.buffer, width)
            amount = self.counting.one * output.buffer.size * width
            total = total + self._late(amount, run)
        return total
