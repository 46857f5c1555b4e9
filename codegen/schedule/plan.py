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
    Geometry,
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
from nautile.codegen.schedule.place import gathered_words, loaded, place, raw, whole
from nautile.codegen.schedule.registers import gathers, narrowed, reads, reciprocals, writes
from nautile.codegen.schedule.structure import (
    CapacityError,
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Bounds, Fold, Loop, Map, Mma, Read, Statement, Tile, Write
from nautile.codegen.types import carrier
from nautile.terms import Axis, Cast, Term, walk

__all__ = ["Choices", "plan"]

IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
THREAD_REGISTERS = 200
Besides = tuple[tuple[SharedTile, Ring], ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the target decides: the block, the most stages of a ring, the bytes of shared memory. A
    ring has more than two stages only inside `comfortable` bytes (the limit where None)."""

    geometry: Geometry
    stages: int
    shared_limit: int
    prefetch: str = "step"
    comfortable: int | None = None


@dataclass(slots=True)
class _Scope:
    """A nest of loops: its axes, and the tiles that its ring holds."""

    axes: tuple[Axis, ...]
    parent: _Scope | None
    body: tuple[Statement, ...]
    bounds: Bounds = field(default_factory=Bounds)
    tiles: dict[tuple[Term, Axis, Axis], SharedTile] = field(default_factory=dict)
    ring: Ring | None = None
    packed: dict[tuple[str, str], Fragment] = field(default_factory=dict)


def plan(structure: Structure, choices: Choices) -> MemoryProgram:
    """The memory program; UnsupportedError where the tiles do not fit."""
    return _Planner(structure, choices).program()


@dataclass(slots=True)
class _Planner:
    structure: Structure
    choices: Choices
    scopes: dict[int, _Scope] = field(default_factory=dict)
    operands: dict[tuple[str, str], tuple[SharedTile, _Scope]] = field(default_factory=dict)
    fragments: dict[str, Fragment] = field(default_factory=dict)
    formed: dict[str, Term] = field(default_factory=dict)
    besides: dict[str, list[str]] = field(default_factory=dict)
    precise: bool = False
    narrow: frozenset[str] = frozenset()
    stays: set[str] = field(default_factory=set)
    scratch: int = 0
    dealt: bool = False

    def program(self) -> MemoryProgram:
        source = self.structure.program
        root = _Scope((), None, source.body)
        self.precise = any(w.buffer.dtype in ("f32", "f64", "tf32") for w in writes(source.body))
        self.narrow = narrowed(self.structure)
        self._place(root)
        rings = self._rings(root)
        used = sum(r.stages * r.slot_bytes for r in rings)
        self.scratch = used
        body = (self._fill(root.ring) if root.ring else []) + self._body(root)
        staging = self._staging()
        body = list(self._staged(body))
        return MemoryProgram(
            source.name,
            self.choices.geometry,
            tuple((a, source.tiles[a]) for a in source.grid),
            tuple(source.tiles.items()),
            rings,
            tuple(self.fragments.values()),
            (Role("all", tuple(body)),),
            max(used + self._across() * self.dealt, staging),
            _heavy_first(self.structure),
        )

    # -- placement and rings ------------------------------------------------------------------

    def _place(self, scope: _Scope) -> None:
        for statement in scope.body:
            if isinstance(statement, Loop):
                inner = self._nest(statement, scope)
                self.scopes[id(statement)] = inner
                self._place(inner)
            elif isinstance(statement, Mma):
                contraction = self.structure.contractions[statement.target.name]
                for tile, outside in (
                    (contraction.left, self.structure.row),
                    (contraction.right, contraction.column),
                ):
                    if self.structure.operand(tile.name) is not None:
                        self._operand(scope, contraction, tile, outside)

    def _nest(self, loop: Loop, parent: _Scope) -> _Scope:
        """A loop, joined with the one inside it where that is all that it does."""
        axes, body, bounds = [loop.axis], loop.body, loop.bounds
        while bounds == Bounds():
            acting = [s for s in body if not self._is_pure(s)]
            if len(acting) != 1 or not isinstance(acting[0], Loop) or acting[0].bounds != bounds:
                break
            axes.append(acting[0].axis)
            body = acting[0].body
        return _Scope(tuple(axes), parent, body, bounds)

    def _operand(self, scope: _Scope, c: Contraction, tile: Tile, outside: Axis) -> None:
        placed = place(self.structure, tile.name, outside, c.axis, c.operand)
        if tile is c.left and placed.filled == "compute":
            elements = raw(self.structure, c)
            if tile.name in self.structure.deep:
                if not elements:
                    raise UnsupportedError(f"{tile.name} is formed of elements that are not copied")
                if self._waits(scope, c):
                    step = self.structure.width(c.axis)
                    elements = [whole(e, c.axis, step) for e in elements]
                    self.stays.add(tile.name)
            if elements:
                self.formed[tile.name] = placed.value
                placed = elements[0]
                self.besides[tile.name] = [e.name for e in elements[1:]]
            scope = _root(scope) if tile.name in self.stays else scope
            for element in elements[1:]:
                self._keep(scope, element, c.operand)
        self._keep(scope, placed, c.operand)

    def _waits(self, scope: _Scope, c: Contraction) -> bool:
        """Whether a loop of its own has folded along the depth before: the operand's elements then
        stay in shared memory from one loop to the other."""
        here = [s for s in statements(scope.body) if isinstance(s, Fold)]
        folds = (s for s in statements(self.structure.program.body) if isinstance(s, Fold))
        return c.axis in scope.axes and any(s.axis == c.axis and s not in here for s in folds)

    def _keep(self, scope: _Scope, placed: SharedTile, operand: str) -> None:
        home = scope
        while home.parent is not None and not any(a in placed.value.free for a in home.axes):
            home = home.parent
        key = (placed.value, placed.outer, placed.inner)
        kept = home.tiles.setdefault(key, placed)
        self.operands[placed.name, operand] = (kept, home)

    def _rings(self, root: _Scope) -> tuple[Ring, ...]:
        """Slots of all rings, laid out one after another."""
        scopes = [root, *self.scopes.values()]
        stay = sum(t.bytes for t in root.tiles.values()) + self._reserved()
        slots = [sum(t.bytes for t in s.tiles.values()) for s in scopes[1:] if s.tiles]
        stages = self.choices.stages
        comfortable = self.choices.comfortable or self.choices.shared_limit
        while stages > 2 and stay + stages * sum(slots) > comfortable:
            stages -= 1
        if stay + (stages if slots else 1) * sum(slots) > self.choices.shared_limit:
            raise CapacityError("the tiles exceed shared memory")
        rings, offset = [], 0
        for number, scope in enumerate(s for s in scopes if s.tiles):
            nested = any(s.parent is scope for s in self.scopes.values() if s.tiles)
            count = 1 if scope is root else 2 if nested else stages
            scope.ring = _ring(f"r{number}", scope, count, offset)
            for name, (tile, home) in list(self.operands.items()):
                if home is scope:
                    now = next(t for t in scope.ring.tiles if t.name == tile.name)
                    self.operands[name] = (now, home)
            rings.append(scope.ring)
            offset += count * scope.ring.slot_bytes
        return tuple(rings)

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

    def _body(self, scope: _Scope) -> list[Operation]:
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
            if not self._is_pure(statement):
                body += self._multiply(scope, pending)
                pending = []
            body += self._statement(scope, statement)
        return body + self._multiply(scope, pending)

    def _reads_ring(self, s: Statement) -> bool:
        deep = isinstance(s, Fold) and self.structure.folded(s) is not None
        return deep or isinstance(s, Mma)

    def _is_pure(self, statement: Statement) -> bool:
        if not isinstance(statement, (Map, Read)):
            return False
        return self.structure.operand(statement.target.name) is not None

    def _statement(self, scope: _Scope, s: Statement) -> list[Operation]:
        if self._is_pure(s):
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
                return self._stream(self.scopes[id(s)])
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

    def _fold(self, scope: _Scope, s: Fold) -> list[Operation]:
        target = self._fragment(s.target)
        carried = s.axis in _all_axes(scope)
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
            dealt = carried and not settled and self._deals(scope, s)
            self.dealt |= dealt
            fold = FoldDepth(
                target, s.monoid, value, s.axis, depth, tile, ring, carried, settled,
                repair, before, s.target.name not in self.narrow, beside, dealt,
            )  # fmt: skip
        return [Keep(before, target), fold] if before else [fold]

    def _beside(self, c: Contraction) -> Besides:
        """The tiles from which an operand is formed, but the first."""
        found = []
        for name in self.besides.get(c.left.name, ()):
            tile, home = self.operands[name, c.operand]
            assert home.ring is not None
            found.append((tile, home.ring))
        return tuple(found)

    def _lies(
        self, scope: _Scope, s: Fold, value: Term
    ) -> tuple[SharedTile | None, Ring | None, Besides]:
        """The copied left operand of a contraction along the fold's axis that holds elements of the
        value, and what lies beside it, where there is one."""
        inside = set(walk(value))
        for c in self.structure.contractions.values():
            tile, home = self.operands.get((c.left.name, c.operand), (None, None))
            if c.axis != s.axis or tile is None or home not in (scope, *_outer(scope)):
                continue
            assert home is not None
            if tile.filled == "compute":
                continue
            if loaded(tile) in inside:
                beside = [(t, r) for t, r in self._beside(c) if loaded(t) in inside]
                return tile, home.ring, tuple(beside)
        return None, None, ()

    def _deals(self, scope: _Scope, s: Fold) -> bool:
        """Whether warp columns may share the blocks of a loop that folds and does no more."""
        return (
            self.choices.geometry.warp_columns > 1
            and s.repair is None
            and s.before is None
            and scope.parent is not None
            and scope.parent.parent is None
            and all(isinstance(other, Fold) or self._is_pure(other) for other in scope.body)
        )

    def _reserved(self) -> int:
        """Bytes that loops need whose folds warp columns share."""
        shared = any(
            isinstance(s, Fold) and self.structure.folded(s) is not None and self._deals(scope, s)
            for scope in self.scopes.values()
            for s in scope.body
        )
        return self._across() if shared else 0

    def _across(self) -> int:
        """Bytes for a value of every row and warp column."""
        g = self.choices.geometry
        return 4 * g.rows * g.warp_columns

    def _read_inside(self, scope: _Scope, s: Fold) -> bool:
        """Whether the loop that carries the fold reads its running value."""
        names = {s.target.name} | ({s.before.name} if s.before else set())
        return any(reads(other) & names for other in statements(scope.body) if other is not s)

    def _multiply(self, scope: _Scope, group: list[Mma]) -> list[Operation]:
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
            tile, home = self.operands[c.right.name, c.operand]
            assert home.ring is not None
            pairs.append((self._fragment(c.statement.target), tile, home.ring))
        depth = self.structure.width(first.axis)
        element, prefetch = pairs[0][1].element, self.choices.prefetch
        placed = self._formed_in_place(first)
        formed = None if placed else self.formed.get(first.left.name)
        split = first.operand == "f32"
        ops.append(
            Multiply(
                tuple(pairs), left, ring, first.axis, depth, element, prefetch, formed, split,
                () if placed else self._beside(first),
            )
        )  # fmt: skip
        return ops

    def _prepare(self, scope: _Scope, c: Contraction) -> list[Operation]:
        target = self._fragment(c.statement.target)
        if not any(a in c.statement.axes for a in _all_axes(scope)):
            return [Clear(target)]
        if c.statement.repair is not None:
            return [Rescale((target,), self._fragment(c.statement.repair))]
        return []

    def _left(
        self, scope: _Scope, c: Contraction, ops: list[Operation]
    ) -> tuple[SharedTile | Fragment, Ring | None]:
        if self.structure.operand(c.left.name) is not None:
            tile, home = self.operands[c.left.name, c.operand]
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

    def _formed_in_place(self, c: Contraction) -> bool:
        """Whether the raw elements that stay are replaced by the operand's before its loop: nothing
        else reads them then or later."""
        if c.left.name not in self.stays:
            return False
        tile, _ = self.operands[c.left.name, c.operand]
        mine = {name for (name, _), (t, _) in self.operands.items() if t == tile}
        loops = [s for s in self.structure.program.body if isinstance(s, Loop)]
        users = [loop for loop in loops if any(self._multiplies(s, c) for s in loop.body)]
        after = loops[loops.index(users[0]) :] if users else []
        folds = [s for s in statements(tuple(after)) if isinstance(s, Fold) and s.axis == c.axis]
        return tile.inner == c.axis and mine == {c.left.name} and len(users) == 1 and not folds

    def _multiplies(self, s: Statement, c: Contraction) -> bool:
        return isinstance(s, Mma) and c.left in (s.left, s.right)

    def _form(self, scope: _Scope) -> list[Operation]:
        """Operands that are formed where they lie, before the loop that multiplies them."""
        ops: dict[str, list[Operation]] = {}
        for s in scope.body:
            c = self.structure.contractions[s.target.name] if isinstance(s, Mma) else None
            if c is None or c.left.name in ops or not self._formed_in_place(c):
                continue
            tile, home = self.operands[c.left.name, c.operand]
            assert home.ring is not None
            element = self.operands[c.right.name, c.operand][0].element
            step = self.structure.width(c.axis)
            value = self.formed[c.left.name]
            form = Form(tile, home.ring, value, c.axis, step, element, self._beside(c))
            ready = (Commit(), Wait(0), Barrier())
            stream = Stream(
                (c.axis,), (self.structure.program.tiles[c.axis],), Bounds(), ready, (form,)
            )
            ops[c.left.name] = [stream, Barrier()]
        return [op for made in ops.values() for op in made]

    def _stream(self, scope: _Scope) -> list[Operation]:
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
        elif any(s.ring for s in _outer(scope)):
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

    def _carried(self, scope: _Scope) -> Iterable[tuple[Fragment, float]]:
        """What starts at its identity where this nest starts."""
        outside = _all_axes(scope.parent) if scope.parent else ()
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

    def _staging(self) -> int:
        """Bytes to gather 16 rows of every warp's widest 16-bit output."""
        g = self.choices.geometry
        widths = [f.columns // g.warp_columns for f in self.fragments.values() if f.column]
        return g.warp_rows * g.warp_columns * 16 * (max(widths, default=0) * 2 + 16)

    def _staged(self, body: list[Operation]) -> Iterable[Operation]:
        """Two-byte outputs go through shared memory once the rings have been read."""
        free = False
        for op in body:
            if isinstance(op, Store) and gathers(op, self.choices.geometry.warp_columns):
                if not free:
                    yield Wait(0)
                    yield Barrier()
                free = True
                op = replace(op, staging=0)
            elif isinstance(op, (Stream, Multiply, Fetch, Place)):
                free = False
            yield op


def _heavy_first(structure: Structure) -> bool:
    """Whether later row tiles have more blocks to stream."""
    loops = [s for s in statements(structure.program.body) if isinstance(s, Loop)]
    return any(s.bounds.stop is not None and structure.row in s.bounds.stop.free for s in loops)


def _outer(scope: _Scope) -> Iterable[_Scope]:
    while scope.parent is not None:
        scope = scope.parent
        yield scope


def _root(scope: _Scope) -> _Scope:
    return scope if scope.parent is None else _root(scope.parent)


def _all_axes(scope: _Scope) -> tuple[Axis, ...]:
    return scope.axes + (_all_axes(scope.parent) if scope.parent else ())


def _ring(name: str, scope: _Scope, stages: int, offset: int) -> Ring:
    tiles, at = [], 0
    for tile in scope.tiles.values():
        tiles.append(replace(tile, offset=at))
        at += -(-tile.bytes // 128) * 128
    return Ring(name, stages, tuple(tiles), at, offset)
