"""Memory programs: where the tiles of a tile program live and in which order a role of threads
copies, waits, multiplies and stores. Emitters print them; the validator runs them symbolically.

```
MemoryProgram ::= name, geometry, rings, registers, roles
Role          ::= name, operations
Ring          ::= stages of a slot that holds SharedTiles   (one stage: a tile that stays)
SharedTile    ::= outer and inner axis, layout, the term of an element, how it is filled
Fragment      ::= a value in registers: of a row axis and a column axis, or of the row axis alone
Operation     ::= Clear(fragment)                    zeros, or the identity of a fold
                | Fetch(ring, ahead)                 start to fill the slot of block counter + ahead
                | Gather(ring, ahead)                read into registers what Place will need
                | Place(ring, ahead)                 compute the elements and store them
                | Commit                             close the group of the copies started so far
                | Wait(pending)                      all but the newest groups have landed
                | Barrier                            what threads wrote to shared memory is visible
                | Multiply(pairs, left, depth)       accumulators += left x right, shared left
                | Pack(target, source)               an accumulator as a left operand, in registers
                | Pointwise(target, value, whole)    a term over fragments; `whole` in whole blocks
                | FoldRow(target, monoid, source)    along the columns, kept per thread or settled
                | FoldDepth(target, monoid, value)   along a contracted axis, beside a Multiply
                | Form(tile, value)                  a tile's elements, each from itself
                | Settle(target, monoid)             combine the threads that share a row
                | Rescale(fragment, factor)          what was carried, brought to a new reference
                | Keep(target, source)               a copy, before the source changes
                | Stream(axes, bounds, body)         the blocks of a nest of axes, one after another
                | Store(buffer, coordinates, source) registers to global memory
                | Close(closing, results)            the last block of a group merges its states
```

`Fetch`, `Wait` and the operations that read a ring's tiles refer to the block counter of the Stream
that they stand in: block b lies in slot b mod stages. Operations for mbarriers and warp roles (an
emitter for sm_90a) join the same list; a program for cp.async has the one role "all".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nautile.codegen.layout import Fragment, Geometry, Layout, Ring, SharedTile
from nautile.codegen.tile import Bounds, TileProgram
from nautile.extract.closing import Closing
from nautile.terms import Axis, Buffer, Term

__all__ = [
    "Barrier",
    "Clear",
    "Close",
    "Commit",
    "Fetch",
    "FoldDepth",
    "FoldRow",
    "Form",
    "Fragment",
    "Gather",
    "Geometry",
    "Keep",
    "Layout",
    "MemoryProgram",
    "Multiply",
    "Operation",
    "Pack",
    "Place",
    "Pointwise",
    "Rescale",
    "Ring",
    "Role",
    "Settle",
    "SharedTile",
    "Store",
    "Stream",
    "Wait",
    "operations",
]


@dataclass(frozen=True, slots=True)
class Clear:
    target: Fragment
    identity: float = 0.0


@dataclass(frozen=True, slots=True)
class Fetch:
    ring: Ring
    ahead: int


@dataclass(frozen=True, slots=True)
class Gather:
    ring: Ring
    ahead: int


@dataclass(frozen=True, slots=True)
class Place:
    ring: Ring
    ahead: int


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    pending: int


@dataclass(frozen=True, slots=True)
class Barrier:
    pass


@dataclass(frozen=True, slots=True)
class Multiply:
    """For each (accumulator, right tile): accumulator += left x right over `depth` positions of
    `axis`. `left` is a tile of `left_ring`, or a packed fragment; each right tile has its ring.
    `prefetch` tells how far ahead fragments are loaded: a whole "step" of the depth, or one
    "fragment" where registers are scarce. With `formed`, the left tile holds raw elements, and an
    operand's element is that term, computed from them (and from those of tiles `beside` it, with
    their rings) in registers. With `split`, the operands are
    f32: each is taken as two tf32 pieces, and three of their products are summed."""

    pairs: tuple[tuple[Fragment, SharedTile, Ring], ...]
    left: SharedTile | Fragment
    left_ring: Ring | None
    axis: Axis
    depth: int
    operand: str
    prefetch: str = "step"
    formed: Term | None = None
    split: bool = False
    beside: tuple[tuple[SharedTile, Ring], ...] = ()


@dataclass(frozen=True, slots=True)
class Pack:
    target: Fragment
    source: Fragment
    operand: str


@dataclass(frozen=True, slots=True)
class Pointwise:
    """`precise` asks for functions within 1-2 ulp; where a value is rounded to 16 bits afterwards,
    the faster ones do. `absolute`: an error that the value may have whatever its size, or 0."""

    target: Fragment
    value: Term
    whole: Term | None = None
    precise: bool = False
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class FoldRow:
    target: Fragment
    monoid: str
    source: Fragment
    carried: bool
    settled: bool
    repair: Fragment | None = None
    before: Fragment | None = None


@dataclass(frozen=True, slots=True)
class FoldDepth:
    """`value` over rows and `depth` positions of `axis`, folded along it per thread or settled. A
    Load that `tile` (a left operand, copied) or one `beside` it holds is read from shared memory,
    others from where they are. Where `dealt`, each warp column folds blocks of its own, and a
    Settle across them follows."""

    target: Fragment
    monoid: str
    value: Term
    axis: Axis
    depth: int
    tile: SharedTile | None
    ring: Ring | None
    carried: bool
    settled: bool
    repair: Fragment | None = None
    before: Fragment | None = None
    precise: bool = True
    beside: tuple[tuple[SharedTile, Ring], ...] = ()
    dealt: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """`depth` positions of `axis` of a left operand that stays in shared memory: each of its raw
    elements is replaced by `value` of it (and of those beside it, and of values of the row), as an
    element of the `operand` type. Warp columns take blocks in turn, as dealt folds do."""

    tile: SharedTile
    ring: Ring
    value: Term
    axis: Axis
    depth: int
    operand: str
    beside: tuple[tuple[SharedTile, Ring], ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """With `across`, a shared offset with room for a value of every row and warp column, the warp
    columns' values are combined too, and all have the result; barriers of the block enclose it."""

    target: Fragment
    monoid: str
    across: int | None = None


@dataclass(frozen=True, slots=True)
class Rescale:
    targets: tuple[Fragment, ...]
    factor: Fragment


@dataclass(frozen=True, slots=True)
class Keep:
    target: Fragment
    source: Fragment


@dataclass(frozen=True, slots=True)
class Stream:
    """`axes` outermost first; `tiles` their tiles; the bounds belong to the only axis, where given.
    The prologue runs once, before the first block."""

    axes: tuple[Axis, ...]
    tiles: tuple[int, ...]
    bounds: Bounds
    prologue: tuple[Operation, ...]
    body: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """`value` over the fragments' row and column axes goes to buffer[coordinates]; `staging` is
    the shared offset through which rows are gathered into 16-byte stores, or None."""

    buffer: Buffer
    coordinates: tuple[Term, ...]
    source: Fragment
    staging: int | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """The last of a group of blocks to end computes `results` from the states that all of them have
    stored: `closing` tells which elements are the group's, `grid` the tiles of the blocks."""

    closing: Closing
    results: TileProgram
    grid: tuple[tuple[Axis, int], ...]
    states: tuple[Buffer, ...]


Operation = (
    Clear
    | Fetch
    | Gather
    | Place
    | Commit
    | Wait
    | Barrier
    | Multiply
    | Pack
    | Pointwise
    | FoldRow
    | FoldDepth
    | Form
    | Settle
    | Rescale
    | Keep
    | Stream
    | Store
)


@dataclass(frozen=True, slots=True)
class Role:
    """Threads that run the same operations."""

    name: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class MemoryProgram:
    """One kernel over `grid` (axes with their tiles, outermost first; the last two are walked in
    groups for the second-level cache). `heavy_first`: later row tiles have more blocks."""

    name: str
    geometry: Geometry
    grid: tuple[tuple[Axis, int], ...]
    tiles: tuple[tuple[Axis, int], ...]
    rings: tuple[Ring, ...]
    fragments: tuple[Fragment, ...]
    roles: tuple[Role, ...]
    shared_bytes: int
    heavy_first: bool = False
    comments: tuple[str, ...] = field(default=())


def operations(body: tuple[Operation, ...]) -> Iterator[Operation]:
    """Every operation, those inside Streams too."""
    for op in body:
        yield op
        if isinstance(op, Stream):
            yield from operations(op.prologue)
            yield from operations(op.body)
