"""Where values of a memory program lie: tiles in shared memory, their rings, fragments in
registers, and the warps of a block. `nautile.codegen.memory` has the grammar."""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.tile import Tile
from nautile.terms import Axis, Term

__all__ = ["Fragment", "Geometry", "Layout", "Ring", "SharedTile"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Bytes of a row, and the swizzle: a row's 16-byte chunks are numbered chunk ^ (row >> shift &
    mask), so that eight consecutive rows of one chunk column fall into different banks."""

    pitch: int
    mask: int = 0
    shift: int = 0

    @staticmethod
    def of(row_bytes: int) -> Layout:
        """The layout without bank conflicts: swizzled where the row is 32, 64 or a multiple of
        128 bytes, else padded to an odd number of 16-byte chunks."""
        if row_bytes % 128 == 0:
            return Layout(row_bytes, 7, 0)
        if row_bytes in (32, 64):
            return Layout(row_bytes, row_bytes // 16 - 1, 2 if row_bytes == 32 else 1)
        return Layout.padded(row_bytes)

    @staticmethod
    def padded(row_bytes: int) -> Layout:
        """Rows of an odd number of chunks, not swizzled."""
        return Layout(row_bytes + 16 if row_bytes // 16 % 2 == 0 else row_bytes)

    def address(self, row: int, byte: int) -> int:
        """Where a byte of a row lies."""
        chunk = (byte // 16) ^ ((row >> self.shift) & self.mask)
        return row * self.pitch + chunk * 16 + byte % 16


@dataclass(frozen=True, slots=True)
class SharedTile:
    """rows x columns elements of `element` (the multiplication's operand type) in shared memory,
    `inner` contiguous. `value` is an element as a term of Loads and Indices; `filled` tells how it
    gets there: "copy16", "copy8", "copy4" (asynchronous copies of that many bytes of the one Load)
    or "compute" (through registers). `offset` is within its ring's slot."""

    name: str
    outer: Axis
    inner: Axis
    rows: int
    columns: int
    element: str
    value: Term
    filled: str
    layout: Layout
    offset: int = 0

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.pitch


@dataclass(frozen=True, slots=True)
class Ring:
    """`stages` slots of `slot_bytes`, at `offset` in shared memory."""

    name: str
    stages: int
    tiles: tuple[SharedTile, ...]
    slot_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """A register value. With a column axis it is accumulator-shaped, `columns` wide in the block;
    without one it holds a value for each row of a thread (or one value where `row` is False)."""

    name: str
    tile: Tile
    column: Axis | None
    columns: int = 0
    row: bool = True


@dataclass(frozen=True, slots=True)
class Geometry:
    """The block: its row tile, warps along rows and along columns; `blocks` a multiprocessor."""

    row: Axis
    rows: int
    warp_rows: int
    warp_columns: int
    blocks: int = 1
    group: int = 8

    @property
    def threads(self) -> int:
        return 32 * self.warp_rows * self.warp_columns

    @property
    def thread_rows(self) -> int:
        """16-row fragments of a warp."""
        return self.rows // (16 * self.warp_rows)
