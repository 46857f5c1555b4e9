"""Tile programs: one grid of blocks over named axes, the level that every emitter and the
interpreter read. No hardware and no operator names here.

```
TileProgram ::= name, axes' tiles, grid axes, statements
Statement   ::= Read(target, buffer, coordinates)
              | Map(target, value)
              | Fold(target, monoid, axis, source, repair, before, offset)
              | Mma(target, left, right, axes, operand, repair, offset, split)
              | Loop(axis, body, bounds)
              | Write(buffer, coordinates, source)
```

Values are tiles: arrays over named axes, with the tile extents of the program. Each is assigned by
one statement. A position of an axis is `origin + local`, the origin set by the grid (grid axes), by
the enclosing loop (streamed axes) or 0 (resident axes, whose tile covers the extent; the tile may
be larger than the extent, and the last tile of any axis may be ragged).

- `Read` takes `buffer[coordinates]`; the tile's axes are the coordinates' free axes. Coordinates
  are terms over Index, Const and Ref (a tile of integers: a gather). An element whose coordinates
  leave the buffer reads as 0. What a tile holds at a position outside an extent does not matter:
  folds and contractions do not count it, and it is not stored.
- `Map` is pointwise: a Term whose leaves are Ref (a tile), Index (the absolute position) and Const.
- `Fold` reduces `source` along `axis` with a monoid. Inside the Loop over that axis it is carried:
  `target` starts as the monoid's identity where that Loop starts, `before` (if named) is its value
  before this iteration, `target` its value after. With `repair`, what was carried is first
  multiplied by it, or dropped where repair is 0 (NaN included); with `offset`, moved by it after
  that. Positions outside the extent do not count. argmax and argmin give the first position of the
  extreme (a NaN is extreme). Outside a Loop over its axis a Fold starts afresh, and has no repair.
- `Mma` is a Fold of a sum over the products left * right along one or more `axes`, at most one of
  them streamed; its operands are rounded to the operand type of the statement (`operand`), and the
  accumulator is the target's type: f32, or f64 for f64, i32 for i32. With `split`, products of f32
  operands may be put together from those of shorter pieces, to about f32's accuracy. It is carried
  and repaired as a Fold is when a Loop over one of its axes encloses it. Repair and offset have the
  target's axes or fewer.
- `Loop` runs the axis' tiles in order, from block `bounds.first` up to `bounds.stop` (exclusive),
  one block at least. After it, the targets of its carried statements keep their last values.
- `Write` stores a tile, rounded to the buffer's type; positions outside the extents are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nautile.terms import Axis, Buffer, Term

__all__ = [
    "Bounds",
    "Fold",
    "Loop",
    "Map",
    "Mma",
    "Read",
    "Ref",
    "Statement",
    "Tile",
    "TileProgram",
    "Write",
    "walk_statements",
]


@dataclass(frozen=True, slots=True)
class Tile:
    """A value: its name, its axes (outermost first) and the type that it carries."""

    name: str
    axes: tuple[Axis, ...]
    dtype: str = "f32"


@dataclass(frozen=True, slots=True, eq=False)
class Ref(Term):
    """A tile as a leaf of a Map's term."""

    tile: Tile

    def __post_init__(self) -> None:
        self._set_free(self.tile.axes)


@dataclass(frozen=True, slots=True)
class Read:
    target: Tile
    buffer: Buffer
    coordinates: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Map:
    target: Tile
    value: Term


@dataclass(frozen=True, slots=True)
class Fold:
    target: Tile
    monoid: str
    axis: Axis
    source: Tile
    repair: Tile | None = None
    before: Tile | None = None
    offset: Tile | None = None


@dataclass(frozen=True, slots=True)
class Mma:
    target: Tile
    left: Tile
    right: Tile
    axes: tuple[Axis, ...]
    operand: str = "f32"
    repair: Tile | None = None
    offset: Tile | None = None
    split: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which blocks of a loop run, as integer terms in the block's origins (Index of a grid axis
    means the origin of its tile here) and in tiles of one integer that are read before the loop.
    None means 0 or the number of tiles. Blocks in [whole_first, whole_stop) need no mask: in them
    every Map of `masks` is its own unmasked branch.
    """

    first: Term | None = None
    stop: Term | None = None
    whole_first: Term | None = None
    whole_stop: Term | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    axis: Axis
    body: tuple[Statement, ...]
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Write:
    buffer: Buffer
    coordinates: tuple[Term, ...]
    source: Tile


Statement = Read | Map | Fold | Mma | Loop | Write


@dataclass(frozen=True, slots=True)
class TileProgram:
    """One grid. `tiles` gives every axis' tile; `grid` the axes that blocks are dealt over,
    outermost first; `masked` the Map targets that are pure masks (where(p, x, identity)) and may be
    taken as x in whole blocks."""

    name: str
    tiles: Mapping[Axis, int]
    grid: tuple[Axis, ...]
    body: tuple[Statement, ...]
    masked: Mapping[str, Term] = field(default_factory=dict)


def walk_statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement in order, a Loop before its body."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from walk_statements(statement.body)
