"""Register values: pointwise terms, folds along the columns, rescaling and packing.

With lane = 4 g + t, element [i][j][2 h + q] of an accumulator-shaped value is row 16 i + 8 h + g
and column 8 j + 2 t + q of the warp's tile; a value of rows alone is [i][h], the same in the four
threads that share a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nautile.codegen.memory import (
    Clear,
    FoldRow,
    Fragment,
    Keep,
    Pack,
    Pointwise,
    Rescale,
    Settle,
)
from nautile.codegen.schedule.structure import UnsupportedError
from nautile.codegen.sm80.context import Context, Place
from nautile.codegen.types import carrier
from nautile.terms import Axis, Term

__all__ = [
    "clear",
    "declare",
    "fold",
    "keep",
    "pack",
    "pointwise",
    "quad",
    "rescale",
    "settle",
    "walk",
]

_WORD = re.compile(r"\w+")
COMBINE = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "nt_max({0}, {1})"}
COMBINE["min"] = "nt_min({0}, {1})"


def columns(ctx: Context, fragment: Fragment) -> int:
    """8-column fragments of a warp."""
    return fragment.columns // (8 * ctx.program.geometry.warp_columns)


def declare(ctx: Context, fragment: Fragment, packed: str = "") -> None:
    """The register array of a value."""
    i = ctx.program.geometry.thread_rows
    name = ctx.value(fragment)
    if packed:
        steps = fragment.columns // (8 if packed in ("tf32", "f32") else 16)
        ctx.emit(f"nt_u32 {name}[{i}][{steps}][4];")
        return
    if carrier(fragment.tile.dtype) not in ("f32", "i32", "bool"):
        raise UnsupportedError(f"{fragment.name} is of type {fragment.tile.dtype}")
    kind = {"f32": "float", "i32": "int", "bool": "bool"}[carrier(fragment.tile.dtype)]
    shape = f"[{i}][{columns(ctx, fragment)}][4]" if fragment.column else f"[{i}][2]"
    ctx.emit(f"{kind} {name}{shape};")


def walk(
    ctx: Context,
    column: Axis | None,
    width: int,
    terms: Iterable[Term],
    statement: Callable[[list[str]], Iterable[str]],
    precise: bool = True,
) -> None:
    """Loops over a warp's elements; `statement` gets the terms' texts, of an element or a row."""
    g = ctx.program.geometry
    place = _place(ctx, column)
    groups = ([g.row], [column]) if column else ([g.row],)
    levels = ctx.levels(*groups)
    printer = ctx.printer(levels, place, precise=precise)
    inner = list(statement([printer.value(t) for t in terms]))
    used = {w for x in (*levels[-1].lines, *inner) for w in _WORD.findall(x)}
    rows = {w for x in (*levels[1].lines, *place.chunk) for w in _WORD.findall(x)} | used
    ctx.emit("{", *levels[0].lines)
    ctx.unroll(f"for (int i = 0; i < {g.thread_rows}; i++) {{")
    ctx.unroll("for (int h = 0; h < 2; h++) {")
    if "p_row" in rows:
        ctx.emit("const int p_row = row0 + i * 16 + h * 8;")
    ctx.emit(*levels[1].lines)
    if column:
        ctx.unroll(f"for (int j = 0; j < {width // (8 * g.warp_columns)}; j++) {{")
        base = f"{ctx.origin(column)} + {_lane_column(ctx, width)} + j * 8"
        if place.chunk:
            ctx.emit(f"const int p_pair = {base};", *place.chunk)
        ctx.unroll("for (int q = 0; q < 2; q++) {")
        if "p_col" in used:
            ctx.emit(f"const int p_col = {base} + q;")
        ctx.emit(*levels[2].lines)
    ctx.emit(*inner)
    if column:
        ctx.emit("}", "}")
    ctx.emit("}", "}", "}")


def _place(ctx: Context, column: Axis | None) -> Place:
    row = ctx.program.geometry.row
    positions = {row: "p_row"}
    if column:
        positions[column] = "p_col"
    ragged = frozenset(a for a in positions if ctx.ragged(a))
    return Place(positions, ragged, column, 2, "q", "p_pair")


def _lane_column(ctx: Context, width: int) -> str:
    part = width // ctx.program.geometry.warp_columns
    warp = f"warp_column * {part} + " if ctx.program.geometry.warp_columns > 1 else ""
    return f"{warp}lane_column"


def pointwise(ctx: Context, op: Pointwise) -> None:
    """A term into its fragment; in whole blocks of the enclosing loop, its plain form."""
    if op.whole is None:
        _assign(ctx, op, op.value)
        return
    ctx.emit("if (whole) {")
    _assign(ctx, op, op.whole)
    ctx.emit("} else {")
    _assign(ctx, op, op.value)
    ctx.emit("}")


def _assign(ctx: Context, op: Pointwise, value: Term) -> None:
    column, element = op.target.column, ctx.element(op.target)

    def statement(texts: list[str]) -> list[str]:
        return [f"{element} = {texts[0]};"]

    walk(ctx, column, op.target.columns, [value], statement, precise=op.precise)


def clear(ctx: Context, op: Clear) -> None:
    value = {float("inf"): "nt_inf()", float("-inf"): "-nt_inf()"}.get(op.identity)
    text = value or f"{op.identity!r}f"
    _each(ctx, op.target, f"{ctx.element(op.target)} = {text};")


def _each(ctx: Context, target: Fragment, *lines: str) -> None:
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++)")
    ctx.unroll("for (int h = 0; h < 2; h++)")
    if target.column:
        ctx.unroll(f"for (int j = 0; j < {columns(ctx, target)}; j++)")
        ctx.unroll("for (int q = 0; q < 2; q++)")
    ctx.emit("{ " + " ".join(lines) + " }" if len(lines) > 1 else lines[0])


def keep(ctx: Context, op: Keep) -> None:
    _each(ctx, op.target, f"{ctx.element(op.target)} = {ctx.element(op.source)};")


def mask_tail(ctx: Context, source: Fragment, outside: str) -> None:
    """Elements past the column axis' extent become `outside`, in the one block that has them."""
    assert source.column is not None
    if not ctx.ragged(source.column):
        return
    extent, width = source.column.extent, source.columns
    ctx.emit(f"if ({ctx.origin(source.column)} + {width} > {extent}) {{")
    name = ctx.element(source)
    walk(ctx, source.column, width, [], lambda _: [f"if (p_col >= {extent}) {name} = {outside};"])
    ctx.emit("}")


def fold(ctx: Context, op: FoldRow) -> None:
    """A row's columns combined: within the thread, then over the row's four threads if settled."""
    combine = COMBINE[op.monoid]
    identity = {"sum": "0.0f", "prod": "1.0f", "max": "-nt_inf()", "min": "nt_inf()"}[op.monoid]
    mask_tail(ctx, op.source, identity)
    source, target = ctx.value(op.source), ctx.value(op.target)
    carried = f"{target}[i][h]"
    if op.repair is not None:
        carried = f"nt_repair({carried}, {ctx.value(op.repair)}[i][h])"
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    ctx.unroll("for (int h = 0; h < 2; h++) {")
    running = op.carried and not op.settled
    first = f"{source}[i][0][2 * h]"
    ctx.emit(f"float v = {combine.format(carried, first) if running else first};")
    ctx.emit(f"v = {combine.format('v', f'{source}[i][0][2 * h + 1]')};")
    ctx.unroll(f"for (int j = 1; j < {columns(ctx, op.source)}; j++) {{")
    for q in ("", " + 1"):
        ctx.emit(f"v = {combine.format('v', f'{source}[i][j][2 * h{q}]')};")
    ctx.emit("}")
    if op.settled:
        ctx.emit(*quad(combine, "v"))
    joined = op.carried and op.settled
    ctx.emit(f"{target}[i][h] = {combine.format(carried, 'v') if joined else 'v'};")
    ctx.emit("}", "}")


def quad(combine: str, name: str) -> list[str]:
    """Statements that combine a value of the four threads that share a row."""
    return [f"{name} = {combine.format(name, f'nt_shuffle_xor({name}, {d})')};" for d in (1, 2)]


def settle(ctx: Context, op: Settle) -> None:
    _each(ctx, op.target, *quad(COMBINE[op.monoid], ctx.element(op.target)))
    if op.across is None:
        return
    g, name, combine = ctx.program.geometry, ctx.element(op.target), COMBINE[op.monoid]
    row = f"(warp_row * {16 * g.thread_rows} + i * 16 + h * 8 + (lane >> 2))"
    at = f"shared + {op.across} + ({{}} * {g.rows} + {row}) * 4"
    ctx.emit("__syncthreads();", "if ((lane & 3) == 0) {")
    _each(ctx, op.target, f"nt_store4({at.format('warp_column')}, __float_as_uint({name}));")
    ctx.emit("}", "__syncthreads();")
    others = [f"__uint_as_float(nt_load4({at.format(w)}))" for w in range(g.warp_columns)]
    joined = [f"{name} = {combine.format(name, other)};" for other in others[1:]]
    _each(ctx, op.target, f"{name} = {others[0]};", *joined)


def rescale(ctx: Context, op: Rescale) -> None:
    """Skipped where no row of the warp has moved."""
    if op.factor.column is not None:
        raise UnsupportedError(f"{op.factor.name} repairs along columns")
    factor = ctx.value(op.factor)
    ctx.emit("{", "bool moved = false;")
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++)")
    ctx.unroll("for (int h = 0; h < 2; h++)")
    ctx.emit(f"moved |= !({factor}[i][h] == 1.0f);", "if (nt_any(moved)) {")
    for target in op.targets:
        name = ctx.element(target)
        _each(ctx, target, f"{name} = nt_repair({name}, {factor}[i][h]);")
    ctx.emit("}", "}")


def pack(ctx: Context, op: Pack) -> None:
    """The accumulator layout is that of the left operand: pairs are packed in place."""
    mask_tail(ctx, op.source, "0.0f")
    s, t = ctx.value(op.source), ctx.value(op.target)
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    if op.operand in ("tf32", "f32"):
        form = "nt_tf32_bits({})" if op.operand == "tf32" else "{}"
        ctx.unroll(f"for (int j = 0; j < {columns(ctx, op.source)}; j++) {{")
        for word, e in enumerate((0, 2, 1, 3)):
            bits = form.format(f"__float_as_uint({s}[i][j][{e}])")
            ctx.emit(f"{t}[i][j][{word}] = {bits};")
    else:
        ctx.unroll(f"for (int k = 0; k < {columns(ctx, op.source) // 2}; k++) {{")
        narrow = "bf16" if op.operand == "bf16" else "f16"
        wrap = f"nt_round_{op.operand}({{}})" if op.operand.startswith("f8") else "{}"
        for word in range(4):
            a = f"{s}[i][2 * k + {word >> 1}]"
            pair = ", ".join(wrap.format(f"{a}[{2 * (word & 1) + q}]") for q in (0, 1))
            ctx.emit(f"{t}[i][k][{word}] = nt_{narrow}x2_of_f32({pair});")
    ctx.emit("}", "}")
