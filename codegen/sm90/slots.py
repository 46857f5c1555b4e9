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
    """What fill number `fill` of a ring brought: of which tile, and of which block of a stream;
    `before`, those who read what lay there before."""

    fill: int
    tile: int
    block: Block | None
    seen: dict[int, set[str]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    before: list[Reading] = field(default_factory=list)


@dataclass(slots=True)
class Machine:
    """Block `rank` of a cluster of threads that gets a tile for each of `trips`, which tells its
    blocks of streams; `peers` are all blocks of the cluster, this one too."""

    program: RoleProgram
    trips: tuple[int, ...]
    full: dict[tuple[str, int], Barrier]
    empty: dict[tuple[str, int], Barrier]
    turns: tuple[Turns, ...]
    contents: dict[tuple[str, int], Content] = field(default_factory=dict)
    streams: dict[Nest, int] = field(default_factory=dict)
    leaves: dict[Term, tuple[Fragment, ...]] = field(default_factory=dict)
    steps: int = 0
    rank: int = 0
    peers: tuple[Machine, ...] = ()

    @staticmethod
    def cluster(program: RoleProgram, trips: tuple[int, ...]) -> tuple[Machine, ...]:
        """The blocks of a cluster before anything runs."""
        blocks = range(program.geometry.cluster)
        made = tuple(Machine._of(program, trips, rank) for rank in blocks)
        for machine in made:
            machine.peers = made
        return made

    @staticmethod
    def _of(program: RoleProgram, trips: tuple[int, ...], rank: int) -> Machine:
        consumers = program.geometry.consumers
        actors = program.geometry.cluster * _roles(program)
        where = f" of block {rank}" * (program.geometry.cluster > 1)
        slots = [(r, i) for r in program.rings for i in range(r.stages)]

        def barriers(kind: str, counts: list[int]) -> dict[tuple[str, int], Barrier]:
            return {
                (r.name, i): Barrier(f"{kind} {r.name}[{i}]{where}", n, actors)
                for (r, i), n in zip(slots, counts, strict=True)
            }

        return Machine(
            program,
            trips,
            barriers("full", [_fillers(r) for r, _ in slots]),
            barriers("empty", [r.arrivals * r.blocks for r, _ in slots]),
            tuple(Turns(f"the turn of warpgroup {w}{where}") for w in range(consumers)),
            rank=rank,
        )

    def actor(self, name: str, number: int) -> Actor:
        """The block's producer, number 0, a consumer of it, or after these the formers."""
        geometry, each = self.program.geometry, _roles(self.program)
        where = f" of block {self.rank}" * (geometry.cluster > 1)
        return Actor(name + where, self.rank * each + number, [0] * (each * geometry.cluster))

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


def _roles(program: RoleProgram) -> int:
    return 1 + program.geometry.consumers + bool(program.former)


def _fillers(ring: Ring) -> int:
    """Arrivals that a slot of a ring waits for: the copies' and the formers'."""
    return max((b.blocks for b in ring.boxes), default=1) + ring.formers


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
