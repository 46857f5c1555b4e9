"""Elements of a box into registers, as f32, where an accumulator's columns would lie, and back.

A thread has rows lane / 4 and lane / 4 + 8 of each 16 and, of every eight columns, two neighbours.
Where the depth is contiguous these are one access: eight rows at once lie in eight different
16-byte chunks of the swizzle, so that no bank is asked twice. Where the rows are contiguous each
element is an access of its own.
"""

from __future__ import annotations

from nautile.codegen.sm80.context import widened
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import PANEL_BYTES, Box, Form, Unpack
from nautile.dtypes import DTYPES

__all__ = ["form", "unpack"]

_FRAGMENT_BYTES = 64 * PANEL_BYTES


def unpack(ctx: Context, op: Unpack) -> None:
    """All elements of the warpgroup's rows."""
    ctx.emit(f"// {op.target.name} = elements of {op.box.map.buffer}", "{")
    along = op.box.inner == op.target.column
    own = _FRAGMENT_BYTES if along else op.box.panel_bytes
    mine = f" + w * {ctx.roles.geometry.fragments * own}" * (ctx.roles.geometry.consumers > 1)
    row = "(warp & 3) * 16 + (lane >> 2)"
    ctx.emit(f"const nt_u32 box = {ctx.lies(op.box, op.ring)}{mine};")
    if along:
        ctx.emit(f"const nt_u32 from = box + ({row}) * {PANEL_BYTES};")
    else:
        ctx.emit(f"const int from_row = {row};")
    ctx.unroll(f"for (int j = 0; j < {op.target.columns // 8}; j++) {{")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    several = ctx.roles.geometry.fragments > 1
    move = f" + (e >> 1) * {own}" * several
    if along:
        _pair(ctx, op, f"from{move} + {'(e & 1)' if several else 'e'} * {8 * PANEL_BYTES}")
    else:
        _singles(ctx, op, f"box{move}", "(e & 1) * 8" if several else "e * 8")
    ctx.emit("}", "}", "}")


def form(ctx: Context, op: Form) -> None:
    """Values of the warpgroup's rows into the box, 16 rows x 16 columns of a warp at once: lane l
    gives the place of row l % 16 of the left or the right eight columns."""
    ctx.emit(f"// {op.source.name} in the place of {op.box.map.buffer}'s elements", "{")
    fragments, kind = ctx.roles.geometry.fragments, op.box.element
    mine = f" + w * {fragments * _FRAGMENT_BYTES}" * (ctx.roles.geometry.consumers > 1)
    ctx.emit(
        f"const nt_u32 box = {ctx.lies(op.box, op.ring)}{mine};",
        "const nt_u32 put_row = (warp & 3) * 16 + (lane & 15);",
    )
    ctx.unroll(f"for (int part = 0; part < {op.source.columns // 16}; part++) {{")
    panel = f" + part / 4 * {op.box.panel_bytes}" * (op.box.panels > 1)
    chunk = "(((part % 4 * 2 + (lane >> 4)) ^ (put_row & 7)) << 4)"
    ctx.emit(f"const nt_u32 to = box{panel} + put_row * {PANEL_BYTES} + {chunk};")
    name, start = ctx.where[op.source.name]
    for number, piece in enumerate(ctx.pieces(name)):
        at = [f"{piece}[{start} + 8 * part + {2 * n}" for n in range(4)]
        words = [f"nt_{kind}x2_of_f32({a}], {a} + 1])" for a in at]
        ctx.emit(f"nt_put_fragments(to + {number * _FRAGMENT_BYTES},")
        ctx.emit(*[f"    {word}," for word in words[:3]], f"    {words[3]});")
    ctx.emit("}", "nt_async_fence();", "nt_named_sync(1 + w, 128);", "}")


def _pair(ctx: Context, op: Unpack, at: str) -> None:
    """Two neighbours along the depth, at one address."""
    size = DTYPES[op.box.element].bytes
    place = f"{at}{_panel(op.box, size)} + ((({_chunk(size)}) ^ (lane >> 2)) << 4)"
    if size == 4:
        words = [f"nt_load4({place} + (lane & 1) * 8{' + 4' * q})" for q in (0, 1)]
        values = [f"__uint_as_float({word})" for word in words]
    elif size == 2:
        ctx.emit(f"const nt_u32 pair = nt_load4({place} + (lane & 3) * 4);")
        values = [widened(op.box.element, f"(nt_u16)(pair{' >> 16' * q})") for q in (0, 1)]
    else:
        flipped = " ^ 0x8080u" * (op.box.element == "i8")
        ctx.emit(f"const nt_u32 pair = nt_load2({place} + (j & 1) * 8 + (lane & 3) * 2){flipped};")
        values = [_byte(op.box.element, q) for q in (0, 1)]
    for q, value in enumerate(values):
        ctx.emit(f"{_element(ctx, op, str(q))} = {value};")


def _byte(kind: str, q: int) -> str:
    """An element of a byte. 2^23 + x + 128 has an integer's byte for its last, its sign flipped: a
    conversion would take four times as long."""
    if kind == "i8":
        return f"__uint_as_float(__byte_perm(pair, 0x4B000000u, {0x7650 + q:#x})) - 8388736.0f"
    return widened(kind, f"((nt_u8)(pair{' >> 8' * q}))")


def _panel(box: Box, size: int) -> str:
    """From the first panel to that of column 8 j."""
    eights = PANEL_BYTES // (8 * size)
    return f" + j / {eights} * {box.panel_bytes}" if box.panels > 1 else ""


def _chunk(size: int) -> str:
    """The 16 bytes in the panel's row that hold the thread's columns of eight j."""
    if size == 4:
        return "j % 4 * 2 + ((lane & 3) >> 1)"
    return "j % 8" if size == 2 else "j / 2 % 8"


def _singles(ctx: Context, op: Unpack, box: str, more: str) -> None:
    """Two neighbours along the depth, in two rows of the box."""
    ctx.emit(f"const int r = from_row + {more};")
    ctx.unroll("for (int q = 0; q < 2; q++) {")
    ctx.emit("const int k = j * 8 + (lane & 3) * 2 + q;")
    place = f"{box} + k * {PANEL_BYTES} + (((r >> 3) ^ (k & 7)) << 4) + (r & 7) * 2"
    value = widened(op.box.element, f"nt_load2({place})")
    ctx.emit(f"{_element(ctx, op, 'q')} = {value};", "}")


def _element(ctx: Context, op: Unpack, q: str) -> str:
    return ctx.element(op.target).replace("+ q]", f"+ {q}]")
