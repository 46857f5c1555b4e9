"""How rows that memory runs across are dealt to threads.

A fold along `column` whose tensors are contiguous along another axis, the lane axis, gives each
thread `width` neighbouring results; groups of threads share the positions of the column and meet in
shared memory. Sums over leading axes, the merge of partial states and a softmax over the middle
axis of a tensor have this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.tile import Fold
from nautile.codegen.types import carrier
from nautile.dtypes import DTYPES
from nautile.terms import Axis

__all__ = ["LaneGeometry", "lane_geometry"]

_MULTIPROCESSORS = 132
_THREADS = 256
_MOST_THREADS = 512
_HELD = 8  # positions of the column a thread has in flight
_WORDS = 32  # registers a thread for what it has read
_STATES = 32  # registers a thread for partial states
_SHARED = 40 * 1024


@dataclass(frozen=True, slots=True)
class LaneGeometry:
    """A thread has `width` results side by side and `held` positions of the column at a time;
    `groups` of `lanes` threads share a block's results. `places` counts the threads that all
    results take (one group), `registers` what a thread has read and summed; `resident` columns are
    read once."""

    width: int
    lanes: int
    groups: int
    held: int
    places: int
    extent: int
    registers: int

    @property
    def bounds(self) -> str:
        """Launch bounds: half of a multiprocessor's threads where what one holds leaves the
        compiler room for that, else a quarter."""
        wanted = 1024 if self.registers <= 32 else 512
        return f"{self.threads}, {max(1, wanted // self.threads)}"

    @property
    def threads(self) -> int:
        return self.lanes * self.groups

    @property
    def blocks(self) -> int:
        return -(-self.places // self.lanes)

    @property
    def resident(self) -> bool:
        return self.groups * self.held >= self.extent

    @property
    def ragged(self) -> bool:
        """Whether some thread has a position past the end of the column."""
        return self.extent % (self.groups * self.held) != 0


def lane_geometry(rows: RowProgram, lane: Axis, accesses: Mapping[str, Access]) -> LaneGeometry:
    """The geometry for a program whose reads are given, seen along the lane axis."""
    streams = [a for a in accesses.values() if rows.column in a.offset.free and a.base is not None]
    folds = [f for p in rows.passes for f in p.folds]
    results = prod(a.extent for a in rows.rows)
    width = _width(lane, results, streams, folds)
    places = results // width
    extent = rows.column.extent
    groups = _groups(places, extent)
    lanes = min(_power(places), max(32, _THREADS // groups))
    while groups > 1 and lanes * groups * _state_bytes(folds, lane, width) > _SHARED:
        groups //= 2
    words = sum(max(1, a.bytes * width // 4) for a in streams)
    most = max(1, min(_HELD, _WORDS // max(1, words)))
    share = -(-extent // groups)
    held = -(-share // -(-share // most))
    registers = words * held + _state_bytes(folds, lane, width) // 4
    return LaneGeometry(width, lanes, groups, held, places, extent, registers)


def _width(lane: Axis, results: int, streams: list[Access], folds: list[Fold]) -> int:
    """Neighbouring results a thread: 16 bytes of the widest tensor where there are enough results
    to fill the card, 4 bytes of it at least."""
    largest = max((a.bytes for a in streams), default=4)
    aligned = [a.width(lane.extent) for a in streams] or [1]
    width = gcd(gcd(lane.extent, max(1, 16 // largest)), max(aligned))
    states = sum(max(1, DTYPES[carrier(f.target.dtype)].bytes // 4) for f in folds)
    while width > 1 and width * states > _STATES:
        width //= 2
    while width * largest > 4 and width > 1 and results // width < 32 * _MULTIPROCESSORS:
        width //= 2
    return width


def _groups(places: int, extent: int) -> int:
    """Threads that share a column: as many as fill the card, where each still has two positions."""
    groups = 1
    while (
        groups * 2 * min(places, 32) <= _MOST_THREADS
        and places * groups < _MULTIPROCESSORS * _MOST_THREADS * 2
        and groups * 4 <= extent
    ):
        groups *= 2
    return groups


def _power(number: int) -> int:
    """The least power of two that is not below the number."""
    return 1 << max(0, number - 1).bit_length()


def _state_bytes(folds: list[Fold], lane: Axis, width: int) -> int:
    total = 0
    for fold in folds:
        size = DTYPES[carrier(fold.target.dtype)].bytes
        size += DTYPES[carrier(fold.source.dtype)].bytes if fold.monoid.startswith("arg") else 0
        total += -(-size // 4) * 4 * (width if lane in fold.target.axes else 1)
    return total
