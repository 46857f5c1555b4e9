"""Addresses and loads of fragments in shared memory.

A lane's address is `base + rows * pitch + (first ^ chunk * 16)`: the row part and `first` (its own
chunk, swizzled) are set once, steps of 16 rows are constants, and steps of chunks an exclusive or,
because a step never carries into the lane's own chunk bits.
"""

from __future__ import annotations

from nautile.codegen.memory import Ring, SharedTile
from nautile.codegen.sm80.context import Context
from nautile.dtypes import DTYPES
from nautile.terms import Axis

__all__ = ["lane", "left_fragments", "left_lane", "matrix", "word_by_word"]


def left_lane(ctx: Context, tile: SharedTile, ring: Ring, axis: Axis, name: str = "a") -> None:
    """The lane's addresses of a left operand."""
    g = ctx.program.geometry
    lane(ctx, name, tile, ring, axis, g.thread_rows * 16, "warp_row", g.warp_rows, False)


def left_fragments(
    ctx: Context, tile: SharedTile, axis: Axis, k: str, into: str, name: str = "a"
) -> None:
    """Four words of a left operand: word w of row fragment i holds rows lane / 4 + 8 (w & 1), and
    of step k the positions w / 2 * 16 + lane % 4 * 4 of 32 bytes, onwards for four bytes."""
    if word_by_word(tile, axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word >> 1} * 4)"
            column = f"({name}r + i * 16 + {(word & 1) * 8})"
            ctx.emit(
                f"{into}[{word}] = nt_load4({name} + {row} * {tile.layout.pitch} + {column} * 4);"
            )
    else:
        matrix(ctx, into, name, tile, axis, k, "i")


def lane(
    ctx: Context,
    name: str,
    tile: SharedTile,
    ring: Ring,
    axis: Axis,
    part: int,
    warp: str,
    warps: int,
    right: bool,
) -> None:
    """The lane's own part of the addresses of a tile: `name` and, exclusive-ored, `name`x."""
    slot = f"{ctx.slots[ring.name]} + {tile.offset}{_walked(ctx, tile, axis)}"
    first = f"{warp} * {part} + " if warps > 1 else ""
    if word_by_word(tile, axis):
        ctx.emit(f"const nt_u32 {name} = {slot};", f"const int {name}r = {first}(lane >> 2);")
        return
    along, across = ("(lane >> 3) & 1", "lane >> 4") if right else ("lane >> 4", "(lane >> 3) & 1")
    if tile.inner == axis:
        row, chunk = f"{first}(lane & 7) + ({across}) * 8", along
    else:
        chunk_first = f"{warp} * {part // 8} + " if warps > 1 else ""
        row, chunk = f"(lane & 7) + ({along}) * 8", f"{chunk_first}({across})"
    layout = tile.layout
    swizzle = f" ^ (({name}r >> {layout.shift}) & {layout.mask})" if layout.mask else ""
    ctx.emit(f"const int {name}r = {row};")
    ctx.emit(f"const nt_u32 {name} = {slot} + {name}r * {layout.pitch};")
    ctx.emit(f"const nt_u32 {name}x = (({chunk}){swizzle}) << 4;")


def _walked(ctx: Context, tile: SharedTile, axis: Axis) -> str:
    """How far the block's first position lies inside a tile of the whole depth."""
    if (tile.columns if tile.inner == axis else tile.rows) <= ctx.width(axis):
        return ""
    step = DTYPES[tile.element].bytes if tile.inner == axis else tile.layout.pitch
    return f" + {ctx.origin(axis)} * {step}"


def word_by_word(tile: SharedTile, axis: Axis) -> bool:
    """Whether fragments are read word by word: 4-byte elements across the depth."""
    return tile.element == "tf32" and tile.inner != axis


def matrix(
    ctx: Context, into: str, name: str, tile: SharedTile, axis: Axis, k: str, number: str
) -> None:
    pitch = tile.layout.pitch
    if tile.inner == axis:
        at = f"{name} + {number} * {16 * pitch} + ({name}x ^ ({k} * 32))"
        ctx.emit(f"nt_fragments({into}, {at});")
    else:
        at = f"{name} + {k} * {16 * pitch} + ({name}x ^ ({number} * 32))"
        ctx.emit(f"nt_fragments_transposed({into}, {at});")
