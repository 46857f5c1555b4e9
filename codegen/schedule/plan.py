"""Structure -> memory program: rings, pipeline stages, and the order of the typed operations.

A loop's operands share one ring, filled `stages - 1` blocks ahead; one barrier an iteration both
publishes block b and frees the slot of block b - 1. Operands that no loop changes stay in a slot of
their own, filled with the first block. Folds along the columns are settled across the threads of a
row at once where the loop reads them, else after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nautile.codegen.memory import (
    Barrier,
    Clear,
    Commit,
    Fetch,
    FoldDepth,
    FoldRow,
    Form,
    Fragment,
    Gather,
    Keep,
    MemoryProgram,
    Multiply,
    Operation,
    Pack,
    Place,
    Pointwise,
    Rescale,
    Ring,
    Role,
    Settle,
    SharedTile,
    Store,
    Stream,
    Wait,
)
from nautile.codegen.schedule.choices import Choices
from nautile.codegen.schedule.place import gathered_words, loaded
from nautile.codegen.schedule.registers import IDENTITY, narrowed, reads, reciprocals, writes
from nautile.codegen.schedule.scopes import Placed, Scope, all_axes, outer, placement
from nautile.codegen.schedule.staging import staged, staging
from nautile.codegen.schedule.structure import (
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Bounds, Fold, Loop, Map, Mma, Statement, Tile, Write
from nautile.codegen.types import carrier
from nautile.terms import Cast, Term, walk

__all__ = ["Choices", "plan"]

THREAD_REGISTERS = 200
Besides = tuple[tuple[SharedTile, Ring], ...]


def plan(structure: Structure, choices: Choices) -> MemoryProgram:
    """The memory program; UnsupportedError for what this path does not cover, CapacityError where
    other tiles of the same program would do."""
    return _Planner(structure, choices).program()


@dataclass(slots=True)
class _Planner:
    structure: Structure
    choices: Choices
    placed: Placed = field(init=False)
    fragments: dict[str, Fragment] = field(default_factory=dict)
    precise: bool = False
    narrow: frozenset[str] = frozenset()
    scratch: int = 0
    dealt: bool = False

    def program(self) -> MemoryProgram:
        source = self.structure.program
        self.precise = any(w.buffer.dtype in ("f32", "f64", "tf32") for w in writes(source.body))
        self.narrow = narrowed(self.structure)
        self.placed = placement(self.structure, self.choices)
        root, rings = self.placed.root, self.placed.rings
        used = sum(r.stages * r.slot_bytes for r in rings)
        self.scratch = used
        body = (self._fill(root.ring) if root.ring else []) + self._body(root)
        gathered = staging(self.fragments.values(), self.choices.geometry)
        body = list(staged(body, self.choices.geometry))
        return MemoryProgram(
            source.name,
            self.choices.geometry,
            tuple((a, source.tiles[a]) for a in source.grid),
            tuple(source.tiles.items()),
            rings,
            tuple(self.fragments.values()),
            (Role("all", tuple(body)),),
            max(used + self.placed.across() * self.dealt, gathered),
            _heavy_first(self.structure),
        )

    # -- operations ---------------------------------------------------------------------------

    def _fill(self, ring: Ring, ahead: int = 0) -> list[Operation]:
        ops: list[Operation] = []
        if any(t.filled != "compute" for t in ring.tiles):
            ops.append(Fetch(ring, ahead))
        computed = [t for t in ring.tiles if t.filled == "compute"]
        if computed:
            threads = self.choices.geometry.threads
            words = sum(gathered_words(t, threads) for t in computed)
            if ring.stages > 1 and words + self._accumulators() <= THREAD_REGISTERS:
                ops.append(Gather(ring, ahead))
            ops.append(Place(ring, ahead))
        return ops

    def _accumulators(self) -> int:
        """Registers of a thread for accumulators and fragments of columns."""
        g = self.choices.geometry
        found = self.structure.contractions.values()
        return sum(g.rows * self.structure.width(c.column) for c in found) // g.threads

    def _body(self, scope: Scope) -> list[Operation]:
        body: list[Operation] = []
        pending: list[Mma] = []
        if scope.parent is None and scope.ring and any(map(self._reads_ring, scope.body)):
            body += [Commit(), Wait(0), Barrier()]
        for statement in scope.body:
            if isinstance(statement, Mma):
                if pending and not self._joins(pending[-1], statement):
                    body += self._multiply(scope, pending)
                    pending = []
                pending.append(statement)
                continue
            if not self.placed.is_pure(statement):
                body += self._multiply(scope, pending)
                pending = []
            body += self._statement(scope, statement)
        return body + self._multiply(scope, pending)

    def _reads_ring(self, s: Statement) -> bool:
        deep = isinstance(s, Fold) and self.structure.folded(s) is not None
        return deep or isinstance(s, Mma)

    def _statement(self, scope: Scope, s: Statement) -> list[Operation]:
        if self.placed.is_pure(s):
            return []
        match s:
            case Map(target, value):
                whole = self.structure.program.masked.get(target.name)
                plain = None if whole is None else self._cast(target, whole)
                fragment = self._fragment(target)
                precise = self.precise and target.name not in self.narrow
                return [Pointwise(fragment, self._cast(target, value), plain, precise)]
            case Fold():
                return self._fold(scope, s)
            case Loop():
                return self._stream(self.placed.scopes[id(s)])
            case Write():
                return self._write(s)
        return []

    def _cast(self, target: Tile, value: Term) -> Term:
        value = reciprocals(self.structure.inline(value), self.structure.columns[target.name])
        narrow = carrier(target.dtype) != target.dtype
        return Cast(target.dtype, value) if narrow else value

    def _fragment(self, tile: Tile) -> Fragment:
        if tile.name not in self.fragments:
            column = self.structure.columns[tile.name]
            width = 0 if column is None else self.structure.width(column)
            self.fragments[tile.name] = Fragment(tile.name, tile, column, width)
        return self.fragments[tile.name]

    def _fold(self, scope: Scope, s: Fold) -> list[Operation]:
        target = self._fragment(s.target)
        carried = s.axis in all_axes(scope)
        settled = not carried or s.axis not in scope.axes or self._read_inside(scope, s)
        repair = None if s.repair is None else self._fragment(s.repair)
        before = None if s.before is None else self._fragment(s.before)
        value = self.structure.folded(s)
        if value is None:
            source = self._fragment(s.source)
            fold: Operation = FoldRow(target, s.monoid, source, carried, settled, repair, before)
        else:
            tile, ring, beside = self._lies(scope, s, value)
            depth = self.structure.width(s.axis)
            dealt = carried and not settled and self.placed.deals(scope, s)
            self.dealt |= dealt
            fold = FoldDepth(
                target, s.monoid, value, s.axis, depth, tile, ring, carried, settled,
                repair, before, s.target.name not in self.narrow, beside, dealt,
            )  # fmt: skip
        return [Keep(before, target), fold] if before else [fold]

    def _beside(self, c: Contraction) -> Besides:
        """The tiles from which an operand is formed, but the first."""
        found = []
        for name in self.placed.besides.get(c.left.name, ()):
            tile, home = self.placed.operands[name, c.operand]
            assert home.ring is not None
            found.append((tile, home.ring))
        return tuple(found)

    def _lies(
        self, scope: Scope, s: Fold, value: Term
    ) -> tuple[SharedTile | None, Ring | None, Besides]:
        """The copied left operand of a contraction along the fold's axis that holds elements of the
        value, and what lies beside it, where there is one."""
        inside = set(walk(value))
        for c in self.structure.contractions.values():
            tile, home = self.placed.operands.get((c.left.name, c.operand), (None, None))
            if c.axis != s.axis or tile is None or home not in (scope, *outer(scope)):
                continue
            assert home is not None
            if tile.filled == "compute":
                continue
            if loaded(tile) in inside:
                beside = [(t, r) for t, r in self._beside(c) if loaded(t) in inside]
                return tile, home.ring, tuple(beside)
        return None, None, ()

    def _read_inside(self, scope: Scope, s: Fold) -> bool:
        """Whether the loop that carries the fold reads its running value."""
        names = {s.target.name} | ({s.before.name} if s.before else set())
        return any(reads(other) & names for other in statements(scope.body) if other is not s)

    def _multiply(self, scope: Scope, group: list[Mma]) -> list[Operation]:
        if not group:
            return []
        ops: list[Operation] = []
        contractions = [self.structure.contractions[s.target.name] for s in group]
        first = contractions[0]
        for c in contractions:
            ops += self._prepare(scope, c)
        left, ring = self._left(scope, first, ops)
        pairs = []
        for c in contractions:
            tile, home = self.placed.operands[c.right.name, c.operand]
            assert home.ring is not None
            pairs.append((self._fragment(c.statement.target), tile, home.ring))
        depth = self.structure.width(first.axis)
        element, prefetch = pairs[0][1].element, self.choices.prefetch
        placed = self.placed.formed_in_place(first)
        formed = None if placed else self.placed.formed.get(first.left.name)
        split = first.operand == "f32"
        ops.append(
            Multiply(
                tuple(pairs), left, ring, first.axis, depth, element, prefetch, formed, split,
                () if placed else self._beside(first),
            )
        )  # fmt: skip
        return ops

    def _prepare(self, scope: Scope, c: Contraction) -> list[Operation]:
        target = self._fragment(c.statement.target)
        if not any(a in c.statement.axes for a in all_axes(scope)):
            return [Clear(target)]
        if c.statement.repair is not None:
            return [Rescale((target,), self._fragment(c.statement.repair))]
        return []

    def _left(
        self, scope: Scope, c: Contraction, ops: list[Operation]
    ) -> tuple[SharedTile | Fragment, Ring | None]:
        if self.structure.operand(c.left.name) is not None:
            tile, home = self.placed.operands[c.left.name, c.operand]
            return tile, home.ring
        key = (c.left.name, c.operand)
        if key not in scope.packed:
            source = self._fragment(c.left)
            packed = replace(source, name=f"{c.left.name}_{c.operand}")
            scope.packed[key] = packed
            self.fragments[packed.name] = packed
            ops.append(Pack(packed, source, c.operand))
        return scope.packed[key], None

    def _joins(self, a: Mma, b: Mma) -> bool:
        """Whether two contractions multiply the same left tile over the same positions."""
        x, y = (self.structure.contractions[s.target.name] for s in (a, b))
        return (x.left, x.axis, x.operand, a.axes) == (y.left, y.axis, y.operand, b.axes)

    def _form(self, scope: Scope) -> list[Operation]:
        """Operands that are formed where they lie, before the loop that multiplies them."""
        ops: dict[str, list[Operation]] = {}
        for s in scope.body:
            c = self.structure.contractions[s.target.name] if isinstance(s, Mma) else None
            if c is None or c.left.name in ops or not self.placed.formed_in_place(c):
                continue
            tile, home = self.placed.operands[c.left.name, c.operand]
            assert home.ring is not None
            element = self.placed.operands[c.right.name, c.operand][0].element
            step = self.structure.width(c.axis)
            value = self.placed.formed[c.left.name]
            form = Form(tile, home.ring, value, c.axis, step, element, self._beside(c))
            ready = (Commit(), Wait(0), Barrier())
            stream = Stream(
                (c.axis,), (self.structure.program.tiles[c.axis],), Bounds(), ready, (form,)
            )
            ops[c.left.name] = [stream, Barrier()]
        return [op for made in ops.values() for op in made]

    def _stream(self, scope: Scope) -> list[Operation]:
        ops: list[Operation] = self._form(scope)
        ops += [Clear(f, i) for f, i in self._carried(scope)]
        body = self._body(scope)
        prologue: list[Operation] = []
        if scope.ring is not None:
            ring = scope.ring
            nested = scope.parent is not None and scope.parent.parent is not None
            prologue += [Barrier()] * nested
            for ahead in range(ring.stages - 1):
                prologue += [*self._fill(ring, ahead), Commit()]
            filled = self._fill(ring, ring.stages - 1)
            placed = [o for o in filled if isinstance(o, Place)]
            early = [o for o in filled if not isinstance(o, Place)]
            body = [Wait(ring.stages - 2), Barrier(), *early, Commit(), *body, *placed]
        elif any(s.ring for s in outer(scope)):
            prologue += [Commit(), Wait(0), Barrier()]
        tiles = tuple(self.structure.program.tiles[a] for a in scope.axes)
        bounds = self._bounds(scope.bounds)
        ops.append(Stream(scope.axes, tiles, bounds, tuple(prologue), tuple(body)))
        return ops + [
            Settle(op.target, op.monoid, self._scratch(op))
            for op in body
            if isinstance(op, (FoldRow, FoldDepth)) and op.carried and not op.settled
        ]

    def _scratch(self, op: FoldRow | FoldDepth) -> int | None:
        return self.scratch if isinstance(op, FoldDepth) and op.dealt else None

    def _bounds(self, b: Bounds) -> Bounds:
        terms = (b.first, b.stop, b.whole_first, b.whole_stop)
        return Bounds(*(None if t is None else self.structure.inline(t) for t in terms))

    def _carried(self, scope: Scope) -> Iterable[tuple[Fragment, float]]:
        """What starts at its identity where this nest starts."""
        outside = all_axes(scope.parent) if scope.parent else ()
        for s in statements(scope.body):
            axes = s.axes if isinstance(s, Mma) else (s.axis,) if isinstance(s, Fold) else ()
            inside = any(a in axes for a in scope.axes)
            if inside and not any(a in axes for a in outside) and not isinstance(s, Loop):
                assert isinstance(s, (Fold, Mma))
                monoid = s.monoid if isinstance(s, Fold) else "sum"
                yield self._fragment(s.target), IDENTITY[monoid]

    # -- stores -------------------------------------------------------------------------------

    def _write(self, s: Write) -> list[Operation]:
        coordinates = tuple(self.structure.inline(c) for c in s.coordinates)
        if s.source.name not in self.structure.pure:
            return [Store(s.buffer, coordinates, self._fragment(s.source))]
        columns = {c.column for c in self.structure.contractions.values()}
        own = [a for a in s.source.axes if a in columns]
        if self.structure.row not in s.source.axes or len(own) > 1:
            raise UnsupportedError(f"{s.source.name} is not over rows and at most one column axis")
        self.structure.columns[s.source.name] = own[0] if own else None
        target = self._fragment(s.source)
        return [
            Pointwise(target, self.structure.pure[s.source.name], None, self.precise),
            Store(s.buffer, coordinates, target),
        ]


def _heavy_first(structure: Structure) -> bool:
    """Whether later row tiles have more blocks to stream."""
    loops = [s for s in statements(structure.program.body) if isinstance(s, Loop)]
    return any(s.bounds.stop is not None and structure.row in s.bounds.stop.free for s in loops)
