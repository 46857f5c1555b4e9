"""The plan of the consumer warpgroups: what they wait for, multiply, compute and store.

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
from dataclasses import dataclass

from nautile.codegen.memory import Clear, Rescale, Settle
from nautile.codegen.schedule.registers import IDENTITY
from nautile.codegen.schedule.structure import Structure, UnsupportedError
from nautile.codegen.sm90.memory import (
    Advance,
    Begin,
    CommitGroup,
    Fence,
    Form,
    Issue,
    Next,
    Operation,
    PairArrive,
    PairStart,
    PairSync,
    Release,
    Ring,
    Skip,
    Tiles,
    WaitFull,
    WaitGroup,
)
from nautile.codegen.sm90.midway import midway
from nautile.codegen.sm90.rings import Placement, cursor
from nautile.codegen.sm90.roles import Roles
from nautile.codegen.sm90.shape import alone
from nautile.codegen.sm90.streams import (
    Batch,
    Item,
    Nest,
    is_formed,
    is_lagged,
    is_promoted,
    is_skewed,
    nests,
    only_first_partial,
)
from nautile.codegen.sm90.values import Values
from nautile.codegen.tile import Fold, Map

__all__ = ["consumer"]


def consumer(roles: Roles) -> tuple[Operation, ...]:
    """The operations of a consumer warpgroup. UnsupportedError for a loop over operands none of
    which moves."""
    return _Consumer(roles).operations()


@dataclass(slots=True)
class _Consumer:
    """`begin` and `flying`: the first products of the next tile, where they are issued before this
    tile ends, and the registers that they write."""

    roles: Roles
    begin: Next | None = None
    flying: tuple[str, ...] = ()

    @property
    def structure(self) -> Structure:
        return self.roles.structure

    @property
    def placement(self) -> Placement:
        return self.roles.placement

    @property
    def values(self) -> Values:
        return self.roles.values

    def operations(self) -> tuple[Operation, ...]:
        """All of the role's."""
        before: list[Operation] = []
        body: list[Operation] = []
        stay = self.placement.stay
        using = [i for i in self.roles.root.items if self.roles.uses_stay(i)]
        if stay is not None and not using:
            body += [Release(stay), Advance(stay)]
        late = self.roles.stays_late()
        for item in self.roles.root.items:
            last = stay if using and item is using[-1] else None
            if stay is not None and late and item is using[0]:
                body.append(WaitFull(stay))
            body += self._item(item, last)
        if stay is not None and not self.begin and not late:
            body.insert(0, WaitFull(stay))
        nest = alone(self.structure, self.roles.root)
        if self.roles.geometry.alternate and nest is not None:
            tiles = tuple(self.structure.program.tiles[a] for a in nest.axes)
            skips = [(r, nest.axes, tiles) for r in self.roles.rings(nest)]
            before += [Skip(*s, others="before") for s in skips]
            body += [Skip(*s) for s in skips]
        if self.roles.geometry.alternate or self._takes_turns():
            before.insert(0, PairStart())
        order = "dynamic" if self.roles.dynamic else "static"
        after = [WaitGroup(0, self.flying)] if self.begin else []
        return (*before, Tiles(order, tuple(body), stay, self.begin), *after)

    def _takes_turns(self) -> bool:
        return any(self._in_turn(nest) for nest in self.roles.root.nests)

    def _in_turn(self, nest: Nest) -> bool:
        """Whether a loop multiplies and computes, so that warpgroups do well to alternate."""
        if not self.roles.options.turns or self.roles.geometry.consumers == 1:
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
        found = [i for i in self.roles.root.items if isinstance(i, Map) and i.target.name in formed]
        return found[-1] if found else None

    def _free(self) -> list[Operation]:
        """Accumulators that loops begin: set here, they need no registers while what stays is
        formed. (To the compiler, a product that starts at 0 reads what they held.)"""
        found = [c for nest in nests(self.roles.root) for b in nest.batches for c in b.contractions]
        return [Clear(self.values.fragment(c.statement.target)) for c in found]

    def _promoted(self, nest: Nest, ring: Ring, batch: Batch) -> list[Operation]:
        """Every block's sum by itself, added to the f32 sum under other warpgroups' products."""
        parts, promotes = self.values.parts(batch)
        issues, held = self.values.issues(parts, self.placement, "fresh", batch)
        take, free = cursor(ring)
        body = [*take, Fence(), *issues, CommitGroup(), WaitGroup(0, held), *free, *promotes]
        return [*(Clear(p.target) for p in promotes), self.roles.stream(nest, (), body)]

    def _lagged(self, nest: Nest) -> list[Operation]:
        batch = nest.batches[0]
        ring = self.placement.ring(batch)
        if ring is None:
            raise UnsupportedError("a loop over operands that do not move")
        if is_promoted(self.structure, nest):
            return self._promoted(nest, ring, batch)
        issues, held = self.values.issues(batch, self.placement, "begun")
        turn = self.roles.geometry.alternate
        body = [
            WaitFull(ring), Fence(), *issues, CommitGroup(), WaitGroup(1, held),
            Release(ring, 1), Advance(ring),
        ]  # fmt: skip
        stream = self.roles.stream(nest, (), body)
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
        stream = self.roles.stream(nest, (), [WaitFull(ring), *steps, Advance(ring)])
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
        work = self._work(nest, not partial, not self.roles.descending(nest))
        begin = [*take0, Fence(), *issue0, CommitGroup()]
        ahead = self._ahead(nest)
        first = [
            *([] if ahead else begin), WaitGroup(0, held0), *free0, *work0,
            *self.values.tails(mixed, True), *packs,
        ]  # fmt: skip
        pin = self.values.pin(nest, mixed)
        after = [WaitGroup(0, (*held1, *held0, *packed)), *free1, *self._rescales(mixed)]
        left = mixed.contractions[0].left.name
        wanted = self.roles.options.midway
        wanted = self.roles.geometry.consumers < 3 if wanted is None else wanted
        halved = midway(work, left, self.values.part, pin, after) if wanted else None
        body = [
            *take0, *[PairSync()] * turn, Fence(), *issue0, CommitGroup(),
            *take1, *issue1, CommitGroup(), *[PairArrive()] * turn,
            WaitGroup(1, held0), *free0, *(halved or [*work, pin, *after]),
            *self.values.tails(mixed, not self.roles.descending(nest)), *packs,
        ]  # fmt: skip
        stream = self.roles.stream(nest, first, body)
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
        stay, wanted = self.placement.stay, self.roles.options.ahead
        if wanted is None:
            wanted = stay is None or stay.stages > 1
        alone = self.roles.root.nests == [nest] and not self.roles.root.batches
        alone = alone and not self.structure.reformed  # the next tile's would have to be formed
        return wanted and alone and not self.placement.stays(nest.batches[1])

    def _partial_first(self, nest: Nest) -> bool:
        """Whether only the first block that runs needs its mask."""
        b = nest.bounds
        if b.whole_first is None and b.whole_stop is None:
            return False
        descending = self.roles.descending(nest)
        return only_first_partial(nest, self.structure.program.tiles, descending)

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
        stream = self.roles.stream(nest, (), body)
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
