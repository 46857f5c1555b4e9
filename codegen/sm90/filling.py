"""The plan of the roles that fill slots: the producer, and the warps that form right operands."""

from __future__ import annotations

from nautile.codegen.schedule.structure import UnsupportedError
from nautile.codegen.sm90.memory import (
    Advance,
    Arrive,
    Fill,
    Operation,
    Release,
    Tiles,
    WaitEmpty,
    WaitFull,
)
from nautile.codegen.sm90.roles import Roles
from nautile.codegen.sm90.streams import Batch, Nest

__all__ = ["former", "producer"]


def producer(roles: Roles) -> tuple[Operation, ...]:
    """What fills every slot, in the order in which consumers and formers read them."""
    body: list[Operation] = []
    stay = roles.placement.stay
    staying: list[Operation] = [] if stay is None else [WaitEmpty(stay), Fill(stay), Advance(stay)]
    moving = [fill for nest in roles.root.nests for fill in _fills(roles, nest)]
    body += [*moving, *staying] if roles.stays_late() else [*staying, *moving]
    return (Tiles("dynamic" if roles.dynamic else "static", tuple(body), stay),)


def _fills(roles: Roles, nest: Nest) -> list[Operation]:
    """A stream that fills every slot of a nest, in the order in which it is read."""
    found: list[Operation] = []
    for item in nest.items:
        if isinstance(item, Batch):
            for ring in (roles.placement.raw(item), roles.placement.ring(item)):
                found += [WaitEmpty(ring), Fill(ring), Advance(ring)] if ring else []
        if isinstance(item, Nest):
            found += _fills(roles, item)
    return [roles.stream(nest, (), found)] if found else []


def former(roles: Roles) -> tuple[Operation, ...]:
    """What forms right operands, in the order in which the producer fills slots."""
    body = [s for nest in roles.root.nests for s in _forms(roles, nest)]
    return (Tiles("static", tuple(body), roles.placement.stay),) if body else ()


def _forms(roles: Roles, nest: Nest) -> list[Operation]:
    """A stream that forms a nest's operands: each from what lies in a slot of its own."""
    found: list[Operation] = []
    for item in nest.items:
        if isinstance(item, Nest):
            found += _forms(roles, item)
        if not isinstance(item, Batch):
            continue
        ring, raw = roles.placement.ring(item), roles.placement.raw(item)
        if ring is not None and raw is not None:
            found += [WaitFull(raw), WaitEmpty(ring), *roles.placement.converts(item)]
            found += [Arrive(ring), Release(raw), Advance(raw), Advance(ring)]
        elif ring is not None and any(b.formed for b in ring.boxes):
            raise UnsupportedError("loops that form the same operand")
    return [roles.stream(nest, (), found)] if found else []
