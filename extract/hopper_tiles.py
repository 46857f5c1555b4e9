"""Tiles of the warpgroup path, and what a block of each takes of a multiprocessor.

- tiles: rows 64 (one warpgroup), 128 (two), 192 (three) or 256 (two of 128); columns multiples of
  16, at most 256; a step of a depth that is streamed is 128 bytes of operand; a depth inside a
  stream is whole, and at most 256. Of products whose tiles have 128 rows and at most 128 columns
  together, two warpgroups take tiles in turn: each holds all 128 rows;
- registers of a thread for f32 accumulators and packed operands: `REGISTERS`;
- shared memory: what stays, two slots or more of what is streamed, and 16 KiB a fragment through
  which results of 16 bits are stored.

What is said here of terms, `nautile.codegen.sm90` says of tile programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.body import Body
from nautile.extract.contractions import reduces
from nautile.extract.copied import ELEMENTS, WIDTHS
from nautile.extract.device import Device
from nautile.extract.footprint import Flags, Vector, product
from nautile.extract.formed import NOTHING
from nautile.extract.hopper import (
    EIGHTS,
    FRAGMENT,
    PANEL,
    UNIT,
    WIDEST,
    Warpgroups,
    across,
    whole,
)
from nautile.terms import Axis, Load

__all__ = ["Budget", "budget", "warpgroup_tilings"]

ROWS = {64: 1, 128: 2, 192: 3, 256: 2}  # rows of a block: its consumer warpgroups
COLUMNS = (32, 64, 96, 128, 160, 192, 224, 256)
STREAM = (64, 96, 128, 160, 192, 224, 256)
# registers of a thread for accumulators and packed operands, by consumer warpgroups
REGISTERS = {1: 227, 2: 204, 3: 132}
FORMING = 8  # of those, where warps beside the producer form operands
LAUNCHED = 128  # registers that a thread of four warpgroups is launched with: no product writes all
TURNS = (128, 192)  # rows, and columns at most, of tiles that two warpgroups take in turn
DIRECT = 128  # columns at most of these where results are not stored by the copy engine
STAGING = 16_384  # bytes for each fragment through which results are stored
SYSTEM = 2_048  # bytes of barriers, and of the base's alignment
BY_ENGINE = ("bf16", "f16", "f32")  # types of results that the copy engine stores
STAGES = (16, 2)  # slots of a ring at most: of a product, of a chain


@dataclass(frozen=True, slots=True)
class Budget:
    """What a block of each tiling takes: consumer warpgroups, whether they take tiles in turn,
    registers of a thread for accumulators and packed operands, slots of the rings, bytes of a slot
    and of shared memory, whether results are stored by the copy engine, and whether all fits."""

    consumers: Vector
    in_turn: Flags
    registers: Vector
    stages: Vector
    slot: Vector
    shared: Vector
    staged: Flags
    fits: Flags


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
        return [min(own.steps[axis], whole(axis))]
    if axis in body.reduced:
        return [whole(axis)]
    if axis not in own.columns.values():
        return [1]
    if own.chain and axis.extent <= WIDEST:
        return [whole(axis)]
    sizes = _sizes(axis, COLUMNS)
    return [s for s in sizes if s % FRAGMENT] if own.swapped else sizes


def _sizes(axis: Axis, sizes: tuple[int, ...]) -> list[int]:
    found = [s for s in sizes if s < axis.extent]
    return found + ([whole(axis)] if axis.extent <= sizes[-1] else [])


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
            columns = product(across(c, own.row), tiles, one)
            total = total + np.ceil(columns / UNIT) * UNIT
    return total


def _in_turn(body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector], staged: Flags) -> Flags:
    """Tiles few columns wide of products that are walked in the same steps, and sums of their
    own."""
    walked = any(axis.extent > step for axis, step in own.steps.items()) and own.formed == NOTHING
    depths = {c.axes for c in body.contractions.values() if c.root not in body.free}
    narrow: Flags = _width(body, own, tiles) <= np.where(staged, TURNS[1], DIRECT)
    return narrow & (walked and len(depths) == 1 and _sums(own) == 1)


def _staged(body: Body, own: Warpgroups, tiles: Mapping[Axis, Vector]) -> Flags:
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
