"""Which bodies and tiles the tensor-core path can hold.

The limits are those of the portable emitter: all contractions of a part share a row axis; at most
256 accumulator columns for 128 rows; where a contraction's operand is computed from another's
result (a chain), or something else folds a contraction's columns, warps divide the rows alone and a
thread holds, for each 16 rows, half of all accumulator columns and a quarter of each packed
operand's. A reduction beside the contractions must fold what a contraction made, or be a fold of
what a row has along a contracted axis, in the contraction's own pass (a norm before it). Every
output must be computed from a contraction or such a fold. A norm before a contraction may also fold
and form its rows in shared memory (`norms`), which then hold the whole depth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nautile.extract.body import Body, below, monoid_of
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.footprint import Flags, Vector
from nautile.extract.norms import norm
from nautile.terms import Axis, Online, Reduce, Term

__all__ = ["PORTABLE_SHARED", "depth_folds", "is_chain", "row_choices", "tensor_shapes"]

PORTABLE_SHARED = 101_376  # bytes of shared memory a block: runs on every card from sm_80 on
ACCUMULATORS = 128 * 32 * 8  # a thread's 128, in eight warps
CHAIN_REGISTERS = 232
WARPS = 8
DEPTH_FOLDS = ("sum", "max", "min", "prod")


def tensor_shapes(body: Body, tiles: Mapping[Axis, Vector], one: Vector) -> Flags:
    """The tilings that can be emitted; none where the body itself cannot."""
    none = np.zeros(len(one), dtype=bool)
    tensor = list(body.contractions.values())
    before = norm(body)
    if not all(c.operand for c in tensor) or not (before or _folds_made(body)):
        return none
    folds = [] if before else depth_folds(body)
    made = {*body.contractions, *folds}
    if not all(_made(o.term, made) for o in body.outputs):
        return none
    row = _row_axis(tensor, folds, tiles)
    if row is None and all(c.rows and c.columns for c in tensor):
        return none  # where one operand is a row that no axis names, the block has that row
    rows = np.ones(len(one)) if row is None else tiles[row]
    alone = np.ones(len(one), dtype=bool)
    for root in folds:
        alone &= _product(root.free - {row}, tiles, one) == 1
    if before:
        alone &= _product(before.rows - {row}, tiles, one) == 1
        if row not in before.rows:
            return none
    widths, packed = np.zeros(len(one)), np.zeros(len(one))
    for c in tensor:
        own = c.rows | c.columns if row is None else c.columns if row in c.rows else c.rows
        widths = widths + _padded(_product(own, tiles, one))
        if any(reduces(t) for parts, _ in c.sides for t in parts):
            packed = packed + _product(frozenset(c.axes), tiles, one)
    if not is_chain(body):
        pieces = any(c.operand == "f32" for c in tensor)  # take registers of their own
        return alone & (rows * widths <= ACCUMULATORS / (2 if pieces else 1))
    fragments = np.maximum(1, np.ceil(rows / (16 * WARPS)))
    return alone & (fragments <= 2) & (fragments * (widths / 2 + packed / 4) <= CHAIN_REGISTERS)


def is_chain(body: Body) -> bool:
    """Whether warps must own whole rows: a contraction takes another's result, or folds of one."""
    if norm(body):
        return False
    computed = any(
        reduces(t) for c in body.contractions.values() for parts, _ in c.sides for t in parts
    )
    others = [r for r in _reductions(body) if r not in body.contractions]
    return computed or len(others) > len(depth_folds(body))


def _reductions(body: Body) -> list[Term]:
    return [r for r in body.stage if r not in body.free]


def depth_folds(body: Body) -> list[Term]:
    """The folds beside a contraction, along its depth and in its pass, of what no reduction made
    (running values apart)."""
    steps = {
        (axis, body.stage[c.root])
        for c in body.contractions.values()
        if c.operand
        for axis in c.axes
    }
    return [
        root
        for root in _reductions(body)
        if root not in body.contractions
        and isinstance(root, (Reduce, Online))
        and monoid_of(root) in DEPTH_FOLDS
        and (root.axis, body.stage[root]) in steps
        and not any(reduces(t) for t in below(root))
    ]


def _folds_made(body: Body) -> bool:
    """Whether every reduction beside the contractions folds what a contraction made, or along the
    depth of one."""
    beside = depth_folds(body)
    others = [r for r in _reductions(body) if r not in body.contractions and r not in beside]
    return all(_holds(root, body.contractions) for root in others)


def _holds(root: Term, contractions: Collection[Term]) -> bool:
    """Whether something below the reduction is a contraction."""
    return any(_made(term, contractions) for term in below(root))


def _made(root: Term, contractions: Collection[Term]) -> bool:
    """Whether the term is computed from one of the reductions."""
    stack, seen = [root], set[Term]()
    while stack:
        term = stack.pop()
        if term in contractions:
            return True
        if term not in seen:
            seen.add(term)
            stack += below(term)
    return False


def _row_axis(
    tensor: list[Contraction], folds: list[Term], tiles: Mapping[Axis, Vector]
) -> Axis | None:
    """Of the axes that may be a block's rows the one with the largest tiles."""
    found = [a for a in row_choices(tensor, folds) if a in tiles]
    return max(found, key=lambda a: (float(tiles[a].max()), a), default=None)


def row_choices(tensor: Sequence[Contraction], folds: Sequence[Term]) -> list[Axis]:
    """The axes that every contraction has on one side alone, on the computed side if one is, and
    every fold along a depth has."""
    choices: frozenset[Axis] | None = None
    for c in tensor:
        own = c.rows | c.columns
        for parts, _ in c.sides:
            if any(reduces(t) for t in parts):
                own = c.rows if parts is c.left else c.columns
        choices = own if choices is None else choices & own
    for root in folds:
        choices = (choices or frozenset()) & root.free
    folded = {c.root.axis for c in tensor if isinstance(c.root, (Reduce, Online))}
    return sorted(a for a in choices or () if a not in folded)


def _product(axes: frozenset[Axis], tiles: Mapping[Axis, Vector], one: Vector) -> Vector:
    total = np.ones(len(one))
    for axis in axes:
        total = total * tiles.get(axis, 1.0)
    return total


def _padded(width: Vector) -> Vector:
    return np.ceil(width / 16) * 16
