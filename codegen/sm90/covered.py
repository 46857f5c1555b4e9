"""What this path leaves to other emitters, by the structure of a program alone."""

from __future__ import annotations

from nautile.codegen.schedule.registers import writes
from nautile.codegen.schedule.structure import (
    CapacityError,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Fold

__all__ = ["check"]


def check(structure: Structure) -> None:
    """UnsupportedError, or CapacityError where other tiles would do."""
    if structure.deep:
        raise UnsupportedError("operands made of values of the row")
    for s in statements(structure.program.body):
        if isinstance(s, Fold) and structure.folded(s) is not None:
            raise UnsupportedError(f"{s.target.name} folds elements of an operand")
    for c in structure.contractions.values():
        if c.operand == "f32":
            raise UnsupportedError("products of tf32 pieces")
        if c.statement.offset is not None:
            raise UnsupportedError("sums that are moved by an offset")
        if structure.width(c.column) > 256:
            raise CapacityError(f"{structure.width(c.column)} columns of one product")
        if structure.operand(c.left.name) is None and c.operand not in ("bf16", "f16"):
            raise UnsupportedError(f"computed operands of {c.operand}")
    if any(isinstance(s, Fold) and s.offset for s in statements(structure.program.body)):
        raise UnsupportedError("sums that are moved by an offset")
    if not writes(structure.program.body):
        raise UnsupportedError("nothing is stored")
