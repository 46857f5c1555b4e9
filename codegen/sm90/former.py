"""The formers' role in a symbolic run: they wait for raw slots, and fill their part of others."""

from __future__ import annotations

from collections.abc import Iterator

from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.boxes import FORMERS
from nautile.codegen.sm90.held import Block
from nautile.codegen.sm90.memory import (
    Arrive,
    Convert,
    Operation,
    Release,
    Ring,
    WaitFull,
)
from nautile.codegen.sm90.producer import Producer
from nautile.codegen.sm90.slots import Machine, Reading, Role

__all__ = ["Former"]


class Former(Producer):
    """Warps that do the same to parts of every slot; yields the name of what they wait for."""

    def __init__(self, machine: Machine) -> None:
        number = 1 + machine.program.geometry.consumers
        Role.__init__(self, machine, machine.actor("the formers", number))
        self.taken: dict[str, int] = {}
        self.made: set[str] = set()

    def role(self) -> tuple[Operation, ...]:
        """What the role does."""
        return self.machine.program.former

    def _operation(self, op: Operation, block: Block | None) -> Iterator[str]:
        match op:
            case WaitFull(ring):
                yield from self.wait(self.machine.full[self.slot(ring)], self.parity(ring))
                self.taken[ring.name] = self.cursor(ring)
            case Convert():
                self._convert(op, block)
            case Arrive(ring):
                self._arrive(ring, block)
            case Release(ring):
                self.machine.empty[self.slot(ring)].arrive(self.actor, FORMERS)
            case _:
                yield from Producer._operation(self, op, block)

    def _convert(self, op: Convert, block: Block | None) -> None:
        """Reads are over at once; what lay in the target is read by nobody."""
        for _, box, ring in op.sources:
            content = self.machine.contents.get(self.slot(ring))
            if self.taken.get(ring.name) != self.cursor(ring) or content is None:
                raise ScheduleError(f"{box.name} is formed of before it has been waited for")
            if (content.fill, content.tile, content.block) != (
                self.cursor(ring), self.tile, block
            ):  # fmt: skip
                raise ScheduleError(f"{op.target.name} is formed of another block of {box.name}")
            content.seen.setdefault(self.actor.number, set()).add(box.name)
            content.readings.append(Reading(self.actor.name, self.actor.event()))
        if not op.target.formed or op.target not in op.ring.boxes:
            raise ScheduleError(f"{op.target.name} is no box that is formed in {op.ring.name}")
        self._into(self.machine, op.ring, block, tuple(b.name for b in op.ring.boxes), 0)
        self.made.add(op.target.name)

    def _arrive(self, ring: Ring, block: Block | None) -> None:
        missing = {b.name for b in ring.boxes if b.formed} - self.made
        if missing:
            raise ScheduleError(f"{min(missing)} is not formed when the formers arrive")
        self.made.clear()
        self.machine.full[self.slot(ring)].arrive(self.actor, FORMERS)
