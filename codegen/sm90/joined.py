"""Which contractions one instruction makes together, and how deep it is."""

from __future__ import annotations

from nautile.codegen.schedule.structure import Contraction, Structure, UnsupportedError
from nautile.codegen.sm90.rings import Placement
from nautile.codegen.sm90.streams import Batch
from nautile.codegen.sm90.wgmma import DEPTH

__all__ = ["deep", "joined"]

WIDEST = 256  # columns of one product


def joined(
    structure: Structure, batch: Batch, placement: Placement, home: Batch
) -> list[list[Contraction]]:
    """Contractions of one left operand whose right boxes lie one after the other."""
    groups: list[list[Contraction]] = []
    for c in batch.contractions:
        if groups and _joins(structure, groups[-1], c, placement, home):
            groups[-1].append(c)
        else:
            groups.append([c])
    return groups


def _joins(
    structure: Structure,
    group: list[Contraction],
    c: Contraction,
    placement: Placement,
    home: Batch,
) -> bool:
    last = group[-1]
    (a, ring), (b, other) = (placement.box(home, x, x.right) for x in (last, c))
    columns = sum(structure.width(x.column) for x in (*group, c))
    along = a.inner == last.axis
    if (last.left, last.axis, last.operand) != (c.left, c.axis, c.operand) or ring != other:
        return False
    if columns > WIDEST or b.offset != a.offset + a.bytes or along != (b.inner == c.axis):
        return False
    if along:
        return a.panels == 1 == b.panels and a.rows == structure.width(last.column)
    return a.columns % a.panel == 0 and a.panel_bytes == b.panel_bytes


def deep(structure: Structure, c: Contraction) -> int:
    """Positions of the contracted axis, in whole instructions."""
    step, width = DEPTH[c.operand], structure.width(c.axis)
    if width % step and structure.program.tiles[c.axis] < c.axis.extent:
        raise UnsupportedError(f"{width} positions of {c.axis} in steps of {step}")
    return -(-width // step) * step
