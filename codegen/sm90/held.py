"""What a consumer's registers hold while its memory program runs symbolically.

A value is computed from the blocks that rings brought. Its **block** is the one that it belongs to,
None for what is carried over a stream or is the tile's; operands of one operation must agree. A
carried fold has seen blocks up to its **version**; an accumulator counts products added to it.

Products read and write registers behind the program's back. Until a WaitGroup ends the product
nothing else may touch them; accumulators, not before a WaitGroup names them either, since the
compiler could move a read above any other wait. An Issue needs a Fence after the last access to its
registers. (PTX ISA, wgmma.fence and wgmma.wait_group.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nautile.codegen.memory import Fragment
from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.memory import Accumulator, Issue

__all__ = ["Block", "Held", "Value", "agreed", "moves"]

# the producer's stream, and the block's number in the order in which they run
Block = tuple[int, int]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Value:
    """What lies in a place: its block; the block up to which the carried folds have gone that it
    depends on, and `since`, the number of the last block that those it was kept from had seen (-1
    for none); whether each thread of a row has a part of it only."""

    block: Block | None = None
    version: Block | None = None
    since: int | None = None
    partial: bool = False

    @staticmethod
    def over(what: str, values: Sequence[Value]) -> Value:
        """The value of an elementwise operation over others."""
        versions = [v.version for v in values if v.version is not None]
        kept = [v.since for v in values if v.since is not None]
        block = agreed(what, [v.block for v in values])
        return Value(block, max(versions, default=None), min(kept, default=None))

    def kept(self) -> Value:
        """A copy from before a fold changes it."""
        return Value(
            self.block, None, -1 if self.version is None else self.version[1], self.partial
        )


def agreed(what: str, blocks: Iterable[Block | None]) -> Block | None:
    """The block of an operation's operands. ScheduleError where there are several."""
    found = {b for b in blocks if b is not None}
    if len(found) > 1:
        raise ScheduleError(f"{what} mixes blocks {sorted(b for _, b in found)}")
    return found.pop() if found else None


def moves(name: str, factor: Value, number: int) -> None:
    """ScheduleError unless a factor brings what is carried from block `number` - 1 to `number`."""
    if factor.version is not None and factor.version[1] != number:
        raise ScheduleError(
            f"{name} holds {number} blocks where it is rescaled for block {factor.version[1]}"
        )
    if factor.since not in (None, number - 1):
        raise ScheduleError(f"{name} is rescaled from block {factor.since}, not {number - 1}")


@dataclass(slots=True)
class Held:
    """The registers of one warpgroup. `parts` tells the array of each value that lies in one;
    values that are `moved` must be `rescaled` between two products."""

    parts: dict[str, Place]
    values: dict[Place, Value] = field(default_factory=dict)
    flying: dict[str, int] = field(default_factory=dict)
    landed: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    fenced: bool = False
    beginning: set[str] = field(default_factory=set)
    products: dict[str, int] = field(default_factory=dict)
    moved: set[Place] = field(default_factory=set)
    rescaled: set[Place] = field(default_factory=set)

    @staticmethod
    def of(accumulators: Iterable[Accumulator], moved: Iterable[Fragment]) -> Held:
        """Before anything is computed; `moved` are the fragments that are rescaled somewhere."""
        held = Held({name: (a.name, at) for a in accumulators for name, at in a.parts})
        held.moved = {held.place(f) for f in moved}
        return held

    def place(self, fragment: Fragment) -> Place:
        """The array of a fragment, and where in it the fragment begins."""
        return self.parts.get(fragment.name, (fragment.name, 0))

    def use(self, *fragments: Fragment, partial: bool = False) -> list[Value]:
        """The values of fragments that an ordinary operation reads; parts of threads where it
        takes them."""
        found = []
        for fragment in fragments:
            place = self.place(fragment)
            self._touch(place[0])
            if place not in self.values:
                raise ScheduleError(f"{fragment.name} is used before it is computed")
            value = self.values[place]
            if value.partial and not partial:
                raise ScheduleError(f"{fragment.name} is used before its threads combined it")
            found.append(value)
        return found

    def define(self, fragment: Fragment, value: Value) -> None:
        """An ordinary operation writes a fragment."""
        place = self.place(fragment)
        self._touch(place[0])
        self.values[place] = value
        self.products.pop(place[0], None)

    def _touch(self, array: str) -> None:
        if self.flying.get(array) or array in self.landed:
            why = "fly" if self.flying.get(array) else "may fly: no wait names it"
            raise ScheduleError(f"{array} is touched while products of it {why}")
        self.touched.add(array)

    # -- products -----------------------------------------------------------------------------

    def fence(self) -> None:
        self.touched.clear()
        self.fenced = True

    def begin(self, target: Accumulator) -> None:
        """An accumulator holds nothing: the next product that asks starts at 0."""
        self._touch(target.name)
        self.values = {p: v for p, v in self.values.items() if p[0] != target.name}
        self.beginning.add(target.name)

    def issue(self, op: Issue, block: Block | None) -> None:
        """A product starts. `block` is that of its operands in memory."""
        array = op.target.name
        begins = op.start == "fresh" or (op.start == "begun" and array in self.beginning)
        self.beginning.discard(array)
        registers = self._operands(op)
        if not self.fenced or self.touched & set(registers):
            raise ScheduleError(f"no Fence stands between what touched {array} and its product")
        if isinstance(op.left, Fragment):
            block = agreed(f"the product of {array}", [self._packed(op.left), block])
        fresh = op.start == "fresh"
        if not begins and (array, 0) not in self.values:
            raise ScheduleError(f"{array} is added to before it begins")
        count = 0 if begins else self.products.get(array, 0)
        for place in self._places(array, op.columns // 2):
            if count and place in self.moved - self.rescaled:
                raise ScheduleError(f"{array} is not rescaled between two products")
            self.rescaled.discard(place)
            self.values[place] = Value(block if fresh else None)
        self.products[array] = count + 1
        for name in registers:
            self.flying[name] = self.flying.get(name, 0) + 1
            self.landed.discard(name)

    def _operands(self, op: Issue) -> list[str]:
        left = [op.left.name] if isinstance(op.left, Fragment) else []
        return [op.target.name, *left]

    def _packed(self, left: Fragment) -> Block | None:
        value = self.values.get((left.name, 0))
        if value is None:
            raise ScheduleError(f"{left.name} is multiplied before it is packed")
        return value.block

    def _places(self, array: str, registers: int) -> set[Place]:
        inside = {p for p in self.parts.values() if p[0] == array and p[1] < registers}
        return inside | {(array, 0)}

    def end(self, op: Issue) -> None:
        """A product is done; no wait has named its registers yet."""
        for name in self._operands(op):
            self.flying[name] -= 1
            if not self.flying[name] and name == op.target.name:
                self.landed.add(name)

    def name(self, names: Iterable[str]) -> None:
        """A wait names registers: after it, those of products that are done may be touched."""
        self.landed -= set(names)

    # -- what is carried ----------------------------------------------------------------------

    def rescale(self, target: Fragment, factor: Value) -> None:
        """A carried accumulator is brought to the reference of the factor's version."""
        place = self.place(target)
        count = self.products.get(place[0], 0)
        if place in self.rescaled:
            raise ScheduleError(f"{target.name} is rescaled twice between products")
        if count:
            moves(target.name, factor, count)
        self.use(target)
        self.rescaled.add(place)
