"""Which bodies and tiles the warpgroup path takes (sm_90a: TMA, wgmma, warp roles).

One row axis, on one side of every contraction, is divided among consumer warpgroups: 64 rows each,
or 128 (two fragments). Operands are tiles of tensors as they lie in memory, brought by the copy
engine; the row side of a contraction may also be computed from what another one made, in registers
(a chain). Then:

- tiles: rows 64 (one warpgroup), 128 (two), 192 (three) or 256 (two of 128); columns multiples of
  16, at most 256; a step of a depth that is streamed is 128 bytes of operand; a depth inside a
  stream is whole, and at most 256. Of products whose tiles have 128 rows and at most 128 columns
  together, two warpgroups take tiles in turn: each holds all 128 rows;
- a product of few rows has them as columns: what was its columns' axis is divided among
  warpgroups, and the result is stored across its rows (`swapped`);
- registers of a thread for f32 accumulators and packed operands: `REGISTERS`;
- shared memory: what stays, two slots or more of what is streamed, and 16 KiB a fragment through
  which results of 16 bits are stored;
- operands: bf16 and f16 as they lie; tf32 and fp8 with the depth contiguous. One of a tile's two
  axes is contiguous, coordinates move with both position by position, rows are multiples of 16
  bytes.

What is said here of terms, `nautile.codegen.sm90` says of tile programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from nautile.dtypes import DTYPES
from nautile.extract.body import Body, monoid_of
from nautile.extract.contractions import Contraction, reduces
from nautile.extract.copied import ELEMENTS, WIDTHS, lies
from nautile.extract.device import Device
from nautile.extract.footprint import Vector, product
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

__all__ = ["Budget", "Warpgroups", "budget", "swapped", "warpgroup_tilings", "warpgroups"]

ROWS = {64: 1, 128: 2, 192: 3, 256: 2}  # rows of a block: its consumer warpgroups
COLUMNS = (32, 64, 96, 128, 160, 192, 224, 256)
STREAM = (64, 96, 128, 160, 192, 224, 256)
WIDEST = 256  # columns of one product, and positions of a depth that stays
PANEL = 128  # bytes of a swizzled row, and of a step of a depth
UNIT = 16  # what tiles are multiples of
# registers of a thread for accumulators and packed operands, by consumer warpgroups
REGISTERS = {1: 227, 2: 204, 3: 132}
FORMING = 8  # of those, where warps beside the producer form operands
LAUNCHED = 128  # registers that a thread of four warpgroups is launched with: no product writes all
TURNS = (128, 192)  # rows, and columns at most, of tiles that two warpgroups take in turn
DIRECT = 128  # columns at most of these where results are not stored by the copy engine
STAGING = 16_384  # bytes for each fragment through which results are stored
SYSTEM = 2_048  # bytes of barriers, and of the base's alignment
EIGHTS = ("f8e4m3", "f8e5m2")
LONGEST_SUM = 512  # 8-bit products that the tensor cores sum alone
BY_ENGINE = ("bf16", "f16", "f32")  # types of results that the copy engine stores
STAGES = (16, 2)  # slots of a ring at most: of a product, of a chain
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


@dataclass(frozen=True, slots=True)
class Budget:
    """What a block of each tiling takes: consumer warpgroups, whether they take tiles in turn,
    registers of a thread for accumulators and packed operands, slots of the rings, bytes of a slot
    and of shared memory, whether results are stored by the copy engine, and whether all fits."""

    consumers: Vector
    in_turn: npt.NDArray[np.bool_]
    registers: Vector
    stages: Vector
    slot: Vector
    shared: Vector
    staged: npt.NDArray[np.bool_]
    fits: npt.NDArray[np.bool_]


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
    columns = {c.root: _wide(body, _across(c, row)) for c in tensor}
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


def _across(c: Contraction, row: Axis) -> frozenset[Axis]:
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
    return None, {a: _whole(a) if a == inner else 1 for a in axes}


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
    return None, {longest: PANEL // depths[longest]} | {a: _whole(a) for a in short}


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


# ---- tiles -------------------------------------------------------------------------------------


def warpgroup_tilings(body: Body, own: Warpgroups) -> dict[Axis, Vector]:
    """Every combination of tiles of the path whose accumulators fit the registers."""
    options = {axis: _options(body, own, axis) for axis in body.axes}
    index = np.indices([len(o) for o in options.values()]).reshape(len(options), -1)
    tiles: dict[Axis, Vector] = {
        axis: np.array(sizes, dtype=float)[index[k]]
        for k, (axis, sizes) in enumerate(options.items())
    }
    consumers = _consumers(own, tiles)
    keep = _registers(body, own, tiles, consumers) <= _most(own, consumers)
    return {axis: size[keep] for axis, size in tiles.items()}


def _options(body: Body, own: Warpgroups, axis: Axis) -> list[int]:
    if axis == own.row:
        return [r for r in ROWS if r < axis.extent + min(ROWS)]
    if axis == own.stream:
        return _sizes(axis, STREAM)
    if axis in own.steps:
        return [min(own.steps[axis], _whole(axis))]
    if axis in body.reduced:
        return [_whole(axis)]
    if axis not in own.columns.values():
        return [1]
    if own.chain and axis.extent <= WIDEST:
        return [_whole(axis)]
    sizes = _sizes(axis, COLUMNS)
    return [s for s in sizes if s % FRAGMENT] if own.swapped else sizes


def _sizes(axis: Axis, sizes: tuple[int, ...]) -> list[int]:
    found = [s for s in sizes if s < axis.extent]
    return found + ([_whole(axis)] if axis.extent <= sizes[-1] else [])


def _whole(axis: Axis) -> int:
    return -(-axis.extent // UNIT) * UNIT


# ---- what a block takes ------------------------------------------------------------------------


def budget(body: Body, own: Warpgroups, device: Device, tiles: Mapping[Axis, Vector]) -> Budget:
    """Registers and shared memory of each tiling."""
    consumers, rows = _consumers(own, tiles), tiles[own.row]
    registers = _registers(body, own, tiles, consumers)
    staged = _staged(body, own, tiles)
    in_turn = (rows == TURNS[0]) & _in_turn(body, own, tiles, staged)
    registers = np.where(in_turn, consumers * registers, registers)
    fragments = np.where(in_turn, consumers, 1) * rows / 64
    slot, stay = _bytes(body, own, tiles)
    staging = STAGING * fragments * staged
    room = device.shared_bytes - SYSTEM - stay - staging
    stages = np.clip(np.floor(room / np.maximum(slot, 1)), 0, STAGES[own.chain])
    fits = (registers <= _most(own, consumers)) & (stages >= 2)
    shared = SYSTEM + stay + staging + stages * slot
    shared = shared + np.where(shared + stay <= device.shared_bytes, stay, 0)  # the next tile's
    return Budget(consumers, in_turn, registers, stages, slot, shared, staged, fits)


def _consumers(own: Warpgroups, tiles: Mapping[Axis, Vector]) -> Vector:
    rows = tiles[own.row]
    return np.select([rows == r for r in ROWS], list(ROWS.values()), 2).astype(float)


def _sums(own: Warpgroups) -> int:
    """Sums of 8-bit products are kept beside those of one step."""
    return 2 if not own.chain and any(o in EIGHTS for o in own.operands.values()) else 1


def _most(own: Warpgroups, consumers: Vector) -> Vector:
    most = np.select([consumers == n for n in REGISTERS], list(REGISTERS.values())).astype(float)
    most = np.where((consumers > 1) & bool(own.formed.right), most - FORMING, most)
    whole = np.minimum(most, (LAUNCHED - 1) * _sums(own))
    return most if own.chain else np.where(consumers == 3, whole, most)


def _registers(
    body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector], consumers: Vector
) -> Vector:
    """Of a thread where warpgroups share a tile."""
    one = np.ones(len(consumers))
    packed = 0 * one
    for c in body.contractions.values():
        if any(reduces(t) for parts, _ in c.sides for t in parts):
            width = WIDTHS[own.operands.get(c.root, c.operand)]
            packed = packed + product(c.axes, tiles, one) * width / 2
    fragments = tiles[own.row] / (64 * consumers)
    # in a chain they are gone when the stream begins
    depth = max(own.steps.values(), default=0) if own.formed != NOTHING else 0
    elements = depth * (len(own.formed.held) / 2 + own.formed.operand / 4)
    total: Vector = fragments * (_sums(own) * _width(body, own, tiles) / 2 + packed / 4 + elements)
    return total


def _width(body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector]) -> Vector:
    """Columns of all accumulators together."""
    one = np.ones(len(tiles[own.row]))
    total = 0 * one
    for c in body.contractions.values():
        if c.root not in body.free:
            columns = product(_across(c, own.row), tiles, one)
            total = total + np.ceil(columns / UNIT) * UNIT
    return total


def _in_turn(
    body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector], staged: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tiles few columns wide of products that are walked in the same steps, and sums of their
    own."""
    walked = any(axis.extent > step for axis, step in own.steps.items()) and own.formed == NOTHING
    depths = {c.axes for c in body.contractions.values() if c.root not in body.free}
    narrow: npt.NDArray[np.bool_] = _width(body, own, tiles) <= np.where(staged, TURNS[1], DIRECT)
    return narrow & (walked and len(depths) == 1 and _sums(own) == 1)


def _staged(body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector]) -> npt.NDArray[np.bool_]:
    """Whether all results go through shared memory, and from there by the copy engine: they are of
    types that it stores, in rows of whole panels."""
    found = tiles[own.row] > 0
    for o in body.outputs:
        column, width = o.axes[-1], DTYPES[o.buffer.dtype].bytes
        known = o.buffer.dtype in BY_ENGINE and column in own.columns.values()
        if not known or o.buffer.shape[-1] * width % 16:
            return ~found
        panels = tiles[column] * width % PANEL == 0
        found = found & (panels | (tiles[column] >= column.extent))
    return found


def _bytes(body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector]) -> tuple[Vector, Vector]:
    """Shared memory of one slot of all that is streamed, and of what stays for a tile."""
    one = np.ones(len(tiles[own.row]))
    slot, stay = 0 * one, 0 * one
    walked = {own.stream, *own.steps}
    operands = {
        t: own.operands.get(c.root, c.operand)
        for c in body.contractions.values()
        for parts, _ in c.sides
        for t in parts
        if isinstance(t, Load) and len(parts) == 1
    } | {t: t.buffer.dtype for t in own.formed.held | own.formed.right}
    for load, operand in operands.items():
        width = ELEMENTS.get(operand, 2)
        inner = product(load.coordinates[-1].free, tiles, one)
        outer = product(load.free, tiles, one) / inner
        held = np.ceil(inner * width / PANEL) * PANEL * outer
        if load in own.formed.right:
            raw = DTYPES[load.buffer.dtype].bytes
            stay = stay + 2 * np.ceil(inner * raw / PANEL) * PANEL * outer
            slot = slot + np.ceil(inner * 2 / PANEL) * PANEL * outer
        elif load.free & walked:
            slot = slot + held
        else:
            stay = stay + held
    return slot, stay
