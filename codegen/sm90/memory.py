"""Memory programs with warp roles: a producer warp that fills rings of slots by the copy engine (TMA),
and consumer warpgroups that multiply, compute and store. Typed operations; the printer decides nothing.

```
RoleProgram ::= name, geometry, grid, tiles, rings, accumulators, fragments, maps, producer, consumer
Ring        ::= stages of a slot that holds Boxes, with a full and an empty barrier a slot
Box         ::= a tile as TMA brings it: panels of 128 bytes x rows, swizzled, and where it lies
Accumulator ::= an array of registers; fragments of joined contractions are ranges of one
Operation   ::= Tiles(body)                      the output tiles of this block, one after another
              | Stream(axes, bounds, first, body)
                                                 the blocks of a nest of axes: `first` for the first
                                                 block if given, `body` for each of the others
 producer     | WaitEmpty(ring)                  the slot at the ring's cursor is free
              | Fill(ring)                       expect its bytes; TMA loads of every box into it
 both         | Advance(ring)                    the cursor moves to the next slot
              | Skip(ring, axes)                 ... by as many slots as another's tile takes
 consumer     | WaitFull(ring)                   the slot at the cursor has landed
              | Release(ring, age)               this warp no longer reads the slot `age` before the
                                                 cursor's (nothing where the stream has none)
              | Fence                            registers and earlier products, before the next ones
              | Issue(pairs, left, start)        asynchronous: accumulators += left x right
              | CommitGroup                      close the group of products issued so far
              | WaitGroup(pending, pinned)       all but so many groups are done; `pinned` registers
                                                 (written or read by products) are touched after it
              | Pin(source)                      what computed `source` stays before the next wait
              | PairSync | PairArrive            this warpgroup's turn; the next one's
              | StoreTile(buffer, map, source)   through shared memory (stmatrix) and a TMA store
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
from nautile.codegen.source import TensorMap
from nautile.codegen.tile import Bounds
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Buffer, Term

__all__ = [
    "PANEL_BYTES",
    "Accumulator",
    "Advance",
    "Box",
    "CommitGroup",
    "Fence",
    "Fill",
    "Geometry",
    "Issue",
    "Operation",
    "PairArrive",
    "PairSync",
    "Pin",
    "Release",
    "Ring",
    "RoleProgram",
    "Skip",
    "StoreTile",
    "Stream",
    "Tiles",
    "WaitEmpty",
    "WaitFull",
    "WaitGroup",
    "operations",
]

PANEL_BYTES = 128


@dataclass(frozen=True, slots=True)
class Geometry:
    """The block. `rows` of a tile are divided among `consumers` warpgroups, each of which has
    `fragments` times 64 of them. With `alternate` every warpgroup has a tile to itself and they take
    tiles in turn (ping-pong), else they share one (cooperative)."""

    row: Axis
    rows: int
    consumers: int
    alternate: bool = False
    group: int = 8

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
        """Warps that release a slot."""
        return 4 if self.alternate else 4 * self.consumers


@dataclass(frozen=True, slots=True)
class Box:
    """rows x columns elements, `inner` contiguous: panels of 128 bytes of `inner`, each `rows` rows of
    128 bytes whose 16-byte chunks are permuted (chunk ^ row % 8). `places` are the coordinates of
    the tile's first element in the map, fastest first; a panel is one load, `inner` further."""

    name: str
    outer: Axis
    inner: Axis
    rows: int
    columns: int
    element: str
    map: TensorMap
    places: tuple[Term, ...]
    offset: int = 0

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


@dataclass(frozen=True, slots=True)
class Ring:
    """`stages` slots of `slot_bytes` at `offset` in shared memory; barriers of 8 bytes at
    `barriers`: full[stages], then empty[stages]. A ring that `stays` is filled once a tile."""

    name: str
    stages: int
    boxes: tuple[Box, ...]
    slot_bytes: int
    offset: int
    barriers: int
    arrivals: int
    stays: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that TMA brings into a slot."""
        return sum(b.bytes for b in self.boxes)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """`registers` f32 of a thread for each 64-row fragment; `parts` are the fragments of values
    that lie in it, with the register that each begins at."""

    name: str
    registers: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Tiles:
    """`order` is "static" or "dynamic"; `carrier` the ring whose slot hands on a dynamic number."""

    order: str
    body: tuple[Operation, ...]
    carrier: Ring | None = None


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
class WaitEmpty:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Fill:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Advance:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Skip:
    """Past the slots of a tile that another warpgroup takes: as many as the blocks of `axes`."""

    ring: Ring
    axes: tuple[Axis, ...]
    tiles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WaitFull:
    ring: Ring


@dataclass(frozen=True, slots=True)
class Release:
    ring: Ring
    age: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    pass


@dataclass(frozen=True, slots=True)
class Issue:
    """target += left x right over `depth` positions of `axis`, for the joined right boxes of
    `pairs` one product `columns` wide. `start` tells when the accumulator begins at 0: "fresh" at
    every issue, "stream" at the first issue of the enclosing stream, "carried" never. `left` is a
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
class PairSync:
    pass


@dataclass(frozen=True, slots=True)
class PairArrive:
    pass


@dataclass(frozen=True, slots=True)
class StoreTile:
    """A warpgroup's rows in panels of 128 bytes, through two buffers of 8 KiB at `staging` (its own
    pair of buffers), each stored by TMA at `places` (the tile's first element, fastest first; the
    axis of the rows is number `row_place`)."""

    buffer: Buffer
    map: TensorMap
    places: tuple[Term, ...]
    row_place: int
    source: Fragment
    staging: int


Operation = (
    Tiles
    | Stream
    | WaitEmpty
    | Fill
    | Advance
    | Skip
    | WaitFull
    | Release
    | Fence
    | Issue
    | CommitGroup
    | WaitGroup
    | Pin
    | PairSync
    | PairArrive
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
    """One persistent kernel over `grid` (axes with their tiles, outermost first). `registers` are the
    producer's and the consumers' a thread; None leaves what the launch gives."""

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
    blocks: int
    heavy_first: bool = False
    comments: tuple[str, ...] = field(default=())


def operations(body: tuple[Operation, ...]) -> Iterator[Operation]:
    """Every operation, those inside Tiles and Streams too."""
    for op in body:
        yield op
        if isinstance(op, Tiles):
            yield from operations(op.body)
        if isinstance(op, Stream):
            yield from operations(op.first)
            yield from operations(op.body)
