"""Structure -> memory program with roles: geometry, rings, registers, and the plan of each role."""

from __future__ import annotations

from math import prod

from nautile.codegen.schedule.structure import CapacityError, Structure
from nautile.codegen.sm90.ahead import with_ahead
from nautile.codegen.sm90.consuming import consumer
from nautile.codegen.sm90.covered import check
from nautile.codegen.sm90.filling import former, producer
from nautile.codegen.sm90.memory import Geometry, Operation, RoleProgram
from nautile.codegen.sm90.options import (
    CONSUMER_REGISTERS,
    FORMER_REGISTERS,
    LAUNCHED,
    SPARE_REGISTERS,
    Options,
)
from nautile.codegen.sm90.place import takes
from nautile.codegen.sm90.rings import place
from nautile.codegen.sm90.roles import Roles
from nautile.codegen.sm90.shape import geometry
from nautile.codegen.sm90.streams import Nest, heavy_first, is_formed, is_lagged, items, nests
from nautile.codegen.sm90.values import Values
from nautile.codegen.tile import Bounds

__all__ = ["plan"]


def plan(structure: Structure, options: Options) -> RoleProgram:
    """The memory program; UnsupportedError for what this path does not cover, CapacityError where
    other tiles of the same program would do."""
    roles = _roles(structure, options)
    source, g, placement = structure.program, roles.geometry, roles.placement
    consumers = consumer(roles)
    registers = _registers(roles)
    consumers = _with_ahead(roles, consumers)
    tiles = prod(-(-axis.extent // source.tiles[axis]) for axis in source.grid)
    return RoleProgram(
        source.name,
        g,
        tuple((a, source.tiles[a]) for a in source.grid),
        tuple(source.tiles.items()),
        placement.rings,
        roles.values.accumulators,
        tuple(roles.values.fragments.values()),
        producer(roles),
        consumers,
        registers,
        placement.shared_bytes,
        placement.words,
        min(tiles, options.blocks) // g.cluster * g.cluster,
        heavy_first(structure),
        former=former(roles),
    )


def _roles(structure: Structure, options: Options) -> Roles:
    root = Nest((), Bounds(), items(structure, structure.program.body))
    check(structure)
    values = Values(structure, root)
    block = geometry(structure, root, options)
    dynamic = _dynamic(structure, options, block)
    stages = _stages(structure, options, root)
    placement = place(structure, root, block, options, dynamic, stages)
    values.staging = placement.staging
    values.buffers = placement.buffers
    return Roles(structure, options, root, block, placement, values, dynamic)


def _dynamic(structure: Structure, options: Options, block: Geometry) -> bool:
    """Whether tiles are drawn one by one: where some are heavier, if nothing asks otherwise."""
    rights = (takes(structure, c, c.right) for c in structure.contractions.values())
    if block.alternate or not all(rights):
        return False
    return heavy_first(structure) if options.dynamic is None else options.dynamic


def _stages(structure: Structure, options: Options, root: Nest) -> int:
    """The most slots of a ring."""
    chain = any(
        b.computed(structure) for n in nests(root) for b in n.batches if not is_formed(structure, n)
    )
    return options.stages or (3 if chain else 16)


# -- registers --------------------------------------------------------------------------------


def _with_ahead(roles: Roles, consumers: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """What results are computed with comes early where products alone hold registers."""
    if not all(is_lagged(roles.structure, n) for n in roles.root.nests):
        return consumers
    given = _given(roles)
    room = (given[1] if given else 255) - SPARE_REGISTERS - _held(roles)
    return with_ahead(consumers, roles.geometry, room)


def _held(roles: Roles) -> int:
    """Registers of a consumer's thread that values hold."""
    return roles.values.registers() * roles.geometry.fragments


def _given(roles: Roles) -> tuple[int, int] | None:
    """Registers of the producer's threads, which may form operands, and the consumers'."""
    known = FORMER_REGISTERS if roles.placement.raws else CONSUMER_REGISTERS
    return known[roles.geometry.consumers]


def _registers(roles: Roles) -> tuple[int, int] | None:
    """Those given; CapacityError where values need more."""
    given, held = _given(roles), _held(roles)
    widest = max(a.registers for a in roles.values.accumulators)
    if roles.geometry.consumers == 3 and widest >= LAUNCHED:
        raise CapacityError(f"{widest} accumulators of one product, for three warpgroups")
    if held + SPARE_REGISTERS > (given[1] if given else 255):
        raise CapacityError(f"{held} registers of accumulators a thread")
    return given
