"""Right operands on their way: elements of boxes that the copy engine brought, computed with and
rounded into the box that products read.

A thread takes eight neighbours at once: 16 bytes of the target, which lie in its swizzle as those
of a box that the copy engine brings. Neighbouring threads have neighbouring places, so that the
rows of 128 bytes of either box are read and written whole.
"""

from __future__ import annotations

from nautile.codegen.show import show_value
from nautile.codegen.sm80.context import Place, widened
from nautile.codegen.sm90.boxes import FORMERS
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import Box, Convert, Ring
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Load

__all__ = ["convert"]

RUN = 8  # elements of a thread's piece
_WIDENED = {"f8e4m3", "f8e5m2"}  # types whose pairs one instruction widens to f16


def convert(ctx: Context, op: Convert) -> None:
    """All pieces of a box, dealt to the threads of the formers' warps."""
    box, threads = op.target, 32 * FORMERS
    across = -(-box.columns // RUN)
    ctx.emit(f"// {box.name} = {show_value(op.value)}"[:100])
    first = f"threadIdx.x - {128 - threads}"
    ctx.unroll(f"for (int u = {first}; u < {box.rows * across}; u += {threads}) {{", 4)
    ctx.emit(f"const int r = u / {across}, c = u % {across};")
    ctx.emit("nt_u32 words[4];")
    _pieces(ctx, op)
    at = _at(ctx, box, op.ring, "c", 2)
    ctx.emit(f"nt_store16({at}, words[0], words[1], words[2], words[3]);", "}")


def _pieces(ctx: Context, op: Convert) -> None:
    raws: dict[Load, str] = {}
    for number, (load, raw, ring) in enumerate(op.sources):
        raws[load] = f"raw{number}"
        _read(ctx, raws[load], raw, ring)
    kind, cut = op.target.element, ctx.ragged(op.depth)
    if isinstance(op.value, Load) and op.value.buffer.dtype in _WIDENED and kind == "f16":
        pair = f"(nt_u16)({raws[op.value]}[i >> 1] >> (i & 1) * 16)"
        ctx.unroll("for (int i = 0; i < 4; i++)")
        ctx.emit(f"words[i] = nt_f16x2_of_{op.value.buffer.dtype}x2({pair});")
        return
    _values(ctx, op, raws, cut)
    ctx.unroll("for (int i = 0; i < 4; i++)")
    ctx.emit(f"words[i] = nt_{kind}x2_of_f32(made[2 * i], made[2 * i + 1]);")


def _values(ctx: Context, op: Convert, raws: dict[Load, str], cut: bool) -> None:
    """The value of each element of the piece; 0 where the depth has ended."""
    box = op.target
    positions = {box.outer: "p_outer", box.inner: "p_inner"}
    place = Place(positions, frozenset(a for a in positions if ctx.ragged(a)))
    place.known.update((load, _element(load, name)) for load, name in raws.items())
    levels = ctx.levels([box.outer], [box.inner])
    text = ctx.printer(levels, place, precise=False).value(op.value, "f32")
    if cut:
        text = f"({positions[op.depth]} < {op.depth.extent} ? {text} : 0.0f)"
    ctx.emit(f"float made[{RUN}];", *levels[0].lines)
    ctx.emit(f"const int p_outer = {_from(ctx, box.outer)}r;", *levels[1].lines)
    ctx.unroll(f"for (int q = 0; q < {RUN}; q++) {{")
    ctx.emit(f"const int p_inner = {_from(ctx, box.inner)}c * {RUN} + q;", *levels[2].lines)
    ctx.emit(f"made[q] = {text};", "}")


def _from(ctx: Context, axis: Axis) -> str:
    origin = ctx.origin(axis)
    return f"{origin} + " * (origin != "0")


def _at(ctx: Context, box: Box, ring: Ring, piece: str, size: int) -> str:
    """Where the piece's first 16 bytes lie, or of elements of a byte its 8."""
    each = 16 // size  # elements of a chunk
    chunk = (
        f"{piece} * {RUN // each}" if each < RUN else piece if each == RUN else f"({piece} >> 1)"
    )
    panel = f" + {chunk} / 8 * {box.panel_bytes}" * (box.panels > 1)
    half = f" + ({piece} & 1) * 8" * (each > RUN)
    return f"{ctx.lies(box, ring)}{panel} + r * 128 + ((({chunk}) % 8 ^ (r & 7)) << 4){half}"


def _read(ctx: Context, name: str, box: Box, ring: Ring) -> None:
    """The raw words of a piece."""
    size = DTYPES[box.element].bytes
    ctx.emit(f"nt_u32 {name}[{RUN * size // 4}];")
    at = _at(ctx, box, ring, "c", size)
    ctx.emit("{", f"const nt_u32 from = {at};")
    for word in range(RUN * size // 4):
        # the second chunk of four-byte elements is the first one's neighbour
        there = f"(from ^ 16) + {word * 4 - 16}" if word > 3 else f"from + {word * 4}"
        ctx.emit(f"{name}[{word}] = nt_load4({there});")
    ctx.emit("}")


def _element(load: Load, name: str) -> str:
    """Element q of a piece."""
    kind = load.buffer.dtype
    size = DTYPES[kind].bytes
    if size == 4:
        return f"__uint_as_float({name}[q])"
    if size == 2:
        return widened(kind, f"((nt_u16)({name}[q >> 1] >> (q & 1) * 16))")
    byte = "(signed char)" if kind == "i8" else "(nt_u8)"
    return (
        f"((float){byte}({name}[q >> 2] >> (q & 3) * 8))"
        if kind == "i8"
        else (widened(kind, f"({byte}({name}[q >> 2] >> (q & 3) * 8))"))
    )
