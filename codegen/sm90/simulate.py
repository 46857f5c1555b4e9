"""A memory program with roles, run symbolically before any CUDA is printed.

The producer and each consumer warpgroup run as actors over rings of slots and barriers with phases,
for several numbers of tiles and of blocks a tile. One run of each suffices, because what happens
before what is tracked by vector clocks (happens.py). ScheduleError tells of

- a deadlock, and a wait that could pass one round early or miss its phase;
- a slot filled before all who read it have released it, or read before it was filled, or read where
  another tile's or block's box lies, or released unread; products that still read what is released;
- values of different blocks in one operation, values never computed, a row's value used before its
  threads combined it, carried products that are not rescaled, or not for their block (held.py);
- registers touched while products fly, products without a fence before them or a wait after;
- work under products that no Pin holds above the wait; a turn taken or given twice;
- shared memory that overlaps, is not aligned or not there (layout.py).

What a value must be, and where masks must stand, is the interpreter's matter and not checked here.
A stream has one block at least (tile.Loop).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nautile.codegen.schedule.validate import ScheduleError
from nautile.codegen.sm90.boxes import FORMERS
from nautile.codegen.sm90.consumer import Consumer
from nautile.codegen.sm90.former import Former
from nautile.codegen.sm90.layout import problems, staging_conflicts
from nautile.codegen.sm90.memory import Release, RoleProgram, StoreTile, Tiles, operations
from nautile.codegen.sm90.producer import Producer
from nautile.codegen.sm90.slots import Machine
from nautile.dtypes import DTYPES

__all__ = ["Findings", "ScheduleError", "simulate"]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a sound program's runs showed: `runs`, `steps` of all roles together, and `conflicts`,
    the passes that the worst access of ordinary instructions to shared memory takes (1 is none)."""

    runs: int
    steps: int
    conflicts: int


def simulate(program: RoleProgram) -> Findings:
    """ScheduleError if the program has a race, a deadlock or too little memory."""
    for problem in (*problems(program), *_shape(program)):
        raise ScheduleError(problem)
    steps = 0
    patterns = _patterns(program)
    for trips in patterns:
        steps += _run(program, trips)
    stores = [op for op in operations(program.consumer) if isinstance(op, StoreTile)]
    sizes = {DTYPES[op.buffer.dtype].bytes for op in stores}
    return Findings(
        len(patterns), steps, max((staging_conflicts(size=n) for n in sizes), default=1)
    )


def _patterns(program: RoleProgram) -> list[tuple[int, ...]]:
    """Blocks of each tile, for several runs: around the number of slots, and many times round."""
    most = max((r.stages for r in program.rings), default=1)
    even = [(1,), (2, 2), (most,) * 2, (most + 1,) * 3, (1,) * (2 * most + 3)]
    if program.geometry.alternate:
        return even
    return [*even, (1, 2, most + 1, 1, 3), (2 * most + 1, 1, 2)]


def _shape(program: RoleProgram) -> Iterator[str]:
    """Both roles draw the same tiles, and every ring counts those who release it."""
    drawn = [[op for op in role if isinstance(op, Tiles)] for role in _roles(program)]
    if [len(found) for found in drawn] != [1, 1]:
        yield "each role draws its tiles once"
        return
    a, b = (found[0] for found in drawn)
    if (a.order, a.carrier) != (b.order, b.carrier):
        yield "the roles draw different tiles"
    if a.order == "dynamic" and program.geometry.cluster > 1:
        yield "the blocks of a cluster draw tiles of their own"
    if a.order == "dynamic" and a.carrier is None:
        yield "no ring hands on the tile's number"
    for ring in program.rings:
        readers = FORMERS if ring.raw else program.geometry.arrivals
        if ring.arrivals != readers:
            yield f"{ring.name} counts {ring.arrivals} arrivals of {readers}"
        if (ring.raw or ring.formers) and not program.former:
            yield f"nobody forms what {ring.name} holds"
        for box in ring.boxes:
            if box.blocks not in (1, program.geometry.cluster):
                yield f"{box.name} is shared by {box.blocks} blocks of {program.geometry.cluster}"
            if box.blocks > 1 and any(program.geometry.row in p.free for p in box.places):
                yield f"{box.name} is shared by blocks that have other rows of it"
    known = set(program.rings)
    for op in operations((*program.producer, *program.consumer, *program.former)):
        if isinstance(op, Release) and op.ring not in known:
            yield f"{op.ring.name} is no ring of the program"


def _roles(program: RoleProgram) -> tuple[Sequence[object], Sequence[object]]:
    return program.producer, program.consumer


def _run(program: RoleProgram, trips: tuple[int, ...]) -> int:
    """One run to its end; how many steps it took."""
    cluster = Machine.cluster(program, trips)
    roles: dict[str, Iterator[str]] = {}
    for machine in cluster:
        producer = Producer(machine)
        roles[producer.actor.name] = producer.run()
        for number in range(program.geometry.consumers):
            consumer = Consumer.of(machine, number)
            roles[consumer.actor.name] = consumer.run()
        if program.former:
            former = Former(machine)
            roles[former.actor.name] = former.run()
    waiting: dict[str, str] = {}
    while roles:
        before = _steps(cluster)
        for name, role in list(roles.items()):
            waiting[name] = next(role, "")
            if not waiting[name]:
                del roles[name], waiting[name]
        if _steps(cluster) == before and len(waiting) == len(roles) > 0:
            raise ScheduleError(_stuck(waiting))
    for machine in cluster:
        machine.finish()
    return _steps(cluster)


def _steps(cluster: Sequence[Machine]) -> int:
    return sum(machine.steps for machine in cluster)


def _stuck(waiting: Mapping[str, str]) -> str:
    return "deadlock: " + ", ".join(f"{name} waits for {what}" for name, what in waiting.items())
