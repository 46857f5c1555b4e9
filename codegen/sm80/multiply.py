"""Fragments from shared memory and mma.sync, one 32-byte step of the depth after another."""

from __future__ import annotations

from nautile.codegen.memory import Fragment, Multiply, SharedTile
from nautile.codegen.sm80 import depth
from nautile.codegen.sm80.context import Context
from nautile.codegen.sm80.fragments import lane, left_fragments, left_lane, matrix, word_by_word
from nautile.dtypes import DTYPES
from nautile.terms import Axis

__all__ = ["multiply"]


def multiply(ctx: Context, op: Multiply) -> None:
    """accumulator += left x right for every pair; the left fragments are loaded once."""
    g = ctx.program.geometry
    ctx.emit("{")
    if isinstance(op.left, SharedTile):
        assert op.left_ring is not None
        left_lane(ctx, op.left, op.left_ring, op.axis)
        depth.lanes_beside(ctx, op.beside, op.axis)
    parts = []
    for number, (target, tile, ring) in enumerate(op.pairs):
        part = target.columns // g.warp_columns
        lane(ctx, f"b{number}", tile, ring, op.axis, part, "warp_column", g.warp_columns, True)
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
    _declare_pieces(ctx, op)
    _load_all(ctx, op, parts, "0", "0")
    ctx.unroll(f"for (int k = 0; k < {steps}; k++) {{")
    if steps > 1:
        ctx.emit(f"if (k + 1 < {steps}) {{")
        _load_all(ctx, op, parts, "(k + 1)", "((k + 1) & 1)")
        ctx.emit("}")
    now = "(k & 1)" if steps > 1 else "0"
    _left_pieces(ctx, op, f"fa[{now}][i]")
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
    _declare_pieces(ctx, op)
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
    if op.split:
        ctx.emit("if (j == 0) {")
        _left_pieces(ctx, op, "fa[k & 1][i]")
        ctx.emit("}")
    _products(ctx, op, 0, "fa[k & 1][i]", "fb[now]")
    ctx.emit("}", "}")


def _products(ctx: Context, op: Multiply, number: int, left: str, right: str) -> None:
    """The products of one right fragment (16 columns) with all of the warp's rows."""
    if isinstance(op.left, Fragment):
        left = f"{ctx.value(op.left)}[i][k]"
    acc = ctx.value(op.pairs[number][0])
    if op.split:
        ctx.emit("nt_u32 hb[4], lb[4];", f"nt_pieces(hb, lb, {right});")
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    for half in (0, 1):
        into = f"{acc}[i][2 * j{f' + {half}' * half}]"
        if op.split:
            words = ", ".join(f"{b}[{2 * half + q}]" for b in ("hb", "lb") for q in (0, 1))
            ctx.emit(f"nt_mma_pieces({into}, ha[i], la[i], {words});")
        else:
            operands = f"{left}, {right}[{2 * half}], {right}[{2 * half + 1}]"
            ctx.emit(f"nt_mma_{op.operand}({into}, {operands});")
    ctx.emit("}")


def _declare_pieces(ctx: Context, op: Multiply) -> None:
    rows = ctx.program.geometry.thread_rows
    if op.split:
        ctx.emit(f"nt_u32 ha[{rows}][4], la[{rows}][4];")


def _left_pieces(ctx: Context, op: Multiply, left: str) -> None:
    """The two pieces of every left fragment of a step, where products are of pieces."""
    if not op.split:
        return
    if isinstance(op.left, Fragment):
        left = f"{ctx.value(op.left)}[i][k]"
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++)")
    ctx.emit(f"nt_pieces(ha[i], la[i], {left});")


def _load_all(ctx: Context, op: Multiply, parts: list[int], k: str, buffer: str) -> None:
    if isinstance(op.left, SharedTile):
        _load_left(ctx, op, k, buffer)
    for number, part in enumerate(parts):
        ctx.unroll(f"for (int j = 0; j < {part}; j++) {{")
        _load_right(ctx, op, number, f"fb{number}[{buffer}][j]", k, "j")
        ctx.emit("}")


def _load_left(ctx: Context, op: Multiply, k: str, buffer: str) -> None:
    assert isinstance(op.left, SharedTile)
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    into = f"fa[{buffer}][i]"
    if op.formed is None:
        left_fragments(ctx, op.left, op.axis, k, into)
        _round(ctx, op, into)
    else:
        _form(ctx, op, op.left, k, into)
    ctx.emit("}")


def _form(ctx: Context, op: Multiply, tile: SharedTile, k: str, into: str) -> None:
    """A left fragment computed from the raw elements that lie where its own will."""
    assert op.formed is not None
    ctx.emit("nt_u32 raw[4];")
    left_fragments(ctx, tile, op.axis, k, "raw")
    pack = f"nt_{op.operand}x2_of_f32"
    held = [(tile, "raw"), *depth.fragments_beside(ctx, op.beside, op.axis, k)]
    with depth.elements(ctx, op.axis, held, op.formed, k, "0.0f") as value:
        ctx.emit(f"made[q] = {value};")
    ctx.emit(f"{into}[part * 2 + h] = {pack}(made[0], made[1]);", "}", "}")


def _load_right(ctx: Context, op: Multiply, number: int, into: str, k: str, j: str) -> None:
    tile, name = op.pairs[number][1], f"b{number}"
    if op.operand == "tf32" and isinstance(op.left, Fragment):
        _paired(ctx, into, name, tile, op.axis, k, j)
    elif word_by_word(tile, op.axis):
        for word in range(4):
            row = f"({k} * 8 + (lane & 3) + {word & 1} * 4)"
            column = f"({name}r + {j} * 16 + {(word >> 1) * 8})"
            at = f"{name} + {row} * {tile.layout.pitch} + {column} * 4"
            ctx.emit(f"{into}[{word}] = nt_load4({at});")
    else:
        matrix(ctx, into, name, tile, op.axis, k, j)
    _round(ctx, op, into)


def _paired(
    ctx: Context, into: str, name: str, tile: SharedTile, axis: Axis, k: str, j: str
) -> None:
    """tf32 against a packed accumulator, which holds positions 2t and 2t + 1 of each eight."""
    layout = tile.layout
    for word in range(4):
        depth = f"({k} * 8 + (lane & 3) * 2 + {word & 1})"
        if word_by_word(tile, axis):
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


def _round(ctx: Context, op: Multiply, into: str) -> None:
    if op.operand == "tf32" and not op.split:
        ctx.unroll("for (int e = 0; e < 4; e++)")
        ctx.emit(f"{into}[e] = nt_tf32_bits({into}[e]);")
