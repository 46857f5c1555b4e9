"""Registers to global memory: rows gathered in shared memory into 16-byte stores, or directly."""

from __future__ import annotations

from nautile.codegen.memory import Store
from nautile.codegen.schedule.affine import coefficient, divisor, offset
from nautile.codegen.sm80.context import STORED, Context, Place
from nautile.codegen.sm80.elements import columns, walk
from nautile.codegen.types import convert
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Load

__all__ = ["store"]


def store(ctx: Context, op: Store) -> None:
    """Every element inside the extents, rounded to the buffer's type."""
    if op.source.column is None:
        _rows(ctx, op)
    elif op.staging is not None:
        _staged(ctx, op)
    elif _paired(op):
        _pairs(ctx, op)
    else:
        _single(ctx, op)


def narrowed(text: str, source: str, target: str) -> str:
    """An arithmetic value as a stored element."""
    if target in ("bf16", "f16", "f8e4m3", "f8e5m2", "tf32"):
        return f"nt_{target}_of_f32({convert(text, source, 'f32')})"
    if DTYPES[target].kind == "integer":
        return f"({STORED[target]}){text}"
    return convert(text, source, target)


def _inside(ctx: Context, *axes: Axis | None) -> str:
    names = dict(zip(axes, ("p_row", "p_col"), strict=False))
    tests = [f"{names[a]} < {a.extent}" for a in axes if a is not None and ctx.ragged(a)]
    return " && ".join(tests)


def _rows(ctx: Context, op: Store) -> None:
    """One value a row: a thread of the four that hold it stores it."""
    row = ctx.program.geometry.row
    load = Load(op.buffer, op.coordinates)
    tests = ["(lane & 3) == 0"]
    tests += ["warp_column == 0"] * (ctx.program.geometry.warp_columns > 1)
    tests += [t] if (t := _inside(ctx, row)) else []
    at = _address(ctx, load, {row: "p_row"})
    value = narrowed(ctx.element(op.source), op.source.tile.dtype, op.buffer.dtype)
    line = f"if ({' && '.join(tests)}) {ctx.buffer(op.buffer)}[{at}] = {value};"
    walk(ctx, None, 0, [], lambda _: [line])


def _address(ctx: Context, load: Load, positions: dict[Axis, str]) -> str:
    place = Place(positions, frozenset())
    levels = ctx.levels([a for a, _ in ctx.program.tiles])
    printer = ctx.printer(levels, place, precise=True)
    text = ctx.address(load, printer)
    ctx.emit(*levels[0].lines)
    return text if not levels[1].lines else _inlined(levels[1].lines, text)


def _inlined(lines: list[str], text: str) -> str:
    """An address with shared parts, computed in a lambda so that it stays an expression."""
    return f"[&] {{ {' '.join(lines)} return {text}; }}()"


def _single(ctx: Context, op: Store) -> None:
    row, column = ctx.program.geometry.row, op.source.column
    assert column is not None
    at = _address(ctx, Load(op.buffer, op.coordinates), {row: "p_row", column: "p_col"})
    value = narrowed(ctx.element(op.source), op.source.tile.dtype, op.buffer.dtype)
    test = _inside(ctx, row, column)
    line = f"{f'if ({test}) ' if test else ''}{ctx.buffer(op.buffer)}[{at}] = {value};"
    walk(ctx, column, op.source.columns, [], lambda _: [line])


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
    row, column = ctx.program.geometry.row, op.source.column
    assert column is not None
    at = _address(ctx, Load(op.buffer, op.coordinates), {row: "p_row", column: "p_col"})
    name = ctx.value(op.source)
    pair = ", ".join(
        convert(f"{name}[i][j][2 * h + {q}]", op.source.tile.dtype, "f32") for q in (0, 1)
    )
    if op.buffer.dtype == "f32":
        kind, value = "float2", f"make_float2({pair})"
    else:
        kind, value = "nt_u32", f"nt_{op.buffer.dtype}x2_of_f32({pair})"
    test = " && ".join(t for t in ("q == 0", _inside(ctx, row, column)) if t)
    line = f"if ({test}) *({kind}*)({ctx.buffer(op.buffer)} + ({at})) = {value};"
    walk(ctx, column, op.source.columns, [], lambda _: [line])


def _staged(ctx: Context, op: Store) -> None:
    """Sixteen rows of a warp at a time: pairs into its own shared memory, rows out of it."""
    g, column = ctx.program.geometry, op.source.column
    assert column is not None
    part = op.source.columns // g.warp_columns
    pitch, across = part * 2 + 16, part // 8
    name = ctx.value(op.source)
    warp_column = f" + warp_column * {part}" if g.warp_columns > 1 else ""
    ctx.emit("{", f"const nt_u32 staging = shared + {op.staging} + warp * {16 * pitch};")
    ctx.unroll(f"for (int i = 0; i < {g.thread_rows}; i++) {{")
    ctx.unroll("for (int h = 0; h < 2; h++)")
    ctx.unroll(f"for (int j = 0; j < {columns(ctx, op.source)}; j++)")
    pair = ", ".join(
        convert(f"{name}[i][j][2 * h + {q}]", op.source.tile.dtype, "f32") for q in (0, 1)
    )
    to = f"staging + (h * 8 + (lane >> 2)) * {pitch} + (j * 8 + lane_column) * 2"
    ctx.emit(f"nt_store4({to}, nt_{op.buffer.dtype}x2_of_f32({pair}));", "nt_warp_sync();")
    ctx.unroll(f"for (int n = 0; n < {-(-across // 2)}; n++) {{")
    ctx.emit(f"const int r = (lane + n * 32) / {across}, c = (lane + n * 32) % {across};")
    warp_row = f"warp_row * {16 * g.thread_rows} + "
    ctx.emit(f"const int p_row = {ctx.origin(g.row)} + {warp_row}i * 16 + r;")
    ctx.emit(f"const int p_col = {ctx.origin(column)}{warp_column} + c * 8;")
    at = _address(ctx, Load(op.buffer, op.coordinates), {g.row: "p_row", column: "p_col"})
    tests = ["r < 16"] * (across % 2)
    tests += [t] if (t := _inside(ctx, g.row, column)) else []
    test = f"if ({' && '.join(tests)}) " if tests else ""
    address = f"{ctx.buffer(op.buffer)} + ({at})"
    ctx.emit(f"{test}nt_export16({address}, staging + r * {pitch} + c * 16);", "}")
    ctx.emit("nt_warp_sync();", "}", "}")
