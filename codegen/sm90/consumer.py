"""A consumer warpgroup's role in a symbolic run: it waits for slots, multiplies, computes and
stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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
from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.held import Block, Held, Value, agreed, moves
from nautile.codegen.sm90.memory import (
    Advance,
    Ahead,
    Begin,
    Box,
    CommitGroup,
    Fence,
    Form,
    Issue,
    Mask,
    MaskTail,
    Midway,
    Next,
    Operation,
    PairArrive,
    PairStart,
    PairSync,
    Pin,
    Promote,
    Release,
    Ring,
    Skip,
    StoreTile,
    Stream,
    Tiles,
    Unpack,
    WaitFull,
    WaitGroup,
    operations,
)
from nautile.codegen.sm90.slots import Content, Machine, Reading, Role
from nautile.codegen.tile import Ref
from nautile.terms import Term, walk

__all__ = ["Consumer"]

_WARPS = 4


@dataclass(slots=True)
class _Product:
    """A product in flight, and what it reads in shared memory."""

    issue: Issue
    readings: list[Reading]


@dataclass(slots=True)
class Consumer(Role):
    """Warpgroup `warpgroup`; yields the name of what it waits for."""

    warpgroup: int = 0
    held: Held = field(default_factory=lambda: Held({}))
    begun: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    open: list[_Product] = field(default_factory=list)
    groups: list[list[_Product]] = field(default_factory=list)
    unpinned: str = ""

    @staticmethod
    def of(machine: Machine, number: int) -> Consumer:
        """Before it has done anything."""
        program = machine.program
        found = [op for op in operations(program.consumer) if isinstance(op, Rescale)]
        moved = [f for op in found for f in op.targets]
        actor = machine.actor(f"warpgroup {number}", 1 + number)
        return Consumer(machine, actor, warpgroup=number, held=Held.of(program.accumulators, moved))

    def run(self) -> Iterator[str]:
        """Its tiles, and nothing left in flight."""
        for op in self.machine.program.consumer:
            if isinstance(op, Tiles):
                yield from self._tiles(op)
            else:
                yield from self._operation(op)
        if self.open or any(self.groups):
            raise ScheduleError(f"{self.actor.name} ends while products fly")

    def _tiles(self, op: Tiles) -> Iterator[str]:
        geometry = self.machine.program.geometry
        first, step = (self.warpgroup, geometry.consumers) if geometry.alternate else (0, 1)
        for tile in range(first, len(self.machine.trips), step):
            self.tile = tile
            begin = op.first.waits if op.first else op.body
            if op.order == "dynamic" and not isinstance(begin[0], WaitFull):
                raise ScheduleError("a dynamic number is used before it has been waited for")
            if op.first and tile == first:
                yield from self._body((*op.first.waits, *op.first.products))
            yield from self._body(op.body)
        if op.order == "dynamic" and op.carrier is not None and not op.first:
            self.tile = len(self.machine.trips)
            yield from self._full(op.carrier)

    def _next(self, op: Next) -> Iterator[str]:
        """The next tile's beginning, or the number that tells that there is none."""
        carrier = self._carrier()
        self.tile += 1
        if self.tile < len(self.machine.trips):
            yield from self._body((*op.waits, *op.products))
        else:
            if carrier is not None and self._dynamic():
                yield from self._full(carrier)
            self._blind(op)
        self.tile -= 1

    def _blind(self, op: Next) -> None:
        """Products of whatever lies in the slots: they fly, but nobody may read what they give."""
        for o in op.products:
            if isinstance(o, Issue):
                self.held.issue(o, None)
                self.held.values.pop((o.target.name, 0), None)
                self.open.append(_Product(o, []))
            elif isinstance(o, (Fence, CommitGroup, WaitGroup)):
                self._products(o)

    def _dynamic(self) -> bool:
        found = self.machine.program.consumer
        return any(isinstance(o, Tiles) and o.order == "dynamic" for o in found)

    def _body(self, body: tuple[Operation, ...]) -> Iterator[str]:
        for op in body:
            yield from self._operation(op)

    def _operation(self, op: Operation) -> Iterator[str]:
        self.machine.steps += 1
        match op:
            case Stream():
                yield from self._stream(op)
            case Next():
                yield from self._next(op)
            case Midway():
                yield from self._midway(op)
            case WaitFull(ring):
                yield from self._full(ring)
            case PairSync():
                while not self.machine.turns[self.warpgroup].take(self.actor):
                    yield f"the turn of {self.actor.name}"
            case PairStart() | PairArrive():
                self._give(op)
            case Advance():
                self.advance(op)
            case Skip():
                self._skip(op)
            case Release():
                self._release(op.ring, op.age)
            case Fence() | Issue() | CommitGroup() | WaitGroup():
                self._products(op)
            case _:
                self._compute(op)

    def _stream(self, op: Stream) -> Iterator[str]:
        count = self.machine.blocks(op, self.tile)
        self.begun = dict(self.cursors)
        for block in range(count):
            yield from self._body(op.first if op.first and block == 0 else op.body)
        for fold in operations((*op.first, *op.body)):
            if isinstance(fold, FoldRow) and fold.carried:
                self._folded(fold.target, count)

    def _midway(self, op: Midway) -> Iterator[str]:
        """Between the halves nobody reads the value, nor what it replaces."""
        held, target, term = self.held, op.value.target, op.value.value
        value = self._value(target, term)
        held.define(op.part, Value(value.block, value.version, partial=True))
        replaced = held.values.pop(held.place(target), None)
        self._worked(target)
        yield from self._body(op.between)
        if replaced is not None:
            held.values[held.place(target)] = replaced
        if self._value(target, term) != value:
            raise ScheduleError(f"the halves of {target.name} differ")
        held.define(target, value)
        self._compute(op.fold)

    def _folded(self, target: Fragment, count: int) -> None:
        """A carried fold has seen all blocks of its stream: from then on, a value of the tile."""
        value = self.held.values.get(self.held.place(target))
        if value is None or (value.version is not None and value.version[1] != count - 1):
            raise ScheduleError(f"{target.name} has not seen all blocks of its stream")
        self.held.values[self.held.place(target)] = replace(value, version=None)

    # -- turns and slots ----------------------------------------------------------------------

    def _give(self, op: PairStart | PairArrive) -> None:
        last = self.machine.program.geometry.consumers - 1
        if isinstance(op, PairArrive) or self.warpgroup == last:
            self.machine.turns[0 if self.warpgroup == last else self.warpgroup + 1].arrive(
                self.actor
            )

    def _skip(self, op: Skip) -> None:
        geometry = self.machine.program.geometry
        others = self.warpgroup if op.others == "before" else geometry.consumers - 1
        count = others * self.machine.blocks(op, self.tile)
        self.cursors[op.ring.name] = self.cursor(op.ring) + count

    def _full(self, ring: Ring) -> Iterator[str]:
        yield from self.wait(self.machine.full[self.slot(ring)], self.parity(ring))
        content = self._content(ring)
        content.seen.setdefault(self.actor.number, set())
        self.taken[ring.name] = self.cursor(ring)
        if ring == self._carrier():
            content.readings.append(Reading(self.actor.name, self.actor.event()))

    def _carrier(self) -> Ring | None:
        tiles = (op for op in self.machine.program.consumer if isinstance(op, Tiles))
        return next(tiles).carrier

    def _content(self, ring: Ring) -> Content:
        """What lies at the cursor: the cursor's fill of this tile."""
        content = self.machine.contents.get(self.slot(ring))
        if content is None or content.fill != self.cursor(ring):
            raise ScheduleError(f"{self.actor.name} sees another block in {ring.name}")
        if content.tile != self.tile:
            raise ScheduleError(f"{self.actor.name} sees another tile in {ring.name}")
        return content

    def _release(self, ring: Ring, age: int) -> None:
        at = self.cursor(ring) - age
        if age and at < self.begun.get(ring.name, 0):
            return
        content = self.machine.contents.get(self.slot(ring, age))
        if content is None or content.fill != at or self.actor.number not in content.seen:
            raise ScheduleError(f"{self.actor.name} releases {ring.name} before it waited for it")
        if any(r.end is None and r.actor == self.actor.name for r in content.readings):
            raise ScheduleError(f"{ring.name} is released while products of {self.actor.name} fly")
        unread = {b.name for b in ring.boxes} - content.seen[self.actor.number]
        if unread:
            raise ScheduleError(f"{self.actor.name} releases {min(unread)} and has not read it")
        for machine in self.machine.peers if ring.blocks > 1 else (self.machine,):
            machine.empty[self.slot(ring, age)].arrive(self.actor, _WARPS)

    # -- products -----------------------------------------------------------------------------

    def _products(self, op: Fence | Issue | CommitGroup | WaitGroup) -> None:
        match op:
            case Fence():
                self.held.fence()
            case Issue():
                self._issue(op)
            case CommitGroup():
                self.groups.append(self.open)
                self.open = []
            case WaitGroup(pending, pinned):
                self._wait(pending, pinned)

    def _issue(self, op: Issue) -> None:
        boxes = list(op.pairs)
        if isinstance(op.left, Box):
            if op.left_ring is None:
                raise ScheduleError(f"{op.left.name} lies in no ring")
            boxes.append((op.left, op.left_ring))
        product = _Product(op, [])
        blocks = [self._read(box, ring, product) for box, ring in boxes]
        name = op.target.name
        self.held.issue(op, agreed(f"the product of {name}", blocks))
        self.open.append(product)

    def _elements(self, box: Box, ring: Ring) -> Block | None:
        """An ordinary read of a box, over at once."""
        reading, block = self._reads(box, ring)
        reading.end = self.actor.event()
        return block

    def _read(self, box: Box, ring: Ring, product: _Product) -> Block | None:
        reading, block = self._reads(box, ring)
        product.readings.append(reading)
        return block

    def _reads(self, box: Box, ring: Ring) -> tuple[Reading, Block | None]:
        content = self._content(ring)
        if box not in ring.boxes:
            raise ScheduleError(f"{box.name} does not lie in {ring.name}")
        if self.taken.get(ring.name) != self.cursor(ring):
            raise ScheduleError(f"{box.name} is read before it has been waited for")
        reading = Reading(self.actor.name)
        content.seen.setdefault(self.actor.number, set()).add(box.name)
        content.readings.append(reading)
        return reading, content.block

    def _wait(self, pending: int, pinned: tuple[str, ...]) -> None:
        ending = self.groups[: max(0, len(self.groups) - pending)]
        if self.unpinned and any(ending):
            raise ScheduleError(f"no Pin holds the work on {self.unpinned} above the wait")
        event = self.actor.event()
        for product in (p for group in ending for p in group):
            self.held.end(product.issue)
            for reading in product.readings:
                reading.end = event
        self.groups = self.groups[len(ending) :]
        self.held.name(pinned)

    # -- work ---------------------------------------------------------------------------------

    def _compute(self, op: Operation) -> None:
        held = self.held
        match op:
            case Begin(target):
                held.begin(target)
            case Clear(target):
                held.define(target, Value())
            case Pointwise(target, value, whole):
                held.define(target, self._value(target, value, whole))
                self._worked(target)
            case Mask(target, keep):
                (old,) = held.use(target)
                agreed(f"the mask of {target.name}", [old.block, self._refs(keep).block])
                held.define(target, old)
            case MaskTail(target):
                held.define(target, held.use(target)[0])
            case FoldRow():
                self._fold(op)
                self._worked(op.target)
            case Settle(target):
                (old,) = held.use(target, partial=True)
                held.define(target, Value(old.block, old.version))
            case Rescale(targets, factor):
                for target in targets:
                    held.rescale(target, held.use(factor)[0])
            case Keep(target, source):
                held.define(target, held.use(source, partial=True)[0].kept())
            case Pack(target, source):
                held.define(target, self._current(source))
            case Unpack(target, box, ring):
                held.define(target, Value(self._elements(box, ring)))
            case Form(source, box, ring):
                held.use(source)
                self._elements(box, ring)
            case Promote(target, source):
                held.use(target, source)
                held.define(target, Value())
            case Pin(source):
                held.use(source, partial=True)
                self.unpinned = ""
            case Store(_, _, source):
                held.use(source)
                self.unpinned = ""
            case Ahead():
                pass  # what it reads no other operation writes
            case StoreTile():
                self._refs(op.value)
                self.unpinned = ""
            case _:
                raise ScheduleError(f"{type(op).__name__} is no operation of a consumer")

    def _worked(self, target: Fragment) -> None:
        """Work ran under products, which the next wait must stay below."""
        if any(self.groups):
            self.unpinned = target.name

    def _fold(self, op: FoldRow) -> None:
        (source,) = self.held.use(op.source)
        carried = self.held.use(op.target, partial=True) if op.carried else []
        if op.repair is not None and source.block is not None:
            moves(op.target.name, self.held.use(op.repair)[0], source.block[1])
        block = None if carried else source.block
        version = source.block if carried else source.version
        self.held.define(op.target, Value(block, version, partial=not op.settled))

    def _current(self, source: Fragment) -> Value:
        """A value of its block, computed from folds that have seen that block too."""
        (value,) = self.held.use(source)
        if None not in (value.block, value.version) and value.block != value.version:
            raise ScheduleError(f"{source.name} is computed before the folds that it reads")
        return value

    def _value(self, target: Fragment, *terms: Term | None) -> Value:
        return Value.over(target.name, [self._refs(t) for t in terms if t is not None])

    def _refs(self, value: Term) -> Value:
        """The block and the version of a term's leaves."""
        leaves = self.machine.leaves
        if value not in leaves:
            refs = [t for t in walk(value) if isinstance(t, Ref)]
            leaves[value] = tuple(Fragment(t.tile.name, t.tile, None) for t in refs)
        return Value.over("a value", self.held.use(*leaves[value]))
