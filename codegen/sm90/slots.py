"""Rings of slots while a memory program runs symbolically: what lies where, who reads it, and the
barriers. Shared by the roles of one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nautile.codegen.memory import Fragment
from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.happens import Actor, Barrier, Event, Turns
from nautile.codegen.sm90.held import Block
from nautile.codegen.sm90.memory import Advance, Ring, RoleProgram, Skip, Stream
from nautile.codegen.tile import Bounds
from nautile.terms import Axis, Term

__all__ = ["Content", "Machine", "Reading", "Role"]

Nest = tuple[tuple[Axis, ...], tuple[int, ...], Bounds]


@dataclass(slots=True)
class Reading:
    """A product, or the drawing of a number, that reads a slot; `end` once that is over."""

    actor: str
    end: Event | None = None


@dataclass(slots=True)
class Content:
    """What fill number `fill` of a ring brought: of which tile, and of which block of a stream."""

    fill: int
    tile: int
    block: Block | None
    seen: dict[int, set[str]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)


@dataclass(slots=True)
class Machine:
    """One block of threads that gets a tile for each of `trips`, which tells its blocks."""

    program: RoleProgram
    trips: tuple[int, ...]
    full: dict[tuple[str, int], Barrier]
    empty: dict[tuple[str, int], Barrier]
    turns: tuple[Turns, ...]
    contents: dict[tuple[str, int], Content] = field(default_factory=dict)
    streams: dict[Nest, int] = field(default_factory=dict)
    leaves: dict[Term, tuple[Fragment, ...]] = field(default_factory=dict)
    steps: int = 0

    @staticmethod
    def of(program: RoleProgram, trips: tuple[int, ...]) -> Machine:
        """Before anything runs."""
        actors = 1 + program.geometry.consumers
        slots = [(r, i) for r in program.rings for i in range(r.stages)]
        return Machine(
            program,
            trips,
            {(r.name, i): Barrier(f"full {r.name}[{i}]", 1, actors) for r, i in slots},
            {(r.name, i): Barrier(f"empty {r.name}[{i}]", r.arrivals, actors) for r, i in slots},
            tuple(Turns(f"the turn of warpgroup {w}") for w in range(actors - 1)),
        )

    def actor(self, name: str, number: int) -> Actor:
        return Actor(name, number, [0] * (1 + self.program.geometry.consumers))

    def blocks(self, op: Stream | Skip, tile: int) -> int:
        """How many blocks a nest has in a tile; nests differ."""
        bounds = op.bounds if isinstance(op, Stream) else Bounds()
        number = self.streams.setdefault((op.axes, op.tiles, bounds), len(self.streams))
        if self.program.geometry.alternate:
            return self.trips[0]
        return self.trips[(tile + number) % len(self.trips)]

    def finish(self) -> None:
        """ScheduleError where a copy flies that nobody waited for."""
        for (name, slot), content in self.contents.items():
            if not content.seen:
                raise ScheduleError(f"nobody waits for fill {content.fill} of {name}[{slot}]")


@dataclass(slots=True)
class Role:
    """What both roles do: cursors move, and barriers are waited for."""

    machine: Machine
    actor: Actor
    cursors: dict[str, int] = field(default_factory=dict)
    tile: int = 0

    def cursor(self, ring: Ring) -> int:
        return self.cursors.setdefault(ring.name, 0)

    def slot(self, ring: Ring, age: int = 0) -> tuple[str, int]:
        return ring.name, (self.cursor(ring) - age) % ring.stages

    def advance(self, op: Advance) -> None:
        self.cursors[op.ring.name] = self.cursor(op.ring) + 1

    def wait(self, barrier: Barrier, parity: int) -> Iterator[str]:
        """Yields while the phase of this parity goes on."""
        while not barrier.passes(parity):
            yield barrier.name
        self.machine.steps += 1
        barrier.passed(self.actor)

    def parity(self, ring: Ring) -> int:
        """Of the round that the cursor is in."""
        return self.cursor(ring) // ring.stages % 2
