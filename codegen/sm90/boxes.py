"""The nouns of a memory program with roles: the block, boxes in rings of slots, accumulators."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautile.codegen.source import TensorMap
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Index, Term

__all__ = ["FORMERS", "PANEL_BYTES", "SWIZZLE_ROWS", "Accumulator", "Box", "Geometry", "Ring"]

PANEL_BYTES = 128
FORMERS = 3  # warps of the producer's warpgroup that form operands: all but the copying thread's
SWIZZLE_ROWS = 8  # of 128 bytes: one period of the swizzle


@dataclass(frozen=True, slots=True)
class Geometry:
    """The block. `rows` of a tile are divided among `consumers` warpgroups, each of which has
    `fragments` times 64 of them. With `alternate` every warpgroup has a tile to itself and they
    take tiles in turn (ping-pong), else they share one (cooperative). The blocks of a `cluster`
    have neighbouring row tiles, one after the other, at the same places of all other axes."""

    row: Axis
    rows: int
    consumers: int
    alternate: bool = False
    group: int = 8
    cluster: int = 1

    @property
    def threads(self) -> int:
        """The producer's warpgroup, of which one thread works, and the consumers."""
        return 128 * (1 + self.consumers)

    @property
    def fragments(self) -> int:
        """64-row fragments of a warpgroup."""
        return self.rows // (64 if self.alternate else 64 * self.consumers)

    @property
    def arrivals(self) -> int:
        """Warps of a block that release a slot."""
        return 4 if self.alternate else 4 * self.consumers


@dataclass(frozen=True, slots=True)
class Box:
    """rows x columns elements, `inner` contiguous: panels of 128 bytes of `inner`, each `rows` rows
    of 128 bytes whose 16-byte chunks are permuted (chunk ^ row % 8). `places` are the coordinates
    of the tile's first element in the map, fastest first; a panel is one load, `inner` further. Of
    the rows only the first `come` are brought: the others hold whatever lay there, and what is made
    of them lies outside the extents. (Rows beyond a view cost the copy engine some 3 ns each.)
    A box that is `formed` is filled by the formers' warps, from others.
    Of a box that is the same for `blocks` of a cluster each brings its part of the rows, to all."""

    name: str
    outer: Axis
    inner: Axis
    rows: int
    columns: int
    element: str
    map: TensorMap
    places: tuple[Term, ...]
    come: int
    offset: int = 0
    blocks: int = 1
    formed: bool = False

    @property
    def inside(self) -> frozenset[Axis]:
        """The axes that its place depends on."""
        return frozenset[Axis]().union(*(p.free for p in self.places))

    def shared(self, blocks: int) -> Box:
        """The same box brought by so many blocks together, where its rows are whole parts."""
        if self.come < self.rows or self.rows % (SWIZZLE_ROWS * blocks):
            return self
        at = self.places.index(Index(self.outer))
        part = tuple(n // blocks if i == at else n for i, n in enumerate(self.map.box))
        return replace(self, map=replace(self.map, box=part), blocks=blocks)

    @property
    def panel(self) -> int:
        """Elements of `inner` in a panel."""
        return PANEL_BYTES // DTYPES[self.element].bytes

    @property
    def panels(self) -> int:
        return -(-self.columns // self.panel)

    @property
    def panel_bytes(self) -> int:
        return self.rows * PANEL_BYTES

    @property
    def bytes(self) -> int:
        return self.panels * self.panel_bytes

    @property
    def brought(self) -> int:
        """Bytes that the copy engine brings."""
        return self.panels * self.come * PANEL_BYTES


@dataclass(frozen=True, slots=True)
class Ring:
    """`stages` slots of `slot_bytes` at `offset` in shared memory; barriers of 8 bytes at
    `barriers`: full[stages], then empty[stages]. A ring that `stays` is filled once a tile. Warps
    of so many `blocks` of a cluster release a slot, each at every one of them. A `raw` ring is read
    by the formers."""

    name: str
    stages: int
    boxes: tuple[Box, ...]
    slot_bytes: int
    offset: int
    barriers: int
    arrivals: int
    stays: bool = False
    blocks: int = 1
    raw: bool = False

    @property
    def formers(self) -> int:
        """Warps that fill a slot besides the copy engine."""
        return FORMERS if any(b.formed for b in self.boxes) else 0

    @property
    def bytes(self) -> int:
        """Bytes that TMA brings into a slot."""
        return sum(b.brought for b in self.boxes if not b.formed)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """`registers` f32 of a thread for each 64-row fragment; `parts` are the fragments of values
    that lie in it, with the register that each begins at."""

    name: str
    registers: int
    parts: tuple[tuple[str, int], ...]
