"""The producer's role in a symbolic run: it waits for free slots and fills them."""

from __future__ import annotations

from collections.abc import Iterator

from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.held import Block
from nautile.codegen.sm90.memory import (
    Advance,
    Fill,
    Operation,
    Ring,
    Stream,
    Tiles,
    WaitEmpty,
)
from nautile.codegen.sm90.slots import Content, Machine, Role

__all__ = ["Producer"]


class Producer(Role):
    """One thread; yields the name of what it waits for."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, machine.actor("the producer", 0))

    def run(self) -> Iterator[str]:
        """All tiles, and the end of a dynamic order."""
        for op in self.role():
            if not isinstance(op, Tiles):
                raise ScheduleError(f"{type(op).__name__} outside the producer's tiles")
            for tile in range(len(self.machine.trips)):
                self.tile = tile
                yield from self._body(op.body, None)
            if op.carrier is not None and op.order == "dynamic":
                self.tile = len(self.machine.trips)
                yield from self._empty(op.carrier)
                self._fill(op.carrier, None, ())

    def role(self) -> tuple[Operation, ...]:
        """What the role does."""
        return self.machine.program.producer

    def _body(self, body: tuple[Operation, ...], block: Block | None) -> Iterator[str]:
        for op in body:
            self.machine.steps += 1
            yield from self._operation(op, block)

    def _operation(self, op: Operation, block: Block | None) -> Iterator[str]:
        match op:
            case WaitEmpty(ring):
                yield from self._empty(ring)
            case Fill(ring):
                self._fill(ring, block, tuple(b.name for b in ring.boxes))
            case Advance():
                self.advance(op)
            case Stream():
                yield from self._stream(op)
            case _:
                raise ScheduleError(f"{type(op).__name__} is no operation of the producer")

    def _stream(self, op: Stream) -> Iterator[str]:
        count = self.machine.blocks(op, self.tile)
        number = self.machine.streams[op.axes, op.tiles, op.bounds]
        for block in range(count):
            first = op.first and block == 0
            yield from self._body(op.first if first else op.body, (number, block))

    def _empty(self, ring: Ring) -> Iterator[str]:
        yield from self.wait(self.machine.empty[self.slot(ring)], 1 - self.parity(ring))

    def _fill(self, ring: Ring, block: Block | None, boxes: tuple[str, ...]) -> None:
        """This block's slot, and its part of what blocks share in the others'."""
        shared = any(b.blocks > 1 for b in ring.boxes)
        for machine in self.machine.peers if shared else (self.machine,):
            self._into(machine, ring, block, boxes)

    def _into(
        self,
        machine: Machine,
        ring: Ring,
        block: Block | None,
        boxes: tuple[str, ...],
        arrivals: int = 1,
    ) -> None:
        slot = self.slot(ring)
        old = machine.contents.get(slot)
        begun = old is not None and old.fill == self.cursor(ring)
        readings = [] if old is None else [*old.before] * begun + old.readings
        for reading in readings:
            if reading.end is None or not self.actor.knows(reading.end):
                raise ScheduleError(f"{ring.name} is filled while {reading.actor} may read it")
        unread = set(boxes) - set().union(*old.seen.values()) if old and not begun else set()
        if unread:
            raise ScheduleError(f"{ring.name}: {min(unread)} is overwritten before it is read")
        if not begun:
            made = Content(self.cursor(ring), self.tile, block, before=readings)
            machine.contents[slot] = made
        if arrivals:
            machine.full[slot].arrive(self.actor, arrivals)
