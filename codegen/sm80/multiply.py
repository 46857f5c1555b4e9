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

__all__ = ["left_fragments", "left_lane", "multiply"]


def multiply(ctx: Context, op: Multiply) -> None:
    """accumulator += left x right for every pair; the left fragments are loaded once."""
    g = ctx.program.geometry
    ctx.emit("{")
    if isinstance(op.left, SharedTile):
        assert op.left_ring is not None
        left_lane(ctx, op.left, op.left_ring, op.axis)
    parts = []
    for number, (target, tile, ring) in enumerate(op.pairs):
        part = target.columns // g.warp_columns
        _lane(ctx, f"b{number}", tile, ring, op.axis, part, "warp_column", g.warp_columns, True)
        parts.append(part // 16)
    steps = op.depth * DTYPES[op.operand].bytes // 32
    if op.prefetch == "fragment" and len(parts) == 1:
        _by_fragment(ctx, op, steps, parts[0])
    else:
        _by_step(ctx, op, steps, parts)
    ctx.emit("}")


def _by_step(ctx: Context, op: Multiply, steps: int, parts: list[int]) -> None:
    """All fragments of step k + 1 are loaded before the products of step k."""
    buffers = 2 if steps > 1 else 1
    if isinstance(op.left, SharedTile):
        ctx.emit(f"nt_u32 fa[{buffers}][{ctx.program.geometry.thread_rows}][4];")
    for number, part in enumerate(parts):
        ctx.emit(f"nt_u32 fb{number}[{buffers}][{part}][4];")
    _load_all(ctx, op, parts, "0", "0")
    ctx.unroll(f"for (int k = 0; k < {steps}; k++) {{")
    if steps > 1:
        ctx.emit(f"if (k + 1 < {steps}) {{")
        _load_all(ctx, op, parts, "(k + 1)", "((k + 1) & 1)")
        ctx.emit("}")
    now = "(k & 1)" if steps > 1 else "0"
    for number, part in enumerate(parts):
        ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
        _products(ctx, op, number, f"fa[{now}][i]", f"fb{number}[{now}][j]")
        ctx.emit("}")
    ctx.emit("}")


def _by_fragment(ctx: Context, op: Multiply, steps: int, part: int) -> None:
    """One right fragment ahead: few registers, for blocks whose accumulators leave no more."""
    if isinstance(op.left, SharedTile):
        ctx.emit(f"nt_u32 fa[2][{ctx.program.geometry.thread_rows}][4];")
        _load_left(ctx, op, "0", "0")
    ctx.emit("nt_u32 fb[2][4];", "const int first_j = 0;")
    _load_right(ctx, op, 0, "fb[0]", "0", "first_j")
    ctx.unroll(f"for (int k = 0; k < {steps}; k++) {{")
    ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
    ctx.emit(f"const int now = (k * {part} + j) & 1, next_j = (j + 1) % {part};")
    ctx.emit(f"const int next_k = k + (j + 1) / {part};", f"if (next_k < {steps}) {{")
    if isinstance(op.left, SharedTile):
        ctx.emit("if (next_j == 0) {")
        _load_left(ctx, op, "next_k", "(next_k & 1)")
        ctx.emit("}")
    _load_right(ctx, op, 0, "fb[now ^ 1]", "next_k", "next_j")
    ctx.emit("}")
    _products(ctx, op, 0, "fa[k & 1][i]", "fb[now]")
    ctx.emit("}", "}")


def _products(ctx: Context, op: Multiply, number: int, left: str, right: str) -> None:
    """The products of one right fragment (16 columns) with all of the warp's rows."""
    if isinstance(op.left, Fragment):
        left = f"{ctx.value(op.left)}[i][k]"
    acc = ctx.value(op.pairs[number][0])
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    for half in (0, 1):
        operands = f"{left}, {right}[{2 * half}], {right}[{2 * half + 1}]"
        ctx.emit(f"nt_mma_{op.operand}({acc}[i][2 * j{f' + {half}' * half}], {operands});")
    ctx.emit("}")


def _load_all(ctx: Context, op: Multiply, parts: list[int], k: str, buffer: str) -> None:
    if isinstance(op.left, SharedTile):
        _load_left(ctx, op, k, buffer)
    for number, part in enumerate(parts):
        ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
        _load_right(ctx, op, number, f"fb{number}[{buffer}][j]", k, "j")
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
    assert isinstance(op.left, SharedTile)
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    into = f"fa[{buffer}][i]"
    left_fragments(ctx, op.left, op.axis, k, into)
    _round(ctx, op.operand, into)
    ctx.emit("}")


def left_lane(ctx: Context, tile: SharedTile, ring: Ring, axis: Axis) -> None:
    """The lane's addresses, "a", of a left operand."""
    g = ctx.program.geometry
    _lane(ctx, "a", tile, ring, axis, g.thread_rows * 16, "warp_row", g.warp_rows, False)


def left_fragments(ctx: Context, tile: SharedTile, axis: Axis, k: str, into: str) -> None:
    """Four words of a left operand: word w of row fragment i holds rows lane / 4 + 8 (w & 1), and
    of step k the positions w / 2 * 16 + lane % 4 * 4 of 32 bytes, onwards for four bytes."""
    if _scalar(tile, axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word >> 1} * 4)"
            column = f"(ar + i * 16 + {(word & 1) * 8})"
            ctx.emit(f"{into}[{word}] = nt_load4(a + {row} * {tile.layout.pitch} + {column} * 4);")
    else:
        _matrix(ctx, into, "a", tile, axis, k, "i")


def _load_right(ctx: Context, op: Multiply, number: int, into: str, k: str, j: str) -> None:
    tile, name = op.pairs[number][1], f"b{number}"
    if op.operand == "tf32" and isinstance(op.left, Fragment):
        _paired(ctx, into, name, tile, op.axis, k, j)
    elif _scalar(tile, op.axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word & 1} * 4)"
            column = f"({name}r + {j} * 16 + {(word >> 1) * 8})"
            at = f"{name} + {row} * {tile.layout.pitch} + {column} * 4"
            ctx.emit(f"{into}[{word}] = nt_load4({at});")
    else:
        _matrix(ctx, into, name, tile, op.axis, k, j)
    _round(ctx, op.operand, into)


def _paired(
    ctx: Context, into: str, name: str, tile: SharedTile, axis: Axis, k: str, j: str
) -> None:
    """tf32 against a packed accumulator, which holds positions 2t and 2t + 1 of each eight."""
    layout = tile.layout
    for word in range(4):
        depth = f"({k} * 8 + (lane & 3) * 2 + {word & 1})"
        if _scalar(tile, axis):
            column = f"({name}r + {j} * 16 + {(word >> 1) * 8})"
            at = f"{name} + {depth} * {layout.pitch} + {column} * 4"
        else:
            row = f"({name}r - (lane & 7) - ((lane >> 4) * 8) + (lane >> 2)"
            row += f" + {j} * 16 + {(word >> 1) * 8})"
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
