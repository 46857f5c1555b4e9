"""Memory programs with warp roles: a producer warp that fills rings of slots by the copy engine
(TMA), and consumer warpgroups that multiply, compute and store; where right operands are computed
on their way, warps that form them of what the copy engine brings. The printer decides nothing.

```
RoleProgram ::= name, geometry, grid, tiles, rings, accumulators, fragments, producer, consumer,
                former
Ring        ::= stages of a slot that holds Boxes, with a full and an empty barrier a slot
Box         ::= a tile as TMA brings it: panels of 128 bytes x rows, swizzled, and where it lies
Accumulator ::= an array of registers; the values that lie in it are ranges of it, each from where
                the one before is no longer needed, or side by side where contractions are joined
Operation   ::= Tiles(body, first)               the output tiles of this block, one after another;
                                                 `first` before the first of them
              | Next(waits, products)            the first products of the next tile
              | Stream(axes, bounds, first, body)
                                                 the blocks of a nest of axes: `first` for the first
                                                 block if given, `body` for each of the others
 producer     | WaitEmpty(ring)                  the slot at the ring's cursor is free
              | Fill(ring)                       expect its bytes; TMA loads of every box into it
 former       | Convert(target, ring, sources)   a box of the slot at the cursor, from other boxes
              | Arrive(ring)                     the formers' part of the slot is there
 all          | Advance(ring)                    the cursor moves to the next slot
              | Skip(ring, axes, others)         ... past the slots of other warpgroups' tiles
 consumer     | WaitFull(ring)                   the slot at the cursor has landed
              | Release(ring, age)               this warp no longer reads the slot `age` before the
                                                 cursor's (nothing where the stream has none)
              | Fence                            registers and earlier products before the next ones
              | Begin(target)                    an accumulator holds nothing yet
              | Issue(pairs, left, start)        asynchronous: accumulators += left x right
              | CommitGroup                      close the group of products issued so far
              | Promote(target, source)          target += source, in f32
              | Unpack(target, box)              a box's elements of this warpgroup's rows, as f32
              | Form(source, box)                the source in the place of those elements, rounded
              | WaitGroup(pending, pinned)       all but so many groups are done; `pinned` registers
                                                 (written or read by products) are touched after it
              | Ahead(load)                      elements that are stored with come into registers
              | Pin(source)                      what computed `source` stays before the next wait
              | Midway(value, fold, between)     a value in two halves, and what stands between them
              | PairStart | PairSync | PairArrive
                                                 the first warpgroup's turn; this one's; the next's
              | Mask(target, keep, constant)     elements that a predicate drops, in partial blocks
              | MaskTail(target, constant)       elements past the extent of the columns' axis
              | StoreTile(buffer, map, value)    through shared memory (stmatrix) and a TMA store
 of sm80      | Clear | Pointwise | FoldRow | Settle | Rescale | Keep | Pack | Store
```

Each ring has one cursor in the producer and one in every consumer; all start at slot 0. A slot goes
full when its bytes have landed, and empty when all `arrivals` warps have released it. `Tiles` draws
the tile's number: `static`, blockIdx.x + n gridDim.x; `dynamic`, the producer takes the next number
of a counter and hands it on in the slot of the `carrier` ring, whose WaitFull, which stands first
in the consumer's `Tiles`, then gives it. A number past the end ends the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nautile.codegen.memory import (
    Clear,
    FoldRow,
    Fragment,
    Keep,
    Pack,
    Pointwise,
    Rescale,
    Settle,
    Store,
)
from nautile.codegen.sm90.actions import (
    Advance,
    Ahead,
    Arrive,
    Begin,
    CommitGroup,
    Convert,
    Fence,
    Fill,
    Form,
    Issue,
    Mask,
    MaskTail,
    PairArrive,
    PairStart,
    PairSync,
    Pin,
    Promote,
    Release,
    Skip,
    StoreTile,
    Unpack,
    WaitEmpty,
    WaitFull,
    WaitGroup,
)
from nautile.codegen.sm90.boxes import PANEL_BYTES, Accumulator, Box, Geometry, Ring
from nautile.codegen.tile import Bounds
from nautile.terms import Axis

__all__ = [
    "PANEL_BYTES",
    "Accumulator",
    "Advance",
    "Ahead",
    "Arrive",
    "Begin",
    "Box",
    "CommitGroup",
    "Convert",
    "Fence",
    "Fill",
    "Form",
    "Geometry",
    "Issue",
    "Mask",
    "MaskTail",
    "Next",
    "Operation",
    "PairArrive",
    "PairStart",
    "PairSync",
    "Pin",
    "Promote",
    "Release",
    "Ring",
    "RoleProgram",
    "Skip",
    "StoreTile",
    "Stream",
    "Tiles",
    "Unpack",
    "WaitEmpty",
    "WaitFull",
    "WaitGroup",
    "operations",
]


@dataclass(frozen=True, slots=True)
class Tiles:
    """`order` is "static" or "dynamic"; `carrier` the ring whose slot hands on a dynamic number.
    `first` begins the first tile, as a Next in `body` begins every later one."""

    order: str
    body: tuple[Operation, ...]
    carrier: Ring | None = None
    first: Next | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """The beginning of the next tile ahead of the end of this one; in a dynamic order the carrier's
    WaitFull, the first of the `waits`, tells whether there is one. Where there is none, nothing is
    waited for, and the `products` are of whatever lies in the slots: nobody reads them. (ptxas
    loses track of products that are issued on one path of two.)"""

    waits: tuple[Operation, ...]
    products: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """Blocks of `axes` (outermost first, `tiles` their tiles); the bounds belong to the only axis,
    where given, and leave one block at least. `descending`: the last block comes first."""

    axes: tuple[Axis, ...]
    tiles: tuple[int, ...]
    bounds: Bounds
    first: tuple[Operation, ...]
    body: tuple[Operation, ...]
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Midway:
    """`value` over its first `columns` and their sum, a `part` of what `fold` takes of it; then
    `between`; then the other columns, and `fold`."""

    value: Pointwise
    fold: FoldRow
    part: Fragment
    columns: int
    between: tuple[Operation, ...]


Operation = (
    Tiles
    | Next
    | Stream
    | WaitEmpty
    | Fill
    | Convert
    | Arrive
    | Advance
    | Skip
    | WaitFull
    | Release
    | Fence
    | Begin
    | Issue
    | CommitGroup
    | WaitGroup
    | Promote
    | Unpack
    | Form
    | Ahead
    | Pin
    | Midway
    | PairStart
    | PairSync
    | PairArrive
    | Mask
    | MaskTail
    | StoreTile
    | Clear
    | Pointwise
    | FoldRow
    | Settle
    | Rescale
    | Keep
    | Pack
    | Store
)


@dataclass(frozen=True, slots=True)
class RoleProgram:
    """One persistent kernel of `blocks` over `grid` (axes with their tiles, outermost first).
    `registers` are the producer's and the consumers' a thread; None leaves what the launch gives.
    Words of shared memory at `words`: the tile's number that is handed on with the carrier's first
    slot, what Pin may overwrite, the number of its second slot."""

    name: str
    geometry: Geometry
    grid: tuple[tuple[Axis, int], ...]
    tiles: tuple[tuple[Axis, int], ...]
    rings: tuple[Ring, ...]
    accumulators: tuple[Accumulator, ...]
    fragments: tuple[Fragment, ...]
    producer: tuple[Operation, ...]
    consumer: tuple[Operation, ...]
    registers: tuple[int, int] | None
    shared_bytes: int
    words: int
    blocks: int
    heavy_first: bool = False
    comments: tuple[str, ...] = field(default=())
    former: tuple[Operation, ...] = field(default=())


def operations(body: tuple[Operation, ...]) -> Iterator[Operation]:
    """Every operation, those inside Tiles and Streams too."""
    for op in body:
        yield op
        if isinstance(op, Tiles):
            yield from operations((op.first,) if op.first else ())
            yield from operations(op.body)
        if isinstance(op, Next):
            yield from (*op.waits, *op.products)
        if isinstance(op, Midway):
            yield from (op.value, *op.between, op.fold)
        if isinstance(op, Stream):
            yield from operations(op.first)
            yield from operations(op.body)
