"""Operations of a memory program with roles that have no operations inside: what one thread, warp
or warpgroup does at one place of its role. `nautile.codegen.sm90.memory` has the grammar."""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.memory import Fragment
from nautile.codegen.sm90.boxes import Accumulator, Box, Ring
from nautile.codegen.source import TensorMap
from nautile.terms import Axis, Buffer, Load, Term

__all__ = [
    "Advance",
    "Ahead",
    "Arrive",
    "Begin",
    "CommitGroup",
    "Convert",
    "Fence",
    "Fill",
    "Form",
    "Issue",
    "Mask",
    "MaskTail",
    "PairArrive",
    "PairStart",
    "PairSync",
    "Pin",
    "Promote",
    "Release",
    "Skip",
    "StoreTile",
    "Unpack",
    "WaitEmpty",
    "WaitFull",
    "WaitGroup",
]


@dataclass(frozen=True, slots=True)
class WaitEmpty:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Fill:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Convert:
    """target = value over the axes of its box, rounded to the box's type; 0 past the extent of
    `depth`. The loads of `sources` lie in boxes over the same axes, others where they lie."""

    target: Box
    ring: Ring
    sources: tuple[tuple[Load, Box, Ring], ...]
    value: Term
    depth: Axis


@dataclass(frozen=True, slots=True)
class Arrive:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Advance:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Skip:
    """Past the slots of the tiles that other warpgroups take, each as many as the blocks of `axes`:
    those `before` this warpgroup's first tile (as many tiles as its number), or those `between` two
    of its tiles."""

    ring: Ring
    axes: tuple[Axis, ...]
    tiles: tuple[int, ...]
    others: str = "between"


@dataclass(frozen=True, slots=True)
class WaitFull:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Release:
    ring: Ring
    age: int = 0


@dataclass(frozen=True, slots=True)
class Fence: ...


@dataclass(frozen=True, slots=True)
class Begin:
    """The first Issue into `target` that follows starts at 0, if it is one that says "begun"."""

    target: Accumulator


@dataclass(frozen=True, slots=True)
class Issue:
    """target += left x right over `depth` positions of `axis`, for the joined right boxes of
    `pairs` one product `columns` wide. `start` tells when the accumulator begins at 0: "fresh" at
    every issue, "begun" at the first since Begin, "carried" never. `left` is a
    box, or a packed fragment of registers."""

    target: Accumulator
    pairs: tuple[tuple[Box, Ring], ...]
    columns: int
    left: Box | Fragment
    left_ring: Ring | None
    axis: Axis
    depth: int
    operand: str
    start: str


@dataclass(frozen=True, slots=True)
class CommitGroup:
    pass


@dataclass(frozen=True, slots=True)
class Promote:
    """A sum of products of 8-bit operands, which the tensor cores keep to some 14 bits, joins an
    f32 sum before it is long. (DeepSeek-V3 technical report, 2024, section 3.3.2.)"""

    target: Fragment
    source: Fragment


@dataclass(frozen=True, slots=True)
class Unpack:
    """target = the elements of a box over rows and columns, where those of an accumulator lie."""

    target: Fragment
    box: Box
    ring: Ring


@dataclass(frozen=True, slots=True)
class Ahead:
    """The elements of a tensor that a StoreTile of this tile will read at each of its positions,
    over `columns` of `column`, come into registers."""

    load: Load
    column: Axis
    columns: int


@dataclass(frozen=True, slots=True)
class Form:
    """The box's elements of this warpgroup's rows become the source, rounded to their type; its
    products that follow read them."""

    source: Fragment
    box: Box
    ring: Ring


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """`pinned` names accumulators and packed fragments."""

    pending: int
    pinned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """`source` depends on every value that must be computed before the wait that follows: a sum of
    non-negative values of the row (`never_negative`), or any fragment, all of whose bits count."""

    source: Fragment
    never_negative: bool


@dataclass(frozen=True, slots=True)
class PairStart:
    """The last warpgroup, before it has done anything, arrives for the first."""


@dataclass(frozen=True, slots=True)
class PairSync:
    pass


@dataclass(frozen=True, slots=True)
class PairArrive:
    pass


@dataclass(frozen=True, slots=True)
class Mask:
    """target = keep ? target : constant, in blocks of the enclosing stream that are not whole."""

    target: Fragment
    keep: Term
    constant: float


@dataclass(frozen=True, slots=True)
class MaskTail:
    """Elements whose column lies past its axis' extent become `constant`."""

    target: Fragment
    constant: float


@dataclass(frozen=True, slots=True)
class StoreTile:
    """A warpgroup's rows of `value` over `columns` of `column`, in panels of 128 bytes, through so
    many `buffers` of 8 KiB for each 64-row fragment, at `staging` (one warpgroup's after the
    other's), each stored by TMA at `places` (those of the tile's first element, fastest first;
    number `row_place` is that of the rows)."""

    buffer: Buffer
    map: TensorMap
    places: tuple[Term, ...]
    row_place: int
    value: Term
    column: Axis
    columns: int
    staging: int
    precise: bool = False
    buffers: int = 2
