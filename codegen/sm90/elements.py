"""Register values of a warpgroup: pointwise terms, masks, folds along the columns, packed operands.

Loops over a thread's elements are unrolled: columns (j), rows (e), the two neighbours (q). What
depends on the row alone is computed before them, into arrays over e.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from nautile.codegen.expression import Level
from nautile.codegen.memory import Clear, FoldRow, Fragment, Keep, Pack, Rescale, Settle
from nautile.codegen.show import show_value
from nautile.codegen.sm80.context import Place
from nautile.codegen.sm80.elements import COMBINE, quad
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.indices import based
from nautile.codegen.sm90.memory import Mask, MaskTail, Pin, Promote
from nautile.terms import Axis, Term

__all__ = [
    "bare",
    "begun",
    "clear",
    "declare",
    "elements",
    "fold",
    "fold_columns",
    "keep",
    "mask",
    "mask_tail",
    "note",
    "pack",
    "pair",
    "pin",
    "places",
    "promote",
    "rescale",
    "rows",
    "settle",
    "walk",
]

_WORD = re.compile(r"\w+")
_INFINITE = {float("inf"): "nt_inf()", float("-inf"): "-nt_inf()"}


def literal(value: float) -> str:
    return _INFINITE.get(value) or f"{value!r}f"


def declare(ctx: Context) -> None:
    """The arrays of accumulators, packed operands and values of rows."""
    count = ctx.roles.geometry.fragments
    outer = f"[{count}]" * (count > 1)
    for a in ctx.roles.accumulators:
        parts = ", ".join(n for n, _ in a.parts if n != a.name)
        note = f"  // {parts}" if parts else ""
        ctx.emit(f"float {ctx.array(a.name)}{outer}[{a.registers}];{note}")
    for f in ctx.roles.fragments:
        if f.column is None:
            ctx.emit(f"float {ctx.array(f.name)}[{ctx.rows}];")
        elif f.name not in ctx.where:
            ctx.emit(f"nt_u32 {ctx.array(f.name)}{outer}[{f.columns // 4}];")


# -- loops ------------------------------------------------------------------------------------


def walk(
    ctx: Context,
    column: Axis | None,
    width: int,
    terms: Sequence[Term],
    statement: Callable[[list[str]], Iterable[str]],
    precise: bool = True,
    start: int = 0,
) -> None:
    """Loops over a thread's elements, columns from `start`; `statement` gets the terms' texts."""
    ctx.emit("{")
    place, levels, inner = begun(ctx, column, terms, statement, precise)
    if column is None:
        ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
        _position(ctx, [*levels[1].lines, *inner])
        ctx.emit(*levels[1].lines, *inner, "}", "}")
        return
    ctx.unroll(f"for (int j = {start // 8}; j < {width // 8}; j++) {{")
    elements(ctx, column, place, levels[2], inner)
    ctx.emit("}", "}")


def begun(
    ctx: Context,
    column: Axis | None,
    terms: Sequence[Term],
    statement: Callable[[list[str]], Iterable[str]],
    precise: bool,
) -> tuple[Place, list[Level], list[str]]:
    """What stands before the loop over columns, and what is left to be put into it."""
    made = [based(ctx, t, column) for t in terms]
    place, levels = places(ctx, column)
    printer = ctx.printer(levels, place, precise=precise)
    inner = list(statement([printer.value(t) for t, _ in made]))
    ctx.emit(*[line for _, lines in made for line in lines], *levels[0].lines)
    if column is not None:
        rows(ctx, levels[1])
    return place, levels, inner


def places(ctx: Context, column: Axis | None) -> tuple[Place, list[Level]]:
    row = ctx.roles.geometry.row
    positions = {row: "p_row"} | ({column: "p_col"} if column else {})
    ragged = frozenset(a for a in positions if ctx.ragged(a))
    levels = ctx.levels(*([row], [column]) if column else ([row],))
    if column:
        levels[1].several = ctx.rows
    return Place(positions, ragged, column, 2, "q", "p_pair"), levels


def rows(ctx: Context, level: Level) -> None:
    """What depends on the row alone."""
    if level.lines:
        ctx.emit(*level.declared)
        ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
        _position(ctx, level.lines)
        ctx.emit(*level.lines, "}")


def elements(ctx: Context, column: Axis, place: Place, level: Level, inner: list[str]) -> None:
    """The rows and neighbours of one j."""
    origin = ctx.origin(column)
    base = f"{origin} + lane_column + j * 8" if origin != "0" else "lane_column + j * 8"
    if place.chunk:
        ctx.emit(f"const int p_pair = {base};")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    _position(ctx, [*place.chunk, *level.lines, *inner])
    ctx.emit(*place.chunk)
    ctx.unroll("for (int q = 0; q < 2; q++) {")
    if _mentions("p_col", [*level.lines, *inner]):
        ctx.emit(f"const int p_col = {base} + q;")
    ctx.emit(*level.lines, *inner, "}", "}")


def _position(ctx: Context, lines: Sequence[str]) -> None:
    if _mentions("p_row", lines):
        ctx.emit(f"const int p_row = row0 + {ctx.row_step()};")


def bare(text: str) -> str:
    """The expression without parentheses around all of it."""
    depth = 0
    for number, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if text[0] == "(" and number == len(text) - 1 else text
    return text


def _mentions(name: str, lines: Iterable[str]) -> bool:
    return any(name in _WORD.findall(line) for line in lines)


def note(ctx: Context, text: str) -> None:
    """What the next lines compute."""
    ctx.emit(f"// {text if len(text) < 96 else text[:93] + '...'}")


def _each(ctx: Context, target: Fragment, line: str) -> None:
    if target.column:
        ctx.unroll(f"for (int j = 0; j < {target.columns // 8}; j++) {{")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    if target.column:
        ctx.unroll(f"for (int q = 0; q < 2; q++) {line}")
        ctx.emit("}", "}")
    else:
        ctx.emit(line, "}")


# -- operations -------------------------------------------------------------------------------


def mask(ctx: Context, op: Mask) -> None:
    """Only in blocks that are not whole."""
    note(ctx, f"{op.target.name} where {show_value(op.keep)}, else {op.constant}")
    element = ctx.element(op.target)
    if ctx.whole:
        ctx.emit(f"if (!{ctx.whole}) {{  // a block that the mask cuts")
    walk(
        ctx,
        op.target.column,
        op.target.columns,
        [op.keep],
        lambda texts: [f"if (!{texts[0]}) {element} = {literal(op.constant)};"],
    )
    if ctx.whole:
        ctx.emit("}")


def mask_tail(ctx: Context, op: MaskTail) -> None:
    """In the one block that leaves the extent."""
    column = op.target.column
    assert column is not None
    element, extent = ctx.element(op.target), column.extent
    ctx.emit(f"if ({ctx.origin(column)} + {op.target.columns} > {extent}) {{  // the ragged block")
    line = f"if (p_col >= {extent}) {element} = {literal(op.constant)};"
    walk(ctx, column, op.target.columns, [], lambda _: [line])
    ctx.emit("}")


def clear(ctx: Context, op: Clear) -> None:
    _each(ctx, op.target, f"{ctx.element(op.target)} = {literal(op.identity)};")


def keep(ctx: Context, op: Keep) -> None:
    _each(ctx, op.target, f"{ctx.element(op.target)} = {ctx.element(op.source)};")


def promote(ctx: Context, op: Promote) -> None:
    _each(ctx, op.target, f"{ctx.element(op.target)} += {ctx.element(op.source)};")


def fold(ctx: Context, op: FoldRow) -> None:
    """A row's columns combined: within the thread, then over the row's four threads if settled."""
    note(ctx, f"{op.target.name} = {op.monoid} of {op.source.name}")
    fold_columns(ctx, op, pair(ctx, op, "0"), (8, op.source.columns))


def fold_columns(ctx: Context, op: FoldRow, begin: str, columns: tuple[int, int]) -> None:
    combine, target = COMBINE[op.monoid], f"{ctx.array(op.target.name)}[e]"
    carried = target
    if op.repair is not None:
        carried = f"nt_repair({target}, {ctx.array(op.repair.name)}[e])"
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    ctx.emit(f"float v = {begin};")
    several = ctx.roles.geometry.consumers > 2
    if several and op.settled and columns[0] == 8 and columns[1] % 16 == 0:
        _two_chains(ctx, op, columns[1] // 8)
    else:
        ctx.unroll(f"for (int j = {columns[0] // 8}; j < {columns[1] // 8}; j++) {{")
        ctx.emit(f"v = {combine.format('v', pair(ctx, op, 'j'))};", "}")
    if op.settled:
        ctx.emit(*quad(combine, "v"))
    ctx.emit(f"{target} = {combine.format(carried, 'v') if op.carried else 'v'};", "}")


def _two_chains(ctx: Context, op: FoldRow, count: int) -> None:
    """Half as long, where three warpgroups wait for each other (2% of attention of width 64)."""
    combine = COMBINE[op.monoid]
    ctx.emit(f"float u = {pair(ctx, op, '1')};")
    ctx.unroll(f"for (int j = 2; j < {count}; j += 2) {{")
    ctx.emit(f"v = {combine.format('v', pair(ctx, op, 'j'))};")
    ctx.emit(f"u = {combine.format('u', pair(ctx, op, 'j + 1'))};", "}")
    ctx.emit(f"v = {combine.format('v', 'u')};")


def pair(ctx: Context, op: FoldRow, j: str) -> str:
    """Two neighbours combined, of the j-th eight columns."""
    combine, text = COMBINE[op.monoid], ctx.element(op.source)
    places = {"j": "4 * j + ", "j + 1": "4 * j + 4 + ", "0": "", "1": "4 + "}
    text = text.replace("4 * j + ", places[j])
    joined = combine.format(text.replace(" + q", ""), text.replace("+ q", "+ 1"))
    return joined if joined.endswith(")") else f"({joined})"


def settle(ctx: Context, op: Settle) -> None:
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    ctx.emit(*quad(COMBINE[op.monoid], f"{ctx.array(op.target.name)}[e]"), "}")


def rescale(ctx: Context, op: Rescale) -> None:
    """Skipped where no row of the warp has moved; a factor of 0 drops what was carried, NaN too."""
    note(ctx, f"{', '.join(t.name for t in op.targets)} to the new reference, by {op.factor.name}")
    factor = f"{ctx.array(op.factor.name)}[e]"
    ctx.emit("{", "bool moved = false, dropped = false;")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    ctx.emit(f"moved |= !({factor} == 1.0f);", f"dropped |= {factor} == 0.0f;", "}")
    ctx.emit("if (nt_any(dropped)) {")
    for target in op.targets:
        name = ctx.element(target)
        _each(ctx, target, f"{name} = nt_repair({name}, {factor});")
    ctx.emit("} else if (nt_any(moved)) {")
    for target in op.targets:
        _each(ctx, target, f"{ctx.element(target)} *= {factor};")
    ctx.emit("}", "}")


def pack(ctx: Context, op: Pack) -> None:
    """An accumulator's layout is the left operand's: neighbours are rounded and packed in place."""
    note(ctx, f"{op.source.name} as an operand of {op.operand}")
    name, start = ctx.where[op.source.name]
    at = f"{start} + " * (start > 0)
    count = op.source.columns // 4
    for source, target in zip(ctx.pieces(name), ctx.pieces(op.target.name), strict=True):
        pair = f"{source}[{at}2 * i], {source}[{at}2 * i + 1]"
        ctx.unroll(f"for (int i = 0; i < {count}; i++) {{")
        ctx.emit(f"{target}[i] = nt_{op.operand}x2_of_f32({pair});", "}")


def pin(ctx: Context, op: Pin) -> None:
    """So that the next wait is not moved above what computes the source."""
    scratch = f"shared + {ctx.roles.words + 4}"
    if op.never_negative:
        total = " + ".join(f"{ctx.array(op.source.name)}[{e}]" for e in range(ctx.rows))
        ctx.emit(f"nt_pin({scratch}, {total});")
        return
    ctx.emit("{", "nt_u32 bits = 0;")
    if op.source.column is None:
        ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
        ctx.emit(f"bits ^= __float_as_uint({ctx.array(op.source.name)}[e]);", "}")
    else:
        _each(ctx, op.source, f"bits ^= __float_as_uint({ctx.element(op.source)});")
    ctx.emit(f"nt_pin_bits({scratch}, bits);", "}")
