"""What a plan decides about values in registers: reads, precision, and how they are stored."""

from __future__ import annotations

from nautile.codegen.memory import Store
from nautile.codegen.schedule.affine import coefficient, divisor, offset
from nautile.codegen.schedule.structure import Structure, statements
from nautile.codegen.tile import Fold, Map, Mma, Ref, Statement, Write
from nautile.codegen.types import dtype_of
from nautile.terms import Apply, Axis, Const, Load, Term, apply, transform, walk

__all__ = ["IDENTITY", "gathers", "narrowed", "reads", "reciprocals", "writes"]

IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
"""What a fold of f32 begins with, and what takes no part in it."""


def gathers(op: Store, warp_columns: int) -> bool:
    """Whether a two-byte output's rows can leave shared memory in aligned pieces of 16 bytes."""
    column = op.source.column
    if column is None or op.buffer.dtype not in ("bf16", "f16"):
        return False
    form = offset(Load(op.buffer, op.coordinates))
    return (
        coefficient(form, column) == 1
        and divisor(form, column, 8) == 8
        and column.extent % 8 == 0
        and op.source.columns // warp_columns % 8 == 0
    )


def reciprocals(value: Term, column: Axis | None) -> Term:
    """Quotients by a value of the row become products with its reciprocal, taken once a row."""

    def step(t: Term) -> Term:
        match t:
            case Apply("div", (a, b)) if column in a.free and column not in b.free:
                if not isinstance(b, Const) and dtype_of(t) == "f32":
                    return apply("mul", a, apply("div", Const(1.0), b))
        return t

    return value if column is None else transform(value, step)


def writes(body: tuple[Statement, ...]) -> list[Write]:
    return [s for s in statements(body) if isinstance(s, Write)]


def narrowed(structure: Structure) -> frozenset[str]:
    """The values from which computed operands of 16 bits or fewer, or their repairs, are made."""
    found = list(statements(structure.program.body))
    made = {s.target.name: s for s in found if isinstance(s, (Map, Fold))}
    pending: list[str] = []
    for c in structure.contractions.values():
        if c.left.name not in structure.pure and c.operand not in ("tf32", "f32"):
            pending += [c.left.name]
            pending += [c.statement.repair.name] if c.statement.repair else []
    result: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in result and name in made:
            result.add(name)
            pending += reads(made[name])
    return frozenset(result)


def reads(s: Statement) -> set[str]:
    """Names of the tiles that a statement reads."""
    match s:
        case Map(_, value):
            return {t.tile.name for t in walk(value) if isinstance(t, Ref)}
        case Fold():
            return {s.source.name} | ({s.repair.name} if s.repair else set())
        case Mma():
            return {s.left.name, s.right.name} | ({s.repair.name} if s.repair else set())
        case Write():
            return {s.source.name}
    return set()
