"""Structure -> memory program with roles: rings, the software pipeline, the order of operations.

Four schedules of a loop, by its structure alone:
- lagged: products of operands from memory and nothing else. One group of products is in flight; a
  slot is released one block late.
- skewed: one batch of products of operands from memory, work on them, and one batch whose left
  operand that work computes. The first batch of block j is issued before the second of block
  j - 1, so that the tensor cores run under the work; warpgroups issue in turn.
- formed: products of left operands that are computed of elements in registers, while the group
  before them is in flight, and folds of such elements.
- in order: everything else; each batch is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nautile.codegen.memory import Clear, Rescale, Settle
from nautile.codegen.schedule.structure import (
    CapacityError,
    Structure,
    UnsupportedError,
)
from nautile.codegen.sm90.ahead import with_ahead
from nautile.codegen.sm90.covered import check
from nautile.codegen.sm90.memory import (
    Advance,
    Arrive,
    Begin,
    CommitGroup,
    Fence,
    Fill,
    Form,
    Geometry,
    Issue,
    Next,
    Operation,
    PairArrive,
    PairStart,
    PairSync,
    Release,
    Ring,
    RoleProgram,
    Skip,
    Stream,
    Tiles,
    WaitEmpty,
    WaitFull,
    WaitGroup,
)
from nautile.codegen.sm90.midway import midway
from nautile.codegen.sm90.options import (
    CONSUMER_REGISTERS,
    FORMER_REGISTERS,
    LAUNCHED,
    SPARE_REGISTERS,
    Options,
)
from nautile.codegen.sm90.place import takes
from nautile.codegen.sm90.rings import Placement, cursor, place
from nautile.codegen.sm90.shape import alone, geometry
from nautile.codegen.sm90.streams import (
    Batch,
    Item,
    Nest,
    after_loops,
    batches,
    heavy_first,
    is_formed,
    is_lagged,
    is_promoted,
    is_skewed,
    items,
    nests,
    only_first_partial,
)
from nautile.codegen.sm90.values import IDENTITY, Values
from nautile.codegen.tile import Bounds, Fold, Map, Read, Write

__all__ = ["plan"]


def plan(structure: Structure, options: Options) -> RoleProgram:
    """The memory program; UnsupportedError for what this path does not cover, CapacityError where
    other tiles of the same program would do."""
    return _Planner(structure, options).program()


@dataclass(slots=True)
class _Planner:
    structure: Structure
    options: Options
    root: Nest = field(init=False)
    geometry: Geometry = field(init=False)
    placement: Placement = field(init=False)
    values: Values = field(init=False)
    begin: Next | None = None
    flying: tuple[str, ...] = ()

    def program(self) -> RoleProgram:
        source = self.structure.program
        self.root = Nest((), Bounds(), items(self.structure, source.body))
        check(self.structure)
        self.values = Values(self.structure, self.root)
        self.geometry = geometry(self.structure, self.root, self.options)
        dynamic = self._dynamic()
        self.placement = place(
            self.structure, self.root, self.geometry, self.options, dynamic, self._stages()
        )
        self.values.staging = self.placement.staging
        self.values.buffers = self.placement.buffers
        consumer = self._consumer(dynamic)
        registers = self._registers()
        consumer = self._with_ahead(consumer)
        cluster = self.geometry.cluster
        tiles = 1
        for axis in source.grid:
            tiles *= -(-axis.extent // source.tiles[axis])
        return RoleProgram(
            source.name,
            self.geometry,
            tuple((a, source.tiles[a]) for a in source.grid),
            tuple(source.tiles.items()),
            self.placement.rings,
            self.values.accumulators,
            tuple(self.values.fragments.values()),
            self._producer(dynamic),
            consumer,
            registers,
            self.placement.shared_bytes,
            self.placement.words,
            min(tiles, self.options.blocks) // cluster * cluster,
            heavy_first(self.structure),
            former=self._former(),
        )

    # -- geometry -----------------------------------------------------------------------------

    def _dynamic(self) -> bool:
        if self.geometry.alternate or not all(
            takes(self.structure, c, c.right) for c in self.structure.contractions.values()
        ):
            return False
        return heavy_first(self.structure) if self.options.dynamic is None else self.options.dynamic

    def _stages(self) -> int:
        """The most slots of a ring."""
        chain = any(
            b.computed(self.structure)
            for n in nests(self.root)
            for b in n.batches
            if not is_formed(self.structure, n)
        )
        return self.options.stages or (3 if chain else 16)

    def _with_ahead(self, consumer: tuple[Operation, ...]) -> tuple[Operation, ...]:
        """What results are computed with comes early where products alone hold registers."""
        if not all(is_lagged(self.structure, n) for n in self.root.nests):
            return consumer
        given = self._given()
        held = self.values.registers() * self.geometry.fragments
        room = (given[1] if given else 255) - SPARE_REGISTERS - held
        return with_ahead(consumer, self.geometry, room)

    def _given(self) -> tuple[int, int] | None:
        """Registers of the producer's threads, which may form operands, and the consumers'."""
        known = FORMER_REGISTERS if self.placement.raws else CONSUMER_REGISTERS
        return known[self.geometry.consumers]

    def _registers(self) -> tuple[int, int] | None:
        given = self._given()
        held = self.values.registers() * self.geometry.fragments
        widest = max(a.registers for a in self.values.accumulators)
        if self.geometry.consumers == 3 and widest >= LAUNCHED:
            raise CapacityError(f"{widest} accumulators of one product, for three warpgroups")
        if held + SPARE_REGISTERS > (given[1] if given else 255):
            raise CapacityError(f"{held} registers of accumulators a thread")
        return given

    # -- the producer ---------------------------------------------------------------------------

    def _producer(self, dynamic: bool) -> tuple[Operation, ...]:
        body: list[Operation] = []
        stay = self.placement.stay
        staying: list[Operation] = (
            [] if stay is None else [WaitEmpty(stay), Fill(stay), Advance(stay)]
        )
        moving = [fill for nest in self.root.nests for fill in self._fills(nest)]
        body += [*moving, *staying] if self._stays_late(dynamic) else [*staying, *moving]
        return (Tiles("dynamic" if dynamic else "static", tuple(body), stay),)

    def _stays_late(self, dynamic: bool) -> bool:
        """Whether what stays is read after all loops alone: then the next tile's moving operands
        need not wait until it has been."""
        return not dynamic and after_loops(
            self.root, list(filter(self._uses_stay, self.root.items))
        )

    def _fills(self, nest: Nest) -> list[Operation]:
        """A stream that fills every slot of a nest, in the order in which it is read."""
        found: list[Operation] = []
        for item in nest.items:
            rings = (
                [self.placement.raw(item), self.placement.ring(item)]
                if (isinstance(item, Batch))
                else []
            )
            for ring in rings:
                found += [WaitEmpty(ring), Fill(ring), Advance(ring)] if ring else []
            if isinstance(item, Nest):
                found += self._fills(item)
        return [self._stream(nest, (), found)] if found else []

    # -- the formers ----------------------------------------------------------------------------

    def _former(self) -> tuple[Operation, ...]:
        """What forms right operands, in the order in which the producer fills slots."""
        body = [s for nest in self.root.nests for s in self._forms(nest)]
        return (Tiles("static", tuple(body), self.placement.stay),) if body else ()

    def _forms(self, nest: Nest) -> list[Operation]:
        found: list[Operation] = []
        for item in nest.items:
            if isinstance(item, Nest):
                found += self._forms(item)
            if not isinstance(item, Batch):
                continue
            ring, raw = self.placement.ring(item), self.placement.raw(item)
            if ring is not None and raw is not None:
                found += [WaitFull(raw), WaitEmpty(ring), *self.placement.converts(item)]
                found += [Arrive(ring), Release(raw), Advance(raw), Advance(ring)]
            elif ring is not None and any(b.formed for b in ring.boxes):
                raise UnsupportedError("loops that form the same operand")
        return [self._stream(nest, (), found)] if found else []

    def _rings(self, nest: Nest) -> list[Ring]:
        return [r for b in nest.batches if (r := self.placement.ring(b)) is not None]

    def _stream(self, nest: Nest, first: Sequence[Operation], body: Sequence[Operation]) -> Stream:
        b = nest.bounds
        inline = self.structure.inline
        terms = (b.first, b.stop, b.whole_first, b.whole_stop)
        bounds = Bounds(*(None if t is None else inline(t) for t in terms))
        tiles = tuple(self.structure.program.tiles[a] for a in nest.axes)
        return Stream(nest.axes, tiles, bounds, tuple(first), tuple(body), self._descending(nest))

    def _descending(self, nest: Nest) -> bool:
        """From the last block down, where a mask or the extent cuts the last ones."""
        if self.options.descending is not None:
            return self.options.descending
        if any(isinstance(i, Write) for i in nest.items) or len(nest.axes) > 1:
            return False
        b, axis = nest.bounds, nest.axes[0]
        ragged = axis.extent % self.structure.program.tiles[axis] != 0
        return b.stop is not None or (ragged and b.first is None)

    # -- the consumers --------------------------------------------------------------------------

    def _consumer(self, dynamic: bool) -> tuple[Operation, ...]:
        before: list[Operation] = []
        body: list[Operation] = []
        stay = self.placement.stay
        using = [i for i in self.root.items if self._uses_stay(i)]
        if stay is not None and not using:
            body += [Release(stay), Advance(stay)]
        late = self._stays_late(dynamic)
        for item in self.root.items:
            last = stay if using and item is using[-1] else None
            if stay is not None and late and item is using[0]:
                body.append(WaitFull(stay))
            body += self._item(item, last)
        if stay is not None and not self.begin and not late:
            body.insert(0, WaitFull(stay))
        nest = alone(self.structure, self.root)
        if self.geometry.alternate and nest is not None:
            skips = [
                (r, nest.axes, tuple(map(self.structure.program.tiles.__getitem__, nest.axes)))
                for r in self._rings(nest)
            ]
            before += [Skip(*s, others="before") for s in skips]
            body += [Skip(*s) for s in skips]
        if self.geometry.alternate or self._takes_turns():
            before.insert(0, PairStart())
        order = "dynamic" if dynamic else "static"
        after = [WaitGroup(0, self.flying)] if self.begin else []
        return (*before, Tiles(order, tuple(body), stay, self.begin), *after)

    def _uses_stay(self, item: Item) -> bool:
        found = batches(item) if isinstance(item, Nest) else [item]
        return any(isinstance(b, Batch) and self.placement.stays(b) for b in found) or (
            isinstance(item, Read) and self.placement.elements(item)[1].stays
        )

    def _takes_turns(self) -> bool:
        return any(self._in_turn(nest) for nest in self.root.nests)

    def _in_turn(self, nest: Nest) -> bool:
        """Whether a loop multiplies and computes, so that warpgroups do well to alternate."""
        if not self.options.turns or self.geometry.consumers == 1:
            return False
        free = is_lagged(self.structure, nest) or is_formed(self.structure, nest)
        return bool(nest.batches) and not free

    def _item(self, item: Item, last: Ring | None) -> list[Operation]:
        """The operations of an item of the root; `last` is released with it."""
        done: list[Operation] = [] if last is None else [Release(last), Advance(last)]
        match item:
            case Batch():
                return [*self._in_order(item, None), *done]
            case Nest() if is_lagged(self.structure, item):
                return [*self._lagged(item), *done]
            case Nest() if is_skewed(self.structure, item):
                return self._skewed(item, done)
            case Nest() if is_formed(self.structure, item):
                return [*self._formed(item), *done]
            case Nest():
                return [*self._sequence(item), *done]
        made = self.values.operations(item, None, placement=self.placement)
        if isinstance(item, Map) and item.target.name in self.structure.reformed:
            there = self.placement.lies(self.structure.reformed[item.target.name])
            made += [Form(self.values.fragment(item.target), *there)]
        if item is self._last_formed():
            made += self._free()
        return [*made, *done]

    def _last_formed(self) -> Item | None:
        formed = self.structure.reformed
        found = [i for i in self.root.items if isinstance(i, Map) and i.target.name in formed]
        return found[-1] if found else None

    def _free(self) -> list[Operation]:
        """Accumulators that loops begin: set here, they need no registers while what stays is
        formed. (To the compiler, a product that starts at 0 reads what they held.)"""
        found = [c for nest in nests(self.root) for b in nest.batches for c in b.contractions]
        return [Clear(self.values.fragment(c.statement.target)) for c in found]

    def _promoted(self, nest: Nest, ring: Ring, batch: Batch) -> list[Operation]:
        """Every block's sum by itself, added to the f32 sum under other warpgroups' products."""
        parts, promotes = self.values.parts(batch)
        issues, held = self.values.issues(parts, self.placement, "fresh", batch)
        take, free = cursor(ring)
        body = [*take, Fence(), *issues, CommitGroup(), WaitGroup(0, held), *free, *promotes]
        return [*(Clear(p.target) for p in promotes), self._stream(nest, (), body)]

    def _lagged(self, nest: Nest) -> list[Operation]:
        batch = nest.batches[0]
        ring = self.placement.ring(batch)
        if ring is None:
            raise UnsupportedError("a loop over operands that do not move")
        if is_promoted(self.structure, nest):
            return self._promoted(nest, ring, batch)
        issues, held = self.values.issues(batch, self.placement, "begun")
        turn = self.geometry.alternate
        body = [
            WaitFull(ring), Fence(), *issues, CommitGroup(), WaitGroup(1, held),
            Release(ring, 1), Advance(ring),
        ]  # fmt: skip
        stream = self._stream(nest, (), body)
        after: list[Operation] = [WaitGroup(0, held), Release(ring, 1)]
        begin = _begins(issues)
        return [*begin, *[PairSync()] * turn, stream, *[PairArrive()] * turn, *after]

    def _formed(self, nest: Nest) -> list[Operation]:
        batch = nest.batches[0]
        ring = self.placement.ring(batch)
        if ring is None:
            raise UnsupportedError("a loop over operands that do not move")
        work: list[Operation] = []
        for item in nest.items[:-1]:
            work += self.values.operations(item, nest, placement=self.placement)
        packs, packed = self.values.packs(batch)
        issues, held = self.values.issues(batch, self.placement, "begun")
        work += [*self.values.tails(batch, True), self.values.pin(nest, batch)]
        multiply: list[Operation] = [*packs, Fence(), *issues, CommitGroup()]
        free: list[Operation] = [WaitGroup(int(not packs), (*held, *packed)), Release(ring, 1)]
        steps = [*work, *free, *multiply] if packs else [*multiply, *work, *free]
        stream = self._stream(nest, (), [WaitFull(ring), *steps, Advance(ring)])
        after: list[Operation] = [WaitGroup(0, (*held, *packed)), Release(ring, 1)]
        return [*self._clears(nest), *_begins(issues), stream, *after, *self._settles(nest)]

    def _skewed(self, nest: Nest, done: list[Operation]) -> list[Operation]:
        scores, mixed = nest.batches
        early, late = self.placement.ring(scores), self.placement.ring(mixed)
        issue0, held0 = self.values.issues(scores, self.placement, "fresh")
        packs, packed = self.values.packs(mixed)
        issue1, held1 = self.values.issues(mixed, self.placement, "begun")
        take0, free0 = cursor(early)
        take1, free1 = cursor(late)
        turn = self._in_turn(nest)
        partial = self._partial_first(nest)
        work0 = self._work(nest, True, True)
        work = self._work(nest, not partial, not self._descending(nest))
        begin = [*take0, Fence(), *issue0, CommitGroup()]
        ahead = self._ahead(nest)
        first = [
            *([] if ahead else begin), WaitGroup(0, held0), *free0, *work0,
            *self.values.tails(mixed, True), *packs,
        ]  # fmt: skip
        pin = self.values.pin(nest, mixed)
        after = [WaitGroup(0, (*held1, *held0, *packed)), *free1, *self._rescales(mixed)]
        left = mixed.contractions[0].left.name
        wanted = self.options.midway
        wanted = self.geometry.consumers < 3 if wanted is None else wanted
        halved = midway(work, left, self.values.part, pin, after) if wanted else None
        body = [
            *take0, *[PairSync()] * turn, Fence(), *issue0, CommitGroup(),
            *take1, *issue1, CommitGroup(), *[PairArrive()] * turn,
            WaitGroup(1, held0), *free0, *(halved or [*work, pin, *after]),
            *self.values.tails(mixed, not self._descending(nest)), *packs,
        ]  # fmt: skip
        stream = self._stream(nest, first, body)
        stays = any(self.placement.stays(b) for b in (mixed,))
        early_done, late_done = ([], done) if stays else (done, [])
        settles = self._settles(nest)
        if ahead:
            stay = self.placement.stay
            waits = (*([WaitFull(stay)] if stay else []), *take0)
            self.flying = held0
            self.begin = Next(waits, (Fence(), *issue0, CommitGroup()))
        following = [self.begin] if ahead and self.begin else []
        return [
            *self._clears(nest), *_begins(issue1), stream, *early_done,
            *take1, Fence(), *issue1, CommitGroup(), *following, *settles,
            WaitGroup(int(ahead), (*held1, *packed)), *free1, *late_done,
        ]  # fmt: skip

    def _ahead(self, nest: Nest) -> bool:
        """Whether the next tile's first products are issued before this tile's results are stored:
        what stays must have come by then, so it needs a second slot."""
        stay, wanted = self.placement.stay, self.options.ahead
        if wanted is None:
            wanted = stay is None or stay.stages > 1
        alone = self.root.nests == [nest] and not self.root.batches
        alone = alone and not self.structure.reformed  # the next tile's would have to be formed
        return wanted and alone and not self.placement.stays(nest.batches[1])

    def _partial_first(self, nest: Nest) -> bool:
        """Whether only the first block that runs needs its mask."""
        b = nest.bounds
        if b.whole_first is None and b.whole_stop is None:
            return False
        return only_first_partial(nest, self.structure.program.tiles, self._descending(nest))

    def _work(self, nest: Nest, masks: bool, tails: bool) -> list[Operation]:
        found: list[Operation] = []
        for item in nest.items:
            if isinstance(item, (Map, Fold)):
                found += self.values.operations(item, nest, masks=masks, tails=tails)
        return found

    def _rescales(self, batch: Batch) -> list[Operation]:
        found: list[Operation] = []
        for c in batch.contractions:
            if c.statement.repair is not None:
                factor = self.values.fragment(c.statement.repair)
                found.append(Rescale((self.values.fragment(c.statement.target),), factor))
        return found

    def _clears(self, nest: Nest, products: bool = False) -> list[Operation]:
        """What starts at its identity where a nest starts."""
        found: list[Operation] = []
        for item in nest.items:
            if isinstance(item, Fold) and item.axis in nest.axes:
                found.append(Clear(self.values.fragment(item.target), IDENTITY[item.monoid]))
            if isinstance(item, Batch) and products:
                for c in item.contractions:
                    if nest.carries(c):
                        found.append(Clear(self.values.fragment(c.statement.target)))
        return found

    def _settles(self, nest: Nest) -> list[Operation]:
        return [
            Settle(self.values.fragment(i.target), i.monoid)
            for i in nest.items
            if isinstance(i, Fold) and i.axis in nest.axes and not self.values.settled(i, nest)
        ]

    def _sequence(self, nest: Nest) -> list[Operation]:
        """Every item in order."""
        body: list[Operation] = []
        for item in nest.items:
            if isinstance(item, Batch):
                body += self._rescales(item)
                body += self._in_order(item, nest)
            elif isinstance(item, Nest):
                body += self._lagged(item)
            else:
                body += self.values.operations(item, nest)
        stream = self._stream(nest, (), body)
        return [*self._clears(nest, True), stream, *self._settles(nest)]

    def _in_order(self, batch: Batch, nest: Nest | None) -> list[Operation]:
        ring = self.placement.ring(batch)
        take, free = cursor(ring)
        found: list[Operation] = [*take]
        if batch.computed(self.structure):
            packs, packed = self.values.packs(batch)
            found += [*self.values.tails(batch, True), *packs]
        else:
            packed = ()
        issues: list[Operation] = []
        held: tuple[str, ...] = packed
        for start in ("carried", "fresh"):
            chosen = [
                c
                for c in batch.contractions
                if (start == "carried") == (nest is not None and nest.carries(c))
            ]
            more, arrays = self.values.issues(Batch(chosen), self.placement, start, batch)
            issues, held = issues + more, (*arrays, *held)
        turn = nest is not None and self._in_turn(nest)
        sync, arrive = ([PairSync()], [PairArrive()]) if turn else ([], [])
        return [
            *found, *sync, Fence(), *issues, CommitGroup(), *arrive, WaitGroup(0, held), *free,
        ]  # fmt: skip


def _begins(issues: Sequence[Operation]) -> list[Operation]:
    targets = dict.fromkeys(op.target for op in issues if isinstance(op, Issue))
    return [Begin(t) for t in targets]
