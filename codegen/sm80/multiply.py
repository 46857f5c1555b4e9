"""Fragments from shared memory and mma.sync, one 32-byte step of the depth after another.

A lane's address is `base + rows * pitch + (first ^ chunk * 16)`: the row part and `first` (its own
chunk, swizzled) are set once, steps of 16 rows are constants, and steps of chunks an exclusive or,
because a step never carries into the lane's own chunk bits.
"""

from __future__ import annotations

from nautile.codegen.memory import Fragment, Multiply, Ring, SharedTile
from nautile.codegen.sm80.context import Context
from nautile.dtypes import DTYPES
from nautile.terms import Axis

__all__ = ["multiply"]


def multiply(ctx: Context, op: Multiply) -> None:
    """accumulator += left x right for every pair; the left fragments are loaded once."""
    g = ctx.program.geometry
    width = DTYPES[op.operand].bytes
    steps = op.depth * width // 32
    i = g.thread_rows
    shared_left = isinstance(op.left, SharedTile)
    ctx.emit("{")
    if isinstance(op.left, SharedTile):
        assert op.left_ring is not None
        _lane(ctx, "a", op.left, op.left_ring, op.axis, i * 16, "warp_row", g.warp_rows, False)
    parts = []
    for number, (target, tile, ring) in enumerate(op.pairs):
        part = target.columns // g.warp_columns
        _lane(ctx, f"b{number}", tile, ring, op.axis, part, "warp_column", g.warp_columns, True)
        parts.append(part // 16)
    buffers = 2 if ctx.double_buffer and steps > 1 else 1
    if shared_left:
        ctx.emit(f"nt_u32 fa[{buffers}][{i}][4];")
    for number, part in enumerate(parts):
        ctx.emit(f"nt_u32 fb{number}[{buffers}][{part}][4];")
    if buffers == 2:
        _load_all(ctx, op, parts, "0", "0")
    ctx.unroll(f"for (int k = 0; k < {steps}; k++) {{")
    if buffers == 2:
        ctx.emit(f"if (k + 1 < {steps}) {{")
        _load_all(ctx, op, parts, "(k + 1)", "((k + 1) & 1)")
        ctx.emit("}")
    now = "(k & 1)" if buffers == 2 else "0"
    if buffers == 1 and shared_left:
        _load_left(ctx, op, "k", "0")
    for number, part in enumerate(parts):
        ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
        if buffers == 1:
            _load_right(ctx, op, number, "k", "0")
        left = f"fa[{now}][i]" if shared_left else f"{ctx.value(_packed(op))}[i][k]"
        acc, b = ctx.value(op.pairs[number][0]), f"fb{number}[{now}][j]"
        ctx.unroll(f"for (int i = 0; i < {i}; i++) {{")
        ctx.emit(f"nt_mma_{op.operand}({acc}[i][2 * j], {left}, {b}[0], {b}[1]);")
        ctx.emit(f"nt_mma_{op.operand}({acc}[i][2 * j + 1], {left}, {b}[2], {b}[3]);")
        ctx.emit("}", "}")
    ctx.emit("}", "}")


def _packed(op: Multiply) -> Fragment:
    assert isinstance(op.left, Fragment)
    return op.left


def _load_all(ctx: Context, op: Multiply, parts: list[int], k: str, buffer: str) -> None:
    if isinstance(op.left, SharedTile):
        _load_left(ctx, op, k, buffer)
    for number, part in enumerate(parts):
        ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
        _load_right(ctx, op, number, k, buffer)
        ctx.emit("}")


def _lane(
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
    slot = f"{ctx.slots[ring.name]} + {tile.offset}"
    first = f"{warp} * {part} + " if warps > 1 else ""
    if _scalar(tile, axis):
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


def _scalar(tile: SharedTile, axis: Axis) -> bool:
    """Whether fragments are read word by word: 4-byte elements across the depth."""
    return tile.element == "tf32" and tile.inner != axis


def _load_left(ctx: Context, op: Multiply, k: str, buffer: str) -> None:
    tile = op.left
    assert isinstance(tile, SharedTile)
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    into = f"fa[{buffer}][i]"
    if _scalar(tile, op.axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word >> 1} * 4)"
            column = f"(ar + i * 16 + {(word & 1) * 8})"
            ctx.emit(f"{into}[{word}] = nt_load4(a + {row} * {tile.layout.pitch} + {column} * 4);")
    else:
        _matrix(ctx, into, "a", tile, op.axis, k, "i")
    _round(ctx, op.operand, into)
    ctx.emit("}")


def _load_right(ctx: Context, op: Multiply, number: int, k: str, buffer: str) -> None:
    tile = op.pairs[number][1]
    into, name = f"fb{number}[{buffer}][j]", f"b{number}"
    if op.operand == "tf32" and isinstance(op.left, Fragment):
        _paired(ctx, into, name, tile, op.axis, k)
    elif _scalar(tile, op.axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word & 1} * 4)"
            column = f"({name}r + j * 16 + {(word >> 1) * 8})"
            at = f"{name} + {row} * {tile.layout.pitch} + {column} * 4"
            ctx.emit(f"{into}[{word}] = nt_load4({at});")
    else:
        _matrix(ctx, into, name, tile, op.axis, k, "j")
    _round(ctx, op.operand, into)


def _paired(ctx: Context, into: str, name: str, tile: SharedTile, axis: Axis, k: str) -> None:
    """tf32 against a packed accumulator, which holds positions 2t and 2t + 1 of each eight."""
    layout = tile.layout
    for word in range(4):
        depth = f"({k} * 8 + (lane & 3) * 2 + {word & 1})"
        if _scalar(tile, axis):
            column = f"({name}r + j * 16 + {(word >> 1) * 8})"
            at = f"{name} + {depth} * {layout.pitch} + {column} * 4"
        else:
            row = f"({name}r - (lane & 7) - ((lane >> 4) * 8) + (lane >> 2)"
            row += f" + j * 16 + {(word >> 1) * 8})"
            swizzle = f" ^ (({row} >> {layout.shift}) & {layout.mask})" if layout.mask else ""
            start = f"({name} - {name}r * {layout.pitch})"
            at = f"{start} + {row} * {layout.pitch}"
            at += f" + (({depth} >> 2){swizzle}) * 16 + ({depth} & 3) * 4"
        ctx.emit(f"{into}[{word}] = nt_load4({at});")


def _matrix(
    ctx: Context, into: str, name: str, tile: SharedTile, axis: Axis, k: str, number: str
) -> None:
    pitch = tile.layout.pitch
    if tile.inner == axis:
        at = f"{name} + {number} * {16 * pitch} + ({name}x ^ ({k} * 32))"
        ctx.emit(f"nt_fragments({into}, {at});")
    else:
        at = f"{name} + {k} * {16 * pitch} + ({name}x ^ ({number} * 32))"
        ctx.emit(f"nt_fragments_transposed({into}, {at});")


def _round(ctx: Context, operand: str, into: str) -> None:
    if operand == "tf32":
        ctx.unroll("for (int e = 0; e < 4; e++)")
        ctx.emit(f"{into}[e] = nt_tf32_bits({into}[e]);")
