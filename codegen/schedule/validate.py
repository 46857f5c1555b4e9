"""A memory program run symbolically: is every read ordered after what it reads?

All threads of the one role run the same operations, so a block is simulated as one thread plus what
a barrier adds: a copy is **flying** until a wait covers its group, **landed** for its own thread
after it, and **visible** to all after the next barrier. A slot that was read since the last barrier
may still be read by a slower thread. Streams run with one block, two, and a few more than the ring
has slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
    Settle,
    SharedTile,
    Store,
    Stream,
    Wait,
)
from nautile.codegen.tile import Ref
from nautile.terms import Term, walk

__all__ = ["ScheduleError", "validate"]

Slot = tuple[str, int, str]


class ScheduleError(Exception):
    """The schedule has a race, reads what is not there, or exceeds shared memory."""


@dataclass(slots=True)
class _Cell:
    """What one tile of one slot holds."""

    block: int
    state: str


@dataclass(slots=True)
class _Run:
    program: MemoryProgram
    trips: int
    cells: dict[Slot, _Cell] = field(default_factory=dict)
    open: list[_Cell] = field(default_factory=list)
    groups: list[list[_Cell]] = field(default_factory=list)
    read: set[Slot] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    serial: int = 0
    gathered: dict[str, int] = field(default_factory=dict)
    changed: set[Slot] = field(default_factory=set)

    def body(self, body: tuple[Operation, ...], first: int, number: int, count: int) -> None:
        for op in body:
            self.operation(op, first, number, count)

    def operation(self, op: Operation, first: int, number: int, count: int) -> None:
        """One operation in block `number` of `count`, whose blocks' serials start at `first`."""
        match op:
            case Gather(ring, ahead):
                if number + ahead < count:
                    self.gathered[ring.name] = first + number + ahead
            case Fetch(ring, ahead) | Place(ring, ahead):
                if number + ahead < count:
                    self.fill(op, ring, first, number + ahead)
            case Commit():
                self.groups.append(self.open)
                self.open = []
            case Wait(pending):
                self.wait(pending)
            case Barrier():
                self.barrier()
            case Multiply():
                self.multiply(op, first, number)
            case Form():
                self.form(op, first, number)
            case Settle(target, _, across) if across is not None:
                self.use(target)
                self.barrier()
            case FoldDepth():
                self.fold_depth(op, first, number)
            case Stream():
                self.stream(op)
            case Store():
                self.store(op)
            case _:
                self.registers(op)

    def fill(self, op: Fetch | Place, ring: Ring, first: int, block: int) -> None:
        wanted = isinstance(op, Place)
        if wanted and self.gathered.pop(ring.name, first + block) != first + block:
            raise ScheduleError(f"{ring.name}: what was gathered is another block's")
        for tile in ring.tiles:
            if (tile.filled == "compute") != wanted:
                continue
            slot = (ring.name, block % ring.stages, tile.name)
            if slot in self.read:
                raise ScheduleError(f"{ring.name}: a slot is filled while it may be read")
            old = self.cells.get(slot)
            if old is not None and old.state == "flying":
                raise ScheduleError(f"{ring.name}: a slot is filled while a copy flies to it")
            cell = _Cell(first + block, "landed" if wanted else "flying")
            self.cells[slot] = cell
            if not wanted:
                self.open.append(cell)

    def wait(self, pending: int) -> None:
        while len(self.groups) > pending:
            for cell in self.groups.pop(0):
                cell.state = "landed"

    def barrier(self) -> None:
        self.read.clear()
        self.changed.clear()
        for cell in self.cells.values():
            if cell.state == "landed":
                cell.state = "visible"

    def multiply(self, op: Multiply, first: int, number: int) -> None:
        self.refs(op.formed)
        if isinstance(op.left, SharedTile):
            if op.left_ring is None:
                raise ScheduleError(f"{op.left.name} lies in no ring")
            for tile, ring in ((op.left, op.left_ring), *op.beside):
                self.see(ring, tile, first, number)
        else:
            self.use(op.left)
        for target, tile, ring in op.pairs:
            self.use(target)
            self.see(ring, tile, first, number)

    def fold_depth(self, op: FoldDepth, first: int, number: int) -> None:
        self.refs(op.value)
        self.use(*([op.target] if op.carried else []), *([op.repair] if op.repair else []))
        if op.tile is not None:
            if op.ring is None:
                raise ScheduleError(f"{op.tile.name} lies in no ring")
            for tile, ring in ((op.tile, op.ring), *op.beside):
                self.see(ring, tile, first, number)
        self.defined.add(op.target.name)

    def form(self, op: Form, first: int, number: int) -> None:
        self.refs(op.value)
        for tile, ring in ((op.tile, op.ring), *op.beside):
            self.see(ring, tile, first, number, forming=True)
        self.changed.add((op.ring.name, 0, op.tile.name))

    def see(
        self, ring: Ring, tile: SharedTile, first: int, number: int, forming: bool = False
    ) -> None:
        if ring.stages == 1:
            first, number = 0, 0
        slot = (ring.name, number % ring.stages, tile.name)
        cell = self.cells.get(slot)
        if cell is None or cell.state != "visible":
            state = "empty" if cell is None else cell.state
            raise ScheduleError(f"{tile.name} is read while its slot is {state}")
        if slot in self.changed and not forming:
            raise ScheduleError(f"{tile.name} is read while it is formed")
        if ring.stages > 1 and cell.block != first + number:
            raise ScheduleError(f"{tile.name} is read where another block lies")
        self.read.add(slot)

    def stream(self, op: Stream) -> None:
        first = self.serial = self.serial + 1000
        self.body(op.prologue, first, 0, self.trips)
        for number in range(self.trips):
            self.body(op.body, first, number, self.trips)

    def store(self, op: Store) -> None:
        self.use(op.source)
        if op.staging is None:
            return
        flying = any(c.state == "flying" for c in self.cells.values())
        if self.read or flying or self.open:
            raise ScheduleError(f"{op.buffer.name} is staged over tiles that are in use")
        self.cells.clear()

    def registers(self, op: Operation) -> None:
        """Reads and definitions of register values."""
        match op:
            case Clear(target):
                pass
            case Pack(target, source) | Keep(target, source):
                self.use(source)
            case Pointwise(target, value, whole):
                self.refs(value)
                self.refs(whole)
            case FoldRow(target, _, source, carried, _, repair, _):
                self.use(source, *([target] if carried else []), *([repair] if repair else []))
            case Settle(target):
                self.use(target)
            case Rescale(targets, factor):
                self.use(*targets, factor)
                return
            case _:
                raise ScheduleError(f"{type(op).__name__} is no operation of this role")
        self.defined.add(target.name)

    def refs(self, value: Term | None) -> None:
        for term in walk(value) if value is not None else ():
            if isinstance(term, Ref) and term.tile.name not in self.defined:
                raise ScheduleError(f"{term.tile.name} is used before it is computed")

    def use(self, *fragments: Fragment) -> None:
        for fragment in fragments:
            if fragment.name not in self.defined:
                raise ScheduleError(f"{fragment.name} is used before it is computed")


def validate(program: MemoryProgram) -> None:
    """ScheduleError if the program has a race, a missing definition, or too little memory."""
    for problem in _capacity(program):
        raise ScheduleError(problem)
    most = max((r.stages for r in program.rings), default=1)
    for role in program.roles:
        for trips in sorted({1, 2, most, most + 2}):
            _Run(program, trips).body(role.operations, 0, 0, 1)


def _capacity(program: MemoryProgram) -> Iterator[str]:
    """Slots inside shared memory and apart from each other, tiles inside their slots."""
    end = 0
    for ring in sorted(program.rings, key=lambda r: r.offset):
        if ring.offset < end:
            yield f"{ring.name} overlaps another ring"
        end = ring.offset + ring.stages * ring.slot_bytes
        inner = 0
        for tile in sorted(ring.tiles, key=lambda t: t.offset):
            if tile.offset < inner or tile.offset % 16:
                yield f"{tile.name} overlaps another tile or is not aligned"
            inner = tile.offset + tile.bytes
        if inner > ring.slot_bytes:
            yield f"{ring.name}: the tiles exceed the slot"
    if end > program.shared_bytes:
        yield f"{end} bytes of rings exceed {program.shared_bytes} bytes of shared memory"
