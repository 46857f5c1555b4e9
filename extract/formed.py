"""Operands of the warpgroup path that are formed on their way, and folds beside its products.

A left operand that is no tensor of the operand's type (a cast, a product with factors of its row or
depth, a gate), and a fold along the depth (a norm's sum of squares), are computed of elements that
come as tiles, by the warpgroup whose rows they are, while the products before them run: again for
every tile of columns. At least one tensor over rows and depth must come as tiles; others are read
where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nautile.dtypes import DTYPES
from nautile.extract.body import Body, below, inner_terms
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.copied import comes
from nautile.extract.shapes import depth_folds
from nautile.extract.work import operation_cost
from nautile.terms import Axis, Load, Reduce, Term

__all__ = [
    "NOTHING",
    "PACKED",
    "Formed",
    "conversion",
    "converts",
    "formed",
    "forms",
    "right_loads",
    "settles",
]

PACKED = ("bf16", "f16")  # operands that registers hold in pairs
# instructions of an element, by its bytes: its load from shared memory, its conversion
UNPACK = {1: 2.0, 2: 2.0, 4: 4.0}
PACK = 1.0  # those of an element that becomes an operand
PAIRS = ("f8e4m3", "f8e5m2")  # types whose pairs one instruction widens
# instructions of an element: loaded, widened, packed, stored; the warps wait as long again
CONVERT = {True: 4.0, False: 7.0}
LARGEST = 256  # positions of a depth that a warpgroup's registers hold at once
BESIDE = 8.0  # those of an element of rows and depth that is read where it lies


@dataclass(frozen=True, slots=True)
class Formed:
    """What is formed of one body: the loads whose elements come as tiles, whether an operand is,
    and instructions for each element of the rows and the depth; the loads of right operands, and
    instructions for each of their elements."""

    held: frozenset[Load]
    operand: bool
    instructions: float
    right: frozenset[Load] = frozenset()
    converting: float = 0.0


NOTHING = Formed(frozenset(), False, 0.0)


def forms(parts: tuple[Term, ...], row: Axis, deep: set[Axis], operand: str) -> bool:
    """Whether the parts of a side with the rows are formed into an operand."""
    plain = len(parts) == 1 and isinstance(parts[0], Load) and parts[0].buffer.dtype == operand
    if plain or operand not in PACKED or any(reduces(t) for t in parts):
        return False
    return bool(_held(parts, row, deep))


def converts(parts: tuple[Term, ...], across: Axis, deep: set[Axis], operand: str) -> bool:
    """Whether the parts of a side without the rows are formed into an operand, by warps that do
    nothing else, in slots of the ring from which products read."""
    plain = len(parts) == 1 and isinstance(parts[0], Load) and parts[0].buffer.dtype == operand
    if plain or operand not in PACKED or any(reduces(t) for t in parts):
        return False
    return bool(right_loads(parts, across, deep))


def right_loads(parts: tuple[Term, ...], across: Axis, deep: set[Axis]) -> set[Load]:
    """The tensors of a right operand that come as tiles, contiguous along either axis."""
    tiled = deep | {across}
    loads = (t for t in _loads(parts) if _elementwise(t, across, deep))
    return {t for t in loads if comes(t, tiled, tiled)}


def conversion(parts: tuple[Term, ...], across: Axis, deep: set[Axis]) -> float:
    """Instructions for each element of a right operand that is formed."""
    held = right_loads(parts, across, deep)
    beside = sum(_elementwise(t, across, deep) for t in _loads(parts) - held)
    pairs = len(parts) == 1 and all(t.buffer.dtype in PAIRS for t in held)
    return CONVERT[pairs] + _operations(parts, deep) + len(parts) - 1 + BESIDE * beside


def settles(parts: tuple[Term, ...], row: Axis, deep: set[Axis], operand: str) -> bool:
    """Whether the operand can take the place of some of its elements: they are of its type and lie
    along the depth; and all that are held at once fit a thread's registers."""
    held = _held(parts, row, deep)
    along = (t.buffer.dtype == operand and t.coordinates[-1].free & deep for t in held)
    return any(along) and len(held) * max(a.extent for a in deep) <= LARGEST


def formed(body: Body, row: Axis, tensor: Iterable[Contraction]) -> Formed | None:
    """What must be formed where `row` are the rows; None where a fold beside cannot be."""
    held: set[Load] = set()
    count, operand = 0.0, False
    for c in tensor:
        deep = set(c.axes)
        for parts, free in c.sides:
            if row in free and forms(parts, row, deep, c.operand):
                held |= _held(parts, row, deep)
                count += PACK + _operations(parts, deep) + len(parts) - 1
                count += BESIDE * sum(_elementwise(t, row, deep) for t in _loads(parts) - held)
                operand = True
    for fold in depth_folds(body):
        if not isinstance(fold, Reduce) or row not in fold.free:
            return None
        if not _held((fold.body,), row, {fold.axis}):
            return None
        held |= _held((fold.body,), row, {fold.axis})
        count += 1 + _operations((fold.body,), {fold.axis})
    count += sum(UNPACK[DTYPES[t.buffer.dtype].bytes] for t in held)
    return Formed(frozenset(held), operand, count)


def _held(parts: tuple[Term, ...], row: Axis, deep: set[Axis]) -> set[Load]:
    loads = (t for t in _loads(parts) if _elementwise(t, row, deep))
    return {t for t in loads if comes(t, deep | {row}, deep)}


def _loads(parts: tuple[Term, ...]) -> set[Load]:
    return {t for t in inner_terms(parts) if isinstance(t, Load)}


def _elementwise(load: Load, row: Axis, deep: set[Axis]) -> bool:
    return row in load.free and bool(load.free & deep)


def _operations(roots: tuple[Term, ...], deep: set[Axis]) -> float:
    """Operations over the depth; a special function is as many as the lanes it waits for."""
    total, seen, stack = 0.0, set[Term](), list(roots)
    while stack:
        term = stack.pop()
        if term in seen or not term.free & deep:
            continue
        seen.add(term)
        if isinstance(term, Load):
            continue
        plain, special = operation_cost(term)
        total += plain + 8 * special
        stack += below(term)
    return total
