"""Which bodies and tiles the tensor-core path can hold.

The limits are those of the portable emitter: all contractions of a part share a row axis; at most
256 accumulator columns for 128 rows; where a contraction's operand is computed from another's
result (a chain), or something else folds a contraction's columns, warps divide the rows alone and a
thread holds, for each 16 rows, half of all accumulator columns and a quarter of each packed
operand's. A reduction beside the contractions must fold what a contraction made, and every output
be computed from one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nautile.extract.body import Body, below
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.footprint import Vector
from nautile.terms import Axis, Online, Reduce, Term

__all__ = ["PORTABLE_SHARED", "is_chain", "tensor_shapes"]

PORTABLE_SHARED = 101_376  # bytes of shared memory a block: runs on every card from sm_80 on
ACCUMULATORS = 128 * 32 * 8  # a thread's 128, in eight warps
CHAIN_REGISTERS = 232
WARPS = 8
Mask = npt.NDArray[np.bool_]


def tensor_shapes(body: Body, tiles: Mapping[Axis, Vector], one: Vector) -> Mask:
    """The tilings that can be emitted; none where the body itself cannot."""
    none = np.zeros(len(one), dtype=bool)
    tensor = list(body.contractions.values())
    if not all(c.operand for c in tensor) or not _folds_made(body):
        return none
    if not all(_made(o.term, body.contractions) for o in body.outputs):
        return none
    row = _row_axis(tensor, tiles)
    if row is None:
        return none
    rows = tiles[row]
    widths, packed = np.zeros(len(one)), np.zeros(len(one))
    for c in tensor:
        own = c.columns if row in c.rows else c.rows
        widths = widths + _padded(_product(own, tiles, one))
        if any(reduces(t) for parts, _ in c.sides for t in parts):
            packed = packed + _product(frozenset(c.axes), tiles, one)
    if not is_chain(body):
        return rows * widths <= ACCUMULATORS
    fragments = np.maximum(1, np.ceil(rows / (16 * WARPS)))
    return (fragments <= 2) & (fragments * (widths / 2 + packed / 4) <= CHAIN_REGISTERS)


def is_chain(body: Body) -> bool:
    """Whether warps must own whole rows: a contraction takes another's result, or folds of one."""
    computed = any(
        reduces(t) for c in body.contractions.values() for parts, _ in c.sides for t in parts
    )
    return computed or any(r not in body.contractions for r in _reductions(body))


def _reductions(body: Body) -> list[Term]:
    return [r for r in body.stage if r not in body.free]


def _folds_made(body: Body) -> bool:
    """Whether every reduction beside the contractions folds what a contraction made."""
    others = [r for r in _reductions(body) if r not in body.contractions]
    return all(_holds(root, body.contractions) for root in others)


def _holds(root: Term, contractions: Mapping[Term, Contraction]) -> bool:
    """Whether something below the reduction is a contraction."""
    return any(_made(term, contractions) for term in below(root))


def _made(root: Term, contractions: Mapping[Term, Contraction]) -> bool:
    """Whether the term is computed from a contraction."""
    stack, seen = [root], set[Term]()
    while stack:
        term = stack.pop()
        if term in contractions:
            return True
        if term not in seen:
            seen.add(term)
            stack += below(term)
    return False


def _row_axis(tensor: list[Contraction], tiles: Mapping[Axis, Vector]) -> Axis | None:
    """The axis that every contraction has on one side alone, on the computed side if one is."""
    choices: frozenset[Axis] | None = None
    for c in tensor:
        own = c.rows | c.columns
        for parts, _ in c.sides:
            if any(reduces(t) for t in parts):
                own = c.rows if parts is c.left else c.columns
        choices = own if choices is None else choices & own
    folded = {c.root.axis for c in tensor if isinstance(c.root, (Reduce, Online))}
    found = sorted(a for a in choices or () if a in tiles and a not in folded)
    return max(found, key=lambda a: (float(tiles[a].max()), a), default=None)


def _product(axes: frozenset[Axis], tiles: Mapping[Axis, Vector], one: Vector) -> Vector:
    total = np.ones(len(one))
    for axis in axes:
        total = total * tiles.get(axis, 1.0)
    return total


def _padded(width: Vector) -> Vector:
    return np.ceil(width / 16) * 16
