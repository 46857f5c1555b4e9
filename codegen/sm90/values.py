"""Values in registers: which array each lies in, and the operations that make it.

A value that is computed element by element from one that nothing reads later takes its place, so
that scores, masked scores and weights are one array of accumulators. What is computed for an output
alone is computed where it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nautile.codegen.memory import FoldRow, Fragment, Keep, Pack, Pointwise, Store
from nautile.codegen.schedule.registers import IDENTITY, narrowed, reads, reciprocals, writes
from nautile.codegen.schedule.structure import (
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.sm90.accuracy import absolute
from nautile.codegen.sm90.joined import deep, joined
from nautile.codegen.sm90.memory import (
    Accumulator,
    Box,
    Issue,
    Mask,
    MaskTail,
    Operation,
    Pin,
    Promote,
    Ring,
    StoreTile,
    Unpack,
)
from nautile.codegen.sm90.place import columns, stored
from nautile.codegen.sm90.rings import Placement
from nautile.codegen.sm90.streams import Batch, Nest, contractions, walk_items
from nautile.codegen.tile import Fold, Loop, Map, Mma, Read, Ref, Statement, Tile, Write
from nautile.codegen.types import carrier
from nautile.terms import Apply, Cast, Const, Term, walk

__all__ = ["Values"]


@dataclass(slots=True)
class Values:
    structure: Structure
    root: Nest
    staging: int = 0
    buffers: int = 2
    fragments: dict[str, Fragment] = field(default_factory=dict)
    where: dict[str, tuple[str, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    packed: dict[tuple[str, str], Fragment] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    number: dict[int, int] = field(default_factory=dict)
    precise: bool = False
    narrow: frozenset[str] = frozenset()
    absolute: dict[str, float] = field(default_factory=dict)
    fused: dict[str, Map] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = self.structure.program.body
        for number, s in enumerate(statements(body)):
            self.number[id(s)] = number
            for name in reads(s):
                self.last[name] = number
            if isinstance(s, Map) and s.target.name in self.structure.reformed:
                self.last[s.target.name] = number  # it goes to its place at once
        self.precise = any(w.buffer.dtype in ("f32", "f64", "tf32") for w in writes(body))
        self.narrow = narrowed(self.structure)
        self.absolute = absolute(self.structure)
        self._fuse()

    def _fuse(self) -> None:
        """Maps of the root that one output by the copy engine alone reads."""
        found = list(statements(self.structure.program.body))
        for item in self.root.items:
            if isinstance(item, Map) and self.structure.columns.get(item.target.name):
                readers = [s for s in found if item.target.name in reads(s)]
                if len(readers) == 1 and self._by_copy_engine(readers[0]):
                    self.fused[item.target.name] = item

    def _by_copy_engine(self, s: Statement) -> bool:
        return (
            isinstance(s, Write) and s in self.root.items and stored(self.structure, s) is not None
        )

    # -- arrays -------------------------------------------------------------------------------

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return tuple(
            Accumulator(name, size, tuple((n, s) for n, (a, s) in self.where.items() if a == name))
            for name, size in self.sizes.items()
        )

    def registers(self) -> int:
        """Of a thread, for each of its 64-row fragments: accumulators and packed operands that live
        at once. What one loop alone makes and reads does not live beside another's."""
        held: dict[int | None, int] = {None: 0}
        for a in self.accumulators:
            if all(self._passing(name) for name, _ in a.parts):
                continue
            homes = {self._home(name) for name, _ in a.parts}
            home = homes.pop() if len(homes) == 1 else None
            held[home] = held.get(home, 0) + a.registers
        for (name, _), packed in self.packed.items():
            home = self._home(name)
            held[home] = held.get(home, 0) + packed.columns // 4
        before = held.pop(-1, 0)  # accumulators begin with the loops
        return max(before, held.pop(None) + max(held.values(), default=0))

    def _passing(self, name: str) -> bool:
        """Whether a value's elements go into a fold one by one, and nowhere else."""
        found = list(statements(self.structure.program.body))
        made = any(isinstance(s, Map) and s.target.name == name for s in found)
        readers = [s for s in found if name in reads(s)]
        return made and len(readers) == 1 and isinstance(readers[0], Fold)

    def _home(self, name: str) -> int | None:
        """The number of the loop of the root outside which nothing makes or reads a value; -1 for
        what nothing reads once the first of them begins."""
        first = min((self.number[id(loop)] for loop in self._loops()), default=0)
        if self.last.get(name, first) < first:
            return -1
        for nest, loop in zip(self.root.nests, self._loops(), strict=True):
            inside = list(statements((loop,)))
            made = [s for s in inside if isinstance(s, (Map, Mma)) and s.target.name == name]
            carried = any(isinstance(s, Mma) and nest.axes[0] in s.axes for s in made)
            if made and not carried and self.last.get(name, 0) <= self.number[id(inside[-1])]:
                return self.number[id(loop)]
        return None

    def _loops(self) -> list[Loop]:
        return [s for s in self.structure.program.body if isinstance(s, Loop)]

    def fragment(self, tile: Tile) -> Fragment:
        if tile.name not in self.fragments:
            if carrier(tile.dtype) != "f32":
                raise UnsupportedError(f"{tile.name} is of type {tile.dtype}")
            column = self.structure.columns[tile.name]
            width = 0 if column is None else self.structure.width(column)
            self.fragments[tile.name] = Fragment(tile.name, tile, column, width)
        return self.fragments[tile.name]

    def _array(self, tile: Tile, over: str | None = None) -> Fragment:
        """The value's fragment; its elements lie over another's or in an array of its own."""
        made = self.fragment(tile)
        if made.column is not None and tile.name not in self.where:
            if over is not None:
                self.where[tile.name] = self.where[over]
            else:
                self.sizes[tile.name] = made.columns // 2
                self.where[tile.name] = (tile.name, 0)
        return made

    def _over(self, s: Map, nest: Nest | None) -> str | None:
        """A value of the same scope whose elements the Map may replace."""
        column = self.structure.columns[s.target.name]
        scope = (nest or self.root).items
        for leaf in walk(s.value):
            if not isinstance(leaf, Ref) or self.structure.columns.get(leaf.tile.name) != column:
                continue
            name = leaf.tile.name
            if column is None or name not in self.where or self.last[name] != self.number[id(s)]:
                continue
            if self._made_in(name, scope, nest):
                return name
        return None

    def _made_in(self, name: str, scope: Sequence[object], nest: Nest | None) -> bool:
        """Whether a scope makes a value afresh (the root: also what its loops carried)."""
        for item in scope if nest is not None else walk_items(self.root.items):
            if isinstance(item, Nest):
                if any(c.statement.target.name == name for c in contractions(item)):
                    return nest is not None or not item.outer
            elif isinstance(item, Batch):
                for c in item.contractions:
                    if c.statement.target.name == name:
                        return nest is None or not nest.carries(c)
            elif isinstance(item, (Map, Read)) and item.target.name == name:
                return True
        return False

    # -- products -----------------------------------------------------------------------------

    def issues(
        self, batch: Batch, placement: Placement, start: str, home: Batch | None = None
    ) -> tuple[list[Operation], tuple[str, ...]]:
        """The products of a batch, and the accumulators that they change."""
        ops: list[Operation] = []
        for group in joined(self.structure, batch, placement, home or batch):
            first = group[0]
            boxes = [placement.box(home or batch, c, c.right) for c in group]
            target = self._accumulate(group)
            left: Box | Fragment
            ring: Ring | None = None
            if self.structure.operand(first.left.name) is not None:
                left, ring = placement.box(home or batch, first, first.left)
            else:
                left = self.packed[first.left.name, first.operand]
            columns = sum(self.structure.width(c.column) for c in group)
            depth = deep(self.structure, first)
            ops.append(
                Issue(
                    Accumulator(target, self.sizes[target], ()), tuple(boxes), columns, left, ring,
                    first.axis, depth, boxes[0][0].element, start,
                )
            )  # fmt: skip
        held = dict.fromkeys(op.target.name for op in ops if isinstance(op, Issue))
        return ops, tuple(held)

    def parts(self, batch: Batch) -> tuple[Batch, list[Promote]]:
        """The contractions with sums of their own, and what adds these to the batch's."""
        made = Batch()
        promotes: list[Promote] = []
        for c in batch.contractions:
            target = c.statement.target
            part = replace(target, name=f"{target.name}_part")
            self.structure.columns[part.name] = c.column
            made.contractions.append(replace(c, statement=replace(c.statement, target=part)))
            promotes.append(Promote(self._array(target), self.fragment(part)))
        return made, promotes

    def _accumulate(self, group: list[Contraction]) -> str:
        """The array of joined contractions, side by side."""
        name, at = group[0].statement.target.name, 0
        for c in group:
            made = self.fragment(c.statement.target)
            self.where[made.name] = (name, at)
            at += made.columns // 2
        self.sizes[name] = at
        return name

    def packs(self, batch: Batch) -> tuple[list[Operation], tuple[str, ...]]:
        """The computed left operands of a batch, and the names of their arrays."""
        ops: list[Operation] = []
        names: list[str] = []
        for c in batch.contractions:
            if self.structure.operand(c.left.name) is not None:
                continue
            key = (c.left.name, c.operand)
            source = self.fragment(c.left)
            if key not in self.packed:
                self.packed[key] = replace(source, name=f"{c.left.name}_{c.operand}")
                self.fragments[self.packed[key].name] = self.packed[key]
            if self.packed[key].name not in names:
                names.append(self.packed[key].name)
                ops.append(Pack(self.packed[key], source, c.operand))
        return ops, tuple(names)

    def tails(self, batch: Batch, wanted: bool) -> list[Operation]:
        """Computed left operands are 0 past the extent of their columns."""
        found: list[Operation] = []
        for c in batch.contractions if wanted else ():
            if self.structure.operand(c.left.name) is None and self._ragged(c.left):
                tail = MaskTail(self.fragment(c.left), 0.0)
                found += [tail] if tail not in found else []
        return found

    def _ragged(self, tile: Tile) -> bool:
        column = self.structure.columns[tile.name]
        return column is not None and column.extent % self.structure.width(column) != 0

    def pin(self, nest: Nest, batch: Batch) -> Operation:
        """What must be computed before the wait: a sum of the row over the computed operand where
        the nest has one, else the operand itself; beside operands as they lie, the last fold."""
        left = batch.contractions[0].left
        if not batch.computed(self.structure):
            folds = [i for i in nest.items if isinstance(i, Fold)]
            return Pin(self.fragment(folds[-1].target), False)
        for item in nest.items:
            sums = isinstance(item, Fold) and item.source == left and item.monoid == "sum"
            if isinstance(item, Fold) and sums and not self.settled(item, nest):
                return Pin(self.fragment(item.target), self._never_negative(left.name))
        return Pin(self.fragment(left), False)

    def part(self, total: Fragment) -> Fragment:
        """A part of a row's sum."""
        made = replace(total, name=f"{total.name}_part")
        return self.fragments.setdefault(made.name, made)

    def _never_negative(self, name: str) -> bool:
        found = statements(self.structure.program.body)
        made = next(s for s in found if isinstance(s, Map) and s.target.name == name)
        value = made.value.argument if isinstance(made.value, Cast) else made.value
        return isinstance(value, Apply) and value.operation in ("exp", "exp2", "sigmoid", "abs")

    # -- other operations ---------------------------------------------------------------------

    def operations(
        self,
        item: object,
        nest: Nest | None,
        *,
        masks: bool = True,
        tails: bool = True,
        placement: Placement | None = None,
    ) -> list[Operation]:
        """`masks`: blocks may be partial here; `tails`: they may leave the extent; elements of
        boxes need a placement."""
        match item:
            case Read() if placement is not None:
                return [Unpack(self._array(item.target), *placement.elements(item))]
            case Map():
                return [] if item.target.name in self.fused else self._map(item, nest, masks)
            case Fold():
                return self._fold(item, nest, tails)
            case Write():
                return self._write(item, nest)
        raise UnsupportedError(f"{type(item).__name__} in this place")

    def _map(self, s: Map, nest: Nest | None, masks: bool) -> list[Operation]:
        target = self._array(s.target, self._over(s, nest))
        value = self._value(s, s.value)
        precise = self.precise and s.target.name not in self.narrow
        narrow = s.target.name in self.narrow
        absolute = self.absolute.get(s.target.name, 0.0) if narrow else 0.0
        plain = self.structure.program.masked.get(s.target.name)
        if plain is None:
            return self._copy(target, value, precise, absolute)
        whole = self._value(s, plain)
        if not masks:
            return self._copy(target, whole, precise, absolute)
        match value:
            case Apply("where", (keep, x, Const(constant))) if x is whole:
                mask = Mask(target, keep, float(constant))
                return [*self._copy(target, whole, precise, absolute), mask]
        return [Pointwise(target, value, whole, precise, absolute)]

    def _copy(
        self, target: Fragment, value: Term, precise: bool, absolute: float
    ) -> list[Operation]:
        """Nothing, where a value takes the place of the one that it equals."""
        if isinstance(value, Ref) and self.where.get(value.tile.name) == self.where.get(
            target.name
        ):
            return []
        return [Pointwise(target, value, None, precise, absolute)]

    def _value(self, s: Map, value: Term) -> Term:
        value = reciprocals(self.structure.inline(value), self.structure.columns[s.target.name])
        narrow = carrier(s.target.dtype) != s.target.dtype
        return Cast(s.target.dtype, value) if narrow else value

    def settled(self, s: Fold, nest: Nest | None) -> bool:
        """Whether a fold is combined over a row's threads at once: its loop reads it, or it is not
        carried."""
        if nest is None or s.axis not in nest.axes:
            return True
        names = {s.target.name} | ({s.before.name} if s.before else set())
        read = (reads(i) for i in nest.items if isinstance(i, (Map, Fold, Write)) and i is not s)
        batches = (reads(c.statement) for b in nest.batches for c in b.contractions)
        return any(found & names for found in (*read, *batches))

    def _fold(self, s: Fold, nest: Nest | None, tails: bool) -> list[Operation]:
        target, source = self.fragment(s.target), self.fragment(s.source)
        repair = None if s.repair is None else self.fragment(s.repair)
        before = None if s.before is None else self.fragment(s.before)
        carried = nest is not None and s.axis in nest.axes
        fold = FoldRow(target, s.monoid, source, carried, self.settled(s, nest), repair, before)
        ops: list[Operation] = [Keep(before, target)] if before else []
        if tails and self._ragged(s.source):
            ops.append(MaskTail(source, IDENTITY[s.monoid]))
        return [*ops, fold]

    def _write(self, s: Write, nest: Nest | None) -> list[Operation]:
        coordinates = tuple(self.structure.inline(c) for c in s.coordinates)
        column = columns(self.structure, s)
        pure = self.structure.pure.get(s.source.name)
        self.structure.columns.setdefault(s.source.name, column)
        view = stored(self.structure, s) if nest is None else None
        if view is not None and column is not None:
            value: Term = Ref(s.source)
            if pure is not None:
                value = pure
            elif s.source.name in self.fused:
                value = self._value(self.fused[s.source.name], self.fused[s.source.name].value)
            width = self.structure.width(column)
            return [
                StoreTile(
                    s.buffer, view.map, view.places, view.outer, value, column, width,
                    self.staging, self.precise, self.buffers,
                )
            ]  # fmt: skip
        if pure is None:
            return [Store(s.buffer, coordinates, self.fragment(s.source))]
        target = self._array(s.source)
        return [
            Pointwise(target, pure, None, self.precise),
            Store(s.buffer, coordinates, target),
        ]
