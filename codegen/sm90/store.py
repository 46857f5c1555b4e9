"""Registers to global memory: by the copy engine through shared memory, or directly.

By the copy engine, a warpgroup writes panels of 64 rows x 128 bytes, 16-bit elements with stmatrix,
in the swizzle that its tensor map has, into two buffers or more in turn; one thread stores each
panel.
"""

from __future__ import annotations

from nautile.codegen.affine import integer
from nautile.codegen.kernel_text import wide_offset
from nautile.codegen.memory import Store
from nautile.codegen.schedule.affine import coefficient, divisor, offset, strides
from nautile.codegen.show import show_value
from nautile.codegen.sm80.store import narrowed
from nautile.codegen.sm90.ahead import exchanged
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.elements import bare, elements, places, rows, walk
from nautile.codegen.sm90.indices import based
from nautile.codegen.sm90.memory import PANEL_BYTES, StoreTile
from nautile.codegen.types import convert, dtype_of
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Const, Load, Term

__all__ = ["LEADER", "coordinates", "store", "store_tile"]

LEADER = "(threadIdx.x & 127) == 0"
_BUFFER = 64 * PANEL_BYTES


def coordinates(ctx: Context, places: tuple[Term, ...], moved: dict[int, str]) -> str:
    """A place in a map as arguments, fastest first; `moved` is added to some."""
    texts = []
    for number, term in enumerate(places):
        text = ctx.integer(term)
        text = text[1:-1] if text.startswith("(") and text.count("(") == 1 else text
        more = moved.get(number, "")
        texts.append(more if text == "0" and more else f"{text} + {more}" if more else text)
    return ", ".join(texts)


def store_tile(ctx: Context, op: StoreTile) -> None:
    """Panel after panel, in four parts each: the values of 16 rows x 16 columns of a warp are one
    stmatrix, those of 16 rows x 8 columns of f32 two stores."""
    wide, halves = _panel(op), _panel(op) // 32
    ctx.emit(f"// {op.buffer.name} = {show_value(op.value)}"[:100], "{")
    term, bases = based(ctx, op.value, op.column)
    place, levels = places(ctx, op.column)
    place.known.update(exchanged(ctx, op.value))
    printer = ctx.printer(levels, place, precise=op.precise)
    value = convert(printer.value(term), dtype_of(term), "f32")
    several = ctx.roles.geometry.fragments > 1
    v = "v[e >> 1][4 * half + 2 * (e & 1) + q]" if several else "v[4 * half + 2 * e + q]"
    ctx.emit(*bases, *levels[0].lines)
    rows(ctx, levels[1])
    ctx.emit(
        f"const nt_u32 staging = shared + {op.staging}{_own(ctx, op)};",
        f"const nt_u32 put_row = (warp & 3) * 16 + (lane {'& 15' if halves == 2 else '>> 2'});",
    )
    ctx.unroll(f"for (int panel = 0; panel < {-(-op.columns // wide)}; panel++) {{")
    ctx.emit(f"const nt_u32 to = staging + {_turn(op)} * {_BUFFER * ctx.rows // 2};")
    _free(ctx, op, -(-op.columns // wide))
    ctx.unroll("for (int part = 0; part < 4; part++) {")
    if op.columns % wide:
        ctx.emit(f"if (panel * 4 + part >= {op.columns * 4 // wide}) break;")
    ctx.emit(f"float v{f'[{ctx.rows // 2}]' * several}[{4 * halves}];")
    ctx.unroll(f"for (int half = 0; half < {halves}; half++) {{")
    ctx.emit(f"const int j = panel * {4 * halves} + part * {halves} + half;")
    elements(ctx, op.column, place, levels[2], [f"{v} = {bare(value)};"])
    ctx.emit("}")
    (_put if halves == 2 else _put_words)(ctx, op)
    ctx.emit("}", "nt_async_fence();", "nt_named_sync(1 + w, 128);")
    _send(ctx, op)
    ctx.emit("}", "}")


def _turn(op: StoreTile) -> str:
    """The number of the panel's buffer."""
    return f"(panel & {op.buffers - 1})" if op.buffers in (2, 4) else f"(panel % {op.buffers})"


def _free(ctx: Context, op: StoreTile, panels: int) -> None:
    """At first all buffers are waited for, later the one whose turn comes again."""
    again = panels > op.buffers
    ctx.emit("if (panel == 0" + f" || panel >= {op.buffers}" * again + ") {", f"if ({LEADER}) {{")
    if again:
        last = f"nt_bulk_wait_read<{op.buffers - 1}>()"
        ctx.emit(f"if (panel > 0) {last}; else nt_bulk_wait_read<0>();", "}")
    else:
        ctx.emit("nt_bulk_wait_read<0>();", "}")
    ctx.emit("nt_named_sync(1 + w, 128);", "}")


def _own(ctx: Context, op: StoreTile) -> str:
    """From the first warpgroup's buffers to this one's."""
    each = op.buffers * _BUFFER * ctx.roles.geometry.fragments
    return f" + w * {each}" * (ctx.roles.geometry.consumers > 1)


def _panel(op: StoreTile) -> int:
    """Columns of a panel."""
    return PANEL_BYTES // DTYPES[op.buffer.dtype].bytes


def _put_words(ctx: Context, op: StoreTile) -> None:
    """Each lane stores its pairs of neighbours, of rows l / 4 and 8 further."""
    at = "to + put_row * 128 + (((part * 2 + ((lane & 3) >> 1)) ^ (put_row & 7)) << 4)"
    for i in range(ctx.roles.geometry.fragments):
        v = f"v[{i}]" if ctx.roles.geometry.fragments > 1 else "v"
        for e in (0, 1):
            pair = ", ".join(f"__float_as_uint({v}[{2 * e + q}])" for q in (0, 1))
            there = f" + {i * _BUFFER + e * 8 * PANEL_BYTES}" if i or e else ""
            ctx.emit(f"nt_store8({at} + (lane & 1) * 8{there}, {pair});")


def _put(ctx: Context, op: StoreTile) -> None:
    """Lane l gives the place of row l % 16 of the left or the right eight columns."""
    at = "to + put_row * 128 + (((part * 2 + (lane >> 4)) ^ (put_row & 7)) << 4)"
    for i in range(ctx.roles.geometry.fragments):
        v = f"v[{i}]" if ctx.roles.geometry.fragments > 1 else "v"
        words = [f"nt_{op.buffer.dtype}x2_of_f32({v}[{2 * n}], {v}[{2 * n + 1}])" for n in range(4)]
        there = f"{at} + {i * _BUFFER}" if i else at
        ctx.emit(f"nt_put_fragments({there},", *[f"    {w}," for w in words[:3]])
        ctx.emit(f"    {words[3]});")


def _send(ctx: Context, op: StoreTile) -> None:
    geometry = ctx.roles.geometry
    ctx.emit(f"if ({LEADER}) {{")
    mine = 0 if geometry.alternate or geometry.consumers == 1 else 64 * geometry.fragments
    for i in range(geometry.fragments):
        row = " + ".join([f"w * {mine}"] * (mine > 0) + [str(64 * i)] * (i > 0))
        at = coordinates(ctx, op.places, {0: f"panel * {_panel(op)}", op.row_place: row})
        there = f"to + {i * _BUFFER}" if i else "to"
        name = f"nt_tma_store_{len(op.places)}d"
        ctx.emit(f"{name}(&{ctx.maps[op.map]}, {there}, {at});")
    ctx.emit("nt_bulk_commit();", "}")


def store(ctx: Context, op: Store) -> None:
    """Every element inside the extents, rounded to the buffer's type."""
    if op.source.column is None:
        _rows(ctx, op)
    elif _paired(op):
        _pairs(ctx, op)
    else:
        _single(ctx, op)


def _rows(ctx: Context, op: Store) -> None:
    """One value a row: a thread of the four that hold it stores it."""
    tests = ["(lane & 3) == 0", *_inside(ctx, None)]
    value = narrowed(ctx.element(op.source), op.source.tile.dtype, op.buffer.dtype)
    name = ctx.buffer(op.buffer)
    walk(
        ctx,
        None,
        0,
        [_offset(op)],
        lambda at: [f"if ({' && '.join(tests)}) {name}[{at[0]}] = {value};"],
    )


def _single(ctx: Context, op: Store) -> None:
    test = " && ".join(_inside(ctx, op.source.column))
    value = narrowed(ctx.element(op.source), op.source.tile.dtype, op.buffer.dtype)
    name, guard = ctx.buffer(op.buffer), f"if ({test}) " * bool(test)
    walk(
        ctx,
        op.source.column,
        op.source.columns,
        [_offset(op)],
        lambda at: [f"{guard}{name}[{at[0]}] = {value};"],
    )


def _paired(op: Store) -> bool:
    """Whether two neighbouring columns can be stored as one word or two."""
    column = op.source.column
    form = offset(Load(op.buffer, op.coordinates))
    return (
        column is not None
        and op.buffer.dtype in ("bf16", "f16", "f32")
        and coefficient(form, column) == 1
        and divisor(form, column, 2) == 2
        and column.extent % 2 == 0
    )


def _pairs(ctx: Context, op: Store) -> None:
    dtype, kind = op.source.tile.dtype, op.buffer.dtype
    element = ctx.element(op.source)
    pair = ", ".join(convert(element.replace("+ q]", f"+ {q}]"), dtype, "f32") for q in (0, 1))
    whole = "float2" if kind == "f32" else "nt_u32"
    value = f"make_float2({pair})" if kind == "f32" else f"nt_{kind}x2_of_f32({pair})"
    test = " && ".join(["q == 0", *_inside(ctx, op.source.column)])
    walk(
        ctx,
        op.source.column,
        op.source.columns,
        [_offset(op)],
        lambda at: [f"if ({test}) *({whole}*)({ctx.buffer(op.buffer)} + {at[0]}) = {value};"],
    )


def _offset(op: Store) -> Term:
    """The element's place in its buffer."""
    total: Term = Const(0)
    for term, stride in zip(op.coordinates, strides(op.buffer.shape), strict=True):
        total = integer("add", integer("mul", term, Const(stride)), total)
    return wide_offset(op.buffer, total)


def _inside(ctx: Context, column: Axis | None) -> list[str]:
    names = {ctx.roles.geometry.row: "p_row"} | ({column: "p_col"} if column else {})
    return [f"{name} < {axis.extent}" for axis, name in names.items() if ctx.ragged(axis)]
