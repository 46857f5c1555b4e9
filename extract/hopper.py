"""Which bodies and tiles the warpgroup path takes (sm_90a: TMA, wgmma, warp roles).

One row axis, on one side of every contraction, is divided among consumer warpgroups: 64 rows each,
or 128 (two fragments). Operands are tiles of tensors as they lie in memory, brought by the copy
engine; the row side of a contraction may also be computed from what another one made, in registers
(a chain). Then:

- a product of few rows has them as columns: what was its columns' axis is divided among
  warpgroups, and the result is stored across its rows (`swapped`);
- operands: bf16 and f16 as they lie; tf32 and fp8 with the depth contiguous. One of a tile's two
  axes is contiguous, coordinates move with both position by position, rows are multiples of 16
  bytes.

`hopper_tiles` tells what tiles there are. What is said here of terms, `nautile.codegen.sm90` says
of tile programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nautile.extract.body import Body, monoid_of
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.copied import WIDTHS, lies
from nautile.extract.formed import (
    NOTHING,
    Formed,
    conversion,
    converts,
    formed,
    forms,
    right_loads,
    settles,
)
from nautile.extract.norms import norm
from nautile.extract.shapes import DEPTH_FOLDS, depth_folds, is_chain, row_choices
from nautile.terms import Axis, Load, Online, Reduce, Term

__all__ = ["Warpgroups", "across", "swapped", "warpgroups", "whole"]

WIDEST = 256  # columns of one product, and positions of a depth that stays
PANEL = 128  # bytes of a swizzled row, and of a step of a depth
UNIT = 16  # what tiles are multiples of
EIGHTS = ("f8e4m3", "f8e5m2")
LONGEST_SUM = 512  # 8-bit products that the tensor cores sum alone
FEWEST = (8, 33)  # rows of a product, and of a chain, from which on the path is worth its fragments
FRAGMENT = 64  # rows of a warpgroup's product: other tiles have their rows as columns


@dataclass(frozen=True, slots=True)
class Warpgroups:
    """How the path sees a body: the row axis that warpgroups divide; for each contraction, the axis
    of its columns' tile; the axis that is streamed past a chain's rows (None without a chain); the
    depths that are walked, and in which steps; whether the rows are those that were columns; what
    is formed on its way; the operand type of each contraction."""

    row: Axis
    columns: Mapping[Term, Axis | None]
    stream: Axis | None
    steps: Mapping[Axis, int]
    swapped: bool = False
    formed: Formed = NOTHING
    operands: Mapping[Term, str] = field(default_factory=dict)

    @property
    def chain(self) -> bool:
        """Whether one contraction takes another's result, or something folds its columns."""
        return self.stream is not None


def warpgroups(body: Body) -> Warpgroups | None:
    """How the path takes the body, or None where it does not."""
    tensor = _tensor(body)
    rows, chain = _rows(body, tensor), is_chain(body)
    if not rows or rows[0].extent < FEWEST[chain]:
        return None
    return _taken(body, tensor, rows[0])


def swapped(body: Body) -> Warpgroups | None:
    """How the path takes a product of few rows as the columns of the transposed product, or None
    where it does not."""
    tensor = _tensor(body)
    rows = _rows(body, tensor)
    if len(rows) < 2 or is_chain(body) or rows[1].extent < FRAGMENT:
        return None
    few = 1 < rows[0].extent <= WIDEST
    found = _taken(body, tensor, rows[1]) if few else None
    if found is None or set(found.columns.values()) != {rows[0]}:
        return None
    return replace(found, swapped=True)


def _tensor(body: Body) -> list[Contraction]:
    return [c for c in body.contractions.values() if c.root not in body.free]


def _taken(body: Body, tensor: list[Contraction], row: Axis) -> Warpgroups | None:
    """With an axis as the rows."""
    if not all(c.operand in WIDTHS for c in tensor) or norm(body):
        return None
    made = formed(body, row, tensor)
    beside = len({c.axes for c in tensor}) > 1 and not is_chain(body)
    if made is None or (made != NOTHING and beside):
        return None
    if not _columns_folded(body) or not all(row in o.axes for o in body.outputs):
        return None
    columns = {c.root: _wide(body, across(c, row)) for c in tensor}
    walks = _chain(body, tensor) if is_chain(body) else _product(tensor)
    if walks is None:
        return None
    found = Warpgroups(row, columns, *walks, formed=made)
    found = replace(found, operands={c.root: _used(c, found) for c in tensor})
    if not all(_takes(c, found) for c in tensor):
        return None
    return replace(found, formed=_with_rights(made, tensor, found))


def _used(c: Contraction, own: Warpgroups) -> str:
    """The type of the operands: 8-bit floats that are computed, or do not lie along the depth, are
    multiplied as f16."""
    if c.operand not in EIGHTS:
        return c.operand
    across, deep = own.columns[c.root], _deep(c, own)
    for parts, free in c.sides:
        tiled = deep | {own.row if own.row in free or across is None else across}
        if len(parts) > 1 or not lies(parts[0], tiled, deep, c.operand):
            return "f16"
    return c.operand


def _with_rights(made: Formed, tensor: list[Contraction], own: Warpgroups) -> Formed:
    """With right operands that are formed on their way."""
    loads: set[Load] = set()
    most = 0.0
    for c in tensor:
        across, deep = own.columns[c.root], _deep(c, own)
        for parts, free in c.sides:
            if across is None or own.row in free:
                continue
            if converts(parts, across, deep, own.operands[c.root]):
                loads |= right_loads(parts, across, deep)
                most = max(most, conversion(parts, across, deep))
    return replace(made, right=frozenset(loads), converting=most)


def _deep(c: Contraction, own: Warpgroups) -> set[Axis]:
    """The depths with a tile."""
    return {a for a in c.axes if own.chain or own.steps[a] > 1}


# ---- structure ---------------------------------------------------------------------------------


def _columns_folded(body: Body) -> bool:
    """Whether every reduction besides contractions folds the columns of one."""
    known = {*body.contractions, *body.free, *depth_folds(body)}
    columns = frozenset[Axis]().union(*(c.rows | c.columns for c in body.contractions.values()))
    others = [r for r in body.stage if r not in known]
    return all(_folds(r, columns) for r in others)


def _folds(root: Term, columns: frozenset[Axis]) -> bool:
    assert isinstance(root, (Reduce, Online))
    moved = isinstance(root, Online) and root.offset is not None
    return monoid_of(root) in DEPTH_FOLDS and root.axis in columns and not moved


def _rows(body: Body, tensor: list[Contraction]) -> list[Axis]:
    """What may be the rows, the best first: not the axis along which results lie side by side
    before it; those of the left operand before those of the right one."""
    if not tensor:
        return []
    last = {o.axes[-1] for o in body.outputs if o.axes}
    first = min(tensor, key=lambda c: body.inside.index(c.root))
    sides = (_wide(body, first.rows), _wide(body, first.columns))
    choices = [a for a in row_choices(tensor, []) if a in body.grid]
    return sorted((a for a in sides if a in choices), key=lambda a: a in last)


def across(c: Contraction, row: Axis) -> frozenset[Axis]:
    """The axes of the side that has not the rows."""
    return c.columns if row in c.rows else c.rows


def _wide(body: Body, side: frozenset[Axis]) -> Axis | None:
    """Of the axes of one side, the one that is tiled: a reduced one, or the innermost of 16
    positions or more, or the longest."""
    folded = sorted(side & set(body.reduced))
    if folded:
        return folded[0] if len(folded) == 1 else None
    grid = [a for a in body.grid if a in side]
    if not grid:
        return None
    long = [a for a in grid if a.extent >= 16] or [max(grid, key=lambda a: a.extent)]
    return long[-1]


Walks = tuple[Axis | None, Mapping[Axis, int]]


def _product(tensor: list[Contraction]) -> Walks | None:
    """Contractions over the same axes: one is walked in steps of a panel; of several one that a
    tile holds is whole, best one along which operands lie side by side, then the longest, and the
    others are walked one by one. Of contractions over an axis each the longest is walked so, and
    the others are whole."""
    axes = set(tensor[0].axes)
    if any(set(c.axes) != axes for c in tensor):
        return _beside(tensor)
    if len(axes) == 1:
        return None, dict.fromkeys(axes, PANEL // max(WIDTHS[c.operand] for c in tensor))
    held = [a for a in axes if a.extent <= WIDEST]
    if not held:
        return None
    inner = max(held, key=lambda a: (_contiguous(tensor, a), a.extent, a))
    return None, {a: whole(a) if a == inner else 1 for a in axes}


def _contiguous(tensor: list[Contraction], axis: Axis) -> int:
    """How many operands lie side by side along an axis."""
    parts = {t for c in tensor for side, _ in c.sides for t in side if isinstance(t, Load)}
    return sum(bool(t.coordinates) and axis in t.coordinates[-1].free for t in parts)


def _beside(tensor: list[Contraction]) -> Walks | None:
    """A product, and short ones beside it."""
    depths = {c.axes[0]: WIDTHS[c.operand] for c in tensor}
    longest = max(depths, key=lambda a: (a.extent, a))
    short = [a for a in depths if a != longest]
    if any(len(c.axes) > 1 for c in tensor) or any(a.extent > WIDEST for a in short):
        return None
    return None, {longest: PANEL // depths[longest]} | {a: whole(a) for a in short}


def _chain(body: Body, tensor: list[Contraction]) -> Walks | None:
    """One streamed axis, along which results are contracted or folded; the other depths whole."""
    late = {c.root for c in tensor if any(reduces(t) for parts, _ in c.sides for t in parts)}
    beside = {*body.contractions, *body.free, *depth_folds(body)}
    late |= {r for r in body.stage if r not in beside}
    streamed = {r.axis for r in late if isinstance(r, (Reduce, Online))}
    passes = [k for axis, k in body.passes if axis in streamed]
    inner = [a for c in tensor if c.root not in late for a in c.axes]
    if len(streamed) != 1 or any(a.extent > WIDEST or a in streamed for a in inner):
        return None
    (stream,) = streamed
    if any(c.axes != (stream,) for c in tensor if c.root in late):
        return None
    if any(fold.free & {stream} for fold in depth_folds(body)):
        return None
    if any(isinstance(f, Reduce) and f.axis == stream for f in depth_folds(body)):
        return None
    return (stream, {}) if len(passes) == 1 or stream.extent <= WIDEST else None


def _takes(c: Contraction, own: Warpgroups) -> bool:
    """Whether every operand is a tile as it lies, or for the rows one of registers."""
    across = own.columns[c.root]
    if across is None:
        return False
    deep, operand = _deep(c, own), own.operands[c.root]
    walked = {own.stream, *own.steps}
    for parts, free in c.sides:
        tiled = deep | {own.row if own.row in free else across}
        if any(reduces(t) for t in parts):
            if own.row not in free or not own.chain:
                return False
        elif own.row in free and _forms(c, parts, own, deep):
            continue
        elif own.row not in free and converts(parts, across, deep, operand):
            if not free & walked:
                return False
        elif len(parts) > 1 or not lies(parts[0], tiled, deep, operand):
            return False
    return True


def _forms(c: Contraction, parts: tuple[Term, ...], own: Warpgroups, deep: set[Axis]) -> bool:
    """Whether a side with the rows is formed of elements; in a chain, once a tile in the place of
    some of them."""
    operand = own.operands[c.root]
    if not forms(parts, own.row, deep, operand):
        return False
    stays = all(own.stream not in t.free for t in parts)
    return not own.chain or (stays and settles(parts, own.row, deep, operand))


def whole(axis: Axis) -> int:
    """The tile that holds all of an axis."""
    return -(-axis.extent // UNIT) * UNIT
