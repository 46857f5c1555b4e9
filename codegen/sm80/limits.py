"""What the tensor-core path for sm_80 and later can hold: the table that the cost model reads.

Tiles. Row, column and depth tiles are multiples of 16, or at least the extent (they are then padded
to 16). Powers of two from 16 to 256 are best for rows and columns. The depth of a contraction is
cut to steps of 128 bytes of operand (64 positions of 16 bits) where it is larger.

Registers. A thread holds rows x columns / (32 x warps) accumulator registers:
- a contraction (and contractions that share an operand, counted together): at most 128 a thread,
  at most 8 warps, so rows x sum of columns <= 32768. Best: 128 x 128 with 4 warps (two blocks a
  multiprocessor), 128 x 256 with 8; a gated pair: 128 x (128 + 128) with 8.
- a streamed chain (scores -> pointwise -> second contraction), or any fold along columns: warps
  divide the rows only, each at least 16 of them; a thread holds, per 16 rows of its warp, half of
  all accumulator columns plus a quarter of each packed operand's. At most 232. With scores of 64
  columns and values of 128: 32 rows a warp; 128 rows need 4 warps.

Few rows. A chain of at most 16 rows (one query, the heads that share a key head) is one warp a
block, and bound by memory: what counts is the bytes under way, about 40 KB a multiprocessor on an
H200 (4.3 TB/s times 1 us over 132). Its ring takes up to 4 slots inside FEW_ROWS_SHARED, so that
four blocks share a multiprocessor of 228 KB: one warp for each of its schedulers, each with
two slots or more on their way.

Shared memory. slots x (right and left tiles of one block) + tiles that stay. 101376 bytes run on
every card from sm_80 to sm_120; H100 and H200 have 232448. A contraction takes up to 4 slots, a
chain 2 (few rows: up to 4); all need 2.

Measured on an H200 (bf16, the ratio to the library in the same run):
- 4096^3: 128 x 128 x 32 0.58 of cuBLAS, 128 x 128 x 64 0.57, 256 x 128 x 64 0.56, 128 x 256 x 64
  0.55, 64 x 256 x 32 0.53, 128 x 256 x 32 0.46, 128 x 192 x 64 0.35, 128 x 64 and 64 x 128 0.43.
  Gated, 4096 x 4096 x 14336: 128 x (64 + 64) x 64 is 8% faster than 128 x (128 + 128) x 64. 16
  rows: 16 x 32 x 64 twice cuBLAS' speed; tf32 0.47 of cuBLAS' tf32. Two blocks a multiprocessor
  hide each other's barriers; more shared memory than PORTABLE_SHARED never paid (128 x 128 x 64
  with four slots, one block a multiprocessor: 0.51).
- attention of 4096 keys, width 128, 128 x 64: 0.99 of FlashAttention 2, causal 1.02; 64 x 32 0.87,
  128 x 32 0.85, 64 x 64 with four warps 0.84 (two: 0.67), 128 x 64 with 8 warps 0.73, with three
  slots 0.77. Width 64, 128 x 64: 0.96, causal 1.06.
- one query, 32 heads of width 128, 32k and 128k keys, split over blocks: cuDNN's time within 2%,
  1.0 to 1.7 times FlashAttention 2; from 134 MB of keys and values on faster than a copy of as many
  bytes. 512 blocks of 32 keys a slot are best, 256 of 64 keys 2-5% slower, 2048 lose 1-3%.
- an operand that is computed on its way (a row factor, a cast from f32) costs up to half the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nautile.dtypes import DTYPES

__all__ = [
    "FEW_ROWS_SHARED",
    "LARGE_SHARED",
    "PORTABLE_SHARED",
    "Options",
    "chain_registers",
    "chain_warps",
    "contraction_warps",
    "feasible",
    "ring_stages",
]

PORTABLE_SHARED = 101376
LARGE_SHARED = 232448
FEW_ROWS_SHARED = 57344  # a quarter of the multiprocessor's, less what the system keeps of a block
CONTRACTION_REGISTERS = 128
CHAIN_REGISTERS = 232
MAX_WARPS = 8
CHAIN_WARPS = 4  # from which on a chain is better split into more blocks


@dataclass(frozen=True, slots=True)
class Options:
    """Schedule choices that a tile program leaves open; None takes the default. `group` row tiles
    are walked together for the second-level cache."""

    warp_rows: int | None = None
    warp_columns: int | None = None
    stages: int | None = None
    group: int | None = None
    blocks: int | None = None
    shared_limit: int = PORTABLE_SHARED
    prefetch: str | None = None


def contraction_warps(rows: int, columns: Sequence[int], least: int = 4) -> tuple[int, int] | None:
    """Warps along rows and columns for accumulators of the given widths, or None where none fit:
    the fewest (but `least`, if so many divide the tile) whose accumulators fit, then the squarest
    warp tile."""
    best: tuple[int, int, int] | None = None
    for wm in (1, 2, 4, 8):
        for wn in (1, 2, 4, 8):
            if wm * wn > MAX_WARPS or not _splits(rows, wm):
                continue
            if any(not _splits(c, wn) for c in columns):
                continue
            if rows * sum(columns) > CONTRACTION_REGISTERS * 32 * wm * wn:
                continue
            traffic = rows // wm + sum(columns) // wn
            if best is None or (max(wm * wn, least), traffic, wm) < best:
                best, chosen = (max(wm * wn, least), traffic, wm), (wm, wn)
    return None if best is None else chosen


def _splits(width: int, warps: int) -> bool:
    """Whether warps can divide a tile: into multiples of 16, powers of two where more than one."""
    part = width // warps
    return width % (16 * warps) == 0 and (warps == 1 or part & (part - 1) == 0)


def chain_registers(row_fragments: int, columns: Sequence[int], packed: Sequence[int]) -> int:
    """Registers of a thread for accumulators and packed operands of the given widths."""
    return row_fragments * (sum(columns) // 2 + sum(packed) // 4)


def chain_warps(rows: int, columns: Sequence[int], packed: Sequence[int]) -> int | None:
    """Warps along the rows of a chain: the fewest that fit, or None. Blocks of 64 rows or fewer
    give a warp 16, so that there are enough warps (measured: 64 x 64 is a quarter faster)."""
    most = 2 if rows > 64 else 1
    for warps in (1, 2, 4, 8):
        if rows % (16 * warps) == 0 and rows // (16 * warps) <= most:
            registers = chain_registers(rows // (16 * warps), columns, packed)
            if registers <= CHAIN_REGISTERS:
                return warps
    return None


def ring_stages(slot: int, stay: int, limit: int, most: int) -> int | None:
    """As many slots as fit beside what stays, at most `most`; None where two do not fit."""
    stages = min(most, (limit - stay) // slot) if slot else most
    return stages if stages >= 2 else None


def feasible(
    rows: int,
    columns: Sequence[int],
    depth: int,
    operand: str,
    *,
    chain: bool = False,
    packed: Sequence[int] = (),
    stay_bytes: int = 0,
    slot_bytes: int | None = None,
    shared_limit: int = LARGE_SHARED,
) -> bool:
    """Whether a block of these tiles can be scheduled. `columns` are the widths of all accumulators
    alive together; for a chain, `packed` those of the operands that stay in registers. Unless
    `slot_bytes` is given, a slot holds the left tile and one right tile for each accumulator."""
    widths = [_padded(c) for c in columns]
    warps: object = (
        chain_warps(_padded(rows), widths, [_padded(p) for p in packed])
        if chain
        else contraction_warps(_padded(rows), widths)
    )
    if slot_bytes is None:
        slot_bytes = (_padded(rows) + sum(widths)) * _padded(depth) * DTYPES[operand].bytes
    return warps is not None and ring_stages(slot_bytes, stay_bytes, shared_limit, 4) is not None


def _padded(tile: int) -> int:
    return -(-tile // 16) * 16
