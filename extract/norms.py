"""Norms before a contraction, whose rows stay in shared memory while they are used.

```
norm ::= sum[c](h[row, c] * W[c, ..]), h made of loads and of plain reductions over c, for each row
```

The block copies its rows of the loads once, folds the statistics from them one after another,
replaces the elements by the operand's, and walks the depth with the other operand alone. So the
depth is resident for the rows, whatever its extent, and the reads are those of one pass. The
statistics come before the first product: their time is not hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from nautile.dtypes import DTYPES
from nautile.extract.body import Body, below, inner_terms
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.device import Device
from nautile.extract.footprint import Vector
from nautile.extract.work import operation_cost
from nautile.terms import Axis, Index, Load, Reduce, Term

__all__ = ["STEP", "Norm", "holds", "norm"]

SHARED = 101_376  # bytes of shared memory a block: runs on every card from sm_80 on
STEP = 64  # positions of the depth in a slot of the other operand
SLOT = STEP * 32 * 2  # bytes of a slot of few columns
LANES = 128  # of a multiprocessor's schedulers
ISSUE = 0.6  # instructions a cycle that one warp of a scheduler issues, its loads and sums waiting
FOLD = 1.25  # instructions of an element that a fold reads, besides its operations: unpacked
FORM = 2.5  # those of an element that is formed: unpacked, packed, stored; its factors' loads
LATENCY = 0.8e-6  # seconds until the rows are there, which nothing hides


@dataclass(frozen=True, slots=True)
class Norm:
    """`depth` is the contracted axis; `rows` are the axes of the operand's elements besides;
    `held` the loads that stay in shared memory; `instructions` those for each element."""

    depth: Axis
    rows: frozenset[Axis]
    held: frozenset[Load]
    instructions: float

    def seconds(self, device: Device, busy: Vector, elements: Vector, waves: Vector) -> Vector:
        """The time of the statistics and of forming `elements` a block, before the products."""
        rate = LANES * device.clock * ISSUE
        rounds = -(-busy // device.sms)
        return rounds * elements * self.instructions / rate + waves * LATENCY


def norm(body: Body) -> Norm | None:
    """The norm whose operand all contractions of the body have, or None."""
    found = list(body.contractions.values())
    if not found or not any(reduces(t) for c in found for parts, _ in c.sides for t in parts):
        return None
    sides = [_normed(c) for c in found]
    first = sides[0]
    if first is None or any(
        side != first or c.axes != found[0].axes for side, c in zip(sides, found, strict=True)
    ):
        return None
    parts, rows = first
    depth = found[0].axes[0]
    stats = [t for t in body.stage if t not in body.contractions and t not in body.free]
    inside = inner_terms(parts)
    if not all(isinstance(s, Reduce) and _statistic(s, depth, rows, inside) for s in stats):
        return None
    held = _held(stats, depth, rows)
    element = [t for t in inside if isinstance(t, Load) and depth in t.free and t.free & rows]
    if not element or not held.issuperset(element) or not all(_copied(t, depth) for t in held):
        return None
    return Norm(depth, rows, held, _instructions(stats, parts, depth))


def holds(depth: Axis) -> bool:
    """Whether the rows of one block, 16 of them, fit beside two slots of the other operand."""
    return 16 * 2 * (-(-depth.extent // STEP) * STEP) + 2 * SLOT <= SHARED


def _normed(c: Contraction) -> tuple[tuple[Term, ...], frozenset[Axis]] | None:
    """The side of a contraction over one axis that waits for reductions, and its own axes."""
    if len(c.axes) != 1 or not c.operand:
        return None
    for parts, own in ((c.left, c.rows), (c.right, c.columns)):
        if any(reduces(t) for t in parts):
            return parts, own
    return None


def _statistic(root: Reduce, depth: Axis, rows: frozenset[Axis], inside: tuple[Term, ...]) -> bool:
    """Whether a reduction is of the operand, over its depth, and for each of its rows."""
    plain = root.monoid in ("sum", "max", "min", "prod")
    return plain and root.axis == depth and root.free >= rows and root in inside


def _held(stats: list[Term], depth: Axis, rows: frozenset[Axis]) -> frozenset[Load]:
    return frozenset(
        t for t in inner_terms(stats) if isinstance(t, Load) and depth in t.free and t.free & rows
    )


def _copied(load: Load, depth: Axis) -> bool:
    """Whether rows of the load move to shared memory in aligned pieces."""
    last = load.coordinates[-1]
    return (
        last == Index(depth)
        and load.buffer.dtype in ("bf16", "f16")
        and all(isinstance(c, Index) for c in load.coordinates)
        and load.buffer.shape[-1] == depth.extent
        and load.buffer.shape[-1] * DTYPES[load.buffer.dtype].bytes % 4 == 0
    )


def _instructions(stats: list[Term], parts: tuple[Term, ...], depth: Axis) -> float:
    """For each element: of every fold the operations over the depth, and of the operand."""
    total = 0.0
    for stat in stats:
        assert isinstance(stat, Reduce)
        total += FOLD + 1 + _operations((stat.body,), depth)
    return total + FORM + len(parts) - 1 + _operations(parts, depth)


def _operations(roots: tuple[Term, ...], depth: Axis) -> float:
    """Operations over the depth, those inside other reductions apart; a special function is as
    many as the lanes it waits for."""
    total, seen, stack = 0.0, set[Term](), list(roots)
    while stack:
        term = stack.pop()
        if term in seen or isinstance(term, (Load, Reduce)) or depth not in term.free:
            continue
        seen.add(term)
        plain, special = operation_cost(term)
        total += plain + 8 * special
        stack += below(term)
    return total
