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
BATCH = 16  # words of raw elements that a thread holds at once
_WIDENED = {"f8e4m3", "f8e5m2"}  # types whose pairs one instruction widens to f16


def convert(ctx: Context, op: Convert) -> None:
    """All pieces of a box, dealt to the threads of the formers' warps. A thread loads several
    before it computes with the first: one warp of a scheduler has nothing else to wait with."""
    box, threads = op.target, 32 * FORMERS
    across = -(-box.columns // RUN)
    pieces = box.rows * across
    batch = min(BATCH // sum(RUN * DTYPES[b.element].bytes // 4 for _, b, _ in op.sources) or 1, 8)
    ctx.emit(f"// {box.name} = {show_value(op.value)}"[:100])
    ctx.emit("#pragma unroll 1")
    ctx.emit(f"for (int first = threadIdx.x - {128 - threads}; first < {pieces};"
             f" first += {threads * batch}) {{")  # fmt: skip
    raws = {load: f"raw{number}" for number, (load, _, _) in enumerate(op.sources)}
    for load, raw, _ in op.sources:
        ctx.emit(f"nt_u32 {raws[load]}[{batch}][{RUN * DTYPES[raw.element].bytes // 4}];")
    _each(ctx, batch, threads, pieces, across)
    for load, raw, ring in op.sources:
        _read(ctx, f"{raws[load]}[n]", raw, ring)
    ctx.emit("}")
    _each(ctx, batch, threads, pieces, across)
    _piece(ctx, op, {load: f"{name}[n]" for load, name in raws.items()})
    ctx.emit("}", "}")


def _each(ctx: Context, batch: int, threads: int, pieces: int, across: int) -> None:
    """A loop over a thread's pieces of a batch that are there."""
    ctx.unroll(f"for (int n = 0; n < {batch}; n++) {{")
    ctx.emit(f"const int u = first + n * {threads}, r = u / {across}, c = u % {across};")
    if pieces % (threads * batch):
        ctx.emit(f"if (u >= {pieces}) break;")


def _piece(ctx: Context, op: Convert, raws: dict[Load, str]) -> None:
    """Computed, rounded, stored."""
    kind, value = op.target.element, op.value
    ctx.emit("nt_u32 words[4];")
    if isinstance(value, Load) and value.buffer.dtype in _WIDENED and kind == "f16":
        pair = f"(nt_u16)({raws[value]}[i >> 1] >> (i & 1) * 16)"
        ctx.unroll("for (int i = 0; i < 4; i++)")
        ctx.emit(f"words[i] = nt_f16x2_of_{value.buffer.dtype}x2({pair});")
    else:
        _values(ctx, op, raws, ctx.ragged(op.depth))
        ctx.unroll("for (int i = 0; i < 4; i++)")
        ctx.emit(f"words[i] = nt_{kind}x2_of_f32(made[2 * i], made[2 * i + 1]);")
    at = _at(ctx, op.target, op.ring, "c", 2)
    ctx.emit(f"nt_store16({at}, words[0], words[1], words[2], words[3]);")


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
    ctx.emit("{", f"const nt_u32 from = {_at(ctx, box, ring, 'c', size)};")
    flipped = " ^ 0x80808080u" * (box.element == "i8")  # from -128 .. 127 to 0 .. 255
    for word in range(RUN * size // 4):
        # the second chunk of four-byte elements is the first one's neighbour
        there = f"(from ^ 16) + {word * 4 - 16}" if word > 3 else f"from + {word * 4}"
        ctx.emit(f"{name}[{word}] = nt_load4({there}){flipped};")
    ctx.emit("}")


def _element(load: Load, name: str) -> str:
    """Element q of a piece."""
    kind = load.buffer.dtype
    size = DTYPES[kind].bytes
    if size == 4:
        return f"__uint_as_float({name}[q])"
    if size == 2:
        return widened(kind, f"((nt_u16)({name}[q >> 1] >> (q & 1) * 16))")
    if kind == "i8":
        # 2^23 + x + 128 has the byte for its last: a conversion would take four times as long
        bits = f"__byte_perm({name}[q >> 2], 0x4B000000u, 0x7650 + (q & 3))"
        return f"(__uint_as_float({bits}) - 8388736.0f)"
    return widened(kind, f"((nt_u8)({name}[q >> 2] >> (q & 3) * 8))")
